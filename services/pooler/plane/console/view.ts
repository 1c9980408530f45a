// What the console reads of the data plane: its clients, pools and counters, as interfaces that the
// plane's own classes satisfy. It changes nothing through them, and a test can stand in for each.

import type { Config, DatabaseConfig, OverloadBounds } from "../../../../shared/config/mod.ts";
import type { Group } from "../../../../shared/groups/mod.ts";
import type { SocketAddress } from "../../../../shared/sys/mod.ts";
import type { OverloadWarnings } from "../../../../shared/bus/mod.ts";
import type { Seat } from "../../messages.ts";
import type { Shed } from "../overload.ts";
import type { Source } from "../shedding.ts";
import type { FeatureCounts } from "../texts.ts";
import type { PoolStats } from "../stats.ts";

export interface StreamView {
  readonly fd: number;
  /** Bytes that wait to be sent. */
  readonly pending: number;
  /** Version and cipher; null: not encrypted. */
  readonly tls: { readonly info: string } | null;
}

export interface ClientView {
  readonly id: number;
  readonly user: string;
  readonly database: string;
  readonly closed: boolean;
  /** Monotonic milliseconds, like all times here. */
  readonly connectedAt: number;
  /** When its last transaction began; 0 = none so far. */
  readonly requestAt: number;
  readonly waitingSince: number;
  readonly queued: boolean;
  /** Not null until the login is over. */
  readonly login: object | null;
  /** Not null for clients of the console. */
  readonly console: object | null;
  readonly pool: object | null;
  readonly server: { readonly id: number } | null;
  readonly stream: StreamView;
  /** The peer's; "unknown" when it is gone already. */
  readonly address: SocketAddress;
  readonly parameters: { readonly values: readonly (string | null)[] };
  readonly names: { readonly size: number } | null;
  readonly features: FeatureCounts | null;
  /** Of a replication client. */
  readonly tunnel:
    | { readonly replication: string; readonly server: { readonly id: number } | null }
    | null;
  /** Bytes of input that are kept. */
  readonly buffered: number;
}

export interface ServerView {
  readonly id: number;
  readonly state: string;
  readonly connectedAt: number;
  readonly requestAt: number;
  readonly address: string;
  readonly port: number;
  readonly processId: number;
  readonly closeNeeded: boolean;
  readonly client: { readonly id: number } | null;
  /** Unset until there is a socket. */
  readonly stream: StreamView | undefined;
  readonly session: { readonly values: readonly (string | null)[] };
  readonly prepared: { readonly size: number };
  readonly requests: { readonly count: number };
  readonly pool: object;
  readonly owner: { readonly replication?: string };
  readonly buffered: number;
}

/** Server connections outside of pools. */
export interface DirectView {
  readonly database: string;
  readonly user: string;
  readonly servers: ReadonlySet<ServerView>;
}

export interface PoolView {
  readonly database: DatabaseConfig;
  /** The user of the server connections. */
  readonly user: string;
  readonly servers: ReadonlySet<ServerView>;
  /** Clients logged in here, waiting ones included. */
  readonly clients: number;
  readonly waiting: number;
  /** Idle servers that are to be tested before they are used. */
  readonly untested: number;
  readonly firstWaiter: { readonly waitingSince: number } | null;
  readonly stats: PoolStats;
  readonly statements: { readonly size: number };
  /** How often each of `features` was used. */
  readonly features: FeatureCounts;
}

/** What listens for the clients of one database that are not pooled by session. */
export interface ListenerView {
  readonly database: DatabaseConfig;
  readonly encoding: string;
  /** Who its connection is logged in as; null while it has none. */
  readonly user: string | null;
  readonly state: string;
  readonly server: { readonly processId: number } | null;
  readonly channels: ReadonlyMap<string, { readonly clients: ReadonlySet<object> }>;
  /** Clients that wait until their channels are listened to. */
  readonly waiting: number;
  /** Notifications; those passed on or not are counted for each client. */
  readonly counts: {
    readonly received: number;
    readonly delivered: number;
    readonly dropped: number;
  };
  /** Connections that were lost. */
  readonly losses: number;
}

