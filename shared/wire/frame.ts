// Message types, big-endian integers and the bounds of every frame. No buffering and no state.
// A frame is a type byte, an int32 length that counts itself, and a body of length - 4 bytes.
// The checks allocate nothing when the frame is fine: they run once per message on the hot path.

/** Message type bytes a client sends. */
export const Frontend = {
  query: 0x51, // Q
  parse: 0x50, // P
  bind: 0x42, // B
  describe: 0x44, // D
  execute: 0x45, // E
  close: 0x43, // C
  sync: 0x53, // S
  flush: 0x48, // H
  functionCall: 0x46, // F
  copyData: 0x64, // d
  copyDone: 0x63, // c
  copyFail: 0x66, // f
  password: 0x70, // p: password, SASLInitialResponse, SASLResponse, GSS
  terminate: 0x58, // X
} as const;

/** Message type bytes a server sends. */
export const Backend = {
  authentication: 0x52, // R
  backendKeyData: 0x4b, // K
  parameterStatus: 0x53, // S
  readyForQuery: 0x5a, // Z
  errorResponse: 0x45, // E
  noticeResponse: 0x4e, // N
  notification: 0x41, // A
  parseComplete: 0x31, // 1
  bindComplete: 0x32, // 2
  closeComplete: 0x33, // 3
  parameterDescription: 0x74, // t
  rowDescription: 0x54, // T
  noData: 0x6e, // n
  dataRow: 0x44, // D
  commandComplete: 0x43, // C
  emptyQuery: 0x49, // I
  portalSuspended: 0x73, // s
  copyIn: 0x47, // G
  copyOut: 0x48, // H
  copyBoth: 0x57, // W
  copyData: 0x64, // d
  copyDone: 0x63, // c
  functionCallResponse: 0x56, // V
  negotiateProtocolVersion: 0x76, // v
} as const;

/** PostgreSQL's PQ_LARGE_MESSAGE_LIMIT: what it takes at most from a client (MaxAllocSize - 1). */
export const largeMessageLimit = 0x3ffffffe;
/** What it sends may be as much larger as the words in front of the data: it holds the data alone. */
const largeBackendLimit = 0x40000001;
/** PostgreSQL's PQ_SMALL_MESSAGE_LIMIT: client messages that carry no query text and no data. */
export const smallMessageLimit = 10_000;
/** A password of 65,535 bytes with its terminator and the length word; PostgreSQL stops at 65,530. */
export const passwordMessageLimit = 4 + 65_535 + 1;
/** libpq takes a longer message of a type that carries no data as a sign of lost synchronisation. */
const shortBackendLimit = 30_000;
/** Wider than libpq's 30,000, since search_path is reported since PostgreSQL 18. */
const parameterStatusLimit = 1 << 20;

type Bounds = readonly [name: string, least: number, most: number];

const frontendBounds: Record<number, Bounds> = {
  [Frontend.query]: ["Query", 4, largeMessageLimit],
  [Frontend.parse]: ["Parse", 4, largeMessageLimit],
  [Frontend.bind]: ["Bind", 4, largeMessageLimit],
  [Frontend.functionCall]: ["FunctionCall", 4, largeMessageLimit],
  [Frontend.copyData]: ["CopyData", 4, largeMessageLimit],
  [Frontend.describe]: ["Describe", 4, smallMessageLimit],
  [Frontend.execute]: ["Execute", 4, smallMessageLimit],
  [Frontend.close]: ["Close", 4, smallMessageLimit],
  [Frontend.copyFail]: ["CopyFail", 4, smallMessageLimit],
  [Frontend.sync]: ["Sync", 4, 4],
  [Frontend.flush]: ["Flush", 4, 4],
  [Frontend.copyDone]: ["CopyDone", 4, 4],
  [Frontend.terminate]: ["Terminate", 4, 4],
  [Frontend.password]: ["password message", 4, passwordMessageLimit],
};

