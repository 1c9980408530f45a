// What isModest() lets the decoder see: whole values within the bounds, and nothing else.

import { Buffer } from "node:buffer";
import { decode, encode } from "@msgpack/msgpack";
import { isModest } from "../../shared/bus/payload_shape.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";

const test = suite("isModest()");

/** A value of any kind that MessagePack has, nested at most so deep. */
function anyValue(random: () => number, depth: number): unknown {
  const length = Math.floor(random() * (random() < 0.1 ? 300 : 6));
  switch (Math.floor(random() * (depth > 0 ? 9 : 7))) {
    case 0:
      return null;
    case 1:
      return random() < 0.5;
    case 2:
      return Math.floor((random() - 0.3) * 2 ** Math.floor(random() * 54));
    case 3:
      return random() * 1e9;
    case 4:
      return "é".repeat(length * 120);
    case 5:
      return new Uint8Array(length * 240);
    case 6:
      return "";
    case 7:
      return Array.from({ length }, () => anyValue(random, depth - 1));
    default:
      return Object.fromEntries(
        Array.from({ length }, (_, at) => [`k${at}`, anyValue(random, depth - 1)]),
      );
  }
}

test("isModest() takes what the encoder makes, and no part or more of it", () => {
  const seed = Date.now() >>> 0;
  const random = seededRandom(seed);
  for (let round = 0; round < 500; round += 1) {
    const bytes = encode(anyValue(random, 2));
    // Some are over the bound on values.
    if (!isModest(bytes)) continue;
    assert.is(isModest(Buffer.concat([bytes, Buffer.from([0])])), false, `seed ${seed}`);
    const cut = Math.floor(random() * bytes.length);
    assert.is(isModest(bytes.subarray(0, cut)), false, `seed ${seed}, round ${round}, cut ${cut}`);
  }
  for (const length of [0, 1, 15, 16, 255, 256, 8000]) {
    assert.is(isModest(encode(Array.from({ length }, () => 1))), true, `${length}`);
  }
  for (const length of [0, 31, 32, 255, 256, 65_535, 65_536]) {
    assert.is(isModest(encode("x".repeat(length))), true, `${length}`);
    assert.is(isModest(encode(new Uint8Array(length))), true, `${length}`);
  }
});

test("isModest() refuses too many values, too deep ones, extensions and what is not there", () => {
  let deep: unknown = 1;
  for (let depth = 0; depth < 6; depth += 1) deep = [deep];
  assert.is(isModest(encode(deep)), true);
  assert.is(isModest(encode([deep])), false);
  assert.is(isModest(encode(Array.from({ length: 8192 }, () => 1))), false);
  assert.is(isModest(encode(Array.from({ length: 90 }, () => Array(100).fill(1)))), false);
  for (
    const bytes of [
      [],
      [0xc1],
      [0xc7, 0, 1],
      [0xd4, 1, 0],
      [0xd8, 1, ...Array(16).fill(0)],
      [0xdd, 0xff, 0xff, 0xff, 0xff],
      [0xdf, 0xff, 0xff, 0xff, 0xff],
      [0xdf, 0x80, 0, 0, 0],
      [0xdb, 0xff, 0xff, 0xff, 0xff],
      [0xdc, 0],
      [0xcb, 0, 0],
      [0x92, 1],
      [0x81, 1],
    ]
  ) assert.is(isModest(Uint8Array.from(bytes)), false, `${bytes}`);
});

test("isModest() and the decoder agree on what a value is, whatever the bytes", () => {
  const seed = Date.now() >>> 0;
  const random = seededRandom(seed);
  for (let round = 0; round < 20_000; round += 1) {
    const length = Math.floor(random() * 20);
    const bytes = Uint8Array.from({ length }, () => Math.floor(random() * 256));
    if (!isModest(bytes)) continue;
    try {
      decode(bytes);
    } catch (error) {
      // A key that is no string, or not allowed to be one, is for the decoder to refuse.
      assert.match((error as Error).message, /key/, `seed ${seed}: ${bytes}`);
    }
  }
});

test.run();
