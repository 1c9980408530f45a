// Ends what lasts too long, ten times a second: clients that wait for a server, work with one, or do nothing.
// The limits and what passes them are in deadlines.ts. Where nothing is limited nothing is looked at.

import type { Config } from "../../../shared/config/mod.ts";
import { ClientSession } from "./client.ts";
import { isOver, LimitTable, overdueWork } from "./deadlines.ts";
import { queuedNotice } from "./notices.ts";
import type { Plane } from "./plane.ts";
import type { Pool, Waiter } from "./pool.ts";
import { type Refusal, refusals } from "./refusals.ts";
import type { ServerConnection } from "./server.ts";
import { statusIdle } from "./server_state.ts";

/** Idle clients that are disconnected in one sweep: more would hold up those that are at work. */
const disconnectsMax = 500;

/** What it is told whose wait has been too long for query_wait_timeout, or for query_timeout. */
interface WaitTexts {
  readonly wait: Refusal;
  readonly query: Refusal;
}
const groupTexts: WaitTexts = {
  wait: refusals.groupWaitTimeout,
  query: refusals.groupQueryTimeout,
};

export class Timeouts {
  readonly #plane: Plane;
  #config: Config;
  #limits: LimitTable;
  /** Of the last sweep: when it was, and query_wait_notify then. */
  #sweptAt = -Infinity;
  #notifyMs = 0;
  /** No client has been idle for too long before that. */
  #idleDueAt = 0;
  /** Since when servers were seen at rest in an open cycle, and which request was their last one then. */
  readonly #resting = new WeakMap<ServerConnection, { requestAt: number; since: number }>();

  constructor(plane: Plane) {
    this.#plane = plane;
    this.#config = plane.config;
    this.#limits = new LimitTable(plane.config);
  }

  /** Called ten times a second. */
  sweep(now: number): void {
    const { config, pools } = this.#plane;
    if (config !== this.#config) {
      this.#config = config;
      this.#limits = new LimitTable(config);
      this.#idleDueAt = 0;
    }
    for (const pool of pools.values()) {
      // As in PgBouncer: a pause is no fault of those who wait.
      if (pool.waiting > 0 && !this.#plane.operator.paused) this.#sweepQueue(pool, now);
      if (this.#limits.limitsWork) this.#sweepWork(pool, now);
    }
    if (!this.#plane.operator.paused) this.#sweepGroups(now);
    if (now >= this.#idleDueAt) this.#sweepIdle(now);
    this.#sweptAt = now;
    this.#notifyMs = config.settings.queryWaitNotifyMs;
  }

  #sweepQueue(pool: Pool, now: number): void {
    const { queryWaitNotifyMs } = this.#config.settings;
    const texts = { wait: pool.queueRefusal(), query: refusals.queuedQueryTimeout };
    let waiter = pool.firstWaiter;
    while (waiter !== null) {
      const next: Waiter | null = waiter.nextWaiter;
      const since = waiter.waitingSince;
      const refusal = this.#overdueWait(pool, waiter, texts, now);
      if (refusal !== null) waiter.fail(refusal);
      else if (
        isOver(queryWaitNotifyMs, since, now) && !isOver(this.#notifyMs, since, this.#sweptAt)
      ) {
        // Only once it is logged in: before, drivers take a notice for a broken login.
        if (waiter instanceof ClientSession && waiter.login === null) {
          waiter.stream.sendBytes(queuedNotice);
        }
      }
      waiter = next;
    }
  }

  /** Why a client waits no longer, for a server or for room in its group. */
  #overdueWait(pool: Pool, waiter: Waiter, texts: WaitTexts, now: number): Refusal | null {
    const since = waiter.waitingSince;
    // A look-up of a user is nobody's query.
    const queryMs = waiter instanceof ClientSession ? this.#limits.of(waiter.user).queryMs : 0;
    if (isOver(queryMs, since, now)) return texts.query;
    return isOver(pool.waitTimeoutMs(waiter), since, now) ? texts.wait : null;
  }

  #sweepGroups(now: number): void {
    for (const client of this.#plane.admission.waiters()) {
      const pool = client.pool as Pool;
      const refusal = this.#overdueWait(pool, client, groupTexts, now);
      if (refusal !== null) client.fail(refusal);
    }
  }

  #sweepWork(pool: Pool, now: number): void {
    for (const server of [...pool.servers]) {
      const { client } = server;
      // A login waits for it: client_login_timeout is for that.
      if (client === null || client.login !== null) continue;
      const running = server.requests.count > 0;
      const { requestAt, transactionAt } = server;
      const open = server.status !== statusIdle || !server.synced;
      const idleSince = running || !open ? now : this.#restingSince(server, now);
      const work = { running, open, requestAt, transactionAt, idleSince };
      const refusal = overdueWork(this.#limits.of(client.user), work, now);
      if (refusal !== null) client.fail(refusal);
    }
  }

  /** Since when a server has been waiting for its client to go on. */
  #restingSince(server: ServerConnection, now: number): number {
    const { requestAt } = server;
    // ReadyForQuery was the last it said, and then.
    if (server.synced) return requestAt;
    const seen = this.#resting.get(server);
    if (seen?.requestAt === requestAt) return seen.since;
    this.#resting.set(server, { requestAt, since: now });
    return now;
  }

  #sweepIdle(now: number): void {
    const { shortestIdleMs } = this.#limits;
    // Who works now, or comes later, is not idle for so long before that.
    let due = now + shortestIdleMs;
    let left = disconnectsMax;
    if (due < Infinity) {
      for (const client of this.#plane.clients) {
        const { clientIdleMs } = this.#limits.of(client.user);
        if (clientIdleMs === 0) continue;
        const since = idleSince(client);
        if (since === Infinity) continue;
        if (!isOver(clientIdleMs, since, now)) {
          due = Math.min(due, since + clientIdleMs);
        } else if (left-- > 0) {
          client.fail(refusals.clientIdleTimeout);
        } else {
          due = now;
          break;
        }
      }
    }
    this.#idleDueAt = due;
  }
}

/** Since when a client does nothing and waits for nothing; Infinity = it does. */
function idleSince(client: ClientSession): number {
  const { server } = client;
  const isClient = client.pool !== null && client.login === null;
  if (!isClient || client.queued || client.awaitsSync || client.held) return Infinity;
  // Who listens waits for notifications; who does not take what it was sent has not read its answer.
  if (client.inbox !== null || client.output === null || client.stream.pending > 0) return Infinity;
  if (server === null) return client.idleSince;
  if (!server.quiet || server.residue.hears) return Infinity;
  return Math.max(client.idleSince, server.requestAt);
}
