// Output that the kernel did not take yet: a list of fixed-size chunks, filled at the tail and sent
// from the head, so that no byte is copied twice however long the queue grows.
// It has no bound of its own: the owner stops reading from the source while bytes are pending.
// Invariant: bytes leave in the order they came; a chunk is in one queue or in the pool.

import { Errno } from "./errno.ts";
import { sendAt } from "./libc.ts";
import { NativeBuffer } from "./native_buffer.ts";
import type { TlsSession } from "./tls.ts";

const CHUNK_BYTES = 16 * 1024;
/** Chunks kept for reuse: 4 MiB, so that a burst of slow readers does not stay in memory. */
const MAX_POOLED_CHUNKS = 256;

//   buffer  |  sent  |  pending  |  free  |
//           0      start        end      CHUNK_BYTES
interface Chunk {
  readonly buffer: NativeBuffer;
  start: number;
  end: number;
  next: Chunk | null;
}

/** The spare chunks of one thread. */
export class ChunkPool {
  /** What bytes from anywhere are sent from; free again when the call that fills it returns. */
  readonly scratch: NativeBuffer = new NativeBuffer(CHUNK_BYTES);
  #free: Chunk | null = null;
  #freeCount = 0;

  take(): Chunk {
    const chunk = this.#free;
    if (chunk === null) {
      return { buffer: new NativeBuffer(CHUNK_BYTES), start: 0, end: 0, next: null };
    }
    this.#free = chunk.next;
    this.#freeCount--;
    chunk.start = 0;
    chunk.end = 0;
    chunk.next = null;
    return chunk;
  }

  give(chunk: Chunk): void {
    if (this.#freeCount >= MAX_POOLED_CHUNKS) return;
    chunk.next = this.#free;
    this.#free = chunk;
    this.#freeCount++;
  }
}

export class OutputQueue {
  readonly #pool: ChunkPool;
  #head: Chunk | null = null;
  #tail: Chunk | null = null;
  /** Bytes that wait. */
  size = 0;

  constructor(pool: ChunkPool) {
    this.#pool = pool;
  }

  append(bytes: Uint8Array, offset: number, length: number): void {
    const end = offset + length;
    let at = offset;
    while (at < end) {
      let tail = this.#tail;
      if (tail === null || tail.end === CHUNK_BYTES) {
        const chunk = this.#pool.take();
        if (tail === null) this.#head = chunk;
        else tail.next = chunk;
        this.#tail = chunk;
        tail = chunk;
      }
      const count = Math.min(end - at, CHUNK_BYTES - tail.end);
      tail.buffer.bytes.set(bytes.subarray(at, at + count), tail.end);
      tail.end += count;
      at += count;
    }
    this.size += length;
  }

  /** Sends until nothing is left or the kernel takes no more. 0, or the errno of a broken socket. */
  flush(fd: number, tls: TlsSession | null): number {
    for (let head = this.#head; head !== null; head = this.#head) {
      const pending = head.end - head.start;
      const sent = tls === null
        ? sendAt(fd, head.buffer, head.start, pending)
        : tls.write(head.buffer, head.start, pending);
      if (sent < 0) {
        if (sent === -Errno.EINTR) continue;
        return sent === -Errno.EAGAIN ? 0 : -sent;
      }
      this.size -= sent;
      head.start += sent;
      if (sent < pending) return 0;
      this.#dropHead(head);
    }
    return 0;
  }

  clear(): void {
    while (this.#head !== null) this.#dropHead(this.#head);
    this.size = 0;
  }

  #dropHead(head: Chunk): void {
    this.#head = head.next;
    if (this.#head === null) this.#tail = null;
    this.#pool.give(head);
  }
}
