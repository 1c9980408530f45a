// The time in which this process ran, as its ticks show it. Pure: told the time. A process that was stopped
// or blocked (SIGSTOP, a log that nobody reads) heard nobody meanwhile, and must not take that for their
// silence: of a pause between two ticks it counts no more than two regular ones.

export class RunningClock {
  readonly #tickMs: number;
  #lastTick: number | null = null;
  #ranMs = 0;

  constructor(tickMs: number) {
    this.#tickMs = tickMs;
  }

  /** Milliseconds that count, up to the last tick. */
  get ranMs(): number {
    return this.#ranMs;
  }

  tick(now: number): void {
    const passed = this.#lastTick === null ? 0 : now - this.#lastTick;
    this.#ranMs += Math.min(passed, 2 * this.#tickMs);
    this.#lastTick = now;
  }

  /** Nothing counts from the last tick to the next one. */
  pause(): void {
    this.#lastTick = null;
  }
}
