// Rows about pools, databases, users and the worker as a whole. Each is made from one look at the
// plane, so counts within a row agree with each other. Limits are those of the file, for the whole mesh;
// where limits are divided, this worker's part of them.

import { CONSOLE_DATABASE, type DatabaseConfig } from "../../../../shared/config/mod.ts";
import { columnsOf, type Row } from "./encode.ts";
import { restMicroseconds, wholeSeconds } from "./socket_rows.ts";
import type { Moment, PlaneView, PoolView } from "./view.ts";

/** PgBouncer's console is a pool of this size and mode. */
const consolePoolSize = 2;
const consolePoolMode = "statement";

export const poolColumns = columnsOf(
  "database s, user s, cl_active i, cl_waiting i, cl_active_cancel_req i, " +
    "cl_waiting_cancel_req i, sv_active i, sv_active_cancel i, sv_being_canceled i, sv_idle i, " +
    "sv_used i, sv_tested i, sv_login i, maxwait i, maxwait_us i, pool_mode s, " +
    "load_balance_hosts s",
);

function loadBalanceHosts(database: DatabaseConfig): string | null {
  return database.hosts.length > 1 ? database.loadBalanceHosts : null;
}

interface PoolCancels {
  /** Requests of clients that are being carried out, and connections that carry them. */
  requests: number;
  connections: number;
  waiting: number;
}

function cancelsByPool(plane: PlaneView): Map<object, PoolCancels> {
  const pools = new Map<object, PoolCancels>();
  const of = (pool: object) => {
    let counts = pools.get(pool);
    if (counts === undefined) pools.set(pool, counts = { requests: 0, connections: 0, waiting: 0 });
    return counts;
  };
  for (const { server, requests } of plane.cancels.inFlight()) {
    const counts = of(server.pool);
    counts.connections++;
    counts.requests += requests;
  }
  for (const server of plane.cancels.queued()) of(server.pool).waiting++;
  return pools;
}

interface Waiters {
  count: number;
  since: number;
}

/** Those of each pool's queue and those that wait for room in their group: none of them has a server. */
function waitersByPool(plane: PlaneView): (pool: PoolView) => Waiters {
  const held = new Map<object, Waiters>();
  for (const { pool, waitingSince } of plane.admission.waiters()) {
    if (pool === null) continue;
    const waiters = held.get(pool) ?? { count: 0, since: Infinity };
    waiters.count++;
    waiters.since = Math.min(waiters.since, waitingSince);
    held.set(pool, waiters);
  }
  return (pool) => {
    const { count, since } = held.get(pool) ?? { count: 0, since: Infinity };
    const first = pool.firstWaiter?.waitingSince ?? Infinity;
    return { count: count + pool.waiting, since: Math.min(since, first) };
  };
}

function consoleClients(plane: PlaneView): number {
  let count = 0;
  for (const client of plane.clients) if (client.console !== null) count++;
  return count;
}

export function* poolRows(moment: Moment): Generator<Row> {
  const { plane, now } = moment;
  const { users, settings } = plane.config;
  const cancels = cancelsByPool(plane);
  const waitersOf = waitersByPool(plane);
  for (const pool of plane.pools.values()) {
    const states = { active: 0, being_canceled: 0, idle: 0, tested: 0, login: 0 };
    for (const { state } of pool.servers) if (state in states) states[state as "idle"]++;
    const { requests, connections, waiting } = cancels.get(pool) ??
      { requests: 0, connections: 0, waiting: 0 };
    const waiters = waitersOf(pool);
    const waitedMs = waiters.count === 0 ? 0 : now - waiters.since;
    yield [
      pool.database.name,
      pool.user,
      pool.clients - waiters.count,
      waiters.count,
      requests,
      waiting,
      states.active,
      connections,
      states.being_canceled,
      states.idle - pool.untested,
      pool.untested,
      states.tested,
      states.login,
      wholeSeconds(waitedMs),
      restMicroseconds(waitedMs),
      users.get(pool.user)?.poolMode ?? pool.database.poolMode ?? settings.poolMode,
      loadBalanceHosts(pool.database),
    ];
  }
  const none = new Array<number>(12).fill(0);
  const counts = [consoleClients(plane), ...none];
  yield [CONSOLE_DATABASE, CONSOLE_DATABASE, ...counts, consolePoolMode, null];
}

