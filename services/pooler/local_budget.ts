// The budget of a worker that shares nothing: a ledger of its own in which limits are this worker's part
// of those in the file (`budget_mode = static`, or a worker without a fleet). It answers at once.

import type { Config } from "../../shared/config/mod.ts";
import { type Grant, leafRules, Ledger, type Part, type Report } from "../../shared/ledger/mod.ts";

export class LocalBudget {
  readonly #ledger: Ledger;
  readonly #part: Part;
  readonly #onGrant: (grant: Grant) => void;

  constructor(
    config: Config,
    part: Part,
    onGrant: (grant: Grant) => void,
  ) {
    this.#onGrant = onGrant;
    this.#part = part;
    this.#ledger = new Ledger({
      epoch: 1,
      rules: leafRules(config, part),
      // Nobody can be lost, and nothing is ever taken back from somebody who does not answer.
      leaseMs: Infinity,
      silentMs: Infinity,
      now: performance.now(),
    });
  }

  onReports(reports: readonly Report[]): void {
    const now = performance.now();
    for (const report of reports) this.#ledger.report(report, now);
    this.#decide(now);
  }

  setConfig(config: Config): void {
    const now = performance.now();
    this.#ledger.setRules(leafRules(config, this.#part), now);
    this.#decide(now);
  }

  #decide(now: number): void {
    for (const { grant } of this.#ledger.decide(now)) this.#onGrant(grant);
  }
}
