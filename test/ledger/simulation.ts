// A seeded simulation of a mesh: real Ledgers and LeaseTables, and around them coordinators, workers, a store, a
// supervisor, a network and PostgreSQL that are modelled, and that fail in every way they can. A run is a function
// of its seed. It ends in a quiet time, in which the mesh has to come to a fair share and stay there.

import { type Decision, LeaseTable, Ledger, type LedgerOptions } from "../../shared/ledger/mod.ts";
import { Coordinator, type Shortcuts, type Shown } from "./simulated_coordinator.ts";
import { Postgres } from "./simulated_postgres.ts";
import { makeCaps, makeTopology, reloadCaps, type Topology, Version } from "./simulated_rules.ts";
import { StoreServer } from "./simulated_store.ts";
import { type LeaseTableOptions, rests, Worker, type WorkerPool } from "./simulated_worker.ts";
import { CALM, Chance, Node, type Weather, World } from "./simulated_world.ts";
import { type Cluster, ExactRule, Shares } from "./simulation_checks.ts";

const TRACE_LINES = 40;
/** Shares follow the average of some seconds. */
const SETTLED_MS = 6000;
/** Who asks whether all slots are in use is told within this time, or gets one. */
const TOLD_MS = 3000;
/** A ledger may keep so long what it has found out. */
const TELL_MS = 300;

const FAULTS = [
  "weather",
  "cut worker",
  "cut store",
  "split",
  "stop worker",
  "stop coordinator",
  "stop at a save",
  "stop at a grant",
  "stop at a report",
  "stop at a renewal",
  "crash worker",
  "crash coordinator",
  "abdicate",
  "reload",
  "terminate",
  "slow postgres",
] as const;
export type Fault = typeof FAULTS[number];

type Link = readonly [from: string, to: string];

/** What a run is made of instead of the real thing: the mistakes that the simulation has to find. */
export interface Variant {
  readonly shortcuts?: Shortcuts;
  readonly makeLedger?: (options: LedgerOptions) => Ledger;
  readonly makeTable?: (options: LeaseTableOptions) => LeaseTable;
  /** With or without a login to PostgreSQL; chosen by the seed if not given. */
  readonly auth?: boolean;
  /** Chosen by the seed if not given. */
  readonly leaseMs?: number;
  readonly storeTimeoutMs?: number;
  /** What goes wrong, the likelier the more often it is named; chosen by the seed if not given. */
  readonly faults?: readonly Fault[];
  /** How it ends is of no interest: the run is over when the faults are. */
  readonly endless?: boolean;
  /** How much of what happened a failure tells. */
  readonly traceLines?: number;
}

export interface Outcome {
  readonly steps: number;
  readonly virtualMs: number;
  readonly grants: number;
  readonly epochs: number;
  /** Number of times that a granted number changed in the 30 s of steady demand. */
  readonly steadyChanges: number;
}

export class SimulationFailure extends Error {
  readonly seed: number;
  readonly reason: string;

  constructor(seed: number, reason: string, world: World, traceLines = TRACE_LINES) {
    const lines = world.trace(traceLines);
    super(
      `seed ${seed} at ${(world.now / 1000).toFixed(4)} s, step ${world.steps}: ${reason}\n` +
        `the last ${lines.length} events (run this seed alone with PGWEIR_SEED=${seed}):\n${
          lines.join("\n")
        }`,
    );
    this.seed = seed;
    this.reason = reason;
  }
}

/** Runs one seed to its end; throws a SimulationFailure if a check fails. */
export function simulate(seed: number, variant: Variant = {}): Outcome {
  return new Simulation(seed, variant).run();
}

