// What workers say of their backends' resource groups, and what of it is to be believed of a process. Pure: given the
// time and what the host knows of the process.
// Invariants: a worker that is gone or silent has no backends; a process is in a group only if some worker has opened
// a connection when the process was started, whatever else is claimed of its id.
// Bounds: `maxWorkers`; the lists of one worker are bounded by its message.

import type { GroupBackends } from "../../shared/bus/mod.ts";

const maxWorkers = 1000;
/** A worker says all again every two seconds. */
const silentMs = 10_000;
/** What a message and a clock may take, and what a backend may be younger than its connection: it comes in by a queue. */
const olderMs = 5000;
const youngerMs = 20_000;

export interface Claim {
  readonly worker: number;
  readonly database: string;
  readonly group: string;
  /** It runs something of the group, not only did last. */
  readonly isRunning: boolean;
}

interface Backend extends Claim {
  /** When its connection was opened, by our clock, monotonic ms. */
  readonly openedAt: number;
}

interface Known {
  readonly incarnation: number;
  readonly seq: number;
  readonly at: number;
  readonly backends: ReadonlyMap<number, readonly Backend[]>;
  /** By group, the bytes that the worker counts. */
  readonly counted: ReadonlyMap<string, number>;
}

export class GroupBook {
  readonly #isMeant: (database: string) => boolean;
  readonly #workers = new Map<number, Known>();

  /** What is said of databases that are not meant is passed over. */
  constructor(isMeant: (database: string) => boolean) {
    this.#isMeant = isMeant;
  }

  get workers(): readonly number[] {
    return [...this.#workers.keys()];
  }

  heard({ worker, incarnation, seq, rows }: GroupBackends, now: number): void {
    const known = this.#workers.get(worker);
    if (known === undefined && this.#workers.size >= maxWorkers) return;
    const isOld = known !== undefined && (incarnation < known.incarnation ||
      (incarnation === known.incarnation && seq <= known.seq));
    if (isOld) return;
    const backends = new Map<number, Backend[]>();
    const counted = new Map<string, number>();
    for (const { database, group, memory, running, backends: listed } of rows) {
      if (!this.#isMeant(database)) continue;
      counted.set(group, (counted.get(group) ?? 0) + memory);
      for (const [at, { pid, ageMs }] of listed.entries()) {
        const claim = { worker, database, group, isRunning: at < running, openedAt: now - ageMs };
        // One process id on two hosts.
        const others = backends.get(pid);
        if (others === undefined) backends.set(pid, [claim]);
        else others.push(claim);
      }
    }
    this.#workers.set(worker, { incarnation, seq, at: now, backends, counted });
  }

  gone(worker: number, incarnation: number): void {
    if (this.#workers.get(worker)?.incarnation === incarnation) this.#workers.delete(worker);
  }

  expire(now: number): void {
    for (const [worker, { at }] of this.#workers) {
      if (now - at >= silentMs) this.#workers.delete(worker);
    }
  }

  /** Of a backend that was started at a moment; null: it is in no group. Of several claims one wins, always the same. */
  claimOf(pid: number, startedAt: number): Claim | null {
    let best: Backend | null = null;
    for (const { backends } of this.#workers.values()) {
      for (const backend of backends.get(pid) ?? []) {
        const younger = startedAt - backend.openedAt;
        if (younger < -olderMs || younger > youngerMs) continue;
        if (best === null || backend.worker < best.worker) best = backend;
      }
    }
    return best;
  }

  /** What a worker counts the queries of its groups with, as it has said last. */
  countedBy(worker: number): ReadonlyMap<string, number> {
    return this.#workers.get(worker)?.counted ?? new Map();
  }
}
