// What operators do to this worker from the console, whoever's: pause, suspend, disable, disconnect, reconnect.
// Whether they may, and for how long a command waits, is decided elsewhere (shared/console).

import { type Command, type OperatorState, untouched } from "../../../shared/console/mod.ts";
import type { Performed } from "../messages.ts";
import type { ClientSession } from "./client.ts";
import { shownId } from "./console/mod.ts";
import type { DirectSlots } from "./direct_slots.ts";
import type { Plane } from "./plane.ts";
import type { Pool } from "./pool.ts";
import { refusals } from "./refusals.ts";

export class Operator {
  readonly #plane: Plane;
  #state: OperatorState = untouched;
  #releases = false;

  constructor(plane: Plane) {
    this.#plane = plane;
  }

  /** All servers are given back for good: it shuts down (WAIT_FOR_SERVERS). */
  get releases(): boolean {
    return this.#releases;
  }

  /** No client has a server any more. */
  get isReleased(): boolean {
    for (const { servers } of this.#plane.pools.values()) if (servers.size > 0) return false;
    for (const { servers } of this.#plane.direct.values()) if (servers.size > 0) return false;
    return true;
  }

  /** Nobody gets a server any more, and who waits for one is sent away. */
  release(): void {
    this.#releases = true;
    this.#hold(false);
    for (const pool of this.#plane.pools.values()) pool.failWaiters(refusals.serverShuttingDown);
    for (const client of this.#plane.admission.waiters()) client.fail(refusals.serverShuttingDown);
  }

  get paused(): boolean {
    return this.#state.paused;
  }

  get suspended(): boolean {
    return this.#state.suspended;
  }

  /** No servers are given for the database. */
  holds(database: string): boolean {
    return this.#releases || this.#state.paused || this.isPaused(database);
  }

  isPaused(database: string): boolean {
    return this.#state.pausedDatabases.includes(database);
  }

  isDisabled(database: string): boolean {
    return this.#state.disabledDatabases.includes(database);
  }

  /** `again`: the command was given before, and only what is left of it is asked. */
  perform(command: Command, state: OperatorState, again: boolean): Performed {
    this.takeOver(state);
    let found = false;
    if (!again) found = this.#begin(command);
    return { left: this.#left(command), found };
  }

  /** Takes over a state, if it is newer than the one that is known. */
  takeOver(state: OperatorState): void {
    if (state.revision <= this.#state.revision) return;
    const { paused, suspended } = this.#state;
    this.#state = state;
    this.#hold(paused);
    if (state.suspended === suspended) return;
    if (state.suspended) this.#plane.suspension.begin();
    else this.#plane.suspension.end();
  }

  /** `wasPaused`: the pooler as a whole was, before. */
  #hold(wasPaused: boolean): void {
    for (const pool of this.#plane.pools.values()) {
      const held = this.holds(pool.database.name);
      if (held === pool.held) continue;
      if (held) pool.hold();
      else pool.resume(wasPaused);
    }
    for (const slots of this.#plane.direct.values()) slots.held = this.holds(slots.database);
    for (const listener of this.#plane.notifier.listeners) {
      if (this.holds(listener.database.name)) listener.reconnect("pause mode");
    }
  }

  /** Returns whether the client that is meant is one of this worker. */
  #begin(command: Command): boolean {
    switch (command.kind) {
      case "kill":
        for (const client of this.#clientsOf(command.database)) {
          client.fail(refusals.adminDisconnect);
        }
        for (const pool of this.#poolsOf(command.database)) pool.kill();
        return false;
      case "reconnect":
        for (const pool of this.#poolsOf(command.database)) pool.outdate("close_needed");
        for (const listener of this.#plane.notifier.listeners) {
          if (isMeant(command.database, listener.database.name)) {
            listener.reconnect("close_needed");
          }
        }
        return false;
      case "kill_client": {
        const client = [...this.#plane.clients].find((each) =>
          shownId(this.#plane.seat, each.id) === command.client
        );
        client?.fail(refusals.adminDisconnect);
        return client !== undefined;
      }
      default:
        return false;
    }
  }

  /** Connections that have yet to be closed, or to come to rest. */
  #left(command: Command): number {
    let left = 0;
    if (command.kind === "suspend") return this.#plane.suspension.proceed();
    if (command.kind === "pause") {
      for (const { backends } of this.#poolsOf(command.database)) left += backends;
      for (const { database, lease } of this.#directOf(command.database)) {
        if (isMeant(command.database, database)) left += lease.held;
      }
    } else if (command.kind === "wait_close") {
      for (const { servers } of this.#poolsOf(command.database)) {
        for (const server of servers) if (server.closeNeeded) left++;
      }
    }
    return left;
  }

  /** Those of the console belong to no database. */
  #clientsOf(database: string | null): ClientSession[] {
    return [...this.#plane.clients].filter((client) =>
      (client.pool !== null || client.tunnel !== null) && isMeant(database, client.database)
    );
  }

  #poolsOf(database: string | null): Pool[] {
    return [...this.#plane.pools.values()].filter((pool) => isMeant(database, pool.database.name));
  }

  #directOf(database: string | null): DirectSlots[] {
    return [...this.#plane.direct.values()].filter((slots) => isMeant(database, slots.database));
  }
}

function isMeant(wanted: string | null, database: string): boolean {
  return wanted === null || wanted === database;
}
