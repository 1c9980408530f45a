// The mesh's store on JetStream: a key-value bucket; jetstream_bucket.ts finds or makes it. Not a watcher: who
// wants to know of changes reads again.
// When the bucket is lost (a server that came back without its files, a stream that was deleted), the next
// operation makes it again and goes on as if all keys had been removed: that is exact for each key, since
// no revision of before is ever current again. What had been kept is gone all the same: who relies on what
// others wrote before must know from elsewhere, or wait until they have written again.
// When a bucket only lost its newest messages, what is left counts: each key is as it once was, and numbers
// of revisions are given again. Who finds a revision of a key below one it knew has seen such a loss.
// Invariants: a write is done only if the server says so; a removed key leaves nothing behind, so that keys
// of workers long gone do not pile up; nothing is repeated that may have been done.

import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { JetStreamApiCodes, JetStreamApiError } from "@nats-io/jetstream";
import { RequestError, TimeoutError } from "nats";
import type { Bus } from "./api.ts";
import { isDenied, logOf, natsConnection } from "./bus.ts";
import { BusError } from "./errors.ts";
import { Bucket, type Life, retryMs } from "./jetstream_bucket.ts";
import {
  checkedKey,
  checkedPrefix,
  checkedValue,
  type Store,
  type StoredValue,
  type StoreEntry,
} from "./store.ts";

export interface OpenStoreOptions {
  /** How long a broker that is not there, or not ready, is waited for; default 10,000. */
  readonly waitMs?: number | undefined;
  /** How long a server is not believed that has less than was seen before it; default 10,000. */
  readonly lossMs?: number | undefined;
  /** How long an answer of the server is waited for; default 2000. */
  readonly requestMs?: number | undefined;
}

const defaultWaitMs = 10_000;
const defaultLossMs = 10_000;
const defaultRequestMs = 2000;
/** A server without JetStream is believed after this time: one that starts may answer later. */
const believeMs = 1000;
const readsAtOnce = 32;
const maxListRounds = 10;
/** Lives of the bucket that one operation outlives. */
const maxLives = 4;
/** So long a bucket that was just made may be there and not take what is written. */
const settleMs = 1000;
const settlePollMs = 50;

/** The bucket that was asked is not the one there is now. */
class LifeOver extends Error {
  override readonly message = "bucket is being made again";
}

class JetStreamStore implements Store {
  readonly #bus: Bus;
  readonly #bucket: Bucket;

  constructor(bus: Bus, lossMs: number, requestMs: number) {
    this.#bus = bus;
    this.#bucket = new Bucket(bus, lossMs, requestMs);
  }

  async get(key: string): Promise<StoredValue | null> {
    checkedKey(key);
    return await this.#inLife(
      `read "${key}"`,
      async (life) => {
        const found = await this.#read(life, key);
        if (found !== null) return found;
        if (await this.#bucket.isDroppedForWant(key, life)) throw new LifeOver();
        return await this.#ifStill(life, null);
      },
    );
  }

  async create(key: string, value: Uint8Array): Promise<number | null> {
    return await this.#write(key, value, null);
  }

  async update(key: string, value: Uint8Array, revision: number): Promise<number | null> {
    // Of revision 0 is what does not exist; to make that is create()'s.
    return revision === 0 ? null : await this.#write(key, value, revision);
  }

