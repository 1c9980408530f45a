// Timers of a reactor: a binary heap by due time. Pure: the clock is handed in.
// For hundreds of thousands of deadlines that come and go with each message use a coarse wheel of
// one's own; this is for what is rarer.
// Invariants: equal due times fire in the order they were made; a timer made inside a callback does
// not fire in the same round, so no chain of zero delays can starve the loop.

export class Timer {
  readonly #heap: TimerHeap;
  readonly #callback: () => void;
  readonly intervalMs: number;
  /** When it fires, on the clock of the heap's owner. */
  dueMs: number;
  /** Order among equal due times. */
  sequence = 0;
  /** Position in the heap; -1 when not waiting. Kept by the heap. */
  position = -1;

  constructor(heap: TimerHeap, dueMs: number, intervalMs: number, callback: () => void) {
    this.#heap = heap;
    this.dueMs = dueMs;
    this.intervalMs = intervalMs;
    this.#callback = callback;
  }

  /** True until it has fired (never, when it repeats) or was cancelled. */
  get active(): boolean {
    return this.position >= 0;
  }

  /** Idempotent; also right inside any timer's callback, its own included. */
  cancel(): void {
    this.#heap.remove(this);
  }

  fire(): void {
    this.#callback();
  }
}

export class TimerHeap {
  readonly #timers: Timer[] = [];
  #nextSequence = 1;

  get size(): number {
    return this.#timers.length;
  }

  /** The due time of the earliest timer; Infinity when there is none. */
  get nextDueMs(): number {
    return this.#timers[0]?.dueMs ?? Infinity;
  }

  /** intervalMs 0 = once. `dueMs` is not in the past: it sorts behind all that are due by now. */
  add(dueMs: number, intervalMs: number, callback: () => void): Timer {
    const timer = new Timer(this, dueMs, intervalMs, callback);
    this.#insert(timer);
    return timer;
  }

  remove(timer: Timer): void {
    const position = timer.position;
    if (position < 0) return;
    timer.position = -1;
    const last = this.#timers.pop()!;
    if (last === timer) return;
    this.#timers[position] = last;
    last.position = position;
    this.#siftUp(last);
    this.#siftDown(last);
  }

  clear(): void {
    for (const timer of this.#timers) timer.position = -1;
    this.#timers.length = 0;
  }

  /** Fires all that are due at `nowMs` and were made before this call. */
  fireDue(nowMs: number): void {
    const firstNewSequence = this.#nextSequence;
    for (;;) {
      const timer = this.#timers[0];
      if (timer === undefined || timer.dueMs > nowMs || timer.sequence >= firstNewSequence) return;
      this.remove(timer);
      if (timer.intervalMs > 0) {
        timer.dueMs += timer.intervalMs;
        // Repetitions that were missed are skipped, not made up for.
        if (timer.dueMs <= nowMs) timer.dueMs = nowMs + timer.intervalMs;
        this.#insert(timer);
      }
      timer.fire();
    }
  }

  #insert(timer: Timer): void {
    timer.sequence = this.#nextSequence++;
    timer.position = this.#timers.length;
    this.#timers.push(timer);
    this.#siftUp(timer);
  }

  #siftUp(timer: Timer): void {
    const timers = this.#timers;
    let position = timer.position;
    while (position > 0) {
      const parentPosition = (position - 1) >> 1;
      const parent = timers[parentPosition]!;
      if (!isBefore(timer, parent)) break;
      timers[position] = parent;
      parent.position = position;
      position = parentPosition;
    }
    timers[position] = timer;
    timer.position = position;
  }

  #siftDown(timer: Timer): void {
    const timers = this.#timers;
    let position = timer.position;
    for (;;) {
      let childPosition = 2 * position + 1;
      if (childPosition >= timers.length) break;
      let child = timers[childPosition]!;
      const right = timers[childPosition + 1];
      if (right !== undefined && isBefore(right, child)) {
        child = right;
        childPosition++;
      }
      if (!isBefore(child, timer)) break;
      timers[position] = child;
      child.position = position;
      position = childPosition;
    }
    timers[position] = timer;
    timer.position = position;
  }
}

function isBefore(a: Timer, b: Timer): boolean {
  return a.dueMs < b.dueMs || (a.dueMs === b.dueMs && a.sequence < b.sequence);
}
