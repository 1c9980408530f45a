// Every subject of the mesh and every payload on it, in one place: who sends it, how often, and what
// happens when it is lost. Checks are written by hand and build a clean copy: unknown fields are
// left behind, so that a newer sender may add some. Pure.
// Invariants: all subjects begin with `pgweir.<mesh>.`; a cancel key is only ever in a payload.

import { BusError } from "./errors.ts";

/** A kind of payload. The wire form is a map with `v`, the version, beside the message's fields. */
export interface Payload<M> {
  readonly name: string;
  /** Raised when old readers would misread the payload; they drop what is newer than they know. */
  readonly version: number;
  /** The message in a clean copy, or null when a field is missing, of another type or out of range. */
  readonly check: (raw: Readonly<Record<string, unknown>>) => M | null;
}

/** What can be subscribed to: one subject, or a pattern with wildcards. */
export interface Pattern<M, R = null> {
  readonly subject: string;
  readonly message: Payload<M>;
  /** The kind of answer a request on this subject gets; null for what nobody answers. */
  readonly reply: Payload<R> | null;
  /** Whether this message may come from this subject; one that may not is dropped as malformed. */
  readonly accepts?: (subject: string, message: M) => boolean;
}

/** One subject, without wildcards: can be published to. */
export interface Subject<M, R = null> extends Pattern<M, R> {
  readonly wildcard: false;
}

export type WorkerState = "starting" | "ready" | "draining" | "gone";

/** What a worker says about itself. */
export interface Presence {
  /** Worker id, unique in the mesh. */
  readonly id: number;
  /** Differs at each start of the worker. */
  readonly incarnation: number;
  readonly host: string;
  readonly pid: number;
  readonly state: WorkerState;
  /** Where it listens: `127.0.0.1:6432`, `[::1]:6432`, `/tmp/.s.PGSQL.6432`. */
  readonly addresses: readonly string[];
  /** Client connections now. */
  readonly clients: number;
  /** Server connections now. */
  readonly servers: number;
  /** Equal on all workers that run the same configuration. */
  readonly configHash: string;
  /** `bun 1.4.5`. */
  readonly runtime: string;
}

/** A cancel request that reached a worker which does not own its key. */
export interface CancelRequest {
  /** The process id of the client's cancel key, as an unsigned 32-bit number. */
  readonly processId: number;
  /** The secret of the cancel key: 4 bytes in protocol 3.0, up to 256 in 3.2. Never log it. */
  readonly secret: Uint8Array;
  /** The worker that got the request from the client. */
  readonly source: number;
}

/**
 * sent: the owner passed the cancel on to the server. unknown: the owner has no such key. idle: the
 * client runs nothing now. busy: the owner's bound on cancel connections is reached.
 */
export type CancelOutcome = "sent" | "unknown" | "idle" | "busy";

export interface CancelReply {
  readonly outcome: CancelOutcome;
}

const maxWorkerId = 0x7fff;
const maxAddresses = 64;
const maxAddressCharacters = 300;
const maxHostCharacters = 255;
const maxWordCharacters = 128;
const minSecretBytes = 4;
const maxSecretBytes = 256;

const workerStates: readonly WorkerState[] = ["starting", "ready", "draining", "gone"];
const cancelOutcomes: readonly CancelOutcome[] = ["sent", "unknown", "idle", "busy"];

function isCount(value: unknown, max: number = Number.MAX_SAFE_INTEGER): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= max;
}

/** Well-formed: the decoder turns bytes that are no UTF-8 into lone surrogates. */
function isText(value: unknown, maxCharacters: number): value is string {
  return typeof value === "string" && value.length <= maxCharacters && value.isWellFormed();
}

function isOneOf<T extends string>(value: unknown, all: readonly T[]): value is T {
  return typeof value === "string" && (all as readonly string[]).includes(value);
}

export function isWorkerId(value: unknown): value is number {
  return isCount(value, maxWorkerId);
}

export const presencePayload: Payload<Presence> = {
  name: "presence",
  version: 1,
  check(raw) {
    const { id, incarnation, host, pid, state, clients, servers, configHash, runtime } = raw;
    const addresses = checkAddresses(raw.addresses);
    if (
      !isWorkerId(id) || !isCount(incarnation) || !isText(host, maxHostCharacters) ||
      !isCount(pid) || !isOneOf(state, workerStates) || addresses === null ||
      !isCount(clients) || !isCount(servers) || !isText(configHash, maxWordCharacters) ||
      !isText(runtime, maxWordCharacters)
    ) return null;
    return {
      id,
      incarnation,
      host,
      pid,
      state,
      addresses,
      clients,
      servers,
      configHash,
      runtime,
    };
  },
};

