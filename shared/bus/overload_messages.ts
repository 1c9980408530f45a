// What overload monitors say: how much of new work is to be refused, and which warnings they have raised.
// Who refuses, and whom, is the workers' business. Pure.
// Bounds: 16 warnings now and 32 of the past.

import { isLimit, type Shedding } from "../overload/mod.ts";
import { checkItems, fieldsOf, isCount, isOneOf, isText } from "./checks.ts";
import type { Payload } from "./payload.ts";

/**
 * One look of a monitor. It is valid for three intervals from its receipt, and until the next one of the
 * same monitored thing comes: whoever hears nothing more refuses nothing more.
 */
export interface OverloadDecision {
  /** The monitor's name on the bus. */
  readonly monitor: string;
  /** The host it looks at. */
  readonly host: string;
  /** The supervisor whose workers this is for; "" when it is about a database. */
  readonly supervisor: string;
  /** The database, by its name in [databases], that this is about; "" when it is about a host's workers. */
  readonly database: string;
  /** When the monitor was started, in ms since 1970: what an older one of the same says late does not count. */
  readonly epoch: number;
  /** Rises with each decision of a monitor. */
  readonly seq: number;
  readonly intervalMs: number;
  /** CPU wait by CPU work; 0 when there was too little work to tell. */
  readonly ratio: number;
  /** Microseconds in this interval: for databases and groups with bounds of their own. */
  readonly waitUs: number;
  readonly busyUs: number;
  /** For people: what was seen. */
  readonly reason: string;
  readonly transactions: Shedding;
  readonly connections: Shedding;
}

/** How long a decision holds, from its receipt. */
export function validMs({ intervalMs }: Pick<OverloadDecision, "intervalMs">): number {
  return 3 * intervalMs;
}

export type WarningKind = "cpu" | "memory";

/** A use that was above a ratio for long. */
export interface OverloadWarning {
  readonly kind: WarningKind;
  /** When it was raised, in ms since 1970. */
  readonly raisedAt: number;
  /** When it was cleared; null: it still holds. */
  readonly clearedAt: number | null;
  /** The share in use: the last one, or that at which it was cleared. */
  readonly value: number;
  /** The thresholds by which it was raised and is cleared. */
  readonly warn: number;
  readonly clear: number;
}

/** All warnings of one monitor: those that hold, and some of the past, the newest last. */
export interface OverloadWarnings {
  readonly monitor: string;
  readonly host: string;
  /** As in a decision. */
  readonly epoch: number;
  readonly seq: number;
  readonly warnings: readonly OverloadWarning[];
}

export const maxWarnings = 48;
const maxNameBytes = 63;
const maxTokenCharacters = 32;
const maxHostCharacters = 255;
const maxReasonCharacters = 256;
const maxIntervalMs = 3_600_000;
const warningKinds: readonly WarningKind[] = ["cpu", "memory"];

/** Not negative, and finite. */
function isRatio(value: unknown): value is number {
  return typeof value === "number" && value >= 0 && Number.isFinite(value);
}

function checkShedding(raw: unknown): Shedding | null {
  const { min, max, probability } = fieldsOf(raw);
  if (!isRatio(min) || !isRatio(max) || !isRatio(probability) || probability > 1) return null;
  return probability > 0 && !isLimit({ min, max }) ? null : { min, max, probability };
}

export const overloadDecisionPayload: Payload<OverloadDecision> = {
  name: "overload decision",
  version: 1,
  check(raw) {
    const { monitor, host, supervisor, database, epoch, seq, intervalMs } = raw;
    const { ratio, waitUs, busyUs, reason } = raw;
    const transactions = checkShedding(raw.transactions);
    const connections = checkShedding(raw.connections);
    if (
      !isText(monitor, maxTokenCharacters) || !isText(host, maxHostCharacters) ||
      !isText(supervisor, maxTokenCharacters) || !isText(database, maxNameBytes) ||
      (supervisor === "") === (database === "") || !isCount(epoch) || !isCount(seq) ||
      !isCount(intervalMs, maxIntervalMs) || intervalMs === 0 || !isRatio(ratio) ||
      !isCount(waitUs) || !isCount(busyUs) || !isText(reason, maxReasonCharacters) ||
      transactions === null || connections === null
    ) return null;
    return {
      monitor,
      host,
      supervisor,
      database,
      epoch,
      seq,
      intervalMs,
      ratio,
      waitUs,
      busyUs,
      reason,
      transactions,
      connections,
    };
  },
};

function checkWarning(raw: unknown): OverloadWarning | null {
  const { kind, raisedAt, clearedAt, value, warn, clear } = fieldsOf(raw);
  if (
    !isOneOf(kind, warningKinds) || !isCount(raisedAt) ||
    (clearedAt !== null && !isCount(clearedAt)) || !isRatio(value) || !isRatio(warn) ||
    !isRatio(clear)
  ) return null;
  return { kind, raisedAt, clearedAt, value, warn, clear };
}

export const overloadWarningsPayload: Payload<OverloadWarnings> = {
  name: "overload warnings",
  version: 1,
  check(raw) {
    const { monitor, host, epoch, seq } = raw;
    const warnings = checkItems(raw.warnings, maxWarnings, checkWarning);
    if (
      !isText(monitor, maxTokenCharacters) || !isText(host, maxHostCharacters) ||
      !isCount(epoch) || !isCount(seq) || warnings === null
    ) return null;
    return { monitor, host, epoch, seq, warnings };
  },
};
