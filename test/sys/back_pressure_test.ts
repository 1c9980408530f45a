// A peer that reads slowly, or not at all: what is queued, what is told, and in which order it leaves.

import { assert, suite } from "../support/harness.ts";
import { Errno } from "../../shared/sys/mod.ts";
import { encoder, type Peer, type Rig, withRig } from "./fixtures.ts";

const test = suite("sys: back-pressure");

/** Numbered bytes, so that a lost, doubled or moved part shows. */
function pattern(length: number, from = 0): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let i = 0; i < length; i++) bytes[i] = ((from + i) * 17 + ((from + i) >>> 8) * 5) & 0xff;
  return bytes;
}

/** Sends until the kernel takes no more; returns the bytes offered. */
function fill(near: Peer, chunkBytes = 32 * 1024): number {
  let offered = 0;
  while (near.stream.pending === 0) {
    assert.ok(near.send(pattern(chunkBytes, offered), 0) >= 0);
    offered += chunkBytes;
  }
  return offered;
}

async function drain(rig: Rig, far: Peer, total: number): Promise<void> {
  far.stream.resume();
  await rig.until("all bytes", () => far.receivedBytes >= total);
  assert.is(far.receivedBytes, total);
  assert.is(Buffer.compare(far.bytes(), pattern(total)), 0);
}

for (const kind of ["127.0.0.1", "unix"] as const) {
  test(`Stream.send() queues at most what was offered and drains once (${kind})`, () =>
    withRig(async (rig) => {
      const [near, far] = await rig.pair(kind);
      far.stream.pause(false);
      const offered = fill(near);
      assert.ok(near.stream.pending <= 32 * 1024, `pending is ${near.stream.pending}`);
      assert.is(near.drainedCalls, 0);
      await drain(rig, far, offered);
      assert.is(near.drainedCalls, 1);
      assert.is(near.stream.pending, 0);
      assert.ok(await rig.batchesWithin(50) < 10, "the loop spins after the queue has drained");
    }));
}

test("Stream.send() behind pending output keeps the order, of any mix of sizes", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    let offered = fill(near);
    for (const bytes of [1, 16_383, 2, 16_384, 65_536, 16_385, 3, 50_000]) {
      const before = near.stream.pending;
      const part = pattern(bytes, offered);
      const pending = bytes % 2 === 0 ? near.send(part) : near.stream.sendBytes(part);
      assert.is(pending, before + bytes);
      assert.is(near.stream.pending, pending);
      offered += bytes;
    }
    await drain(rig, far, offered);
    assert.is(near.drainedCalls, 1);
  }));

// When the peer has made room but the loop has not noticed yet, the kernel would take new bytes at
// once, ahead of those that wait.
test("Stream.send() does not overtake pending output when the kernel has room again", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    let offered = fill(near);
    const before = near.stream.pending;
    while (far.read() > 0);
    for (let i = 0; i < 3; i++) {
      const part = pattern(1000, offered);
      assert.is(i === 1 ? near.stream.sendBytes(part) : near.send(part), before + 1000 * (i + 1));
      offered += 1000;
    }
    await drain(rig, far, offered);
  }));

test("Stream.send() keeps a copy: the buffer may be reused at once", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    const offered = fill(near);
    rig.buffer.bytes.fill(0);
    await drain(rig, far, offered);
  }));

test("Stream.sendBytes() takes 20 MB at once and sends them in order", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    const total = 20_000_000;
    const pending = near.stream.sendBytes(pattern(total));
    assert.ok(pending > 0 && pending < total);
    await drain(rig, far, total);
    assert.is(near.drainedCalls, 1);
  }));

test("StreamOwner.onDrained() may send again, and is told again", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    let offered = fill(near);
    let rounds = 0;
    near.onDrain = () => {
      assert.is(near.stream.pending, 0);
      if (++rounds > 3) return;
      far.stream.pause(false);
      let part = 0;
      while (near.stream.pending === 0) {
        near.send(pattern(20_000, offered + part));
        part += 20_000;
      }
      offered += part;
      far.stream.resume();
    };
    far.stream.resume();
    await rig.until("four rounds", () => rounds === 4 && far.receivedBytes === offered);
    assert.is(Buffer.compare(far.bytes(), pattern(offered)), 0);
    assert.is(near.drainedCalls, 4);
  }));

test("StreamOwner.onDrained() may close the stream", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    fill(near);
    near.onDrain = () => near.stream.close();
    // Something to read as well, in the same batch: nothing may be called after close().
    near.onRead = () => assert.not(near.stream.closed);
    far.stream.sendBytes(encoder.encode("x"));
    far.stream.resume();
    await rig.until("the end", () => far.ended !== null);
    assert.ok(near.stream.closed);
  }));

