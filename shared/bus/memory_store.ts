// A store in memory: what a supervisor keeps for its host, and it is gone with it. Not shared by
// itself; see serveStore().

import { checkedKey, checkedPrefix, checkedValue } from "./store.ts";
import type { Store, StoredValue, StoreEntry } from "./store.ts";

export class MemoryStore implements Store {
  readonly #entries = new Map<string, StoredValue>();
  #revision = 0;

  async get(key: string): Promise<StoredValue | null> {
    const entry = this.#entries.get(checkedKey(key));
    return await Promise.resolve(entry === undefined ? null : copyOf(entry));
  }

  async create(key: string, value: Uint8Array): Promise<number | null> {
    return await Promise.resolve(
      this.#entries.has(checkedKey(key)) ? null : this.#write(key, value),
    );
  }

  async update(key: string, value: Uint8Array, revision: number): Promise<number | null> {
    const entry = this.#entries.get(checkedKey(key));
    return await Promise.resolve(
      entry?.revision === revision ? this.#write(key, value) : null,
    );
  }

  async remove(key: string, revision?: number): Promise<boolean> {
    const entry = this.#entries.get(checkedKey(key));
    if (entry === undefined) return false;
    if (revision !== undefined && entry.revision !== revision) return false;
    return await Promise.resolve(this.#entries.delete(key));
  }

  async list(prefix: string): Promise<StoreEntry[]> {
    checkedPrefix(prefix);
    const keys = [...this.#entries.keys()].filter((key) => key.startsWith(prefix)).sort();
    return await Promise.resolve(keys.map((key) => ({ key, ...copyOf(this.#entries.get(key)!) })));
  }

  #write(key: string, value: Uint8Array): number {
    const copy = new Uint8Array(checkedValue(key, value));
    this.#revision += 1;
    this.#entries.set(key, { value: copy, revision: this.#revision });
    return this.#revision;
  }
}

function copyOf({ value, revision }: StoredValue): StoredValue {
  return { value: new Uint8Array(value), revision };
}
