// A peer that reads slowly, or not at all: what is queued, what is told, and in which order it leaves.

import { assert, suite } from "../support/harness.ts";
import { Errno } from "../../shared/sys/mod.ts";
import { needs } from "../support/needs.ts";
import { encoder, type Peer, type Rig, withRig } from "./fixtures.ts";

needs("openssl");
const test = suite("sys: back-pressure");

function each(name: string, body: (rig: Rig) => Promise<void>): void {
  for (const kind of ["127.0.0.1", "unix", "tls"] as const) {
    test(`${name} (${kind})`, () => withRig(body, kind));
  }
}

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

each("Stream.send() queues at most what was offered and drains once", async (rig) => {
  const [near, far] = await rig.pair();
  far.stream.pause(false);
  const offered = fill(near);
  assert.ok(near.stream.pending <= 32 * 1024, `pending is ${near.stream.pending}`);
  assert.is(near.drainedCalls, 0);
  await drain(rig, far, offered);
  assert.is(near.drainedCalls, 1);
  assert.is(near.stream.pending, 0);
  assert.ok(await rig.batchesWithin(50) < 10, "the loop spins after the queue has drained");
});

each("Stream.send() behind pending output keeps the order, of any mix of sizes", async (rig) => {
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
});

// When the peer has made room but the loop has not noticed yet, the kernel would take new bytes at
// once, ahead of those that wait.
each(
  "Stream.send() does not overtake pending output when the kernel has room again",
  async (rig) => {
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
  },
);

each("Stream.send() keeps a copy: the buffer may be reused at once", async (rig) => {
  const [near, far] = await rig.pair();
  far.stream.pause(false);
  const offered = fill(near);
  rig.buffer.bytes.fill(0);
  await drain(rig, far, offered);
});

each("Stream.sendBytes() takes 20 MB at once and sends them in order", async (rig) => {
  const [near, far] = await rig.pair();
  far.stream.pause(false);
  const total = 20_000_000;
  const pending = near.stream.sendBytes(pattern(total));
  assert.ok(pending > 0 && pending < total);
  await drain(rig, far, total);
  assert.is(near.drainedCalls, 1);
});

each("StreamOwner.onDrained() may send again, and is told again", async (rig) => {
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
});

each("StreamOwner.onDrained() may close the stream", async (rig) => {
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
});

each("Stream.pause() stops onReadable at once and resume() brings what waited", async (rig) => {
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
});

// SUSPEND stops the reading of a connection whose owner goes on pausing and resuming it.
each("Stream.freeze() stops onReadable whatever its owner asks for, up to thaw()", async (rig) => {
  const [near, far] = await rig.pair();
  const rows: [string, (stream: typeof far.stream) => void, boolean][] = [
    ["as it was", () => {}, true],
    ["resumed", (stream) => stream.resume(), true],
    ["paused", (stream) => stream.pause(false), false],
    ["watched", (stream) => stream.pause(true), false],
    ["paused and resumed", (stream) => (stream.pause(true), stream.resume()), true],
    ["frozen again", (stream) => stream.freeze(), true],
  ];
  for (const [what, ask, reads] of rows) {
    const calls = far.readableCalls;
    far.stream.freeze();
    ask(far.stream);
    assert.ok(far.stream.frozen && far.stream.paused, what);
    near.send(encoder.encode("ab"));
    assert.ok(await rig.batchesWithin(30) < 10, "the loop spins over a frozen stream");
    assert.is(far.readableCalls, calls, what);
    far.stream.thaw();
    assert.not(far.stream.frozen);
    if (!reads) {
      assert.ok(await rig.batchesWithin(30) < 10);
      assert.is(far.readableCalls, calls, what);
      far.stream.resume();
    }
    await rig.until("the bytes", () => far.readableCalls > calls);
  }
  assert.is(far.text(), "ab".repeat(rows.length));
  // Output goes on.
  near.stream.pause(false);
  far.stream.freeze();
  const offered = fill(far);
  await drain(rig, near, offered);
  assert.is(far.stream.pending, 0);
});

each("Stream.pause() within onReadable leaves the rest unread until resume()", async (rig) => {
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
});

each("Stream.pause() still sends what is pending", async (rig) => {
  const [near, far] = await rig.pair();
  far.stream.pause(false);
  const offered = fill(near);
  near.stream.pause(false);
  await drain(rig, far, offered);
  near.stream.pause(true);
  assert.is(near.drainedCalls, 1);
});

each("Stream.close() drops pending output and is idempotent", async (rig) => {
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
});

each(
  "Stream.closeWhenDrained() sends all that is pending, then the peer reads end of file",
  async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    const offered = fill(near);
    near.stream.closeWhenDrained(60_000);
    assert.is(near.send(encoder.encode("too late")), -Errno.EPIPE);
    assert.not(near.stream.closed);
    await drain(rig, far, offered);
    await rig.until("end of file", () => far.ended === 0);
    far.stream.close();
    await rig.until("the close", () => near.stream.closed);
    assert.is(near.drainedCalls, 0, "the owner was called after it had let go");
  },
);

each(
  "Stream.closeWhenDrained() with nothing pending closes as soon as the peer does",
  async (rig) => {
    const [near, far] = await rig.pair();
    near.send(encoder.encode("bye"));
    near.stream.closeWhenDrained(60_000);
    await rig.until("end of file", () => far.ended === 0);
    assert.is(far.text(), "bye");
    far.stream.close();
    await rig.until("the close", () => near.stream.closed);
  },
);

each(
  "Stream.closeWhenDrained() gives up at the deadline when the peer does not read",
  async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    fill(near);
    near.stream.closeWhenDrained(30);
    await rig.until("the close", () => near.stream.closed);
  },
);

each("Stream.retire() drops what is pending and closes when the peer does", async (rig) => {
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
});

each("Stream.retire() gives up at the deadline when the peer does not close", async (rig) => {
  const [near, far] = await rig.pair();
  near.stream.retire(1_500);
  await rig.until("end of file", () => far.ended === 0);
  await rig.until("the close", () => near.stream.closed);
});

each("Stream.retire() closes when the peer had closed before", async (rig) => {
  const [near, far] = await rig.pair();
  far.stream.close();
  await rig.until("end of file", () => near.ended === 0);
  near.stream.retire(60_000);
  await rig.until("the close", () => near.stream.closed);
});

each(
  "Stream.closeWhenDrained() gives up at the deadline when the peer does not close",
  async (rig) => {
    const [near, far] = await rig.pair();
    near.stream.closeWhenDrained(30);
    await rig.until("end of file", () => far.ended === 0);
    await rig.until("the close", () => near.stream.closed);
  },
);

// A server that answered with an error and closed while the client was still sending made the
// kernel reset the connection, and the client never saw the error. Unread input must be read.
each("Stream.closeWhenDrained() does not destroy its last message by unread input", async (rig) => {
  const [near, far] = await rig.pair();
  near.stream.pause(false);
  far.stream.sendBytes(pattern(100_000));
  await rig.until("unread input", () => near.stream.recv(rig.buffer, 0, 1) === 1);
  near.stream.sendBytes(encoder.encode("FATAL"));
  near.stream.closeWhenDrained(60_000);
  far.stream.sendBytes(pattern(100_000));
  await rig.until("end of file", () => far.ended !== null);
  assert.is(far.text(), "FATAL");
  assert.is(far.ended, 0, "the connection was reset");
  far.stream.close();
  await rig.until("the close", () => near.stream.closed);
});

test.run();
