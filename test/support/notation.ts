// The short notation of protocol traffic in tests. Messages of a client are built by `f`, one letter each, as in
// `f.Q("SELECT 1")` or `f.P("s", "SELECT $1"), f.B("", "s", ["7"]), f.E(), f.S()`. Replies of a server are
// written by `notation` as R K S{k=v} v 1 2 3 t(n) T n D s I C"tag" E(sqlstate) N A G H W V d c Z(I|T|E).

import {
  Backend,
  bindMessage,
  closeMessage,
  concatBytes,
  copyDataMessage,
  copyDoneMessage,
  copyFailMessage,
  describeMessage,
  executeMessage,
  flushMessage,
  Frontend,
  type Message,
  message,
  parseCommandTag,
  parseDataRow,
  parseErrorFields,
  parseMessage,
  parseParameterStatus,
  queryMessage,
  readInt16,
  syncMessage,
  terminateMessage,
  writeInt16,
  writeInt32,
} from "../../shared/wire/mod.ts";

const utf8 = new TextEncoder();
const text = new TextDecoder();

function functionCall(oid: number, values: readonly string[] = []): Uint8Array {
  const head = new Uint8Array(8);
  writeInt32(head, 0, oid);
  writeInt16(head, 4, 0);
  writeInt16(head, 6, values.length);
  const parts = values.map((value) => {
    const bytes = new Uint8Array(4 + utf8.encode(value).length);
    writeInt32(bytes, 0, bytes.length - 4);
    bytes.set(utf8.encode(value), 4);
    return bytes;
  });
  return message(Frontend.functionCall, head, ...parts, new Uint8Array(2));
}

/** Builders of the messages a client sends, named by their type byte. */
export const f = {
  Q: queryMessage,
  P: parseMessage,
  B: (
    portal = "",
    statement = "",
    values: readonly (string | Uint8Array | null)[] = [],
    resultFormats: readonly (0 | 1)[] = [],
  ): Uint8Array => bindMessage(portal, statement, values, resultFormats),
  D: (kind: "S" | "P" = "P", name = ""): Uint8Array => describeMessage(kind, name),
  E: (portal = "", maxRows = 0): Uint8Array => executeMessage(portal, maxRows),
  C: closeMessage,
  S: syncMessage,
  H: flushMessage,
  F: functionCall,
  X: terminateMessage,
  d: (data: string | Uint8Array): Uint8Array =>
    copyDataMessage(typeof data === "string" ? utf8.encode(data) : data),
  c: copyDoneMessage,
  f: copyFailMessage,
} as const;

/** A frame whose length word is whatever the test wants, followed by `body` as it is. */
export function badFrame(type: string, length: number, body = new Uint8Array(0)): Uint8Array {
  const head = new Uint8Array(5);
  head[0] = type.charCodeAt(0);
  writeInt32(head, 1, length);
  return concatBytes(head, body);
}

export interface NotationOptions {
  /** Writes the values of rows, `D("1",NULL)`, instead of a bare D. */
  readonly values?: boolean;
  /** Writes the names of changed settings with their values, `S{TimeZone=UTC}`, instead of a bare S. */
  readonly settings?: boolean;
}

/** The values of a DataRow as text, null for NULL. */
export function rowValues(row: Message): (string | null)[] {
  const values = parseDataRow(row.body);
  if (values === null) throw new Error("read DataRow: damaged");
  return values.map((value) => value === null ? null : text.decode(value));
}

/** One message of a server in the short notation. */
export function notation(reply: Message, options: NotationOptions = {}): string {
  const letter = String.fromCharCode(reply.type);
  switch (reply.type) {
    case Backend.readyForQuery:
      return `Z(${text.decode(reply.body)})`;
    case Backend.errorResponse:
      return `E(${parseErrorFields(reply.body).code})`;
    case Backend.commandComplete:
      return `C"${parseCommandTag(reply.body).tag}"`;
    case Backend.parameterDescription:
      return `t(${readInt16(reply.body, 0)})`;
    case Backend.parameterStatus: {
      const setting = parseParameterStatus(reply.body);
      return options.settings ? `S{${setting?.name}=${setting?.value}}` : letter;
    }
    case Backend.dataRow: {
      if (!options.values) return letter;
      const values = rowValues(reply).map((value) => value === null ? "NULL" : `"${value}"`);
      return `D(${values.join(",")})`;
    }
    default:
      return letter;
  }
}
