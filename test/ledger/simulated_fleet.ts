// A fleet whose clients never rest, for the question how long each of its pools waits: a real Ledger, a real
// LeaseTable for each worker, and around them pools as the data plane has them, on clients that run one transaction
// after the other. Virtual time; a run is a function of its seed.
// It does not judge; it counts what was served, and the longest time that each pool has waited for it.

import { type LeafRules, type Lease, LeaseTable, Ledger } from "../../shared/ledger/mod.ts";
import { CALM, Node, type Weather, World } from "./simulated_world.ts";

/** Clients of one pool. */
export interface Crowd {
  readonly leaf: string;
  /** How many each worker has. */
  readonly clients: readonly number[];
  /** If not that of all. */
  readonly transactionMs?: readonly [number, number];
  /** When they come, if not at once. */
  readonly atMs?: number;
}

export interface FleetOptions {
  readonly seed: number;
  readonly workers: number;
  readonly crowds: readonly Crowd[];
  readonly rules: LeafRules;
  /** How long a login to PostgreSQL takes, the end of a connection, a transaction: from, to. */
  readonly loginMs: readonly [number, number];
  readonly closeMs: readonly [number, number];
  readonly transactionMs: readonly [number, number];
  /** Between a client's transactions. */
  readonly thinkMs?: readonly [number, number];
  readonly weather?: Weather;
  /** How long it takes to save a charge. */
  readonly saveMs?: readonly [number, number];
  /** Processes are stopped now and then: the mean time between two such, and for how long. */
  readonly stops?: { readonly everyMs: number; readonly lengthMs: readonly [number, number] };
}

const leaseMs = 10_000;
const silentMs = 3000;
const gatherMs = 10;
const tickMs = 250;
const sweepMs = 100;
const burst = 4;
const paceMs = 50;

/** What a pool of one worker has come to. */
export interface Served {
  readonly worker: number;
  readonly leaf: string;
  transactions: number;
  logins: number;
  /** Logins that no client had anything of. */
  wasted: number;
  /** The longest time in which clients waited and none was served. */
  longestMs: number;
}

type State = "login" | "busy" | "idle" | "closing";

interface Server {
  state: State;
  used: boolean;
  idleSince: number;
  readonly openedAt: number;
  readyAt: number;
}

class Pool {
  readonly lease: Lease;
  readonly served: Served;
  readonly servers: Server[] = [];
  readonly #worker: Worker;
  readonly #clients: number;
  readonly #transactionMs: readonly [number, number];
  readonly #atMs: number;
  #waiting = 0;
  #waitsSince: number;
  readonly #recent = [0, 0, 0];
  #at = 0;

  constructor(worker: Worker, { leaf, clients, transactionMs, atMs = 0 }: Crowd) {
    this.#worker = worker;
    this.#clients = clients[worker.id - 1]!;
    this.#transactionMs = transactionMs ?? worker.options.transactionMs;
    this.#atMs = atMs;
    this.lease = worker.table.lease(leaf);
    this.served = {
      worker: worker.id,
      leaf,
      transactions: 0,
      logins: 0,
      wasted: 0,
      longestMs: 0,
    };
    this.#waitsSince = worker.world.now;
  }

