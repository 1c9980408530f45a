// How long what a client does, or does not do, may last: query_timeout, transaction_timeout,
// idle_transaction_timeout, client_idle_timeout. Pure: given limits, what is seen of a client, and the time.
// A user's own limit counts in place of the setting, and 0 is no limit for that user; nobody else's changes.

import type { Config } from "../../../shared/config/mod.ts";
import { type Refusal, refusals } from "./refusals.ts";

/** In milliseconds; 0 = none. */
export interface Limits {
  readonly queryMs: number;
  readonly transactionMs: number;
  readonly idleTransactionMs: number;
  readonly clientIdleMs: number;
}

/** What goes on between a client and the server it is linked to. */
export interface Work {
  /** The server owes an answer. */
  readonly running: boolean;
  /** A transaction is open, or an extended query cycle without its Sync. */
  readonly open: boolean;
  /** When what runs began. */
  readonly requestAt: number;
  readonly transactionAt: number;
  /** While nothing runs: when the server's last answer came. */
  readonly idleSince: number;
}

/** The limits of all users of one configuration. */
export class LimitTable {
  readonly #general: Limits;
  readonly #own = new Map<string, Limits>();
  /** Whether anybody's work with a server is limited. */
  readonly limitsWork: boolean;
  /** The shortest client_idle_timeout of anybody; Infinity = nobody has one. */
  readonly shortestIdleMs: number;

  constructor({ settings, users }: Pick<Config, "settings" | "users">) {
    this.#general = {
      queryMs: settings.queryTimeoutMs,
      transactionMs: settings.transactionTimeoutMs,
      idleTransactionMs: settings.idleTransactionTimeoutMs,
      clientIdleMs: settings.clientIdleTimeoutMs,
    };
    for (const user of users.values()) {
      this.#own.set(user.name, {
        queryMs: user.queryTimeoutMs ?? settings.queryTimeoutMs,
        transactionMs: user.transactionTimeoutMs ?? settings.transactionTimeoutMs,
        idleTransactionMs: user.idleTransactionTimeoutMs ?? settings.idleTransactionTimeoutMs,
        clientIdleMs: user.clientIdleTimeoutMs ?? settings.clientIdleTimeoutMs,
      });
    }
    const all = [this.#general, ...this.#own.values()];
    this.limitsWork = all.some((limits) =>
      limits.queryMs > 0 || limits.transactionMs > 0 || limits.idleTransactionMs > 0
    );
    this.shortestIdleMs = Math.min(
      ...all.map(({ clientIdleMs }) => clientIdleMs > 0 ? clientIdleMs : Infinity),
    );
  }

  /** Those of a user, by the name that the client has logged in with. */
  of(user: string): Limits {
    return this.#own.get(user) ?? this.#general;
  }
}

/** Which limit a client has passed that has a server; null = none. */
export function overdueWork(limits: Limits, work: Work, now: number): Refusal | null {
  const { running, open } = work;
  if (running && isOver(limits.queryMs, work.requestAt, now)) return refusals.queryTimeout;
  if (open && !running && isOver(limits.idleTransactionMs, work.idleSince, now)) {
    return refusals.idleTransactionTimeout;
  }
  if ((open || running) && isOver(limits.transactionMs, work.transactionAt, now)) {
    return refusals.transactionTimeout;
  }
  return null;
}

/** Whether something that has gone on since then has reached a limit; 0 = there is none. */
export function isOver(limitMs: number, since: number, now: number): boolean {
  return limitMs > 0 && now - since >= limitMs;
}
