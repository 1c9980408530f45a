// The mesh's store on JetStream: a key-value bucket, laid out as NATS lays out its own, that the
// first who needs it makes. Not a watcher: who wants to know of changes reads again.
// Invariants: a write is done only if the server says so; a removed key leaves nothing behind, so
// that keys of workers long gone do not pile up; no operation is repeated behind the caller's back.

import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import {
  DiscardPolicy,
  jetstream,
  JetStreamApiCodes,
  JetStreamApiError,
  type JetStreamClient,
  type JetStreamManager,
  RetentionPolicy,
  StorageType,
  type StreamConfig,
} from "@nats-io/jetstream";
import { type NatsConnection, RequestError, TimeoutError } from "nats";
import type { Bus } from "./api.ts";
import { isDenied, logOf, natsConnection } from "./bus.ts";
import { BusError } from "./errors.ts";
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
}

const defaultWaitMs = 10_000;
const requestTimeoutMs = 2000;
const retryMs = 250;
/** A server without JetStream is believed after this time: one that starts may answer later. */
const believeMs = 1000;
const wantedReplicas = 3;
const readsAtOnce = 32;
const maxListRounds = 10;

/** A server that is no member of a cluster, and a cluster with too few that are up. */
const tooFewServers: readonly number[] = [10074, 10005];
const nameInUse = 10058;

/** Carries out one operation, and gives its errors their codes. */
async function named<T>(bus: Bus, what: string, operation: () => Promise<T>): Promise<T> {
  try {
    return await operation();
  } catch (cause) {
    if (cause instanceof BusError) throw cause;
    if (cause instanceof TimeoutError) {
      throw new BusError("TIMEOUT", `${what}: no answer in ${requestTimeoutMs} ms`, { cause });
    }
    if (isDenied(cause)) {
      throw new BusError("REFUSED", `${what}: broker does not allow it`, { cause });
    }
    // Throws CLOSED or DISCONNECTED when that is why.
    natsConnection(bus, what);
    if (isWithoutJetStream(cause)) {
      throw new BusError("UNAVAILABLE", `${what}: JetStream does not answer`, { cause });
    }
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new BusError("UNAVAILABLE", `${what}: ${reason}`, { cause });
  }
}

class JetStreamStore implements Store {
  readonly #bus: Bus;
  readonly #stream: string;
  readonly #root: string;
  #client: { connection: NatsConnection; js: JetStreamClient } | null = null;
  /** The highest revision that was written or read here. */
  #seen = 0;

  constructor(bus: Bus) {
    this.#bus = bus;
    this.#stream = `KV_${bus.subjects.bucket}`;
    this.#root = `$KV.${bus.subjects.bucket}.`;
  }

  async get(key: string): Promise<StoredValue | null> {
    checkedKey(key);
    return await named(this.#bus, `read "${key}"`, () => this.#read(key));
  }

  async create(key: string, value: Uint8Array): Promise<number | null> {
    return await this.#write(key, value, 0);
  }

  async update(key: string, value: Uint8Array, revision: number): Promise<number | null> {
    // Of revision 0 is what does not exist; to make that is create()'s.
    return revision === 0 ? null : await this.#write(key, value, revision);
  }

  /** Takes the message away instead of adding a marker, and that only if it is still the last. */
  async remove(key: string, revision?: number): Promise<boolean> {
    const filter = this.#root + checkedKey(key);
    return await named(this.#bus, `remove "${key}"`, async () => {
      const { streams } = await this.#manager();
      const upTo = revision === undefined ? {} : { seq: revision + 1 };
      const { purged } = await streams.purge(this.#stream, { filter, ...upTo });
      return purged > 0;
    });
  }

  async list(prefix: string): Promise<StoreEntry[]> {
    checkedPrefix(prefix);
    return await named(this.#bus, `list "${prefix}"`, async () => {
      for (let round = 0; round < maxListRounds; round += 1) {
        if (round > 0) await delay(retryMs);
        const entries = await this.#listOnce(prefix);
        if (entries !== null) return entries;
      }
      throw new BusError("UNAVAILABLE", `list "${prefix}": servers do not agree`);
    });
  }

