// The coordinator of a mesh's budget: one of any number, of which one leads. It joins the bus, stands for
// election, watches the workers, and has a Term as long as it leads. Losing the bus or the store costs a
// term, never more: it waits for them for ever and says so.

import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import {
  type Bus,
  BusError,
  type BusOptions,
  connectBus,
  openEmbeddedStore,
  openStore,
  type Store,
} from "../../shared/bus/mod.ts";
import type { Config } from "../../shared/config/mod.ts";
import { type Logger, onceEvery } from "../../shared/telemetry/mod.ts";
import { Election } from "./election.ts";
import type { SavedCharges } from "./saved_charges.ts";
import { Sightings } from "./sightings.ts";
import { Term } from "./term.ts";

export interface CoordinatorOptions {
  readonly config: Config;
  /** How to reach the bus. */
  readonly bus: Omit<BusOptions, "logger" | "background">;
  /** The store is served by the supervisor of this host, not by JetStream. */
  readonly embedded: boolean;
  readonly logger: Logger;
}

const tickMs = 100;
const openRetryMs = 2000;
const pruneMs = 60_000;
const reportMs = 60_000;
/** A bus that is away for so long is spoken of. */
const lostLongMs = 10_000;

export class Coordinator {
  readonly #options: CoordinatorOptions;
  readonly #log: Logger;
  readonly #sightings = new Sightings();
  readonly #stopped = new AbortController();
  readonly #reportStore = onceEvery(reportMs);
  readonly #timers: ReturnType<typeof setInterval>[] = [];
  #config: Config;
  #leaseMs: number;
  #bus: Bus | null = null;
  #election: Election | null = null;
  #term: Term | null = null;
  /** What was charged when the last term here ended. */
  #remembered: SavedCharges[] = [];
  #connectedAt = now();

  constructor(options: CoordinatorOptions) {
    this.#options = options;
    this.#log = options.logger;
    this.#config = options.config;
    this.#leaseMs = options.config.settings.budgetLeaseMs;
  }

  /** Joins the bus and stands for election; returns once the store is there or close() was called. */
  async start(): Promise<void> {
    const bus = await connectBus({ ...this.#options.bus, logger: this.#log, background: true });
    if (this.#stopped.signal.aborted) return await bus.close();
    this.#bus = bus;
    const { allPresence, allBudgetBackends } = bus.subjects;
    bus.subscribe(allPresence, (presence) => this.#sightings.onPresence(presence, now()));
    bus.subscribe(allBudgetBackends, (message) => this.#sightings.onBackends(message, now()));
    const store = await this.#openStore(bus);
    if (store === null) return;
    const election = this.#standFor(bus, store);
    this.#election = election;
    bus.subscribe(bus.subjects.budgetLeader, (leader) => election.heard(leader));
    bus.onReconnect(() => {
      election.doubt();
      void this.#tick(election);
    });
    this.#timers.push(
      setInterval(() => void this.#tick(election), tickMs),
      setInterval(() => this.#prune(), pruneMs),
    );
    await this.#tick(election);
  }

  /** Takes effect at once, also in a term that is under way. */
  setConfig(config: Config): void {
    this.#config = config;
    const { budgetLeaseMs } = config.settings;
    // Workers may go by the longer one for a while, and to wait too long for them is safe.
    this.#leaseMs = Math.max(budgetLeaseMs, this.#leaseMs);
    if (budgetLeaseMs < this.#leaseMs) {
      this.#log.info("a shorter budget_lease is used from the next start on", {
        nowMs: this.#leaseMs,
        thenMs: budgetLeaseMs,
      });
    }
    this.#term?.setConfig(config, this.#leaseMs);
  }

  /** Gives its leadership up, so that another takes over at once, and leaves the bus. */
  async close(): Promise<void> {
    this.#stopped.abort();
    for (const timer of this.#timers) clearInterval(timer);
    await this.#election?.resign();
    await this.#bus?.close();
  }

  /** Waits for the store as long as it takes; null once closed. */
  async #openStore(bus: Bus): Promise<Store | null> {
    if (this.#options.embedded) return openEmbeddedStore(bus);
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      try {
        return await openStore(bus, { waitMs: openRetryMs });
      } catch (error) {
        this.#reportTrouble("open the budget's store", error as Error);
      }
      await delay(openRetryMs, undefined, { signal }).catch(() => {});
    }
    return null;
  }

  #standFor(bus: Bus, store: Store): Election {
    const { name } = this.#options.bus;
    const election = new Election({
      store,
      name,
      clock: now,
      // A store that lost its content must not begin below what workers have promised.
      leastEpoch: () => Math.floor(Date.now() / 1000),
      onElected: (epoch, past) => {
        this.#log.info("elected to coordinate the budget", { epoch, name });
        const term: Term = new Term({
          epoch,
          name,
          remembered: past === "ours" ? this.#remembered : [],
          bus,
          store,
          config: this.#config,
          leaseMs: this.#leaseMs,
          sightings: this.#sightings,
          clock: now,
          logger: this.#log,
          isLeading: (): boolean => this.#term === term && election.leading,
          confirm: () => election.confirm(),
          promised: (promised) => election.promised(promised),
          onConflict: () => election.stepDown("the store shows another leader"),
        });
        this.#term = term;
        void term.start();
      },
      onDeposed: (reason) => {
        this.#log.warning("no longer coordinates the budget", { reason });
        this.#term?.close();
        this.#remembered = this.#term?.charges() ?? [];
        this.#term = null;
      },
    });
    return election;
  }

  async #tick(election: Election): Promise<void> {
    if (this.#bus?.connected === true) this.#connectedAt = now();
    else if (election.epoch === null) {
      const lostMs = now() - this.#connectedAt;
      if (lostMs < lostLongMs) return;
      return this.#reportTrouble("stand for election", new Error("the bus cannot be reached"));
    }
    try {
      await election.tick();
    } catch (error) {
      this.#reportTrouble("stand for election", error as Error);
    }
  }

  #prune(): void {
    this.#sightings.prune(
      now(),
      (worker, incarnation) => this.#term?.isCharged(worker, incarnation) ?? false,
    );
  }

  #reportTrouble(what: string, error: Error): void {
    const code = error instanceof BusError ? error.code : null;
    if (code === "CLOSED") return;
    const level = code === "NO_JETSTREAM" || code === "REFUSED" ? "error" : "warning";
    this.#reportStore((suppressed) =>
      this.#log[level](`${what}: ${error.message}; trying again`, { suppressed })
    );
  }
}

function now(): number {
  return performance.now();
}