  start(): void {
    this.#worker.after(this.#atMs, () => {
      for (let n = 0; n < this.#clients; n++) this.#think();
    });
  }

  get #size(): number {
    return this.#count((state) => state !== "closing");
  }

  #count(is: (state: State) => boolean): number {
    return this.servers.filter(({ state }) => is(state)).length;
  }

  /** As in the data plane: the most of the last sweeps. */
  #want(): void {
    const connecting = this.#count((state) => state === "login");
    const busy = this.#count((state) => state === "busy");
    const demand = busy + Math.max(this.#waiting, connecting);
    this.#recent[this.#at] = Math.max(this.#recent[this.#at]!, demand);
    this.lease.want(Math.max(...this.#recent));
  }

  sweep(): void {
    if (this.#waiting > 0) this.grow();
    this.shed();
    this.#at = (this.#at + 1) % this.#recent.length;
    this.#recent[this.#at] = 0;
    this.#want();
    const idle = this.servers.filter(({ state }) => state === "idle");
    const since = Math.min(...idle.map(({ idleSince }) => idleSince));
    this.lease.idleMs = idle.length === 0
      ? 0
      : Math.max(1, Math.round(this.#worker.clock() - since));
  }

  onLease(): void {
    this.shed();
    if (this.#waiting > 0) this.grow();
  }

  shed(): void {
    for (const server of this.servers) {
      if (this.#size <= this.lease.limit) return;
      if (server.state === "idle") this.#close(server);
    }
  }

  grow(): void {
    const count = this.#waiting - this.#count((state) => state === "login");
    if (count <= 0) return;
    this.#worker.expire();
    if (count > this.lease.room) {
      this.#want();
      this.#worker.ask();
    }
    for (let left = count; left > 0 && this.lease.room > 0; left--) this.#open();
  }

  #open(): void {
    const server: Server = {
      state: "login",
      used: false,
      idleSince: 0,
      openedAt: this.#worker.clock(),
      readyAt: 0,
    };
    this.servers.push(server);
    this.served.logins++;
    this.lease.held++;
    this.lease.opening++;
    this.lease.touch();
    this.#worker.afterBetween(this.#worker.options.loginMs, () => {
      this.lease.opening--;
      server.readyAt = this.#worker.clock();
      this.#onIdle(server);
    });
  }

  #onIdle(server: Server): void {
    if (this.#size > this.lease.limit && !this.#isNew(server)) return this.#close(server);
    server.state = "idle";
    server.idleSince = this.#worker.clock();
    this.#dispatch();
    if (this.#waiting > 0) this.grow();
  }

  /** It has not been of use for as long as its login took. */
  #isNew({ openedAt, readyAt }: Server): boolean {
    return this.#waiting > 0 && this.#worker.clock() - readyAt < readyAt - openedAt;
  }

  #dispatch(): void {
    while (this.#waiting > 0) {
      const server = this.servers.findLast(({ state }) => state === "idle");
      if (server === undefined) return;
      this.#waiting--;
      server.state = "busy";
      server.used = true;
      this.#serve();
      this.#worker.afterBetween(this.#transactionMs, () => {
        this.served.transactions++;
        this.#think();
        this.#onIdle(server);
      });
    }
  }

  #serve(): void {
    this.note();
    this.#waitsSince = this.#worker.world.now;
  }

  /** Takes the present wait into account. */
  note(): void {
    const waitedMs = this.#worker.world.now - this.#waitsSince;
    this.served.longestMs = Math.max(this.served.longestMs, waitedMs);
  }

  #think(): void {
    this.#worker.afterBetween(this.#worker.options.thinkMs ?? [0.1, 1], () => {
      if (this.#waiting === 0) {
        this.#waitsSince = this.#worker.world.now;
      }
      this.#waiting++;
      this.#dispatch();
      if (this.#waiting > 0) this.grow();
    });
  }

  #close(server: Server): void {
    server.state = "closing";
    if (!server.used) this.served.wasted++;
    this.#worker.afterBetween(this.#worker.options.closeMs, () => {
      this.servers.splice(this.servers.indexOf(server), 1);
      this.lease.held--;
      this.lease.touch();
      this.#worker.ask();
      if (this.#waiting > 0) this.grow();
    });
  }
}

class Worker extends Node {
  readonly id: number;
  readonly options: FleetOptions;
  readonly table: LeaseTable;
  readonly pools: Pool[];
  readonly #byLeaf = new Map<string, Pool>();
  #tokens = burst;
  #tokensAt = 0;
  #refreshedAt = -Infinity;
  #paced = false;
  #asked = false;

  constructor(world: World, id: number, options: FleetOptions) {
    super(world, `w${id}`, true);
    this.id = id;
    this.options = options;
    const { rules } = options;
    this.table = new LeaseTable({ worker: id, incarnation: 1, leaseMs, rules });
    this.pools = options.crowds.filter(({ clients }) => (clients[id - 1] ?? 0) > 0)
      .map((crowd) => new Pool(this, crowd));
    for (const pool of this.pools) this.#byLeaf.set(pool.lease.leaf, pool);
  }

