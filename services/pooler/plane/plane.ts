// The data plane of one worker: its reactor, listeners, clients and pools. It composes; the relays are
// in client.ts and server.ts. It never awaits anything and never asks the bus: what takes time is
// asked of the control thread, and the answer comes as an event.

import { randomFillSync } from "node:crypto";
import {
  type Config,
  type DatabaseConfig,
  minPoolSizeFor,
  type Settings,
} from "../../../shared/config/mod.ts";
import type { ShutdownMode } from "../../../shared/console/mod.ts";
import {
  clientsDbLeaf,
  clientsLeaf,
  clientsUserLeaf,
  shareOf,
} from "../../../shared/ledger/mod.ts";
import {
  accept,
  closeFd,
  collectGarbage,
  EPOLLIN,
  Errno,
  errnoText,
  type EventSource,
  listenUnix,
  raiseFileLimit,
  Reactor,
  setBuffers,
  setDeferAccept,
  setKeepAlive,
  setNoDelay,
  type Timer,
  unlinkUnix,
} from "../../../shared/sys/mod.ts";
import { makeCancelKey } from "../../../shared/wire/mod.ts";
import { Gauge, type PoolBackends, type Seat, type ToPlane } from "../messages.ts";
import { Admission } from "./admission.ts";
import { Arena, Outlet } from "./arena.ts";
import { Budget } from "./budget.ts";
import { Cancels } from "./cancels.ts";
import { ClientGate } from "./client_gate.ts";
import { ClientSession } from "./client.ts";
import { statsLine } from "./console/mod.ts";
import type { ControlLink } from "./control_link.ts";
import { Credential, sameSecrets } from "./credentials.ts";
import { Departures } from "./departures.ts";
import { DirectSlots } from "./direct_slots.ts";
import { Descriptors } from "./descriptors.ts";
import { listenEach } from "./listen_tcp.ts";
import {
  clientLabel,
  closingText,
  droppedDatabaseText,
  newDatabaseText,
  newServerText,
  serverLabel,
} from "./log_lines.ts";
import { Entrance } from "./entrance.ts";
import { GroupBackends } from "./group_backends.ts";
import { GroupMemory } from "./group_memory.ts";
import { LoginGates } from "./login_gates.ts";
import { Names } from "./names.ts";
import { LoginGarbage } from "./login_garbage.ts";
import { Notifier } from "./notifier.ts";
import { Operator } from "./operator.ts";
import { Overload } from "./overload.ts";
import { ParameterTracker } from "./parameters.ts";
import { Pool, type PoolLogin } from "./pool.ts";
import { Prepared } from "./prepared.ts";
import { clientGone, type Refusal, refusals } from "./refusals.ts";
import { applyConfig } from "./reload.ts";
import type { ServerConnection } from "./server.ts";
import { StartupReader } from "./startup.ts";
import { StatementMemory } from "./statement_memory.ts";
import { PoolStats } from "./stats.ts";
import { Strangers } from "./strangers.ts";
import { Suspension } from "./suspension.ts";
import { TableChanges } from "./table_changes.ts";
import { Texts } from "./texts.ts";
import { Timeouts } from "./timeouts.ts";
import { PlaneTls } from "./tls.ts";
import { TransactionEnd } from "./transaction_end.ts";
import { isAutomatic, UnusedPools } from "./unused_pools.ts";
import { UserLookups } from "./user_lookup.ts";

const sweepMs = 100;
const acceptsPerEvent = 64;
/** How long the kernel keeps a client from us that has sent nothing, as in PgBouncer: beyond it client_login_timeout holds. */
const deferAcceptS = 1;
/** The listener tells so seldom that it rests. */
const pauseLogMs = 10_000;
/** A worker's cancel keys have 16 random bits. */
const keysMax = 60_000;

