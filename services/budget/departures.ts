// Workers that have ended, from the news of it until their slots are free: when their backends are gone as
// well, as PostgreSQL shows it, or after a short grace where there is no login to ask with. And workers
// that are silent past their lease: what PostgreSQL shows of them is all they are charged.
// Invariant: nothing is freed before the store says that the worker is gone, so that the next leader
// goes on where this one stops.

import type { BudgetAuth, Config } from "../../shared/config/mod.ts";
import { parseBudgetAuth } from "../../shared/config/mod.ts";
import { Resolver } from "../../shared/host/mod.ts";
import { type Charges, type Ledger, parseServerLeaf, UNLIMITED } from "../../shared/ledger/mod.ts";
import { type Logger, onceEvery } from "../../shared/telemetry/mod.ts";
import { lookAtBackends } from "./backends.ts";
import type { ChargeBook } from "./charge_book.ts";
import { type Finding, inspect, type Inspected } from "./inspection.ts";
import { nameOf, type Sightings, type WorkerName } from "./sightings.ts";

export interface DeparturesOptions {
  readonly ledger: Ledger;
  readonly book: ChargeBook;
  readonly sightings: Sightings;
  readonly clock: () => number;
  readonly logger: Logger;
}

interface Departure extends WorkerName {
  readonly since: number;
}

/** The backends of a process that ended notice the closed socket; those that run a query, later. */
const graceMs = 1000;
/** Before the first look: most have noticed by then. */
const firstLookMs = 200;
const lookMs = 1000;
/** Backends that nobody named are waited for at most so long: they may be nobody's of the mesh. */
const unnamedGraceMs = 10_000;
/** A lease is over for sure by then, though the clocks of two hosts differ by a tenth. */
const silenceFactor = 1.1;
const silenceMarginMs = 1000;
const reportMs = 60_000;

export class Departures {
  readonly #options: DeparturesOptions;
  readonly #log: Logger;
  readonly #departing = new Map<string, Departure>();
  /** Being noted in the store. */
  readonly #noting = new Set<string>();
  readonly #resolver = new Resolver();
  readonly #reportServer = onceEvery(reportMs);
  /** When the log named a host that several machines call themselves. */
  readonly #namesakesAt = new Map<string, number>();
  #config: Config;
  #auth: BudgetAuth | null = null;
  #lookAt = -Infinity;
  #looking = false;
  #closed = false;

  constructor(options: DeparturesOptions, config: Config) {
    this.#options = options;
    this.#log = options.logger;
    this.#config = config;
    this.setConfig(config);
  }

