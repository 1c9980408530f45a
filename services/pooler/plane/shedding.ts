// How much of new work is refused, and for what: the decisions of overload monitors that hold now, what this worker
// sees of itself, and the dice. Pure: given the clock and the random numbers. Whom it concerns, and what a refused
// client is told, is overload.ts.
// Invariants: a decision counts until its time is over and no longer; a database that nothing is known against has
// probability 0; of several reasons the strongest counts, they do not add up.
// Bounds: as many databases with a monitor as `sourcesMax`.

import type { OverloadDecision, Shedding as Share } from "../../../shared/bus/mod.ts";
import { type Bounds, isLimit, probabilityOf } from "../../../shared/overload/mod.ts";

export type { Share };

/** What is refused: new transactions, or new connections. */
export type Work = "transactions" | "connections";

/** Something that is overloaded, or may be, as seen last. */
export interface Source {
  /** host: the pooler's own; database: the one that PostgreSQL runs on; worker: this process. */
  readonly scope: "host" | "database" | "worker";
  /** Of the host that was looked at; of a worker "". */
  readonly name: string;
  /** Whose clients it concerns; null = everybody's. */
  readonly database: string | null;
  readonly reason: string;
  /** CPU wait by CPU work; of a worker milliseconds. */
  readonly value: number;
  readonly transactions: Share;
  readonly connections: Share;
  /** Databases that have bounds of their own. */
  readonly own: ReadonlyMap<string, Share>;
  /** Monotonic milliseconds. */
  readonly until: number;
}

/** What a refusal is drawn by, and what is told of it. */
export interface Risk {
  readonly share: Share;
  readonly source: Source;
}

const sourcesMax = 2000;
/** A decision holds for so many intervals from its receipt. */
const intervalsValid = 3;
const off: Share = { min: 0, max: 0, probability: 0 };
const nobody: ReadonlyMap<string, Share> = new Map();

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
    const { host: name, database, reason, ratio: value, transactions, connections } = decision;
    const isHost = database === "";
    // The servers of one database may be on several hosts.
    this.#set(isHost ? "host" : `database\0${database}\0${name}`, {
      scope: isHost ? "host" : "database",
      name,
      database: isHost ? null : database,
      reason,
      value,
      transactions,
      connections,
      own: new Map(decision.databases.map((each) => [each.database, each.transactions])),
      until: now + intervalsValid * decision.intervalMs,
    });
  }

  /**
   * How late this worker looks at its events; it holds until it is said again, or for `validMs`. Whether that changes
   * anything.
   */
  lag(lagMs: number, bounds: Bounds, now: number, validMs: number): boolean {
    if (!isLimit(bounds)) return this.#sources.delete("worker");
    this.#set("worker", {
      scope: "worker",
      name: "",
      database: null,
      reason: "event loop lag",
      value: lagMs,
      transactions: { ...bounds, probability: probabilityOf(lagMs, bounds) },
      connections: off,
      own: nobody,
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

  /** The strongest reason to refuse such work on a database; null = there is none. */
  risk(work: Work, database: string): Risk | null {
    let found: Risk | null = null;
    for (const source of this.#sources.values()) {
      if (source.database !== null && source.database !== database) continue;
      const share = shareOf(source, work, database);
      if (share.probability > (found?.share.probability ?? 0)) found = { share, source };
    }
    return found;
  }

  /** The strongest reason to refuse such work on any database; null = none is refused. */
  strongest(work: Work): Risk | null {
    let found: Risk | null = null;
    for (const source of this.#sources.values()) {
      const shares = work === "connections"
        ? [source.connections]
        : [source.transactions, ...source.own.values()];
      for (const share of shares) {
        if (share.probability > (found?.share.probability ?? 0)) found = { share, source };
      }
    }
    return found;
  }

  /** Draws: whether one attempt is refused. */
  refuses(probability: number): boolean {
    return probability > 0 && this.#random() < probability;
  }
}

/** What a source says of such work on a database that it concerns. */
export function shareOf(source: Source, work: Work, database: string): Share {
  if (work === "connections") return source.connections;
  return source.own.get(database) ?? source.transactions;
}