export class Plane {
  readonly reactor: Reactor;
  readonly control: ControlLink;
  /** Changed by applyConfig alone. */
  config: Config;
  settings: Settings;
  readonly seat: Seat;
  readonly version: string;
  readonly arena = new Arena();
  readonly outlet = new Outlet(this.arena);
  readonly tracker: ParameterTracker;
  readonly cancels = new Cancels(this);
  readonly departures = new Departures(this);
  readonly prepared = new Prepared(this);
  readonly texts = new Texts(this);
  readonly operator = new Operator(this);
  readonly suspension = new Suspension(this);
  readonly notifier = new Notifier(this);
  readonly transactionEnd = new TransactionEnd(this);
  readonly lookups = new UserLookups(this);
  readonly tableChanges: TableChanges;
  startups: StartupReader;
  tracksStatements: boolean;
  /** Addresses of servers. */
  readonly names: Names;
  /** Clients that log in. */
  readonly entrance = new Entrance();
  readonly loginGates = new LoginGates(() => this.settings.maxServerLogins);
  readonly statementMemory = new StatementMemory();
  readonly loginGarbage = new LoginGarbage();
  readonly tls: PlaneTls;
  readonly mockKey: Uint8Array;
  readonly strangers: Strangers;
  readonly startedAt: number;
  readonly budget: Budget;
  readonly overload: Overload;
  readonly admission = new Admission(this);
  readonly groupMemory: GroupMemory;
  /** max_client_conn. */
  readonly clientGate: ClientGate;
  readonly mainGates: readonly ClientGate[];

  readonly clients = new Set<ClientSession>();
  /** Oldest first. */
  readonly loggingIn = new Set<ClientSession>();
  readonly pools = new Map<string, Pool>();
  /** What pools that are forgotten had counted, by database. */
  readonly formerStats = new Map<string, PoolStats>();
  /** Server connections outside of pools, by database and user. */
  readonly direct = new Map<string, DirectSlots>();
  /** Logged-in clients by the process id of their cancel key. */
  readonly keys = new Map<number, ClientSession>();
  /** The console's own counters. */
  readonly consoleStats = new PoolStats();
  /** Server connections, those that PostgreSQL has not closed yet included. */
  openServers = 0;
  stopping = false;

  readonly #listen: readonly string[];
  readonly #socketGroup: number | null;
  readonly #gauges: Int32Array;
  readonly #listeners: Listener[] = [];
  readonly #credentials = new Map<string, Credential | null>();
  readonly #descriptors: Descriptors;
  readonly #timeouts: Timeouts;
  readonly #unusedPools = new UnusedPools(this);
  readonly #groupBackends = new GroupBackends(this);
  readonly #limitsDivided: boolean;
  /** max_db_client_connections and max_user_client_connections, by leaf. */
  readonly #gates = new Map<string, ClientGate>();
  #backendsTold = "";
  #pauseLoggedAt = -Infinity;
  readonly #random = new Uint8Array(4096);
  #randomAt = this.#random.length;
  #soon = new Set<Pool>();
  #stopped = false;
  #lastId = 0;
  #sweeps = 0;
  #lastPeriodAt: number;

