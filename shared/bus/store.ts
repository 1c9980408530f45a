// What the mesh's store is: a few small values under names, written by compare-and-set. Types and
// checks only; it is kept by JetStream, or by the supervisor for the embedded bus.
// Bounds: 256 characters in a key, 512 KiB in a value.

import { BusError } from "./errors.ts";

export interface StoredValue {
  readonly value: Uint8Array;
  /** Of the write that made it: a later write of any key has a higher one. */
  readonly revision: number;
}

export interface StoreEntry extends StoredValue {
  readonly key: string;
}

/**
 * Keys are letters, digits, `_`, `-` and, inside, single dots. Rejects with a `BusError`: `TIMEOUT`,
 * `DISCONNECTED`, `NO_RESPONDERS`, `CLOSED`, `UNAVAILABLE`, `REFUSED`, `BAD_REPLY`: whether a write was done is
 * unknown then, and who repeats it may find its own. `INVALID` for a key or value out of bounds.
 */
export interface Store {
  /** Null: there is no such key. */
  get(key: string): Promise<StoredValue | null>;
  /** The revision; null: the key exists. */
  create(key: string, value: Uint8Array): Promise<number | null>;
  /** The new revision; null: somebody else wrote or removed it since this one. */
  update(key: string, value: Uint8Array, revision: number): Promise<number | null>;
  /** Of a revision that this key had; false: there is no such key, or a later revision of it. */
  remove(key: string, revision?: number): Promise<boolean>;
  /**
   * All keys with this prefix, sorted; "" for every key. None is left out that was written before
   * the last write or read of this store, and before the call, and is not removed meanwhile.
   */
  list(prefix: string): Promise<StoreEntry[]>;
}

export const maxKeyCharacters = 256;
export const maxValueBytes = 512 * 1024;

const keyForm = /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/;
const prefixForm = /^([A-Za-z0-9_-]+\.)*[A-Za-z0-9_-]*$/;

export function isStoreKey(value: unknown): value is string {
  return typeof value === "string" && value.length <= maxKeyCharacters && keyForm.test(value);
}

export function isStorePrefix(value: unknown): value is string {
  return typeof value === "string" && value.length <= maxKeyCharacters && prefixForm.test(value);
}

export function isStoreValue(value: unknown): value is Uint8Array {
  return value instanceof Uint8Array && value.length <= maxValueBytes;
}

export function checkedKey(key: string): string {
  if (isStoreKey(key)) return key;
  throw new BusError(
    "INVALID",
    `use store: key is ${
      JSON.stringify(key)
    }, wanted at most ${maxKeyCharacters} letters, digits, ` +
      "underscores, hyphens and single dots",
  );
}

export function checkedPrefix(prefix: string): string {
  return prefix === "" || isStorePrefix(prefix) ? prefix : checkedKey(prefix);
}

export function checkedValue(key: string, value: Uint8Array): Uint8Array {
  if (value.length <= maxValueBytes) return value;
  throw new BusError(
    "INVALID",
    `write "${key}": value is ${value.length} bytes, wanted at most ${maxValueBytes}`,
  );
}
