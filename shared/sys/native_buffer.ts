// Memory that JavaScript and libc share. The address is looked up once, at construction.
// Invariants: the memory never moves or changes size, and no buffer crosses a 4 GiB boundary, so
// that "address + offset" is an addition on the low half of the address alone.

import { foreign } from "./ffi.ts";
import type { Pointer } from "./foreign.ts";

const HALF = 0x1_0000_0000;

export class NativeBuffer {
  /** The whole memory. Views of it stay valid for as long as the buffer is reachable. */
  readonly bytes: Uint8Array;
  readonly view: DataView;
  readonly size: number;
  /** For foreign calls only, as are the next five. */
  readonly pointer: Pointer;
  /** The offset that has a pointer of its own: the one most used. */
  readonly anchor: number;
  readonly anchorPointer: Pointer;
  readonly addressLow: number;
  readonly addressHigh: number;
  #pointers: Map<number, Pointer> | null = null;

  /** `anchor`: the offset that most calls will use, for which they are cheapest on Deno. */
  constructor(size: number, anchor = 0) {
    if (!Number.isInteger(size) || size < 1 || size > 0x4000_0000) {
      throw new RangeError(`make a native buffer: the size is ${size}, wanted 1 to 1073741824`);
    }
    // A buffer of its own: a short typed array would live on the garbage-collected heap and move.
    let bytes = new Uint8Array(new ArrayBuffer(size));
    let address = foreign.addressOf(bytes);
    while ((address[0] >>> 0) + size > HALF) {
      // The rejected one stays reachable during the next try, which therefore lies elsewhere.
      const elsewhere = new Uint8Array(new ArrayBuffer(size));
      address = foreign.addressOf(elsewhere);
      bytes = elsewhere;
    }
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer);
    this.size = size;
    this.pointer = foreign.pointerOf(bytes);
    this.anchor = anchor;
    this.anchorPointer = foreign.pointerOf(bytes.subarray(anchor));
    this.addressLow = address[0];
    this.addressHigh = address[1];
  }

  /** Pointers to other offsets, where making one costs something. */
  get pointers(): Map<number, Pointer> {
    return this.#pointers ??= new Map();
  }
}
