// What the store says of each worker, under `worker.<id>`: whose it is, so that whoever starts on the same
// host can tell that it is gone when its supervisor could not say so. JSON, for people who look. Pure.

import { Buffer } from "node:buffer";
import { isWorkerId } from "../../shared/bus/mod.ts";
import type { Identity } from "./identities.ts";

export const workerKeyPrefix = "worker.";

export function workerKey(id: number): string {
  return `${workerKeyPrefix}${id}`;
}

/** One run of one supervisor. */
export interface HostMark {
  readonly host: string;
  /** The host's boot. */
  readonly boot: string;
  /** Pids mean something among processes of one namespace. */
  readonly pidNamespace: string;
  readonly supervisorPid: number;
  /** See startTimeOf(). */
  readonly supervisorStart: number;
}

export interface WorkerRecord extends HostMark {
  readonly incarnation: number;
}

export function encodeRecord(record: WorkerRecord): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(record));
}

/** The worker under a key; null for what is no record of ours. */
export function decodeRecord(
  key: string,
  value: Uint8Array,
): { readonly identity: Identity; readonly record: WorkerRecord } | null {
  const id = Number(key.slice(workerKeyPrefix.length));
  let raw: unknown;
  try {
    raw = JSON.parse(Buffer.from(value).toString("utf8"));
  } catch {
    return null;
  }
  if (typeof raw !== "object" || raw === null || !isWorkerId(id)) return null;
  const { host, boot, pidNamespace, supervisorPid, supervisorStart, incarnation } = raw as Record<
    string,
    unknown
  >;
  if (
    typeof host !== "string" || typeof boot !== "string" || typeof pidNamespace !== "string" ||
    !isCount(supervisorPid) || !isCount(supervisorStart) || !isCount(incarnation)
  ) return null;
  const record = { host, boot, pidNamespace, supervisorPid, supervisorStart, incarnation };
  return { identity: { id, incarnation }, record };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** What a host can see of itself. */
export interface Evidence {
  supervisorRuns(pid: number, start: number): boolean;
  /** Whether a process of this host was started as this worker and still runs. */
  workerRuns(identity: Identity): boolean;
}

/**
 * foreign: another host's, or of processes we can't see: not ours to judge. lives: its supervisor runs.
 * orphaned: it runs without its supervisor, and will end soon. rebooted: the host was started anew since,
 * if it is that host. gone: it has ended.
 */
export type Fate = "foreign" | "lives" | "orphaned" | "rebooted" | "gone";

/** What became of a worker, as the host that `mark` describes can tell. */
export function fateOf(record: WorkerRecord, id: number, mark: HostMark, seen: Evidence): Fate {
  if (record.host !== mark.host) return "foreign";
  if (record.boot !== mark.boot) return "rebooted";
  if (record.pidNamespace !== mark.pidNamespace) return "foreign";
  if (seen.supervisorRuns(record.supervisorPid, record.supervisorStart)) return "lives";
  return seen.workerRuns({ id, incarnation: record.incarnation }) ? "orphaned" : "gone";
}
