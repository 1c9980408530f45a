// Cancel keys that say which worker owns them, so that any worker can route a cancel request.
//
// Protocol 3.0, 8 bytes:  process id = 0 | worker id (15 bits) | random (16 bits); secret = random (32)
// Protocol 3.2, 36 bytes: the same process id, then a secret of 32 bytes:
//   0: layout version, 1   1-2: worker id   3-8: incarnation (48 bits)   9-31: random (184 bits)
//
// Routing is all this file does: whether a key is right is decided by its owner, with sameSecret.

import { timingSafeEqual } from "node:crypto";
import { readInt16, readInt32, writeInt16, writeInt32 } from "./frame.ts";

const layoutVersion = 1;
const longSecretBytes = 32;
const maxWorkerId = 0x7fff;
const maxIncarnation = 2 ** 48 - 1;

export type CancelKey = { processId: number; secret: Uint8Array };

/**
 * Makes a key for a client of protocol 3.`minor`. `random(n)` must give n bytes fit for cryptography.
 * The process id is never negative (some clients choke on it) and never 0 (some take it for none).
 * Throws RangeError for a worker id beyond 15 bits or an incarnation beyond 48.
 */
export function makeCancelKey(
  workerId: number,
  minor: number,
  incarnation: number,
  random: (n: number) => Uint8Array,
): CancelKey {
  checkRange("worker id", workerId, maxWorkerId);
  checkRange("incarnation", incarnation, maxIncarnation);
  const processId = (workerId << 16 | (readInt16(random(2), 0) & 0xffff)) || 1;
  if (minor < 2) return { processId, secret: new Uint8Array(random(4)) };
  const secret = new Uint8Array(longSecretBytes);
  secret[0] = layoutVersion;
  writeInt16(secret, 1, workerId);
  writeInt16(secret, 3, Math.floor(incarnation / 2 ** 32));
  writeInt32(secret, 5, incarnation % 2 ** 32);
  secret.set(random(longSecretBytes - 9), 9);
  return { processId, secret };
}

function checkRange(what: string, value: number, most: number): void {
  if (Number.isInteger(value) && value >= 0 && value <= most) return;
  throw new RangeError(`make cancel key: ${what} ${value}, wanted an integer from 0 to ${most}`);
}

/** The worker that made this key, or -1 when no worker can have made it. */
export function cancelKeyWorker(processId: number, secret: Uint8Array): number {
  if (processId <= 0 || processId > 0x7fffffff) return -1;
  const worker = processId >>> 16;
  if (secret.length === 4) return worker;
  return isLongSecret(secret) && readInt16(secret, 1) === worker ? worker : -1;
}

/** The incarnation of the worker that made a key of protocol 3.2; null for a key of 4 bytes. */
export function cancelKeyIncarnation(secret: Uint8Array): number | null {
  if (!isLongSecret(secret)) return null;
  return (readInt16(secret, 3) & 0xffff) * 2 ** 32 + (readInt32(secret, 5) >>> 0);
}

function isLongSecret(secret: Uint8Array): boolean {
  return secret.length === longSecretBytes && secret[0] === layoutVersion;
}

/** Compares in a time that depends on the lengths only. */
export function sameSecret(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && timingSafeEqual(a, b);
}
