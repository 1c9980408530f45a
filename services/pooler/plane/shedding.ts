// How much of new work is refused, and for what: the decisions of overload monitors that hold now, what this worker
// sees of itself, and the dice. Pure: given the clock and the random numbers. Whom it concerns, and what a refused
// client is told, is overload.ts.
// Invariants: a decision counts until its time is over and no longer; a database that nothing is known against has
// probability 0; of several reasons the strongest counts, they do not add up; bounds of one's own stand in place of
// those that a decision was made by, each of them on its own.
// Bounds: as many databases with a monitor as `sourcesMax`.

import { type OverloadDecision, type Shedding as Share, validMs } from "../../../shared/bus/mod.ts";
import type { OverloadBounds } from "../../../shared/config/mod.ts";
import {
  type Bounds,
  type CpuTimes,
  overloadRatio,
  shedding,
  withOwn,
} from "../../../shared/overload/mod.ts";

export type { Share };

/** What is refused: new transactions, or new connections. */
export type Work = "transactions" | "connections";

/** Something that is overloaded, or may be, as seen last. */
export interface Source {
  /** host: the pooler's own; database: the one that PostgreSQL runs on; worker: this process. */
  readonly scope: "host" | "database" | "worker";
  /** Of the host that was looked at; of a worker "". */
  readonly name: string;
  /** Whose clients it concerns; `*` = those whose database is reached through that entry; null = everybody's. */
  readonly database: string | null;
  readonly reason: string;
  /** CPU wait by CPU work; of a worker milliseconds. */
  readonly value: number;
  /** null: of a worker. */
  readonly times: CpuTimes | null;
  /** By the bounds of whoever has none of its own. */
  readonly transactions: Share;
  readonly connections: Share;
  /** Monotonic milliseconds. */
  readonly until: number;
}

/** What a refusal is drawn by, and what is told of it. */
export interface Risk {
  readonly share: Share;
  readonly source: Source;
  /** What the share was made of: that of the source, or the same by another threshold. */
  readonly value: number;
}

const sourcesMax = 2000;
const off: Share = { min: 0, max: 0, probability: 0 };

export class Shedding {
  readonly #random: () => number;
  readonly #sources = new Map<string, Source>();

  /** `random` gives numbers in [0, 1). */
  constructor(random: () => number) {
    this.#random = random;
  }

  get sources(): Iterable<Source> {
    return this.#sources.values();
  }

  /** A monitor's decision, received now. */
  decide(decision: OverloadDecision, now: number): void {
    const { host: name, database, reason, ratio: value, waitUs, busyUs } = decision;
    const { transactions, connections } = decision;
    const isHost = database === "";
    // The servers of one database may be on several hosts.
    this.#set(isHost ? "host" : `database\0${database}\0${name}`, {
      scope: isHost ? "host" : "database",
      name,
      database: isHost ? null : database,
      reason,
      value,
      times: { waitUs, busyUs },
      transactions,
      connections,
      until: now + validMs(decision),
    });
  }

  /** What the monitor of this host has said holds no longer. */
  forgetHost(): void {
    this.#sources.delete("host");
  }

  /**
   * How late this worker looks at its events; it holds until it is said again, or for `validMs`. `isLimited`: somebody
   * has a bound on it. Whether that changes anything.
   */
  lag(lagMs: number, bounds: Bounds, isLimited: boolean, now: number, validMs: number): boolean {
    if (!isLimited) return this.#sources.delete("worker");
    this.#set("worker", {
      scope: "worker",
      name: "",
      database: null,
      reason: "event loop lag",
      value: lagMs,
      times: null,
      transactions: shedding(lagMs, bounds),
      connections: off,
      until: now + validMs,
    });
    return true;
  }

  #set(key: string, source: Source): void {
    if (this.#sources.size >= sourcesMax && !this.#sources.has(key)) return;
    this.#sources.set(key, source);
  }

  /** Forgets what holds no longer. Whether there was any. */
  expire(now: number): boolean {
    let some = false;
    for (const [key, { until }] of this.#sources) {
      if (now < until) continue;
      this.#sources.delete(key);
      some = true;
    }
    return some;
  }

  /** Whether nothing is known that work could be refused for. */
  get isUnwatched(): boolean {
    return this.#sources.size === 0;
  }

  /**
   * The strongest reason to refuse such work on a database to whoever has such bounds; null = there is none. `entry` is
   * the database's in the configuration: of its name, or `*`.
   */
  risk(work: Work, database: string, entry: string, own: OverloadBounds | null): Risk | null {
    let found: Risk | null = null;
    for (const source of this.#sources.values()) {
      const of = source.database;
      if (of !== null && of !== database && of !== entry) continue;
      found = stronger(found, source, work, own);
    }
    return found;
  }

  /** The strongest reason to refuse such work to those without bounds of their own; null = there is none. */
  strongest(work: Work): Risk | null {
    let found: Risk | null = null;
    for (const source of this.#sources.values()) found = stronger(found, source, work, null);
    return found;
  }

  /** Draws: whether one attempt is refused. */
  refuses(probability: number): boolean {
    return probability > 0 && this.#random() < probability;
  }
}

function stronger(
  found: Risk | null,
  source: Source,
  work: Work,
  own: OverloadBounds | null,
): Risk | null {
  const share = shareOf(source, work, own);
  if (!(share.probability > (found?.share.probability ?? 0))) return found;
  return { share, source, value: valueOf(source, own) };
}

/** What was measured, as it counts for whoever has such bounds. */
export function valueOf({ times, value }: Source, own: OverloadBounds | null): number {
  const threshold = own?.busyTimeThreshold ?? null;
  return times === null || threshold === null ? value : overloadRatio(times, threshold);
}

/** How much of such work is refused for a source, if it concerns them, to those that have such bounds. */
export function shareOf(source: Source, work: Work, own: OverloadBounds | null): Share {
  const share = source[work];
  if (own === null) return share;
  if (source.times === null) {
    return work === "connections" ? share : shedding(source.value, withOwn(own.lag, share));
  }
  return shedding(valueOf(source, own), withOwn(own[work], share));
}
