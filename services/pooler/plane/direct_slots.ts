// The slots of a database and user for server connections outside of a pool: a listener, replication
// clients. They count in max_db_connections and max_user_connections, not in the pool's size. Strictly
// first come, first served.
// Invariant: a slot is taken by ServerConnection.connect, and given back by `onSlotFree` alone.

import { directLeaf, type Lease } from "../../../shared/ledger/mod.ts";
import type { LeaseOwner } from "./budget.ts";
import type { Plane } from "./plane.ts";
import type { ServerConnection } from "./server.ts";

export class DirectSlots implements LeaseOwner {
  readonly database: string;
  readonly user: string;
  readonly lease: Lease;
  /** The connections that hold the slots and are not closed on this side. */
  readonly servers = new Set<ServerConnection>();
  readonly #plane: Plane;
  #waiting: (() => void)[] = [];
  #held: boolean;

  constructor(plane: Plane, database: string, user: string) {
    this.#plane = plane;
    this.database = database;
    this.user = user;
    this.lease = plane.budget.lease(directLeaf(database, user), this);
    this.#held = plane.operator.holds(database);
  }

  /** Operators have paused the database: nobody is given a slot. */
  set held(held: boolean) {
    this.#held = held;
    this.#admit();
  }

  /** Calls `open`, which connects a server before it returns, as soon as there is a slot for it. */
  request(open: () => void): void {
    this.#waiting.push(open);
    this.#admit();
    this.#want();
    if (this.#waiting.length > 0) this.#plane.budget.ask();
  }

  /** `open` is not called any more. */
  withdraw(open: () => void): void {
    this.#waiting = this.#waiting.filter((other) => other !== open);
    this.#want();
  }

  onSlotFree(): void {
    this.lease.held--;
    this.lease.touch();
    this.#plane.budget.ask();
    this.#admit();
    this.#want();
  }

  onLease(): void {
    this.#admit();
    this.#want();
  }

  measure(now: number): void {
    let opening = 0;
    for (const server of [...this.servers]) {
      // Beyond the lease, one that PostgreSQL may not show yet would be counted by nobody.
      if (this.#plane.budget.isLost && this.lease.held > this.lease.limit) {
        server.login?.loseSlot();
      }
      server.login?.checkTime(now);
      if (server.login !== null) opening++;
    }
    this.lease.opening = opening;
    this.#admit();
    this.#want();
  }

  #admit(): void {
    if (this.#held || this.#waiting.length === 0) return;
    this.#plane.budget.expire();
    while (this.#waiting.length > 0 && this.lease.room > 0) (this.#waiting.shift() as () => void)();
  }

  #want(): void {
    this.lease.want(this.lease.held + this.#waiting.length);
  }
}