class Simulation implements Cluster {
  readonly topology: Topology;
  workers: Worker[] = [];
  coordinators: Coordinator[] = [];
  readonly #seed: number;
  readonly #variant: Variant;
  readonly #world: World;
  readonly #chance: Chance;
  readonly #auth: boolean;
  readonly #leaseMs: number;
  readonly #silentMs: number;
  readonly #storeTimeoutMs: number;
  /** Coordinators believe that they lead until they are told otherwise. Only lookups at PostgreSQL need more. */
  readonly #longTerms: boolean;
  readonly #faultsMs: number;
  readonly #faults: readonly Fault[];
  readonly #tickMs: number;
  readonly #postgres: Postgres;
  readonly #host: Node;
  readonly #rule: ExactRule;
  #version: Version;
  #weather: Weather;
  #quiet = false;
  /** The workers that each ledger hears, and since when. */
  readonly #liveSince = new WeakMap<Ledger, ReadonlyMap<string, number>>();
  readonly #usedUp = new WeakMap<Ledger, Map<string, number>>();
  #incarnation = 1000;
  /** Dead workers that nobody has reported yet, and those reported that no leader has confirmed. */
  readonly #unreaped = new Set<Worker>();
  readonly #unconfirmed = new Set<string>();
  readonly #granted = new Map<string, number>();
  #grants = 0;
  /** How often a granted number changed, and in the steady time at the end. */
  readonly #changes = new Map<string, number>();
  #steadyChanges = 0;

