// A limit on clients: `max_client_conn` and its like. The limit is the mesh's, and this worker holds a
// lease on a part of it; a client that comes when the part is used up waits until the budget has
// answered: more, or no more. While nobody answers it waits as in a pool's queue. Cold code: once per
// login.
// Invariant: a client is counted from when it got in until it is closed, exactly once.

import type { Lease } from "../../../shared/ledger/mod.ts";
import type { LeaseOwner } from "./budget.ts";
import type { ClientSession } from "./client.ts";
import type { Plane } from "./plane.ts";
import { type Refusal, refusals } from "./refusals.ts";

/** How long a client waits for slots that are on their way, as when a coordinator takes over, before it is refused. */
const answerMs = 15_000;

export const noGates: readonly ClientGate[] = [];

interface Waiter {
  readonly client: ClientSession;
  readonly decided: (refusal: Refusal | null) => void;
  readonly since: number;
  /** The newest report when it came: only an answer to a later one is about it. */
  readonly after: number;
  /** A report that it was counted in; 0 = none yet. */
  countedIn: number;
}

export class ClientGate implements LeaseOwner {
  readonly lease: Lease;
  readonly #plane: Plane;
  readonly #refusal: Refusal;
  #waiting: Waiter[] = [];

  constructor(plane: Plane, leaf: string, refusal: Refusal) {
    this.#plane = plane;
    this.#refusal = refusal;
    this.lease = plane.budget.lease(leaf, this);
  }

  /** Lets a client in at once, if there is room and nobody came before it. */
  enter(): boolean {
    if (this.#waiting.length > 0 || this.lease.room === 0) return false;
    this.#count(1);
    return true;
  }

  /** Calls `decided` when the client is in, or is refused; not if it is closed before. */
  wait(client: ClientSession, decided: (refusal: Refusal | null) => void): void {
    const { lease } = this;
    const { now } = this.#plane.reactor;
    this.#waiting.push({ client, decided, since: now, after: lease.lastReportSeq, countedIn: 0 });
    this.measure(now);
    lease.touch();
    this.#plane.budget.ask();
  }

  /** Counts a client that is in already: the limit is new. */
  count(): void {
    this.#count(1);
  }

  leave(): void {
    this.#count(-1);
    if (this.#waiting.length > 0) this.#admit();
  }

  onLease(): void {
    if (this.#waiting.length === 0) return;
    this.#admit();
    const { lease } = this;
    for (const waiter of this.#waiting) {
      if (waiter.countedIn === 0 && lease.lastReportSeq > waiter.after) {
        waiter.countedIn = lease.lastReportSeq;
      }
    }
    // More is on its way to this worker; or the answer is to a report from before they came.
    if (lease.pending) return;
    this.#refuse(({ countedIn }) => countedIn > 0 && lease.answeredSeq >= countedIn);
  }

  measure(now: number): void {
    if (this.#waiting.length > 0) {
      this.#waiting = this.#waiting.filter(({ client }) => !client.closed);
      const { budget, settings } = this.#plane;
      const answeredAt = now - budget.silentMs;
      this.#refuse(({ since }) => now - since >= answerMs && answeredAt > since);
      if (budget.isSilent && settings.queryWaitTimeoutMs > 0) {
        const isOver = ({ since }: Waiter) => now - since >= settings.queryWaitTimeoutMs;
        this.#refuse(isOver, refusals.noCoordinator);
      }
    }
    this.#want();
  }

  #want(): void {
    this.lease.want(this.lease.held + this.#waiting.length);
  }

  #count(change: 1 | -1): void {
    this.lease.held += change;
    this.lease.touch();
    this.#want();
  }

  #admit(): void {
    while (this.#waiting.length > 0 && this.lease.room > 0) {
      const { client, decided } = this.#waiting.shift() as Waiter;
      if (client.closed) continue;
      this.#count(1);
      decided(null);
    }
  }

  #refuse(is: (waiter: Waiter) => boolean, refusal = this.#refusal): void {
    const refused = this.#waiting.filter(is);
    if (refused.length === 0) return;
    this.#waiting = this.#waiting.filter((waiter) => !is(waiter));
    // At once: slots that are kept for clients who are gone may be lacking where others wait.
    this.#want();
    this.#plane.budget.ask();
    for (const { client, decided } of refused) if (!client.closed) decided(refusal);
  }
}
