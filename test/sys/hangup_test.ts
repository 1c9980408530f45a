// Ends of connections: half-closes, resets and errors, in each state a stream can be in. What the
// owner is told, how often, and that the loop never spins over a dead socket.

import { assert, suite } from "../support/harness.ts";
import { Errno } from "../../shared/sys/mod.ts";
import { shutdownOutput } from "../../shared/sys/options.ts";
import { encoder, type Peer, type Rig, withRig } from "./fixtures.ts";

const test = suite("sys: hang-ups");

function fill(near: Peer): void {
  while (near.stream.pending === 0) near.send(new Uint8Array(32 * 1024));
}

async function assertQuiet(rig: Rig): Promise<void> {
  const batches = await rig.batchesWithin(40);
  assert.ok(batches < 10, `the loop spins: ${batches} batches`);
}

test("Stream.recv() returns 0 at the peer's half-close, and sending still works", () =>
  withRig(async (rig) => {
    for (const kind of ["127.0.0.1", "unix"] as const) {
      const [near, far] = await rig.pair(kind);
      shutdownOutput(far.stream.fd);
      await rig.until("end of file", () => near.ended === 0);
      await assertQuiet(rig);
      near.send(encoder.encode("still here"));
      await rig.until("the bytes", () => far.text() === "still here");
      assert.is(near.hangupCalls, 0);
      assert.is(near.readableCalls, 1);
    }
  }));

test("Stream still reads after a half-close of its own", () =>
  withRig(async (rig) => {
    for (const kind of ["127.0.0.1", "unix"] as const) {
      const [near, far] = await rig.pair(kind);
      shutdownOutput(near.stream.fd);
      await rig.until("end of file", () => far.ended === 0);
      far.send(encoder.encode("answer"));
      await rig.until("the bytes", () => near.text() === "answer");
      assert.is(near.ended, null);
      far.stream.close();
      await rig.until("end of file", () => near.ended === 0);
      await assertQuiet(rig);
    }
  }));

test("Stream tells a reset that comes after end of file through onHangup, once", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    shutdownOutput(far.stream.fd);
    await rig.until("end of file", () => near.ended === 0);
    far.reset();
    await rig.until("the hang-up", () => near.hangupCalls === 1);
    await assertQuiet(rig);
    assert.is(near.hangupCalls, 1);
  }));

test("Stream.recv() returns -ECONNRESET after a reset", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.reset();
    await rig.until("the reset", () => near.ended !== null);
    assert.is(near.ended, Errno.ECONNRESET);
    await assertQuiet(rig);
    assert.is(near.hangupCalls, 0, "what recv() has told is not told again");
    assert.is(near.readableCalls, 1);
    assert.is(near.stream.recv(rig.buffer, 0, 10), -Errno.ECONNRESET);
    assert.is(near.send(encoder.encode("x")), -Errno.ECONNRESET);
  }));

test("Stream.recv() gives the bytes that came before a reset first", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.send(encoder.encode("last words"));
    far.reset();
    await rig.until("the reset", () => near.ended === Errno.ECONNRESET);
    assert.is(near.text(), "last words");
  }));

test("Stream tells a reset while paused through onHangup, once, and does not spin", () =>
  withRig(async (rig) => {
    for (const watchHangup of [false, true]) {
      const [near, far] = await rig.pair();
      near.stream.pause(watchHangup);
      far.reset();
      await rig.until("the hang-up", () => near.hangupCalls > 0);
      await assertQuiet(rig);
      assert.is(near.hangupCalls, 1);
      assert.is(near.readableCalls, 0);
      near.stream.resume();
      await rig.until("the reset", () => near.ended === Errno.ECONNRESET);
      await assertQuiet(rig);
      assert.is(near.hangupCalls, 1);
    }
  }));

test("Stream.pause(false) does not react to a mere end of file", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    near.stream.pause(false);
    far.send(encoder.encode("unread"));
    far.stream.close();
    await assertQuiet(rig);
    assert.is(near.hangupCalls, 0);
    assert.is(near.readableCalls, 0);
    near.stream.resume();
    await rig.until("end of file", () => near.ended === 0);
    assert.is(near.text(), "unread");
  }));

test("Stream.pause(true) tells an end of file, once, also behind unread data", () =>
  withRig(async (rig) => {
    for (const data of ["", "unread"]) {
      for (const kind of ["127.0.0.1", "unix"] as const) {
        const [near, far] = await rig.pair(kind);
        near.stream.pause(true);
        far.stream.sendBytes(encoder.encode(data));
        await assertQuiet(rig);
        assert.is(near.hangupCalls, 0);
        far.stream.close();
        await rig.until("the hang-up", () => near.hangupCalls > 0);
        await assertQuiet(rig);
        assert.is(near.hangupCalls, 1);
        assert.is(near.readableCalls, 0);
        near.stream.resume();
        await rig.until("end of file", () => near.ended === 0);
        assert.is(near.text(), data);
        await assertQuiet(rig);
      }
    }
  }));

