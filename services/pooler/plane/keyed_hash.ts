// A hash of bytes under a secret key: who does not know the key can't choose bytes with equal hashes, and so
// can't make one chain of a table as long as the table. HalfSipHash-1-3 (Aumasson and Bernstein; the kernel's
// hsiphash on 32-bit machines), which needs no more than 32-bit words. Pure; allocates nothing.

/** The hash of `bytes[from, to)`, cut to 30 bits so that it is a small integer on both engines. */
export function keyedHash(
  key0: number,
  key1: number,
  bytes: Uint8Array,
  from: number,
  to: number,
): number {
  return halfSipHash(key0, key1, bytes, from, to) & 0x3fffffff;
}

/** The whole hash, a signed integer. */
export function halfSipHash(
  key0: number,
  key1: number,
  bytes: Uint8Array,
  from: number,
  to: number,
): number {
  const length = to - from;
  const wordsEnd = from + (length & ~3);
  let v0 = key0;
  let v1 = key1;
  let v2 = key0 ^ 0x6c796765;
  let v3 = key1 ^ 0x74656462;
  // All whole words, one of what is left and the length, and three rounds to finish.
  for (let at = from; at <= wordsEnd + 12; at += 4) {
    let word = 0;
    if (at < wordsEnd) {
      word = bytes[at]! | bytes[at + 1]! << 8 | bytes[at + 2]! << 16 | bytes[at + 3]! << 24;
    } else if (at === wordsEnd) {
      word = length << 24;
      for (let i = at; i < to; i++) word |= bytes[i]! << 8 * (i - at);
    } else if (at === wordsEnd + 4) {
      v2 ^= 0xff;
    }
    v3 ^= word;
    v0 = (v0 + v1) | 0;
    v1 = (v1 << 5 | v1 >>> 27) ^ v0;
    v0 = v0 << 16 | v0 >>> 16;
    v2 = (v2 + v3) | 0;
    v3 = (v3 << 8 | v3 >>> 24) ^ v2;
    v0 = (v0 + v3) | 0;
    v3 = (v3 << 7 | v3 >>> 25) ^ v0;
    v2 = (v2 + v1) | 0;
    v1 = (v1 << 13 | v1 >>> 19) ^ v2;
    v2 = v2 << 16 | v2 >>> 16;
    v0 ^= word;
  }
  return v1 ^ v3;
}
