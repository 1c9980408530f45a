// Worker threads that may block in epoll_wait, and messages to and from them, alike on all runtimes.
// A blocked thread gets no messages: the runtime hands them over only when the thread's own loop
// yields. So post() counts messages in shared memory and signals the thread's eventfd, and the
// reactor, woken, yields until as many have arrived (deliverPosted).
// Invariants: messages arrive in order; a message posted before a signal is handed over before
// Reactor.onWake; nothing is sent before the thread listens.

import { writeFileSync } from "node:fs";
import { closeFd } from "./libc.ts";
import { duplicateFd, signalEventFd } from "./event_fd.ts";
import { isMainThread } from "./runtime.ts";

export interface Thread {
  /** Sends a message (structured clone); wakes the thread when wakeFd is set. */
  post(message: unknown): void;
  onMessage: (message: unknown) => void;
  /** The thread has failed and is gone. Without a handler the error ends the process. */
  onError: (error: Error) => void;
  /**
   * The thread's Reactor.wakeFd, which the thread tells in a message of its own; -1 = none. Kept as
   * a duplicate, so it stays valid whatever the thread does.
   */
  wakeFd: number;
  /** Ends the thread where it stands; its sockets stay open, so let it close them first. Idempotent. */
  terminate(): void;
}

export interface ThreadPort {
  post(message: unknown): void;
  /** Messages that came before it was set are handed over when it is. */
  onMessage: (message: unknown) => void;
}

/** The first message to a thread. */
interface Welcome {
  readonly name: string;
  /** Shared by both ends: POSTED, ENDED. */
  readonly counters: Int32Array;
}

/** What a thread sends. */
type Envelope =
  /** The first one. */
  | { readonly kind: "ready" }
  | { readonly kind: "message"; readonly message: unknown }
  /** The last one that counts: an exception that nobody caught. */
  | { readonly kind: "failure"; readonly text: string; readonly stack: string };

/** Messages posted to the thread, modulo 2^32. */
const POSTED = 0;
/** 1 = terminate() was called. */
const ENDED = 1;
/** How long a woken loop waits for messages before it looks after its sockets again. */
const DELIVERY_WAIT_MS = 5;
const MAX_NAME_BYTES = 15;

/** Starts a thread from a module URL. The module calls threadPort() while it loads. */
export function spawnThread(url: URL, name: string): Thread {
  return new WorkerThread(url, name);
}

class WorkerThread implements Thread {
  onMessage: (message: unknown) => void = () => {};
  onError: (error: Error) => void = (error) => {
    throw error;
  };
  readonly #worker: Worker;
  readonly #name: string;
  readonly #counters = new Int32Array(new SharedArrayBuffer(8));
  /** What was posted before the thread was ready; null when it is. */
  #early: unknown[] | null = [];
  #wakeFd = -1;
  #signalFd = -1;
  #terminated = false;

