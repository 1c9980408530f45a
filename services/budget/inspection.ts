// Looks at the backends of workers that may be gone, once a second while there are any: which of them are
// over, and how many server connections silence still hides. It only counts; the term decides.
// Invariant: one look at a time. A worker that anything about is unknown is never called free.

import type { BudgetAuth, Config } from "../../shared/config/mod.ts";
import type { Resolver } from "../../shared/host/mod.ts";
import { type Charges, parseServerLeaf } from "../../shared/ledger/mod.ts";
import { BackendView, groupsOf, lookAtBackends, type NamedBackends } from "./backends.ts";
import type { Sightings, WorkerName } from "./sightings.ts";

export interface Inspected extends WorkerName {
  /** What it is charged. */
  readonly charges: Charges;
  /** When it was in contact last. */
  readonly heardAt: number;
}

export interface Finding extends WorkerName {
  /** By leaf of server connections: backends shown, at most what is charged; all of that if unknown. */
  readonly shown: ReadonlyMap<string, number>;
  /** Backends shown that it has named itself. */
  readonly named: number;
  /** Others that it may have opened. */
  readonly unnamed: number;
  /** A server did not answer: the numbers above are not all. */
  readonly unknown: boolean;
}

export interface InspectionOptions {
  readonly config: Config;
  readonly auth: BudgetAuth;
  /** The longest that workers may go by: a shorter one in the file counts from the next start on. */
  readonly leaseMs: number;
  readonly sightings: Sightings;
  readonly resolver: Resolver;
  readonly clock: () => number;
  /** A server gave no answer. */
  readonly report: (error: Error) => void;
}

/** `others`: the workers in contact, whose backends are nobody else's. */
export async function inspect(
  suspects: readonly Inspected[],
  others: readonly WorkerName[],
  options: InspectionOptions,
): Promise<Finding[]> {
  const { config, auth, leaseMs, sightings, resolver, clock, report } = options;
  const databases = new Set<string>();
  for (const { charges } of suspects) {
    for (const leaf of charges.keys()) {
      const parsed = parseServerLeaf(leaf);
      if (parsed !== null) databases.add(parsed.database);
    }
  }
  const beganAt = clock();
  const answers = await lookAtBackends(config, auth, databases, resolver, report);
  const endedAt = clock();
  const view = new BackendView(config, answers, namedBackends(suspects, others, options));
  return suspects.map(({ worker, incarnation, charges, heardAt }) => {
    const counts = view.count({
      leaves: charges.keys(),
      pids: sightings.pidsOf(worker, incarnation),
      // Ages are of some moment between: whichever end counts more backends.
      namedAgoMs: endedAt - sightings.namedAt(worker, incarnation),
      heardAgoMs: beganAt - heardAt,
    }, leaseMs);
    const shown = new Map<string, number>();
    const total = { named: 0, unnamed: 0, unknown: false };
    for (const [leaf, { charge }] of charges) {
      // A leaf without an account has no cap to be charged to.
      if (groupsOf(config, leaf).length === 0) continue;
      const count = counts.get(leaf);
      shown.set(leaf, Math.min(charge, count === undefined ? charge : count.named + count.unnamed));
      total.named += count?.named ?? 0;
      total.unnamed += count?.unnamed ?? 0;
      if (count === undefined && charge > 0) total.unknown = true;
    }
    return { worker, incarnation, shown, ...total };
  });
}

/** The backends of the workers in contact, as far as they are of groups that suspects have. */
function namedBackends(
  suspects: readonly Inspected[],
  others: readonly WorkerName[],
  { config, sightings }: InspectionOptions,
): NamedBackends {
  const named = new Map<string, Set<number>>();
  for (const { charges } of suspects) {
    for (const leaf of charges.keys()) {
      for (const group of groupsOf(config, leaf)) named.set(group, new Set());
    }
  }
  for (const { worker, incarnation } of others) {
    for (const [leaf, pids] of sightings.pidsOf(worker, incarnation)) {
      for (const group of groupsOf(config, leaf)) {
        const known = named.get(group);
        if (known !== undefined) { for (const pid of pids) known.add(pid); }
      }
    }
  }
  return named;
}
