// A worker of the ledger's simulation: a real LeaseTable, and around it what the data plane does with it. It opens
// and closes server connections, admits clients and runs queries of groups as its demand says and its leases allow, and reports.
// It also answers what the checks ask: how much it may still act on.

import type { Grant, LeafRules, Lease, LeaseTable, Report } from "../../shared/ledger/mod.ts";
import { Backends, type Connection, type Postgres } from "./simulated_postgres.ts";
import type { Topology } from "./simulated_rules.ts";
import { Node, type World } from "./simulated_world.ts";

export interface LeaseTableOptions {
  readonly worker: number;
  readonly incarnation: number;
  readonly leaseMs: number;
  readonly rules?: LeafRules;
}

export interface WorkerOptions {
  readonly id: number;
  readonly incarnation: number;
  readonly leaseMs: number;
  readonly tickMs: number;
  readonly topology: Topology;
  readonly postgres: Postgres;
  readonly makeTable: (options: LeaseTableOptions) => LeaseTable;
  /** What the worker itself knows of the limits, if they are the same for all and for ever. */
  readonly rules: LeafRules | null;
  /** Names of the coordinators: each hears every report. */
  readonly coordinators: () => readonly Coordination[];
  /** Charges of silent workers may fall to what PostgreSQL shows. */
  readonly auth: boolean;
}

export interface Coordination {
  readonly name: string;
  onReport(report: Report): void;
}

/** A pool, or the connections outside of it: those are one client's each, from beginning to end. */
export interface WorkerPool {
  readonly leaf: string;
  readonly database: string;
  readonly isDirect: boolean;
  readonly lease: Lease;
  readonly backends: Backends;
  readonly idle: Connection[];
  readonly busy: Connection[];
  /** Transactions that clients would like to run at once. */
  demand: number;
  readonly opening: Connection[];
  closing: number;
  /** Busy connections whose transaction is about to end. */
  ending: number;
}

/** A resource group. A query needs a slot of it and of all groups above. */
export interface WorkerGroup {
  readonly lease: Lease;
  readonly parent: WorkerGroup | null;
  /** Queries of its own: those that are to run, that run, and of these those that are about to end. */
  demand: number;
  running: number;
  ending: number;
  /** What it and the groups below could use of the slots above it. */
  useful: number;
  /** Since when a query waits that may not and lacks a slot of it, and the newest report then; null: none does. */
  question: { readonly since: number; readonly after: number } | null;
  /** When a query of it, or of a group below, began last. */
  begunAt: number;
  /** Since when it has a slot that it has no use for; Infinity: it has none. */
  restsSince: number;
}

interface Guests {
  readonly leases: readonly Lease[];
  demand: number;
  admitted: number;
}

export class Worker extends Node {
  readonly id: number;
  readonly incarnation: number;
  readonly table: LeaseTable;
  readonly pools: readonly WorkerPool[];
  readonly clientLeases: readonly Lease[];
  readonly groups: readonly WorkerGroup[];
  diedAt: number | null = null;
  /** Transactions end within this time, save few that last long. */
  transactionMs = 400;
  longTransactions = 0.03;
  idleTimeoutMs: number;
  reportsSent = 0;
  readonly #options: WorkerOptions;
  readonly #byLeaf = new Map<string, WorkerPool>();
  readonly #guests: Guests[];
  #expiredAt = -Infinity;
  #fullReportAt = -Infinity;
  #reportAt = -Infinity;
  #fullReportDue = false;
  #changed = true;
  /** Its queries may not wait. */
  readonly #asks: boolean;

