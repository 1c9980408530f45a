// The saved charges of all workers during one term of one leader. A grant goes through here: it is sent
// only once the charge it needs is known to be in the store.
// Invariants: one write per key at a time, those of different keys at once; each write is a
// compare-and-set on the revision this term left, so a leader whose term is over can raise nothing: its
// successor has rewritten every key. A key that is new could not have been rewritten: behind its first
// write the term is confirmed, so that a successor elected before it is noticed, and one elected after it
// has seen the key. After a write of unknown outcome the key is read before the next one.
// Of a worker that is gone a note stays in the place of its charges for minutes. A leader that was stopped
// before it saved the first charges of one, and woke after all was over, made a key of which nobody
// would ever speak again: now it finds the note there.

import { BusError, type Store, type StoredValue } from "../../shared/bus/mod.ts";
import type { Charges } from "../../shared/ledger/mod.ts";
import {
  chargesKey,
  chargesPrefix,
  decodeCharges,
  encodeCharges,
  type Place,
  type SavedCharges,
} from "./saved_charges.ts";

export interface ChargeBookOptions {
  readonly store: Store;
  readonly epoch: number;
  /** Of this coordinator. */
  readonly name: string;
  /** Whether our term goes on, by a write that begins after the call; see `Election.confirm()`. */
  readonly confirm: () => Promise<boolean>;
  readonly placeOf: (worker: number, incarnation: number) => Place | null;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  /** Somebody else wrote: another leads. Nothing is written or sent any more. */
  readonly onConflict: (what: string) => void;
  /** The store could not be asked, and will be again. */
  readonly onTrouble: (error: Error) => void;
  readonly pause: () => Promise<void>;
}

interface Entry {
  readonly worker: number;
  readonly incarnation: number;
  readonly key: string;
  /** null: not in the store, as far as we know. */
  revision: number | null;
  /** None, of a worker that is not gone: nothing to keep, so the key goes. */
  charges: Charges;
  place: Place | null;
  gone: boolean;
  /** Rises with each change of the above. */
  version: number;
  /** Of what is in the store. */
  savedVersion: number;
  running: boolean;
  grants: Waiting<() => void>[];
  waiting: Waiting<(saved: boolean) => void>[];
}

/** What is done once a version is saved. */
interface Waiting<F> {
  readonly version: number;
  readonly run: F;
}

const none: Charges = new Map();

/** Grants that wait for one worker's save; the ledger repeats those that are dropped. */
const maxWaitingGrants = 64;
/** Rewritten at once when a term begins. */
const restoredAtOnce = 256;
/** Longer than a bus keeps the connection of a process that was stopped, and wakes to write. */
const noteMs = 600_000;
/** The oldest notes go first. */
const maxNotes = 2000;

export class ChargeBook {
  readonly #options: ChargeBookOptions;
  readonly #entries = new Map<string, Entry>();
  /** Entries that are only notes of the gone, and since when; oldest first. */
  readonly #notes = new Map<Entry, number>();
  #writes = 0;
  #closed = false;

  constructor(options: ChargeBookOptions) {
    this.#options = options;
  }

