// Cuts a received stream into messages for cold consumers: control connections and tests. The data
// plane frames its own buffers and does not use it.
// Bounds are checked before a body is awaited, nothing is allocated by a claimed length, and after the
// first bad frame all further input is refused.

import { WireError } from "./errors.ts";
import { backendFrameProblem, frontendFrameProblem, readInt32 } from "./frame.ts";
import { initialPacketLengthProblem } from "./startup.ts";

/** A complete message. The body is a copy that belongs to the caller. */
export type Message = { type: number; body: Uint8Array };

export type MessageReaderOptions = {
  /** Whose messages are read: a server's (the default) or a client's. */
  side?: "backend" | "frontend";
  /** The largest length word taken, in bytes; default 16 MiB. */
  maxLength?: number;
};

/**
 * Cuts a stream into messages, however it arrives. For control connections and tests, not for the
 * data plane: it copies. What is buffered is bounded by maxLength + one pushed chunk as long as the
 * caller takes all messages out after each push. After the first bad frame every call throws the
 * same WireError.
 */
export class MessageReader {
  readonly #problem: (type: number, length: number) => string | null;
  readonly #maxLength: number;
  // #bytes[#start..#end) is received and not yet taken.
  #bytes: Uint8Array = new Uint8Array(0);
  #start = 0;
  #end = 0;
  #failure: WireError | null = null;

  constructor(options: MessageReaderOptions = {}) {
    this.#problem = options.side === "frontend" ? frontendFrameProblem : backendFrameProblem;
    this.#maxLength = options.maxLength ?? 16 * 1024 * 1024;
  }

  /** Bytes received and not yet taken out. */
  get buffered(): number {
    return this.#end - this.#start;
  }

  /** Adds received bytes (copied). Throws WireError when the stream has failed before. */
  push(bytes: Uint8Array): void {
    if (this.#failure) throw this.#failure;
    this.#reserve(bytes.length);
    this.#bytes.set(bytes, this.#end);
    this.#end += bytes.length;
  }

  /** The next complete message, or null when more bytes are needed. Throws WireError. */
  next(): Message | null {
    if (this.#failure) throw this.#failure;
    if (this.buffered < 5) return null;
    const type = this.#bytes[this.#start]!;
    const length = readInt32(this.#bytes, this.#start + 1);
    const problem = this.#problem(type, length);
    if (problem !== null) throw this.#fail(`read message: ${problem}`);
    this.#refuseAbove(length);
    if (this.buffered < 1 + length) return null;
    const body = this.#bytes.slice(this.#start + 5, this.#start + 1 + length);
    this.#take(1 + length);
    return { type, body };
  }

  /**
   * The next complete initial packet (startup, SSLRequest, cancel ...) with its length word, or null
   * when more bytes are needed; it has no type byte, so only the caller knows when one is due.
   * Throws WireError.
   */
  nextInitialPacket(): Uint8Array | null {
    if (this.#failure) throw this.#failure;
    if (this.buffered < 4) return null;
    const length = readInt32(this.#bytes, this.#start);
    const problem = initialPacketLengthProblem(length);
    if (problem !== null) throw this.#fail(`read initial packet: ${problem}`);
    if (this.buffered < length) return null;
    const packet = this.#bytes.slice(this.#start, this.#start + length);
    this.#take(length);
    return packet;
  }

  /** The next single byte, a server's answer to SSLRequest, or null when there is none yet. */
  nextByte(): number | null {
    if (this.#failure) throw this.#failure;
    if (this.buffered === 0) return null;
    const byte = this.#bytes[this.#start]!;
    this.#take(1);
    return byte;
  }

  #refuseAbove(length: number): void {
    if (length <= this.#maxLength) return;
    throw this.#fail(`read message: length ${length}, wanted at most ${this.#maxLength}`);
  }

  #fail(message: string): WireError {
    this.#failure = new WireError(message);
    this.#bytes = new Uint8Array(0);
    this.#start = this.#end = 0;
    return this.#failure;
  }

  #take(count: number): void {
    this.#start += count;
    if (this.#start === this.#end) this.#start = this.#end = 0;
  }

  // Makes room for `count` more bytes: first by moving what is left to the front, then by doubling,
  // so that a message that comes byte by byte costs linear time.
  #reserve(count: number): void {
    if (this.#end + count <= this.#bytes.length) return;
    const kept = this.buffered;
    const fits = kept + count <= this.#bytes.length / 2;
    const target = fits
      ? this.#bytes
      : new Uint8Array(Math.max(1024, this.#bytes.length * 2, kept + count));
    target.set(this.#bytes.subarray(this.#start, this.#end));
    this.#bytes = target;
    this.#start = 0;
    this.#end = kept;
  }
}
