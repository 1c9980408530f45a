// Looks up users that are not in the auth_file: auth_query on a server of auth_user's pool, which waits its turn
// there like a client. Every login asks: a secret that was changed, or has expired, counts at once.
// Logins of one user share a query, but only one that was sent after they came.
// Invariant: of one user at most one query runs at a time.

import { errnoText, type Timer } from "../../../shared/sys/mod.ts";
import {
  Backend,
  backendFrameProblem,
  concatBytes,
  parseErrorFields,
  queryMessage,
  readInt32,
} from "../../../shared/wire/mod.ts";
import { TAIL_MAX } from "./arena.ts";
import { AuthAnswer, authQueryMessages, type AuthTarget, type Found } from "./auth_query.ts";
import { kindOf } from "./login_retry.ts";
import type { Plane } from "./plane.ts";
import type { Pool, Waiter } from "./pool.ts";
import { lookupFailing, type Refusal, refusals } from "./refusals.ts";
import type { ServerConnection } from "./server.ts";
import { takeKey } from "./server_login.ts";
import type { ServerConsumer } from "./server_owner.ts";
import { ServerState } from "./server_state.ts";
import { wipeSettings } from "./upkeep.ts";

/** What came of it: what is known of the user, or why the login ends. */
export type LookedUp = Exclude<Found, { kind: "failed" }> | {
  readonly kind: "refused";
  readonly refusal: Refusal;
};

type Done = (result: LookedUp) => void;

export class UserLookups {
  readonly #plane: Plane;
  readonly #lookups = new Map<string, UserLookup>();

  constructor(plane: Plane) {
    this.#plane = plane;
  }

  /** Calls `done` once, unless it is withdrawn by the function that is returned. */
  find(target: AuthTarget, user: string, done: Done): () => void {
    const pool = this.#plane.poolOf(target.database, target.user);
    const key = [target.database.name, target.user, target.sql, user].join("\0");
    let lookup = this.#lookups.get(key);
    if (lookup === undefined) {
      lookup = new UserLookup(pool, target.sql, user, () => this.#lookups.delete(key));
      this.#lookups.set(key, lookup);
    }
    const begun = lookup;
    begun.add(done);
    return () => begun.withdraw(done);
  }
}

class UserLookup implements Waiter, ServerConsumer {
  readonly user: string;
  readonly login = null;
  readonly place = null;
  queued = false;
  waitingSince = 0;
  previousWaiter: Waiter | null = null;
  nextWaiter: Waiter | null = null;
  readonly #pool: Pool;
  readonly #sql: string;
  readonly #name: string;
  readonly #onOver: () => void;
  /** They wait for the answer to the query that runs. */
  #asking = new Set<Done>();
  /** They came after it was sent. */
  #next = new Set<Done>();
  #server: ServerConnection | null = null;
  #answer = new AuthAnswer();
  #isAnswered = false;
  /** ReadyForQuery is to come so often. */
  #cyclesLeft = 0;
  /** The query was lost with its server once. */
  #isRepeated = false;
  #timer: Timer | null = null;

  constructor(pool: Pool, sql: string, name: string, onOver: () => void) {
    this.#pool = pool;
    this.user = pool.user;
    this.#sql = sql;
    this.#name = name;
    this.#onOver = onOver;
  }

  add(done: Done): void {
    this.#next.add(done);
    this.#goOn();
  }

