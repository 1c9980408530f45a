// Shared memory: that libc and JavaScript see the same bytes, and keep seeing them.

import { assert, suite } from "../support/harness.ts";
import { NativeBuffer } from "../../shared/sys/mod.ts";
import { receiveAt, sendAt } from "../../shared/sys/libc.ts";
import { withRig } from "./fixtures.ts";

const test = suite("sys: native buffers");

test("NativeBuffer refuses sizes that are no sizes", () => {
  for (const size of [0, -1, 1.5, NaN, Infinity, 2 ** 31]) {
    assert.throws(() => new NativeBuffer(size), /the size is/);
  }
});

test("NativeBuffer has one memory behind bytes and view", () => {
  const buffer = new NativeBuffer(16);
  assert.is(buffer.size, 16);
  assert.is(buffer.bytes.length, 16);
  buffer.bytes.set([1, 2, 3, 4]);
  assert.is(buffer.view.getUint32(0), 0x01020304);
});

test("NativeBuffer stays where it is while memory is allocated and collected around it", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    far.stream.pause(false);
    // Small ones too: those are what a collector would like to move.
    const buffers = [1, 8, 64, 100, 4096, 65_536].map((size) => new NativeBuffer(size));
    let garbage: unknown[] = [];
    for (let round = 0; round < 300; round++) {
      for (let i = 0; i < 200; i++) garbage.push(new Uint8Array(1000), { round, i });
      if (round % 10 === 9) garbage = [];
      for (const buffer of buffers) {
        const last = buffer.size - 1;
        buffer.bytes[last] = round;
        assert.is(sendAt(near.stream.fd, buffer, last, 1), 1);
        buffer.bytes[last] = 0xff;
        let count = receiveAt(far.stream.fd, buffer, last, 1);
        while (count < 0) count = receiveAt(far.stream.fd, buffer, last, 1);
        assert.is(buffer.bytes[last], round & 0xff);
      }
    }
  }));

test.run();
