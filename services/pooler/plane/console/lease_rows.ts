// Rows about this worker's leases: what it holds, wants and may have of each leaf. NULL is any number.

import { parseLeaf, UNLIMITED } from "../../../../shared/ledger/mod.ts";
import { columnsOf, type Row } from "./encode.ts";
import type { Moment } from "./view.ts";

export const leaseColumns = columnsOf(
  "kind s, database s, user s, held i, wanted i, granted i, floor i, allowed i, contact_ms q, " +
    "group_name s",
);

export function* leaseRows({ plane }: Moment): Generator<Row> {
  const { leases, silentMs } = plane.budget;
  const contact = Number.isFinite(silentMs) ? Math.max(0, Math.round(silentMs)) : null;
  for (const { leaf, held, wanted, granted, floor, limit } of leases) {
    const name = parseLeaf(leaf);
    if (name === null) continue;
    const database = "database" in name ? name.database : null;
    const user = "user" in name ? name.user : null;
    const most = [granted, floor, limit].map((slots) => slots >= UNLIMITED ? null : slots);
    const group = "group" in name ? name.group : null;
    yield [name.kind, database, user, held, wanted, ...most, contact, group];
  }
}
