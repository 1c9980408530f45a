// How a receiver tells that a request is not from long ago, without clocks that agree: whoever asks
// gets a ticket first and shows it with the request, and the one who made the ticket looks at its age
// by its own clock. A request that lay in a socket while its receiver was stopped shows an old one.
// Not a proof of who asks: tickets are random so that one of an earlier process does not pass.

import { randomBytes } from "node:crypto";
import { performance } from "node:perf_hooks";

/** The name of the header that carries a ticket. */
export const ticketHeader = "Pgweir-Ticket";

const form = /^[0-9a-f]{24}\.[0-9]{1,16}$/;

export function isTicket(text: string): boolean {
  return form.test(text);
}

export class Tickets {
  readonly #now: () => number;
  readonly #id = randomBytes(12).toString("hex");

  /** `now` in milliseconds; it never goes back. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  issue(): string {
    return `${this.#id}.${Math.floor(this.#now())}`;
  }

  /** Whether we made it, and not longer ago than this. */
  isFresh(ticket: string, maxAgeMs: number): boolean {
    if (!isTicket(ticket)) return false;
    const [id, issuedAt] = ticket.split(".");
    return id === this.#id && this.#now() - Number(issuedAt) <= maxAgeMs;
  }
}