  constructor(
    reactor: Reactor,
    control: ControlLink,
    start: Extract<ToPlane, { type: "start" }>,
  ) {
    this.reactor = reactor;
    this.control = control;
    this.config = start.config;
    this.settings = start.config.settings;
    this.seat = start.seat;
    this.version = start.version;
    this.tls = new PlaneTls(this.settings, (message) => control.log("warning", message));
    this.mockKey = start.mockKey;
    this.strangers = new Strangers(start.mockKey);
    this.strangers.know(start.config.userlist.values());
    this.names = new Names({
      ask: (host, done) => control.resolve(host, done),
      now: () => reactor.now,
      limits: () => ({
        maxMs: this.settings.dnsMaxTtlMs,
        failedMs: this.settings.dnsNxdomainTtlMs,
      }),
      onAddresses: (host, addresses) => this.#leaveOthers(host, addresses),
    });
    this.tableChanges = new TableChanges({
      renew: (database) => {
        for (const pool of this.pools.values()) {
          if (database === null || pool.database.name === database) pool.statements.renew();
        }
      },
      tell: (database) => control.post({ type: "tablesChanged", database }),
      after: (ms, then) => reactor.after(ms, then),
    });
    this.tracker = new ParameterTracker(this.settings.trackExtraParameters);
    this.startups = new StartupReader(this.tracker, this.settings);
    this.tracksStatements = this.settings.maxPreparedStatements > 0;
    this.#listen = start.listen;
    this.#socketGroup = start.socketGroup;
    this.#gauges = start.gauges;
    control.watch(start.gauges);
    this.startedAt = Date.now();
    this.#lastPeriodAt = reactor.now;
    this.#limitsDivided = start.leaseMs === null;
    this.#timeouts = new Timeouts(this);
    this.overload = new Overload(this);
    this.groupMemory = new GroupMemory(this);
    this.budget = new Budget(this, start.leaseMs ?? Infinity);
    this.admission.setConfig(this.config);
    this.clientGate = new ClientGate(this, clientsLeaf, refusals.tooManyClients);
    this.mainGates = [this.clientGate];
    const files = raiseFileLimit().soft;
    this.#descriptors = new Descriptors(files, this.share(this.settings.defaultPoolSize));
    const maxClients = this.share(this.settings.maxClientConn);
    const { clientsMax } = this.#descriptors;
    if (clientsMax < maxClients) {
      this.control.log(
        "warning",
        `limit of open files is ${files}: it leaves room for ${clientsMax} clients of this worker, ` +
          `not for the ${maxClients} of max_client_conn`,
      );
    }
  }

  /** For applyConfig: what was made of the former configuration itself is made anew. */
  setConfig(config: Config): void {
    const before = this.config;
    this.config = config;
    this.settings = config.settings;
    this.startups = new StartupReader(this.tracker, this.settings);
    this.tracksStatements = this.settings.maxPreparedStatements > 0;
    this.budget.setRules(config);
    this.admission.setConfig(config);
    this.strangers.know(config.userlist.values());
    for (const user of this.#credentials.keys()) {
      const isSame = this.settings.scramIterations === before.settings.scramIterations &&
        sameSecrets(before.userlist.get(user), config.userlist.get(user));
      if (!isSame) this.#credentials.delete(user);
    }
    for (const listener of this.#listeners) listener.onConfig();
  }

  /** The most of a limit that this worker may have: all of it, unless limits are divided. */
  share(limit: number): number {
    return this.#limitsDivided ? Math.max(1, shareOf(limit, this.seat)) : limit;
  }

  /** Workers of a fleet do; one that stands alone only as the file says, as PgBouncer. */
  get #sharesPort(): boolean {
    return this.settings.soReuseport || this.seat.count > 1 || this.seat.supervisorPid !== 0;
  }

  nextId(): number {
    return ++this.#lastId;
  }

  // --- start and stop