  /**
   * Takes every saved charge over from the leaders before. Call it first; it asks until it knows, and
   * returns nothing useful once the book is closed. `unreadable` names keys that are left alone.
   * `remembered` is what the store had, and may have lost: what is missing is written again first, so that a
   * leader after us has it as well; of what is there the higher charges count.
   */
  async restore(
    remembered: readonly SavedCharges[] = [],
  ): Promise<{ readonly saved: SavedCharges[]; readonly unreadable: string[] }> {
    const saved: SavedCharges[] = [];
    const { epoch, name } = this.#options;
    for (let at = 0; at < remembered.length; at += restoredAtOnce) {
      await Promise.all(
        remembered.slice(at, at + restoredAtOnce).map((one) => {
          const value = encodeCharges(one, { epoch, name, write: ++this.#writes });
          const key = chargesKey(one.worker, one.incarnation);
          return this.#ask((store) => store.create(key, value));
        }),
      );
    }
    const known = new Map(
      remembered.map((one) => [chargesKey(one.worker, one.incarnation), one]),
    );
    const unreadable: string[] = [];
    const found = await this.#ask((store) => store.list(chargesPrefix)) ?? [];
    const take = async ({ key, ...stored }: { key: string } & StoredValue): Promise<void> => {
      const taken = await this.#takeOver(key, stored, known.get(key));
      if (taken === "unreadable") unreadable.push(key);
      else if (taken !== null) saved.push(taken);
    };
    for (let at = 0; at < found.length; at += restoredAtOnce) {
      await Promise.all(found.slice(at, at + restoredAtOnce).map(take));
    }
    return { saved, unreadable };
  }

  has(worker: number, incarnation: number): boolean {
    return this.#entries.has(chargesKey(worker, incarnation));
  }

  /** What is charged, saved or about to be. */
  chargesOf(worker: number, incarnation: number): Charges {
    return this.#entries.get(chargesKey(worker, incarnation))?.charges ?? none;
  }

  /**
   * Saves a worker's charges, all of them, unless null; calls `send` when all saved so far is. Without
   * `send` the charges fell, maybe below what a grant gives that still waits: that one is dropped.
   */
  post(
    worker: number,
    incarnation: number,
    charges: Charges | null,
    send: (() => void) | null,
  ): void {
    const known = this.#entries.get(chargesKey(worker, incarnation));
    // Nothing to save, nothing saved: an empty answer to one who holds nothing.
    if (known === undefined && (charges ?? none).size === 0) return send?.();
    const entry = known ?? this.#add(worker, incarnation);
    if (charges !== null) {
      entry.charges = charges;
      entry.version += 1;
    }
    if (send === null) entry.grants = [];
    else if (entry.version === entry.savedVersion) return send();
    else {
      entry.grants.push({ version: entry.version, run: send });
      if (entry.grants.length > maxWaitingGrants) entry.grants.shift();
    }
    this.#start(entry);
  }

  /** Notes, for every later leader too, that a worker has ended; false when the term ended first. */
  async markGone(worker: number, incarnation: number): Promise<boolean> {
    const known = this.#entries.get(chargesKey(worker, incarnation));
    const entry = known ?? this.#add(worker, incarnation);
    if (!entry.gone) {
      entry.gone = true;
      entry.version += 1;
    }
    // Only the leader may say so.
    if (entry.version === entry.savedVersion) return await this.#confirmed();
    const { version } = entry;
    const saved = new Promise<boolean>((run) => entry.waiting.push({ version, run }));
    this.#start(entry);
    return await saved;
  }

  /** All that is charged, saved or about to be; also of a book that was closed. */
  all(): SavedCharges[] {
    return [...this.#entries.values()].filter(({ charges }) => charges.size > 0)
      .map(({ worker, incarnation, charges, place, gone }) => ({
        worker,
        incarnation,
        charges,
        place,
        gone,
      }));
  }

  /** Takes a worker's charges out of the store; the note that it is gone stays for a while. */
  remove(worker: number, incarnation: number): void {
    if (this.chargesOf(worker, incarnation).size > 0) this.post(worker, incarnation, none, null);
  }

  /** Drops notes that nobody can need any more; to be called now and then. */
  dropOldNotes(): void {
    const oldest = this.#options.clock() - noteMs;
    for (const [entry, since] of this.#notes) {
      if (since > oldest && this.#notes.size <= maxNotes) break;
      this.#notes.delete(entry);
      if (entry.charges.size > 0) continue;
      entry.gone = false;
      entry.version += 1;
      this.#start(entry);
    }
  }

  /** Writes and sends nothing more. */
  close(): void {
    this.#closed = true;
    for (const { waiting } of this.#entries.values()) {
      for (const { run } of waiting.splice(0)) run(false);
    }
  }

  #add(worker: number, incarnation: number): Entry {
    const entry: Entry = {
      worker,
      incarnation,
      key: chargesKey(worker, incarnation),
      revision: null,
      charges: none,
      place: null,
      gone: false,
      version: 0,
      savedVersion: 0,
      running: false,
      grants: [],
      waiting: [],
    };
    this.#entries.set(entry.key, entry);
    return entry;
  }

  #start(entry: Entry): void {
    if (entry.running || this.#closed) return;
    entry.running = true;
    void this.#run(entry).finally(() => {
      entry.running = false;
    });
  }

  async #run(entry: Entry): Promise<void> {
    while (entry.version !== entry.savedVersion) {
      const { version } = entry;
      const saved = isKept(entry) ? await this.#save(entry) : await this.#take(entry);
      if (this.#closed) return;
      // Cannot be written: tried again with the next change, and nothing is granted before.
      if (!saved) return;
      entry.savedVersion = version;
      for (const { run } of takeUpTo(entry.waiting, version)) run(true);
      for (const { run } of takeUpTo(entry.grants, version)) run();
    }
    if (!isKept(entry)) this.#entries.delete(entry.key);
    this.#noteIfGone(entry);
  }

  #noteIfGone(entry: Entry): void {
    if (!entry.gone || entry.charges.size > 0 || this.#notes.has(entry)) return;
    this.#notes.set(entry, this.#options.clock());
  }

  /** Returns when it is saved (true), the book closed, or the value is one that no store takes. */
  async #save(entry: Entry): Promise<boolean> {
    const isNew = entry.revision === null;
    while (!this.#closed) {
      const write = ++this.#writes;
      const revision = await this.#write(entry, this.#encode(entry, write));
      if (this.#closed && isNew && typeof revision === "number") {
        await this.#takeBack(entry.key, revision);
      }
      if (this.#closed || revision === "impossible") return false;
      if (typeof revision === "number") {
        entry.revision = revision;
        break;
      }
      if (await this.#look(entry, write)) break;
    }
    if (!isNew || this.#closed || await this.#confirmed()) return true;
    if (entry.revision !== null) await this.#takeBack(entry.key, entry.revision);
    return false;
  }

  /** Nothing was granted by this key yet, and the leader now may not know of it, so would never free it. */
  async #takeBack(key: string, revision: number): Promise<void> {
    await this.#options.store.remove(key, revision).catch(() => {});
  }

  async #take(entry: Entry): Promise<boolean> {
    while (!this.#closed && entry.revision !== null) {
      try {
        if (await this.#options.store.remove(entry.key, entry.revision)) break;
      } catch (error) {
        await this.#trouble(error);
      }
      const found = await this.#ask((store) => store.get(entry.key));
      if (found === undefined) return false;
      if (found === null) break;
      if (this.#writeOf(entry.key, found) === null) {
        this.#conflict(`remove "${entry.key}"`);
        return false;
      }
      if (found.revision === entry.revision) await this.#options.pause();
      entry.revision = found.revision;
    }
    entry.revision = null;
    return true;
  }

  /** The revision, null when somebody else wrote, "unknown" when that could not be told. */
  async #write(
    entry: Entry,
    value: Uint8Array,
  ): Promise<number | null | "unknown" | "impossible"> {
    const { store } = this.#options;
    try {
      return entry.revision === null
        ? await store.create(entry.key, value)
        : await store.update(entry.key, value, entry.revision);
    } catch (error) {
      await this.#trouble(error);
      return error instanceof BusError && error.code === "INVALID" ? "impossible" : "unknown";
    }
  }

  /** Reads the key after a write that failed or may have: true when it was written after all. */
  async #look(entry: Entry, write: number): Promise<boolean> {
    const found = await this.#ask((store) => store.get(entry.key));
    if (found === undefined) return false;
    if ((found?.revision ?? null) === entry.revision) {
      await this.#options.pause();
      return false;
    }
    const writer = found === null ? null : this.#writeOf(entry.key, found);
    if (found === null || writer === null) {
      this.#conflict(`save "${entry.key}"`);
      return false;
    }
    entry.revision = found.revision;
    return writer === write;
  }

