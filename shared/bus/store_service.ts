// A store over the embedded bus: one process keeps it, the others ask. Both ends are here. It lives
// as long as the process that keeps it.
// Invariant: requests are carried out one after the other in the order they arrive.

import type { Bus } from "./api.ts";
import { checkedKey, checkedPrefix, checkedValue } from "./store.ts";
import type { Store, StoredValue, StoreEntry } from "./store.ts";
import { fullPageBytes, maxPageEntries } from "./store_messages.ts";
import type { StoreReply, StoreRequest } from "./store_messages.ts";

const defaultRequestMs = 2000;

const nothing: StoreReply = { revision: null, entries: [], more: false };

/** Answers requests to the store of this mesh until the returned function is called. */
export function serveStore(bus: Bus, store: Store): () => void {
  return bus.subscribe(bus.subjects.store, (request) => answer(store, request));
}

async function answer(store: Store, request: StoreRequest): Promise<StoreReply> {
  switch (request.op) {
    case "get": {
      const found = await store.get(request.key);
      return found === null ? nothing : { ...nothing, entries: [{ key: request.key, ...found }] };
    }
    case "create":
      return { ...nothing, revision: await store.create(request.key, request.value) };
    case "update": {
      const { key, value, revision } = request;
      return { ...nothing, revision: await store.update(key, value, revision) };
    }
    case "remove": {
      const removed = await store.remove(request.key, request.revision ?? undefined);
      return { ...nothing, revision: removed ? request.revision ?? 0 : null };
    }
    case "list":
      return page(await store.list(request.prefix), request.after);
  }
}

function page(all: readonly StoreEntry[], after: string): StoreReply {
  const rest = all.filter(({ key }) => key > after);
  let bytes = 0;
  let count = 0;
  while (count < Math.min(rest.length, maxPageEntries) && bytes < fullPageBytes) {
    const { key, value } = rest[count]!;
    bytes += key.length + value.length;
    count += 1;
  }
  return { ...nothing, entries: rest.slice(0, count), more: count < rest.length };
}

/** The store that another process of the embedded bus keeps. */
class EmbeddedStore implements Store {
  readonly #bus: Bus;
  readonly #requestMs: number;

  constructor(bus: Bus, requestMs: number) {
    this.#bus = bus;
    this.#requestMs = requestMs;
  }

  async get(key: string): Promise<StoredValue | null> {
    const { entries: [entry] } = await this.#ask({ op: "get", key: checkedKey(key) });
    return entry === undefined ? null : { value: entry.value, revision: entry.revision };
  }

  async create(key: string, value: Uint8Array): Promise<number | null> {
    checkedValue(checkedKey(key), value);
    return (await this.#ask({ op: "create", key, value })).revision;
  }

  async update(key: string, value: Uint8Array, revision: number): Promise<number | null> {
    checkedValue(checkedKey(key), value);
    return (await this.#ask({ op: "update", key, value, revision })).revision;
  }

  async remove(key: string, revision?: number): Promise<boolean> {
    const request = { op: "remove", key: checkedKey(key), revision: revision ?? null } as const;
    return (await this.#ask(request)).revision !== null;
  }

  async list(prefix: string): Promise<StoreEntry[]> {
    const found: StoreEntry[] = [];
    checkedPrefix(prefix);
    for (;;) {
      const after = found.at(-1)?.key ?? "";
      const { entries, more } = await this.#ask({ op: "list", prefix, after });
      found.push(...entries);
      if (!more || entries.length === 0) return found;
    }
  }

  #ask(request: StoreRequest): Promise<StoreReply> {
    return this.#bus.request(this.#bus.subjects.store, request, this.#requestMs);
  }
}

/**
 * The store that `serveStore()` serves on this bus; whether it does shows at the first use. `requestMs`: how
 * long an answer is waited for.
 */
export function openEmbeddedStore(bus: Bus, requestMs: number = defaultRequestMs): Store {
  return new EmbeddedStore(bus, requestMs);
}
