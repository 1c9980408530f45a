// One resource group as a node of the tree: what runs and waits in it, and which of those that wait below it is
// next. A group's own queue stands among its children as one of them. Internal to this folder: limits are
// applied and slots given by tree.ts. Invariants:
// - running, queued and memory are of the group and all groups below; own* are of the group alone.
// - An entry is in `waiting` exactly when a slot of this node would let a query of it run: it has one that waits,
//   and every node from there up to, not including, this one has room.

import { defaultCpuShares, type GroupConfig } from "../config/mod.ts";
import { Entry, WaitingEntries } from "./waiting_entries.ts";
import { MemoryHistory } from "./memory_history.ts";
import { type Ticket, TicketList } from "./ticket.ts";

/** Slots of a group are given to its own queue as to a child with this, and the default of cpu_shares. */
const OWN_PRIORITY = 0;

/** What may stand in a query's way: the names of the settings. */
export const Limit = {
  maxConcurrentQueries: "max_concurrent_queries",
  softMaxMemory: "soft_max_memory",
  maxQueued: "max_queued",
  queueing: "queueing",
} as const;
export type Limit = typeof Limit[keyof typeof Limit];

export class Group {
  // What is looked at for each query stands together, at the beginning: between two of them the caches see much else.
  /** null: the root, of which nothing is kept but who waits */
  parent: Group | null = null;
  running = 0;
  /** By settings, leases and memory elsewhere: so much may run here and be in use; Infinity: any. */
  limit = Infinity;
  /** bytes that running queries are counted with */
  memory = 0;
  memoryLimit = Infinity;
  /** the most that ran at once since somebody set it back */
  peak = 0;
  admitted = 0;
  /** when a query of it began last; 0: never */
  lastUsed = 0;
  runningMs = 0;
  ownRunning = 0;
  ownMemory = 0;
  /** bytes that its next query is counted with */
  estimate = 0;
  /** It is no more in the file, and lasts until its last query ends. */
  isGone = false;

  settings: GroupConfig;
  children: Group[] = [];
  queued = 0;
  /** as `limit`: so many may wait */
  queueLimit = Infinity;
  ownQueued = 0;
  readonly queue = new TicketList();
  readonly history = new MemoryHistory();

  /** slots that this worker may use of the mesh's, and places of the queue; mean nothing where there is no limit */
  lease: number;
  queueLease: number;
  /** bytes in use by other workers */
  memoryElsewhere = 0;

  refused = 0;
  timedOut = 0;
  queuedMs = 0;

  /** in the parent's `waiting` */
  readonly entry: Entry;
  /** its own queue, in its own `waiting` */
  readonly own: Entry;
  readonly waiting = new WaitingEntries();

  constructor(settings: GroupConfig, lease: number) {
    this.settings = settings;
    this.lease = this.queueLease = lease;
    this.entry = new Entry(this);
    this.own = new Entry(this);
    this.configure(settings);
    this.own.priority = OWN_PRIORITY;
    this.own.weight = defaultCpuShares;
  }

  get name(): string {
    return this.settings.name;
  }

  configure(settings: GroupConfig): void {
    this.settings = settings;
    this.entry.priority = settings.priority;
    this.entry.weight = settings.cpuShares;
    this.refresh();
  }

  /** After every change of what it is derived from: what is looked at for each query. */
  refresh(): void {
    const { maxConcurrentQueries, maxQueued, softMaxMemory, minQueryMemory } = this.settings;
    this.limit = maxConcurrentQueries > 0 ? Math.min(maxConcurrentQueries, this.lease) : Infinity;
    this.queueLimit = maxQueued > 0 ? Math.min(maxQueued, this.queueLease) : Infinity;
    this.memoryLimit = softMaxMemory > 0 ? softMaxMemory - this.memoryElsewhere : Infinity;
    this.estimate = this.history.isEmpty ? minQueryMemory : this.history.estimate;
  }

  /** What keeps it from running one more, by this node alone; null: nothing does. */
  full(): Limit | null {
    if (this.running >= this.limit) return Limit.maxConcurrentQueries;
    return this.memory >= this.memoryLimit ? Limit.softMaxMemory : null;
  }

  /** It lacks a slot that the mesh may have. */
  get isShort(): boolean {
    return this.running >= this.lease && this.lease < this.settings.maxConcurrentQueries;
  }

  /** What keeps one more from waiting in it where so many do; null: nothing does. */
  closed(queued: number): Limit | null {
    if (!this.settings.queueing) return Limit.queueing;
    return queued >= this.queueLimit ? Limit.maxQueued : null;
  }

  /** Where so many wait it lacks a place of the queue that the mesh may have. */
  isQueueShort(queued: number): boolean {
    return queued >= this.queueLease && this.queueLease < this.settings.maxQueued;
  }

  /**
   * Slots that could be used here if there were as many: what runs, and what waits for nothing but slots of this group
   * or one above it. So no slots are asked for here for queries that lack one of a group below.
   */
  get demand(): number {
    if (this.full() === Limit.softMaxMemory) return this.running;
    let demand = this.ownRunning + this.ownQueued;
    for (const child of this.children) demand += Math.min(child.demand, child.slots);
    const { maxConcurrentQueries } = this.settings;
    const useful = maxConcurrentQueries > 0 ? Math.min(maxConcurrentQueries, demand) : demand;
    return Math.max(this.running, useful);
  }

  /** That it may use, or does. */
  get slots(): number {
    const { maxConcurrentQueries } = this.settings;
    return maxConcurrentQueries === 0
      ? Infinity
      : Math.max(this.running, Math.min(maxConcurrentQueries, this.lease));
  }

  enqueue(ticket: Ticket): void {
    this.queue.push(ticket);
    this.ownQueued++;
    this.queued++;
    for (let node = this.parent; node !== null; node = node.parent) node.queued++;
  }

  /** It waits no more, since `now`. */
  dequeue(ticket: Ticket, now: number): void {
    this.queue.remove(ticket);
    this.ownQueued--;
    const waited = now - ticket.since;
    this.queued--;
    this.queuedMs += waited;
    for (let node = this.parent; node !== null; node = node.parent) {
      node.queued--;
      node.queuedMs += waited;
    }
  }

  /** Somebody waits in it or below, or did a moment ago: `settle` has something to do. */
  get hasWaiting(): boolean {
    return this.queued > 0 || this.entry.at >= 0 || this.own.at >= 0;
  }

  /** Puts its entries where they belong, after whatever has changed in it. */
  settle(now: number): void {
    this.own.running = this.ownRunning;
    this.waiting.settle(this.own, this.ownQueued > 0, now);
    const { parent } = this;
    if (parent === null) return;
    this.entry.running = this.running;
    parent.waiting.settle(this.entry, !this.waiting.isEmpty && this.full() === null, now);
  }
}
