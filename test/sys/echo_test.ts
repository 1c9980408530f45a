// Bytes arrive whole and in order over every kind of socket, from every offset, and the addresses,
// options and credentials of both ends are what they should be.

import { assert, seededRandom, suite } from "../support/harness.ts";
import {
  accept,
  closeFd,
  connectTcp,
  EPOLLIN,
  Errno,
  listenTcp,
  localAddress,
  peerAddress,
  peerCredentials,
  setKeepAlive,
  setNoDelay,
} from "../../shared/sys/mod.ts";
import {
  IPPROTO_TCP,
  libc,
  SO_KEEPALIVE,
  SOL_SOCKET,
  TCP_KEEPCNT,
  TCP_KEEPIDLE,
  TCP_KEEPINTVL,
  TCP_NODELAY,
  TCP_USER_TIMEOUT,
} from "../../shared/sys/libc.ts";
import { NativeBuffer } from "../../shared/sys/mod.ts";
import { needs } from "../support/needs.ts";
import { encoder, type Peer, type Rig, withRig } from "./fixtures.ts";

needs("openssl");
const test = suite("sys: echo");

function option(fd: number, level: number, name: number): number {
  const value = new NativeBuffer(4);
  const length = new NativeBuffer(4);
  length.view.setInt32(0, 4, true);
  assert.is(libc.getsockopt(fd, level, name, value.pointer, length.pointer), 0);
  return value.view.getInt32(0, true);
}

/** The far end sends back all it gets, from the place where it got it. */
function echo(rig: Rig, far: Peer): void {
  far.onRead = () => {
    const count = far.stream.recv(rig.buffer, far.readOffset, far.readBytes);
    if (count > 0) {
      if (far.stream.send(rig.buffer, far.readOffset, count) > 0) far.stream.pause(false);
    } else if (count === 0) {
      far.stream.close();
    }
  };
  far.onDrain = () => far.stream.resume();
}

for (const kind of ["127.0.0.1", "::1", "unix", "tls"] as const) {
  test(`Stream echoes a message over ${kind}`, () =>
    withRig(async (rig) => {
      const [near, far] = await rig.pair(kind);
      echo(rig, far);
      assert.is(near.send(encoder.encode("hello")), 0);
      await rig.until("the echo", () => near.text() === "hello");
      near.stream.close();
      await rig.until("the far end's close", () => far.stream.closed);
    }));

  test(`Stream carries 3 MB in order over ${kind}, from and to odd offsets`, () =>
    withRig(async (rig) => {
      const seed = 20_260;
      const random = seededRandom(seed);
      const [near, far] = await rig.pair(kind);
      echo(rig, far);
      far.readOffset = 24_577;
      far.readBytes = 8191;
      near.readOffset = 40_001;
      near.readBytes = 20_000;
      const sent = new Uint8Array(3_000_000).map((_, i) => (i * 31 + (i >> 8) * 7) & 0xff);
      let at = 0;
      const pump = () => {
        while (at < sent.length && near.stream.pending === 0) {
          const part = sent.subarray(at, at + 1 + Math.floor(random() * 16_000));
          at += part.length;
          assert.ok(near.send(part, Math.floor(random() * 3) * 2048) >= 0);
        }
      };
      near.onDrain = pump;
      pump();
      await rig.until("all bytes", () => near.receivedBytes === sent.length);
      assert.is(Buffer.compare(near.bytes(), sent), 0, `bytes differ, seed ${seed}`);
    }));
}

test("Stream.recv() fills exactly the range it was given", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    near.send(encoder.encode("abcdefgh"));
    await rig.until("the bytes", () => far.stream.recv(rig.buffer, 5000, 1) === 1);
    rig.buffer.bytes.fill(0x2e);
    assert.is(far.stream.recv(rig.buffer, 100, 3), 3);
    assert.is(Buffer.from(rig.buffer.bytes.subarray(98, 106)).toString("latin1"), "..bcd...");
    assert.is(far.stream.recv(rig.buffer, 0, 2), 2);
    assert.is(far.stream.recv(rig.buffer, rig.buffer.size - 2, 2), 2);
    assert.is(Buffer.from(rig.buffer.bytes.subarray(-4)).toString("latin1"), "..gh");
    assert.is(far.stream.recv(rig.buffer, 0, 10), -Errno.EAGAIN);
  }));

