// What a coordinator has seen of the workers beside their reports: where they run and which backends they
// name as theirs. Kept by leaders and followers alike, so that a new leader knows it at once. Pure.
// Invariants: of a worker that is neither heard nor charged nothing is kept for longer than an hour. A boot
// that was heard after the first word of another boot of the same host is no earlier one: these are two
// machines with one name, for as long as both are known.

import { type BudgetBackends, type Presence, unpackPids } from "../../shared/bus/mod.ts";
import type { Place } from "./saved_charges.ts";

export interface WorkerName {
  readonly worker: number;
  readonly incarnation: number;
}

interface Sighting extends WorkerName {
  place: Place | null;
  /** When it was heard of last: its presence, its reports, or what an earlier leader had saved. */
  presentAt: number;
  /** Backends by leaf. */
  readonly pids: Map<string, ReadonlySet<number>>;
  /** Since when these are what it named last; -Infinity: it named none. */
  namedAt: number;
}

/** What is known of one boot of a host. */
interface Boot {
  /** Names of the workers seen there. */
  readonly workers: Set<string>;
  /** When a worker of it was heard first and last, of those it says itself; Infinity and -Infinity: never. */
  firstAt: number;
  heardAt: number;
}

/** Machines that call themselves the same. */
export interface Namesakes {
  readonly host: string;
  readonly boots: readonly string[];
}

const nothing: ReadonlyMap<string, ReadonlySet<number>> = new Map();
const keptMs = 3_600_000;
/** A boot is there that was heard so lately. */
const presentMs = 3000;
/** A worker of an earlier boot that says nothing for so long is over. */
const quietMs = 10_000;
/** And a boot of which no worker says anything for so long. */
const quietBootMs = 60_000;

export function nameOf(worker: number, incarnation: number): string {
  return `${worker}.${incarnation}`;
}

export class Sightings {
  readonly #byName = new Map<string, Sighting>();
  /** By host and boot. */
  readonly #hosts = new Map<string, Map<string, Boot>>();
  /** Names of those that said good-bye. */
  readonly #left = new Set<string>();

  onPresence(presence: Presence, now: number): void {
    const { id, incarnation, host, boot, state } = presence;
    const sighting = this.#of(id, incarnation);
    if (sighting.place?.boot !== boot || sighting.place.host !== host) {
      this.setPlace(id, incarnation, { host, boot }, now);
    }
    this.#heard(sighting, now);
    if (state === "gone") this.#left.add(nameOf(id, incarnation));
  }

  onBackends({ worker, incarnation, leaves }: BudgetBackends, now: number): void {
    const sighting = this.#of(worker, incarnation);
    sighting.namedAt = now;
    this.#heard(sighting, now);
    for (const { leaf, pids } of leaves) {
      if (pids.length === 0) sighting.pids.delete(leaf);
      else sighting.pids.set(leaf, new Set(unpackPids(pids)));
    }
  }

  onReport({ worker, incarnation }: WorkerName, now: number): void {
    const sighting = this.#byName.get(nameOf(worker, incarnation));
    if (sighting !== undefined) this.#heard(sighting, now);
  }

  /** What an earlier leader knew. */
  setPlace(worker: number, incarnation: number, place: Place, now: number): void {
    const sighting = this.#of(worker, incarnation);
    // Not heard yet does not mean silent: it counts from now.
    sighting.presentAt = Math.max(sighting.presentAt, now);
    const name = nameOf(worker, incarnation);
    this.#bootOf(sighting)?.workers.delete(name);
    // A worker of a version that does not say which boot it is of proves nothing, and nothing proves its end.
    sighting.place = place.boot === "" ? null : place;
    if (sighting.place === null) return;
    const { host, boot } = place;
    let boots = this.#hosts.get(host);
    if (boots === undefined) this.#hosts.set(host, boots = new Map());
    const known = boots.get(boot);
    if (known !== undefined) known.workers.add(name);
    else boots.set(boot, { workers: new Set([name]), firstAt: Infinity, heardAt: -Infinity });
  }

