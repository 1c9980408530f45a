// The server connections of one (database, user) and the clients that wait for one. Strictly first
// come, first served; idle servers last in, first out, so that the ones not needed grow old.
// Invariants: an idle server that needs no test and a waiting client never exist at once after `dispatch`; a server holds
// a slot of the lease from before it connects until PostgreSQL has closed its end.

import {
  CONSOLE_DATABASE,
  type DatabaseConfig,
  minPoolSizeFor,
  reservePoolSizeFor,
  type Settings,
} from "../../../shared/config/mod.ts";
import { type Lease, poolLeaf } from "../../../shared/ledger/mod.ts";
import { latestProtocolMinor } from "../../../shared/wire/mod.ts";
import type { LeaseOwner } from "./budget.ts";
import type { ClientLogin } from "./client_login.ts";
import type { Credential } from "./credentials.ts";
import { HostChoice } from "./host_choice.ts";
import { failureOf, LoginRetry, verdictOf, withHint } from "./login_retry.ts";
import { ownServerIndex } from "./group_servers.ts";
import type { Place } from "./place.ts";
import type { Plane } from "./plane.ts";
import { RecentDemand } from "./recent_demand.ts";
import { type Refusal, refusals } from "./refusals.ts";
import { Reserve } from "./reserve.ts";
import { ServerConnection } from "./server.ts";
import { ownLimitMs } from "./server_age.ts";
import type { ServerOwner } from "./server_owner.ts";
import { ServerState } from "./server_state.ts";
import { ServerTests } from "./server_tests.ts";
import { StatementTable } from "./statements.ts";
import { Counter, PoolStats } from "./stats.ts";
import { noCounts } from "./texts.ts";
import { Welcome } from "./welcome.ts";

/** After some were taken for others: how long the pool keeps no more than it needs. */
const coldMs = 30_000;
/** A server that refuses the protocol's version is not asked for it again so soon. */
const refusedVersionMs = 300_000;
/** A host that has not taken a connection for so long is passed over, where there are others. */
const stalledMs = 2000;

/** Who may wait for a server in a pool's queue: a client, or a look-up of one (user_lookup.ts). */
export interface Waiter {
  /** Whose query_wait_timeout holds. */
  readonly user: string;
  /** Of a client that is not logged in yet. */
  readonly login: ClientLogin | null;
  /** Its place in the resource groups; null: it has none. */
  readonly place: Place | null;
  // The queue's own. A client may be queued for room in its group instead, see admission.ts.
  queued: boolean;
  waitingSince: number;
  previousWaiter: Waiter | null;
  nextWaiter: Waiter | null;
  /** A server for it, which is not linked yet. */
  onServer(server: ServerConnection): void;
  /** There is none: it is to leave the queue. */
  fail(refusal: Refusal): void;
}

/** Who pays for servers of a pool: it does, or its reserve. */
export interface SlotHolder extends ServerOwner {
  /** Servers that it pays for and that are not closed on this side. */
  readonly size: number;
  /** A server was opened for it. */
  opened(server: ServerConnection): void;
}

/** What servers of a pool are logged in with. */
export interface PoolLogin {
  /** null: what the client proved to have, or nothing. */
  readonly password: string | null;
  readonly credential: Credential | null;
}

export class Pool implements LeaseOwner, SlotHolder {
  readonly plane: Plane;
  database: DatabaseConfig;
  /** The user of the server connections: the database's own, else the clients'. */
  readonly user: string;
  /** What the pooler can prove to PostgreSQL for that user: a password, or what the client proved. */
  password: string | null;
  credential: Credential | null;
  startupParameters: readonly (readonly [string, string])[];
  /** The slots for its servers; `held` counts those that are closing as well. */
  readonly lease: Lease;
  readonly stats = new PoolStats();
  readonly counters = this.stats.totals;
  readonly statements: StatementTable;
  /** What its clients used that pooling does not keep, and what they are told of it. */
  readonly features = noCounts();
  featureWarnings: Settings["warnSessionFeatures"];
  /** What its servers have said and taken. */
  readonly welcome: Welcome;
  readonly servers = new Set<ServerConnection>();
  readonly idle: ServerConnection[] = [];
  /** Clients that are logged in here, waiting ones included. */
  clients = 0;

