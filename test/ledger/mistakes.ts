// Deliberate mistakes in what the ledger's simulation is made of, one each: in the Ledger, in the LeaseTable, in the
// coordinator around them. The simulation has to find every one of them, or it proves nothing.

import {
  type Decision,
  type Grant,
  type LeafRules,
  type Lease,
  LeaseTable,
  Ledger,
  type LedgerOptions,
  type Report,
} from "../../shared/ledger/mod.ts";
import type { LeaseTableOptions } from "./simulated_worker.ts";
import type { Variant } from "./simulation.ts";

export interface Mistake {
  /** "simulation finds ..." */
  readonly what: string;
  readonly variant: Variant;
}

/** Takes every grant for received and every lowered number for obeyed as soon as it is sent. */
class TrustingLedger extends Ledger {
  readonly #sent = new Map<string, { granted: number; seq: number }>();

  override report(report: Report, now: number): void {
    const leaves = report.leaves.map((leaf) => {
      const sent = this.#sent.get(`${report.worker}.${report.incarnation} ${leaf.leaf}`);
      return sent === undefined || sent.seq <= leaf.ack
        ? leaf
        : { ...leaf, ack: sent.seq, granted: sent.granted };
    });
    super.report({ ...report, leaves }, now);
  }

  override decide(now: number): Decision[] {
    const decisions = super.decide(now);
    for (const { worker, incarnation, grant: { seq, leaves } } of decisions) {
      for (const { leaf, granted } of leaves) {
        this.#sent.set(`${worker}.${incarnation} ${leaf}`, { granted, seq });
      }
    }
    return decisions;
  }
}

/** Believes that a worker holds no more than it was last granted. */
class OptimisticLedger extends Ledger {
  override report(report: Report, now: number): void {
    const leaves = report.leaves.map((leaf) => ({
      ...leaf,
      held: Math.min(leaf.held, leaf.granted),
    }));
    super.report({ ...report, leaves }, now);
  }
}

/** Reads the reports of an epoch that it did not begin as if they promised something. */
class PresumptuousLedger extends Ledger {
  override report(report: Report, now: number): void {
    super.report(report.epoch < this.epoch ? { ...report, epoch: this.epoch } : report, now);
  }
}

/** Counts a dead worker as gone, and then listens to what it said before. */
class HauntedLedger extends Ledger {
  override gone(worker: number, incarnation: number): void {
    super.backends(worker, incarnation, new Map(), Infinity);
  }
}

/** Takes it that all slots are in use where somebody gets none. */
class PresumingLedger extends Ledger {
  readonly #asked = new Map<string, number>();

  override report(report: Report, now: number): void {
    super.report(report, now);
    for (const { leaf, asks } of report.leaves) {
      if (asks) this.#asked.set(`${report.worker}.${report.incarnation} ${leaf}`, report.seq);
    }
  }

  override decide(now: number): Decision[] {
    return super.decide(now).map((decision) => {
      const { worker, incarnation, grant } = decision;
      const leaves = grant.leaves.map((leaf) => ({
        ...leaf,
        usedUp: this.#asked.get(`${worker}.${incarnation} ${leaf.leaf}`) ?? 0,
      }));
      return { ...decision, grant: { ...grant, leaves } };
    });
  }
}

/** Asks connections outside of pools back, as if they were a pool's. */
class GreedyLedger extends Ledger {
  constructor(options: LedgerOptions) {
    super({ ...options, rules: withoutMercy(options.rules) });
  }

  override setRules(rules: LeafRules, now: number): void {
    super.setRules(withoutMercy(rules), now);
  }
}

function withoutMercy(rules: LeafRules): LeafRules {
  return (leaf) => {
    const rule = rules(leaf);
    return rule === null ? null : { ...rule, sticky: leaf.startsWith("clients") };
  };
}

/** Takes what PostgreSQL shows of connections outside of pools for nobody's. */
class PurblindLedger extends Ledger {
  override backends(
    worker: number,
    incarnation: number,
    shown: ReadonlyMap<string, number>,
    now: number,
  ): void {
    const pools = [...shown].filter(([leaf]) => leaf.startsWith("pool:"));
    super.backends(worker, incarnation, new Map(pools), now);
  }
}

/** Obeys a leader whose epoch is over. */
class DisloyalTable extends LeaseTable {
  override onGrant(grant: Grant, now: number): readonly Lease[] {
    if (grant.epoch >= this.epoch) return super.onGrant(grant, now);
    return obey(this, grant);
  }
}

/** Obeys grants in the order of their arrival. */
class HastyTable extends LeaseTable {
  override onGrant(grant: Grant, now: number): readonly Lease[] {
    super.onGrant(grant, now);
    return grant.epoch === this.epoch && !this.lapsed(now) ? obey(this, grant) : [];
  }
}

function obey(table: LeaseTable, grant: Grant): readonly Lease[] {
  return grant.leaves.map(({ leaf, granted }) => {
    const lease = table.lease(leaf);
    lease.granted = granted;
    lease.touch();
    return lease;
  });
}

