// A non-blocking stream socket (TCP or unix) in a reactor, plain or under TLS, which looks the same to its
// owner. Output that the kernel does not take is queued here and sent when there is room; the owner stops
// its source meanwhile.
// Not here: bounds on the queue, idle timeouts, the time a handshake may take: the owner's business.
// Invariants: bytes leave in the order of send(); no owner callback after close(); a socket that is
// dead in both directions is told once and then leaves the epoll set, because epoll reports ERR and
// HUP whether or not one asks for them. recv(), send() and onReadable() allocate nothing.

import { Errno, errnoText } from "./errno.ts";
import { closeFd, peekByte, receiveAt, sendAt } from "./libc.ts";
import type { NativeBuffer } from "./native_buffer.ts";
import { shutdownOutput, socketError } from "./options.ts";
import { OutputQueue } from "./output_queue.ts";
import {
  EPOLLERR,
  EPOLLHUP,
  EPOLLIN,
  EPOLLOUT,
  EPOLLRDHUP,
  type EventSource,
  type Reactor,
} from "./reactor.ts";
import type { Timer } from "./timers.ts";
import type { TlsContext, TlsSession } from "./tls.ts";

export interface StreamOwner {
  /** Something to recv(): data, end of file or an error. Not called while paused. */
  onReadable(): void;
  /** All queued output was handed to the kernel. */
  onDrained(): void;
  /** A connecting stream: 0, or the errno. After an errno only close() is left. */
  onConnected(errno: number): void;
  /**
   * Once per pause: with watchHangup, end of file, reset or error; without it, only what ends both
   * directions: a reset, an error, or (unix sockets) the peer's close. Also called when that
   * happens after recv() returned 0. recv() may be called to learn more.
   */
  onHangup(): void;
  /**
   * After startTls() or expectTls(): the handshake is over, and with 0 what follows is encrypted. After an
   * errno, which `problem` explains, only close() and closeWhenDrained() are left; EPROTO means that the two
   * sides do not agree, anything else that the connection broke.
   */
  onSecured?(errno: number, problem: string): void;
}

type Phase =
  /** connect() is under way. Leaves when the kernel says how it went. */
  | "connecting"
  /** expectTls(): nothing has come yet. Leaves with the first byte. */
  | "guessing"
  /** A TLS handshake is under way. Leaves when it is over; input and output are refused. */
  | "securing"
  /** The handshake has failed. Leaves by close() or closeWhenDrained(). */
  | "unsecured"
  /** Both directions belong to the owner. Leaves by close() or closeWhenDrained(). */
  | "open"
  /** closeWhenDrained() with output pending. Leaves when it is sent, at an error, at the deadline. */
  | "draining"
  /** All is sent, FIN too; input is thrown away until the peer closes, or the deadline. */
  | "lingering"
  /** Terminal. */
  | "closed";

type Reading =
  /** onReadable() is called. */
  | "on"
  /** pause(false). */
  | "paused"
  /** pause(true). */
  | "watching"
  /** freeze(). Leaves by thaw(), to what it was before or the owner has asked for meanwhile. */
  | "frozen"
  /** recv() has returned end of file or an error: there will never be more. */
  | "over";

/** Not in the epoll set. */
const PARKED = -1;
/** How long a closed conversation waits for the peer's own close, at most. */
const LINGER_MS = 1000;
/** Reads of thrown-away input per event, so that a flood does not hold up the loop. */
const MAX_DISCARDS = 4;
/** The first byte of a TLS handshake, which no other packet of a client begins with. */
const TLS_HANDSHAKE = 0x16;

export class Stream implements EventSource {
  readonly fd: number;
  closed = false;
  /** Bytes queued here. */
  pending = 0;

  readonly #reactor: Reactor;
  #owner: StreamOwner;
  #phase: Phase;
  #reading: Reading = "on";
  /** While it is frozen: what it thaws to. */
  #thawsTo: "on" | "paused" | "watching" = "on";
  /**
   * The descriptor for the hot path: -1 when the socket must not be touched directly (connecting,
   * closed), so that the call fails with EBADF and the cold path sorts it out.
   */
  #hotFd: number;
  /** Set where bytes are encrypted. */
  #tls: TlsSession | null = null;
  /** Of a handshake that is under way, or has failed. */
  #handshake: TlsSession | null = null;
  /** Of a stream that may begin with a handshake. */
  #expected: (() => TlsContext | null) | null = null;
  /** Reads what was decrypted already; made with the first TLS session. */
  #reread: (() => void) | null = null;
  #rereads = false;
  /** What the epoll set watches for now; it may lag behind a pause() until the next event. */
  #interest: number;
  /** The errno that ended the connection; 0 while none has. */
  #broken = 0;
  /** The owner knows that the connection is over. */
  #hangupTold = false;
  #queue: OutputQueue | null = null;
  #deadline: Timer | null = null;