const backendBounds: Record<number, Bounds> = {
  [Backend.authentication]: ["Authentication", 8, shortBackendLimit],
  [Backend.backendKeyData]: ["BackendKeyData", 12, 4 + 4 + 256],
  [Backend.parameterStatus]: ["ParameterStatus", 4, parameterStatusLimit],
  [Backend.readyForQuery]: ["ReadyForQuery", 5, 5],
  [Backend.errorResponse]: ["ErrorResponse", 4, largeBackendLimit],
  [Backend.noticeResponse]: ["NoticeResponse", 4, largeBackendLimit],
  [Backend.notification]: ["NotificationResponse", 4, largeBackendLimit],
  [Backend.parseComplete]: ["ParseComplete", 4, 4],
  [Backend.bindComplete]: ["BindComplete", 4, 4],
  [Backend.closeComplete]: ["CloseComplete", 4, 4],
  [Backend.parameterDescription]: ["ParameterDescription", 6, largeBackendLimit],
  [Backend.rowDescription]: ["RowDescription", 6, largeBackendLimit],
  [Backend.noData]: ["NoData", 4, 4],
  [Backend.dataRow]: ["DataRow", 6, largeBackendLimit],
  [Backend.commandComplete]: ["CommandComplete", 4, shortBackendLimit],
  [Backend.emptyQuery]: ["EmptyQueryResponse", 4, 4],
  [Backend.portalSuspended]: ["PortalSuspended", 4, 4],
  [Backend.copyIn]: ["CopyInResponse", 7, shortBackendLimit],
  [Backend.copyOut]: ["CopyOutResponse", 7, shortBackendLimit],
  [Backend.copyBoth]: ["CopyBothResponse", 7, shortBackendLimit],
  [Backend.copyData]: ["CopyData", 4, largeBackendLimit],
  [Backend.copyDone]: ["CopyDone", 4, 4],
  [Backend.functionCallResponse]: ["FunctionCallResponse", 8, largeBackendLimit],
  [Backend.negotiateProtocolVersion]: ["NegotiateProtocolVersion", 12, shortBackendLimit],
};

// Two words per type byte, so that the check on the hot path is two reads and two comparisons.
// An unknown type keeps [1, 0]: no length satisfies it.
function boundsTable(bounds: Record<number, Bounds>): Int32Array {
  const table = new Int32Array(512);
  for (let type = 0; type < 256; type++) {
    const entry = bounds[type];
    table[type * 2] = entry ? entry[1] : 1;
    table[type * 2 + 1] = entry ? entry[2] : 0;
  }
  return table;
}

const frontendTable = boundsTable(frontendBounds);
const backendTable = boundsTable(backendBounds);

/** The signed big-endian 32-bit integer at `at`. The caller guarantees that four bytes are there. */
export function readInt32(bytes: Uint8Array, at: number): number {
  return (bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!;
}

/** The signed big-endian 16-bit integer at `at`. The caller guarantees that two bytes are there. */
export function readInt16(bytes: Uint8Array, at: number): number {
  return ((bytes[at]! << 24) >> 16) | bytes[at + 1]!;
}

/** Writes the low 32 bits of `value` at `at`, big-endian. */
export function writeInt32(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value >>> 24;
  bytes[at + 1] = value >>> 16;
  bytes[at + 2] = value >>> 8;
  bytes[at + 3] = value;
}

/** Writes the low 16 bits of `value` at `at`, big-endian. */
export function writeInt16(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value >>> 8;
  bytes[at + 1] = value;
}

/**
 * What is wrong with the header of a client message, or null. `length` is the signed length word.
 * The bounds are PostgreSQL's (SocketBackend, pq_getmessage), except that a Sync, Flush, CopyDone or
 * Terminate with a body is refused, and that a password may be a few bytes longer.
 * Whether the type is expected in the connection's state is the caller's question.
 * The text opens as PgBouncer's does ("bad packet header", "unknown pkt"). SQLSTATE 08P01.
 */
export function frontendFrameProblem(type: number, length: number): string | null {
  return length >= frontendTable[type * 2]! && length <= frontendTable[type * 2 + 1]!
    ? null
    : describeFrameProblem(frontendBounds[type], type, length);
}

/**
 * What is wrong with the header of a server message, or null. `length` is the signed length word.
 * Bounds: exact for messages of fixed size, libpq's 30,000 for messages that carry no data (a
 * ParameterStatus may have 1 MiB), else PostgreSQL's allocation limit; keys of 4 to 256 bytes.
 */
export function backendFrameProblem(type: number, length: number): string | null {
  return length >= backendTable[type * 2]! && length <= backendTable[type * 2 + 1]!
    ? null
    : describeFrameProblem(backendBounds[type], type, length);
}

function describeFrameProblem(bounds: Bounds | undefined, type: number, length: number): string {
  const typeHex = (type & 0xff).toString(16).padStart(2, "0");
  if (!bounds) return `unknown pkt: message type 0x${typeHex}`;
  const [name, least, most] = bounds;
  const header = typeHex + (length >>> 0).toString(16).padStart(8, "0");
  const wanted = least === most ? `${least}` : `${least} to ${most}`;
  return `bad packet header: '${header}', ${name} of length ${length}, wanted ${wanted}`;
}
