// A store in memory for tests of what leans on one: its answers can be held back, lost, or come from a
// write that was done though its answer was not. Not the store of the bus.

import { BusError, type Store, type StoredValue, type StoreEntry } from "../../shared/bus/mod.ts";

/** What happens to an operation: done and told, done and not told, not done. */
export type Fate = "done" | "untold" | "lost";

export class TestStore implements Store {
  readonly values = new Map<string, StoredValue>();
  /** Names of operations and their keys, in order. */
  readonly log: string[] = [];
  /** Decides what becomes of an operation. */
  fate: (operation: string, key: string) => Fate | Promise<Fate> = () => "done";
  #revision = 0;

  get(key: string): Promise<StoredValue | null> {
    return this.#do("get", key, () => this.values.get(key) ?? null);
  }

  create(key: string, value: Uint8Array): Promise<number | null> {
    return this.#do("create", key, () => this.values.has(key) ? null : this.#set(key, value));
  }

  update(key: string, value: Uint8Array, revision: number): Promise<number | null> {
    return this.#do(
      "update",
      key,
      () => this.values.get(key)?.revision === revision ? this.#set(key, value) : null,
    );
  }

  remove(key: string, revision?: number): Promise<boolean> {
    return this.#do("remove", key, () => {
      const found = this.values.get(key);
      if (found === undefined) return false;
      if (revision !== undefined && found.revision !== revision) return false;
      this.#revision += 1;
      return this.values.delete(key);
    });
  }

  list(prefix: string): Promise<StoreEntry[]> {
    return this.#do(
      "list",
      prefix,
      () =>
        [...this.values].filter(([key]) => key.startsWith(prefix)).sort()
          .map(([key, stored]) => ({ key, ...stored })),
    );
  }

  /** Loses what was written after it had these values; the numbers of their revisions are given again. */
  rewind(values: ReadonlyMap<string, StoredValue>): void {
    this.values.clear();
    for (const [key, stored] of values) this.values.set(key, stored);
    this.#revision = Math.max(0, ...[...values.values()].map(({ revision }) => revision));
  }

  async #do<T>(operation: string, key: string, act: () => T): Promise<T> {
    this.log.push(`${operation} ${key}`);
    const fate = await this.fate(operation, key);
    const result = fate === "lost" ? null : act();
    // An answer takes its way, as over a bus.
    await Promise.resolve();
    if (fate !== "done") throw new BusError("TIMEOUT", `${operation} "${key}": no answer`);
    return result as T;
  }

  #set(key: string, value: Uint8Array): number {
    this.#revision += 1;
    this.values.set(key, { value: new Uint8Array(value), revision: this.#revision });
    return this.#revision;
  }
}
