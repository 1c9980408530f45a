// What the tests of the system layer share: a reactor driven by conditions, owners that write down
// what happens to their stream, and pairs of connected streams.
// Both ends of a connection live in one reactor here, so nothing waits for the runtime's own loop.

import {
  accept,
  closeFd,
  connectTcp,
  connectUnix,
  Errno,
  listenTcp,
  listenUnix,
  NativeBuffer,
  Reactor,
  setNoDelay,
  Stream,
  type StreamOwner,
} from "../../shared/sys/mod.ts";
import { libc, SO_LINGER, SOL_SOCKET } from "../../shared/sys/libc.ts";
import { assert } from "../support/harness.ts";
import { tlsContexts } from "./tls_fixtures.ts";

export const encoder = new TextEncoder();
export const decoder = new TextDecoder();

export type PairKind = "127.0.0.1" | "::1" | "unix" | "tls";

/**
 * Runs `body` with a reactor, and closes what was made with it, also when it fails. `kind` is what pair()
 * makes when it is not told.
 */
export async function withRig(
  body: (rig: Rig) => Promise<void>,
  kind: PairKind = "127.0.0.1",
): Promise<void> {
  const rig = new Rig(kind);
  try {
    await body(rig);
  } finally {
    rig.close();
  }
}

export class Rig {
  readonly reactor = new Reactor();
  readonly buffer = new NativeBuffer(64 * 1024);
  /** Batches the reactor has served: a loop that spins shows here. */
  batches = 0;
  readonly #peers: Peer[] = [];
  readonly #fds: number[] = [];
  readonly kind: PairKind;

  constructor(kind: PairKind) {
    this.kind = kind;
  }

  /** Runs the reactor until `probe` says true; throws naming `what` after `timeoutMs`, which costs only who fails. */
  async until(what: string, probe: () => boolean, timeoutMs = 60_000): Promise<void> {
    if (probe()) return;
    let isSo = false;
    let isOver = false;
    const ticker = this.reactor.every(5, () => {});
    const deadline = this.reactor.after(timeoutMs, () => {
      isOver = true;
    });
    this.reactor.onBatchEnd = () => {
      this.batches++;
      isSo = probe();
      if (isOver || isSo) this.reactor.stop();
    };
    try {
      await this.reactor.run();
    } finally {
      ticker.cancel();
      deadline.cancel();
      this.reactor.onBatchEnd = null;
    }
    if (!isSo) throw new Error(`wait for ${what}: not so after ${timeoutMs} ms`);
  }

  /** Runs the reactor for a while and returns how many batches that took. */
  async batchesWithin(ms: number): Promise<number> {
    let batches = 0;
    this.reactor.after(ms, () => this.reactor.stop());
    this.reactor.onBatchEnd = () => {
      batches++;
      if (batches > 10_000) this.reactor.stop();
    };
    await this.reactor.run();
    this.reactor.onBatchEnd = null;
    return batches;
  }

  /** Closes `fd` when the test ends. */
  own(fd: number): number {
    this.#fds.push(fd);
    return fd;
  }

  peer(fd: number, connecting = false): Peer {
    const peer = new Peer(this, fd, connecting);
    this.#peers.push(peer);
    return peer;
  }

  /**
   * A connected pair; `kind` is an address to listen on, "unix" an abstract unix socket, "tls" TCP with a
   * handshake behind it, the near end being the client.
   */
  async pair(kind: PairKind = this.kind): Promise<[Peer, Peer]> {
    if (kind === "tls") return await this.#securedPair();
    let listenFd: number;
    let fd: number;
    if (kind === "unix") {
      const path = `@pgweir-test-${process.pid}-${nextName++}`;
      listenFd = listenUnix({ path, mode: 0o600, backlog: 16 });
      fd = connectUnix(path);
    } else {
      const listener = listenTcp({ host: kind, port: 0, backlog: 16, reusePort: false });
      listenFd = listener.fd;
      fd = connectTcp(kind, listener.port);
    }
    const near = this.peer(fd, true);
    await this.until("the connection", () => near.connected === 0);
    const farFd = accept(listenFd);
    closeFd(listenFd);
    if (farFd < 0) throw new Error(`accept the test's connection: errno ${-farFd}`);
    return [near, this.peer(farFd)];
  }

