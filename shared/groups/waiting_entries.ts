// Who is next at one node of the tree: its children, and its own queue, that could use a slot. By priority; of equal
// ones who runs fewest in proportion to its weight; of those by turns, as many as its weight says. And one that
// has been passed over for too long goes before all that. A binary heap for the one order, a list for the other:
// O(log entries) for each change, and nothing is allocated but the heap's array when it grows.

import type { Group } from "./group.ts";

/** A child among its siblings, or the own queue of a group among its children. */
export class Entry {
  readonly group: Group;
  priority = 0;
  weight = 1;
  /** decides where nothing else does */
  rank = 0;
  running = 0;
  /** turns it has had, by weight; comparable among those that wait */
  pass = 0;
  /** since when it could use a slot and has got none */
  since = 0;
  /** in the heap; -1: it is not waiting */
  at = -1;
  earlier: Entry | null = null;
  later: Entry | null = null;

  constructor(group: Group) {
    this.group = group;
  }
}

function goesBefore(a: Entry, b: Entry): boolean {
  if (a.priority !== b.priority) return a.priority > b.priority;
  const used = a.running * b.weight - b.running * a.weight;
  if (used !== 0) return used < 0;
  if (a.pass !== b.pass) return a.pass < b.pass;
  return a.since !== b.since ? a.since < b.since : a.rank < b.rank;
}

export class WaitingEntries {
  readonly #heap: Entry[] = [];
  /** by `since` */
  #longest: Entry | null = null;
  #latest: Entry | null = null;
  /** the pass of the last that had its turn: who comes later has no older claims */
  #pass = 0;

  get isEmpty(): boolean {
    return this.#heap.length === 0;
  }

  /** The entry, whose fields may have changed, is in its place, or in none if it does not wait. */
  settle(entry: Entry, waits: boolean, now: number): void {
    if (entry.at >= 0) {
      if (waits) this.#move(entry);
      else this.#remove(entry);
    } else if (waits) {
      entry.pass = Math.max(entry.pass, this.#pass);
      entry.since = now;
      this.#append(entry);
      entry.at = this.#heap.length;
      this.#heap.push(entry);
      this.#move(entry);
    }
  }

  /** Whose turn it is; it has had it then. `agingMs`: for how long one may be passed over; 0: for ever. */
  take(now: number, agingMs: number): Entry {
    const longest = this.#longest!;
    const isOverdue = agingMs > 0 && now - longest.since >= agingMs;
    const entry = isOverdue ? longest : this.#heap[0]!;
    this.#pass = Math.max(this.#pass, entry.pass);
    entry.pass += 1 / entry.weight;
    this.#unlink(entry);
    entry.since = now;
    this.#append(entry);
    this.#move(entry);
    return entry;
  }

  clear(): void {
    for (const entry of this.#heap) {
      entry.at = -1;
      entry.earlier = entry.later = null;
    }
    this.#heap.length = 0;
    this.#longest = this.#latest = null;
  }

  #remove(entry: Entry): void {
    this.#unlink(entry);
    const last = this.#heap.pop()!;
    const { at } = entry;
    entry.at = -1;
    if (last === entry) return;
    this.#place(last, at);
    this.#move(last);
  }

  #place(entry: Entry, at: number): void {
    this.#heap[at] = entry;
    entry.at = at;
  }

  #move(entry: Entry): void {
    const heap = this.#heap;
    let { at } = entry;
    while (at > 0) {
      const above = heap[(at - 1) >> 1]!;
      if (!goesBefore(entry, above)) break;
      this.#place(above, at);
      at = (at - 1) >> 1;
    }
    for (;;) {
      let below = 2 * at + 1;
      if (below >= heap.length) break;
      if (below + 1 < heap.length && goesBefore(heap[below + 1]!, heap[below]!)) below++;
      if (!goesBefore(heap[below]!, entry)) break;
      this.#place(heap[below]!, at);
      at = below;
    }
    this.#place(entry, at);
  }

  #append(entry: Entry): void {
    entry.earlier = this.#latest;
    if (this.#latest === null) this.#longest = entry;
    else this.#latest.later = entry;
    this.#latest = entry;
  }

  #unlink(entry: Entry): void {
    const { earlier, later } = entry;
    if (earlier === null) this.#longest = later;
    else earlier.later = later;
    if (later === null) this.#latest = earlier;
    else later.earlier = earlier;
    entry.earlier = entry.later = null;
  }
}