  constructor(world: World, options: WorkerOptions) {
    super(world, `w${options.id}`, true);
    const { id, incarnation, leaseMs, topology, rules } = options;
    this.#options = options;
    this.id = id;
    this.incarnation = incarnation;
    const known = rules === null ? {} : { rules };
    this.table = options.makeTable({ worker: id, incarnation, leaseMs, ...known });
    this.idleTimeoutMs = world.chance.pick([500, 3000, 20_000]);
    this.pools = [...topology.pools, ...topology.directs].map(({ leaf, database }) => ({
      leaf,
      database,
      isDirect: leaf.startsWith("direct:"),
      lease: this.table.lease(leaf),
      backends: new Backends(),
      idle: [],
      busy: [],
      demand: 0,
      opening: [],
      closing: 0,
      ending: 0,
    }));
    for (const pool of this.pools) this.#byLeaf.set(pool.leaf, pool);
    const leaves = new Set(topology.leaves);
    this.#guests = topology.guests.map(({ database, user }) => ({
      leases: ["clients", `clients/db:${database}`, `clients/user:${user}`]
        .filter((leaf) => leaves.has(leaf)).map((leaf) => this.table.lease(leaf)),
      demand: 0,
      admitted: 0,
    }));
    this.clientLeases = [...new Set(this.#guests.flatMap(({ leases }) => leases))];
    const groups: WorkerGroup[] = [];
    for (const { leaf, parent } of topology.groups) {
      groups.push({
        lease: this.table.lease(leaf),
        parent: groups.find(({ lease }) => lease.leaf === parent) ?? null,
        demand: 0,
        running: 0,
        ending: 0,
        useful: 0,
        question: null,
        begunAt: -Infinity,
        restsSince: Infinity,
      });
    }
    this.groups = groups;
    this.#asks = groups.length > 0 && world.chance.yes(0.5);
    this.run(() => this.#tick());
  }

  get key(): string {
    return `${this.id}.${this.incarnation}`;
  }

  leases(): Lease[] {
    return [...this.pools, ...this.groups].map(({ lease }) => lease).concat(this.clientLeases);
  }

  override crash(): void {
    super.crash();
    this.diedAt = this.world.now;
    for (const { backends } of this.pools) this.#options.postgres.outlive(backends);
  }

  // Demand

  changeDemand(hungry: boolean): void {
    this.run(() => {
      const { chance } = this.world;
      const none = chance.yes(hungry ? 0.1 : 0.3);
      const most = hungry ? 20 : chance.pick([3, 8, 20]);
      if (this.#guests.length > 0 && chance.yes(0.3)) {
        const guests = chance.pick(this.#guests);
        guests.demand = none ? 0 : chance.whole(1, Math.min(most, 10));
        this.#seatGuests();
      } else if (this.groups.length > 0 && chance.yes(0.4)) {
        chance.pick(this.groups).demand = none ? 0 : chance.whole(1, most);
        this.#runQueries();
      } else {
        const pool = chance.pick(this.pools);
        pool.demand = none ? 0 : chance.whole(1, pool.isDirect ? Math.min(most, 5) : most);
        this.#work(pool);
      }
    });
  }

  demand(leaf: string, demand: number): void {
    const pool = this.#byLeaf.get(leaf)!;
    pool.demand = demand;
    this.#work(pool);
  }

  demandQueries(group: WorkerGroup, demand: number): void {
    group.demand = demand;
    this.#runQueries();
  }

  // Messages

  onGrant(grant: Grant): void {
    this.#expiredAt = this.clock();
    const changed = this.table.onGrant(grant, this.#expiredAt);
    if (changed.length === 0) return;
    this.#changed = true;
    for (const lease of changed) {
      const pool = this.#byLeaf.get(lease.leaf);
      if (pool !== undefined) this.#work(pool);
    }
    this.#seatGuests();
    this.#runQueries();
  }

  onLeader(epoch: number): void {
    if (this.table.onLeader(epoch, this.clock())) this.#fullReportDue = true;
  }

  #tick(): void {
    const now = this.clock();
    this.#expire();
    for (const pool of this.pools) {
      while (pool.idle.length > 0 && now - pool.idle[0]!.idleSince > this.idleTimeoutMs) {
        this.#close(pool, pool.idle.shift()!);
      }
      this.#work(pool);
    }
    this.#seatGuests();
    this.#runQueries();
    if (this.#fullReportDue || now - this.#fullReportAt >= 1000) {
      this.#fullReportDue = false;
      this.#fullReportAt = now;
      this.#report(true);
    } else if (this.#changed && now - this.#reportAt >= 50) this.#report(false);
    this.after(this.#options.tickMs, () => this.#tick());
  }

  #expire(): void {
    this.#expiredAt = this.clock();
    this.table.expire(this.#expiredAt);
  }

  #report(full: boolean): void {
    const now = this.clock();
    this.#changed = false;
    this.#reportAt = now;
    for (const pool of this.pools) {
      pool.lease.idleMs = pool.idle.length === 0
        ? 0
        : Math.max(1, Math.round(now - pool.idle[0]!.idleSince));
    }
    for (const { lease, begunAt } of this.groups) {
      const isBusy = lease.held > 0 && lease.held >= lease.granted;
      lease.busyMs = isBusy ? Math.floor(now - begunAt) : 0;
    }
    this.reportsSent++;
    for (const report of this.table.reports(now, full)) {
      // The message is what the table says now, even if the table gave away an object that it goes on changing.
      const sent = { ...report, leaves: report.leaves.map((leaf) => ({ ...leaf })) };
      for (const { name } of this.#options.coordinators()) {
        this.world.send(this, name, () => `report ${reportText(sent)}`, (receiver) => {
          (receiver as Node & Coordination).onReport(sent);
        });
      }
    }
  }

  // Server connections

  #work(pool: WorkerPool): void {
    const { lease, idle, busy, opening, isDirect } = pool;
    const { chance } = this.world;
    this.#expire();
    while (lease.held - pool.closing > lease.limit && idle.length > 0) {
      this.#close(pool, idle.shift()!);
    }
    // Nobody's connection ends to make room; one that PostgreSQL may not show yet does without contact.
    const keepsOpening = isDirect && !this.table.lapsed(this.clock());
    while (lease.held - pool.closing > lease.limit && opening.length > 0 && !keepsOpening) {
      this.#close(pool, opening.pop()!);
      lease.opening = opening.length;
    }
    while (busy.length < pool.demand && idle.length > 0) {
      const connection = idle.pop()!;
      connection.state = "busy";
      busy.push(connection);
    }
    while (busy.length + opening.length < pool.demand && lease.room > 0) this.#open(pool);
    if (isDirect) {
      for (const connection of idle.splice(0)) this.#close(pool, connection);
      while (busy.length > pool.demand) this.#close(pool, busy.pop()!);
    }
    const tooMany = isDirect ? 0 : Math.max(
      busy.length - pool.demand,
      Math.min(busy.length, lease.held - pool.closing - lease.limit),
    );
    while (pool.ending < tooMany) {
      pool.ending++;
      const long = chance.yes(this.longTransactions);
      this.after(chance.between(1, long ? 10_000 : this.transactionMs), () => {
        pool.ending--;
        this.#endTransaction(pool);
      });
    }
    this.#want(lease, Math.max(pool.demand, busy.length));
  }

  #endTransaction(pool: WorkerPool): void {
    const connection = pool.busy.shift();
    if (connection !== undefined) {
      connection.state = "idle";
      connection.idleSince = this.clock();
      pool.idle.push(connection);
    }
    this.#work(pool);
  }

  #open(pool: WorkerPool): void {
    const { lease } = pool;
    const before = lease.held;
    this.#hold(lease, 1);
    if (lease.held > lease.limit) {
      throw new Error(
        `${this.name} opens in ${pool.leaf} with room ${lease.room}: it holds ${before}, its limit is ${lease.limit}`,
      );
    }
    this.world.note(() => `${this.name} opens ${pool.leaf}, holds ${before + 1}`);
    const connection = this.#options.postgres.connect(
      pool.backends,
      pool.leaf,
      this,
      (opened, accepted) => this.run(() => this.#opened(pool, opened, accepted)),
    );
    pool.opening.push(connection);
    lease.opening = pool.opening.length;
  }

  #opened(pool: WorkerPool, connection: Connection, accepted: boolean): void {
    if (connection.state !== "opening") return;
    pool.opening.splice(pool.opening.indexOf(connection), 1);
    pool.lease.opening = pool.opening.length;
    if (accepted) {
      connection.state = "idle";
      connection.idleSince = this.clock();
      pool.idle.push(connection);
    } else {
      connection.state = "lost";
      this.#hold(pool.lease, -1);
    }
    this.#work(pool);
  }

  #close(pool: WorkerPool, connection: Connection): void {
    connection.state = "closing";
    pool.closing++;
    this.#options.postgres.close(pool.backends, connection, () =>
      this.run(() => {
        pool.closing--;
        connection.state = "lost";
        this.#hold(pool.lease, -1);
        this.world.note(() => `${this.name} closed ${pool.leaf}, holds ${pool.lease.held}`);
        this.#work(pool);
      }));
  }

  /** An administrator ends one of the connections. */
  terminateOne(): void {
    const pool = this.world.chance.pick(this.pools);
    const connection = [...pool.idle, ...pool.busy].find(({ server }) => server === "open");
    if (connection === undefined) return;
    this.#options.postgres.terminate(pool.backends, connection, () =>
      this.run(() => {
        const list = connection.state === "idle" ? pool.idle : pool.busy;
        const at = list.indexOf(connection);
        // It may be closing by now: then that end is the one that counts.
        if (at < 0) return;
        list.splice(at, 1);
        connection.state = "lost";
        this.#hold(pool.lease, -1);
        this.#work(pool);
      }));
  }

  // Clients

  #seatGuests(): void {
    if (this.#guests.length === 0) return;
    this.#expire();
    for (const guests of this.#guests) {
      while (guests.admitted > guests.demand) {
        guests.admitted--;
        for (const lease of guests.leases) this.#hold(lease, -1);
      }
      while (guests.admitted < guests.demand && guests.leases.every(({ room }) => room > 0)) {
        guests.admitted++;
        for (const lease of guests.leases) this.#hold(lease, 1);
      }
    }
    for (const lease of this.clientLeases) {
      let wanted = 0;
      for (const guests of this.#guests) if (guests.leases.includes(lease)) wanted += guests.demand;
      this.#want(lease, wanted);
    }
  }

  // Queries of groups

  /** One that runs is never taken away: what is asked back is given when it has ended. */
  #runQueries(): void {
    if (this.groups.length === 0) return;
    const { chance } = this.world;
    this.#expire();
    for (const group of this.groups) {
      const path = pathOf(group);
      while (group.running < group.demand && path.every(({ lease }) => lease.room > 0)) {
        group.running++;
        for (const each of path) {
          each.begunAt = this.clock();
          this.#hold(each.lease, 1);
        }
      }
      const tooMany = Math.max(
        group.running - group.demand,
        ...path.map(({ lease }) => Math.min(group.running, lease.held - lease.limit)),
      );
      while (group.ending < tooMany) {
        group.ending++;
        const long = chance.yes(this.longTransactions);
        this.after(chance.between(1, long ? 10_000 : this.transactionMs), () => {
          group.ending--;
          group.running--;
          for (const { lease } of path) this.#hold(lease, -1);
          this.#runQueries();
        });
      }
      group.useful = Math.max(group.demand, group.running);
    }
    for (const { lease, parent, useful } of this.groups.toReversed()) {
      this.#want(lease, Math.max(lease.held, useful));
      if (parent !== null) parent.useful += Math.min(useful, lease.granted);
    }
    this.#askForSlots();
    this.#noteRest();
  }

  /** One that lacks a slot of a group does not wait for it longer than others are not known to use all. */
  #askForSlots(): void {
    const short = new Set<WorkerGroup>();
    for (const group of this.groups) {
      if (!this.#asks || group.running >= group.demand) continue;
      const nearest = pathOf(group).find(({ lease }) => lease.held >= lease.granted);
      if (nearest !== undefined) short.add(nearest);
    }
    for (const group of this.groups) {
      const { lease, question } = group;
      if (question !== null && lease.usedUp > question.after) group.question = null;
      if (!short.has(group)) group.question = null;
      else group.question ??= { since: this.world.now, after: lease.lastReportSeq };
      lease.asks = group.question !== null;
      if (lease.asks || lease.polled) {
        lease.touch();
        this.#changed = true;
      }
    }
  }

  #noteRest(): void {
    for (const group of this.groups) {
      const { now } = this.world;
      group.restsSince = rests(group.lease) ? Math.min(group.restsSince, now) : Infinity;
    }
  }

  #hold(lease: Lease, change: number): void {
    lease.held += change;
    lease.touch();
    this.#changed = true;
  }

  #want(lease: Lease, wanted: number): void {
    if (lease.wanted === wanted) return;
    lease.wanted = wanted;
    lease.touch();
    this.#changed = true;
  }

  // What the checks ask

  /** Queries of a group that may run. Of a dead worker those go on that were begun, on backends that are left. */
  queries({ lease }: WorkerGroup): number {
    if (this.alive) return Math.max(lease.limit, lease.granted, lease.held);
    let left = 0;
    for (const { backends } of this.pools) left += backends.real;
    return Math.min(lease.held, left);
  }

  /**
   * How many slots of a leaf this worker may take without another message: what its lease allows if it is asked
   * now, or what it has. A worker that runs asks its lease before it opens, however long it was stopped before.
   */
  potential(lease: Lease, backends: Backends | null): number {
    if (!this.alive) return backends === null ? 0 : backends.real;
    const { leaseMs, auth } = this.#options;
    // With the word of PostgreSQL the charge of a silent worker follows what is open there, not what the worker
    // has not yet seen closed.
    const has = auth && backends !== null ? backends.real : lease.held;
    const silentMs = this.clock() - this.table.contactAt;
    if (!auth) return Math.max(lease.limit, lease.granted, has);
    if (silentMs <= leaseMs && !lease.waning) return Math.max(lease.limit, lease.granted, has);
    const mayHaveSlept = this.clock() - this.#expiredAt >= leaseMs;
    if (silentMs > 20 * leaseMs && (mayHaveSlept || lease.held <= lease.opening)) return has;
    return Math.max(lease.floor, has);
  }
}

/** It has a slot that it has no use for. */
export function rests({ held, wanted, granted }: Lease): boolean {
  return Math.max(held, wanted) < granted;
}

/** The group and all above it. */
function pathOf(group: WorkerGroup): WorkerGroup[] {
  return group.parent === null ? [group] : [group, ...pathOf(group.parent)];
}

function reportText(report: Report): string {
  const leaves = report.leaves.map(({ leaf, held, wanted, granted, ack, asks, busyMs }) =>
    `${leaf} h${held} w${wanted} g${granted} a${ack}${asks ? " asks" : ""}` +
    (busyMs > 0 ? ` b${busyMs}` : "")
  );
  return `#${report.seq} e${report.epoch} i${report.incarnation % 1000} [${leaves.join(", ")}]`;
}
