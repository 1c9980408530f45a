// What workers and the monitors of database hosts say to each other about resource groups: which backend of PostgreSQL
// is in which group, and what memory the groups' queries have. Neither asks for an answer, and what is in
// doubt is for the monitor to check: a process id is what some server has said of itself. Pure.
// Bounds: 500 rows of a database and a group, 16,384 backends, in a payload of 512 KiB.

import { packPids, unpackPids } from "./budget_messages.ts";
import { checkItems, fieldsOf, isCount, isText, isWorkerId } from "./checks.ts";
import type { Fields, Payload } from "./payload.ts";

/** Backends of one database that are in one group. */
export interface GroupRow {
  /** By its name in [databases]. */
  readonly database: string;
  readonly group: string;
  /** Bytes that those of its queries are counted with that run on these backends. */
  readonly memory: number;
  /** So many, the first ones, run something of the group now; the others did last. */
  readonly running: number;
  readonly backends: readonly GroupBackend[];
}

export interface GroupBackend {
  /** As PostgreSQL has named it. */
  readonly pid: number;
  /** Milliseconds since the connection was opened. */
  readonly ageMs: number;
}

/** All backends of a worker that are in a group, at a moment. */
export interface GroupBackends {
  readonly worker: number;
  readonly incarnation: number;
  /** Rises with each message of a worker. */
  readonly seq: number;
  readonly rows: readonly GroupRow[];
}

/** What a monitor knows that concerns one worker. It is valid for three intervals from its receipt. */
export interface GroupMemory {
  readonly monitor: string;
  readonly host: string;
  /** As in a decision about overload. */
  readonly epoch: number;
  readonly seq: number;
  readonly intervalMs: number;
  readonly worker: number;
  /** False: it may not look, and knows only what workers say. */
  readonly measures: boolean;
  /** The groups' backends are in cgroups of their own. */
  readonly dividesCpu: boolean;
  /** What backends of the worker have that ran something of a group. */
  readonly databases: readonly MeasuredDatabase[];
  /** What groups have in all other workers, the groups below not included. */
  readonly elsewhere: readonly GroupBytes[];
}

export interface MeasuredDatabase {
  readonly database: string;
  readonly backends: readonly MeasuredBackend[];
}

export interface MeasuredBackend {
  readonly pid: number;
  /** Resident and its own: nothing of what backends share. */
  readonly kB: number;
}

export interface GroupBytes {
  readonly group: string;
  readonly bytes: number;
}

export const maxGroupRows = 500;
export const maxGroupBackends = 16_384;
export const maxGroupNameCharacters = 63;
const maxHostCharacters = 255;
const maxTokenCharacters = 32;
const maxIntervalMs = 3_600_000;
const maxU32 = 0xffff_ffff;
const numberBytes = 4;
const maxBytes = 512 * 1024;

function isName(value: unknown): value is string {
  return isText(value, maxGroupNameCharacters) && value !== "";
}

/** Two columns of numbers as packed bytes, or null: not as many of the one as of the other, or too many. */
function unpacked(a: unknown, b: unknown): (readonly [number, number])[] | null {
  if (!(a instanceof Uint8Array) || !(b instanceof Uint8Array)) return null;
  if (a.length !== b.length || a.length % numberBytes !== 0) return null;
  if (a.length > maxGroupBackends * numberBytes) return null;
  const second = unpackPids(b);
  return unpackPids(a).map((value, at) => [value, second[at] as number] as const);
}

function packed(values: readonly number[]): Uint8Array {
  return packPids(values.map((value) => Math.min(maxU32, Math.max(0, Math.round(value)))));
}

/** What is no list of at most so many is one that no check lets pass. */
function mapped(raw: unknown, change: (fields: Fields) => Fields): unknown {
  if (!Array.isArray(raw) || raw.length > maxGroupRows) return null;
  return raw.map((item) => change(fieldsOf(item)));
}

function countOf(lists: readonly { readonly backends: readonly unknown[] }[]): number {
  return lists.reduce((sum, { backends }) => sum + backends.length, 0);
}