  constructor(url: URL, name: string) {
    this.#name = name;
    this.#worker = new Worker(url.href, { type: "module", name });
    this.#worker.onmessage = (event: MessageEvent) => {
      if (!this.#terminated) this.#open(event.data as Envelope);
    };
    // For what the thread cannot tell itself, such as a module that does not load.
    this.#worker.onerror = (event: ErrorEvent) => {
      event.preventDefault();
      this.#fail(event.message, undefined);
    };
  }

  get wakeFd(): number {
    return this.#wakeFd;
  }

  set wakeFd(fd: number) {
    if (this.#signalFd >= 0) closeFd(this.#signalFd);
    this.#wakeFd = this.#terminated ? -1 : fd;
    this.#signalFd = this.#wakeFd < 0 ? -1 : duplicateFd(fd);
    // For what was posted while there was nothing to signal.
    this.#signal();
  }

  post(message: unknown): void {
    if (this.#terminated) return;
    if (this.#early !== null) {
      this.#early.push(message);
      return;
    }
    this.#send(message);
    this.#signal();
  }

  terminate(): void {
    if (this.#terminated) return;
    this.#terminated = true;
    Atomics.store(this.#counters, ENDED, 1);
    this.#worker.terminate();
    // A thread that waits in the kernel does not notice until it is woken.
    this.#signal();
    this.wakeFd = -1;
  }

  #open(envelope: Envelope): void {
    switch (envelope.kind) {
      case "ready":
        this.#welcome();
        break;
      case "message":
        this.onMessage(envelope.message);
        break;
      case "failure": {
        const cause = new Error(envelope.text);
        cause.stack = envelope.stack;
        this.#fail(envelope.text, { cause });
      }
    }
  }

  #welcome(): void {
    const early = this.#early!;
    this.#early = null;
    this.#send({ name: this.#name, counters: this.#counters } satisfies Welcome);
    for (const message of early) this.#send(message);
    this.#signal();
  }

  #send(message: unknown): void {
    this.#worker.postMessage(message);
    Atomics.add(this.#counters, POSTED, 1);
  }

  #signal(): void {
    if (this.#signalFd >= 0) signalEventFd(this.#signalFd);
  }

  #fail(text: string, options: ErrorOptions | undefined): void {
    if (this.#terminated) return;
    this.terminate();
    this.onError(new Error(`run the thread "${this.#name}": ${text}`, options));
  }
}

/** The parts of a worker's global scope that are used here. */
interface WorkerScope {
  onmessage: ((event: MessageEvent) => void) | null;
  postMessage(message: unknown): void;
  addEventListener(type: "error", listener: (event: ErrorEvent) => void): void;
  addEventListener(
    type: "unhandledrejection",
    listener: (event: PromiseRejectionEvent) => void,
  ): void;
}

class WorkerPort implements ThreadPort {
  readonly #scope: WorkerScope;
  #handler: ((message: unknown) => void) | null = null;
  #backlog: unknown[] = [];
  #counters: Int32Array | null = null;
  #received = 0;
  /** Ends the wait of deliver(). */
  #onArrival: (() => void) | null = null;

  constructor(scope: WorkerScope) {
    this.#scope = scope;
    scope.onmessage = (event: MessageEvent) => {
      this.#received = (this.#received + 1) | 0;
      if (this.#counters === null) this.#start(event.data as Welcome);
      else if (this.#handler === null) this.#backlog.push(event.data);
      else this.#handler(event.data);
      this.#onArrival?.();
    };
    scope.addEventListener("error", (event) => {
      event.preventDefault();
      this.#tellFailure(event.error ?? event.message);
    });
    scope.addEventListener("unhandledrejection", (event) => {
      event.preventDefault();
      this.#tellFailure(event.reason);
    });
    this.#send({ kind: "ready" });
  }

  get onMessage(): (message: unknown) => void {
    return this.#handler ?? (() => {});
  }

  set onMessage(handler: (message: unknown) => void) {
    this.#handler = handler;
    const backlog = this.#backlog;
    this.#backlog = [];
    for (const message of backlog) handler(message);
  }

  post(message: unknown): void {
    this.#send({ kind: "message", message });
  }

  /** Yields until all that is counted as posted by now has arrived; false when it took too long. */
  async deliver(): Promise<boolean> {
    // A runtime ends a thread at its convenience: the loop must not fall asleep again before that.
    if (this.#isEnded()) await new Promise<never>(() => {});
    let target = this.#postedCount();
    if (this.#hasReached(target)) return true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    await new Promise<void>((resolve) => {
      this.#onArrival = () => {
        target ??= this.#postedCount();
        if (this.#hasReached(target)) resolve();
      };
      timer = setTimeout(resolve, DELIVERY_WAIT_MS);
    });
    clearTimeout(timer);
    this.#onArrival = null;
    return this.#hasReached(target);
  }

  #isEnded(): boolean {
    return this.#counters !== null && Atomics.load(this.#counters, ENDED) === 1;
  }

  /** null before the welcome, which is itself one of those that are counted. */
  #postedCount(): number | null {
    return this.#counters === null ? null : Atomics.load(this.#counters, POSTED);
  }

  #hasReached(target: number | null): boolean {
    return target !== null && ((target - this.#received) | 0) <= 0;
  }

  #send(envelope: Envelope): void {
    this.#scope.postMessage(envelope);
  }

  #tellFailure(failure: unknown): void {
    const error = failure instanceof Error ? failure : new Error(String(failure));
    this.#send({ kind: "failure", text: String(error), stack: error.stack ?? String(error) });
  }

  #start(welcome: Welcome): void {
    this.#counters = welcome.counters;
    // For ps and top.
    writeFileSync("/proc/thread-self/comm", welcome.name.slice(0, MAX_NAME_BYTES));
  }
}

let port: WorkerPort | null = null;

/** This thread's end of Thread, always the same one. Only in a module that spawnThread() started. */
export function threadPort(): ThreadPort {
  if (isMainThread) {
    throw new Error("get the thread's port: this is the main thread, wanted one of spawnThread()");
  }
  port ??= new WorkerPort(globalThis as unknown as WorkerScope);
  return port;
}

/**
 * For the reactor, woken through `wakeFd`: hands over what Thread.post() sent before the signal. When
 * messages lag behind their count, the loop is woken again for them rather than kept waiting.
 */
export async function deliverPosted(wakeFd: number): Promise<void> {
  if (port !== null && !(await port.deliver())) signalEventFd(wakeFd);
}
