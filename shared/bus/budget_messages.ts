// The messages by which workers and coordinators share the mesh's budgets: what they hold and want,
// what they may have, who leads, who is gone. What reports and grants are is the ledger's business; here
// is how they travel. Pure.
// Bounds: at most 200 leaves in a message, 1000 characters in a leaf, 2^31 - 1 slots in a number and
// 65,536 backends in a leaf; a payload of 256 KiB holds 200 leaves of the longest names.

import {
  type Grant,
  LEAF_LENGTH_MAX,
  type LeafGrant,
  type LeafReport,
  LEAVES_MAX,
  type Report,
} from "../ledger/mod.ts";
import { checkItems, fieldsOf, isCount, isText, isWorkerId } from "./checks.ts";
import type { Fields, Payload } from "./payload.ts";

export interface BudgetLeader {
  readonly epoch: number;
  readonly name: string;
}

/** A worker whose process has ended. */
export interface GoneWorker {
  readonly worker: number;
  readonly incarnation: number;
}

export interface LeafBackends {
  readonly leaf: string;
  /** The process ids of its server connections; see packPids(). */
  readonly pids: Uint8Array;
}

/** The backends of some or all leaves of a worker. */
export interface BudgetBackends {
  readonly worker: number;
  readonly incarnation: number;
  readonly leaves: readonly LeafBackends[];
}

const maxNameCharacters = 300;
const maxSlots = 0x7fff_ffff;
const pidBytes = 4;
const maxPidsBytes = 65_536 * pidBytes;
const maxBytes = 256 * 1024;

/** Process ids as unsigned 32-bit numbers, big-endian. */
export function packPids(pids: readonly number[]): Uint8Array {
  const view = new DataView(new ArrayBuffer(pidBytes * pids.length));
  for (const [index, pid] of pids.entries()) view.setUint32(pidBytes * index, pid);
  return new Uint8Array(view.buffer);
}

export function unpackPids(bytes: Uint8Array): number[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.length / pidBytes }, (_, at) => view.getUint32(pidBytes * at));
}

function isLeaf(value: unknown): value is string {
  return isText(value, LEAF_LENGTH_MAX) && value !== "";
}

function isSlots(value: unknown): value is number {
  return isCount(value, maxSlots);
}

/** Arrays as they came, and what is none as an empty one, so that the check of its fields fails. */
function rowOf(raw: unknown): readonly unknown[] {
  return Array.isArray(raw) ? raw : [];
}

/** A wire form with each leaf as a row; a row may be longer than its reader knows. */
function inRows<M extends { readonly leaves: readonly L[] }, L extends object>(
  columns: readonly (keyof L & string)[],
): NonNullable<Payload<M>["wire"]> {
  const toRow = (leaf: L): unknown[] => columns.map((column) => leaf[column]);
  const fromRow = (raw: unknown): Fields => {
    const row = rowOf(raw);
    return Object.fromEntries(columns.map((column, at) => [column, row[at]]));
  };
  return {
    pack: (message) => ({ ...message, leaves: message.leaves.map(toRow) }),
    unpack(raw) {
      const { leaves } = raw;
      if (!Array.isArray(leaves) || leaves.length > LEAVES_MAX) return {};
      return { ...raw, leaves: leaves.map(fromRow) };
    },
  };
}

function checkLeafReport(raw: unknown): LeafReport | null {
  const { leaf, held, wanted, granted, ack, idleMs, asks = false, busyMs = 0 } = fieldsOf(raw);
  if (
    !isLeaf(leaf) || !isSlots(held) || !isSlots(wanted) || !isSlots(granted) || !isCount(ack) ||
    typeof idleMs !== "number" || idleMs < 0 || !isCount(Math.ceil(idleMs)) ||
    typeof asks !== "boolean" || !isCount(busyMs)
  ) return null;
  return { leaf, held, wanted, granted, ack, idleMs: Math.ceil(idleMs), asks, busyMs };
}

export const budgetReportPayload: Payload<Report> = {
  name: "budget report",
  version: 1,
  maxBytes,
  wire: inRows<Report, LeafReport>([
    "leaf",
    "held",
    "wanted",
    "granted",
    "ack",
    "idleMs",
    "asks",
    "busyMs",
  ]),
  check(raw) {
    const { worker, incarnation, epoch, seq } = raw;
    const leaves = checkItems(raw.leaves, LEAVES_MAX, checkLeafReport);
    if (
      !isWorkerId(worker) || !isCount(incarnation) || !isCount(epoch) || !isCount(seq) ||
      leaves === null
    ) return null;
    return { worker, incarnation, epoch, seq, leaves };
  },
};

function checkLeafGrant(raw: unknown): LeafGrant | null {
  const { leaf, granted, floor, pending, poll = false, usedUp = 0 } = fieldsOf(raw);
  if (
    !isLeaf(leaf) || !isSlots(granted) || !isCount(floor, granted) ||
    typeof pending !== "boolean" || typeof poll !== "boolean" || !isCount(usedUp)
  ) return null;
  return { leaf, granted, floor, pending, poll, usedUp };
}

export const budgetGrantPayload: Payload<Grant> = {
  name: "budget grant",
  version: 1,
  maxBytes,
  wire: inRows<Grant, LeafGrant>(["leaf", "granted", "floor", "pending", "poll", "usedUp"]),
  check(raw) {
    const { worker, incarnation, epoch, seq, report } = raw;
    const leaves = checkItems(raw.leaves, LEAVES_MAX, checkLeafGrant);
    if (
      !isWorkerId(worker) || !isCount(incarnation) || !isCount(epoch) || !isCount(seq) ||
      !isCount(report) || leaves === null
    ) return null;
    return { worker, incarnation, epoch, seq, report, leaves };
  },
};

export const budgetLeaderPayload: Payload<BudgetLeader> = {
  name: "budget leader",
  version: 1,
  check({ epoch, name }) {
    return isCount(epoch) && isText(name, maxNameCharacters) ? { epoch, name } : null;
  },
};

export const goneWorkerPayload: Payload<GoneWorker> = {
  name: "gone worker",
  version: 1,
  check({ worker, incarnation }) {
    return isWorkerId(worker) && isCount(incarnation) ? { worker, incarnation } : null;
  },
};

/** An answer that says nothing but that it was heard. */
export const heardPayload: Payload<Record<never, never>> = {
  name: "gone worker reply",
  version: 1,
  check: () => ({}),
};

function checkLeafBackends(raw: unknown): LeafBackends | null {
  const { leaf, pids } = fieldsOf(raw);
  if (
    !isLeaf(leaf) || !(pids instanceof Uint8Array) || pids.length > maxPidsBytes ||
    pids.length % pidBytes !== 0
  ) return null;
  return { leaf, pids: new Uint8Array(pids) };
}

export const budgetBackendsPayload: Payload<BudgetBackends> = {
  name: "budget backends",
  version: 1,
  maxBytes: maxBytes + maxPidsBytes,
  wire: inRows<BudgetBackends, LeafBackends>(["leaf", "pids"]),
  check(raw) {
    const { worker, incarnation } = raw;
    const leaves = checkItems(raw.leaves, LEAVES_MAX, checkLeafBackends);
    if (!isWorkerId(worker) || !isCount(incarnation) || leaves === null) return null;
    return { worker, incarnation, leaves };
  },
};
