// A plane without sockets for the tests of the console: what the console reads, with values of the
// test's choice.

import { type Config, lookupDatabase } from "../../../shared/config/mod.ts";
import type {
  ClientView,
  Moment,
  PlaneView,
  PoolView,
  ServerView,
} from "../../../services/pooler/plane/console/view.ts";
import { PoolStats } from "../../../services/pooler/plane/stats.ts";
import { configOf, iniWith } from "../../config/fixtures.ts";

/** Monotonic milliseconds of every test's moment. */
export const now = 100_000;
/** The same moment by the clock: 2026-01-02 03:04:05 UTC. */
export const wallNow = Date.UTC(2026, 0, 2, 3, 4, 5);

export type Writable<T> = { -readonly [K in keyof T]: T[K] };

export function fakeClient(changes: Partial<ClientView> = {}): Writable<ClientView> {
  return {
    id: 1,
    user: "u",
    database: "shop",
    closed: false,
    connectedAt: now - 5_000,
    requestAt: 0,
    waitingSince: 0,
    queued: false,
    login: null,
    console: null,
    pool: {},
    server: null,
    stream: { fd: 7, pending: 0, tls: null },
    address: { host: "10.0.0.9", port: 40_000 },
    parameters: { values: [null] },
    names: null,
    features: null,
    tunnel: null,
    buffered: 0,
    ...changes,
  };
}

export function fakeServer(changes: Partial<ServerView> = {}): Writable<ServerView> {
  return {
    id: 2,
    state: "idle",
    connectedAt: now - 60_000,
    requestAt: now - 1_000,
    address: "10.0.0.5",
    port: 5432,
    processId: 4711,
    closeNeeded: false,
    client: null,
    stream: { fd: 8, pending: 0, tls: { info: "TLSv1.3/X" } },
    session: { values: ["psql"] },
    prepared: { size: 0 },
    requests: { count: 0 },
    pool: {},
    owner: {},
    buffered: 0,
    ...changes,
  };
}

export interface FakePool extends Writable<PoolView> {
  servers: Set<ServerView>;
}

export function fakePool(
  config: Config,
  database: string,
  user: string,
  changes: Partial<PoolView> = {},
): FakePool {
  const entry = lookupDatabase(config, database)!;
  return {
    database: entry,
    user: entry.user ?? user,
    clients: 0,
    waiting: 0,
    untested: 0,
    firstWaiter: null,
    stats: new PoolStats(),
    statements: { size: 0 },
    features: new Uint32Array(5),
    ...changes,
    servers: new Set(changes.servers ?? []),
  };
}

export interface FakePlane extends Writable<PlaneView> {
  clients: Set<ClientView>;
  loggingIn: Set<ClientView>;
  pools: Map<string, PoolView>;
  cancels: {
    counts: Writable<PlaneView["cancels"]["counts"]>;
    requesters: Set<ClientView>;
    underWay: { server: ServerView; requests: number }[];
    waiting: ServerView[];
    inFlight(): Iterable<{ server: ServerView; requests: number }>;
    queued(): Iterable<ServerView>;
  };
  formerStats: Map<string, PoolStats>;
  names: {
    known: Map<string, { addresses: readonly string[]; until: number }>;
    pending: number;
  };
}

/** A plane of one worker out of `count` that has read `settings` and `databases`. */
export function fakePlane(
  { settings = "", databases = "shop = host=10.0.0.5", files = {}, count = 1 }: {
    settings?: string;
    databases?: string;
    files?: Readonly<Record<string, string>>;
    count?: number;
  } = {},
): FakePlane {
  const plane: FakePlane = {
    version: "1.2.3",
    config: configOf(iniWith(settings, databases), files),
    seat: { index: 0, count, workerId: 17, incarnation: 1_700_000_000_000, supervisorPid: 0 },
    startedAt: wallNow - 90_000,
    clients: new Set(),
    loggingIn: new Set(),
    pools: new Map(),
    direct: new Map(),
    notifier: { listeners: [] },
    operator: { paused: false, suspended: false, isPaused: () => false, isDisabled: () => false },
    openServers: 0,
    cancels: {
      counts: { sent: 0, unknown: 0, idle: 0, busy: 0, unanswered: 0 },
      requesters: new Set(),
      underWay: [],
      waiting: [],
      inFlight() {
        return this.underWay;
      },
      queued() {
        return this.waiting;
      },
    },
    budget: { silentMs: 250, leases: [] },
    consoleStats: new PoolStats(),
    tracker: { indexOf: (name) => name === "application_name" ? 0 : -1 },
    formerStats: new Map(),
    names: { known: new Map(), pending: 0 },
    admission: { groups: [], waiters: () => [] },
    overload: {
      shedding: { sources: [] },
      shed: new Map(),
      warnings: new Map(),
      isExempt: () => false,
      boundGroups: [],
      boundsOf: () => null,
    },
    share: (limit) => Math.max(1, Math.floor(limit / count)),
  };
  return plane;
}

export function addPool(plane: FakePlane, pool: PoolView): void {
  plane.pools.set(`${pool.database.name}\0${pool.user}`, pool);
}

export function momentOf(plane: PlaneView): Moment {
  return {
    plane,
    now,
    wallNow,
    pid: 321,
    runtime: "bun 1",
    localAddress: () => ({ host: "10.0.0.1", port: 6432 }),
    peerPid: () => 77,
  };
}