  /** Listens; returns the addresses. Throws SysError or ListenFailure. */
  start(): string[] {
    const { listenPort, listenBacklog, unixSocketDir, unixSocketMode } = this.settings;
    const addresses: string[] = [];
    const place = { port: listenPort, backlog: listenBacklog, reusePort: this.#sharesPort };
    const warn = (message: string) => this.control.log("warning", message);
    for (const { fd, address } of listenEach(this.#listen, place, warn)) {
      this.tuneListener(fd);
      this.#listeners.push(new Listener(this, fd, null));
      addresses.push(address);
    }
    // The kernel spreads TCP connections only: a socket file belongs to the first worker.
    if (unixSocketDir !== "" && this.seat.index === 0) {
      const path = `${unixSocketDir}/.s.PGSQL.${listenPort}`;
      const group = this.#socketGroup;
      const fd = listenUnix({ path, mode: unixSocketMode, group, backlog: listenBacklog });
      this.#listeners.push(new Listener(this, fd, path));
      addresses.push(path);
    }
    for (const listener of this.#listeners) listener.resume();
    const timer = this.reactor.every(sweepMs, () => this.#sweep(timer));
    this.reactor.onBatchEnd = () => this.#afterBatch();
    return addresses;
  }

  /** Accepts nothing new, and ends when all servers are given back, or all clients have left; or now. */
  shutdown(mode: ShutdownMode): void {
    if (mode === "now") return this.stop();
    if (!this.stopping) this.control.post({ type: "draining" });
    this.stopping = true;
    // Clients that are to leave, or to finish, have to be heard.
    this.suspension.end();
    for (const listener of this.#listeners) listener.close();
    if (mode === "servers") this.operator.release();
    this.#stopIfDone();
  }

  /** Ends everything now. */
  stop(): void {
    if (this.#stopped) return;
    this.#stopped = this.stopping = true;
    for (const listener of this.#listeners) listener.close();
    for (const client of [...this.clients]) client.fail(refusals.shuttingDown);
    for (const { servers } of [...this.pools.values(), ...this.direct.values()]) {
      for (const server of [...servers]) server.close("pooler is shutting down");
    }
    this.control.flushLog();
    this.control.post({ type: "stopped" });
    this.reactor.stop();
  }

  #stopIfDone(): void {
    if (!this.stopping) return;
    const isDone = this.clients.size === 0 || (this.operator.releases && this.operator.isReleased);
    if (isDone) this.reactor.after(0, () => this.stop());
  }

  /** Nobody is accepted until it is over. */
  onSuspended(): void {
    for (const listener of this.#listeners) listener.suspend();
  }

  onMessage(message: ToPlane): void {
    if (this.control.onAnswer(message)) return;
    if (message.type === "shutdown") this.shutdown(message.mode);
    else if (message.type === "grant") this.budget.onGrant(message.grant);
    else if (message.type === "leader") this.budget.onLeader(message.epoch);
    else if (message.type === "refresh") this.#onRefresh();
    else if (message.type === "overload") this.overload.onDecision(message.decision);
    else if (message.type === "groupMemory") this.groupMemory.onSaid(message.said);
    else if (message.type === "warnings") this.overload.onWarnings(message.warnings);
    else if (message.type === "tablesChanged") this.tableChanges.heard(message.database);
    else if (message.type === "groupUses") {
      this.control.post({ type: "groupUses", id: message.id, uses: this.admission.uses() });
    } else if (message.type === "config") applyConfig(this, message.config);
    else if (message.type === "perform") {
      const { id, command, state, again } = message;
      const performed = this.operator.perform(command, state, again);
      this.control.post({ type: "performed", id, performed });
    } else if (message.type === "cancel") {
      this.cancels.perform(message.processId, message.secret, (outcome) => {
        this.control.post({ type: "cancelOutcome", id: message.id, outcome });
      });
    }
  }

  // --- clients

  /** Descriptors are left for one more connection, to be heard at least. */
  get hasRoom(): boolean {
    return this.#descriptors.mayAccept(this.clients.size, this.openServers);
  }

  /** How many more servers the descriptors allow. */
  get serverRoom(): number {
    return this.#descriptors.serverRoom(this.clients.size, this.openServers);
  }

  /** Why this worker itself can't take one more client, or null. */
  clientLimit(): Refusal | null {
    const clients = this.clientGate.lease.held;
    if (clients >= keysMax) return refusals.tooManyClients;
    return clients >= this.#descriptors.clientsMax ? refusals.outOfDescriptors : null;
  }

  /** The limits that a client which has proved who it is comes under, beside max_client_conn. */
  gatesFor(database: DatabaseConfig, user: string): ClientGate[] {
    const { settings, config } = this;
    const gates: ClientGate[] = [];
    if ((database.maxDbClientConnections ?? settings.maxDbClientConnections) > 0) {
      gates.push(this.#gate(clientsDbLeaf(database.name), refusals.tooManyDatabaseClients));
    }
    const userLimit = config.users.get(user)?.maxUserClientConnections ??
      settings.maxUserClientConnections;
    if (userLimit > 0) gates.push(this.#gate(clientsUserLeaf(user), refusals.tooManyUserClients));
    return gates;
  }

  #gate(leaf: string, refusal: Refusal): ClientGate {
    let gate = this.#gates.get(leaf);
    if (gate === undefined) this.#gates.set(leaf, gate = new ClientGate(this, leaf, refusal));
    return gate;
  }

  onAccepted(fd: number, unixSocket: boolean): void {
    const client = new ClientSession(this, fd, unixSocket);
    if (this.tls.client !== null && !unixSocket) client.stream.expectTls(this.tls.clientNow);
    this.clients.add(client);
    this.loggingIn.add(client);
    if (this.settings.verbose > 0) {
      this.control.log("debug", `${clientLabel(client)} got connection`);
    }
  }

  /** Gives the client a key that no other client of this worker has. */
  giveKey(client: ClientSession): void {
    const { workerId, incarnation } = this.seat;
    for (;;) {
      const key = makeCancelKey(workerId, client.minor, incarnation, this.random);
      if (this.keys.has(key.processId)) continue;
      client.processId = key.processId;
      client.secret = key.secret;
      this.keys.set(key.processId, client);
      return;
    }
  }

  /** Random bytes fit for keys, drawn from the system in bulk; valid until the next call. */
  readonly random = (length: number): Uint8Array => {
    if (this.#randomAt + length > this.#random.length) {
      randomFillSync(this.#random);
      this.#randomAt = 0;
    }
    this.#randomAt += length;
    return this.#random.subarray(this.#randomAt - length, this.#randomAt);
  };

  onClientClosed(client: ClientSession): void {
    this.clients.delete(client);
    this.#descriptors.leaves(client.stream);
    this.loggingIn.delete(client);
    if (client.processId !== 0) this.keys.delete(client.processId);
    for (const gate of client.gates) gate.leave();
    this.notifier.onClientClosed(client);
    if (client.pool !== null) client.pool.clients--;
    if (this.stopping) this.#stopIfDone();
  }

  /** The auth_file's entry of a user, or null. */
  credential(user: string): Credential | null {
    const known = this.#credentials.get(user);
    if (known !== undefined) return known;
    const secret = this.config.userlist.get(user);
    // Unknown names are not remembered: a stranger could send any number of them.
    if (secret === undefined) return null;
    const credential = new Credential(secret);
    this.#credentials.set(user, credential);
    return credential;
  }

  /** The pool of a client that is who it says; the database may name the user of the servers. */
  poolFor(database: DatabaseConfig, clientUser: string, client: Credential | null): Pool {
    if (database.user !== null) return this.poolOf(database, database.user);
    const pool = this.#pool(database, clientUser, client);
    if (client !== null && database.password === null) pool.adopt(client);
    return pool;
  }

  /** The pool of a user that the file names. */
  poolOf(database: DatabaseConfig, user: string): Pool {
    return this.#pool(database, user, this.credential(user));
  }

  #pool(database: DatabaseConfig, user: string, own: Credential | null): Pool {
    const key = `${database.name}\0${user}`;
    let pool = this.pools.get(key);
    if (pool === undefined) {
      if (isAutomatic(this.config, database.name) && !this.#hasPoolOf(database.name)) {
        this.control.log("info", newDatabaseText(database.name));
      }
      pool = new Pool(this, database, user, this.loginFor(database, user, { credential: own }));
      this.pools.set(key, pool);
    }
    return pool;
  }

  #hasPoolOf(name: string): boolean {
    for (const { database } of this.pools.values()) if (database.name === name) return true;
    return false;
  }

  /** What servers of a pool are logged in with; `known` where the auth_file does not have the user. */
  loginFor(
    database: DatabaseConfig,
    user: string,
    known: { readonly credential: Credential | null },
  ): PoolLogin {
    // The password of an entry is that of the entry's own user.
    const given = database.user === null || database.user === user ? database.password : null;
    if (given !== null) return { password: given, credential: null };
    const credential = this.credential(user) ?? known.credential;
    return { password: credential?.password ?? null, credential };
  }

  /** Ends a pool that nobody uses, with all that is kept for it. */
  forget(key: string, reason: string): void {
    const pool = this.pools.get(key) as Pool;
    const { name } = pool.database;
    this.pools.delete(key);
    pool.outdate(reason);
    pool.retire();
    const slots = this.direct.get(key);
    if (slots !== undefined) {
      this.direct.delete(key);
      this.budget.retire(slots.lease);
    }
    const former = this.formerStats.get(name) ?? new PoolStats();
    former.absorb(pool.stats);
    this.formerStats.set(name, former);
    if (this.#hasPoolOf(name) || !isAutomatic(this.config, name)) return;
    this.control.log("warning", droppedDatabaseText(name));
    this.formerStats.delete(name);
    this.notifier.forget(name, refusals.databaseRemoved);
    const leaf = clientsDbLeaf(name);
    const gate = this.#gates.get(leaf);
    if (gate === undefined) return;
    this.#gates.delete(leaf);
    this.budget.retire(gate.lease);
  }

  // --- servers

  directSlots(database: string, user: string): DirectSlots {
    const key = `${database}\0${user}`;
    let slots = this.direct.get(key);
    if (slots === undefined) this.direct.set(key, slots = new DirectSlots(this, database, user));
    return slots;
  }

  /** What the sockets of clients inherit from the one that listens, on Linux, and how it accepts them. */
  tuneListener(fd: number): void {
    const { tcpSocketBuffer, tcpDeferAccept } = this.settings;
    setNoDelay(fd);
    this.keepAlive(fd);
    if (tcpSocketBuffer > 0) setBuffers(fd, tcpSocketBuffer);
    setDeferAccept(fd, tcpDeferAccept ? deferAcceptS : 0);
  }

  keepAlive(fd: number): void {
    const { tcpKeepalive, tcpKeepidle, tcpKeepintvl, tcpKeepcnt, tcpUserTimeoutMs } = this.settings;
    if (!tcpKeepalive && tcpUserTimeoutMs === 0) return;
    setKeepAlive(fd, {
      idleS: tcpKeepidle,
      intervalS: tcpKeepintvl,
      count: tcpKeepcnt,
      userTimeoutMs: tcpUserTimeoutMs,
    });
  }

  *servers(): Generator<ServerConnection> {
    for (const { servers } of this.pools.values()) yield* servers;
    for (const { servers } of this.direct.values()) yield* servers;
  }

  #sweepNames(): void {
    for (const { host } of this.servers()) this.names.keep(host);
    this.names.sweep();
    this.loginGates.sweep();
  }

  /** The name has only these addresses now: connections to others end as they come free. */
  #leaveOthers(host: string, addresses: readonly string[]): void {
    const reason = "server address has changed (DNS)";
    const isElsewhere = (server: ServerConnection) =>
      server.host === host && !server.isDialing && !addresses.includes(server.address);
    for (const pool of this.pools.values()) pool.outdate(reason, isElsewhere);
    for (const listener of this.notifier.listeners) {
      if (listener.server !== null && isElsewhere(listener.server)) listener.reconnect(reason);
    }
  }

  /** Looks at a pool again after this batch: something came free while it could not be used. */
  soon(pool: Pool): void {
    this.#soon.add(pool);
  }

  #afterBatch(): void {
    this.departures.onBatchEnd();
    this.entrance.onBatchEnd();
    if (this.suspension.active) this.suspension.proceed();
    if (this.#soon.size > 0) {
      const pools = this.#soon;
      this.#soon = new Set();
      for (const pool of pools) pool.dispatch();
    }
    this.admission.onBatchEnd();
    this.loginGates.onBatchEnd();
    this.budget.onBatchEnd();
    this.control.flushLog();
  }

  #sweep(timer: Timer): void {
    const now = this.reactor.now;
    const thorough = this.#sweeps++ % 10 === 0;
    this.overload.sweep(now, timer);
    const suspended = this.suspension.active;
    if (!suspended) this.#timeouts.sweep(now);
    if (thorough && !suspended) this.#openStanding();
    for (const pool of this.pools.values()) {
      if (!suspended || pool.waiting > 0) pool.sweep(now, thorough);
    }
    if (!suspended) this.#unusedPools.sweep(now);
    if (thorough) this.#sweepNames();
    this.notifier.sweep(now);
    this.admission.sweep(now);
    this.budget.sweep(now);
    this.#tellBackends();
    this.groupMemory.sweep(now);
    this.#groupBackends.sweep(now);
    this.cancels.sweep(now);
    this.#stopIfDone();
    const limit = this.settings.clientLoginTimeoutMs;
    for (const client of this.loggingIn) {
      if (suspended) break;
      const { login } = client;
      if (limit <= 0 || now - (login?.since ?? client.connectedAt) < limit) break;
      client.fail(login?.lateRefusal ?? refusals.loginTimeout);
    }
    this.#descriptors.sweep();
    const hasGarbage = this.loginGarbage.isDue(now, this.clients.size);
    if (this.statementMemory.hasShrunk(now) || hasGarbage) collectGarbage();
    for (const listener of this.#listeners) listener.resume();
    this.#gauges[Gauge.clients] = this.clients.size;
    this.#gauges[Gauge.servers] = this.openServers;
    const period = this.settings.statsPeriodMs;
    if (period > 0 && now - this.#lastPeriodAt >= period) {
      const all = [...this.pools.values()].map((pool) => pool.stats);
      all.push(...this.formerStats.values());
      for (const stats of [...all, this.consoleStats]) stats.endPeriod(now - this.#lastPeriodAt);
      this.#lastPeriodAt = now;
      if (this.settings.logStats) this.control.log("info", statsLine(all));
    }
  }

  /** Pools that are kept up before a client comes. */
  #openStanding(): void {
    for (const database of this.config.databases.values()) {
      const { user } = database;
      if (user !== null && minPoolSizeFor(this.config, database, user) > 0) {
        this.poolOf(database, user);
      }
    }
  }

  #onRefresh(): void {
    this.#backendsTold = "";
    this.#groupBackends.refresh();
    this.budget.refresh();
    this.tableChanges.heard(null);
  }

  /** Whoever counts backends is told which are ours, as they change. */
  #tellBackends(): void {
    if (this.settings.budgetAuth === "" || this.#limitsDivided) return;
    const byLeaf = new Map<string, number[]>();
    for (const { servers } of [...this.pools.values(), ...this.direct.values()]) {
      for (const { processId, owner: { lease: { leaf } } } of servers) {
        if (processId === 0) continue;
        const pids = byLeaf.get(leaf);
        if (pids === undefined) byLeaf.set(leaf, [processId]);
        else pids.push(processId);
      }
    }
    const pools = [...byLeaf].map(([leaf, pids]): PoolBackends => ({ leaf, pids }));
    const told = JSON.stringify(pools);
    if (told === this.#backendsTold) return;
    this.#backendsTold = told;
    this.control.post({ type: "backends", pools });
  }

  // --- log

  logPause(why: string): void {
    const now = this.reactor.now;
    if (now - this.#pauseLoggedAt < pauseLogMs) return;
    this.#pauseLoggedAt = now;
    this.control.log("warning", `accepting clients is paused: ${why}`);
  }

  logClient(client: ClientSession, what: string): void {
    if (this.settings.logConnections) {
      this.control.log("info", `${clientLabel(client)} ${what}`);
    }
  }

  logClientClosing(client: ClientSession, reason: string): void {
    if (!this.settings.logDisconnections) return;
    // One that leaves without a word may be a health check, which comes every second.
    if (client.user === "" && client.login !== null && reason === clientGone) return;
    const text = closingText(reason, this.reactor.now - client.connectedAt);
    this.control.log("info", `${clientLabel(client)} ${text}`);
  }

  /** An error that a client was sent. */
  logRefusal(client: ClientSession, message: string): void {
    if (!this.settings.logPoolerErrors) return;
    this.control.log("warning", `${clientLabel(client)} pooler error: ${message}`);
  }

  logServer(
    server: ServerConnection,
    what: string,
    level: "warning" | "error" = "warning",
  ): void {
    this.control.log(level, `${serverLabel(server)} ${what}`);
  }

  logNewServer(server: ServerConnection): void {
    if (!this.settings.logConnections) return;
    const label = serverLabel(server);
    this.control.log("info", `${label} ${newServerText(server)}`);
    const { tls } = server.stream;
    if (tls !== null) this.control.log("info", `${label} SSL established: ${tls.info}`);
  }

  logServerClosing(server: ServerConnection, reason: string): void {
    if (!this.settings.logDisconnections) return;
    const text = closingText(reason, this.reactor.now - server.connectedAt);
    this.control.log("info", `${serverLabel(server)} ${text}`);
  }

  logPool(pool: Pool, what: string): void {
    if (!this.settings.logPoolerErrors) return;
    this.control.log("warning", `${pool.database.name}/${pool.user}: ${what}`);
  }
}

/** Accepts clients. Stops for a while when it can't, as when descriptors are short, so that the loop never spins. */
class Listener implements EventSource {
  readonly #plane: Plane;
  readonly #fd: number;
  readonly #path: string | null;
  #listening = false;
  #closed = false;

  constructor(plane: Plane, fd: number, path: string | null) {
    this.#plane = plane;
    this.#fd = fd;
    this.#path = path;
  }

  /** Sockets of clients that come from now on inherit what is set here. */
  onConfig(): void {
    if (!this.#closed && this.#path === null) this.#plane.tuneListener(this.#fd);
  }

  resume(): void {
    if (this.#listening || this.#closed || !this.#plane.hasRoom) return;
    if (this.#plane.suspension.active) return;
    this.#listening = true;
    this.#plane.reactor.add(this.#fd, EPOLLIN, this);
  }

  onEvents(_mask: number): void {
    for (let i = 0; i < acceptsPerEvent; i++) {
      if (!this.#plane.hasRoom) return this.#pause("out of file descriptors for clients");
      const fd = accept(this.#fd);
      if (fd === -Errno.EAGAIN) return;
      if (fd < 0) return this.#pause(errnoText(-fd));
      this.#plane.onAccepted(fd, this.#path !== null);
    }
  }

  /** The clients wait in the kernel's queue; the next sweep tries again. */
  #pause(why: string): void {
    this.suspend();
    this.#plane.logPause(why);
  }

  suspend(): void {
    if (!this.#listening) return;
    this.#listening = false;
    this.#plane.reactor.remove(this.#fd);
  }

  close(): void {
    if (this.#closed) return;
    // Who is in the queue already was promised an answer.
    for (let fd = accept(this.#fd); fd >= 0; fd = accept(this.#fd)) {
      this.#plane.onAccepted(fd, this.#path !== null);
    }
    this.#closed = true;
    if (this.#listening) this.#plane.reactor.remove(this.#fd);
    closeFd(this.#fd);
    if (this.#path !== null) unlinkUnix(this.#path);
  }
}