  /** Takes the message away instead of adding a marker, and that only if it is still the last. */
  async remove(key: string, revision?: number): Promise<boolean> {
    checkedKey(key);
    return await this.#inLife(`remove "${key}"`, async (life) => {
      if (revision !== undefined && revision <= life.base) return false;
      life.confirmed.delete(key);
      const { streams } = await this.#bucket.manager();
      const upTo = revision === undefined ? {} : { seq: revision - life.base + 1 };
      const { purged } = await streams.purge(this.#bucket.stream, {
        filter: life.root + key,
        ...upTo,
      });
      return purged > 0 || await this.#ifStill(life, false);
    });
  }

  async list(prefix: string): Promise<StoreEntry[]> {
    checkedPrefix(prefix);
    return await this.#inLife(`list "${prefix}"`, async (life) => {
      for (let round = 0; round < maxListRounds; round += 1) {
        if (round > 0) await delay(retryMs);
        const entries = await this.#listOnce(life, prefix);
        if (entries !== null) return entries;
      }
      throw new BusError("UNAVAILABLE", `list "${prefix}": servers do not agree`);
    });
  }

  /** The number of replicas: finds the bucket, or makes it. */
  async open(mayBeFewer: boolean): Promise<number> {
    return await this.#named("open store", () => this.#bucket.open(mayBeFewer));
  }

  /** Carries out one operation, and gives its errors their codes. */
  async #named<T>(what: string, operation: () => Promise<T>): Promise<T> {
    try {
      return await operation();
    } catch (cause) {
      if (cause instanceof BusError) throw cause;
      if (cause instanceof TimeoutError) {
        const { requestMs } = this.#bucket;
        throw new BusError("TIMEOUT", `${what}: no answer in ${requestMs} ms`, { cause });
      }
      if (isDenied(cause)) {
        throw new BusError("REFUSED", `${what}: broker does not allow it`, { cause });
      }
      // Throws CLOSED or DISCONNECTED when that is why.
      natsConnection(this.#bus, what);
      if (isWithoutJetStream(cause)) {
        throw new BusError("UNAVAILABLE", `${what}: JetStream does not answer`, { cause });
      }
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new BusError("UNAVAILABLE", `${what}: ${reason}`, { cause });
    }
  }

  /** Carries out an operation in the life there is; what failed for want of it was not done. */
  async #inLife<T>(what: string, operation: (life: Life) => Promise<T>): Promise<T> {
    return await this.#named(what, async () => {
      let life = this.#bucket.life ?? await this.#bucket.look();
      let since = performance.now();
      for (let lives = 1;;) {
        try {
          return await operation(life);
        } catch (error) {
          if (!isForWantOfIt(error)) throw error;
          const now = await this.#bucket.look();
          if (now === life) {
            if (performance.now() - since >= settleMs) throw error;
            await delay(settlePollMs);
            continue;
          }
          if (lives === maxLives) throw error;
          lives += 1;
          life = now;
          since = performance.now();
        }
      }
    });
  }

  /** An answer that a bucket of another life would have given as well. */
  async #ifStill<T>(life: Life, answer: T): Promise<T> {
    if (await this.#bucket.look() !== life) throw new LifeOver();
    return answer;
  }

  /** Null: ask again. It told less than we have seen ourselves, and may have to be believed in the end. */
  async #listOnce(life: Life, prefix: string): Promise<StoreEntry[] | null> {
    const { seen, root } = life;
    const { streams } = await this.#bucket.manager();
    const subjects_filter = `${root}${prefix.slice(0, prefix.lastIndexOf(".") + 1)}>`;
    const info = await streams.info(this.#bucket.stream, { subjects_filter });
    if (!this.#bucket.isOf(info, life)) throw new LifeOver();
    const { state } = info;
    const isLess = state.last_seq < seen;
    if (isLess && !this.#bucket.believes(life, info)) return null;
    const keys = Object.keys(state.subjects ?? {})
      .map((subject) => subject.slice(root.length))
      .filter((key) => key.startsWith(prefix)).sort();
    const entries: StoreEntry[] = [];
    const unread: string[] = [];
    for (let at = 0; at < keys.length; at += readsAtOnce) {
      const some = keys.slice(at, at + readsAtOnce);
      const found = await Promise.all(some.map((key) => this.#read(life, key)));
      for (const [index, entry] of found.entries()) {
        if (entry === null) unread.push(some[index]!);
        else entries.push({ key: some[index]!, ...entry });
      }
    }
    if (unread.length === 0) {
      life.unlisted = null;
      return entries;
    }
    // Removed meanwhile, or not known to the server that answered: the next round tells.
    if (await this.#bucket.isDroppedFor(unread, life, info)) throw new LifeOver();
    return null;
  }

  async #read(life: Life, key: string): Promise<StoredValue | null> {
    const { losses } = life;
    const { streams } = await this.#bucket.manager();
    const message = await streams.getMessage(this.#bucket.stream, {
      last_by_subj: life.root + key,
    });
    if (message === null) return null;
    life.confirmed.delete(key);
    this.#bucket.onRead(life, message.seq, losses);
    return { value: new Uint8Array(message.data), revision: life.base + message.seq };
  }

  /** Of no revision: what does not exist. */
  async #write(key: string, value: Uint8Array, revision: number | null): Promise<number | null> {
    checkedValue(checkedKey(key), value);
    return await this.#inLife(`write "${key}"`, async (life) => {
      if (revision !== null && revision <= life.base) return null;
      const before = { seen: life.seen, losses: life.losses };
      try {
        const { seq } = await this.#bucket.jetstream().publish(life.root + key, value, {
          expect: { lastSubjectSequence: revision === null ? 0 : revision - life.base },
          timeout: this.#bucket.requestMs,
        });
        life.confirmed.add(key);
        this.#bucket.onWritten(life, seq, before);
        return life.base + seq;
      } catch (error) {
        if (error instanceof JetStreamApiError && isLostRace(error)) return null;
        throw error;
      }
    });
  }
}

