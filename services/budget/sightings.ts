// What a coordinator has seen of the workers beside their reports: where they run and which backends they
// name as theirs. Kept by leaders and followers alike, so that a new leader knows it at once. Pure.
// Invariant: of a worker that is neither heard nor charged nothing is kept for longer than an hour.

import type { BudgetBackends, Presence } from "../../shared/bus/mod.ts";
import type { Place } from "./saved_charges.ts";

export interface WorkerName {
  readonly worker: number;
  readonly incarnation: number;
}

interface Sighting extends WorkerName {
  place: Place | null;
  /** When it was heard of last: its presence, or what an earlier leader had saved. */
  presentAt: number;
  /** Backends by pool leaf. */
  readonly pids: Map<string, ReadonlySet<number>>;
  /** Since when these are what it named last; -Infinity: it named none. */
  namedAt: number;
}

const nothing: ReadonlyMap<string, ReadonlySet<number>> = new Map();
const keptMs = 3_600_000;

export function nameOf(worker: number, incarnation: number): string {
  return `${worker}.${incarnation}`;
}

export class Sightings {
  readonly #byName = new Map<string, Sighting>();
  /** By host: names of the workers seen there. */
  readonly #byHost = new Map<string, Set<string>>();
  /** Names of those that said good-bye. */
  readonly #left = new Set<string>();

  onPresence(presence: Presence, now: number): void {
    const { id, incarnation, host, boot, state } = presence;
    const sighting = this.#of(id, incarnation);
    if (sighting.place?.boot !== boot || sighting.place.host !== host) {
      this.setPlace(id, incarnation, { host, boot }, now);
    }
    sighting.presentAt = now;
    if (state === "gone") this.#left.add(nameOf(id, incarnation));
  }

  onBackends({ worker, incarnation, leaves }: BudgetBackends, now: number): void {
    const sighting = this.#of(worker, incarnation);
    sighting.namedAt = now;
    for (const { leaf, pids } of leaves) {
      if (pids.length === 0) sighting.pids.delete(leaf);
      else sighting.pids.set(leaf, readPids(pids));
    }
  }

  /** What an earlier leader knew. */
  setPlace(worker: number, incarnation: number, place: Place, now: number): void {
    const sighting = this.#of(worker, incarnation);
    // Not heard yet does not mean silent: it counts from now.
    sighting.presentAt = Math.max(sighting.presentAt, now);
    const name = nameOf(worker, incarnation);
    if (sighting.place !== null) this.#byHost.get(sighting.place.host)?.delete(name);
    sighting.place = place;
    const there = this.#byHost.get(place.host);
    if (there === undefined) this.#byHost.set(place.host, new Set([name]));
    else there.add(name);
  }

  placeOf(worker: number, incarnation: number): Place | null {
    return this.#byName.get(nameOf(worker, incarnation))?.place ?? null;
  }

  pidsOf(worker: number, incarnation: number): ReadonlyMap<string, ReadonlySet<number>> {
    return this.#byName.get(nameOf(worker, incarnation))?.pids ?? nothing;
  }

  /** Workers that were heard since then and have not said good-bye. */
  heardSince(since: number): WorkerName[] {
    return [...this.#byName.values()].filter(({ worker, incarnation, presentAt, namedAt }) =>
      Math.max(presentAt, namedAt) >= since && !this.#left.has(nameOf(worker, incarnation))
    );
  }

  /** When a worker named its backends last; -Infinity: never. */
  namedAt(worker: number, incarnation: number): number {
    return this.#byName.get(nameOf(worker, incarnation))?.namedAt ?? -Infinity;
  }

  /** Workers that have said good-bye, by their names. */
  get left(): ReadonlySet<string> {
    return this.#left;
  }

  /**
   * Workers of earlier boots of the hosts seen since: their processes are gone. A host with the same
   * name that is heard at the same time is another machine, and proves nothing.
   */
  ofEarlierBoots(now: number, silentMs: number): WorkerName[] {
    const gone: WorkerName[] = [];
    for (const names of this.#byHost.values()) {
      if (names.size < 2) continue;
      const there = [...names].map((name) => this.#byName.get(name)!);
      const latest = there.reduce((a, b) => b.presentAt > a.presentAt ? b : a);
      if (now - latest.presentAt > silentMs) continue;
      const { boot } = latest.place!;
      if (there.every(({ place }) => place!.boot === boot)) continue;
      const old = there.filter(({ place }) => place!.boot !== boot);
      const heardAt = Math.max(...old.map(({ presentAt }) => presentAt));
      if (now - heardAt > silentMs) gone.push(...old);
    }
    return gone;
  }

  forget(worker: number, incarnation: number): void {
    const name = nameOf(worker, incarnation);
    const sighting = this.#byName.get(name);
    if (sighting === undefined) return;
    this.#byName.delete(name);
    this.#left.delete(name);
    if (sighting.place === null) return;
    const there = this.#byHost.get(sighting.place.host);
    there?.delete(name);
    if (there?.size === 0) this.#byHost.delete(sighting.place.host);
  }

  /** Drops workers that were not seen for long, unless `isNeeded`. */
  prune(now: number, isNeeded: (worker: number, incarnation: number) => boolean): void {
    for (const { worker, incarnation, presentAt, namedAt } of this.#byName.values()) {
      if (now - Math.max(presentAt, namedAt) < keptMs) continue;
      if (!isNeeded(worker, incarnation)) this.forget(worker, incarnation);
    }
  }

  #of(worker: number, incarnation: number): Sighting {
    const name = nameOf(worker, incarnation);
    const known = this.#byName.get(name);
    if (known !== undefined) return known;
    const sighting: Sighting = {
      worker,
      incarnation,
      place: null,
      presentAt: -Infinity,
      pids: new Map(),
      namedAt: -Infinity,
    };
    this.#byName.set(name, sighting);
    return sighting;
  }
}

/** Big-endian 32-bit numbers. */
function readPids(bytes: Uint8Array): Set<number> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const pids = new Set<number>();
  for (let at = 0; at + 4 <= bytes.length; at += 4) pids.add(view.getUint32(at));
  return pids;
}