test("Stream.sendBytes() sends what is not in a native buffer", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    assert.is(near.stream.sendBytes(encoder.encode("one ")), 0);
    assert.is(near.stream.sendBytes(new Uint8Array(0)), 0);
    assert.is(near.stream.sendBytes(encoder.encode("..two..").subarray(2, 5)), 0);
    await rig.until("the bytes", () => far.text() === "one two");
    assert.is(near.drainedCalls, 0);
  }));

test('peerAddress() and localAddress() name both ends, an IPv4 client of "*" as IPv4', () =>
  withRig(async (rig) => {
    const listener = listenTcp({ host: "*", port: 0, backlog: 16, reusePort: false });
    rig.own(listener.fd);
    for (const host of ["127.0.0.1", "::1"]) {
      const near = rig.peer(connectTcp(host, listener.port), true);
      await rig.until("the connection", () => near.connected === 0);
      const far = rig.peer(accept(listener.fd));
      assert.equal(peerAddress(near.stream.fd), { host, port: listener.port });
      assert.equal(peerAddress(far.stream.fd), localAddress(near.stream.fd));
      assert.is(localAddress(far.stream.fd).host, host);
    }
  }));

test("peerCredentials() names the process behind a unix socket, and nobody behind TCP", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair("unix");
    const self = { pid: process.pid, uid: process.getuid!(), gid: process.getgid!() };
    assert.equal(peerCredentials(far.stream.fd), self);
    assert.equal(peerAddress(near.stream.fd), { host: "unix", port: 0 });
    const [tcp] = await rig.pair();
    assert.is(peerCredentials(tcp.stream.fd), null);
  }));

test("setNoDelay() and setKeepAlive() reach the kernel; 0 leaves a setting alone", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    const fd = near.stream.fd;
    assert.is(option(fd, IPPROTO_TCP, TCP_NODELAY), 0);
    setNoDelay(fd);
    assert.is(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
    setKeepAlive(fd, { idleS: 61, intervalS: 7, count: 4, userTimeoutMs: 12_345 });
    assert.is(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    assert.is(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 61);
    assert.is(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 7);
    assert.is(option(fd, IPPROTO_TCP, TCP_KEEPCNT), 4);
    assert.is(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 12_345);
    const before = option(far.stream.fd, IPPROTO_TCP, TCP_KEEPINTVL);
    setKeepAlive(far.stream.fd, { idleS: 0, intervalS: 0, count: 0, userTimeoutMs: 0 });
    assert.is(option(far.stream.fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    assert.is(option(far.stream.fd, IPPROTO_TCP, TCP_KEEPINTVL), before);
  }));

test("accept() on several SO_REUSEPORT listeners gets connections on each", () =>
  withRig(async (rig) => {
    const first = listenTcp({ host: "127.0.0.1", port: 0, backlog: 128, reusePort: true });
    const { port } = first;
    const others = [1, 2].map(() =>
      listenTcp({ host: "127.0.0.1", port, backlog: 128, reusePort: true })
    );
    const listeners = [first, ...others];
    const counts = listeners.map(() => 0);
    for (const [index, { fd }] of listeners.entries()) {
      rig.own(fd);
      rig.reactor.add(fd, EPOLLIN, {
        onEvents: () => {
          for (let client = accept(fd); client >= 0; client = accept(fd)) {
            counts[index]!++;
            closeFd(client);
          }
        },
      });
    }
    const total = 90;
    for (let i = 0; i < total; i++) rig.peer(connectTcp("127.0.0.1", port), true);
    const accepted = () => counts.reduce((sum, count) => sum + count, 0);
    await rig.until("all connections", () => accepted() === total);
    // The kernel hashes: an even spread is not promised, a listener left out would be a surprise.
    assert.ok(counts.every((count) => count > 0), `one listener got nothing: ${counts}`);
  }));

test.run();
