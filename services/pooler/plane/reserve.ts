// The reserve of a pool: servers beyond its size, opened only for clients that have waited for
// reserve_pool_timeout. Its slots are a lease of their own, so what the mesh has of them is as exact as the rest.
// Invariant: a server is paid for by the reserve only while the pool's own lease has no room for it.

import { type Lease, reserveLeaf } from "../../../shared/ledger/mod.ts";
import type { LeaseOwner } from "./budget.ts";
import { ClientSession } from "./client.ts";
import { clientLabel, serverLabel } from "./log_lines.ts";
import type { Pool, SlotHolder } from "./pool.ts";
import type { Refusal } from "./refusals.ts";
import type { ServerConnection } from "./server.ts";
import { ServerState } from "./server_state.ts";

export class Reserve implements LeaseOwner, SlotHolder {
  readonly lease: Lease;
  readonly #pool: Pool;
  readonly #servers = new Set<ServerConnection>();
  /** Clients that have waited long enough, and have no server on its way. */
  #lacking = 0;

  constructor(pool: Pool) {
    this.#pool = pool;
    this.lease = pool.plane.budget.lease(reserveLeaf(pool.database.name, pool.user), this);
  }

  get size(): number {
    return this.#servers.size;
  }

  get startupParameters(): Pool["startupParameters"] {
    return this.#pool.startupParameters;
  }

  /** Called ten times a second; `late`: clients that have waited for reserve_pool_timeout. */
  sweep(now: number, late: number): void {
    const pool = this.#pool;
    for (const server of this.#servers) {
      if (pool.lease.room === 0) break;
      if (server.login !== null) continue;
      this.#servers.delete(server);
      pool.takeOver(server);
    }
    this.#lacking = Math.max(0, late - pool.coming);
    if (this.#lacking > 0 && pool.lease.room === 0) {
      this.measure();
      pool.plane.budget.ask();
      pool.openFor(this, this.#lacking);
    }
    const { reservePoolTimeoutMs } = pool.plane.settings;
    for (const server of [...this.#servers]) {
      const isIdle = server.state === ServerState.idle;
      if (isIdle && now - server.idleSince >= reservePoolTimeoutMs) {
        server.close("reserve not needed any more");
      }
    }
  }

  opened(server: ServerConnection): void {
    this.#servers.add(server);
    // For whom: who waits longest, or else, for a look-up of a user, the server.
    const { firstWaiter, plane } = this.#pool;
    const isClient = firstWaiter instanceof ClientSession;
    const label = isClient ? clientLabel(firstWaiter) : serverLabel(server);
    plane.control.log("warning", `${label} taking connection from reserve_pool`);
  }

  // --- slots

  onLease(): void {
    this.#pool.shed(this);
  }

  measure(): void {
    this.#pool.shed(this);
    let busy = 0;
    for (const { state } of this.#servers) if (state !== ServerState.idle) busy++;
    this.lease.idleMs = busy < this.#servers.size ? 1 : 0;
    this.lease.want(busy + this.#lacking);
  }

  onSlotFree(): void {
    this.lease.held--;
    this.lease.touch();
    this.#pool.plane.budget.ask();
  }

  // --- servers: they are the pool's

  onReady(server: ServerConnection, parameters: ReadonlyMap<string, string>): void {
    this.#pool.onReady(server, parameters);
  }

  onIdle(server: ServerConnection): void {
    this.#pool.onIdle(server);
  }

  onClosed(server: ServerConnection): void {
    this.#servers.delete(server);
    this.#pool.onClosed(server);
  }

  onLoginFailed(server: ServerConnection, failure: Refusal, isLast: boolean): void {
    this.#pool.onLoginFailed(server, failure, isLast);
  }
}
