// skeleton
import type { LeafRules } from "./accounts.ts";
import type { Charges, Decision, Report, Saving } from "./messages.ts";

export interface LedgerOptions {
  readonly epoch: number;
  readonly rules: LeafRules;
  readonly leaseMs: number;
  /** a worker that has not reported for so long is silent: it is neither raised nor lowered */
  readonly silentMs: number;
  readonly now: number;
}

export interface WorkerView {
  readonly worker: number;
  readonly incarnation: number;
  /** of one that has not reported yet: when its charges were restored */
  readonly lastReportAt: number;
  /** restored: not heard in this epoch; live: heard lately; silent: not heard for silentMs */
  readonly state: "restored" | "live" | "silent";
  /** server connections by its last reports */
  readonly heldServers: number;
}

export interface AccountView {
  readonly name: string;
  readonly cap: number;
  readonly charged: number;
  readonly wanted: number;
}

export class Ledger {
  readonly epoch: number;
  constructor(options: LedgerOptions) {
    this.epoch = options.epoch;
  }
  restore(_worker: number, _incarnation: number, _charges: Charges, _now: number): void {}
  setRules(_rules: LeafRules, _now: number): void {}
  report(_report: Report, _now: number): void {}
  gone(_worker: number, _incarnation: number): void {}
  backends(
    _worker: number,
    _incarnation: number,
    _shown: ReadonlyMap<string, number>,
    _now: number,
  ): void {}
  decide(_now: number): Decision[] {
    return [];
  }
  unsaved(_now: number): Saving[] {
    return [];
  }
  *workers(): Iterable<WorkerView> {}
  *accounts(): Iterable<AccountView> {}
}
