// A connection that listens, to one database and in one client_encoding: one login, one query at a time, and
// what it is told of. When there is one, and for which channels, is listener.ts.
// What it has read is copied out of the arena: what is done about it may move other connections' bytes.

import { errnoText } from "../../../shared/sys/mod.ts";
import {
  Backend,
  backendFrameProblem,
  concatBytes,
  Frontend,
  latin1Bytes,
  message,
  type ParsedError,
  parseErrorFields,
  readInt32,
  terminateMessage,
} from "../../../shared/wire/mod.ts";
import { TAIL_MAX } from "./arena.ts";
import type { DirectSlots } from "./direct_slots.ts";
import type { Plane } from "./plane.ts";
import type { Pool } from "./pool.ts";
import type { Refusal } from "./refusals.ts";
import { ServerConnection } from "./server.ts";
import type { ServerConsumer, ServerOwner } from "./server_owner.ts";
import { ServerState } from "./server_state.ts";

/** What an operator sees of it in PostgreSQL. */
const applicationName = "pgweir listener";
const terminate = terminateMessage();
const nothing = new Uint8Array(0);

export interface ListenerEvents {
  /** It is logged in. */
  onUp(): void;
  /** It could not connect or log in. */
  onFailed(failure: Refusal): void;
  /** It was logged in, and is closed. */
  onLost(reason: string): void;
  /** What was asked is answered. */
  onAnswer(failure: ParsedError | null): void;
  /** A whole NotificationResponse: a copy. */
  onNotification(bytes: Uint8Array): void;
  /** All that was read is dealt with. */
  onRead(): void;
}

export class ListenerConnection implements ServerOwner, ServerConsumer {
  readonly pool: Pool;
  readonly server: ServerConnection;
  readonly startupParameters: Iterable<readonly [string, string]>;
  readonly #plane: Plane;
  readonly #slots: DirectSlots;
  readonly #events: ListenerEvents;
  #tail: Uint8Array = nothing;
  #failure: ParsedError | null = null;
  #isUp = false;
  #reason = "server closed the connection";
  /** A query is not answered. */
  busy = false;
  /** When it was asked, or last said something. */
  heardAt: number;

  constructor(
    plane: Plane,
    pool: Pool,
    slots: DirectSlots,
    encoding: string,
    events: ListenerEvents,
  ) {
    this.#plane = plane;
    this.pool = pool;
    this.#slots = slots;
    this.#events = events;
    this.heardAt = plane.reactor.now;
    const own: [string, string][] = [["application_name", applicationName]];
    if (encoding !== "") own.push(["client_encoding", encoding]);
    this.startupParameters = [...pool.startupParameters, ...own];
    this.server = new ServerConnection(plane, pool, this, plane.nextId());
  }

  get lease() {
    return this.#slots.lease;
  }

  open(host: string): void {
    this.#slots.servers.add(this.server);
    this.server.connect(host, this.pool.database.port);
  }

  /** Sends a query, one character per byte; it is not busy. */
  ask(sql: string): void {
    this.busy = true;
    this.heardAt = this.#plane.reactor.now;
    this.#failure = null;
    const result = this.server.stream.sendBytes(message(Frontend.query, latin1Bytes(`${sql}\0`)));
    if (result < 0) this.server.onBroken(errnoText(-result));
  }

  /** Closes it; `onLost` is called if it was up. */
  close(reason: string): void {
    this.#reason = reason;
    if (this.#isUp && !this.server.isClosed && this.server.stream.pending === 0) {
      this.server.stream.sendBytes(terminate);
    }
    this.server.close(reason);
  }

  // --- as the owner of the server connection

  onReady(server: ServerConnection): void {
    server.consumer = this;
    server.move(ServerState.active);
    this.#isUp = true;
    this.#plane.logNewServer(server);
    this.#events.onUp();
  }

  onIdle(server: ServerConnection): void {
    server.close("unexpectedly idle");
  }

  onClosed(server: ServerConnection): void {
    this.#slots.servers.delete(server);
    if (!this.#isUp) return;
    this.#isUp = false;
    this.#events.onLost(this.#reason);
  }

  onLoginFailed(_server: ServerConnection, failure: Refusal): void {
    this.#events.onFailed(failure);
  }

  onSlotFree(): void {
    this.#slots.onSlotFree();
  }

  // --- what the server says

  onServerDrained(): void {}

  consume(at: number, end: number): number {
    this.heardAt = this.#plane.reactor.now;
    const bytes = concatBytes(this.#tail, this.#plane.arena.bytes.subarray(at, end));
    let from = 0;
    while (bytes.length - from >= 5 && this.#isUp) {
      const type = bytes[from] as number;
      const length = readInt32(bytes, from + 1);
      if (backendFrameProblem(type, length) !== null || length > TAIL_MAX) {
        this.close("bad pkt header");
        return end;
      }
      const next = from + 1 + length;
      if (next > bytes.length) break;
      this.#message(type, bytes, from, next);
      from = next;
    }
    this.#tail = bytes.slice(from);
    this.#events.onRead();
    return end;
  }

  #message(type: number, bytes: Uint8Array, from: number, next: number): void {
    switch (type) {
      case Backend.notification:
        return this.#events.onNotification(bytes.slice(from, next));
      case Backend.errorResponse: {
        const failure = parseErrorFields(bytes.subarray(from + 5, next));
        if (failure.severity === "FATAL" || failure.severity === "PANIC") {
          return this.close(failure.message);
        }
        this.#failure = failure;
        return;
      }
      case Backend.readyForQuery: {
        if (!this.busy) return this.close("unexpected packet");
        this.busy = false;
        return this.#events.onAnswer(this.#failure);
      }
    }
  }
}
