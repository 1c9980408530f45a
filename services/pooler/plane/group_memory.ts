// What the monitors of database hosts have measured of resource groups, as this worker goes by it: the memory of what runs
// on its own servers, and what the groups have in other workers. It holds for three intervals; without a monitor
// memory is what queries are estimated to need, and each worker has its part of a limit.
// Bound: `monitorsMax`.

import type { GroupMemory as Said } from "../../../shared/bus/mod.ts";
import { boundsMemory } from "../../../shared/groups/mod.ts";
import type { Plane } from "./plane.ts";

const holdsIntervals = 3;
const monitorsMax = 100;
/** A worker that has just started may hear one yet. */
const patienceMs = 10_000;

interface Heard {
  readonly said: Said;
  readonly until: number;
}

export class GroupMemory {
  readonly #plane: Plane;
  /** By monitor. */
  readonly #heard = new Map<string, Heard>();
  readonly #quietUntil: number;
  /** What the log was told last; "": nothing yet. */
  #state: "" | "measured" | "estimated" = "";

  constructor(plane: Plane) {
    this.#plane = plane;
    this.#quietUntil = plane.reactor.now + patienceMs;
  }

  /** Some monitor measures; else memory is as estimated. */
  get isMeasured(): boolean {
    for (const { said } of this.#heard.values()) if (said.measures) return true;
    return false;
  }

  onSaid(said: Said): void {
    const { now } = this.#plane.reactor;
    if (!this.#heard.has(said.monitor) && this.#heard.size >= monitorsMax) return;
    this.#heard.set(said.monitor, { said, until: now + holdsIntervals * said.intervalMs });
    this.#measure(said);
    this.#apply();
  }

  /** Called ten times a second. */
  sweep(now: number): void {
    let isNews = false;
    for (const [monitor, { until }] of this.#heard) {
      if (now < until) continue;
      this.#heard.delete(monitor);
      isNews = true;
    }
    if (isNews) {
      if (!this.isMeasured) this.#unmeasure();
      this.#apply();
    }
    this.#tellLog(now);
  }

  #measure({ databases }: Said): void {
    const { admission, pools } = this.#plane;
    const sizes = new Map(databases.map(({ database, backends }) => {
      return [database, new Map(backends.map(({ pid, kB }) => [pid, kB * 1024]))] as const;
    }));
    if (sizes.size === 0) return;
    for (const { database: { name }, servers } of pools.values()) {
      const byPid = sizes.get(name);
      if (byPid === undefined) continue;
      for (const { place, processId } of servers) {
        const bytes = place === null ? undefined : byPid.get(processId);
        if (place !== null && bytes !== undefined) admission.measure(place, bytes);
      }
    }
  }

  /** What was measured holds no longer. */
  #unmeasure(): void {
    const { admission } = this.#plane;
    for (const { servers } of this.#plane.pools.values()) {
      for (const { place } of servers) if (place !== null) admission.measure(place, 0);
    }
  }

  /** What was heard takes effect. */
  #apply(): void {
    const { admission } = this.#plane;
    const heard = [...this.#heard.values()];
    admission.prefersOwnServers = heard.some(({ said }) => said.dividesCpu);
    if (heard.length === 0) return admission.setMemoryElsewhere(null);
    const own = new Map<string, number>();
    for (const { said: { elsewhere } } of heard) {
      for (const { group, bytes } of elsewhere) own.set(group, (own.get(group) ?? 0) + bytes);
    }
    admission.setMemoryElsewhere(own);
  }

  #tellLog(now: number): void {
    const { config, control } = this.#plane;
    const state = this.isMeasured ? "measured" : "estimated";
    if (state === this.#state || !boundsMemory(config.groups)) return;
    if (state === "estimated" && now < this.#quietUntil) return;
    this.#state = state;
    if (state === "measured") {
      control.log("info", "memory of resource groups: measured by monitors on database hosts");
    } else {
      control.log(
        "warning",
        "memory of resource groups: soft_max_memory goes by estimates, no monitor on a database host measures it " +
          "(pgweir overload --database)",
      );
    }
  }
}
