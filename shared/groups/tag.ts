// The tag of a query: `group=reports` in a comment that its text begins with, alone or among other pairs, as tools
// that annotate queries write them. Only the first bytes are looked at, since each query may have one.

import { Buffer } from "node:buffer";

const MAX_BYTES = 256;
const SLASH = 0x2f;
const STAR = 0x2a;
const TAG = /(?:^|[ \t\r\n,])group[ \t]*=[ \t]*('?)([A-Za-z0-9_.-]{1,63})\1(?=[ \t\r\n,]|$)/;

/** Of the text in a range of `bytes`; "": it has none. */
export function readTag(bytes: Uint8Array, from: number, to: number): string {
  const end = Math.min(to, from + MAX_BYTES);
  let at = from;
  for (;;) {
    while (at < end && isBlank(bytes[at]!)) at++;
    if (at + 1 >= end || bytes[at] !== SLASH || bytes[at + 1] !== STAR) return "";
    const start = at + 2;
    at = start;
    while (at + 1 < end && (bytes[at] !== STAR || bytes[at + 1] !== SLASH)) at++;
    if (at + 1 >= end) return "";
    const comment = Buffer.from(bytes.buffer, bytes.byteOffset + start, at - start);
    const found = TAG.exec(comment.toString("latin1"));
    if (found !== null) return found[2]!;
    at += 2;
  }
}

function isBlank(byte: number): boolean {
  return byte === 0x20 || (byte >= 0x09 && byte <= 0x0d);
}