  /**
   * Null: ask again. A server that was the leader, and does not know yet that it is none, tells less
   * than was written; what we have seen ourselves shows it.
   */
  async #listOnce(prefix: string): Promise<StoreEntry[] | null> {
    const seen = this.#seen;
    const { streams } = await this.#manager();
    const subjects_filter = `${this.#root}${prefix.slice(0, prefix.lastIndexOf(".") + 1)}>`;
    const { state } = await streams.info(this.#stream, { subjects_filter });
    if (state.last_seq < seen) return null;
    const keys = Object.keys(state.subjects ?? {})
      .map((subject) => subject.slice(this.#root.length))
      .filter((key) => key.startsWith(prefix)).sort();
    const entries: StoreEntry[] = [];
    for (let at = 0; at < keys.length; at += readsAtOnce) {
      const some = keys.slice(at, at + readsAtOnce);
      const found = await Promise.all(some.map((key) => this.#read(key)));
      for (const [index, entry] of found.entries()) {
        // Removed meanwhile, or not known to the server that answered: the next round tells.
        if (entry === null) return null;
        entries.push({ key: some[index]!, ...entry });
      }
    }
    return entries;
  }

  async #read(key: string): Promise<StoredValue | null> {
    const { streams } = await this.#manager();
    const message = await streams.getMessage(this.#stream, { last_by_subj: this.#root + key });
    if (message === null) return null;
    this.#seen = Math.max(this.#seen, message.seq);
    return { value: new Uint8Array(message.data), revision: message.seq };
  }

  async #write(key: string, value: Uint8Array, revision: number): Promise<number | null> {
    checkedValue(checkedKey(key), value);
    return await named(this.#bus, `write "${key}"`, async () => {
      try {
        const { seq } = await this.#jetstream().publish(this.#root + key, value, {
          expect: { lastSubjectSequence: revision },
          timeout: requestTimeoutMs,
        });
        this.#seen = Math.max(this.#seen, seq);
        return seq;
      } catch (error) {
        if (error instanceof JetStreamApiError && isLostRace(error)) return null;
        throw error;
      }
    });
  }

  /** The bus may have made a new connection since. */
  #jetstream(): JetStreamClient {
    const connection = natsConnection(this.#bus, "use store");
    if (this.#client?.connection !== connection) {
      this.#client = { connection, js: jetstream(connection, { timeout: requestTimeoutMs }) };
    }
    return this.#client.js;
  }

  #manager(): Promise<JetStreamManager> {
    return this.#jetstream().jetstreamManager(false);
  }

  /** The number of replicas: finds the bucket, or makes it. */
  async open(mayBeFewer: boolean): Promise<number> {
    return await named(this.#bus, "open store", async () => {
      const { streams } = await this.#manager();
      try {
        const { config } = await streams.info(this.#stream);
        return await this.#withReplicas(config.num_replicas);
      } catch (error) {
        if (!(error instanceof JetStreamApiError)) throw error;
        if (error.code !== JetStreamApiCodes.StreamNotFound) throw error;
      }
      try {
        return await this.#make(wantedReplicas);
      } catch (error) {
        if (!(error instanceof JetStreamApiError) || !tooFewServers.includes(error.code)) {
          throw error;
        }
        if (error.code !== tooFewServers[0] && !mayBeFewer) throw error;
      }
      return await this.#make(1);
    });
  }

  async #make(replicas: number): Promise<number> {
    const { streams } = await this.#manager();
    const config: Partial<StreamConfig> & { name: string } = {
      name: this.#stream,
      subjects: [`${this.#root}>`],
      storage: StorageType.File,
      num_replicas: replicas,
      retention: RetentionPolicy.Limits,
      discard: DiscardPolicy.New,
      max_msgs_per_subject: 1,
      max_age: 0,
      deny_delete: true,
      allow_rollup_hdrs: true,
      // Any replica could answer such a read, and one that lags behind would tell what was.
      allow_direct: false,
    };
    try {
      return (await streams.add(config)).config.num_replicas;
    } catch (error) {
      // Somebody else made it, with another number of replicas.
      if (!(error instanceof JetStreamApiError) || error.code !== nameInUse) throw error;
      return (await streams.info(this.#stream)).config.num_replicas;
    }
  }

  /** One made while a server of the cluster was missing gets its replicas later. */
  async #withReplicas(replicas: number): Promise<number> {
    if (replicas >= wantedReplicas) return replicas;
    const { streams } = await this.#manager();
    try {
      const { config } = await streams.update(this.#stream, { num_replicas: wantedReplicas });
      return config.num_replicas;
    } catch (error) {
      if (error instanceof JetStreamApiError) return replicas;
      throw error;
    }
  }
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
  const store = new JetStreamStore(bus);
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