  constructor(seed: number, variant: Variant) {
    this.#seed = seed;
    this.#variant = variant;
    this.#world = new World(seed);
    const chance = this.#world.chance;
    this.#chance = chance;
    this.#auth = variant.auth ?? chance.yes(0.5);
    const leaseMs = chance.pick([1000, 2000, 4000, 10_000]);
    this.#leaseMs = variant.leaseMs ?? leaseMs;
    const storeTimeoutMs = chance.pick([1500, 1500, 10_000]);
    this.#storeTimeoutMs = variant.storeTimeoutMs ?? storeTimeoutMs;
    this.#silentMs = chance.pick([1500, 3000]);
    const longTerms = chance.yes(0.5);
    this.#longTerms = longTerms && !this.#auth;
    this.#faultsMs = chance.yes(0.1) ? 90_000 : chance.between(10_000, 40_000);
    const faults = FAULTS.filter(() => chance.yes(0.5));
    this.#faults = variant.faults ?? faults;
    this.#tickMs = chance.pick([50, 100, 150]);
    const many = chance.yes(0.01);
    this.topology = makeTopology(chance, many);
    this.#version = new Version(this.topology, makeCaps(chance, this.topology));
    this.#postgres = new Postgres(this.#world, this.#auth);
    this.#host = new Node(this.#world, "host", false);
    new StoreServer(this.#world);
    this.#weather = chance.yes(0.5)
      ? CALM
      : { delayMs: 20, late: 0.05, lateMs: 500, loss: 0.02, doubled: 0.05 };
    this.#world.weather = this.#weather;
    const coordinators = chance.pick([1, 2, 2, 3]);
    for (let at = 0; at < coordinators; at++) this.#addCoordinator(`c${at}`);
    const workers = many ? 2 : chance.whole(2, 4);
    for (let id = 1; id <= workers; id++) this.#addWorker(id);
    this.#rule = new ExactRule(this, this.#version, this.#faults.includes("reload"));
  }

  run(): Outcome {
    const { chance } = this.#world;
    const fault = () => {
      if (this.#quiet) return;
      this.#fail(chance.pick(this.#faults));
      this.#world.schedule(chance.exponential(1500), fault);
    };
    if (this.#faults.length > 0) this.#world.schedule(3000, fault);
    const demandMs = chance.pick([100, 400, 2000]);
    const hungry = chance.yes(0.5);
    const demand = () => {
      if (this.#quiet) return;
      if (this.workers.length > 0) chance.pick(this.workers).changeDemand(hungry);
      this.#world.schedule(chance.exponential(demandMs), demand);
    };
    this.#world.schedule(0, demand);
    this.#runFor(this.#faultsMs);
    if (this.#variant.endless !== true) this.#comeToRest();
    return {
      steps: this.#world.steps,
      virtualMs: this.#world.now,
      grants: this.#grants,
      epochs: Math.max(...this.coordinators.map(({ epoch }) => epoch)),
      steadyChanges: this.#steadyChanges,
    };
  }

  #runFor(lengthMs: number): void {
    const until = this.#world.now + lengthMs;
    for (;;) {
      let ran: boolean;
      try {
        ran = this.#world.step(until);
      } catch (error) {
        const { stack, message } = error as Error;
        throw this.#failure(stack ?? message);
      }
      if (!ran) return;
      const breach = this.#rule.check();
      if (breach !== null) throw this.#failure(breach);
    }
  }

  // The parts

  #addCoordinator(name: string): void {
    const makeLedger = this.#variant.makeLedger ?? ((options) => new Ledger(options));
    this.coordinators.push(
      new Coordinator(this.#world, {
        name,
        leaseMs: this.#leaseMs,
        silentMs: this.#silentMs,
        storeTimeoutMs: this.#storeTimeoutMs,
        version: this.#version,
        makeLedger,
        shortcuts: { noTermEnd: this.#longTerms, ...this.#variant.shortcuts },
        lookUp: this.#auth ? (from, then) => this.#lookUp(from, then) : null,
        workers: () => this.workers,
        answerGone: (from, worker, incarnation) => {
          const key = `${worker}.${incarnation}`;
          this.#world.send(from, "host", () => `gone ${key} confirmed`, () => {
            this.#unconfirmed.delete(key);
          });
        },
        onDecided: (ledger, decisions) => this.#checkPolls(ledger, decisions),
        onGranted: (grant) => {
          this.#grants++;
          for (const { leaf, granted } of grant.leaves) {
            const key = `${grant.worker}.${grant.incarnation} ${leaf}`;
            if (this.#granted.get(key) !== granted) {
              this.#changes.set(key, (this.#changes.get(key) ?? 0) + 1);
            }
            this.#granted.set(key, granted);
          }
        },
      }),
    );
  }

  /** Who is told that all slots of a group are in use: no other that is heard had one at rest since it asked. */
  #checkPolls(ledger: Ledger, decisions: readonly Decision[]): void {
    if (this.topology.groups.length === 0) return;
    const { now } = this.#world;
    const before = this.#liveSince.get(ledger);
    const liveSince = new Map<string, number>();
    for (const { worker, incarnation, state } of ledger.workers()) {
      const key = `${worker}.${incarnation}`;
      if (state === "live") liveSince.set(key, before?.get(key) ?? now);
    }
    this.#liveSince.set(ledger, liveSince);
    const said = this.#usedUp.get(ledger) ?? new Map<string, number>();
    this.#usedUp.set(ledger, said);
    for (const { worker, incarnation, grant } of decisions) {
      const asker = this.workers.find(({ key }) => key === `${worker}.${incarnation}`);
      for (const { leaf, usedUp } of grant.leaves) {
        const question = asker?.groups.find(({ lease }) => lease.leaf === leaf)?.question ?? null;
        // What was so is said again with each grant, until the next poll.
        const isSaid = said.get(`${worker}.${incarnation} ${leaf}`) === usedUp;
        said.set(`${worker}.${incarnation} ${leaf}`, usedUp);
        if (isSaid || question === null || usedUp <= question.after) continue;
        const resting = this.#resting(leaf, question.since)
          .find((other) => other !== asker && now - (liveSince.get(other.key) ?? now) > TELL_MS);
        if (resting === undefined) continue;
        throw new Error(
          `${asker!.key} is told that all of ${leaf} is in use, ` +
            `but ${resting.key} has had some at rest since it asked`,
        );
      }
    }
  }

