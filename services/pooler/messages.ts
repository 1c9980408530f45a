// What the control thread and the data-plane thread say to each other. Plain data only: it is cloned.

import type { NameAnswer } from "../../shared/host/mod.ts";
import type { Config } from "../../shared/config/mod.ts";
import type {
  CancelOutcome,
  GroupMemory,
  GroupRow,
  GroupUses,
  OverloadDecision,
  OverloadWarnings,
} from "../../shared/bus/mod.ts";
import type { Grant, Report } from "../../shared/ledger/mod.ts";
import type { Command, OperatorState, Outcome, ShutdownMode } from "../../shared/console/mod.ts";
import type { Gathered } from "./group_gather.ts";
import type { PasswordProof } from "./password_checks.ts";

/** Where this worker stands in its fleet. */
export interface Seat {
  readonly index: number;
  readonly count: number;
  readonly workerId: number;
  readonly incarnation: number;
  /** The process that starts another worker when this one ends; 0 = none. */
  readonly supervisorPid: number;
}

/** Indexes into the shared gauges, an Int32Array. `linesWritten` is set by control, and wraps. */
export const Gauge = { clients: 0, servers: 1, linesWritten: 2 } as const;
export const gaugeCount = 3;

export type ToPlane =
  | {
    type: "start";
    config: Config;
    seat: Seat;
    /** listen_addr, resolved: numeric addresses or "*". */
    listen: readonly string[];
    /** unix_socket_group; null = the process's own. */
    socketGroup: number | null;
    /** Keys the mock secrets of unknown users; the same on all workers. */
    mockKey: Uint8Array;
    gauges: Int32Array;
    version: string;
    /** How long grants hold without contact; null = limits are divided, and nobody need be heard. */
    leaseMs: number | null;
  }
  | { type: "salted"; id: number; salted: Uint8Array | null }
  /** null: nobody has this user id. */
  | { type: "userNamed"; id: number; name: string | null }
  | { type: "resolved"; id: number; answer: NameAnswer }
  /** null: it is right; else why it is not taken, for the log. */
  | { type: "passwordChecked"; id: number; verdict: string | null }
  /** From another worker: cancel what this client runs. */
  | { type: "cancel"; id: number; processId: number; secret: Uint8Array }
  /** How the owner of a key that we asked has dealt with it; null = no answer. */
  | { type: "cancelRouted"; id: number; outcome: CancelOutcome | null }
  | { type: "grant"; grant: Grant }
  | { type: "leader"; epoch: number }
  /** News of an overload monitor; it holds from now on, for as long as it says. */
  | { type: "overload"; decision: OverloadDecision }
  | { type: "warnings"; warnings: OverloadWarnings }
  /** The same of a monitor on a database host, about resource groups. */
  | { type: "groupMemory"; said: GroupMemory }
  /** The bus is back: what was reported while it was lost is not known. */
  | { type: "refresh" }
  /** A client of another worker has changed tables of this database. */
  | { type: "tablesChanged"; database: string }
  /** The configuration was read again, or changed from the console: what to go by from now on. */
  | { type: "config"; config: Config }
  /** What operators have made of the pooler, and this worker's part of a command; see plane/operator.ts. */
  | { type: "perform"; id: number; command: Command; state: OperatorState; again: boolean }
  /** What became of a command of the console. */
  | { type: "commanded"; id: number; outcome: Outcome }
  /** Another worker shows resource groups: what is in use of them here? */
  | { type: "groupUses"; id: number }
  /** What the others have, and who did not answer. */
  | { type: "groupsGathered"; id: number; gathered: Gathered }
  | { type: "shutdown"; mode: ShutdownMode };

/** The process ids of a pool's backends. */
export interface PoolBackends {
  readonly leaf: string;
  readonly pids: readonly number[];
}

/** What a worker has done of a command; see `Work` in shared/console. */
export interface Performed {
  readonly left: number;
  readonly found: boolean;
}

export type LogLevelName = "debug" | "info" | "warning" | "error";

export interface LogRecord {
  readonly level: LogLevelName;
  readonly message: string;
}

export type ToControl =
  | { type: "wake"; fd: number }
  | { type: "ready"; addresses: readonly string[] }
  | { type: "failed"; message: string }
  | { type: "log"; records: readonly LogRecord[] }
  | {
    type: "salt";
    id: number;
    password: string | Uint8Array;
    salt: Uint8Array;
    iterations: number;
  }
  | { type: "nameUser"; id: number; uid: number }
  | { type: "resolve"; id: number; host: string }
  | { type: "checkPassword"; id: number; proof: PasswordProof }
  /** Who gave the password has left. */
  | { type: "abandonPassword"; id: number }
  | { type: "routeCancel"; id: number; workerId: number; processId: number; secret: Uint8Array }
  | { type: "cancelOutcome"; id: number; outcome: CancelOutcome }
  | { type: "reports"; reports: readonly Report[] }
  /** A client of the console gave a command. */
  | { type: "command"; id: number; command: Command; user: string }
  | { type: "performed"; id: number; performed: Performed }
  /** Who gave it has left, or cancels it: nobody waits for its outcome. */
  | { type: "abandon"; id: number }
  /** A client of the console wants to see the resource groups of the mesh. */
  | { type: "gatherGroups"; id: number }
  | { type: "groupUses"; id: number; uses: GroupUses }
  /** All backends of this worker; only where somebody counts them. */
  | { type: "backends"; pools: readonly PoolBackends[] }
  /** All backends of this worker that are in a resource group. */
  | { type: "groupBackends"; rows: readonly GroupRow[] }
  /** A client has changed tables of this database: the other workers are to be told. */
  | { type: "tablesChanged"; database: string }
  /** It takes no new clients: told to, by control or from the console. */
  | { type: "draining" }
  | { type: "stopped" };
