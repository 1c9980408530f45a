// The one block of memory that the data plane's bytes pass through, and the outlet that sends them on.
//
//   0            IN_AT                      OUT_AT                          ARENA_SIZE
//   | headroom   | receive region           | compose region                |
//   |   [tail)   [what recv() wrote)        [messages changed or injected)  |
//
// A socket's unfinished tail is copied in front of IN_AT before the next receive, so a message is
// always contiguous. Bytes that need no change are sent from where they were received; only a batch
// in which something is rewritten, injected or left out is composed (by memmove) and sent from there.
// The arena is used by one socket at a time: whoever consumes it flushes before anyone else reads.

import { NativeBuffer, type Stream } from "../../../shared/sys/mod.ts";

export const TAIL_MAX = 32 * 1024;
export const IN_AT = TAIL_MAX;
export const IN_SIZE = 64 * 1024;
const OUT_AT = IN_AT + IN_SIZE;
const OUT_SIZE = 128 * 1024;

export class Arena {
  readonly memory: NativeBuffer = new NativeBuffer(OUT_AT + OUT_SIZE, IN_AT);
  readonly bytes: Uint8Array = this.memory.bytes;
}

/**
 * Collects what one consumer sends to one stream: runs of received bytes and injected messages, in
 * order. Between `begin` and `flush` nothing else may use the arena.
 */
export class Outlet {
  readonly #arena: Arena;
  #stream: Stream | null = null;
  #runFrom = 0;
  #runTo = 0;
  #composed = 0;
  #result = 0;

  constructor(arena: Arena) {
    this.#arena = arena;
  }

  /** Starts collecting for `stream`; null swallows everything. */
  begin(stream: Stream | null): void {
    this.#stream = stream;
    this.#runFrom = 0;
    this.#runTo = 0;
    this.#composed = 0;
    this.#result = 0;
  }

  /** Passes on the arena's bytes [from, to). */
  pass(from: number, to: number): void {
    if (from >= to) return;
    if (this.#composed === 0) {
      if (this.#runFrom === this.#runTo) {
        this.#runFrom = from;
        this.#runTo = to;
        return;
      }
      if (this.#runTo === from) {
        this.#runTo = to;
        return;
      }
      this.#compose();
    }
    this.#append(from, to);
  }

  /** Injects a message that is not in the arena. */
  put(message: Uint8Array): void {
    if (this.#composed === 0 && this.#runFrom !== this.#runTo) this.#compose();
    if (message.length > OUT_SIZE - this.#composed) this.#sendAll();
    if (message.length > OUT_SIZE) {
      if (this.#stream !== null && this.#result >= 0) {
        this.#result = this.#stream.sendBytes(message);
      }
      return;
    }
    this.#arena.bytes.set(message, OUT_AT + this.#composed);
    this.#composed += message.length;
  }

  /** Injects a message header: the type byte and the int32 length. */
  putHeader(type: number, length: number): void {
    if (this.#composed === 0 && this.#runFrom !== this.#runTo) this.#compose();
    if (OUT_SIZE - this.#composed < 5) this.#sendAll();
    const bytes = this.#arena.bytes;
    const at = OUT_AT + this.#composed;
    bytes[at] = type;
    bytes[at + 1] = length >>> 24;
    bytes[at + 2] = length >>> 16;
    bytes[at + 3] = length >>> 8;
    bytes[at + 4] = length;
    this.#composed += 5;
  }

  /** Sends what was collected. Returns the bytes still pending on the stream, or -errno. */
  flush(): number {
    this.#sendAll();
    this.#stream = null;
    return this.#result;
  }

  #compose(): void {
    const from = this.#runFrom;
    const to = this.#runTo;
    this.#runFrom = 0;
    this.#runTo = 0;
    this.#append(from, to);
  }

  #append(from: number, to: number): void {
    const length = to - from;
    if (length > OUT_SIZE - this.#composed) this.#sendAll();
    this.#arena.bytes.copyWithin(OUT_AT + this.#composed, from, to);
    this.#composed += length;
  }

  #sendAll(): void {
    const stream = this.#stream;
    if (stream !== null && this.#result >= 0) {
      if (this.#composed > 0) {
        this.#result = stream.send(this.#arena.memory, OUT_AT, this.#composed);
      } else if (this.#runTo > this.#runFrom) {
        this.#result = stream.send(this.#arena.memory, this.#runFrom, this.#runTo - this.#runFrom);
      }
    }
    this.#composed = 0;
    this.#runFrom = 0;
    this.#runTo = 0;
  }
}