function checkPid(raw: unknown): GroupBackend | null {
  const { pid, ageMs } = fieldsOf(raw);
  return isCount(pid, maxU32) && isCount(ageMs, maxU32) ? { pid, ageMs } : null;
}

function checkRow(raw: unknown): GroupRow | null {
  const { database, group, memory, running, backends: listed } = fieldsOf(raw);
  const backends = checkItems(listed, maxGroupBackends, checkPid);
  if (
    !isName(database) || !isName(group) || !isCount(memory) || backends === null ||
    !isCount(running, backends.length)
  ) return null;
  return { database, group, memory, running, backends };
}

export const groupBackendsPayload: Payload<GroupBackends> = {
  name: "group backends",
  version: 1,
  maxBytes,
  wire: {
    pack: (message) => ({
      ...message,
      rows: message.rows.map(({ backends, ...row }) => ({
        ...row,
        pids: packed(backends.map(({ pid }) => pid)),
        agesMs: packed(backends.map(({ ageMs }) => ageMs)),
      })),
    }),
    unpack: (raw) => ({
      ...raw,
      rows: mapped(raw["rows"], ({ pids, agesMs, ...row }) => ({
        ...row,
        backends: unpacked(pids, agesMs)?.map(([pid, ageMs]) => ({ pid, ageMs })),
      })),
    }),
  },
  check({ worker, incarnation, seq, rows: listed }) {
    const rows = checkItems(listed, maxGroupRows, checkRow);
    if (
      !isWorkerId(worker) || !isCount(incarnation) || !isCount(seq) || rows === null ||
      countOf(rows) > maxGroupBackends
    ) return null;
    return { worker, incarnation, seq, rows };
  },
};

function checkMeasured(raw: unknown): MeasuredBackend | null {
  const { pid, kB } = fieldsOf(raw);
  return isCount(pid, maxU32) && isCount(kB, maxU32) ? { pid, kB } : null;
}

function checkDatabase(raw: unknown): MeasuredDatabase | null {
  const { database, backends: listed } = fieldsOf(raw);
  const backends = checkItems(listed, maxGroupBackends, checkMeasured);
  return isName(database) && backends !== null ? { database, backends } : null;
}

function checkBytes(raw: unknown): GroupBytes | null {
  const { group, bytes } = fieldsOf(raw);
  return isName(group) && isCount(bytes) ? { group, bytes } : null;
}

export const groupMemoryPayload: Payload<GroupMemory> = {
  name: "group memory",
  version: 1,
  maxBytes,
  wire: {
    pack: (message) => ({
      ...message,
      databases: message.databases.map(({ database, backends }) => ({
        database,
        pids: packed(backends.map(({ pid }) => pid)),
        sizes: packed(backends.map(({ kB }) => kB)),
      })),
    }),
    unpack: (raw) => ({
      ...raw,
      databases: mapped(raw["databases"], ({ database, pids, sizes }) => ({
        database,
        backends: unpacked(pids, sizes)?.map(([pid, kB]) => ({ pid, kB })),
      })),
    }),
  },
  check(raw) {
    const { monitor, host, epoch, seq, intervalMs, worker, measures, dividesCpu } = raw;
    const databases = checkItems(raw["databases"], maxGroupRows, checkDatabase);
    const elsewhere = checkItems(raw["elsewhere"], maxGroupRows, checkBytes);
    if (
      !isText(monitor, maxTokenCharacters) || !isText(host, maxHostCharacters) ||
      !isCount(epoch) || !isCount(seq) || !isCount(intervalMs, maxIntervalMs) ||
      intervalMs === 0 || !isWorkerId(worker) || typeof measures !== "boolean" ||
      typeof dividesCpu !== "boolean" || databases === null || elsewhere === null ||
      countOf(databases) > maxGroupBackends
    ) return null;
    return {
      monitor,
      host,
      epoch,
      seq,
      intervalMs,
      worker,
      measures,
      dividesCpu,
      databases,
      elsewhere,
    };
  },
};
