// Who a server connection was opened for: a pool, the listener of a database, a replication client. It
// pays for it with a slot, and is told what becomes of it. The pool the connection belongs to by name,
// user and secrets is another matter: it is the same for all of them.

import type { Lease } from "../../../shared/ledger/mod.ts";
import type { Refusal } from "./refusals.ts";
import type { ParsedError } from "../../../shared/wire/mod.ts";
import type { ServerConnection } from "./server.ts";
import type { Replication } from "./startup.ts";
import type { Tag } from "./tags.ts";

export interface ServerOwner {
  /** Pays for it: `held` counts it from before it connects until PostgreSQL has closed its end. */
  readonly lease: Lease;
  /** What it logs in with, beside user and database. */
  readonly startupParameters: Iterable<readonly [string, string]>;
  /** Of a replication client. */
  readonly replication?: Replication;
  /** The login is over; `parameters` is what the server reported. */
  onReady(server: ServerConnection, parameters: ReadonlyMap<string, string>): void;
  /** Nothing is left to be done on it, and nobody has it. */
  onIdle(server: ServerConnection): void;
  /** It is closed on this side; its slot is free later. Not after a login that failed. */
  onClosed(server: ServerConnection): void;
  /** The attempt to connect or the login failed; it is closed. `isLast`: so it did on all its hosts. */
  onLoginFailed(server: ServerConnection, failure: Refusal, isLast: boolean): void;
  /** PostgreSQL has closed its end of a connection, or there was none. */
  onSlotFree(): void;
}

/** A connection that is more than one of its pool's: it speaks for itself once it is logged in. */
export interface ServerConsumer {
  /** Consumes messages of [at, end) of the arena; returns where the unfinished one begins. */
  consume(at: number, end: number): number;
  /** All that was queued for the server was taken. */
  onServerDrained(): void;
  /** It is closed on this side; for who is not its owner. */
  onServerClosed?(): void;
}

/** A query of the pooler's on a server. */
export interface OwnQuery {
  /** Called with the tag of each of its commands. */
  readonly onTag: ((tag: Tag) => void) | null;
  /** Called with the body of each row, valid until the call ends; not for long ones. */
  readonly onRow?: (body: Uint8Array) => void;
  /** Called after its ReadyForQuery. */
  readonly onEnd: (failure: ParsedError | null) => void;
}
