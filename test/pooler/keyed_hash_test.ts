// The hash under a secret key, against the values of the kernel's self test.

import { halfSipHash, keyedHash } from "../../services/pooler/plane/keyed_hash.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("keyed hash");

/** Of the first 0, 1, 2 ... of the bytes 0, 1, 2 ..., under a key of the bytes 0 to 7. */
const wanted = [
  0x5814c896,
  0xe7e864ca,
  0xbc4b0e30,
  0x01539939,
  0x7e059ea6,
  0x88e3d89b,
  0xa0080b65,
  0x9d38d9d6,
  0x577999b1,
  0xc839caed,
  0xe4fa32cf,
  0x959246ee,
  0x6b28096c,
  0x66dd9cd6,
  0x16658a7c,
  0xd0257b04,
];
const key = [0x03020100, 0x07060504] as const;
const bytes = Uint8Array.from({ length: 64 }, (_, i) => i);

test("halfSipHash() is HalfSipHash-1-3", () => {
  for (const [length, hash] of wanted.entries()) {
    assert.is(halfSipHash(...key, bytes, 0, length) >>> 0, hash, `${length} bytes`);
  }
});

test("keyedHash() depends on the bytes of its range only, and on the key", () => {
  const moved = new Uint8Array(100);
  for (let length = 0; length < 20; length++) {
    const hash = keyedHash(...key, bytes, 3, 3 + length);
    assert.ok(hash >= 0 && hash < 2 ** 30);
    moved.fill(0xff).set(bytes.subarray(3, 3 + length), 7);
    assert.is(keyedHash(...key, moved, 7, 7 + length), hash);
    assert.is.not(keyedHash(key[0], key[1] + 1, bytes, 3, 3 + length), hash);
    assert.is.not(keyedHash(key[0] + 1, key[1], bytes, 3, 3 + length), hash);
  }
});

test.run();