/** Counts its lease from the arrival of an answer. */
class SlowTable extends LeaseTable {
  #arrivedAt = -Infinity;

  override onGrant(grant: Grant, now: number): readonly Lease[] {
    this.#arrivedAt = now;
    return super.onGrant(grant, now);
  }

  override expire(now: number): void {
    super.expire(now - Math.max(0, this.#arrivedAt - this.contactAt));
  }
}

/** Takes what it was not told the limit of for unlimited. */
class FreeTable extends LeaseTable {
  constructor(options: LeaseTableOptions) {
    super({ ...options, rules: () => ({ accounts: [], sticky: false }) });
  }
}

/** Keeps what it was granted however long nobody answers. */
class PatientTable extends LeaseTable {
  override expire(): void {}
}

const SAVES: Variant = {
  faults: ["stop at a save", "stop at a save", "crash worker", "crash coordinator"],
  leaseMs: 10_000,
  storeTimeoutMs: 15_000,
  auth: false,
  endless: true,
};
const SILENCE: Variant = {
  faults: ["stop at a report", "stop at a report", "stop worker", "terminate"],
  leaseMs: 1000,
  auth: true,
  endless: true,
};
const GRANTS: Variant = {
  faults: ["stop at a grant", "stop at a grant", "stop at a save", "split"],
  leaseMs: 10_000,
  storeTimeoutMs: 15_000,
  auth: false,
  endless: true,
};

export const mistakes: readonly Mistake[] = [
  {
    what: "a ledger that lowers a charge before the worker said that it obeys",
    variant: {
      faults: ["weather", "cut worker"],
      endless: true,
      makeLedger: (options) => new TrustingLedger(options),
    },
  },
  {
    what: "a ledger that forgets what is held beyond the grant",
    variant: {
      faults: ["crash coordinator"],
      endless: true,
      makeLedger: (options) => new OptimisticLedger(options),
    },
  },
  {
    what: "a ledger that takes a report of an older epoch for a promise",
    variant: {
      ...GRANTS,
      shortcuts: { noTermEnd: true },
      makeLedger: (options) => new PresumptuousLedger(options),
    },
  },
  {
    what: "a ledger that still charges workers that are gone",
    variant: { makeLedger: (options) => new HauntedLedger(options) },
  },
  {
    what: "a ledger that asks for the slots of connections outside of pools",
    variant: { faults: [], makeLedger: (options) => new GreedyLedger(options) },
  },
  {
    what: "a ledger that does not count the backends of connections outside of pools",
    variant: { ...SILENCE, makeLedger: (options) => new PurblindLedger(options) },
  },
  {
    what: "a ledger that takes slots to be in use that nobody was asked about",
    variant: { faults: [], endless: true, makeLedger: (options) => new PresumingLedger(options) },
  },
  {
    what: "a worker that opens what it was granted nothing of",
    variant: { faults: [], endless: true, makeTable: (options) => new FreeTable(options) },
  },
  {
    what: "a worker that obeys an older epoch",
    variant: {
      ...GRANTS,
      shortcuts: { noTermEnd: true },
      makeTable: (options) => new DisloyalTable(options),
    },
  },
  {
    what: "a worker that obeys grants in the order of their arrival",
    variant: {
      faults: ["weather"],
      endless: true,
      makeTable: (options) => new HastyTable(options),
    },
  },
  {
    what: "a worker that counts its contact from the arrival of an answer",
    variant: { ...SILENCE, makeTable: (options) => new SlowTable(options) },
  },
  {
    what: "a worker that gives nothing up without contact",
    variant: { ...SILENCE, makeTable: (options) => new PatientTable(options) },
  },
  {
    what: "a coordinator that sends a grant before its charge is saved",
    variant: { ...SAVES, shortcuts: { noTermEnd: true, sendBeforeSave: true } },
  },
  {
    what: "a coordinator that repeats a grant while its charge is being saved",
    variant: {
      ...SAVES,
      faults: ["weather", "crash coordinator", "stop at a save"],
      shortcuts: { noTermEnd: true, overtakeSaves: true },
    },
  },
  {
    what:
      "a coordinator that grants a worker its first slots without asking whether it still leads",
    variant: {
      ...SAVES,
      faults: ["crash worker"],
      shortcuts: { noTermEnd: true, createUnfenced: true },
    },
  },
  {
    what: "a new leader that leaves the saved charges to the old one",
    variant: { ...SAVES, shortcuts: { noTermEnd: true, keepRevisions: true } },
  },
  {
    what: "a new leader that does not read the saved charges",
    variant: { faults: ["crash coordinator"], endless: true, shortcuts: { forget: true } },
  },
  {
    what: "a coordinator that frees the slots of a dead worker at once",
    variant: { faults: ["crash worker"], endless: true, shortcuts: { noGrace: true } },
  },
];