  start(): void {
    for (const pool of this.pools) pool.start();
    this.after(this.world.chance.between(0, sweepMs), () => this.#sweep());
  }

  afterBetween([from, to]: readonly [number, number], action: () => void): void {
    this.after(this.world.chance.between(from, to), action);
  }

  expire(): void {
    this.table.expire(this.clock());
  }

  /** A report after what is done now. */
  ask(): void {
    if (this.#asked) return;
    this.#asked = true;
    this.after(0, () => {
      this.#asked = false;
      this.#report();
    });
  }

  onGrant(grant: Parameters<LeaseTable["onGrant"]>[0]): void {
    for (const { leaf } of this.table.onGrant(grant, this.clock())) {
      this.#byLeaf.get(leaf)?.onLease();
    }
  }

  onLeader(epoch: number): void {
    if (this.table.onLeader(epoch, this.clock())) {
      this.#refreshedAt = -Infinity;
      this.ask();
    }
  }

  #sweep(): void {
    this.expire();
    for (const pool of this.pools) pool.sweep();
    this.#report();
    this.after(sweepMs, () => this.#sweep());
  }

  #report(): void {
    const now = this.clock();
    const more = Math.floor((now - this.#tokensAt) / paceMs);
    if (more > 0) {
      this.#tokens = Math.min(burst, this.#tokens + more);
      this.#tokensAt = this.#tokens === burst ? now : this.#tokensAt + more * paceMs;
    }
    if (this.#tokens === 0) {
      if (this.#paced) return;
      this.#paced = true;
      this.after(paceMs, () => {
        this.#paced = false;
        this.#report();
      });
      return;
    }
    const full = now - this.#refreshedAt >= 1000;
    if (full) this.#refreshedAt = now;
    const reports = this.table.reports(now, full);
    if (reports.length === 0) return;
    this.#tokens--;
    for (const report of reports) {
      const sent = { ...report, leaves: report.leaves.map((leaf) => ({ ...leaf })) };
      this.world.send(
        this,
        "leader",
        () => "report",
        (leader) => (leader as Leader).onReport(sent),
      );
    }
  }
}

class Leader extends Node {
  readonly #ledger: Ledger;
  readonly #options: FleetOptions;
  /** When what was handed out for a worker is saved: nothing of it is sent before. */
  readonly #savedAt = new Map<number, number>();
  #soon = false;

  constructor(world: World, options: FleetOptions) {
    super(world, "leader", true);
    this.#options = options;
    const { rules } = options;
    this.#ledger = new Ledger({ epoch: 1, rules, leaseMs, silentMs, now: this.clock() });
  }

  start(): void {
    this.#announce();
    this.#tick();
  }

  onReport(report: Parameters<Ledger["report"]>[0]): void {
    this.#ledger.report(report, this.clock());
    if (this.#soon) return;
    this.#soon = true;
    this.after(gatherMs, () => {
      this.#soon = false;
      this.#decide();
    });
  }

  #announce(): void {
    for (let id = 1; id <= this.#options.workers; id++) {
      this.world.send(this, `w${id}`, () => "leader", (worker) => (worker as Worker).onLeader(1));
    }
    this.after(1000, () => this.#announce());
  }

  #tick(): void {
    this.#decide();
    this.after(tickMs, () => this.#tick());
  }

  #decide(): void {
    const { world } = this;
    const decidedAt = this.clock();
    const [from, to] = this.#options.saveMs ?? [1, 3];
    for (const { worker, grant, save } of this.#ledger.decide(decidedAt)) {
      const saved = save === null ? world.now : world.now + world.chance.between(from, to);
      const at = Math.max(saved, this.#savedAt.get(worker) ?? 0);
      this.#savedAt.set(worker, at);
      this.after(at - world.now, () => {
        if (this.clock() - decidedAt >= silentMs) return;
        world.send(this, `w${worker}`, () => "grant", (to) => (to as Worker).onGrant(grant));
      });
    }
    this.#ledger.unsaved(decidedAt);
  }
}

/** Runs a fleet for so long, and returns what each pool of each worker has come to after `warmMs`. */
export function runFleet(options: FleetOptions, lengthMs: number): Served[] {
  const world = new World(options.seed);
  world.weather = options.weather ?? CALM;
  const leader = new Leader(world, options);
  const workers = Array.from(
    { length: options.workers },
    (_, at) => new Worker(world, at + 1, options),
  );
  for (const node of [leader, ...workers]) node.start();
  const { stops } = options;
  const stop = () => {
    const node = world.chance.pick([leader, ...workers]);
    if (!node.stopped) node.stop(world.chance.between(...stops!.lengthMs));
    world.schedule(world.chance.exponential(stops!.everyMs), stop);
  };
  if (stops !== undefined) world.schedule(stops.everyMs, stop);
  while (world.step(lengthMs));
  return workers.flatMap(({ pools }) =>
    pools.map((pool) => {
      pool.note();
      return pool.served;
    })
  );
}
