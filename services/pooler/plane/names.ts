// What is known of the names of servers: their addresses, and how long they hold. Pure but for its clock; whom
// to ask, and what to do about addresses that have changed, it is told.
// Bounded: each name is asked for once at a time, and forgotten when nobody has used it while its answer held.
// Invariants: names that are in use are asked for again before their answer has expired, so that connections
// seldom wait for one; while the name servers can't be asked, the last addresses hold on.

import { isIP } from "node:net";
import type { NameAnswer } from "../../../shared/host/mod.ts";
import { dialOrder } from "./address_order.ts";

/** So long before it expires the answer for a name in use is asked for anew, or a quarter of its time. */
const leadMs = 5000;
/** An address that did not connect in time is not the first to be tried for so long. */
const lateMs = 15_000;

/** What SHOW DNS_HOSTS shows. */
export interface KnownName {
  readonly addresses: readonly string[];
  /** Monotonic time up to which it holds. */
  readonly until: number;
}

type Found = (addresses: readonly string[], reason: string) => void;

interface Entry extends KnownName {
  addresses: readonly string[];
  until: number;
  reason: string;
  holdsMs: number;
  isUsed: boolean;
  isAsked: boolean;
  waiting: Found[];
  /** Connections so far. */
  turn: number;
  /** Until when an address is tried last. */
  readonly late: Map<string, number>;
}

export interface NamesOptions {
  ask(host: string, done: (answer: NameAnswer) => void): void;
  now(): number;
  /** dns_max_ttl and dns_nxdomain_ttl. */
  limits(): { readonly maxMs: number; readonly failedMs: number };
  /** The name has these addresses, and no others any more. */
  onAddresses(host: string, addresses: readonly string[]): void;
}

export class Names {
  readonly #options: NamesOptions;
  readonly #entries = new Map<string, Entry>();

  constructor(options: NamesOptions) {
    this.#options = options;
  }

  get known(): ReadonlyMap<string, KnownName> {
    return this.#entries;
  }

  /** Names that are being asked for. */
  get pending(): number {
    let count = 0;
    for (const { isAsked } of this.#entries.values()) if (isAsked) count++;
    return count;
  }

  /** Calls back, at once if it is known, with the addresses in the order to try them. */
  resolve(host: string, found: Found): void {
    if (isIP(host) !== 0) return found([host], "");
    let entry = this.#entries.get(host);
    if (entry === undefined) {
      entry = {
        addresses: [],
        until: -Infinity,
        reason: "",
        holdsMs: 0,
        isUsed: true,
        isAsked: false,
        waiting: [],
        turn: 0,
        late: new Map(),
      };
      this.#entries.set(host, entry);
    }
    entry.isUsed = true;
    if (this.#options.now() < entry.until) return this.#tell(entry, found);
    entry.waiting.push(found);
    this.#ask(host, entry);
  }

  /** Servers are connected by this name. */
  keep(host: string): void {
    const entry = this.#entries.get(host);
    if (entry !== undefined) entry.isUsed = true;
  }

  /** Called once a second, after `keep` for all names in use. */
  sweep(): void {
    const now = this.#options.now();
    for (const [host, entry] of this.#entries) {
      if (entry.isAsked || entry.until - now > Math.min(leadMs, entry.holdsMs / 4)) continue;
      if (entry.isUsed) this.#ask(host, entry);
      else if (now >= entry.until) this.#entries.delete(host);
    }
  }

  /** How a connection went: addresses that were tried and did not connect, or not in time. */
  note(host: string, connected: string | null, others: readonly string[]): void {
    const entry = this.#entries.get(host);
    if (entry === undefined) return;
    if (connected !== null) entry.late.delete(connected);
    for (const address of others) entry.late.set(address, this.#options.now() + lateMs);
  }

  #tell(entry: Entry, found: Found): void {
    const { addresses, late } = entry;
    const now = this.#options.now();
    const isLate = (address: string) => (late.get(address) ?? -Infinity) > now;
    found(dialOrder(addresses, entry.turn++, isLate), entry.reason);
  }

  #ask(host: string, entry: Entry): void {
    if (entry.isAsked) return;
    entry.isAsked = true;
    entry.isUsed = false;
    this.#options.ask(host, (answer) => this.#onAnswer(host, entry, answer));
  }

  #onAnswer(host: string, entry: Entry, answer: NameAnswer): void {
    const { maxMs, failedMs } = this.#options.limits();
    const waiting = entry.waiting;
    entry.isAsked = false;
    entry.waiting = [];
    if (waiting.length > 0) entry.isUsed = true;
    entry.holdsMs = answer.addresses.length > 0 ? maxMs : failedMs;
    entry.until = this.#options.now() + entry.holdsMs;
    if (answer.addresses.length > 0 || !answer.isTemporary) {
      entry.addresses = answer.addresses;
      entry.reason = answer.reason;
      for (const address of entry.late.keys()) {
        if (!answer.addresses.includes(address)) entry.late.delete(address);
      }
    } else if (entry.addresses.length === 0) {
      entry.reason = answer.reason;
    }
    // First, so that connections to the old addresses do not outlive those that come now.
    if (answer.addresses.length > 0) this.#options.onAddresses(host, answer.addresses);
    for (const found of waiting) this.#tell(entry, found);
  }
}