  /** The probability that a new transaction is refused; see overload.ts. */
  shedding: number;
  /** Operators have paused it: nobody is given a server. */
  held = false;
  waiting = 0;
  #firstWaiter: Waiter | null = null;
  #lastWaiter: Waiter | null = null;
  #connecting = 0;
  #dispatching = false;
  readonly #retry = new LoginRetry();
  /** Servers that run connect_query, with what is told of them if they don't come through. */
  readonly #priming = new Map<ServerConnection, Refusal>();
  readonly #tests: ServerTests;
  /** Set once it was needed. */
  #reserve: Reserve | null = null;
  /** No servers are opened before that for nobody. */
  #coldUntil = 0;
  readonly hosts: HostChoice;
  /** Logins to a host that has failed, while others have not: no waiter counts on them. */
  readonly #probes = new Set<ServerConnection>();
  readonly #recent = new RecentDemand();
  /** Until when servers that have not paid off yet are kept for those that wait. */
  readonly #worthUntil = new WeakMap<ServerConnection, number>();
  #versionRefusedUntil = 0;

  constructor(
    plane: Plane,
    database: DatabaseConfig,
    user: string,
    { password, credential }: PoolLogin,
  ) {
    this.plane = plane;
    this.#tests = new ServerTests(plane);
    this.welcome = new Welcome(plane);
    this.statements = new StatementTable(plane.statementMemory);
    this.database = database;
    this.user = user;
    this.password = password;
    this.credential = credential;
    this.featureWarnings = plane.settings.warnSessionFeatures;
    this.startupParameters = [];
    this.#configure();
    this.held = plane.operator.holds(database.name);
    this.shedding = plane.overload.probabilityOf(database.name);
    this.lease = plane.budget.lease(poolLeaf(database.name, user), this);
    this.hosts = new HostChoice(() => ({
      hosts: this.database.hosts,
      mode: this.database.loadBalanceHosts,
      longestMs: plane.settings.serverLoginRetryMs,
      now: plane.reactor.now,
    }));
  }