  setConfig(config: Config): void {
    this.#config = config;
    const auth = parseBudgetAuth(config.settings.budgetAuth);
    // A text that cannot be read is refused when the file is loaded.
    this.#auth = auth === null || "failure" in auth ? null : auth;
    if (this.#auth !== null) void this.#tryLogin(this.#auth);
  }

  /** Whoever mistyped it should not learn of that only when a worker has died. */
  async #tryLogin(auth: BudgetAuth): Promise<void> {
    const failures = new Set<string>();
    const databases = this.#config.databases.keys();
    const report = ({ message }: Error) => failures.add(message);
    await lookAtBackends(this.#config, auth, databases, this.#resolver, report);
    if (this.#closed) return;
    for (const failure of failures) {
      this.#log.warning(`try budget_auth: ${failure}; slots of killed workers would stay charged`);
    }
  }

  close(): void {
    this.#closed = true;
  }

  /** Whether a worker's end is known: what it said before is of no interest any more. */
  has({ worker, incarnation }: WorkerName): boolean {
    return this.#departing.has(nameOf(worker, incarnation));
  }

  /** What an earlier leader had noted. */
  resume(worker: number, incarnation: number): void {
    this.#depart(worker, incarnation);
  }

  /** Notes the end of a worker; false when the term ended before it was noted. */
  async note(worker: number, incarnation: number, why: string): Promise<boolean> {
    const name = nameOf(worker, incarnation);
    if (this.#departing.has(name)) return true;
    const { book } = this.#options;
    if (!(await book.markGone(worker, incarnation)) || this.#closed) return false;
    if (this.#departing.has(name)) return true;
    const slots = serverSlots(book.chargesOf(worker, incarnation));
    this.#log.info("worker is gone", { worker, why, slots });
    this.#depart(worker, incarnation);
    return true;
  }

  /** Looks for workers whose end shows by other signs, and frees what may be freed. */
  tick(now: number): void {
    const { sightings, ledger } = this.#options;
    this.#reportNamesakes(now);
    for (const worker of sightings.ofEarlierBoots(now)) {
      this.#noteSoon(worker, "its host was started again");
    }
    if (sightings.left.size > 0) {
      for (const worker of ledger.workers()) {
        const hasLeft = sightings.left.has(nameOf(worker.worker, worker.incarnation));
        if (hasLeft && worker.heldServers === 0) this.#noteSoon(worker, "it said good-bye");
      }
    }
    for (const departure of this.#departing.values()) {
      const { worker, incarnation, since } = departure;
      const hasSlots = hasServerSlots(this.#options.book.chargesOf(worker, incarnation));
      if (!hasSlots || (this.#auth === null && now - since >= graceMs)) this.#release(departure);
    }
    void this.#look(now);
  }

  #reportNamesakes(now: number): void {
    for (const { host, boots } of this.#options.sightings.namesakes(now)) {
      if (now < (this.#namesakesAt.get(host) ?? -Infinity) + reportMs) continue;
      this.#namesakesAt.set(host, now);
      this.#log.error(
        `tell the starts of host "${host}" apart: ${boots.length} machines with that name are heard at ` +
          "the same time, so that none of its workers is taken for gone when the host is started again; " +
          "wanted a name of its own for every host of a mesh",
        { boots: boots.join(",") },
      );
    }
    for (const [host, at] of this.#namesakesAt) {
      if (now - at > 2 * reportMs) this.#namesakesAt.delete(host);
    }
  }

  #noteSoon({ worker, incarnation }: WorkerName, why: string): void {
    const name = nameOf(worker, incarnation);
    if (this.#noting.has(name) || this.#departing.has(name)) return;
    this.#noting.add(name);
    void this.note(worker, incarnation, why).finally(() => this.#noting.delete(name));
  }

  #depart(worker: number, incarnation: number): void {
    const since = this.#options.clock();
    this.#departing.set(nameOf(worker, incarnation), { worker, incarnation, since });
    this.#lookAt = Math.min(this.#lookAt, since + firstLookMs);
  }

  #release({ worker, incarnation }: Departure): void {
    const { ledger, book, sightings } = this.#options;
    this.#departing.delete(nameOf(worker, incarnation));
    ledger.gone(worker, incarnation);
    book.remove(worker, incarnation);
    sightings.forget(worker, incarnation);
  }

  /** One look at PostgreSQL, if one is due and there is somebody to look for. */
  async #look(now: number): Promise<void> {
    const auth = this.#auth;
    if (auth === null || this.#looking || now < this.#lookAt) return;
    const { ledger, sightings, clock } = this.#options;
    const suspects = this.#suspects(now);
    if (suspects.length === 0) return;
    this.#looking = true;
    const beganAt = clock();
    const others = [...ledger.workers()].filter(({ state }) => state === "live");
    const findings = await inspect(suspects, others, {
      config: this.#config,
      auth,
      leaseMs: ledger.leaseMs,
      sightings,
      resolver: this.#resolver,
      clock,
      report: (error) =>
        this.#reportServer((suppressed) =>
          this.#log.warning(
            `count the backends of silent workers: ${error.message}; ` +
              "their slots stay charged until PostgreSQL answers",
            { suppressed },
          )
        ),
    });
    this.#looking = false;
    this.#lookAt = clock() + lookMs;
    if (this.#closed) return;
    for (const finding of findings) this.#onFinding(finding, beganAt);
  }

  /** Who ended, and whose lease has run out without a word. */
  #suspects(now: number): Inspected[] {
    const { ledger, book } = this.#options;
    const patienceMs = ledger.leaseMs * silenceFactor + silenceMarginMs;
    const suspects: Inspected[] = [];
    for (const { worker, incarnation, lastReportAt, state } of ledger.workers()) {
      const departure = this.#departing.get(nameOf(worker, incarnation));
      const isDue = departure === undefined
        ? state !== "live" && now - lastReportAt > patienceMs
        : now - departure.since >= firstLookMs;
      const charges = book.chargesOf(worker, incarnation);
      if (isDue && charges.size > 0) {
        suspects.push({ worker, incarnation, charges, heardAt: lastReportAt });
      }
    }
    return suspects;
  }

  /** `beganAt`: PostgreSQL was asked after this, maybe just after, and what was opened since is not shown. */
  #onFinding({ worker, incarnation, shown, named, unnamed, unknown }: Finding, beganAt: number) {
    const departure = this.#departing.get(nameOf(worker, incarnation));
    if (departure === undefined) {
      return this.#options.ledger.backends(worker, incarnation, shown, beganAt);
    }
    const waits = unnamed > 0 && beganAt - departure.since < unnamedGraceMs;
    if (!unknown && named === 0 && !waits) this.#release(departure);
    // One of its queries may run for hours: the slots of all others are free.
    else this.#options.ledger.left(worker, incarnation, shown);
  }
}

/** Charged server connections: backends may outlive a worker, its clients do not. */
function hasServerSlots(charges: Charges): boolean {
  for (const [leaf, { charge }] of charges) {
    if (charge > 0 && parseServerLeaf(leaf) !== null) return true;
  }
  return false;
}

/** How many there are, but for those of which there is any number. */
function serverSlots(charges: Charges): number {
  let slots = 0;
  for (const [leaf, { charge }] of charges) {
    if (charge < UNLIMITED && parseServerLeaf(leaf) !== null) slots += charge;
  }
  return slots;
}
