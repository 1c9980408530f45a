// The mean over about the last two seconds of a number that changes in steps, as a demand does with every
// transaction: older values count for less and less. It was 0 before the first. No samples are kept.

/** After so long a value counts for a third; a plain mean over twice as long is as steady. */
const TIME_CONSTANT_MS = 1000;

export class Average {
  #mean = 0;
  #value = 0;
  #at = 0;

  /** The number is `value` from now on. */
  set(value: number, now: number): void {
    this.#mean = this.at(now);
    this.#at = now;
    this.#value = value;
  }

  at(now: number): number {
    const weight = Math.exp(Math.min(0, this.#at - now) / TIME_CONSTANT_MS);
    return this.#value + (this.#mean - this.#value) * weight;
  }

  /** It is on its way to another value yet. */
  isMoving(now: number): boolean {
    return Math.abs(this.at(now) - this.#value) > 0.02 * Math.max(1, this.#value);
  }
}