/** What became of cancel requests. */
export interface CancelCounts {
  readonly sent: number;
  readonly unknown: number;
  readonly idle: number;
  readonly busy: number;
  readonly unanswered: number;
}

export interface CancelsView {
  readonly counts: CancelCounts;
  /** Connections that brought a cancel request which is being dealt with. */
  readonly requesters: ReadonlySet<ClientView>;
  /** Servers with a cancel under way, each with the number of requests it is for. */
  inFlight(): Iterable<{ readonly server: ServerView; readonly requests: number }>;
  /** Servers whose cancel waits for its turn, once for each request. */
  queued(): Iterable<ServerView>;
}

/** What this worker may have of one limit; see shared/ledger. */
export interface LeaseView {
  readonly leaf: string;
  readonly held: number;
  readonly wanted: number;
  readonly granted: number;
  readonly floor: number;
  /** So many it may hold now. */
  readonly limit: number;
}

/** What is refused, and what monitors have warned of. */
export interface OverloadView {
  readonly shedding: { readonly sources: Iterable<Source> };
  readonly shed: ReadonlyMap<string, Shed>;
  readonly warnings: ReadonlyMap<string, { readonly said: OverloadWarnings }>;
  isExempt(database: string): boolean;
  /** Resource groups with bounds of their own, or of a group above. */
  readonly boundGroups: readonly string[];
  /** Null: those of the settings. */
  boundsOf(database: string, group: string | null): OverloadBounds | null;
}

export interface PlaneView {
  readonly version: string;
  readonly config: Config;
  readonly seat: Seat;
  /** Milliseconds since the epoch. */
  readonly startedAt: number;
  readonly clients: ReadonlySet<ClientView>;
  readonly loggingIn: ReadonlySet<ClientView>;
  readonly pools: ReadonlyMap<string, PoolView>;
  /** What pools that are there no more had counted, by database. */
  readonly formerStats: ReadonlyMap<string, PoolStats>;
  readonly direct: ReadonlyMap<string, DirectView>;
  readonly notifier: { readonly listeners: Iterable<ListenerView> };
  /** What operators have made of it. */
  readonly operator: {
    readonly paused: boolean;
    readonly suspended: boolean;
    isPaused(database: string): boolean;
    isDisabled(database: string): boolean;
  };
  readonly openServers: number;
  readonly cancels: CancelsView;
  readonly budget: {
    /** Milliseconds since the budget last answered; Infinity before the first time. */
    readonly silentMs: number;
    readonly leases: Iterable<LeaseView>;
  };
  readonly consoleStats: PoolStats;
  readonly tracker: { indexOf(name: string): number };
  /** Names of servers. */
  readonly names: {
    /** Their addresses, with the monotonic time up to which they hold. */
    readonly known: ReadonlyMap<
      string,
      { readonly addresses: readonly string[]; readonly until: number }
    >;
    /** How many are being asked for. */
    readonly pending: number;
  };
  readonly overload: OverloadView;
  /** Resource groups, in the order of the file. */
  readonly admission: {
    readonly groups: readonly Group[];
    /** Clients that wait for room in their group, and so not in their pool. */
    waiters(): Iterable<ClientView>;
  };
  /** The most that this worker may have of a limit of the file. */
  share(limit: number): number;
}

/** The plane at one moment, and what is asked of the system to show it. */
export interface Moment {
  readonly plane: PlaneView;
  /** Monotonic milliseconds. */
  readonly now: number;
  /** The same moment, in milliseconds since the epoch. */
  readonly wallNow: number;
  readonly pid: number;
  readonly runtime: string;
  /** This side's address of a socket; may throw. */
  localAddress(fd: number): SocketAddress;
  /** The process at the other end of a unix socket, 0 for other sockets; may throw. */
  peerPid(fd: number): number;
}