test("Stream.pause(true) tells an end of file that was there before the pause", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    near.stream.pause(false);
    far.stream.close();
    await assertQuiet(rig);
    near.stream.pause(true);
    await rig.until("the hang-up", () => near.hangupCalls === 1);
    assert.is(near.readableCalls, 0);
  }));

test("Stream.pause(true) tells an end of file again after a resume() that did not reach it", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    near.stream.pause(true);
    far.send(encoder.encode("abcdef"));
    far.stream.close();
    await rig.until("the hang-up", () => near.hangupCalls === 1);
    near.readBytes = 1;
    near.onRead = () => {
      near.read();
      near.stream.pause(true);
    };
    near.stream.resume();
    await rig.until("the second hang-up", () => near.hangupCalls === 2);
    await assertQuiet(rig);
    assert.is(near.text(), "a");
    assert.is(near.hangupCalls, 2);
  }));

test("Stream.pause(true) tells an end of file and then stays silent about the reset after it", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    near.stream.pause(true);
    shutdownOutput(far.stream.fd);
    await rig.until("the hang-up", () => near.hangupCalls === 1);
    far.reset();
    await assertQuiet(rig);
    assert.is(near.hangupCalls, 1);
    assert.is(near.send(encoder.encode("x")), -Errno.EPIPE);
  }));

test("Stream.pause(false) on a unix socket tells the peer's close, which ends both directions", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair("unix");
    near.stream.pause(false);
    far.stream.close();
    await rig.until("the hang-up", () => near.hangupCalls === 1);
    await assertQuiet(rig);
    assert.is(near.hangupCalls, 1);
  }));

test("Stream with pending output tells a reset through recv() and drops the output", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    fill(near);
    far.reset();
    await rig.until("the reset", () => near.ended !== null);
    // Which of the two it is depends on whether sending or receiving saw it first.
    assert.ok(near.ended === Errno.ECONNRESET || near.ended === Errno.EPIPE, `${near.ended}`);
    assert.is(near.stream.pending, 0);
    assert.is(near.drainedCalls, 0);
    await assertQuiet(rig);
    assert.ok(near.send(encoder.encode("x")) < 0);
  }));

test("Stream with pending output, paused, tells a reset through onHangup", () =>
  withRig(async (rig) => {
    for (const watchHangup of [false, true]) {
      const [near, far] = await rig.pair();
      far.stream.pause(false);
      fill(near);
      near.stream.pause(watchHangup);
      far.reset();
      await rig.until("the hang-up", () => near.hangupCalls > 0);
      await assertQuiet(rig);
      assert.is(near.hangupCalls, 1);
      assert.is(near.drainedCalls, 0);
      assert.is(near.stream.pending, 0);
    }
  }));

test("Stream.send() returns the errno of a broken connection, the same one each time", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    near.stream.pause(false);
    far.reset();
    await rig.until("the error", () => near.send(encoder.encode("x")) < 0);
    assert.is(near.send(encoder.encode("x")), -Errno.ECONNRESET);
    assert.is(near.stream.sendBytes(encoder.encode("x")), -Errno.ECONNRESET);
    assert.is(near.stream.recv(rig.buffer, 0, 10), -Errno.ECONNRESET);
    await assertQuiet(rig);
  }));

test("Stream.send() fails with EPIPE, without a signal, when the unix peer is gone", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair("unix");
    near.stream.pause(false);
    far.stream.close();
    assert.is(near.send(encoder.encode("x")), -Errno.EPIPE);
  }));

test("Stream.closeWhenDrained() closes at once when the connection is reset", () =>
  withRig(async (rig) => {
    for (const isFull of [true, false]) {
      const [near, far] = await rig.pair();
      far.stream.pause(false);
      if (isFull) fill(near);
      near.stream.closeWhenDrained(60_000);
      far.reset();
      await rig.until("the close", () => near.stream.closed);
    }
  }));

test("StreamOwner may close within each callback", () =>
  withRig(async (rig) => {
    const [a, b] = await rig.pair();
    a.onRead = () => a.stream.close();
    b.send(encoder.encode("x"));
    await rig.until("the close", () => a.stream.closed);
    const [c, d] = await rig.pair();
    c.stream.pause(true);
    c.onHangup = () => c.stream.close();
    d.stream.close();
    await rig.until("the close", () => c.stream.closed);
    await assertQuiet(rig);
  }));

test.run();
