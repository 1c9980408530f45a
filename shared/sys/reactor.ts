// A single-threaded epoll loop (level-triggered) with timers and a wake-up descriptor.
// It blocks its thread in epoll_wait: it belongs in a thread of its own. Not a scheduler: whoever is
// called back does a bounded piece of work and returns; an exception ends run().
// Invariants: an event that was fetched for a source which has left meanwhile reaches nobody (each
// registration has a generation, carried by the kernel in the upper half of epoll_data); nothing is
// allocated per event; the clock is read once per batch.
//
// One batch: wait -> now -> events -> messages and onWake if woken -> due timers -> onBatchEnd.

import { ChunkPool } from "./output_queue.ts";
import { SysError } from "./errno.ts";
import { createEventFd, drainEventFd } from "./event_fd.ts";
import {
  closeFd,
  EPOLL_CLOEXEC,
  EPOLL_CTL_ADD,
  EPOLL_CTL_DEL,
  EPOLL_CTL_MOD,
  lastErrno,
  libc,
} from "./libc.ts";
import { NativeBuffer } from "./native_buffer.ts";
import { deliverPosted } from "./thread.ts";
import { type Timer, TimerHeap } from "./timers.ts";

export const EPOLLIN = 0x1;
export const EPOLLOUT = 0x4;
export const EPOLLERR = 0x8;
export const EPOLLHUP = 0x10;
export const EPOLLRDHUP = 0x2000;

export interface EventSource {
  /** `mask` holds the EPOLL* bits that are ready; ERR and HUP come without being asked for. */
  onEvents(mask: number): void;
}

const MAX_EVENTS = 512;
// struct epoll_event { u32 events; u64 data }: packed to 12 bytes on x86-64, padded to 16 elsewhere.
const EVENT_WORDS = process.arch === "x64" ? 3 : 4;
const FD_WORD = process.arch === "x64" ? 1 : 2;
const GENERATION_WORD = FD_WORD + 1;
const MAX_TIMEOUT_MS = 0x7fff_ffff;
const NO_GENERATION = 0;

export class Reactor {
  /** Monotonic milliseconds (performance.now()) as of the current batch. */
  now: number = performance.now();
  /** Signal it (signalEventFd) from another thread to get the loop out of its wait. */
  readonly wakeFd: number;
  /**
   * Called and awaited when wakeFd was signalled, after it was drained. By then every message that
   * Thread.post() sent before the signal has been handed to threadPort().onMessage.
   */
  onWake: (() => void | Promise<void>) | null = null;
  /** After the events, messages and timers of a batch, before the next wait. */
  onBatchEnd: (() => void) | null = null;
  /** For the streams of this reactor: memory for output that the kernel did not take. */
  readonly chunks: ChunkPool = new ChunkPool();

  readonly #epollFd: number;
  readonly #eventBuffer = new NativeBuffer(4 * EVENT_WORDS * MAX_EVENTS);
  readonly #events = new Int32Array(this.#eventBuffer.bytes.buffer);
  readonly #control = new NativeBuffer(4 * EVENT_WORDS);
  readonly #controlWords = new Int32Array(this.#control.bytes.buffer);
  readonly #timers = new TimerHeap();
  // Both by descriptor.
  readonly #sources: (EventSource | null)[] = [];
  readonly #generations: number[] = [];
  #lastGeneration = NO_GENERATION;
  #soon: (() => void)[] = [];
  #spare: (() => void)[] = [];
  #running = false;
  #woken = false;
  #closed = false;