// --- databases

export const databaseColumns = columnsOf(
  "name s, host s, port i, database s, force_user s, pool_size i, min_pool_size i, " +
    "reserve_pool_size i, server_lifetime i, pool_mode s, load_balance_hosts s, " +
    "max_connections i, current_connections i, max_client_connections i, " +
    "current_client_connections i, paused i, disabled i",
);

interface Usage {
  servers: number;
  clients: number;
}

function add(usages: Map<string, Usage>, name: string, servers: number, clients: number): void {
  const usage = usages.get(name);
  if (usage === undefined) usages.set(name, { servers, clients });
  else {
    usage.servers += servers;
    usage.clients += clients;
  }
}

export function* databaseRows({ plane }: Moment): Generator<Row> {
  const { config } = plane;
  const { settings } = config;
  const usages = new Map<string, Usage>();
  const databases = new Map(config.databases);
  for (const pool of plane.pools.values()) {
    const { name } = pool.database;
    // Those of the fallback entry are there while they have a pool.
    if (!databases.has(name)) databases.set(name, pool.database);
    add(usages, name, pool.servers.size, pool.clients);
  }
  for (const { database, servers } of plane.direct.values()) add(usages, database, servers.size, 0);
  const seconds = (ms: number) => Math.floor(ms / 1000);
  for (const database of databases.values()) {
    const usage = usages.get(database.name) ?? { servers: 0, clients: 0 };
    yield [
      database.name,
      database.hosts.join(","),
      database.port,
      database.dbname,
      database.user,
      plane.share(database.poolSize ?? settings.defaultPoolSize),
      database.minPoolSize ?? settings.minPoolSize,
      database.reservePoolSize ?? settings.reservePoolSize,
      seconds(database.serverLifetimeMs ?? settings.serverLifetimeMs),
      database.poolMode,
      loadBalanceHosts(database),
      database.maxDbConnections ?? settings.maxDbConnections,
      usage.servers,
      database.maxDbClientConnections ?? settings.maxDbClientConnections,
      usage.clients,
      plane.operator.isPaused(database.name) ? 1 : 0,
      plane.operator.isDisabled(database.name) ? 1 : 0,
    ];
  }
  yield [
    CONSOLE_DATABASE,
    null,
    settings.listenPort,
    CONSOLE_DATABASE,
    CONSOLE_DATABASE,
    consolePoolSize,
    0,
    0,
    seconds(settings.serverLifetimeMs),
    consolePoolMode,
    null,
    0,
    0,
    0,
    consoleClients(plane),
    0,
    0,
  ];
}

// --- users

export const userColumns = columnsOf(
  "name s, pool_size s, reserve_pool_size s, pool_mode s, max_user_connections i, " +
    "current_connections i, max_user_client_connections i, current_client_connections i",
);

/** Every user of the files, and those that are here without an entry in one. */
function userNames(plane: PlaneView): Set<string> {
  const { userlist, users } = plane.config;
  const names = new Set([...userlist.keys(), ...users.keys()]);
  for (const { user } of plane.pools.values()) names.add(user);
  for (const { user, pool } of plane.clients) if (pool !== null) names.add(user);
  return names;
}

export function* userRows({ plane }: Moment): Generator<Row> {
  const { users, settings } = plane.config;
  const usages = new Map<string, Usage>();
  for (const { user, servers } of [...plane.pools.values(), ...plane.direct.values()]) {
    add(usages, user, servers.size, 0);
  }
  // The database may name the user of the servers: clients are counted under their own.
  for (const { user, pool } of plane.clients) if (pool !== null) add(usages, user, 0, 1);
  const part = (size: number | null | undefined) => {
    return size === null || size === undefined ? "" : String(plane.share(size));
  };
  for (const name of userNames(plane)) {
    const user = users.get(name);
    const usage = usages.get(name) ?? { servers: 0, clients: 0 };
    yield [
      name,
      part(user?.poolSize),
      user?.reservePoolSize?.toString() ?? "",
      user?.poolMode ?? null,
      user?.maxUserConnections ?? settings.maxUserConnections,
      usage.servers,
      user?.maxUserClientConnections ?? settings.maxUserClientConnections,
      usage.clients,
    ];
  }
}

