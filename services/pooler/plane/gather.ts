// A message that has to be seen whole and is larger than the arena's headroom, collected as it arrives.
// Memory follows what has come, never the length that the message claims.

import { TAIL_MAX } from "./arena.ts";

/** A message larger than the arena's headroom, collected as it arrives: never by its claimed size. */
export class Gather {
  #buffer = new Uint8Array(2 * TAIL_MAX);
  #filled = 0;
  readonly #length: number;

  constructor(length: number) {
    this.#length = length;
  }

  get complete(): boolean {
    return this.#filled === this.#length;
  }

  /** How many bytes it has. */
  get filled(): number {
    return this.#filled;
  }

  get bytes(): Uint8Array {
    return this.#buffer.subarray(0, this.#filled);
  }

  /** Takes what it needs of [at, end); returns where the rest begins. */
  add(bytes: Uint8Array, at: number, end: number): number {
    const part = Math.min(this.#length - this.#filled, end - at);
    if (this.#filled + part > this.#buffer.length) {
      const larger = new Uint8Array(Math.min(this.#length, 2 * (this.#filled + part)));
      larger.set(this.#buffer.subarray(0, this.#filled));
      this.#buffer = larger;
    }
    this.#buffer.set(bytes.subarray(at, at + part), this.#filled);
    this.#filled += part;
    return at + part;
  }
}