  constructor() {
    this.#epollFd = libc.epoll_create1(EPOLL_CLOEXEC);
    if (this.#epollFd < 0) throw new SysError("create a reactor", "epoll_create1", lastErrno());
    try {
      this.wakeFd = createEventFd();
    } catch (error) {
      closeFd(this.#epollFd);
      throw error;
    }
    this.add(this.wakeFd, EPOLLIN, {
      onEvents: () => {
        drainEventFd(this.wakeFd);
        this.#woken = true;
      },
    });
  }

  /** Watches `fd`, which must not be watched already. `interest` may be 0 (errors only). */
  add(fd: number, interest: number, source: EventSource): void {
    while (this.#sources.length <= fd) {
      this.#sources.push(null);
      this.#generations.push(NO_GENERATION);
    }
    if (this.#sources[fd] !== null) {
      throw new Error(`watch the descriptor ${fd}: it is watched already, wanted a remove() first`);
    }
    this.#lastGeneration = (this.#lastGeneration + 1) | 0;
    if (this.#lastGeneration === NO_GENERATION) this.#lastGeneration++;
    const errno = this.#epollCtl(EPOLL_CTL_ADD, fd, interest, this.#lastGeneration);
    if (errno !== 0) throw new SysError(`watch the descriptor ${fd}`, "epoll_ctl", errno);
    this.#sources[fd] = source;
    this.#generations[fd] = this.#lastGeneration;
  }

  modify(fd: number, interest: number): void {
    const generation = this.#generations[fd] ?? NO_GENERATION;
    const errno = this.#epollCtl(EPOLL_CTL_MOD, fd, interest, generation);
    if (errno !== 0) {
      throw new SysError(`change the events of the descriptor ${fd}`, "epoll_ctl", errno);
    }
  }

  /** Call it before the descriptor is closed. A descriptor that is not watched is ignored. */
  remove(fd: number): void {
    if (fd < 0 || fd >= this.#sources.length || this.#sources[fd] === null) return;
    this.#sources[fd] = null;
    this.#generations[fd] = NO_GENERATION;
    libc.epoll_ctl(this.#epollFd, EPOLL_CTL_DEL, fd, null);
  }

  /** Calls back once, `delayMs` from the present moment. */
  after(delayMs: number, callback: () => void): Timer {
    return this.#timers.add(performance.now() + Math.max(0, delayMs), 0, callback);
  }

  /** Calls back every `intervalMs`, which is more than 0. Missed repetitions are skipped. */
  every(intervalMs: number, callback: () => void): Timer {
    if (!(intervalMs > 0)) {
      throw new RangeError(`repeat a timer: the interval is ${intervalMs} ms, wanted more than 0`);
    }
    return this.#timers.add(performance.now() + intervalMs, intervalMs, callback);
  }

  /** Calls back in the next batch, after its events; that batch does not wait for any. */
  soon(callback: () => void): void {
    this.#soon.push(callback);
  }

  /** Serves until stop(). Synchronous inside, except for the wait for messages after a wake-up. */
  async run(): Promise<void> {
    if (this.#running) throw new Error("run the reactor: it is running, wanted one run at a time");
    if (this.#closed) throw new Error("run the reactor: it is closed, wanted an open one");
    this.#running = true;
    try {
      while (this.#running) {
        this.#waitAndDispatch();
        if (this.#woken) {
          this.#woken = false;
          await deliverPosted(this.wakeFd);
          await this.onWake?.();
          this.now = performance.now();
        }
        if (this.#timers.nextDueMs <= this.now) this.#timers.fireDue(this.now);
        this.onBatchEnd?.();
      }
    } finally {
      this.#running = false;
    }
  }

  /** run() returns at the end of the current batch. From within the loop's thread only. */
  stop(): void {
    this.#running = false;
  }

  /** Releases the loop's own descriptors, not those of its sources. Idempotent; implies stop(). */
  close(): void {
    this.#running = false;
    if (this.#closed) return;
    this.#closed = true;
    this.#timers.clear();
    this.#sources.fill(null);
    this.#generations.fill(NO_GENERATION);
    closeFd(this.wakeFd);
    closeFd(this.#epollFd);
  }

  #waitAndDispatch(): void {
    const due = this.#soon;
    if (due.length > 0) {
      this.#soon = this.#spare;
      this.#spare = due;
    }
    const count = libc.epoll_wait(
      this.#epollFd,
      this.#eventBuffer.pointer,
      MAX_EVENTS,
      due.length > 0 ? 0 : this.#timeoutMs(),
    );
    this.now = performance.now();
    const events = this.#events;
    const generations = this.#generations;
    // -1 is EINTR: a signal, and nothing to dispatch.
    for (let i = 0, at = 0; i < count; i++, at += EVENT_WORDS) {
      const fd = events[at + FD_WORD]!;
      if (generations[fd] === events[at + GENERATION_WORD]) {
        this.#sources[fd]!.onEvents(events[at]!);
      }
    }
    if (due === this.#soon) return;
    for (const callback of due) callback();
    due.length = 0;
  }

  #timeoutMs(): number {
    const dueMs = this.#timers.nextDueMs;
    if (dueMs === Infinity) return -1;
    // Rounded up: a wait that ends just before the due time would spin until it has come.
    return Math.min(Math.max(0, Math.ceil(dueMs - performance.now())), MAX_TIMEOUT_MS);
  }

  /** 0 or the errno. */
  #epollCtl(operation: number, fd: number, interest: number, generation: number): number {
    const words = this.#controlWords;
    words[0] = interest;
    words[FD_WORD] = fd;
    words[GENERATION_WORD] = generation;
    const result = libc.epoll_ctl(this.#epollFd, operation, fd, this.#control.pointer);
    return result === 0 ? 0 : lastErrno();
  }
}