  /** Takes over `fd`, which is non-blocking. `connecting`: it comes from connectTcp/connectUnix. */
  constructor(reactor: Reactor, fd: number, owner: StreamOwner, connecting = false) {
    this.fd = fd;
    this.#reactor = reactor;
    this.#owner = owner;
    this.#phase = connecting ? "connecting" : "open";
    this.#hotFd = connecting ? -1 : fd;
    this.#interest = connecting ? EPOLLOUT : EPOLLIN;
    reactor.add(fd, this.#interest, this);
  }

  get paused(): boolean {
    return this.#reading !== "on" && this.#reading !== "over";
  }

  get frozen(): boolean {
    return this.#reading === "frozen";
  }

  /**
   * Receives what there is, up to `length` (> 0) bytes, into buffer at `offset`. Returns the count,
   * 0 at end of file, or -errno; -EAGAIN means nothing now.
   */
  recv(buffer: NativeBuffer, offset: number, length: number): number {
    const tls = this.#tls;
    const count = tls === null
      ? receiveAt(this.#hotFd, buffer, offset, length)
      : this.#decrypt(tls, buffer, offset, length);
    return count > 0 ? count : this.#notReceived(count, buffer, offset, length);
  }

  /**
   * Sends `length` bytes of buffer at `offset`, behind whatever is pending; keeps a copy of what the
   * kernel does not take. Returns the bytes pending after it (0 = all taken), or -errno when the
   * connection is broken.
   */
  send(buffer: NativeBuffer, offset: number, length: number): number {
    if (this.pending === 0) {
      const tls = this.#tls;
      const count = tls === null
        ? sendAt(this.#hotFd, buffer, offset, length)
        : tls.write(buffer, offset, length);
      return count === length ? 0 : this.#notSent(count, buffer.bytes, offset, length);
    }
    return this.#notSent(0, buffer.bytes, offset, length);
  }

  /** As send(), for bytes anywhere. Copies them: for messages of our own making, not for relaying. */
  sendBytes(bytes: Uint8Array): number {
    const scratch = this.#reactor.chunks.scratch;
    if (this.pending === 0 && bytes.length <= scratch.bytes.length) {
      scratch.bytes.set(bytes);
      return this.send(scratch, 0, bytes.length);
    }
    const wasEmpty = this.pending === 0;
    const result = this.#notSent(0, bytes, 0, bytes.length);
    if (result <= 0 || !wasEmpty || this.#phase === "connecting") return result;
    this.#flush();
    this.#watch();
    return this.#broken !== 0 ? -this.#broken : this.pending;
  }

  /** No onReadable() until resume(). With `watchHangup`, end of file is told through onHangup(). */
  pause(watchHangup: boolean): void {
    if (this.#reading === "over") return;
    const reading = watchHangup ? "watching" : "paused";
    if (this.#reading === "frozen") {
      this.#thawsTo = reading;
      return;
    }
    this.#reading = reading;
    // The epoll set is changed by the next event, if one comes before resume(): no system call here.
    // Only a watch that was off has to be switched on.
    if (watchHangup && (this.#interest & (EPOLLIN | EPOLLRDHUP)) === 0) this.#watch();
  }

  resume(): void {
    if (this.#reading === "over" || this.#reading === "on") return;
    if (this.#reading === "frozen") {
      this.#thawsTo = "on";
      return;
    }
    this.#reading = "on";
    this.#hangupTold = false;
    this.#watch();
    if (this.#tls !== null) this.#readAgain(this.#tls);
  }

  /** Nothing is read until thaw(), whatever the owner asks for; output goes on, and a reset is told. */
  freeze(): void {
    if (this.#reading === "over" || this.#reading === "frozen") return;
    this.#thawsTo = this.#reading;
    this.#reading = "frozen";
    this.#watch();
  }

  thaw(): void {
    if (this.#reading !== "frozen") return;
    const to = this.#thawsTo;
    this.#reading = "paused";
    if (to === "on") this.resume();
    else this.pause(to === "watching");
  }

  /** Another owner is told from now on. */
  handOver(owner: StreamOwner): void {
    this.#owner = owner;
  }

  // --- TLS

  /** The TLS session; null on a plain stream, and once it is closed. */
  get tls(): TlsSession | null {
    return this.#tls;
  }

  /**
   * Begins a handshake; `host` is whom a client means to talk to. Nothing may be pending: whoever is to be
   * told before has to be told whole. The owner is told by onSecured(), never from within this call. Throws
   * TlsError for a host that can't be checked; the stream is as it was.
   */
  startTls(context: TlsContext, host = ""): void {
    if (this.#phase !== "open" || this.pending > 0) {
      const is = `the stream is ${this.#phase}, ${this.pending} bytes pending`;
      throw new Error(`start TLS: ${is}, wanted an open one with none`);
    }
    this.#handshake = context.session(this.fd, host);
    this.#phase = "securing";
    this.#hotFd = -1;
    this.#watch();
  }

  /**
   * A stream on which nothing was read: if what comes first is a TLS handshake, it is taken as a server.
   * `contextNow` gives the context of that moment; null leaves it to the owner, as it leaves all else.
   */
  expectTls(contextNow: () => TlsContext | null): void {
    this.#phase = "guessing";
    this.#expected = contextNow;
  }

  /** What an errno that recv() or send() gave means; TLS has words of its own. */
  reasonOf(errno: number): string {
    const problem = this.#tls?.problem ?? "";
    return errno === Errno.EPROTO && problem !== "" ? `TLS: ${problem}` : errnoText(errno);
  }

  /** Drops pending output and releases the descriptor. Idempotent. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.#phase = "closed";
    this.#reading = "over";
    this.#endTls();
    this.#hotFd = -1;
    this.#dropOutput();
    this.#deadline?.cancel();
    this.#deadline = null;
    this.#park();
    closeFd(this.fd);
  }

  /**
   * Takes the connection from its owner (no more callbacks, no more sends): sends what is pending,
   * then FIN, then closes when the peer has closed as well, or after a second. In any case closes
   * `deadlineMs` from now. A plain close() with unread input would make the kernel send a reset, which
   * can destroy the last message before the peer has read it.
   */
  closeWhenDrained(deadlineMs: number): void {
    if (this.#phase === "closed" || this.#phase === "draining" || this.#phase === "lingering") {
      return;
    }
    if (this.#broken !== 0 || this.#phase === "connecting" || this.#phase === "securing") {
      this.close();
      return;
    }
    this.#deadline = this.#reactor.after(deadlineMs, () => this.close());
    this.#phase = "draining";
    this.#reading = "over";
    if (this.pending === 0) this.#linger();
    else this.#watch();
  }

  /**
   * Takes the connection from its owner as closeWhenDrained() does, but drops what is pending: sends
   * FIN, and closes when the peer has closed as well, or `deadlineMs` from now. `closed` tells.
   */
  retire(deadlineMs: number): void {
    if (this.#phase === "closed" || this.#phase === "draining" || this.#phase === "lingering") {
      return;
    }
    if (this.#broken !== 0 || this.#phase === "connecting" || this.#phase === "securing") {
      this.close();
      return;
    }
    this.#dropOutput();
    this.#reading = "over";
    this.#deadline = this.#reactor.after(deadlineMs, () => this.close());
    this.#finish();
  }

  onEvents(mask: number): void {
    if (mask === EPOLLIN && this.#reading === "on" && this.#phase === "open") {
      this.#owner.onReadable();
    } else {
      this.#onOtherEvents(mask);
    }
  }

  #onOtherEvents(mask: number): void {
    switch (this.#phase) {
      case "connecting":
        this.#onConnectEvents();
        break;
      case "guessing":
        this.#guess(mask);
        break;
      case "securing":
        this.#secure();
        break;
      case "unsecured":
        if ((mask & (EPOLLERR | EPOLLHUP)) !== 0) this.#park();
        break;
      case "open":
        this.#onOpenEvents(mask);
        break;
      case "draining":
        this.#flush();
        if (this.#broken !== 0 || (mask & (EPOLLERR | EPOLLHUP)) !== 0) this.close();
        else if (this.pending === 0) this.#linger();
        break;
      case "lingering":
        this.#discardInput(mask);
        break;
      case "closed":
        break;
    }
  }

  #onConnectEvents(): void {
    const errno = socketError(this.fd);
    this.#phase = "open";
    if (errno === 0) {
      this.#hotFd = this.fd;
    } else {
      this.#broken = errno;
      this.#hangupTold = true;
      this.#reading = "over";
      this.#dropOutput();
      this.#park();
    }
    this.#watch();
    this.#owner.onConnected(errno);
  }

  #guess(mask: number): void {
    this.#phase = "open";
    // A look at a connection that was reset would take the error from it.
    const hasInput = (mask & (EPOLLIN | EPOLLERR)) === EPOLLIN;
    const isTls = hasInput && peekByte(this.fd) === TLS_HANDSHAKE;
    const context = isTls ? this.#expected!() : null;
    this.#expected = null;
    if (context === null) return this.#onOpenEvents(mask);
    this.startTls(context);
    this.#secure();
  }

  #secure(): void {
    const tls = this.#handshake as TlsSession;
    // The others come again with the next batch, since what they wait for stays there.
    if (!tls.context.admits(this.#reactor.now)) return;
    const result = tls.handshake();
    if (result === -Errno.EAGAIN) return this.#watch();
    if (result === 1) {
      this.#phase = "open";
      this.#tls = tls;
      this.#handshake = null;
      this.#watch();
      this.#readAgain(tls);
      this.#owner.onSecured?.(0, "");
      return;
    }
    this.#phase = "unsecured";
    this.#reading = "over";
    this.#hangupTold = true;
    this.#watch();
    this.#owner.onSecured?.(result === 0 ? Errno.ECONNRESET : -result, tls.problem);
  }

  #decrypt(tls: TlsSession, buffer: NativeBuffer, offset: number, length: number): number {
    const waited = tls.readWants;
    const count = tls.read(buffer, offset, length);
    // A write that waited for input (a message of the handshake in two records) can go on now, perhaps.
    const freesWrite = tls.writeWants !== EPOLLOUT;
    if (freesWrite) tls.writeWants = EPOLLOUT;
    if (tls.hasMore) this.#readAgain(tls);
    if (freesWrite || tls.readWants !== waited) this.#watch();
    return count;
  }

  /** What was decrypted already, or has come to this process at least, makes no event of its own. */
  #readAgain(tls: TlsSession): void {
    if (!tls.hasMore || this.#rereads) return;
    this.#rereads = true;
    this.#reactor.soon(
      this.#reread ??= () => {
        this.#rereads = false;
        const isWanted = this.#phase === "open" && this.#reading === "on";
        if (isWanted && this.#tls?.hasMore) this.#owner.onReadable();
      },
    );
  }

  #endTls(): void {
    this.#tls?.end();
    this.#handshake?.end();
    this.#tls = null;
    this.#handshake = null;
  }

  #onOpenEvents(mask: number): void {
    if ((mask & (this.#tls?.writeWants ?? EPOLLOUT)) !== 0 && this.pending > 0) {
      this.#flush();
      if (this.pending === 0 && this.#broken === 0) {
        this.#watch();
        this.#owner.onDrained();
        if (this.#phase !== "open") return;
      }
    }
    const isDead = (mask & (EPOLLERR | EPOLLHUP)) !== 0 || this.#broken !== 0;
    if (this.#reading === "on") {
      if (isDead || (mask & (this.#tls?.readWants ?? EPOLLIN)) !== 0) this.#owner.onReadable();
      else this.#watch();
    } else if (isDead) {
      this.#dropOutput();
      this.#park();
      this.#tellHangup();
    } else if (this.#reading === "watching" && (mask & EPOLLRDHUP) !== 0) {
      const told = this.#hangupTold;
      this.#hangupTold = true;
      this.#watch();
      if (!told) this.#owner.onHangup();
    } else {
      this.#watch();
    }
  }

  #tellHangup(): void {
    if (this.#hangupTold) return;
    this.#hangupTold = true;
    this.#owner.onHangup();
  }

  #notReceived(result: number, buffer: NativeBuffer, offset: number, length: number): number {
    let count = result;
    while (count === -Errno.EINTR && this.#tls === null) {
      count = receiveAt(this.#hotFd, buffer, offset, length);
    }
    if (count > 0) return count;
    if (!(length > 0)) {
      throw new RangeError(`receive from a stream: the length is ${length}, wanted more than 0`);
    }
    if (this.#phase === "connecting" || this.#phase === "securing") return -Errno.EAGAIN;
    if (this.#phase !== "open") return -Errno.EBADF;
    // A failed send has taken the error from the socket, which would now look like a clean end.
    if (this.#broken !== 0) count = -this.#broken;
    if (count === -Errno.EAGAIN) return count;
    this.#reading = "over";
    if (count < 0) {
      this.#broken = -count;
      this.#hangupTold = true;
      this.#dropOutput();
    }
    this.#watch();
    return count;
  }

  /** `result`: what the kernel said about these bytes; 0 when it was not asked. */
  #notSent(result: number, bytes: Uint8Array, offset: number, length: number): number {
    if (this.#broken !== 0) return -this.#broken;
    if (this.#phase === "closed") return -Errno.EBADF;
    if (this.#phase !== "open" && this.#phase !== "connecting" && this.#phase !== "guessing") {
      return -Errno.EPIPE;
    }
    let taken = result;
    if (taken < 0) {
      if (taken !== -Errno.EAGAIN && taken !== -Errno.EINTR && this.#phase !== "connecting") {
        this.#broken = -taken;
        return taken;
      }
      taken = 0;
    }
    if (taken === length) return this.pending;
    this.#queue ??= new OutputQueue(this.#reactor.chunks);
    this.#queue.append(bytes, offset + taken, length - taken);
    const wasEmpty = this.pending === 0;
    this.pending = this.#queue.size;
    if (wasEmpty) this.#watch();
    return this.pending;
  }

  #flush(): void {
    if (this.#queue === null) return;
    const errno = this.#queue.flush(this.fd, this.#tls);
    this.pending = this.#queue.size;
    if (errno !== 0) this.#broken = errno;
    if (errno !== 0 || this.pending === 0) this.#dropOutput();
  }

  #dropOutput(): void {
    this.#queue?.clear();
    this.#queue = null;
    this.pending = 0;
  }

  #linger(): void {
    const remainingMs = this.#deadline!.dueMs - performance.now();
    if (remainingMs > LINGER_MS) {
      this.#deadline!.cancel();
      this.#deadline = this.#reactor.after(LINGER_MS, () => this.close());
    }
    this.#finish();
  }

  #finish(): void {
    this.#phase = "lingering";
    this.#endTls();
    shutdownOutput(this.fd);
    this.#watch();
  }

  #discardInput(mask: number): void {
    const chunk = this.#reactor.chunks.take();
    const { buffer } = chunk;
    let count = 1;
    for (let i = 0; i < MAX_DISCARDS && count > 0; i++) {
      count = receiveAt(this.fd, buffer, 0, buffer.size);
    }
    this.#reactor.chunks.give(chunk);
    const isOver = count === 0 || (count < 0 && count !== -Errno.EAGAIN);
    if (isOver || (mask & (EPOLLERR | EPOLLHUP)) !== 0) this.close();
  }

  #wantedInterest(): number {
    switch (this.#phase) {
      case "connecting":
        return EPOLLOUT;
      case "draining":
        return this.#tls?.writeWants ?? EPOLLOUT;
      case "guessing":
      case "lingering":
        return EPOLLIN;
      case "securing":
        return this.#handshake?.readWants ?? 0;
      case "unsecured":
      case "closed":
        return 0;
      case "open": {
        const output = this.pending > 0 ? this.#tls?.writeWants ?? EPOLLOUT : 0;
        if (this.#reading === "on") return output | (this.#tls?.readWants ?? EPOLLIN);
        if (this.#reading === "watching" && !this.#hangupTold) return output | EPOLLRDHUP;
        return output;
      }
    }
  }

  /** Makes the epoll set watch for what is wanted now. */
  #watch(): void {
    const wanted = this.#wantedInterest();
    if (wanted === this.#interest) return;
    if (this.#interest === PARKED) {
      if (wanted === 0) return;
      this.#reactor.add(this.fd, wanted, this);
    } else {
      this.#reactor.modify(this.fd, wanted);
    }
    this.#interest = wanted;
  }

  #park(): void {
    if (this.#interest === PARKED) return;
    this.#reactor.remove(this.fd);
    this.#interest = PARKED;
  }
}
