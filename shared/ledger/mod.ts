// Door of shared/ledger: who may hold how many slots. The coordinator keeps a Ledger, each worker a
// LeaseTable; leaves and rules say what is counted. Pure: no input or output, and no clock, so that
// every caller passes `now` in milliseconds of a clock of its own that only goes forward.

export { leafRules, shareOf } from "./accounts.ts";
export type { AccountRule, LeafRule, LeafRules, Part } from "./accounts.ts";
export {
  clientsDbLeaf,
  clientsLeaf,
  clientsUserLeaf,
  directLeaf,
  groupLeaf,
  LEAF_LENGTH_MAX,
  parseLeaf,
  parseServerLeaf,
  poolLeaf,
  queueLeaf,
  reserveLeaf,
} from "./leaf.ts";
export type { Leaf, ServerLeaf } from "./leaf.ts";
export { LeaseTable } from "./lease_table.ts";
export type { Lease } from "./lease.ts";
export { Ledger } from "./ledger.ts";
export type { AccountView, LedgerOptions, WorkerView } from "./ledger.ts";
export { isCount, LEAVES_MAX, UNLIMITED } from "./messages.ts";
export type {
  Charge,
  Charges,
  Decision,
  Grant,
  LeafGrant,
  LeafReport,
  Report,
  Saving,
} from "./messages.ts";