  withdraw(done: Done): void {
    this.#asking.delete(done);
    this.#next.delete(done);
    if (this.#next.size > 0 || !this.queued) return;
    this.#pool.dequeue(this);
    this.#onOver();
  }

  /** Asks for a server if somebody waits; ends if nobody does. */
  #goOn(): void {
    if (this.queued || this.#server !== null) return;
    if (this.#next.size === 0) return this.#onOver();
    const server = this.#pool.acquire(this);
    if (server !== null) this.onServer(server);
  }

  // --- as a waiter of the pool

  onServer(server: ServerConnection): void {
    const { plane } = this.#pool;
    const { now } = plane.reactor;
    server.move(ServerState.active);
    server.consumer = this;
    server.linkedAt = now;
    server.requestAt = now;
    server.unnamedOwner = null;
    this.#server = server;
    this.#asking = this.#next;
    this.#next = new Set();
    this.#answer = new AuthAnswer();
    this.#isAnswered = false;
    // Who asked has given up by then.
    const limit = plane.settings.clientLoginTimeoutMs;
    if (limit > 0) this.#timer = plane.reactor.after(limit, () => this.#onLate());
    let query = authQueryMessages(this.#sql, this.#name);
    this.#cyclesLeft = 1;
    if (!server.session.isPristine) {
      // What a client of auth_user's has set there, a search_path say, would change what the query means.
      query = concatBytes(queryMessage(wipeSettings), query);
      this.#cyclesLeft++;
      server.session.forget(true);
    }
    const result = server.stream.sendBytes(query);
    if (result < 0) server.onBroken(errnoText(-result));
  }

  /** The pool has no server for it. Whoever waits has proved nothing yet, and is not told why. */
  fail(reason: Refusal): void {
    this.#pool.dequeue(this);
    this.#tell({ kind: "refused", refusal: toldBeforeProof(reason) }, this.#next);
    this.#goOn();
  }

  #onLate(): void {
    const server = this.#server as ServerConnection;
    this.#refuse(refusals.lookupTimeout);
    this.#pool.plane.cancels.abandon(server);
    server.close("auth_query timeout");
  }

  #refuse(refusal: Refusal): void {
    const asking = this.#asking;
    this.#asking = new Set();
    this.#tell({ kind: "refused", refusal }, asking);
  }

  #tell(result: LookedUp, asking: Set<Done>): void {
    for (const done of [...asking]) {
      // One that was told may have ended another.
      if (asking.delete(done)) done(result);
    }
  }

  // --- as the consumer of what the server says

  onServerDrained(): void {}

  /** Nothing can be left of the query on a server that is gone. */
  onServerClosed(): void {
    this.#timer?.cancel();
    this.#server = null;
    if (this.#isRepeated) {
      this.#isRepeated = false;
      this.#refuse(lookupFailing(refusals.serverGone.message));
    } else if (this.#asking.size > 0) {
      // It was broken before, perhaps: a pool notices only when it is used.
      this.#isRepeated = true;
      for (const done of this.#asking) this.#next.add(done);
      this.#asking = new Set();
    }
    this.#goOn();
  }

  consume(at: number, end: number): number {
    const server = this.#server as ServerConnection;
    const { bytes } = this.#pool.plane.arena;
    while (end - at >= 5) {
      const type = bytes[at] as number;
      const length = readInt32(bytes, at + 1);
      if (backendFrameProblem(type, length) !== null || length > TAIL_MAX) {
        this.#violation("bad pkt header");
        return end;
      }
      const next = at + 1 + length;
      if (next > end) return at;
      const body = bytes.slice(at + 5, next);
      at = next;
      if (this.#isOfTheSession(server, type, body)) continue;
      if (this.#isAnswered || !this.#answer.take(type, body)) {
        this.#violation("unexpected response from auth_query");
        return end;
      }
      if (type !== Backend.readyForQuery) continue;
      this.#isAnswered = --this.#cyclesLeft === 0;
      server.status = body[0] as number;
    }
    // What follows may use the arena: not before all of it is read.
    if (this.#isAnswered && at === end) this.#onAnswer(server);
    return at;
  }

  /** What a server may say at any time, whatever it was asked. */
  #isOfTheSession(server: ServerConnection, type: number, body: Uint8Array): boolean {
    switch (type) {
      case Backend.noticeResponse:
      case Backend.notification:
        return true;
      case Backend.parameterStatus:
        server.session.onReport(body);
        return true;
      case Backend.backendKeyData:
        takeKey(server, body);
        return true;
      case Backend.errorResponse: {
        // Its last words: the end of the connection follows.
        const { severity } = parseErrorFields(body);
        return severity === "FATAL" || severity === "PANIC";
      }
      default:
        return false;
    }
  }

  #violation(what: string): void {
    this.#pool.plane.logPool(this.#pool, what);
    this.#refuse(refusals.lookupRefused);
    this.#server?.close(what);
  }

  #onAnswer(server: ServerConnection): void {
    this.#timer?.cancel();
    const asking = this.#asking;
    const { found } = this.#answer;
    this.#server = null;
    this.#asking = new Set();
    this.#isRepeated = false;
    server.consumer = null;
    server.upkeep.tidy();
    if (found.kind === "failed") {
      this.#pool.plane.logPool(this.#pool, found.reason);
      this.#tell({ kind: "refused", refusal: refusals.lookupRefused }, asking);
    } else {
      this.#tell(found, asking);
    }
    this.#goOn();
  }
}

/** What of the reason that there is no server somebody may hear who has proved nothing yet. */
function toldBeforeProof(reason: Refusal): Refusal {
  if (reason.message === refusals.queryWaitTimeout.message) return refusals.lookupWaitTimeout;
  // An operator's doing.
  return reason.code === "57P01" ? reason : lookupFailing(kindOf(reason.message));
}
