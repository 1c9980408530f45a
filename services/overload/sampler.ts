// One look at the watched processes and their host, compared with the look before. What is in use of the host costs more
// to read than all the rest, and is read only when it is wanted.

import process from "node:process";
import type { CpuTimes } from "../../shared/overload/mod.ts";
import { CpuBook } from "./cpu_book.ts";
import type { CpuTotals, Proc } from "./proc.ts";

export interface Sample extends CpuTimes {
  /** Since the look before. */
  readonly elapsedMs: number;
  readonly processes: number;
  readonly threads: number;
  /** The share of the time in which somebody on the host waited for a CPU; null: the kernel does not tell. */
  readonly pressure: number | null;
  /**
   * Shares in use: of the host, or of the group of the watched processes that is nearest to its limit. null: not
   * wanted, or not known.
   */
  readonly cpu: number | null;
  readonly memory: number | null;
}

/** Which shares in use are wanted. */
export interface Wanted {
  readonly cpu: boolean;
  readonly memory: boolean;
}

export class Sampler {
  readonly #proc: Proc;
  readonly #book = new CpuBook();
  #at = 0;
  #pressureUs: number | null = null;
  /** When the use of CPU was looked at. */
  #cpuAt = 0;
  #totals: CpuTotals | null = null;
  /** By place in the list: from the group of the process up. */
  #groupsUs: number[] = [];

  constructor(proc: Proc) {
    this.#proc = proc;
  }

  /** null the first time. `now` is monotonic, in ms. */
  take(pids: readonly number[], now: number, wanted: Wanted): Sample | null {
    const proc = this.#proc;
    const counters = proc.counters(pids);
    const elapsedMs = now - this.#at;
    const times = this.#book.take(counters, (pid) => proc.ageMs(pid) < elapsedMs);
    this.#at = now;
    const pressureUs = proc.cpuPressureUs();
    const pressure = share(pressureUs, this.#pressureUs, elapsedMs * 1000);
    this.#pressureUs = pressureUs;
    const place = [...counters.keys()][0];
    const cpu = wanted.cpu ? this.#cpuUse(place, now) : null;
    if (times === null) return null;
    return {
      ...times,
      elapsedMs,
      processes: counters.size,
      threads: [...counters.values()].reduce((sum, { size }) => sum + size, 0),
      pressure,
      cpu,
      memory: wanted.memory ? proc.memoryUse(place ?? process.pid) : null,
    };
  }

  /** Since it was wanted before. */
  #cpuUse(place: number | undefined, now: number): number | null {
    const elapsedMs = now - this.#cpuAt;
    this.#cpuAt = now;
    const totals = this.#proc.cpuTotals();
    const before = this.#totals;
    this.#totals = totals;
    const shares: (number | null)[] = totals === null || before === null
      ? []
      : [share(totals.used, before.used, totals.total - before.total)];
    const groups = this.#proc.groupCpu(place ?? process.pid);
    for (const [index, { usedUs, cpus }] of groups.entries()) {
      shares.push(share(usedUs, this.#groupsUs[index] ?? null, elapsedMs * 1000 * cpus));
    }
    this.#groupsUs = groups.map(({ usedUs }) => usedUs);
    const known = shares.filter((value) => value !== null);
    return known.length === 0 ? null : Math.max(...known);
  }
}

/** Of what there was at most; null where it is not known, or counters went back. */
function share(now: number | null, before: number | null, most: number): number | null {
  if (now === null || before === null || now < before || !(most > 0)) return null;
  return Math.min(1, (now - before) / most);
}
