// Server connections that were closed on this side and not yet on PostgreSQL's: until its backend has
// gone, such a connection is one of those that PostgreSQL allows, and keeps its slot.
// Invariant: each gives its slot back once: when PostgreSQL closes, when the connection breaks, or when
// it has taken longer than any backend in health does.

import type { Stream } from "../../../shared/sys/mod.ts";
import type { Plane } from "./plane.ts";
import type { ServerConnection } from "./server.ts";

/** A backend that has nothing to do goes in milliseconds. */
const idleMs = 5000;
/** One that works was sent a cancel request, and may have to roll back. */
const busyMs = 60_000;

interface Departure {
  readonly server: ServerConnection;
  readonly stream: Stream;
  readonly until: number;
}

export class Departures {
  readonly #plane: Plane;
  #leaving: Departure[] = [];

  constructor(plane: Plane) {
    this.#plane = plane;
  }

  /** Ends a connection; `busy`: its backend has not answered all it was asked. */
  add(server: ServerConnection, busy: boolean): void {
    // Unset if the connection failed before there was a socket.
    const stream = server.stream as Stream | undefined;
    if (stream === undefined) return this.#end(server);
    const limit = busy ? busyMs : idleMs;
    stream.retire(limit);
    if (stream.closed) return this.#end(server);
    this.#leaving.push({ server, stream, until: this.#plane.reactor.now + limit });
  }

  /** Called after each batch of events. */
  onBatchEnd(): void {
    if (this.#leaving.length === 0) return;
    const gone = this.#leaving.filter(({ stream }) => stream.closed);
    if (gone.length === 0) return;
    this.#leaving = this.#leaving.filter(({ stream }) => !stream.closed);
    const { now } = this.#plane.reactor;
    for (const { server, until } of gone) {
      if (now >= until) this.#plane.logServer(server, "PostgreSQL did not close the connection");
      this.#end(server);
    }
  }

  #end(server: ServerConnection): void {
    this.#plane.openServers--;
    if (server.place !== null) this.#plane.admission.end(server);
    server.owner.onSlotFree();
  }
}
