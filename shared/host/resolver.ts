// Asks the system for the addresses of names, as getaddrinfo does: /etc/hosts, DNS and whatever nsswitch.conf
// names; not for a thread that moves bytes. A look-up can't be ended, so it is bounded here: nobody waits for one longer than
// a few seconds, and those that hang never use up the system's threads.

import { lookup } from "node:dns/promises";
import { Turns } from "./turns.ts";

const timeoutMs = 5000;
const atOnceMax = 8;

export interface NameAnswer {
  /** Numeric; none if it failed. */
  readonly addresses: readonly string[];
  /** Why it failed. */
  readonly reason: string;
  /** It failed because nobody could be asked: that says nothing of the name. */
  readonly isTemporary: boolean;
}

export type Lookup = (host: string) => Promise<readonly string[]>;

const reasons: Readonly<Record<string, string>> = {
  ENOTFOUND: "no such name",
  ENODATA: "the name has no address",
  EAI_AGAIN: "the name servers do not answer",
};

async function systemLookup(host: string): Promise<readonly string[]> {
  const entries = await lookup(host, { all: true });
  return [...new Set(entries.map(({ address }) => address))];
}

/** What a look-up has come to. */
function failed(error: unknown): NameAnswer {
  const code = (error as NodeJS.ErrnoException).code ?? "failed";
  // Whatever is not an answer about the name itself may be better next time.
  const isTemporary = code !== "ENOTFOUND" && code !== "ENODATA";
  return { addresses: [], reason: reasons[code] ?? code, isTemporary };
}

export class Resolver {
  readonly #lookup: Lookup;
  readonly #timeoutMs: number;
  /** Look-ups that have not ended and may be joined. */
  readonly #running = new Map<string, Promise<NameAnswer>>();
  /** Of all that have not ended, those that nobody waits for any more included. */
  readonly #turns = new Turns(atOnceMax);

  constructor(lookup: Lookup = systemLookup, limitMs: number = timeoutMs) {
    this.#lookup = lookup;
    this.#timeoutMs = limitMs;
  }

  /** Never fails, and takes no longer than its limit. */
  async resolve(host: string): Promise<NameAnswer> {
    let running = this.#running.get(host);
    if (running === undefined) {
      running = this.#run(host);
      this.#running.set(host, running);
      void running.then(() => this.#leave(host, running));
    }
    let timer: ReturnType<typeof setTimeout> | undefined;
    const timeout = new Promise<NameAnswer>((resolve) => {
      const answer = { addresses: [], reason: "timeout", isTemporary: true };
      timer = setTimeout(() => {
        // The next one may have more luck.
        this.#leave(host, running);
        resolve(answer);
      }, this.#timeoutMs);
    });
    try {
      return await Promise.race([running, timeout]);
    } finally {
      clearTimeout(timer);
    }
  }

  #leave(host: string, running: Promise<NameAnswer> | undefined): void {
    if (this.#running.get(host) === running) this.#running.delete(host);
  }

  #run(host: string): Promise<NameAnswer> {
    return this.#turns.run(async () => {
      try {
        const addresses = await this.#lookup(host);
        if (addresses.length === 0) throw Object.assign(new Error(), { code: "ENODATA" });
        return { addresses, reason: "", isTemporary: false };
      } catch (error) {
        return failed(error);
      }
    });
  }
}