/** Nobody takes what is written, there is no stream, or it is another's. */
function isForWantOfIt(error: unknown): boolean {
  if (error instanceof LifeOver) return true;
  if (error instanceof JetStreamApiError) return error.code === JetStreamApiCodes.StreamNotFound;
  const cause = error instanceof Error ? error.cause : null;
  return cause instanceof RequestError && cause.isNoResponders();
}

/** Nobody listens on its subjects, or the account may not use it. */
function isWithoutJetStream(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : null;
  if (cause instanceof RequestError) return cause.isNoResponders();
  return cause instanceof JetStreamApiError &&
    cause.code === JetStreamApiCodes.JetStreamNotEnabledForAccount;
}

function isLostRace({ code }: JetStreamApiError): boolean {
  return code === JetStreamApiCodes.StreamWrongLastSequence ||
    code === JetStreamApiCodes.StreamWrongLastSequenceUnknown;
}

/**
 * The store of the bus's mesh. Rejects with a `BusError`: `NO_JETSTREAM`, `REFUSED`, or what the last
 * try ended with when the time is over.
 */
export async function openStore(bus: Bus, options: OpenStoreOptions = {}): Promise<Store> {
  const { lossMs = defaultLossMs, requestMs = defaultRequestMs } = options;
  const store = new JetStreamStore(bus, lossMs, requestMs);
  const start = performance.now();
  const waitMs = options.waitMs ?? defaultWaitMs;
  for (;;) {
    const waitedMs = performance.now() - start;
    try {
      const replicas = await store.open(waitedMs * 2 > waitMs);
      logOf(bus).info("store opened", { bucket: bus.subjects.bucket, replicas });
      return store;
    } catch (error) {
      const { code, cause } = error as BusError;
      if (code === "CLOSED" || code === "REFUSED") throw error;
      const isMissing = isWithoutJetStream(cause);
      if (isMissing && waitedMs >= Math.min(believeMs, waitMs)) {
        throw new BusError(
          "NO_JETSTREAM",
          "open store: nats-server has no JetStream, wanted it started with --jetstream " +
            'or with "jetstream {}" in its configuration, and allowed for the account',
          { cause },
        );
      }
      if (waitedMs + retryMs > waitMs) throw error;
    }
    await delay(retryMs);
  }
}
