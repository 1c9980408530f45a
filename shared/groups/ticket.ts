// A client's place in the admission: one object for as long as the client lasts, which is the link of the lists it
// stands in, so that nothing is allocated for a query.

import type { Group, Limit } from "./group.ts";

export const TicketState = {
  /** Nothing of it runs or waits; leaves by a request. */
  idle: "idle",
  /** In its group's queue; leaves by a slot, its time, `cancel` or a group that vanishes. */
  queued: "queued",
  /** Counted as running, and the caller has yet to be told by `next`. */
  granted: "granted",
  /** Running; leaves by `release`. */
  running: "running",
  /** It has waited in vain, and the caller has yet to be told by `next`. */
  dismissed: "dismissed",
} as const;
export type TicketState = typeof TicketState[keyof typeof TicketState];

/** What has become of a ticket that waited. */
export const Outcome = {
  /** It runs now. */
  run: "run",
  /** The queue_timeout of its group is over; `fullGroup` and `fullLimit` say what was in the way. */
  timedOut: "timed_out",
  /** Its group is no more in the file: request again, in the group it belongs to now. */
  displaced: "displaced",
} as const;
export type Outcome = typeof Outcome[keyof typeof Outcome];

export class Ticket<Owner = unknown> {
  readonly owner: Owner;
  state: TicketState = TicketState.idle;
  outcome: Outcome = Outcome.run;
  /** The one in which it waits or runs; null: none. */
  group: Group | null = null;
  /** since when it waits or runs */
  since = 0;
  /** bytes it is counted with, while it runs */
  memory = 0;
  /** what has been measured of this query is in the history of its group, there; -1: nothing has */
  sample = -1;
  sampleWeight = 0;

  /** The group that has, or had, no room for it, and the limit that says so; null: none. */
  fullGroup: Group | null = null;
  fullLimit: Limit | null = null;
  /** The group in which it may not wait, and why; null: none. */
  closedGroup: Group | null = null;
  closedLimit: Limit | null = null;

  list: TicketList | null = null;
  previous: Ticket | null = null;
  following: Ticket | null = null;

  constructor(owner: Owner) {
    this.owner = owner;
  }
}

/** Tickets in the order they came; each is in one list at most. */
export class TicketList {
  first: Ticket | null = null;
  last: Ticket | null = null;

  push(ticket: Ticket): void {
    if (ticket.list !== null) throw new Error("a ticket cannot stand in two lists");
    ticket.list = this;
    ticket.previous = this.last;
    if (this.last === null) this.first = ticket;
    else this.last.following = ticket;
    this.last = ticket;
  }

  remove(ticket: Ticket): void {
    if (ticket.list !== this) throw new Error("the ticket is not in this list");
    const { previous, following } = ticket;
    if (previous === null) this.first = following;
    else previous.following = following;
    if (following === null) this.last = previous;
    else following.previous = previous;
    ticket.list = ticket.previous = ticket.following = null;
  }
}
