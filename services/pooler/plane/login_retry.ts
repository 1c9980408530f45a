// When a pool whose logins to PostgreSQL fail tries again, and what its clients are told meanwhile. Pure but for
// its clock and its source of chance, which it is given.
// Working: as many logins as clients wait for. After a failure: none for a while, then one that probes. The
// pause doubles up to server_login_retry, and is drawn from its upper half, so that the workers of a fleet, which
// have all seen the same failure, come one by one. When the probe is in, the pool works again at once.

import type { ParsedError } from "../../../shared/wire/mod.ts";
import { failingText, type Refusal } from "./refusals.ts";

/** The pause after a first failure, at most; the next ones double. */
const firstPauseMs = 50;

/** What a failed login means for those who wait. */
export type Verdict =
  /** PostgreSQL would say the same to everybody: waiting is of no use. */
  | "refused"
  /** It is there, and will serve later: it starts, stops, recovers, or is full. */
  | "later"
  /** Nobody knows: it cannot be reached, or did not make sense. */
  | "unreachable";

/** Of the SQLSTATE of a failed login. */
export function verdictOf(code: string): Verdict {
  if (code.startsWith("08")) return "unreachable";
  // Class 53 is full (connections, memory, disk), 58 a failing system, 57P01 to 57P03 the ends of its life.
  if (/^(53|58|57P0[123])/.test(code)) return "later";
  return "refused";
}

/** How long to wait after so many failures in a row; `chance` is in [0, 1). */
export function retryPauseMs(longestMs: number, failures: number, chance: number): number {
  const pause = Math.min(longestMs, firstPauseMs * 2 ** Math.min(failures - 1, 20));
  return pause * (1 + chance) / 2;
}

export class LoginRetry {
  readonly #random: () => number;
  #failure: Refusal | null = null;
  #failingSince = 0;
  #failures = 0;
  #retryAt = 0;

  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  /** What PostgreSQL, or the attempt to reach it, said last; null while logins succeed. */
  get failure(): Refusal | null {
    return this.#failure;
  }

  /** How many logins may be under way at once. */
  allowed(now: number): number {
    if (this.#failure === null) return Infinity;
    return now < this.#retryAt ? 0 : 1;
  }

  succeed(): void {
    this.#failure = null;
    this.#failures = 0;
    this.#retryAt = 0;
  }

  /** `longestMs`: server_login_retry. */
  fail(failure: Refusal, now: number, longestMs: number): void {
    if (this.#failure === null) this.#failingSince = now;
    this.#failure = failure;
    // Attempts that were under way together are one failure, not one each.
    if (now < this.#retryAt) return;
    this.#failures++;
    this.#retryAt = now + retryPauseMs(longestMs, this.#failures, this.#random());
  }

  /**
   * Why a client should not even queue, where no server is left; or null. Who comes when the next attempt
   * is due may: an attempt is only made for somebody who waits.
   */
  refusal(now: number, longestMs: number): Refusal | null {
    const failure = this.#failure;
    if (failure === null || now >= this.#retryAt) return null;
    const verdict = verdictOf(failure.code);
    if (verdict === "later") return null;
    if (verdict === "unreachable" && now - this.#failingSince < longestMs) return null;
    return {
      ...withHint(failure),
      message: failingText(failure.message),
    };
  }
}

/** Of a failure: which kind it is, without the words of the server or the system. */
export function kindOf(message: string): string {
  return /connect failed|connect timeout|server DNS lookup failed/.exec(message)?.[0] ??
    "login failed";
}

/** What PostgreSQL has said, by its own code and hint. */
export function failureOf({ code, hint }: ParsedError, message: string): Refusal {
  return hint === "" ? { code, message } : { code, message, hint };
}

/** The failure, with a hint that says where to look if PostgreSQL has given none. */
export function withHint(failure: Refusal): Refusal {
  if (failure.hint !== undefined) return failure;
  return { ...failure, hint: hintFor(failure.code) };
}

function hintFor(code: string): string {
  if (code.startsWith("28")) {
    return "PostgreSQL refuses the pooler's login: check user and password of the server " +
      "connections, and what its pg_hba.conf says of the pooler's address";
  }
  if (code === "3D000") return "The server has no such database: check dbname in [databases]";
  if (verdictOf(code) === "refused") return "PostgreSQL refuses the login of the pooler";
  return "The pooler tries again by itself (server_login_retry)";
}