  placeOf(worker: number, incarnation: number): Place | null {
    return this.#byName.get(nameOf(worker, incarnation))?.place ?? null;
  }

  pidsOf(worker: number, incarnation: number): ReadonlyMap<string, ReadonlySet<number>> {
    return this.#byName.get(nameOf(worker, incarnation))?.pids ?? nothing;
  }

  /** Workers that were heard since then and have not said good-bye. */
  heardSince(since: number): WorkerName[] {
    return [...this.#byName.values()].filter(({ worker, incarnation, presentAt }) =>
      presentAt >= since && !this.#left.has(nameOf(worker, incarnation))
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
   * Workers of earlier boots of the hosts that are heard now: their processes are gone. Nobody of a host
   * whose name two machines have: there, one proves nothing about the other.
   */
  ofEarlierBoots(now: number): WorkerName[] {
    const gone: WorkerName[] = [];
    for (const boots of this.#hosts.values()) {
      if (boots.size < 2) continue;
      const inOrder = [...boots.values()].sort((a, b) => a.heardAt - b.heardAt);
      const latest = inOrder.pop()!;
      if (now - latest.heardAt > presentMs || areNamesakes(boots)) continue;
      for (const { workers, heardAt } of inOrder) {
        if (now - heardAt < quietBootMs) continue;
        for (const name of workers) {
          const sighting = this.#byName.get(name)!;
          if (now - sighting.presentAt >= quietMs) gone.push(sighting);
        }
      }
    }
    return gone;
  }

  /** Machines with one name, of which several were heard within the last minute. */
  namesakes(now: number): Namesakes[] {
    const found: Namesakes[] = [];
    for (const [host, boots] of this.#hosts) {
      if (boots.size < 2) continue;
      const heard = new Map([...boots].filter(([, { heardAt }]) => now - heardAt < quietBootMs));
      if (areNamesakes(heard)) found.push({ host, boots: [...heard.keys()] });
    }
    return found;
  }

  forget(worker: number, incarnation: number): void {
    const name = nameOf(worker, incarnation);
    const sighting = this.#byName.get(name);
    if (sighting === undefined) return;
    this.#byName.delete(name);
    this.#left.delete(name);
    // The boot itself is remembered for a while: that it was heard tells two machines from one.
    this.#bootOf(sighting)?.workers.delete(name);
  }

  /** Drops workers that were not seen for long, unless `isNeeded`, and boots without any. */
  prune(now: number, isNeeded: (worker: number, incarnation: number) => boolean): void {
    for (const { worker, incarnation, presentAt } of this.#byName.values()) {
      if (now - presentAt < keptMs) continue;
      if (!isNeeded(worker, incarnation)) this.forget(worker, incarnation);
    }
    for (const [host, boots] of this.#hosts) {
      for (const [boot, { workers, heardAt }] of boots) {
        if (workers.size === 0 && now - heardAt >= keptMs) boots.delete(boot);
      }
      if (boots.size === 0) this.#hosts.delete(host);
    }
  }

  /** It said something itself. */
  #heard(sighting: Sighting, now: number): void {
    sighting.presentAt = now;
    const boot = this.#bootOf(sighting);
    if (boot === undefined) return;
    boot.firstAt = Math.min(boot.firstAt, now);
    boot.heardAt = now;
  }

  #bootOf({ place }: Sighting): Boot | undefined {
    return place === null ? undefined : this.#hosts.get(place.host)?.get(place.boot);
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

/** Whether one of them was heard after the first word of another, and the other way round: they run at once. */
function areNamesakes(boots: ReadonlyMap<string, Boot>): boolean {
  const inOrder = [...boots.values()].sort((a, b) => a.firstAt - b.firstAt);
  let heardAt = -Infinity;
  for (const boot of inOrder) {
    if (heardAt > boot.firstAt) return true;
    heardAt = Math.max(heardAt, boot.heardAt);
  }
  return false;
}
