// The plain data that goes in and out of the ledger and the lease table, and over the bus (shared/bus has
// their wire form; this folder is free of it). All numbers are whole and absolute ("so many now"), never
// differences: a lost, doubled or late message does no harm.

/** What a worker says of one leaf. */
export interface LeafReport {
  readonly leaf: string;
  /** server connections (or clients) it has, in any state, opening and closing ones included */
  readonly held: number;
  /** how many it has a use for now, those in use included */
  readonly wanted: number;
  /** what it acts on now */
  readonly granted: number;
  /** grants of this epoch for this leaf with this seq or a lower one are ignored from now on */
  readonly ack: number;
  /** age of its oldest idle slot in milliseconds; 0 = none is idle */
  readonly idleMs: number;
  /** of groups: some wait for it that may not, so the others are to be asked whether they use all that they have */
  readonly asks: boolean;
  /** of groups: for how many milliseconds all that is granted has been in use without a break; 0: it is not */
  readonly busyMs: number;
}

/** Worker to coordinator. May hold a part of the leaves only, and at most `LEAVES_MAX`. */
export interface Report {
  readonly worker: number;
  readonly incarnation: number;
  /** highest epoch seen: a promise to ignore the grants of lower ones */
  readonly epoch: number;
  /** rises with each report of an incarnation */
  readonly seq: number;
  readonly leaves: readonly LeafReport[];
}

export interface LeafGrant {
  readonly leaf: string;
  readonly granted: number;
  /** what a worker out of contact may always have; at most `granted` */
  readonly floor: number;
  /** more will come as soon as others give back; false and granted < wanted: the cap is exhausted */
  readonly pending: boolean;
  /** another worker asks: what is in use and wanted now is to be reported soon */
  readonly poll: boolean;
  /** all were in use after the report with this seq, or an earlier one, had asked; 0: not that anybody knows */
  readonly usedUp: number;
}

/** Coordinator to worker; no leaves = an answer and nothing else. At most `LEAVES_MAX` leaves. */
export interface Grant {
  readonly worker: number;
  readonly incarnation: number;
  readonly epoch: number;
  /** rises with each grant to an incarnation in an epoch */
  readonly seq: number;
  /** highest seq of a report of this incarnation that was seen */
  readonly report: number;
  readonly leaves: readonly LeafGrant[];
}

/** What is saved of a (worker, leaf): the most it may act on or hold, and the most its floor may be. */
export interface Charge {
  readonly charge: number;
  readonly floor: number;
}

/** The whole charges of a worker incarnation, by leaf; empty: nothing is charged, the entry may go. */
export type Charges = ReadonlyMap<string, Charge>;

/** The charges of one incarnation that are to be saved. */
export interface Saving {
  readonly worker: number;
  readonly incarnation: number;
  readonly save: Charges;
}

/**
 * A grant to send. `save` not null: a charge rose above what was handed out for saving last, so the
 * whole charges of that incarnation must be saved, and the save confirmed, BEFORE this grant is sent.
 * What is handed out for one incarnation (by `decide` and by `unsaved`) must be carried out in order:
 * no grant is sent, and no later save begun, while an earlier save of that incarnation is not
 * confirmed. Any grant may be lost instead: it is repeated.
 */
export interface Decision {
  readonly worker: number;
  readonly incarnation: number;
  readonly grant: Grant;
  readonly save: Charges | null;
}

/** Leaves in one message. */
export const LEAVES_MAX = 200;

/** A number that a message may carry: whole, not negative, and small enough to be added up exactly. */
export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Larger numbers are no numbers of slots. */
export const SLOTS_MAX = 1_000_000_000;

/** What is granted where nothing limits a leaf: more than anybody uses. */
export const UNLIMITED = SLOTS_MAX;

/** A number of slots that is believed. */
export function isSlots(value: unknown): value is number {
  return isCount(value) && value <= SLOTS_MAX;
}
