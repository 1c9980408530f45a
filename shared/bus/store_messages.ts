// The request and the reply by which clients of the embedded bus use the store its supervisor keeps.
// Pure. Bounds: those of keys and values, and 1000 entries in a page of a list.

import { checkItems, fieldsOf, isCount } from "./checks.ts";
import type { Payload } from "./payload.ts";
import {
  isStoreKey,
  isStorePrefix,
  isStoreValue,
  maxValueBytes,
  type StoreEntry,
} from "./store.ts";

export type StoreRequest =
  | { readonly op: "get"; readonly key: string }
  | { readonly op: "create"; readonly key: string; readonly value: Uint8Array }
  | {
    readonly op: "update";
    readonly key: string;
    readonly value: Uint8Array;
    readonly revision: number;
  }
  | { readonly op: "remove"; readonly key: string; readonly revision: number | null }
  /** A page of keys after this one, "" for the first page. */
  | { readonly op: "list"; readonly prefix: string; readonly after: string };

export interface StoreReply {
  /** What create, update and remove return: null is a no; of a remove, any number is a yes. */
  readonly revision: number | null;
  /** What get and list found. */
  readonly entries: readonly StoreEntry[];
  /** The list goes on after the last entry. */
  readonly more: boolean;
}

export const maxPageEntries = 1000;
/** A page is full when it holds so much, so that one more value of the largest size still fits. */
export const fullPageBytes = 256 * 1024;

// Less than the 1 MiB that brokers take: a full page, one more value, and what is around them.
const maxBytes = fullPageBytes + maxValueBytes + 64 * 1024;

function checkRequest(raw: Readonly<Record<string, unknown>>): StoreRequest | null {
  const { op, key, value, revision, prefix, after } = raw;
  if (op === "list") {
    if (!isStorePrefix(prefix) || (after !== "" && !isStoreKey(after))) return null;
    return { op, prefix, after };
  }
  if (!isStoreKey(key)) return null;
  switch (op) {
    case "get":
      return { op, key };
    case "create":
      return isStoreValue(value) ? { op, key, value: new Uint8Array(value) } : null;
    case "update":
      if (!isStoreValue(value) || !isCount(revision)) return null;
      return { op, key, value: new Uint8Array(value), revision };
    case "remove":
      return revision === null || isCount(revision) ? { op, key, revision } : null;
    default:
      return null;
  }
}

function checkEntry(raw: unknown): StoreEntry | null {
  const { key, value, revision } = fieldsOf(raw);
  if (!isStoreKey(key) || !isStoreValue(value) || !isCount(revision)) return null;
  return { key, value: new Uint8Array(value), revision };
}

export const storeRequestPayload: Payload<StoreRequest> = {
  name: "store request",
  version: 1,
  maxBytes,
  check: checkRequest,
};

export const storeReplyPayload: Payload<StoreReply> = {
  name: "store reply",
  version: 1,
  maxBytes,
  check({ revision, entries: raw, more }) {
    const entries = checkItems(raw, maxPageEntries, checkEntry);
    if ((revision !== null && !isCount(revision)) || entries === null) return null;
    return typeof more === "boolean" ? { revision, entries, more } : null;
  },
};