// --- the worker as a whole

export const listColumns = columnsOf("list s, items i");

export function* listRows({ plane }: Moment): Generator<Row> {
  const names = new Set(plane.config.databases.keys());
  for (const { database } of plane.pools.values()) names.add(database.name);
  // The console is a database and a pool of its own.
  yield ["databases", names.size + 1];
  yield ["users", userNames(plane).size];
  yield ["peers", 0];
  yield ["pools", plane.pools.size + 1];
  yield ["peer_pools", 0];
  yield ["free_clients", 0];
  yield ["used_clients", plane.clients.size];
  yield ["login_clients", plane.loggingIn.size];
  yield ["free_servers", 0];
  yield ["used_servers", plane.openServers];
  yield ["dns_names", plane.names.known.size];
  yield ["dns_zones", 0];
  yield ["dns_queries", 0];
  yield ["dns_pending", plane.names.pending];
}

export const memoryColumns = columnsOf("name s, size i, used i, free i, memtotal i");

function sumOver(pools: Iterable<PoolView>, count: (pool: PoolView) => number): number {
  let sum = 0;
  for (const pool of pools) sum += count(pool);
  return sum;
}

/** PgBouncer's caches by what they would hold; the memory belongs to the runtime, which tells no sizes. */
export function* memoryRows({ plane }: Moment): Generator<Row> {
  const { config, pools } = plane;
  let waitingOutput = 0;
  for (const { stream } of plane.clients) if (stream.pending > 0) waitingOutput++;
  const outstanding = (pool: PoolView) => {
    let count = 0;
    for (const { requests } of pool.servers) count += requests.count;
    return count;
  };
  const used: readonly (readonly [string, number])[] = [
    ["user_cache", config.users.size],
    ["credentials_cache", config.userlist.size],
    ["db_cache", config.databases.size + 1],
    ["peer_cache", 0],
    ["peer_pool_cache", 0],
    ["pool_cache", pools.size + 1],
    ["outstanding_request_cache", sumOver(pools.values(), outstanding)],
    ["server_cache", plane.openServers],
    ["client_cache", plane.clients.size],
    ["iobuf_cache", waitingOutput],
    ["var_list_cache", 0],
    ["server_prepared_statement_cache", sumOver(pools.values(), (pool) => pool.statements.size)],
  ];
  for (const [name, count] of used) yield [name, 0, count, 0, 0];
}

export const hostColumns = columnsOf("hostname s, ttl q, addrs s");

export function* hostRows({ plane, now }: Moment): Generator<Row> {
  for (const [name, { addresses, until }] of plane.names.known) {
    yield [name, wholeSeconds(until - now), addresses.join(",")];
  }
}

export const workerColumns = columnsOf(
  "worker_id i, incarnation q, index i, count i, pid i, runtime s, version s, uptime q, " +
    "clients i, servers i, cancels_sent q, cancels_unknown q, cancels_idle q, cancels_busy q, " +
    "cancels_unanswered q",
);

export function* workerRows(moment: Moment): Generator<Row> {
  const { plane } = moment;
  const { workerId, incarnation, index, count } = plane.seat;
  const { counts } = plane.cancels;
  yield [
    workerId,
    incarnation,
    index,
    count,
    moment.pid,
    moment.runtime,
    plane.version,
    wholeSeconds(moment.wallNow - plane.startedAt),
    plane.clients.size,
    plane.openServers,
    counts.sent,
    counts.unknown,
    counts.idle,
    counts.busy,
    counts.unanswered,
  ];
}
