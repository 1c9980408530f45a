// What the control thread and the data-plane thread say to each other. Plain data only: it is cloned.

import type { Config } from "../../shared/config/mod.ts";
import type { CancelOutcome } from "../../shared/bus/mod.ts";

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
    /** Keys the mock secrets of unknown users; the same on all workers. */
    mockKey: Uint8Array;
    gauges: Int32Array;
    version: string;
  }
  | { type: "salted"; id: number; salted: Uint8Array | null }
  | { type: "resolved"; id: number; addresses: readonly string[]; reason: string }
  /** From another worker: cancel what this client runs. */
  | { type: "cancel"; id: number; processId: number; secret: Uint8Array }
  /** How the owner of a key that we asked has dealt with it; null = no answer. */
  | { type: "cancelRouted"; id: number; outcome: CancelOutcome | null }
  | { type: "drain" }
  | { type: "stop" };

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
  | { type: "resolve"; id: number; host: string }
  | { type: "routeCancel"; id: number; workerId: number; processId: number; secret: Uint8Array }
  | { type: "cancelOutcome"; id: number; outcome: CancelOutcome }
  /** It takes no new clients: told to, by control or from the console. */
  | { type: "draining" }
  | { type: "stopped" };
