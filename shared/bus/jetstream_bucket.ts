// The bucket on JetStream that the mesh's store is kept in: found, made by the first who needs it, and made
// again by the first who finds it gone. Not its content; see jetstream_store.ts. It also finds out that
// messages are lost which the bucket had confirmed. nats-server 2.9 can do that when members of its cluster
// are killed: it loses the newest of a stream, or comes to confirm messages that it then does not have. From
// the former it goes on with what is left; a bucket of which the latter is true is made again.
// Invariants: each bucket that is made has a life of its own, whose name is a part of all its subjects, so
// that who knows only the one before can neither write into it nor take its keys for those of the other;
// revisions of a later life are higher. A server that is no member of a cluster never gets more than one
// replica: nats-server 2.9 takes that for a stream that exists, and at its next start loses it.

import { randomBytes } from "node:crypto";
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
  type StreamInfo,
} from "@nats-io/jetstream";
import { type NatsConnection, TimeoutError } from "nats";
import type { Bus } from "./api.ts";
import { logOf, natsConnection } from "./bus.ts";
import { BusError } from "./errors.ts";

/** One bucket, from when it was made until it is gone. */
export interface Life {
  /** What the subjects of its keys begin with. */
  readonly root: string;
  /** Makes the numbers of its messages revisions. */
  readonly base: number;
  /** The highest number of a message that was written or read here. */
  seen: number;
  /** How often its newest writes were found lost. */
  losses: number;
  /** Keys whose last writing was confirmed here, until they are read or removed. */
  readonly confirmed: Set<string>;
  /** What was missing whenever keys were listed, since when and until when. */
  unlisted: Doubt | null;
  /** A key that was not there, again and again, when its writing had just been confirmed. */
  vanishing: Doubt | null;
}

interface Doubt {
  readonly since: number;
  readonly until: number;
  readonly missing: ReadonlySet<string>;
}

export const retryMs = 250;
const wantedReplicas = 3;
/** A member of a cluster that has just started may not know yet of what there is. */
const believeMs = 1000;
/** So long a cluster is waited for that has too few servers to make the bucket again. */
const patienceMs = 5000;
/** A leader of the stream that heard so lately from most of its replicas is still the leader. */
const heardMs = 3000;
/** What is missing when fewer messages are there than were seen; no key. */
const everything = "";
/** Two looks that are further apart say nothing of the time between. */
const lookMs = 5000;
const nsPerMs = 1_000_000;
/** A server that is no member of a cluster, and a cluster with too few that are up. */
const tooFewServers: readonly number[] = [10074, 10005];
const nameInUse = 10058;
/** Numbers of revisions begin here, and every millisecond since has so many of them. */
const firstMs = Date.UTC(2026, 0, 1);
const revisionsPerMs = 64;

export class Bucket {
  readonly stream: string;
  /** How long an answer of the server is waited for. */
  readonly requestMs: number;
  readonly #bus: Bus;
  readonly #lossMs: number;
  readonly #root: string;
  #client: { connection: NatsConnection; js: JetStreamClient } | null = null;
  #life: Life | null = null;
  #making: Promise<Life> | null = null;
  #goneSince: number | null = null;

  /** `lossMs`: so long the leader of the stream is not believed that tells less than was seen. */
  constructor(bus: Bus, lossMs: number, requestMs: number) {
    this.#bus = bus;
    this.#lossMs = lossMs;
    this.requestMs = requestMs;
    this.stream = `KV_${bus.subjects.bucket}`;
    this.#root = `$KV.${bus.subjects.bucket}.`;
  }

  /** The life known last; null before the bucket was found. */
  get life(): Life | null {
    return this.#life;
  }