  /** Those that have had slots of a group that they had no use for, since then. */
  #resting(leaf: string, since: number): Worker[] {
    return this.workers.filter(({ alive, groups }) =>
      alive && groups.some(({ lease, restsSince }) => {
        return lease.leaf === leaf && rests(lease) && restsSince <= since;
      })
    );
  }

  /** At a quiet end each is told, or there is a slot that somebody does not use. */
  #checkQuestions(when: string): void {
    for (const worker of this.workers) {
      for (const { lease: { leaf }, question } of worker.groups) {
        if (question === null || this.#world.now - question.since < TOLD_MS) continue;
        if (this.#resting(leaf, this.#world.now - TOLD_MS / 2).length > 0) continue;
        throw this.#failure(
          `${when}: ${worker.key} is not told about ${leaf}\n${this.#ledgerText()}`,
        );
      }
    }
  }

  #addWorker(id: number): void {
    const makeTable = this.#variant.makeTable ?? ((options) => new LeaseTable(options));
    this.workers.push(
      new Worker(this.#world, {
        id,
        incarnation: this.#incarnation++,
        leaseMs: this.#leaseMs,
        tickMs: this.#tickMs,
        topology: this.topology,
        postgres: this.#postgres,
        makeTable,
        rules: this.#faults.includes("reload") ? null : this.#version.rules,
        coordinators: () => this.coordinators,
        auth: this.#auth,
      }),
    );
  }

  /** Asks each database's server at a time of its own; now and then there is no answer. */
  #lookUp(from: Node, then: (shown: Shown | null) => void): void {
    const { chance } = this;
    const slow = !this.#quiet && chance.yes(0.4);
    if (slow && chance.yes(0.3)) {
      this.#world.schedule(4000, () => from.run(() => then(null)));
      return;
    }
    const shown = new Map<string, Map<string, number>>();
    const databases = new Set(this.topology.pools.map(({ database }) => database));
    let left = databases.size;
    for (const database of databases) {
      this.#world.schedule(chance.between(0.5, slow ? 3500 : 20), () => {
        for (const worker of this.workers) {
          for (const { leaf, database: of, backends } of worker.pools) {
            if (backends.open === 0 || of !== database) continue;
            const leaves = shown.get(worker.key) ?? new Map<string, number>();
            shown.set(worker.key, leaves.set(leaf, backends.open));
          }
        }
        if (--left > 0) return;
        this.#world.schedule(chance.between(0.5, slow ? 500 : 5), () =>
          from.run(() => {
            this.#world.note(() => `${from.name} sees ${shownText(shown)}`);
            then(shown);
          }));
      });
    }
  }

  get chance(): Chance {
    return this.#chance;
  }

  /** The supervisor tells of a process that it reaped, until a leader confirms. */
  #reap(worker: Worker): void {
    const { key, id, incarnation } = worker;
    if (!this.#unreaped.delete(worker)) return;
    this.#unconfirmed.add(key);
    const tell = () => {
      if (!this.#unconfirmed.has(key)) return;
      for (const { name } of this.coordinators) {
        this.#world.send(this.#host, name, () => `gone ${key}`, (receiver) => {
          (receiver as Coordinator).onGone(id, incarnation);
        });
      }
      this.#world.schedule(500, tell);
    };
    tell();
  }

  // What goes wrong

  #length(): number {
    const { chance } = this;
    const kind = chance.next();
    if (kind < 0.5) return chance.between(50, 3000);
    return kind < 0.95 ? chance.between(3000, 15_000) : chance.between(15_000, 60_000);
  }

  #later(undo: () => void, lengthMs = this.#length()): void {
    this.#world.schedule(lengthMs, () => {
      if (!this.#quiet) undo();
    });
  }

  #fail(fault: Fault): void {
    const { chance } = this;
    const world = this.#world;
    const alive = this.workers.filter((worker) => worker.alive);
    const worker = alive.length === 0 ? null : chance.pick(alive);
    const coordinator = chance.pick(this.coordinators);
    switch (fault) {
      case "weather":
        world.weather = {
          delayMs: chance.pick([3, 50, 300]),
          late: chance.pick([0, 0.1, 0.4]),
          lateMs: chance.pick([300, 2000, 10_000]),
          loss: chance.pick([0, 0.1, 0.5]),
          doubled: chance.pick([0, 0.2]),
        };
        world.note(() => `weather ${JSON.stringify(world.weather)}`);
        return this.#later(() => world.weather = this.#weather);
      case "cut worker": {
        if (worker === null) return;
        const others = chance.yes(0.5) ? [coordinator] : this.coordinators;
        return this.#cut(others.map(({ name }): Link => [worker.name, name]));
      }
      case "cut store":
        return this.#cut([[coordinator.name, "store"]]);
      case "split": {
        // The leader loses the store, and some workers hear of no other leader meanwhile.
        const leader = this.coordinators.find(({ ledger }) => ledger !== null);
        if (leader === undefined) return;
        const others = this.coordinators.filter((one) => one !== leader);
        const deaf = alive.filter(() => chance.yes(0.5)).flatMap(({ name }) =>
          others.map((other): Link => [name, other.name])
        );
        return this.#cut([[leader.name, "store"], ...deaf], "both", chance.between(3000, 20_000));
      }
      case "stop worker":
        if (worker !== null && !worker.stopped) worker.stop(this.#length());
        return;
      case "stop coordinator":
        if (coordinator.alive && !coordinator.stopped) coordinator.stop(this.#length());
        return;
      case "stop at a save":
        if (worker !== null) this.#trapSave(worker.id, "(create|update)");
        return;
      case "stop at a grant":
        return this.#trap(/^grant .*\[./);
      case "stop at a report":
        return this.#trap(/^report/);
      case "stop at a renewal":
        return this.#trap(/^update leader/);
      case "crash worker":
        if (worker !== null) this.#crashWorker(worker);
        return;
      case "crash coordinator":
        if (!coordinator.alive) return;
        coordinator.crash();
        world.schedule(chance.between(100, 6000), () => this.#restart(coordinator));
        return;
      case "abdicate":
        return coordinator.abdicate();
      case "reload":
        this.#version = new Version(
          this.topology,
          reloadCaps(chance, this.topology, this.#version.caps),
        );
        for (const one of this.coordinators) {
          world.schedule(
            chance.between(0, chance.pick([10, 2000])),
            () => one.reload(this.#version),
          );
        }
        return;
      case "terminate":
        for (const one of alive) for (let n = chance.whole(0, 4); n > 0; n--) one.terminateOne();
        return;
      case "slow postgres":
        this.#postgres.openingMs = 400;
        this.#postgres.closingMs = 1500;
        return this.#later(() => this.#fastPostgres());
    }
  }

  #fastPostgres(): void {
    this.#postgres.openingMs = 5;
    this.#postgres.closingMs = 5;
  }

  /** Cuts lines, in both directions or in one. */
  #cut(
    lines: readonly Link[],
    ways = this.chance.pick(["both", "both", "to", "from"]),
    lengthMs = this.#length(),
  ): void {
    const links = lines.flatMap(([one, other]): Link[] => {
      if (ways === "to") return [[one, other]];
      return ways === "from" ? [[other, one]] : [[one, other], [other, one]];
    });
    this.#world.note(() => `cut ${links.map(([from, to]) => `${from}>${to}`).join(" ")}`);
    for (const [from, to] of links) this.#world.cut(from, to);
    this.#later(() => {
      for (const [from, to] of links) this.#world.mend(from, to);
    }, lengthMs);
  }

  /** The leader is stopped when it next raises charges of a worker, which may hear of no other leader meanwhile. */
  #trapSave(worker: number, kind: string): void {
    const { chance } = this;
    this.#trap(new RegExp(`^${kind} charges\\.${worker}\\..* more$`), 0.15);
    if (chance.yes(0.1)) return;
    const others = this.coordinators.filter(({ ledger }) => ledger === null);
    const ways = chance.pick(["both", "both", "from"]);
    this.#cut(others.map(({ name }): Link => [`w${worker}`, name]), ways, 15_000);
  }

  /** Whoever sends such a message next is stopped, before it is out or just after, often for longer than a term. */
  #trap(pattern: RegExp, after = 0.5): void {
    const { chance } = this;
    const lengthMs = chance.yes(0.7) ? chance.between(3200, 9500) : this.#length();
    this.#world.trap = { pattern, after: chance.yes(after), lengthMs };
  }

  #crashWorker(worker: Worker): void {
    const { chance } = this;
    worker.crash();
    // A host that fails takes the supervisor along: nobody tells of the worker until the host is back.
    const told = chance.yes(0.85) ? chance.between(0.5, 50) : chance.between(3000, 20_000);
    this.#unreaped.add(worker);
    this.#world.schedule(told, () => this.#reap(worker));
    const back = chance.yes(0.8) ? chance.between(50, 2000) : chance.between(2000, 8000);
    this.#world.schedule(back, () => {
      if (this.#quiet || this.workers.some(({ id, alive }) => id === worker.id && alive)) return;
      this.#addWorker(worker.id);
      if (chance.yes(0.4)) this.#trapSave(worker.id, "create");
    });
  }

  #restart({ name }: Coordinator): void {
    const at = this.coordinators.findIndex((one) => one.name === name);
    if (this.coordinators[at]!.alive) return;
    this.coordinators.splice(at, 1);
    this.#addCoordinator(name);
  }

  // The quiet end

  #comeToRest(): void {
    const { chance } = this;
    const world = this.#world;
    world.note(() => "all is well again");
    this.#quiet = true;
    world.weather = CALM;
    world.trap = null;
    world.mendAll();
    this.#fastPostgres();
    for (const coordinator of [...this.coordinators]) {
      coordinator.continue();
      if (!coordinator.alive) this.#restart(coordinator);
      else coordinator.reload(this.#version);
    }
    for (let id = 1; id <= 2; id++) {
      if (!this.workers.some((worker) => worker.id === id && worker.alive)) this.#addWorker(id);
    }
    for (const worker of this.workers) {
      worker.continue();
      worker.transactionMs = 60;
      worker.longTransactions = 0;
      worker.idleTimeoutMs = 20_000;
    }
    for (const worker of this.#unreaped) this.#reap(worker);
    // Transactions that were begun before may last ten seconds, and so long may a question to the store wait.
    this.#runFor(12_000);
    this.#until("a leader and the end of all that is gone", 100_000, () => {
      const leaders = this.coordinators.filter(({ ledger }) => ledger !== null);
      return leaders.length === 1 && this.#unconfirmed.size === 0;
    });
    this.#runFor(6000);
    this.workers = this.workers.filter((worker) => worker.alive);
    for (let round = 0; round < 2; round++) {
      for (const worker of this.workers) {
        for (const pool of worker.pools) {
          worker.demand(pool.leaf, chance.yes(0.3) ? 0 : chance.whole(1, this.#mostOf(pool)));
        }
        for (const group of worker.groups) {
          worker.demandQueries(group, chance.yes(0.3) ? 0 : chance.whole(1, chance.pick([2, 20])));
        }
      }
      this.#runFor(SETTLED_MS);
      this.#checkShares("with new demand");
    }
    const starving = chance.pick(this.workers);
    const pool = chance.pick(starving.pools);
    starving.demand(pool.leaf, 0);
    this.#runFor(2500);
    starving.demand(pool.leaf, pool.isDirect ? 2 : 10);
    const { reportsSent } = starving;
    while (starving.reportsSent < reportsSent + 2) this.#runFor(50);
    this.#runFor(1100);
    this.#until(
      `first slot after two reports of ${starving.name}, which starved in ${pool.leaf}`,
      1000,
      () => pool.lease.granted > 0 || new Shares(this, this.#version).isScarce(pool.leaf),
    );
    this.#runFor(SETTLED_MS);
    this.#checkShares(`with demand of ${starving.name}, which starved in ${pool.leaf}`);
    this.#watchSteadyDemand();
  }

  #mostOf({ isDirect }: WorkerPool): number {
    return isDirect ? 3 : this.chance.pick([2, 6, 20]);
  }

  #watchSteadyDemand(): void {
    const shares = new Shares(this, this.#version);
    this.#changes.clear();
    this.#runFor(30_000);
    this.#checkShares("after 30 s of steady demand");
    this.#steadyChanges = 0;
    let cells = 0;
    for (const worker of this.workers) {
      for (const lease of worker.leases()) {
        // What nobody uses is taken back some day.
        if (lease.wanted === 0 || shares.isScarce(lease.leaf)) continue;
        cells++;
        this.#steadyChanges += this.#changes.get(`${worker.key} ${lease.leaf}`) ?? 0;
      }
    }
    // Slots of leaves that cannot be split may change hands, and with them those of an account that they share.
    if (this.#steadyChanges > cells + 2) {
      throw this.#failure(
        `${this.#steadyChanges} changes of ${cells} shares in 30 s of steady demand`,
      );
    }
    const waiting = shares.waiting();
    const forgotten = waiting.length > 12 ? [] : waiting.flatMap(({ worker, lease }) => {
      const cell = `${worker.key} ${lease.leaf}`;
      return lease.granted > 0 || this.#changes.has(cell) ? [] : [cell];
    });
    if (forgotten.length > 0) {
      throw this.#failure(`no turn in 30 s for ${forgotten.join(", ")}\n${this.#ledgerText()}`);
    }
  }

  #until(what: string, timeoutMs: number, probe: () => boolean): void {
    const until = this.#world.now + timeoutMs;
    while (!probe()) {
      if (this.#world.now > until) throw this.#failure(`no ${what} in ${timeoutMs} ms`);
      this.#runFor(200);
    }
  }

  /** A slot may be changing hands at this very moment: shares have to be right soon. */
  #checkShares(when: string): void {
    this.#checkQuestions(when);
    const until = this.#world.now + 1000;
    for (;;) {
      const breach = new Shares(this, this.#version).check();
      if (breach === null) return;
      if (this.#world.now > until) {
        throw this.#failure(`${when}: ${breach}\n${this.#ledgerText()}`);
      }
      this.#runFor(50);
    }
  }

  /** What workers have, and what the leader has in its books. */
  #ledgerText(): string {
    const leases = this.workers.filter(({ alive }) => alive).map((worker) =>
      `  ${worker.key} ` +
      worker.leases().filter(({ blank }) => !blank).map((lease) =>
        `${lease.leaf} h${lease.held} w${lease.wanted} g${lease.granted}${
          lease.pending ? " pending" : ""
        }`
      ).join(", ")
    );
    const books = this.coordinators.flatMap(({ name, ledger }) => {
      if (ledger === null) return [];
      const accounts = [...ledger.accounts()].map((account) =>
        `${account.name} ${account.charged} of ${account.cap}`
      );
      const workers = [...ledger.workers()].map(({ worker, incarnation, state }) =>
        `${worker}.${incarnation} ${state}`
      );
      return [`  ${name} charges ${accounts.join(", ")}`, `  ${name} knows ${workers.join(", ")}`];
    });
    return [...leases, ...books].join("\n");
  }

  #failure(reason: string): SimulationFailure {
    return new SimulationFailure(this.#seed, reason, this.#world, this.#variant.traceLines);
  }
}

function shownText(shown: Shown): string {
  return [...shown].map(([key, leaves]) =>
    `${key}: ${[...leaves].map(([leaf, count]) => `${leaf} ${count}`).join(" ")}`
  ).join(", ");
}
