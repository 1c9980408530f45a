// What something has needed lately, at most: a lull gives no slot away. Pure.

/** Spans, each from one sweep to the next: a quarter of a second. */
const spansKept = 3;

export class RecentDemand {
  readonly #spans = new Array<number>(spansKept).fill(0);
  #at = 0;

  /** A new span begins. */
  next(): void {
    this.#at = (this.#at + 1) % spansKept;
    this.#spans[this.#at] = 0;
  }

  /** What was needed before is of no interest. */
  clear(): void {
    this.#spans.fill(0);
  }

  /** So much is needed now. Returns the most that was lately. */
  note(demand: number): number {
    if (demand > (this.#spans[this.#at] as number)) this.#spans[this.#at] = demand;
    return Math.max(...this.#spans);
  }
}