test("Stream.pause() stops onReadable at once and resume() brings what waited", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    for (const watchHangup of [false, true]) {
      far.stream.pause(watchHangup);
      assert.ok(far.stream.paused);
      const calls = far.readableCalls;
      near.send(encoder.encode("ab"));
      assert.ok(await rig.batchesWithin(40) < 10, "the loop spins over a paused stream");
      assert.is(far.readableCalls, calls);
      assert.is(far.hangupCalls, 0);
      far.stream.resume();
      assert.not(far.stream.paused);
      await rig.until("the bytes", () => far.readableCalls === calls + 1);
    }
    assert.is(far.text(), "abab");
  }));

test("Stream.pause() within onReadable leaves the rest unread until resume()", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.readBytes = 3;
    far.onRead = () => {
      far.read();
      far.stream.pause(true);
    };
    near.send(encoder.encode("abcdefgh"));
    await rig.until("the first part", () => far.text() === "abc");
    assert.ok(await rig.batchesWithin(30) < 10);
    assert.is(far.text(), "abc");
    far.stream.resume();
    await rig.until("the second part", () => far.text() === "abcdef");
  }));

test("Stream.pause() still sends what is pending", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    const offered = fill(near);
    near.stream.pause(false);
    await drain(rig, far, offered);
    near.stream.pause(true);
    assert.is(near.drainedCalls, 1);
  }));

test("Stream.close() drops pending output and is idempotent", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    fill(near);
    near.stream.close();
    near.stream.close();
    assert.is(near.stream.pending, 0);
    assert.ok(near.stream.closed);
    assert.is(near.send(encoder.encode("x")), -Errno.EBADF);
    assert.is(near.stream.sendBytes(encoder.encode("x")), -Errno.EBADF);
    assert.is(near.stream.recv(rig.buffer, 0, 10), -Errno.EBADF);
    near.stream.pause(true);
    near.stream.resume();
    near.stream.closeWhenDrained(10);
    assert.not(near.stream.paused);
  }));

test("Stream.closeWhenDrained() sends all that is pending, then the peer reads end of file", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    const offered = fill(near);
    near.stream.closeWhenDrained(5_000);
    assert.is(near.send(encoder.encode("too late")), -Errno.EPIPE);
    assert.not(near.stream.closed);
    await drain(rig, far, offered);
    await rig.until("end of file", () => far.ended === 0);
    far.stream.close();
    await rig.until("the close", () => near.stream.closed);
    assert.is(near.drainedCalls, 0, "the owner was called after it had let go");
  }));

test("Stream.closeWhenDrained() with nothing pending closes as soon as the peer does", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    near.send(encoder.encode("bye"));
    near.stream.closeWhenDrained(5_000);
    await rig.until("end of file", () => far.ended === 0);
    assert.is(far.text(), "bye");
    far.stream.close();
    await rig.until("the close", () => near.stream.closed);
  }));

test("Stream.closeWhenDrained() gives up at the deadline when the peer does not read", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    fill(near);
    near.stream.closeWhenDrained(30);
    await rig.until("the close", () => near.stream.closed, 3_000);
  }));

test("Stream.retire() drops what is pending and closes when the peer does", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    fill(near);
    near.stream.retire(60_000);
    assert.is(near.stream.pending, 0);
    assert.is(near.stream.closed, false);
    far.stream.resume();
    await rig.until("end of file", () => far.ended === 0);
    assert.is(near.stream.closed, false, "the peer has not closed yet");
    far.stream.close();
    await rig.until("the close", () => near.stream.closed);
    assert.is(near.drainedCalls, 0, "the owner was called after it had let go");
  }));

test("Stream.retire() gives up at the deadline when the peer does not close", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    near.stream.retire(1_500);
    await rig.until("end of file", () => far.ended === 0);
    await rig.until("the close", () => near.stream.closed, 10_000);
  }));

test("Stream.retire() closes when the peer had closed before", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.close();
    await rig.until("end of file", () => near.ended === 0);
    near.stream.retire(60_000);
    await rig.until("the close", () => near.stream.closed);
  }));

test("Stream.closeWhenDrained() gives up at the deadline when the peer does not close", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    near.stream.closeWhenDrained(30);
    await rig.until("end of file", () => far.ended === 0);
    await rig.until("the close", () => near.stream.closed, 3_000);
  }));

// A server that answered with an error and closed while the client was still sending made the
// kernel reset the connection, and the client never saw the error. Unread input must be read.
test("Stream.closeWhenDrained() does not destroy its last message by unread input", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    near.stream.pause(false);
    far.stream.sendBytes(pattern(100_000));
    await rig.until("unread input", () => near.stream.recv(rig.buffer, 0, 1) === 1);
    near.stream.sendBytes(encoder.encode("FATAL"));
    near.stream.closeWhenDrained(5_000);
    far.stream.sendBytes(pattern(100_000));
    await rig.until("end of file", () => far.ended !== null);
    assert.is(far.text(), "FATAL");
    assert.is(far.ended, 0, "the connection was reset");
    far.stream.close();
    await rig.until("the close", () => near.stream.closed);
  }));

test.run();