function checkAddresses(raw: unknown): string[] | null {
  if (!Array.isArray(raw) || raw.length > maxAddresses) return null;
  return raw.every((address) => isText(address, maxAddressCharacters)) ? [...raw] : null;
}

export const cancelPayload: Payload<CancelRequest> = {
  name: "cancel",
  version: 1,
  check({ processId, secret, source }) {
    if (
      !isCount(processId, 0xffff_ffff) || !(secret instanceof Uint8Array) ||
      secret.length < minSecretBytes || secret.length > maxSecretBytes || !isWorkerId(source)
    ) return null;
    // A copy: what was decoded is a view of the client's receive buffer.
    return { processId, secret: Uint8Array.from(secret), source };
  },
};

export const cancelReplyPayload: Payload<CancelReply> = {
  name: "cancel reply",
  version: 1,
  check({ outcome }) {
    return isOneOf(outcome, cancelOutcomes) ? { outcome } : null;
  },
};

/** Names that become a part of a subject: meshes and clients of the bus. */
const token = /^[A-Za-z0-9_-]{1,32}$/;

export function isMeshName(value: unknown): value is string {
  return typeof value === "string" && token.test(value);
}

function checkedToken(what: string, value: string): string {
  if (token.test(value)) return value;
  throw new BusError(
    "INVALID",
    `build subject: ${what} is ${JSON.stringify(value)}, ` +
      "wanted 1 to 32 letters, digits, underscores or hyphens",
  );
}

function checkedWorkerId(id: number): number {
  if (isWorkerId(id)) return id;
  throw new BusError(
    "INVALID",
    `build subject: worker id is "${id}", wanted 0 to ${maxWorkerId}`,
  );
}

/** What a client of the bus may do: patterns of subjects. */
export interface Rights {
  readonly publish: readonly string[];
  readonly subscribe: readonly string[];
}

export interface MeshSubjects {
  /**
   * `presence.<worker>`: a worker announces itself to everybody, at start, each second, when its
   * state changes and after a reconnect. Lost: the next one says the same; a worker is suspect when
   * silent for 3 s and counted as silent after 10 s.
   */
  presence(workerId: number): Subject<Presence>;
  /** `presence.*`: the presence of all workers. One under another worker's subject is dropped. */
  readonly allPresence: Pattern<Presence>;
  /**
   * `cancel.<owner>`: the worker that got a CancelRequest asks the owner of its key to carry it out,
   * once per request of a client. Lost, or no answer: counted, logged and dropped; the client sees
   * what it always sees, a closed connection, and may cancel again.
   */
  cancel(ownerId: number): Subject<CancelRequest, CancelReply>;
  /** `inbox.<client>`: the prefix of the subjects a client gets its answers on. */
  inboxPrefix(client: string): string;
  /** The least rights a worker needs; `client` is the name it connects with. */
  workerRights(workerId: number, client: string): Rights;
}

/** The subjects of one mesh; throws `INVALID` for a name that cannot be a part of a subject. */
export function meshSubjects(mesh: string): MeshSubjects {
  const root = `pgweir.${checkedToken("mesh", mesh)}`;
  const presenceOf = (id: number | "*"): string => `${root}.presence.${id}`;
  const cancelOf = (id: number | "*"): string => `${root}.cancel.${id}`;
  const speaksForItself = (subject: string, presence: Presence): boolean =>
    subject === presenceOf(presence.id);
  const inboxPrefix = (client: string): string =>
    `${root}.inbox.${checkedToken("client name", client)}`;
  return {
    presence: (workerId) => ({
      subject: presenceOf(checkedWorkerId(workerId)),
      message: presencePayload,
      reply: null,
      accepts: speaksForItself,
      wildcard: false,
    }),
    allPresence: {
      subject: presenceOf("*"),
      message: presencePayload,
      reply: null,
      accepts: speaksForItself,
    },
    cancel: (ownerId) => ({
      subject: cancelOf(checkedWorkerId(ownerId)),
      message: cancelPayload,
      reply: cancelReplyPayload,
      wildcard: false,
    }),
    inboxPrefix,
    workerRights: (workerId, client) => ({
      publish: [presenceOf(checkedWorkerId(workerId)), cancelOf("*"), `${root}.inbox.>`],
      subscribe: [presenceOf("*"), cancelOf(workerId), `${inboxPrefix(client)}.>`],
    }),
  };
}