  /** The bus may have made a new connection since. */
  jetstream(): JetStreamClient {
    const connection = natsConnection(this.#bus, "use store");
    if (this.#client?.connection !== connection) {
      this.#client = { connection, js: jetstream(connection, { timeout: this.requestMs }) };
    }
    return this.#client.js;
  }

  manager(): Promise<JetStreamManager> {
    return this.jetstream().jetstreamManager(false);
  }

  /** The number of replicas: finds the bucket, or makes it. */
  async open(mayBeFewer: boolean): Promise<number> {
    const found = await this.#find();
    const info = found ?? await this.#make(mayBeFewer);
    this.#adopt(info);
    return found === null ? info.config.num_replicas : await this.#withReplicas(found);
  }

  /** The life there is now, by a question that begins after the call; made again if there is none. */
  async look(): Promise<Life> {
    const info = await this.#ask();
    if (info !== null) return this.#adopt(info);
    this.#making ??= this.#makeAgain().finally(() => {
      this.#making = null;
    });
    return await this.#making;
  }

  /** Whether an answer about the stream is of this life. */
  isOf({ config }: StreamInfo, { root }: Life): boolean {
    return config.subjects.includes(`${root}>`);
  }

  /** Takes note of a message that was read; `losses`: those known when it was asked for. */
  onRead(life: Life, seq: number, losses: number): void {
    // Else it may be one of those that are lost.
    if (life.losses === losses) life.seen = Math.max(life.seen, seq);
  }

  /** Takes note of a message that was written; `before`: what was known when it was sent. */
  onWritten(life: Life, seq: number, before: Pick<Life, "seen" | "losses">): void {
    // Most replicas have it, by a number that another had: that one is lost, and all that came after it.
    if (seq <= before.seen && life.losses === before.losses) this.#rewind(life, seq - 1);
    life.seen = Math.max(life.seen, seq);
  }

  /** Whether to go by an answer that tells less than was seen here. */
  believes(life: Life, info: StreamInfo): boolean {
    life.unlisted = doubtAgain(life.unlisted, info, [everything]);
    if (!this.#isCertain(life.unlisted)) return false;
    this.#rewind(life, info.state.last_seq);
    return true;
  }

  /** Whether keys that were listed and not found then are lost, and the bucket with them. */
  async isDroppedFor(unread: readonly string[], life: Life, info: StreamInfo): Promise<boolean> {
    life.unlisted = doubtAgain(life.unlisted, info, unread);
    return this.#isCertain(life.unlisted) && await this.#drop(life);
  }

  /** The same for one that was read and not found. */
  async isDroppedForWant(key: string, life: Life): Promise<boolean> {
    if (!life.confirmed.delete(key)) return false;
    const info = await this.#ask();
    if (info === null || !this.isOf(info, life)) return false;
    life.vanishing = doubtAgain(life.vanishing, info, [key]);
    return this.#isCertain(life.vanishing) && await this.#drop(life);
  }

  #isCertain(doubt: Doubt | null): boolean {
    return doubt !== null && performance.now() - doubt.since >= this.#lossMs;
  }

  /** Takes a bucket away that takes what is written and does not give it back. */
  async #drop(life: Life): Promise<true> {
    const info = await this.#ask();
    if (info === null || !this.isOf(info, life)) return true;
    logOf(this.#bus).error(
      "the store of the mesh does not give back what it has confirmed: its bucket is made again",
      { bucket: this.#bus.subjects.bucket },
    );
    const { streams } = await this.manager();
    try {
      await streams.delete(this.stream);
    } catch (error) {
      if (codeOf(error) !== JetStreamApiCodes.StreamNotFound) throw error;
    }
    return true;
  }

  #rewind(life: Life, seq: number): void {
    logOf(this.#bus).warning(
      "the store of the mesh has lost what it had confirmed: it goes on with what is left",
      { bucket: this.#bus.subjects.bucket, messages: Math.max(0, life.seen - seq) },
    );
    life.seen = Math.min(life.seen, seq);
    life.losses += 1;
    life.unlisted = null;
  }

  async #makeAgain(): Promise<Life> {
    this.#goneSince ??= performance.now();
    const mayBeFewer = performance.now() - this.#goneSince > patienceMs;
    return this.#adopt(await this.#find() ?? await this.#make(mayBeFewer));
  }

  #adopt(info: StreamInfo): Life {
    this.#goneSince = null;
    const known = this.#life;
    if (known !== null && this.isOf(info, known)) return known;
    const [subject = ""] = info.config.subjects;
    const name = subject.startsWith(this.#root) ? subject.slice(this.#root.length) : "";
    const [, ms] = /^([0-9]{13})-[0-9a-f]{8}\.>$/.exec(name) ?? [];
    if (ms === undefined) {
      throw new BusError(
        "UNAVAILABLE",
        `open store: bucket "${this.#bus.subjects.bucket}" has subjects "${subject}", wanted one that ` +
          "pgweir made",
      );
    }
    const life = {
      root: subject.slice(0, -1),
      base: (Number(ms) - firstMs) * revisionsPerMs,
      seen: 0,
      losses: 0,
      confirmed: new Set<string>(),
      unlisted: null,
      vanishing: null,
    };
    this.#life = life;
    if (known !== null) {
      logOf(this.#bus).warning(
        "the store of the mesh is empty: all of it was lost with its bucket",
        {
          bucket: this.#bus.subjects.bucket,
          replicas: info.config.num_replicas,
        },
      );
    }
    return life;
  }

  /** Null: there is none, for sure. */
  async #find(): Promise<StreamInfo | null> {
    const inCluster = natsConnection(this.#bus, "use store").info?.cluster !== undefined;
    // Members that make it at the same moment keep each other waiting.
    const doubtMs = inCluster ? believeMs * (1 + Math.random() / 2) : 0;
    for (const start = performance.now();;) {
      const info = await this.#ask();
      if (info !== null || performance.now() - start >= doubtMs) return info;
      await delay(retryMs);
    }
  }

  async #ask(): Promise<StreamInfo | null> {
    const { streams } = await this.manager();
    try {
      return await streams.info(this.stream);
    } catch (error) {
      if (codeOf(error) === JetStreamApiCodes.StreamNotFound) return null;
      throw error;
    }
  }

  async #make(mayBeFewer: boolean): Promise<StreamInfo> {
    try {
      return await this.#add(wantedReplicas);
    } catch (error) {
      const code = codeOf(error);
      if (code === null || !tooFewServers.includes(code)) throw error;
      if (code !== tooFewServers[0] && !mayBeFewer) throw error;
    }
    return await this.#add(1);
  }

  async #add(replicas: number): Promise<StreamInfo> {
    const { streams } = await this.manager();
    const config: Partial<StreamConfig> & { name: string } = {
      name: this.stream,
      subjects: [`${this.#root}${this.#newLife()}.>`],
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
      const info = await streams.add(config);
      // Files of one that the server could not restore: it would stumble over their settings again.
      if (info.state.messages > 0) await streams.update(this.stream, {});
      return info;
    } catch (error) {
      // Somebody else made it. A cluster does not answer all who ask for it at the same moment.
      const other = error instanceof TimeoutError || codeOf(error) === nameInUse;
      const info = other ? await this.#ask() : null;
      if (info === null) throw error;
      return info;
    }
  }

  /** A name for the next life: later than this one's, whatever the clock says. */
  #newLife(): string {
    const { base, seen } = this.#life ?? { base: 0, seen: 0 };
    const afterMs = firstMs + Math.ceil((base + seen) / revisionsPerMs) + 1;
    return `${Math.max(Date.now(), afterMs)}-${randomBytes(4).toString("hex")}`;
  }

  /**
   * A bucket that was made while a server of the cluster was missing gets its replicas later. One that got
   * them from a server that has no peers is saved from being lost at that server's next start.
   */
  async #withReplicas({ config, cluster }: StreamInfo): Promise<number> {
    const replicas = config.num_replicas;
    const { name = "", leader = "", replicas: peers = [] } = cluster ?? {};
    // A server that only joins others as a leaf goes by its own name.
    const isAlone = peers.length === 0 && (name === "" || name === leader);
    const wanted = isAlone ? 1 : Math.max(wantedReplicas, replicas);
    if (replicas === wanted) return replicas;
    const { streams } = await this.manager();
    try {
      return (await streams.update(this.stream, { num_replicas: wanted })).config.num_replicas;
    } catch (error) {
      if (codeOf(error) !== null) return replicas;
      throw error;
    }
  }
}

/** What JetStream said was wrong; null for any other error. */
function codeOf(error: unknown): number | null {
  return error instanceof JetStreamApiError ? error.code : null;
}

/**
 * Something was missing, once more. A server that was the leader of the stream and does not know yet that it is
 * none misses much for a while; servers that have lost it, for ever.
 */
function doubtAgain(
  before: Doubt | null,
  { cluster }: StreamInfo,
  missing: readonly string[],
): Doubt | null {
  const { leader, replicas = [] } = cluster ?? {};
  const heard = replicas.filter(({ active }) => active < heardMs * nsPerMs).length;
  const leads = cluster === undefined || (leader !== undefined && heard * 2 >= replicas.length);
  if (!leads) return null;
  const now = performance.now();
  const known = before !== null && now - before.until <= lookMs ? before : null;
  const still = missing.filter((one) => known?.missing.has(one));
  return known === null || still.length === 0
    ? { since: now, until: now, missing: new Set(missing) }
    : { since: known.since, until: now, missing: new Set(still) };
}
