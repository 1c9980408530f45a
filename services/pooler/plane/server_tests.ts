// Tests of idle servers of one pool before they are used: server_check_query, for those that have been idle for
// server_check_delay. A client never meets a connection that died unseen: it waits until one has answered.
// Tests that take long are not counted on: then all others are tested too, and new servers are opened.

import type { Plane } from "./plane.ts";
import type { ServerConnection } from "./server.ts";

/** As PgBouncer's default stands in the file: an empty query, not none. */
const emptyQuery = "<empty>";
/** An answer takes a round trip: after so long something is wrong. */
const lateMs = 500;

export class ServerTests {
  readonly #plane: Plane;
  /** Servers that are tested, and since when. */
  readonly #running = new Map<ServerConnection, number>();
  /** When servers were last seen to answer, by a login or a test. */
  readonly #provenAt = new WeakMap<ServerConnection, number>();
  #failedAt = -Infinity;

  constructor(plane: Plane) {
    this.#plane = plane;
  }

  /** Whether an idle server has to be tested before it is used. */
  isDue(server: ServerConnection): boolean {
    const { settings, reactor } = this.#plane;
    if (settings.serverCheckQuery === "") return false;
    const { serverCheckDelayMs } = settings;
    if (serverCheckDelayMs > 0) return reactor.now - server.idleSince >= serverCheckDelayMs;
    return this.#provenAt.get(server) !== reactor.now;
  }

  /** Tests a server that was idle: it is idle again, or closed. */
  start(server: ServerConnection): void {
    const { settings, reactor } = this.#plane;
    this.#running.set(server, reactor.now);
    server.upkeep.test(settings.serverCheckQuery === emptyQuery ? "" : settings.serverCheckQuery);
  }

  /** A server is about to be idle: its test, if it was one, was passed. */
  onIdle(server: ServerConnection): void {
    if (!this.#running.delete(server) && server.linkedAt > 0) return;
    this.#provenAt.set(server, this.#plane.reactor.now);
  }

  onClosed(server: ServerConnection): void {
    if (this.#running.delete(server)) this.#failedAt = this.#plane.reactor.now;
  }

  /** Servers that will be usable in a moment, as far as one can tell. */
  get hopeful(): number {
    const { now } = this.#plane.reactor;
    let count = 0;
    for (const since of this.#running.values()) if (now - since < lateMs) count++;
    return count;
  }

  /** One has failed just now, or is late: others may have died with it. */
  get areSuspicious(): boolean {
    const { now } = this.#plane.reactor;
    return now - this.#failedAt < lateMs || this.hopeful < this.#running.size;
  }
}
