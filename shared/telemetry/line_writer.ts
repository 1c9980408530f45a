// Writes whole lines to a descriptor, before returning. Not a stream: process.stderr queues without a
// bound and loses its queue when the process exits.
// Invariants: never throws, never blocks on a pipe that is non-blocking and full; what it could not
// write is counted and reported before the next line that goes through; lines are never mixed.

import { Buffer } from "node:buffer";

/** The same as `writeSync`: bytes taken, or an exception with a code. */
export type WriteBytes = (bytes: Uint8Array) => number;

export class LineWriter {
  readonly #writeBytes: WriteBytes;
  readonly #trouble: string;
  /** The end of a line whose beginning was taken; at most one line long. */
  #rest: Uint8Array = Buffer.alloc(0);
  #lost = 0;

  /** `trouble` completes "3 log lines lost: ". */
  constructor(writeBytes: WriteBytes, trouble: string) {
    this.#writeBytes = writeBytes;
    this.#trouble = trouble;
  }

  /** Lines that were dropped since the last line that was written. */
  get lost(): number {
    return this.#lost;
  }

  /** Bound: can be passed on as a function. */
  readonly write = (line: string): void => {
    if (!this.#flush()) {
      this.#lost += 1;
      return;
    }
    const report = this.#lost > 0 ? `${this.#lost} log lines lost: ${this.#trouble}\n` : "";
    this.#lost = 0;
    this.#rest = Buffer.from(report + line);
    this.#flush();
  };

  /** Writes what is left of the last line; whether all of it was taken. */
  #flush(): boolean {
    while (this.#rest.length > 0) {
      try {
        const written = this.#writeBytes(this.#rest);
        this.#rest = this.#rest.subarray(written);
      } catch (error) {
        const code = (error as { code?: string }).code;
        if (code === "EINTR") continue;
        if (code === "EAGAIN") return false; // blocked: the rest waits for the next line
        // A closed pipe, a full disk: the next line tries afresh.
        this.#rest = Buffer.alloc(0);
        this.#lost += 1;
        return false;
      }
    }
    return true;
  }
}
