// Admission: whether a query may run now, waits, or is refused, by the limits of its group and of all groups above
// it; and who is next when one ends. Pure: the clock is passed in, and what becomes of those that wait is taken
// from the tree by its caller, `next`. Nothing is allocated for a query. Invariants:
// - After each call nobody waits who could run: every ticket in a queue has a full group on its way to the root.
// - So the queue of a group is first come, first served: who comes while others wait finds the same group full.
// - running <= limit of every group, but for limits that were lowered while queries ran: those run on.

import { defaultCpuShares, type GroupConfig } from "../config/mod.ts";
import { Group } from "./group.ts";
import { Outcome, type Ticket, TicketList, TicketState } from "./ticket.ts";

export const Verdict = { run: "run", queued: "queued", refused: "refused" } as const;
export type Verdict = typeof Verdict[keyof typeof Verdict];

export interface TreeOptions {
  readonly groups: readonly GroupConfig[];
  /** how long a group may be passed over by siblings of higher priority or weight; 0: for ever */
  readonly priorityAgingMs: number;
}

const ROOT: GroupConfig = {
  name: "",
  parent: null,
  maxConcurrentQueries: 0,
  maxQueued: 0,
  queueing: true,
  queueTimeoutMs: 0,
  softMaxMemory: 0,
  minQueryMemory: 0,
  cpuShares: defaultCpuShares,
  priority: 0,
  shed: "normal",
  bounds: null,
};

export class AdmissionTree<Owner = unknown> {
  /** In the order of the file. */
  groups: readonly Group[] = [];
  /** Those that are gone and still have queries, too. */
  readonly #byName = new Map<string, Group>();
  readonly #root = new Group(ROOT, Infinity);
  readonly #initialLease: number;
  readonly #outlet = new TicketList();
  #agingMs = 0;

  /** `initialLease`: slots of a limited group before `setLimit` has said; 0 where they are leased. */
  constructor(options: TreeOptions, initialLease = Infinity) {
    this.#initialLease = initialLease;
    this.reconfigure(options, 0);
  }

  group(name: string): Group | undefined {
    const group = this.#byName.get(name);
    return group?.isGone ? undefined : group;
  }

  /** Tickets of groups with queued queries, all together. */
  get queued(): number {
    return this.#root.queued;
  }

  /** Lets a query in at once if there is room for it; false: nothing has happened, and `request` may follow. */
  enter(ticket: Ticket<Owner>, group: Group, now: number): boolean {
    expect(ticket, TicketState.idle);
    if (group.isGone) throw new Error(`group "${group.name}" is gone`);
    for (let node = group; node.parent !== null; node = node.parent) {
      if (node.running >= node.limit || node.memory >= node.memoryLimit) return false;
    }
    this.#start(ticket, group, now);
    if (this.#root.queued > 0) this.#settlePath(group, now);
    ticket.state = TicketState.running;
    return true;
  }

  /**
   * A query is to begin. `refused`: the ticket's `fullGroup` and `fullLimit` say why it cannot run,
   * `closedGroup` and `closedLimit` why it cannot wait; with `mayWait` it can all the same. `queued`: `next` gives it
   * back one day.
   */
  request(ticket: Ticket<Owner>, group: Group, now: number, mayWait = false): Verdict {
    if (this.enter(ticket, group, now)) return Verdict.run;
    this.#findFull(ticket, group);
    if (!mayWait && this.#findClosed(ticket, group) !== null) {
      this.#countRefused(group);
      return Verdict.refused;
    }
    ticket.group = group;
    ticket.since = now;
    ticket.state = TicketState.queued;
    group.enqueue(ticket);
    this.#settlePath(group, now);
    return Verdict.queued;
  }

  /** A running query has ended. Others may run now: see `next`. True: it ran beyond a limit that was lowered. */
  release(ticket: Ticket<Owner>, now: number): boolean {
    expect(ticket, TicketState.running);
    return this.#end(ticket, now);
  }

  /** It gives up: it waits no more, or it got its slot and has not been told yet. */
  cancel(ticket: Ticket<Owner>, now: number): void {
    const { state, group } = ticket;
    if (state === TicketState.queued) {
      group!.dequeue(ticket, now);
      this.#clear(ticket);
      this.#settlePath(group!, now);
    } else if (state === TicketState.granted) {
      this.#outlet.remove(ticket);
      this.#end(ticket, now);
    } else {
      expect(ticket, TicketState.dismissed);
      this.#outlet.remove(ticket);
      this.#clear(ticket);
    }
  }

  /** Who finds no room in it may not wait either. */
  isClosed(group: Group): boolean {
    for (let node: Group | null = group; node !== null; node = node.parent) {
      if (node.closed(node.queued) !== null) return true;
    }
    return false;
  }

  /** Whether one that waits does so although its group, or one above, is closed to it. */
  isIntruder(ticket: Ticket<Owner>): boolean {
    expect(ticket, TicketState.queued);
    return this.#findClosed(ticket, ticket.group!) !== null;
  }

  /** Such a one is refused after all: the ticket says why, as after `request`. */
  refuse(ticket: Ticket<Owner>, now: number): void {
    expect(ticket, TicketState.queued);
    const group = ticket.group!;
    this.#findFull(ticket, group);
    this.#findClosed(ticket, group);
    this.cancel(ticket, now);
    this.#countRefused(group);
  }

  #countRefused(group: Group): void {
    for (let node: Group | null = group; node !== null; node = node.parent) node.refused++;
  }

