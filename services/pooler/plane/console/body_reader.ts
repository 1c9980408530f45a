// Reads the fields of a message body. Any bytes will do: a read beyond the end gives nothing and is
// remembered, so that one question at the end (`complete`) judges the whole body.

import { readInt16, readInt32 } from "../../../../shared/wire/mod.ts";

const latin1 = new TextDecoder("latin1");
const lossy = new TextDecoder("utf-8", { ignoreBOM: true });

export class BodyReader {
  readonly #body: Uint8Array;
  #at = 0;
  #broken = false;

  constructor(body: Uint8Array) {
    this.#body = body;
  }

  /** Every field was there, and nothing is left. */
  get complete(): boolean {
    return !this.#broken && this.#at === this.#body.length;
  }

  byte(): number {
    return this.#take(1) ? this.#body[this.#at - 1] as number : 0;
  }

  int16(): number {
    return this.#take(2) ? readInt16(this.#body, this.#at - 2) : 0;
  }

  int32(): number {
    return this.#take(4) ? readInt32(this.#body, this.#at - 4) : 0;
  }

  skip(length: number): void {
    this.#take(length);
  }

  /** A null-terminated string as text; bytes that are no UTF-8 are replaced. */
  text(): string {
    return lossy.decode(this.#string());
  }

  /** A null-terminated string as a key: one character for each byte, so that two names never meet. */
  name(): string {
    return latin1.decode(this.#string());
  }

  #string(): Uint8Array {
    const end = this.#body.indexOf(0, this.#at);
    if (this.#broken || end < 0) {
      this.#broken = true;
      return new Uint8Array(0);
    }
    const bytes = this.#body.subarray(this.#at, end);
    this.#at = end + 1;
    return bytes;
  }

  #take(length: number): boolean {
    if (this.#broken || length < 0 || length > this.#body.length - this.#at) {
      this.#broken = true;
      return false;
    }
    this.#at += length;
    return true;
  }
}