  /** The number of our write that made a value, or null when it is not ours. */
  #writeOf(key: string, { value }: StoredValue): number | null {
    const writer = decodeCharges(key, value)?.writer;
    const { epoch, name } = this.#options;
    return writer?.epoch === epoch && writer.name === name ? writer.write : null;
  }

  #encode(entry: Entry, write: number): Uint8Array {
    const { epoch, name, placeOf } = this.#options;
    entry.place = placeOf(entry.worker, entry.incarnation) ?? entry.place;
    return encodeCharges(entry, { epoch, name, write });
  }

  async #takeOver(
    key: string,
    stored: StoredValue,
    remembered: SavedCharges | undefined,
  ): Promise<SavedCharges | "unreadable" | null> {
    let current = stored;
    while (!this.#closed) {
      const decoded = decodeCharges(key, current.value);
      if (decoded === null) return "unreadable";
      const saved = withRemembered(decoded.saved, remembered);
      const entry = this.#entries.get(key) ?? this.#add(saved.worker, saved.incarnation);
      Object.assign(entry, { charges: saved.charges, place: saved.place, gone: saved.gone });
      entry.revision = current.revision;
      const revision = await this.#write(entry, this.#encode(entry, ++this.#writes));
      if (this.#closed) break;
      if (typeof revision === "number") {
        entry.revision = revision;
        this.#noteIfGone(entry);
        return saved;
      }
      // A write of the leader before came in between, or ours did and the answer was lost.
      const found = await this.#ask((store) => store.get(key));
      if (found === undefined) break;
      if (found === null) {
        this.#entries.delete(key);
        return null;
      }
      current = found;
    }
    return null;
  }

  /** Asks until there is an answer; undefined once the book is closed. */
  async #ask<T>(question: (store: Store) => Promise<T>): Promise<T | undefined> {
    while (!this.#closed) {
      try {
        return await question(this.#options.store);
      } catch (error) {
        await this.#trouble(error);
      }
    }
    return undefined;
  }

  /** Whether our term goes on; asked until that is known. */
  async #confirmed(): Promise<boolean> {
    while (!this.#closed) {
      try {
        if (await this.#options.confirm()) return true;
        await this.#options.pause();
      } catch (error) {
        await this.#trouble(error);
      }
    }
    return false;
  }

  async #trouble(error: unknown): Promise<void> {
    this.#options.onTrouble(error as Error);
    await this.#options.pause();
  }

  #conflict(what: string): void {
    if (this.#closed) return;
    this.#options.onConflict(what);
    this.close();
  }
}

/** A store that has lost its newest writes may have an older value. */
function withRemembered(saved: SavedCharges, remembered: SavedCharges | undefined): SavedCharges {
  // Its slots are free already.
  if (remembered === undefined || (saved.gone && saved.charges.size === 0)) return saved;
  const charges = new Map(saved.charges);
  for (const [leaf, { charge, floor }] of remembered.charges) {
    const other = charges.get(leaf) ?? { charge: 0, floor: 0 };
    charges.set(leaf, {
      charge: Math.max(charge, other.charge),
      floor: Math.max(floor, other.floor),
    });
  }
  return { ...saved, charges, gone: saved.gone || remembered.gone };
}

function isKept({ charges, gone }: Entry): boolean {
  return charges.size > 0 || gone;
}

/** Takes out what waits for this version or one before. */
function takeUpTo<F>(waiting: Waiting<F>[], version: number): Waiting<F>[] {
  const later = waiting.findIndex((entry) => entry.version > version);
  return waiting.splice(0, later < 0 ? waiting.length : later);
}