  /** The next ticket that has waited, and what has become of it; to be called until there is none. */
  next(): Ticket<Owner> | null {
    const ticket = this.#outlet.first as Ticket<Owner> | null;
    if (ticket === null) return null;
    this.#outlet.remove(ticket);
    ticket.state = ticket.state === TicketState.granted ? TicketState.running : TicketState.idle;
    return ticket;
  }

  /** Ends the waits that have lasted for long enough; called a few times a second. */
  expire(now: number): void {
    if (this.#root.queued === 0) return;
    for (const group of this.groups) {
      const { queueTimeoutMs } = group.settings;
      if (queueTimeoutMs === 0 || group.ownQueued === 0) continue;
      for (;;) {
        const first = group.queue.first;
        if (first === null || now - first.since < queueTimeoutMs) break;
        this.#findFull(first, group);
        this.#dismiss(first, Outcome.timedOut, now);
        for (let node: Group | null = group; node !== null; node = node.parent) node.timedOut++;
      }
      this.#settlePath(group, now);
    }
  }

  /** How many of the mesh's slots of a group this worker may use. What runs beyond them runs on. */
  setLimit(group: Group, slots: number, now: number): void {
    group.lease = slots;
    this.#onLimits(group, now);
  }

  /** How many of the mesh's places of a group's queue this worker may use. Who waits beyond them waits on. */
  setQueueLimit(group: Group, places: number): void {
    group.queueLease = places;
    group.refresh();
  }

  /** Memory in use by queries of the group, and of groups below, in other workers. */
  setMemoryElsewhere(group: Group, bytes: number, now: number): void {
    group.memoryElsewhere = bytes;
    this.#onLimits(group, now);
  }

  #onLimits(group: Group, now: number): void {
    group.refresh();
    this.#settlePath(group, now);
    this.#handOff(now);
  }

  /** The memory that a running query was seen to have. */
  measure(ticket: Ticket<Owner>, bytes: number, now: number): void {
    expect(ticket, TicketState.running);
    const group = ticket.group!;
    group.history.observe(ticket, bytes);
    group.refresh();
    const more = Math.max(bytes, group.estimate) - ticket.memory;
    if (more === 0) return;
    ticket.memory += more;
    group.ownMemory += more;
    for (let node = group; node.parent !== null; node = node.parent) node.memory += more;
    this.#settlePath(group, now);
    this.#handOff(now);
  }

  /**
   * The groups are others now. Queries that run go on and count where their group is now; if it is gone, in what is
   * left of the groups above it. Who waits in a group that is gone is displaced.
   */
  reconfigure({ groups, priorityAgingMs }: TreeOptions, now: number): void {
    this.#agingMs = priorityAgingMs;
    const old = [...this.#byName.values()];
    const named = new Set(groups.map(({ name }) => name));
    for (const group of old) group.isGone = !named.has(group.name);
    for (const group of old) {
      if (group.isGone) this.#dissolve(group, now);
      // Also of groups that are forgotten: entries of their children may go elsewhere.
      group.waiting.clear();
    }
    this.groups = groups.map((settings) => {
      const group = this.#byName.get(settings.name) ?? new Group(settings, this.#initialLease);
      group.configure(settings);
      return group;
    });
    const left = old.filter((group) => group.isGone && group.ownRunning > 0);
    this.#byName.clear();
    for (const group of [...this.groups, ...left]) this.#byName.set(group.name, group);
    for (const group of this.groups) {
      const { parent } = group.settings;
      group.parent = parent === null ? this.#root : this.#byName.get(parent)!;
    }
    this.#recount(now);
    this.#handOff(now);
  }

  /** Nobody waits in a group that is gone, and what runs in it counts above it. */
  #dissolve(group: Group, now: number): void {
    while (group.queue.first !== null) this.#dismiss(group.queue.first, Outcome.displaced, now);
    // Groups above that are gone as well are passed over: a chain, whose order does not matter.
    while (group.parent !== null && group.parent.isGone) group.parent = group.parent.parent;
  }

