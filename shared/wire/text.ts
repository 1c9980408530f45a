// Text and bytes: strict UTF-8, null-terminated strings, strict base64. Internal to the wire folder.
// Two different byte strings never decode to the same text, except where "lossy" is in the name:
// names decide who gets which pool, so a decoder that drops a byte order mark or replaces bad bytes
// would let one user become another.

import { Buffer } from "node:buffer";

const encoder = new TextEncoder();
// ignoreBOM keeps a leading U+FEFF; without it "\uFEFFbob" and "bob" would be one name.
const strictDecoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const lossyDecoder = new TextDecoder("utf-8", { fatal: false, ignoreBOM: true });

export function encodeUtf8(text: string): Uint8Array {
  return encoder.encode(text);
}

/** The text, or null when the bytes are not valid UTF-8. */
export function decodeUtf8(bytes: Uint8Array): string | null {
  try {
    return strictDecoder.decode(bytes);
  } catch {
    return null;
  }
}

/** The text with U+FFFD for bad bytes; for messages that are shown, never for names. */
export function decodeUtf8Lossy(bytes: Uint8Array): string {
  return lossyDecoder.decode(bytes);
}

/** Where the string that starts at `from` ends (the index of its NUL before `to`), or -1. */
export function findNul(bytes: Uint8Array, from: number, to: number): number {
  const at = bytes.indexOf(0, from);
  return at >= 0 && at < to ? at : -1;
}

/** One character per byte; the inverse is latin1Bytes. */
export function latin1Text(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1");
}

export function latin1Bytes(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, "latin1"));
}

/** A copy of a range. slice() is not one when `bytes` is a Buffer: Buffer.slice() shares memory. */
export function copyBytes(bytes: Uint8Array, from: number, to: number): Uint8Array {
  return new Uint8Array(bytes.subarray(from, to));
}

/** The bytes of canonical base64 (padded, no white space, unused bits zero), or null. */
export function decodeBase64(text: string): Uint8Array | null {
  const bytes = new Uint8Array(Buffer.from(text, "base64"));
  return encodeBase64(bytes) === text ? bytes : null; // Buffer itself skips what it does not know
}

export function encodeBase64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("base64");
}
