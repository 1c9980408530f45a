// Whether all slots of a group, or places in its queue, are in use, for those who may not wait for one. What workers
// said last may be over by now, so those that have some are asked (polled) after the question has come. Such a leaf is
// all there is in its component. Invariants:
// - Who asks is told that all are in use only if they were at one moment since, the begin of a poll: each worker has said
//   that it has used all of its slots for longer than that poll lasts. What is charged to silent workers is in use.
// - Where queries are too short for that, each worker has to have said in many polls, one after the other, that it uses
//   all of its slots: then one that asks again and again does not wait in vain.
// - Nothing is sent while nobody asks, and the next poll begins when the last is over: whoever asks, and however often,
//   a worker is asked once in the time that all of them take to answer.

import type { Cell } from "./cell.ts";
import type { Component } from "./components.ts";

/** A poll that is not over by then comes to nothing: a message was lost, and who asks does so again. */
const ANSWER_MS = 1000;
/** Workers that are asked per millisecond, in the long run. */
const ASKED_PER_MS = 1;
/** So many polls that have found no slot to be free are as good as one moment at which none was. */
const POLLS = 5;

export class Poll {
  /** Those that are told how this one ends, each by the seq of the report that asked. */
  readonly #askers = new Map<Cell, number>();
  /** And the next: by the newest report that asked. */
  readonly #next = new Map<Cell, number>();
  /** Those that have not answered. */
  readonly #awaited = new Set<Cell>();
  /** Those that have, and whether they used all when it began. The question of an only asker is its answer. */
  readonly #answered = new Map<Cell, boolean>();
  /** By which reports askers have asked in the last polls, in none of which a slot was free, the oldest first. */
  readonly #inVain = new Map<Cell, number[]>();
  #beganAt = -Infinity;
  #asked = 0;

  get isIdle(): boolean {
    return this.#askers.size === 0 && this.#next.size === 0;
  }

  /** A cell was reported. */
  hear(cell: Cell, asks: boolean, seq: number, now: number): void {
    if (asks) this.#next.set(cell, seq);
    else {
      this.#next.delete(cell);
      this.#inVain.delete(cell);
    }
    if (!cell.hasAnswered || !this.#awaited.delete(cell)) return;
    this.#answered.set(cell, cell.busyMs > now - this.#beganAt);
  }

  drop(cell: Cell): void {
    this.#askers.delete(cell);
    this.#next.delete(cell);
    this.#awaited.delete(cell);
    this.#answered.delete(cell);
    this.#inVain.delete(cell);
  }

  /** What can be done now. Returns how many cells were looked at. */
  advance(component: Component, now: number): number {
    let looks = this.#end(component, now);
    if (this.#askers.size === 0 && this.#next.size > 0) looks += this.#begin(component, now);
    // There may be nobody else.
    return looks + this.#end(component, now);
  }

  #begin({ cells }: Component, now: number): number {
    if (now - this.#beganAt < this.#asked / ASKED_PER_MS) return 0;
    for (const [cell, seq] of this.#next) {
      if (cell.movable && cell.wanted > cell.target) this.#askers.set(cell, seq);
    }
    this.#next.clear();
    if (this.#askers.size === 0) return 0;
    this.#answered.clear();
    if (this.#askers.size === 1) {
      for (const cell of this.#askers.keys()) this.#answered.set(cell, true);
    }
    for (const cell of cells) {
      if (!cell.movable || cell.charge === 0 || this.#answered.has(cell)) continue;
      cell.poll();
      this.#awaited.add(cell);
    }
    this.#beganAt = now;
    this.#asked = this.#awaited.size;
    return cells.length;
  }

  #end(component: Component, now: number): number {
    if (this.#askers.size === 0) return 0;
    for (const cell of this.#awaited) if (!cell.movable) this.#awaited.delete(cell);
    if (this.#awaited.size > 0) {
      if (now - this.#beganAt >= ANSWER_MS) {
        this.#awaited.clear();
        this.#askers.clear();
      }
      return 0;
    }
    for (const account of component.accounts) account.room = account.cap;
    for (const cell of component.cells) {
      // What it has a use for is used: by queries that wait for a slot of another group, or are to be told of it yet.
      const used = cell.movable
        ? Math.max(cell.held, Math.min(cell.wanted, cell.charge))
        : cell.charge;
      for (const account of cell.accounts) account.room -= used;
    }
    const atOnce = component.cells.every((cell) =>
      !cell.movable || cell.charge === 0 || this.#answered.get(cell) === true
    );
    for (const [cell, seq] of this.#askers) {
      const isFull = cell.accounts.some(({ room }) => room <= 0);
      const since = isFull ? atOnce ? seq : this.#askInVain(cell, seq) : null;
      if (since !== null) cell.tellUsedUp(since);
      if (since === seq || !isFull) this.#inVain.delete(cell);
    }
    this.#askers.clear();
    return component.cells.length;
  }

  /** By which report a cell has asked so many polls ago; null: not yet. */
  #askInVain(cell: Cell, seq: number): number | null {
    const seqs = [...this.#inVain.get(cell) ?? [], seq].slice(-POLLS);
    this.#inVain.set(cell, seqs);
    return seqs.length < POLLS ? null : seqs[0]!;
  }
}