  /** Lets go of peers whose streams are closed. */
  forget(...gone: readonly Peer[]): void {
    for (const peer of gone) this.#peers.splice(this.#peers.indexOf(peer), 1);
  }

  async #securedPair(): Promise<[Peer, Peer]> {
    const [near, far] = await this.pair("127.0.0.1");
    // As the pooler does: a handshake is several small writes.
    for (const { stream } of [near, far]) setNoDelay(stream.fd);
    const [client, server] = tlsContexts();
    near.stream.startTls(client);
    far.stream.startTls(server);
    await this.until("the handshake", () => near.secured !== null && far.secured !== null);
    assert.is(near.secured, "");
    assert.is(far.secured, "");
    return [near, far];
  }

  close(): void {
    for (const peer of this.#peers) peer.stream.close();
    for (const fd of this.#fds) closeFd(fd);
    this.reactor.close();
  }
}

let nextName = 0;

/** A stream and what has happened to it. Reads everything, unless told otherwise. */
export class Peer implements StreamOwner {
  readonly stream: Stream;
  readonly #rig: Rig;
  readonly received: Uint8Array[] = [];
  receivedBytes = 0;
  /** 0 = end of file was read, > 0 = the errno that recv() gave, null = neither. */
  ended: number | null = null;
  /** What onConnected() was given; null = not called. */
  connected: number | null = null;
  /** What onSecured() was given, "" for success; null = not called. */
  secured: string | null = null;
  readableCalls = 0;
  drainedCalls = 0;
  hangupCalls = 0;
  /** Replaces what happens on onReadable. */
  onRead: (() => void) | null = null;
  onDrain: (() => void) | null = null;
  readBytes = 32 * 1024;
  /** Where in the rig's buffer data is received. */
  readOffset = 0;

  constructor(rig: Rig, fd: number, connecting: boolean) {
    this.#rig = rig;
    this.stream = new Stream(rig.reactor, fd, this, connecting);
  }

  onReadable(): void {
    this.readableCalls++;
    if (this.onRead !== null) this.onRead();
    else this.read();
  }

  onDrained(): void {
    this.drainedCalls++;
    this.onDrain?.();
  }

  onConnected(errno: number): void {
    this.connected = errno;
  }

  onSecured(errno: number, problem: string): void {
    assert.is(errno === 0, problem === "");
    this.secured = problem;
  }

  onHangup(): void {
    this.hangupCalls++;
  }

  /** One recv(), written down. */
  read(): number {
    const { buffer } = this.#rig;
    const count = this.stream.recv(buffer, this.readOffset, this.readBytes);
    if (count > 0) {
      this.received.push(buffer.bytes.slice(this.readOffset, this.readOffset + count));
      this.receivedBytes += count;
    } else if (count !== -Errno.EAGAIN) {
      this.ended = -count;
    }
    return count;
  }

  /** Sends `bytes` from `offset` of the rig's buffer. */
  send(bytes: Uint8Array, offset = 0): number {
    this.#rig.buffer.bytes.set(bytes, offset);
    return this.stream.send(this.#rig.buffer, offset, bytes.length);
  }

  text(): string {
    return decoder.decode(this.bytes());
  }

  bytes(): Uint8Array {
    const all = new Uint8Array(this.receivedBytes);
    let at = 0;
    for (const part of this.received) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }

  /** Closes with a reset instead of a FIN. */
  reset(): void {
    resetOnClose(this.stream.fd);
    this.stream.close();
  }
}

/** Makes the next close of a TCP socket send a reset. */
export function resetOnClose(fd: number): void {
  // struct linger { on: 1, seconds: 0 }
  const linger = new NativeBuffer(8);
  linger.view.setInt32(0, 1, true);
  assert.is(libc.setsockopt(fd, SOL_SOCKET, SO_LINGER, linger.pointer, 8), 0);
}