  /** Sums and waiting entries, from what each group has of its own. */
  #recount(now: number): void {
    const all = [this.#root, ...this.#byName.values()];
    this.#root.waiting.clear();
    for (const group of all) {
      group.children = [];
      group.running = group.queued = group.memory = 0;
    }
    for (const group of all) {
      if (group.parent !== null) group.entry.rank = group.parent.children.push(group);
      for (let node: Group | null = group; node !== null; node = node.parent) {
        node.queued += group.ownQueued;
        if (node.parent === null) break;
        node.running += group.ownRunning;
        node.memory += group.ownMemory;
      }
    }
    const settle = (group: Group) => {
      for (const child of group.children) settle(child);
      group.settle(now);
    };
    settle(this.#root);
  }

  /** The nearest group without room, noted in the ticket; null: there is room everywhere. */
  #findFull(ticket: Ticket, group: Group): Group | null {
    for (let node: Group | null = group; node !== null; node = node.parent) {
      const limit = node.full();
      if (limit === null) continue;
      ticket.fullGroup = node;
      ticket.fullLimit = limit;
      return node;
    }
    return null;
  }

  /** The nearest group in which it may not wait, noted in the ticket; null: it may. */
  #findClosed(ticket: Ticket, group: Group): Group | null {
    const itself = ticket.state === TicketState.queued ? 1 : 0;
    for (let node: Group | null = group; node !== null; node = node.parent) {
      const limit = node.closed(node.queued - itself);
      if (limit === null) continue;
      ticket.closedGroup = node;
      ticket.closedLimit = limit;
      return node;
    }
    return null;
  }

  #start(ticket: Ticket, group: Group, now: number): void {
    ticket.group = group;
    ticket.since = now;
    ticket.memory = group.estimate;
    ticket.sample = -1;
    group.ownRunning++;
    group.ownMemory += ticket.memory;
    for (let node = group; node.parent !== null; node = node.parent) {
      if (++node.running > node.peak) node.peak = node.running;
      node.memory += ticket.memory;
      node.admitted++;
      node.lastUsed = now;
    }
  }

  #end(ticket: Ticket, now: number): boolean {
    const group = ticket.group!;
    const ran = now - ticket.since;
    group.ownRunning--;
    group.ownMemory -= ticket.memory;
    let wasBeyond = false;
    for (let node = group; node.parent !== null; node = node.parent) {
      if (node.running > node.limit) wasBeyond = true;
      node.running--;
      node.memory -= ticket.memory;
      node.runningMs += ran;
    }
    this.#clear(ticket);
    // Nobody waits, nearly always: then no entry is anywhere.
    if (this.#root.queued > 0) this.#settlePath(group, now);
    if (group.isGone && group.ownRunning === 0) this.#forget(group);
    this.#handOff(now);
    return wasBeyond;
  }

  #forget(group: Group): void {
    this.#byName.delete(group.name);
    const siblings = group.parent!.children;
    siblings.splice(siblings.indexOf(group), 1);
  }

  #clear(ticket: Ticket): void {
    ticket.state = TicketState.idle;
    ticket.group = null;
    ticket.memory = 0;
  }

  #dismiss(ticket: Ticket, outcome: Outcome, now: number): void {
    ticket.group!.dequeue(ticket, now);
    this.#clear(ticket);
    ticket.outcome = outcome;
    ticket.state = TicketState.dismissed;
    this.#outlet.push(ticket);
  }

  /** After each change below: who waits at each node up to the root. */
  #settlePath(group: Group, now: number): void {
    for (let node: Group | null = group; node !== null; node = node.parent) {
      if (node.hasWaiting) node.settle(now);
    }
  }

  /** Lets those run who can, until nobody who waits can. */
  #handOff(now: number): void {
    while (!this.#root.waiting.isEmpty) {
      let node = this.#root;
      for (;;) {
        const entry = node.waiting.take(now, this.#agingMs);
        if (entry === node.own) break;
        node = entry.group;
      }
      const ticket = node.queue.first!;
      node.dequeue(ticket, now);
      this.#start(ticket, node, now);
      this.#settlePath(node, now);
      ticket.outcome = Outcome.run;
      ticket.state = TicketState.granted;
      this.#outlet.push(ticket);
    }
  }
}

function expect(ticket: Ticket, state: TicketState): void {
  if (ticket.state !== state) throw new Error(`ticket is ${ticket.state}, not ${state}`);
}
