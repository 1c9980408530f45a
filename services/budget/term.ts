// One term of one leader: takes the saved charges over, then turns reports into grants until the term is
// over. What is decided is the ledger's; here is when, by what message, and what is saved before.
// Invariants: a grant is sent only while the term is known to last and after its charge was saved; a
// goodbye is answered only once it is noted in the store; after close() nothing is written or sent.

import { setTimeout as delay } from "node:timers/promises";
import type { Bus, Store } from "../../shared/bus/mod.ts";
import type { Config } from "../../shared/config/mod.ts";
import { leafRules, Ledger, type Report } from "../../shared/ledger/mod.ts";
import { type Logger, onceEvery } from "../../shared/telemetry/mod.ts";
import { ChargeBook } from "./charge_book.ts";
import { Departures } from "./departures.ts";
import type { SavedCharges } from "./saved_charges.ts";
import type { Sightings } from "./sightings.ts";
import { WorkerWatch } from "./worker_watch.ts";

export interface TermOptions {
  readonly epoch: number;
  /** Of this coordinator. */
  readonly name: string;
  /** What was charged when nobody but this process is known to have led since: the store may have lost it. */
  readonly remembered: readonly SavedCharges[];
  readonly bus: Bus;
  readonly store: Store;
  readonly config: Config;
  /** Workers use their slots so long without contact. */
  readonly leaseMs: number;
  readonly sightings: Sightings;
  readonly clock: () => number;
  readonly logger: Logger;
  /** Whether grants may be sent now. */
  readonly isLeading: () => boolean;
  readonly confirm: () => Promise<boolean>;
  /** A worker listens to no epoch lower than this. */
  readonly promised: (epoch: number) => void;
  /** The store shows that another leads. */
  readonly onConflict: () => void;
}

/** What there is once the saved charges are taken over. */
interface Office {
  readonly ledger: Ledger;
  readonly departures: Departures;
}

/** From a report until grants are decided: reports that come together are decided together. */
const gatherMs = 10;
const decideMs = 250;
const secondMs = 1000;
/** A worker that says nothing for so long is silent, long before its lease is over. */
const silentMs = 3000;
const pauseMs = 250;
/** At its begin, a term waits for workers that were heard in that time. */
const heardMs = 10_000;
const reportMs = 60_000;

export class Term {
  readonly #options: TermOptions;
  readonly #book: ChargeBook;
  readonly #watch: WorkerWatch;
  readonly #reportTrouble = onceEvery(reportMs);
  readonly #timers: ReturnType<typeof setInterval>[] = [];
  readonly #unsubscribe: (() => void)[] = [];
  #config: Config;
  #leaseMs: number;
  #office: Office | null = null;
  #soon: ReturnType<typeof setTimeout> | null = null;
  #closed = false;

