// How late a thread looks at its events: measured by a timer that should come in equal steps. Pure: given the clock.
// It is the mean over the moments at which the timer was due, so it is what something that comes at a random moment
// waits; one long batch counts by how long it is, and a single pause of a garbage collection hardly.

/** Behind that it was stopped, or its host asleep: no load makes it so late. */
const stoppedMs = 5000;

export class EventLoopLag {
  readonly #stepMs: number;
  #due: number;
  #sum = 0;
  #count = 0;

  /** The timer has steps of `stepMs`, and is due at `due` for the first time. */
  constructor(stepMs: number, due: number) {
    this.#stepMs = stepMs;
    this.#due = due;
  }

  /** The timer has fired, and is due at `due` for the next time. Steps that it has missed it does not make up for. */
  tick(now: number, due: number): void {
    const step = this.#stepMs;
    let late = now - this.#due;
    this.#due = due;
    if (late >= stoppedMs) {
      this.#sum = this.#count = 0;
      return;
    }
    // Those it has missed came as late as it was then.
    do {
      this.#sum += Math.max(0, late);
      this.#count++;
      late -= step;
    } while (late > 0);
  }

  /** The mean since it was last taken, in milliseconds. */
  take(): number {
    const mean = this.#count === 0 ? 0 : this.#sum / this.#count;
    this.#sum = this.#count = 0;
    return mean;
  }
}
