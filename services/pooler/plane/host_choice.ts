// Which host of a list a new server connection goes to: load_balance_hosts. Pure but for its clock and its source
// of chance, which it is given.
//   round-robin   the next one for each connection
//   disable       always the same one, until a connection to it fails
// In both a host that has failed is left out for a while that doubles (as in login_retry.ts), as long as another
// has not; then one connection probes it. When all have failed, they are tried in turn, which makes one round.

import { retryPauseMs } from "./login_retry.ts";

export type LoadBalance = "round-robin" | "disable";

interface Health {
  failures: number;
  retryAt: number;
  /** It has failed in this round. */
  tried: boolean;
}

export interface Choice {
  readonly host: string;
  /** It has failed, and others have not: who waits should not wait for this one. */
  readonly isProbe: boolean;
}

/** What holds now: the configuration may change. */
export interface HostList {
  readonly hosts: readonly string[];
  readonly mode: LoadBalance;
  /** server_login_retry. */
  readonly longestMs: number;
  readonly now: number;
}

export class HostChoice {
  readonly #list: () => HostList;
  readonly #random: () => number;
  /** Of hosts that have failed. */
  readonly #failing = new Map<string, Health>();
  #next = 0;

  constructor(list: () => HostList, random: () => number = Math.random) {
    this.#list = list;
    this.#random = random;
  }

  /**
   * Where the next connection goes. `mayProbe`: another one can be opened beside it, which goes to a host
   * that works.
   */
  take(mayProbe = false): Choice {
    const { hosts, mode, longestMs, now } = this.#list();
    const isBroken = hosts.every((host) => this.#failing.has(host));
    for (let i = 0; i < hosts.length; i++) {
      const at = (this.#next + i) % hosts.length;
      const host = hosts[at] as string;
      const health = this.#failing.get(host);
      const isProbe = health !== undefined && !isBroken;
      if (isBroken && health?.tried) continue;
      if (isProbe) {
        if (mode === "disable" || !mayProbe || now < health.retryAt) continue;
        // No second one before it is known how this one goes.
        health.retryAt = now + longestMs;
      }
      this.#next = mode === "disable" ? at : at + 1;
      return { host, isProbe };
    }
    return { host: hosts[this.#next % hosts.length] as string, isProbe: false };
  }

  /** The list is another one. */
  forget(): void {
    this.#failing.clear();
    this.#next = 0;
  }

  succeed(host: string): void {
    this.#failing.delete(host);
  }

  /** True if now all have failed since this was last true, or since one succeeded: a pause is due. */
  fail(host: string): boolean {
    const { hosts, mode, longestMs, now } = this.#list();
    const health = this.#failing.get(host) ?? { failures: 0, retryAt: 0, tried: false };
    this.#failing.set(host, health);
    health.tried = true;
    health.failures++;
    health.retryAt = now + retryPauseMs(longestMs, health.failures, this.#random());
    // Others may have failed with it that went to the same host: they are one failure.
    if (mode === "disable" && hosts[this.#next % hosts.length] === host) this.#next++;
    if (!hosts.every((name) => this.#failing.get(name)?.tried)) return false;
    for (const each of this.#failing.values()) each.tried = false;
    return true;
  }
}