  constructor(options: TermOptions) {
    const { logger, sightings } = options;
    this.#options = options;
    this.#config = options.config;
    this.#leaseMs = options.leaseMs;
    this.#watch = new WorkerWatch(logger, silentMs);
    this.#book = new ChargeBook({
      store: options.store,
      epoch: options.epoch,
      name: options.name,
      confirm: options.confirm,
      placeOf: (worker, incarnation) => sightings.placeOf(worker, incarnation),
      clock: options.clock,
      onConflict: (what) => {
        logger.warning(`${what}: somebody else wrote it, so another coordinator leads`);
        options.onConflict();
      },
      onTrouble: (error) =>
        this.#reportTrouble((suppressed) =>
          logger.warning(`save charges: ${error.message}; trying again`, { suppressed })
        ),
      pause: () => delay(pauseMs),
    });
  }

  /** Takes over, then serves; returns when it does, or when the term ended before. */
  async start(): Promise<void> {
    const { bus, epoch, clock, sightings, logger } = this.#options;
    const { saved, unreadable } = await this.#book.restore(this.#options.remembered);
    if (this.#closed) return;
    for (const key of unreadable) {
      logger.error(`read saved charges "${key}": not in a form known here, left alone`);
    }
    const now = clock();
    const rules = leafRules(this.#config);
    const ledger = new Ledger({ epoch, rules, leaseMs: this.#leaseMs, silentMs, now });
    const parts = { ledger, book: this.#book, sightings, clock, logger };
    const departures = new Departures(parts, this.#config);
    let charged = 0;
    for (const { worker, incarnation, charges, place, gone } of saved) {
      if (gone && charges.size === 0) {
        ledger.gone(worker, incarnation);
        continue;
      }
      charged += 1;
      if (place !== null && sightings.placeOf(worker, incarnation) === null) {
        sightings.setPlace(worker, incarnation, place, now);
      }
      ledger.restore(worker, incarnation, charges, now);
      if (gone) departures.resume(worker, incarnation);
    }
    // Nothing is raised before each of them has said what it holds, or is silent. One of which nothing is
    // saved may hold something all the same: a store that loses its newest writes does not say so.
    for (const { worker, incarnation } of sightings.heardSince(now - heardMs)) {
      if (!this.#book.has(worker, incarnation)) {
        ledger.restore(worker, incarnation, new Map(), now);
      }
    }
    const office = { ledger, departures };
    this.#office = office;
    logger.info("budget coordinator leads", { epoch, workers: charged });
    this.#unsubscribe.push(
      bus.subscribe(bus.subjects.allBudgetReports, (report) => this.#onReport(office, report)),
      bus.subscribe(bus.subjects.budgetGone, async ({ worker, incarnation }) => {
        const noted = await departures.note(worker, incarnation, "its supervisor said so");
        // The term ended first: the next leader is told again.
        return noted ? {} : null;
      }),
    );
    this.#timers.push(
      setInterval(() => this.#everySecond(office), secondMs),
      setInterval(() => this.#tick(office), decideMs),
    );
    this.announce();
  }

  /** Says who leads. */
  announce(): void {
    const { bus, epoch, name, isLeading } = this.#options;
    if (this.#office === null || !isLeading()) return;
    bus.publish(bus.subjects.budgetLeader, { epoch, name });
  }

  isCharged(worker: number, incarnation: number): boolean {
    return this.#book.has(worker, incarnation);
  }

  /** What workers are charged, also when the term is over. */
  charges(): SavedCharges[] {
    return this.#office === null ? [...this.#options.remembered] : this.#book.all();
  }

  setConfig(config: Config, leaseMs: number): void {
    this.#config = config;
    this.#leaseMs = leaseMs;
    if (this.#office === null) return;
    const { ledger, departures } = this.#office;
    ledger.leaseMs = leaseMs;
    ledger.setRules(leafRules(config), this.#options.clock());
    departures.setConfig(config);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#book.close();
    this.#office?.departures.close();
    for (const timer of this.#timers) clearInterval(timer);
    if (this.#soon !== null) clearTimeout(this.#soon);
    for (const stop of this.#unsubscribe) stop();
  }

  #onReport(office: Office, report: Report): void {
    // What a process said before it ended may arrive after its end was noted.
    if (this.#closed || office.departures.has(report)) return;
    const { promised, sightings, clock } = this.#options;
    promised(report.epoch);
    if (this.#closed) return;
    const now = clock();
    sightings.onReport(report, now);
    office.ledger.report(report, now);
    this.#soon ??= setTimeout(() => {
      this.#soon = null;
      this.#decide(office);
    }, gatherMs);
  }

  #everySecond({ ledger, departures }: Office): void {
    this.announce();
    this.#book.dropOldNotes();
    const now = this.#options.clock();
    this.#watch.look(ledger.workers(), now, (worker) => departures.has(worker));
  }

  #tick(office: Office): void {
    office.departures.tick(this.#options.clock());
    this.#decide(office);
  }

  #decide({ ledger }: Office): void {
    const { bus, clock, isLeading } = this.#options;
    // Reports are kept in mind meanwhile; what they ask for is decided when the term is certain.
    if (this.#closed || !isLeading()) return;
    const now = clock();
    for (const { worker, incarnation, grant, save } of ledger.decide(now)) {
      this.#book.post(worker, incarnation, save, () => {
        // One that was held up for long is lost: its worker may count as silent by now.
        if (isLeading() && clock() - now < silentMs) {
          bus.publish(bus.subjects.budgetGrant(worker), grant);
        }
      });
    }
    for (const { worker, incarnation, save } of ledger.unsaved(now)) {
      this.#book.post(worker, incarnation, save, null);
    }
  }
}
