// A ledger and the lease tables of some workers with no network in between: tick() carries every report and
// every grant at once, unless a test takes them in its own hands. `use` gives a worker's wish; each tick workers
// open what they may and can use, and close what they may not have or have no use for.

import type {
  Charges,
  Decision,
  Grant,
  LeafGrant,
  LeafReport,
  LeafRules,
  Report,
} from "../../shared/ledger/mod.ts";
import { LeaseTable, Ledger } from "../../shared/ledger/mod.ts";

export const LEASE_MS = 10_000;
export const SILENT_MS = 3000;

/** Accounts of leaves as `{ leaf: { account: cap } }`; clients and direct connections are sticky. */
export function rulesOf(
  accounts: Readonly<Record<string, Readonly<Record<string, number>>>>,
): LeafRules {
  return (leaf) => {
    const caps = accounts[leaf];
    if (caps === undefined) return null;
    return {
      accounts: Object.entries(caps).map(([name, cap]) => ({ name, cap })),
      sticky: /^(clients|direct:|queue:)/.test(leaf),
    };
  };
}

/** One leaf, "pool:a/b" or another, with a cap of its own. */
export function oneLeaf(cap: number, leaf = "pool:a/b"): LeafRules {
  return rulesOf({ [leaf]: { [leaf]: cap } });
}

export function ledgerOf(rules: LeafRules, epoch = 1, now = 0): Ledger {
  return new Ledger({ epoch, rules, leaseMs: LEASE_MS, silentMs: SILENT_MS, now });
}

export function tableOf(worker: number, incarnation = 1): LeaseTable {
  return new LeaseTable({ worker, incarnation, leaseMs: LEASE_MS });
}

export function reportOf(
  worker: number,
  seq: number,
  leaves: Readonly<Record<string, Partial<LeafReport>>>,
  more: Partial<Report> = {},
): Report {
  const list = Object.entries(leaves).map(([leaf, numbers]) => ({
    leaf,
    held: 0,
    wanted: 0,
    granted: 0,
    ack: 0,
    idleMs: 0,
    asks: false,
    busyMs: 0,
    ...numbers,
  }));
  return { worker, incarnation: 1, epoch: 1, seq, leaves: list, ...more };
}

export function grantOf(
  seq: number,
  report: number,
  leaves: Readonly<Record<string, Partial<LeafGrant>>>,
  more: Partial<Grant> = {},
): Grant {
  const list = Object.entries(leaves).map(([leaf, numbers]) => ({
    leaf,
    granted: 0,
    floor: 0,
    pending: false,
    poll: false,
    usedUp: 0,
    ...numbers,
  }));
  return { worker: 1, incarnation: 1, epoch: 1, seq, report, leaves: list, ...more };
}

/** What is charged to an account. */
export function chargedOf(ledger: Ledger, name: string): number {
  return [...ledger.accounts()].find((account) => account.name === name)?.charged ?? 0;
}

/** What a decision says of each leaf: "worker leaf granted", with "+" where more is on its way. */
export function linesOf(decisions: readonly Decision[]): string[] {
  return decisions.flatMap(({ worker, grant }) =>
    grant.leaves.map(({ leaf, granted, pending }) =>
      `${worker} ${leaf} ${granted}${pending ? "+" : ""}`
    )
  );
}

export function chargesOf(charges: Readonly<Record<string, [number, number]>>): Charges {
  return new Map(
    Object.entries(charges).map(([leaf, [charge, floor]]) => [leaf, { charge, floor }]),
  );
}

export class Mesh {
  now = 0;
  readonly tables = new Map<number, LeaseTable>();
  /** leaves in the grants since the last look */
  granted = 0;
  ledger: Ledger;

  constructor(rules: LeafRules, workers: number) {
    this.ledger = ledgerOf(rules);
    for (let worker = 1; worker <= workers; worker++) this.tables.set(worker, tableOf(worker));
    // The first answer carries the epoch, the first report of that epoch makes a worker live.
    this.tick();
    this.tick();
  }

  use(worker: number, leaf: string, wanted: number): void {
    const lease = this.tables.get(worker)!.lease(leaf);
    lease.wanted = wanted;
    lease.touch();
  }

  grantedTo(worker: number, leaf: string): number {
    return this.tables.get(worker)!.lease(leaf).granted;
  }

  /** What all workers were granted of a leaf. */
  split(leaf: string): number[] {
    return [...this.tables.keys()].map((worker) => this.grantedTo(worker, leaf));
  }

  tick(ms = 50, full = true): void {
    this.now += ms;
    for (const table of this.tables.values()) {
      for (const report of table.reports(this.now, full)) this.ledger.report(report, this.now);
    }
    for (const { worker, grant } of this.ledger.decide(this.now)) {
      this.granted += grant.leaves.length;
      this.tables.get(worker)!.onGrant(grant, this.now);
    }
    for (const table of this.tables.values()) {
      for (const lease of table.leases()) {
        const held = Math.min(lease.limit, Math.max(lease.held, lease.wanted));
        if (held === lease.held) continue;
        lease.held = held;
        lease.touch();
      }
    }
  }

  ticks(count: number): void {
    for (let n = 0; n < count; n++) this.tick();
  }

  /** Leaves granted anything since the last call. */
  takeGranted(): number {
    const { granted } = this;
    this.granted = 0;
    return granted;
  }
}
