// Cuts what a console client sends into messages, however it arrives. A message over the bound is
// skipped as it comes, never held, and reported in its turn: the connection stays in step.
// Invariant: what is held is one unfinished message within the bound and what was pushed with it.

import { frontendFrameProblem, readInt32 } from "../../../../shared/wire/mod.ts";

/** Longest message body, in bytes. */
export const bodyMax = 64 * 1024;

export type Frame =
  | { kind: "message"; type: number; body: Uint8Array }
  /** Its body was longer than `bodyMax`, and is gone. */
  | { kind: "tooLong"; type: number }
  /** No frame of the protocol: nothing that follows can be read. */
  | { kind: "problem"; text: string };

export class Frames {
  // #bytes[#at..#end) was pushed and not taken.
  #bytes: Uint8Array = new Uint8Array(0);
  #at = 0;
  #end = 0;
  /** Type and bytes left of the message that is being skipped; null if none is. */
  #skipping: { readonly type: number; left: number } | null = null;
  #problem: Frame | null = null;

  /** Bytes that were not taken yet. */
  get held(): number {
    return this.#end - this.#at;
  }

  /** Adds received bytes; they are copied. */
  push(bytes: Uint8Array, at: number, end: number): void {
    const added = end - at;
    if (this.#end + added > this.#bytes.length) {
      const size = this.held + added;
      // Room to grow, so that a message that comes in small pieces is not copied with each of them.
      const target = size > this.#bytes.length / 2 ? new Uint8Array(2 * size) : this.#bytes;
      target.set(this.#bytes.subarray(this.#at, this.#end), 0);
      this.#bytes = target;
      this.#end -= this.#at;
      this.#at = 0;
    }
    this.#bytes.set(bytes.subarray(at, end), this.#end);
    this.#end += added;
  }

  /** The next message, or null when more bytes are needed. */
  next(): Frame | null {
    if (this.#problem !== null) return this.#problem;
    if (this.#skipping !== null) return this.#skip();
    const bytes = this.#bytes;
    const at = this.#at;
    if (this.held < 5) return this.#release();
    const type = bytes[at] as number;
    const length = readInt32(bytes, at + 1);
    const problem = frontendFrameProblem(type, length);
    if (problem !== null) {
      this.#problem = { kind: "problem", text: problem };
      return this.#problem;
    }
    if (length - 4 > bodyMax) {
      this.#at += 5;
      this.#skipping = { type, left: length - 4 };
      return this.#skip();
    }
    const next = at + 1 + length;
    if (next > this.#end) return null;
    this.#at = next;
    return { kind: "message", type, body: bytes.slice(at + 5, next) };
  }

  /** An idle console holds no memory. */
  #release(): null {
    if (this.held === 0) {
      this.#bytes = new Uint8Array(0);
      this.#at = 0;
      this.#end = 0;
    }
    return null;
  }

  #skip(): Frame | null {
    const skipping = this.#skipping as { type: number; left: number };
    const part = Math.min(skipping.left, this.held);
    skipping.left -= part;
    this.#at += part;
    if (skipping.left > 0) return this.#release();
    this.#skipping = null;
    return { kind: "tooLong", type: skipping.type };
  }
}