  #configure(): void {
    const { database, plane } = this;
    this.featureWarnings = database.warnSessionFeatures ?? plane.settings.warnSessionFeatures;
    this.startupParameters = Object.entries(database.startupParameters);
  }

  // --- changes while it runs

  /** The configuration has changed. */
  renew(database: DatabaseConfig, { password, credential }: PoolLogin): void {
    this.database = database;
    this.password = password;
    this.credential = credential;
    this.#configure();
  }

  /** Its servers are to be connections to something else: what is known of the former ones is void. */
  onOtherServer(): void {
    this.hosts.forget();
    this.#retry.succeed();
    this.#versionRefusedUntil = 0;
    // Those who log in are greeted with what one of the new servers says.
    this.welcome.reported = null;
    this.outdate("connect string changed");
    if (this.waiting > 0) this.plane.soon(this);
  }

  /** Nobody gets a server until `resume`: those that are free are closed now, the others when they come free. */
  hold(): void {
    this.held = true;
    for (const server of [...this.servers]) {
      if (server.login !== null || server.state === ServerState.idle) server.close("pause mode");
    }
  }

  /** `wasPaused`: the pooler as a whole was; who has waited since is not to blame for it. */
  resume(wasPaused: boolean): void {
    this.held = false;
    const { now } = this.plane.reactor;
    for (let waiter = this.#firstWaiter; waiter !== null; waiter = waiter.nextWaiter) {
      if (wasPaused) waiter.waitingSince = now;
    }
    if (this.waiting > 0) this.plane.soon(this);
  }

  /** Closes all servers now, whatever they do. */
  kill(): void {
    for (const server of [...this.servers]) {
      if (server.requests.count > 0) this.plane.cancels.abandon(server);
      server.close("admin forced disconnect");
    }
  }

  /** Closes all servers: those in use when they come free. */
  outdate(reason: string, isMeant: (server: ServerConnection) => boolean = () => true): void {
    for (const server of [...this.servers].filter(isMeant)) {
      const isFree = server.login !== null || server.state === ServerState.idle;
      if (isFree) server.close(reason);
      else server.outdate();
    }
  }

  /** What a client of its user has proved, newer than what there was: the secret may have been changed. */
  adopt(credential: Credential): void {
    const known = this.credential;
    if (known === credential) return;
    if (known !== null && known.identity === credential.identity) {
      if (known.scramKeys !== null) return;
      known.learn(credential);
    } else {
      this.credential = credential;
      this.password = credential.password;
    }
    // What has failed without it may succeed now.
    this.#retry.succeed();
  }

  get firstWaiter(): Waiter | null {
    return this.#firstWaiter;
  }

  // --- clients

  /**
   * An idle server for the client, not linked yet; or null, and the client is now the last in the
   * queue (or was refused: see its state).
   */
  acquire(client: Waiter): ServerConnection | null {
    if (this.#firstWaiter === null) {
      const server = this.#takeIdle(client);
      if (server !== undefined) return server;
    }
    const refusal = this.refusal();
    if (refusal !== null) {
      client.fail(refusal);
      return null;
    }
    this.enqueue(client);
    this.grow();
    return null;
  }

  /** It has servers that come free some day: who waits for one waits for other clients. */
  get serves(): boolean {
    return !this.held && this.servers.size > this.#connecting;
  }

  /** Why nobody should queue: logins to PostgreSQL have been failing, and no server is left. */
  refusal(): Refusal | null {
    if (this.plane.operator.releases) return refusals.serverShuttingDown;
    if (this.held || this.servers.size > this.#connecting) return null;
    const { reactor, settings } = this.plane;
    return this.#retry.refusal(reactor.now, settings.serverLoginRetryMs);
  }

  enqueue(client: Waiter): void {
    client.waitingSince = this.plane.reactor.now;
    client.previousWaiter = this.#lastWaiter;
    client.nextWaiter = null;
    if (this.#lastWaiter !== null) this.#lastWaiter.nextWaiter = client;
    else this.#firstWaiter = client;
    this.#lastWaiter = client;
    client.queued = true;
    this.waiting++;
  }

  /** Takes a client out of the queue; no effect if it is not in it. */
  dequeue(client: Waiter): void {
    if (!client.queued) return;
    if (client.previousWaiter !== null) client.previousWaiter.nextWaiter = client.nextWaiter;
    else this.#firstWaiter = client.nextWaiter;
    if (client.nextWaiter !== null) client.nextWaiter.previousWaiter = client.previousWaiter;
    else this.#lastWaiter = client.previousWaiter;
    client.previousWaiter = null;
    client.nextWaiter = null;
    client.queued = false;
    this.waiting--;
    this.counters[Counter.waitTime]! += this.plane.reactor.now - client.waitingSince;
  }

  /** An idle server that may be used as it is. */
  #takeIdle(waiter: Waiter): ServerConnection | undefined {
    const { idle } = this;
    if (this.plane.admission.prefersOwnServers) {
      const own = ownServerIndex(idle, waiter.place === null ? null : waiter.place.group);
      if (own >= 0 && !this.#tests.isDue(idle[own] as ServerConnection)) {
        return idle.splice(own, 1)[0];
      }
    }
    if (!this.plane.settings.serverRoundRobin) {
      // The others have been idle for longer.
      const latest = idle.at(-1);
      return latest === undefined || this.#tests.isDue(latest) ? undefined : idle.pop();
    }
    const index = idle.findIndex((server) => !this.#tests.isDue(server));
    return index < 0 ? undefined : idle.splice(index, 1)[0];
  }

  /** Idle servers that are to be tested before they are used. */
  get untested(): number {
    return this.idle.filter((server) => this.#tests.isDue(server)).length;
  }

  /** Tests idle servers for clients that wait: only as many as they need, while that seems enough. */
  #test(): void {
    while (
      this.idle.length > 0 &&
      (this.#tests.hopeful < this.waiting || this.#tests.areSuspicious)
    ) {
      const server = this.plane.settings.serverRoundRobin ? this.idle.shift() : this.idle.pop();
      this.#tests.start(server as ServerConnection);
    }
  }

  /** Clients that wait, without those that will have a server in a moment. */
  get #unserved(): number {
    return Math.max(0, this.waiting - this.#tests.hopeful);
  }

  /** Gives idle servers to the oldest waiters, and opens more for those that are left. */
  dispatch(): void {
    if (this.#dispatching) return;
    this.#dispatching = true;
    for (;;) {
      const client = this.#firstWaiter;
      if (client === null) break;
      if (client.login !== null) {
        // It is greeted with what a server has reported, and needs one only to try new values.
        if (this.welcome.reported === null) break;
        if (client.login.isJudged()) {
          this.dequeue(client);
          client.login.greet();
          continue;
        }
      }
      const server = this.#takeIdle(client);
      if (server === undefined) break;
      if (!this.plane.admission.catchesUp(client)) {
        this.idle.push(server);
        continue;
      }
      this.dequeue(client);
      client.onServer(server);
    }
    this.#dispatching = false;
    if (this.waiting > 0) this.grow();
  }

  /** Opens server connections for the clients that wait: all at once, as far as slots go. */
  grow(): void {
    this.#test();
    this.#openUpTo(this.#unserved, this.#demand());
  }

  /** Lets clients that have waited for reserve_pool_timeout have servers beyond the pool's size. */
  #useReserve(now: number): void {
    const { config, settings } = this.plane;
    let late = 0;
    if (settings.reservePoolTimeoutMs > 0 && this.waiting > 0) {
      let waiter = this.#firstWaiter;
      while (waiter !== null && now - waiter.waitingSince >= settings.reservePoolTimeoutMs) {
        late++;
        waiter = waiter.nextWaiter;
      }
    }
    if (late > 0 && reservePoolSizeFor(config, this.database.name, this.user) > 0) {
      this.#reserve ??= new Reserve(this);
    }
    this.#reserve?.sweep(now, late);
  }

  /** Opens what is missing of min_pool_size, all at once; of failing servers one, to see whether they do. */
  #warm(now: number): void {
    const { lease, plane } = this;
    const missing = this.minimum - this.servers.size;
    if (missing <= 0 || now < this.#coldUntil || plane.stopping) return;
    const demand = this.servers.size + missing;
    // Asked for, and not to be had: others need it more.
    if (lease.room === 0 && lease.wanted >= demand && lease.answered && !lease.pending) {
      this.#coldUntil = now + coldMs;
      return;
    }
    this.#openUpTo(missing + this.#underWay, demand);
  }

  /** How many servers are kept, whether they are needed or not. */
  get minimum(): number {
    const { config, seat } = this.plane;
    const minimum = minPoolSizeFor(config, this.database, this.user);
    if (minimum === 0 || (this.clients === 0 && !this.#isStanding)) return 0;
    // Each worker has a part of what the host keeps.
    return Math.ceil(minimum / seat.count);
  }

  /** Whether it is kept up without any client: its user is the database's, and it can log in by itself. */
  get #isStanding(): boolean {
    const { name, user } = this.database;
    if (this.user !== user || !this.plane.config.databases.has(name)) return false;
    const { password, credential } = this;
    return password !== null || credential === null || !credential.hasScram ||
      credential.scramKeys !== null;
  }

  /** Opens servers until so many are on their way; `demand` is what the pool wants if that lacks slots. */
  #openUpTo(wanted: number, demand: number): void {
    const count = Math.min(wanted, this.#allowed) - this.#underWay;
    if (count <= 0) return;
    this.plane.budget.expire();
    if (count > this.lease.room) {
      this.#want(demand);
      this.plane.budget.ask();
    }
    this.openFor(this, count);
  }

  /** Opens so many more servers that `holder` pays for, as far as its lease and all else allow. */
  openFor(holder: SlotHolder, count: number): void {
    if (this.held) return;
    const { lease } = holder;
    let left = count;
    const { database, plane } = this;
    const gate = plane.loginGates.of(database.hosts, database.port);
    while (left > 0 && this.#allowed > this.#underWay && lease.room > 0 && this.#hasDescriptors) {
      if (!gate.mayEnter(this)) return;
      if (!this.#open(holder)) left--;
    }
  }

  get #allowed(): number {
    return this.#retry.allowed(this.plane.reactor.now);
  }

  /** Logins that who waits may count on. */
  get #underWay(): number {
    return this.#connecting - this.#probes.size;
  }

  /** A pool without any server gets one even of the last descriptors. */
  get #hasDescriptors(): boolean {
    return this.servers.size === 0 || this.plane.serverRoom > 0;
  }

  /** Connections that PostgreSQL has, or still has. */
  get backends(): number {
    return this.lease.held + (this.#reserve?.lease.held ?? 0);
  }

  /** Servers that clients which wait will have in a moment, as far as one can tell. */
  get coming(): number {
    return this.#underWay + this.#tests.hopeful;
  }

  /** The pool has a slot of its own for a server that the reserve paid for. */
  takeOver(server: ServerConnection): void {
    for (const [lease, change] of [[server.owner.lease, -1], [this.lease, 1]] as const) {
      lease.held += change;
      lease.touch();
    }
    server.owner = this;
  }

  get size(): number {
    return this.servers.size - (this.#reserve?.size ?? 0);
  }

  opened(): void {}

  // --- slots

  onLease(): void {
    this.shed(this);
    if (this.waiting > 0) this.plane.soon(this);
  }

  measure(now: number): void {
    this.shed(this);
    this.#recent.next();
    this.#want(this.#demand());
    const oldest = this.idle[0];
    this.lease.idleMs = oldest === undefined ? 0 : Math.max(1, Math.round(now - oldest.idleSince));
  }

  /** Servers that are in use or on their way, and clients that wait for more. */
  #demand(): number {
    return this.servers.size - this.idle.length - this.#connecting +
      Math.max(this.#unserved, this.#connecting);
  }

  #want(demand: number): void {
    this.lease.want(this.#recent.note(demand));
  }

  /**
   * Gives up idle servers beyond a lease, the longest idle first; and without contact those that
   * PostgreSQL may not show yet, since the budget may go by what it shows.
   */
  shed(holder: SlotHolder): void {
    const { lease } = holder;
    if (holder.size <= lease.limit) return;
    for (const server of [...this.idle]) {
      if (holder.size <= lease.limit) return;
      if (server.owner !== holder) continue;
      // Others need it more.
      this.#coldUntil = this.plane.reactor.now + coldMs;
      server.close("evicted");
    }
    if (!this.plane.budget.isLost) return;
    for (const server of [...this.servers]) {
      if (holder.size <= lease.limit) return;
      if (server.owner === holder) server.login?.loseSlot();
    }
  }

  /** It is not used any more. */
  retire(): void {
    const { budget } = this.plane;
    budget.retire(this.lease);
    if (this.#reserve !== null) budget.retire(this.#reserve.lease);
  }

  #count({ lease }: ServerOwner, connecting: 1 | -1): void {
    this.#connecting += connecting;
    lease.opening += connecting;
  }

  /** Its login is over, one way or the other. */
  #uncount(server: ServerConnection): void {
    this.#count(server.owner, -1);
    this.#probes.delete(server);
  }

  /** PostgreSQL has closed its end of a connection, or there was none. */
  onSlotFree(): void {
    this.lease.held--;
    this.lease.touch();
    this.plane.budget.ask();
    if (this.waiting > 0) this.plane.soon(this);
  }

  // --- servers

  /** A new server finished its login. */
  onReady(server: ServerConnection, parameters: ReadonlyMap<string, string>): void {
    this.welcome.onLogin(server.session, parameters);
    this.plane.logNewServer(server);
    const { connectQuery } = this.database;
    if (connectQuery === null) {
      this.#onOpened(server);
      server.toIdle();
      return;
    }
    const message = "exec_on_connect query failed";
    this.#priming.set(server, { code: "08006", message });
    server.upkeep.prime(connectQuery, (failure) => {
      this.#priming.set(server, failureOf(failure, `${message}: ${failure.message}`));
    });
  }

  #onOpened(server: ServerConnection): void {
    this.#retry.succeed();
    this.#uncount(server);
    const { now } = this.plane.reactor;
    this.#worthUntil.set(server, now + (now - server.connectedAt));
  }

  /** The minor version of protocol 3 that its servers are asked for. */
  get protocolMinor(): number {
    return this.plane.reactor.now < this.#versionRefusedUntil ? 0 : latestProtocolMinor;
  }

  /** A server does not negotiate about versions. */
  onVersionRefused(): void {
    this.#versionRefusedUntil = this.plane.reactor.now + refusedVersionMs;
    this.plane.logPool(this, "the server refuses newer protocols: it is asked for 3.0");
  }

  onIdle(server: ServerConnection): void {
    if (this.#priming.delete(server)) this.#onOpened(server);
    this.#tests.onIdle(server);
    if (server.closeNeeded) {
      server.close("close_needed");
      return;
    }
    if (this.held) {
      server.close("pause mode");
      return;
    }
    // A lifetime of 0 means one use, so not before the first.
    const used = server.linkedAt > 0;
    if (used && this.plane.reactor.now - server.connectedAt >= this.#own(server, this.lifetimeMs)) {
      server.close("server lifetime over");
      return;
    }
    const holder = server.owner as SlotHolder;
    if (holder.size > holder.lease.limit && !this.#isWorthKeeping(server)) {
      server.close("too many servers in the pool");
      return;
    }
    this.idle.push(server);
    this.dispatch();
  }

  /**
   * Clients wait for it, and it has served for less time than it took to open: where logins are slow, and slots change
   * hands before they are done, all would be opened for nobody. Not without contact: the budget may not know of it.
   */
  #isWorthKeeping(server: ServerConnection): boolean {
    const { budget, reactor } = this.plane;
    if (this.waiting === 0 || reactor.now >= (this.#worthUntil.get(server) ?? 0)) return false;
    return !server.owner.lease.waning && !budget.isLost;
  }

  onClosed(server: ServerConnection): void {
    if (server.login !== null) this.#uncount(server);
    this.servers.delete(server);
    this.#tests.onClosed(server);
    const index = this.idle.indexOf(server);
    if (index >= 0) this.idle.splice(index, 1);
    const failure = this.#priming.get(server);
    if (failure !== undefined) {
      this.#priming.delete(server);
      this.#onFailed(server, failure, true);
    }
    if (this.waiting > 0) this.plane.soon(this);
  }

  /** A connection attempt or a login failed; its connection is closed already. */
  onLoginFailed(server: ServerConnection, failure: Refusal, isLast: boolean): void {
    this.#onFailed(server, failure, isLast || verdictOf(failure.code) === "refused");
  }

  /** `isAll`: other hosts would not do either. */
  #onFailed(server: ServerConnection, failure: Refusal, isAll: boolean): void {
    this.#uncount(server);
    const { reactor, settings } = this.plane;
    if (isAll) this.#retry.fail(failure, reactor.now, settings.serverLoginRetryMs);
    else this.plane.soon(this);
    this.plane.logPool(this, `connection to server failed: ${failure.message}`);
    // PostgreSQL's own refusal will be the same for all who wait, if no server is there to serve
    // them; not so while it cannot be reached or is starting up: then they stay in the queue.
    if (verdictOf(failure.code) === "refused" && this.servers.size === this.#connecting) {
      this.failWaiters(withHint(failure));
    }
  }

  failWaiters(refusal: Refusal): void {
    for (;;) {
      const client = this.#firstWaiter;
      if (client === null) return;
      client.fail(refusal);
    }
  }

  /** Why a client has waited in vain: all servers are busy, or none can be had. */
  queueRefusal(): Refusal {
    const { failure } = this.#retry;
    const { budget } = this.plane;
    if (failure !== null) {
      return { ...refusals.queryWaitTimeout, hint: failingHint(failure) };
    }
    return budget.isSilent ? refusals.noCoordinator : refusals.queryWaitTimeout;
  }

  /** Why a login that waits here has taken too long, if that is for want of the server; it has proved who it is. */
  get lateLogin(): Refusal | null {
    if (this.serves) return null;
    const { failure } = this.#retry;
    const refusal = refusals.loginServerDown;
    return failure === null ? refusal : { ...refusal, hint: failingHint(failure) };
  }

  get lifetimeMs(): number {
    return this.database.serverLifetimeMs ?? this.plane.settings.serverLifetimeMs;
  }

  waitTimeoutMs(client: { readonly user: string }): number {
    return this.plane.config.users.get(client.user)?.queryWaitTimeoutMs ??
      this.database.queryWaitTimeoutMs ?? this.plane.settings.queryWaitTimeoutMs;
  }

  /** Called ten times a second; `thorough`: servers are looked at too, once a second. */
  sweep(now: number, thorough: boolean): void {
    if (this.waiting > 0) this.grow();
    else this.#warm(now);
    this.#useReserve(now);
    if (thorough) this.#sweepServers(now);
  }

  #sweepServers(now: number): void {
    const { serverIdleTimeoutMs } = this.plane.settings;
    const minimum = this.minimum;
    for (const server of [...this.servers]) {
      if (server.login !== null) {
        server.login.checkTime(now);
        if (server.isDialing && now - server.connectedAt >= stalledMs) this.#passOver(server);
      } else if (server.state === ServerState.idle) {
        const mayEnd = server.linkedAt > 0 || this.lifetimeMs > 0;
        if (mayEnd && now - server.connectedAt >= this.#own(server, this.lifetimeMs)) {
          server.close("server lifetime over");
        } else if (
          serverIdleTimeoutMs > 0 && this.servers.size > minimum &&
          now - server.idleSince >= this.#own(server, serverIdleTimeoutMs)
        ) {
          server.close("server idle timeout");
        }
      }
    }
  }

  #own({ id }: ServerConnection, limitMs: number): number {
    return ownLimitMs(limitMs, id, this.plane.seat.workerId);
  }

  /** Its host does not answer: who waits does not wait for it, if there are others. */
  #passOver(server: ServerConnection): void {
    if (server.isClosed || this.#probes.has(server) || this.database.hosts.length === 1) return;
    if (this.lease.room === 0) {
      server.login?.fail("08001", "connect timeout");
      return;
    }
    this.hosts.fail(server.host);
    this.#probes.add(server);
    server.login?.leaveGate();
    if (this.waiting > 0) this.plane.soon(this);
  }

  /** True if it is a probe, on which who waits should not count. */
  #open(holder: SlotHolder): boolean {
    const { host, isProbe } = this.hosts.take(holder.lease.room > 1);
    const server = new ServerConnection(this.plane, this, holder, this.plane.nextId());
    this.servers.add(server);
    holder.opened(server);
    this.#count(holder, 1);
    if (isProbe) this.#probes.add(server);
    server.connect(host, this.database.port);
    return isProbe;
  }
}

function failingHint(failure: Refusal): string {
  return `Connections to the server are failing: ${failure.message}`;
}

/** The console is no pool. */
export function isConsole(database: string): boolean {
  return database === CONSOLE_DATABASE;
}
