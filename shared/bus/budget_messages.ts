// The messages by which workers and coordinators share the mesh's budgets: what they hold and want,
// what they may have, who leads, who is gone. What the numbers mean is the ledger's business. Pure.
// Bounds: at most 200 leaves in a message, 1000 characters in a leaf, 2^31 - 1 slots in a number and
// 65,536 backends in a leaf; a payload of 256 KiB holds 200 leaves of the longest names.

import { checkItems, fieldsOf, isCount, isText, isWorkerId } from "./checks.ts";
import type { Fields, Payload } from "./payload.ts";

/** What a worker says of one leaf. */
export interface LeafReport {
  readonly leaf: string;
  /** Slots in use now. */
  readonly held: number;
  /** Slots it could use now, those it holds among them. */
  readonly wanted: number;
  /** What it acts on now. */
  readonly granted: number;
  /** The `seq` of the grant that last set this leaf. */
  readonly ack: number;
  /** The age of its oldest idle slot in whole milliseconds, rounded up; 0: none is idle. */
  readonly idleMs: number;
}

/** Absolute numbers of some or all leaves of a worker. */
export interface Report {
  readonly worker: number;
  readonly incarnation: number;
  /** The highest epoch the worker has seen: it acts on no grant of a lower one. */
  readonly epoch: number;
  readonly seq: number;
  readonly leaves: readonly LeafReport[];
}

/** What a worker may have of one leaf. */
export interface LeafGrant {
  readonly leaf: string;
  readonly granted: number;
  /** What it keeps without contact; at most `granted`. */
  readonly floor: number;
  /** More follows as soon as others give back. */
  readonly pending: boolean;
}

/** Absolute numbers of some leaves of a worker; none at all is an answer too. */
export interface Grant {
  readonly worker: number;
  readonly incarnation: number;
  readonly epoch: number;
  /** Rises for each worker, incarnation and epoch. */
  readonly seq: number;
  /** The highest `seq` of a report that was processed. */
  readonly report: number;
  readonly leaves: readonly LeafGrant[];
}

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
  /** The process ids of its server connections, as big-endian 32-bit numbers. */
  readonly pids: Uint8Array;
}

/** The backends of some or all leaves of a worker. */
export interface BudgetBackends {
  readonly worker: number;
  readonly incarnation: number;
  readonly leaves: readonly LeafBackends[];
}

export const maxLeaves = 200;
const maxLeafCharacters = 1000;
const maxNameCharacters = 300;
const maxSlots = 0x7fff_ffff;
const pidBytes = 4;
const maxPidsBytes = 65_536 * pidBytes;
const maxBytes = 256 * 1024;

function isLeaf(value: unknown): value is string {
  return isText(value, maxLeafCharacters) && value !== "";
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
      if (!Array.isArray(leaves) || leaves.length > maxLeaves) return {};
      return { ...raw, leaves: leaves.map(fromRow) };
    },
  };
}

function checkLeafReport(raw: unknown): LeafReport | null {
  const { leaf, held, wanted, granted, ack, idleMs } = fieldsOf(raw);
  if (
    !isLeaf(leaf) || !isSlots(held) || !isSlots(wanted) || !isSlots(granted) || !isCount(ack) ||
    typeof idleMs !== "number" || idleMs < 0 || !isCount(Math.ceil(idleMs))
  ) return null;
  return { leaf, held, wanted, granted, ack, idleMs: Math.ceil(idleMs) };
}

export const budgetReportPayload: Payload<Report> = {
  name: "budget report",
  version: 1,
  maxBytes,
  wire: inRows<Report, LeafReport>(["leaf", "held", "wanted", "granted", "ack", "idleMs"]),
  check(raw) {
    const { worker, incarnation, epoch, seq } = raw;
    const leaves = checkItems(raw.leaves, maxLeaves, checkLeafReport);
    if (
      !isWorkerId(worker) || !isCount(incarnation) || !isCount(epoch) || !isCount(seq) ||
      leaves === null
    ) return null;
    return { worker, incarnation, epoch, seq, leaves };
  },
};

function checkLeafGrant(raw: unknown): LeafGrant | null {
  const { leaf, granted, floor, pending } = fieldsOf(raw);
  if (
    !isLeaf(leaf) || !isSlots(granted) || !isCount(floor, granted) || typeof pending !== "boolean"
  ) return null;
  return { leaf, granted, floor, pending };
}

export const budgetGrantPayload: Payload<Grant> = {
  name: "budget grant",
  version: 1,
  maxBytes,
  wire: inRows<Grant, LeafGrant>(["leaf", "granted", "floor", "pending"]),
  check(raw) {
    const { worker, incarnation, epoch, seq, report } = raw;
    const leaves = checkItems(raw.leaves, maxLeaves, checkLeafGrant);
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
    const leaves = checkItems(raw.leaves, maxLeaves, checkLeafBackends);
    if (!isWorkerId(worker) || !isCount(incarnation) || leaves === null) return null;
    return { worker, incarnation, leaves };
  },
};
