// Looks at the heads of a MessagePack payload before anything is made of it. The decoder allocates
// an array at its declared length before it reads the items, and arrays nest: 64 KiB of array heads
// cost hundreds of megabytes, and a payload may be larger than that.
// Invariant: what passes is whole, and decodes to at most `maxValues` values, `maxDepth` deep.

/** A page of a list from the store has the most: 1000 entries of 7 values. */
const maxValues = 8192;
/** A map with an array of rows has three. */
const maxDepth = 6;

/** The bytes after a head that belong to it: its number, or the length of what follows. */
const headBytes: Readonly<Record<number, number>> = {
  0xca: 4, // floats
  0xcb: 8,
  0xcc: 1, // unsigned
  0xcd: 2,
  0xce: 4,
  0xcf: 8,
  0xd0: 1, // signed
  0xd1: 2,
  0xd2: 4,
  0xd3: 8,
};

/** The size of the length in front of bytes, strings, arrays and maps. */
const lengthBytes: Readonly<Record<number, number>> = {
  0xc4: 1, // bytes
  0xc5: 2,
  0xc6: 4,
  0xd9: 1, // strings
  0xda: 2,
  0xdb: 4,
  0xdc: 2, // arrays
  0xdd: 4,
  0xde: 2, // maps
  0xdf: 4,
};

/** Whether the payload is one value within the bounds, and nothing after it. */
export function isModest(bytes: Uint8Array): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  /** By depth, how many values are still to come; one at the top. */
  const left = [1];
  let at = 0;
  let values = 0;
  for (;;) {
    while (left.at(-1) === 0) left.pop();
    if (left.length === 0) return at === bytes.length;
    left[left.length - 1]! -= 1;
    values += 1;
    if (at >= bytes.length || values > maxValues) return false;
    const head = view.getUint8(at);
    at += 1;
    let items = 0;
    if (head >= 0x80 && head < 0xa0) {
      items = head < 0x90 ? (head & 0x0f) * 2 : head & 0x0f;
    } else if (head >= 0xa0 && head < 0xc0) {
      at += head & 0x1f;
    } else if (lengthBytes[head] !== undefined) {
      const size = lengthBytes[head];
      if (at + size > bytes.length) return false;
      const length = size === 1
        ? view.getUint8(at)
        : size === 2
        ? view.getUint16(at)
        : view.getUint32(at);
      at += size;
      if (head < 0xdc) at += length;
      else items = head < 0xde ? length : length * 2;
    } else if (headBytes[head] !== undefined) {
      at += headBytes[head];
    } else if (head === 0xc1 || (head >= 0xc7 && head <= 0xd8)) {
      return false; // reserved, and extensions
    }
    if (at > bytes.length) return false;
    if (items === 0) continue;
    if (items > maxValues || left.length > maxDepth) return false;
    left.push(items);
  }
}
