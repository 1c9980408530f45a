// What threads have run and waited between two looks at their counters. Threads come and go between them: one that
// came is counted from its beginning, one that went is not counted since the last look. A process that is looked at
// for the first time and is older than the last look is counted from now on. Pure: given the counters.
// Invariant: what is counted of a thread is never negative.

import type { CpuTimes } from "../../shared/overload/mod.ts";

/** The counters of a thread since its start, in nanoseconds. */
export interface ThreadCounters {
  readonly busyNs: number;
  readonly waitNs: number;
}

/** By process id, and by thread id. */
export type Counters = ReadonlyMap<number, ReadonlyMap<number, ThreadCounters>>;

/** `run_ns wait_ns timeslices`; null for what is none. */
export function parseSchedstat(text: string): ThreadCounters | null {
  const [busy, wait] = text.trim().split(" ");
  if (busy === undefined || wait === undefined) return null;
  const counters = { busyNs: Number(busy), waitNs: Number(wait) };
  const isCounter = (value: number) => value >= 0 && Number.isFinite(value);
  return isCounter(counters.busyNs) && isCounter(counters.waitNs) ? counters : null;
}

export class CpuBook {
  #last: Counters | null = null;

  /** null the first time, when there is nothing to compare with. `isNew`: a process was started since then. */
  take(counters: Counters, isNew: (pid: number) => boolean): CpuTimes | null {
    const last = this.#last;
    this.#last = counters;
    if (last === null) return null;
    let busyNs = 0;
    let waitNs = 0;
    for (const [pid, threads] of counters) {
      const before = last.get(pid);
      if (before === undefined && !isNew(pid)) continue;
      for (const [id, thread] of threads) {
        const times = since(before?.get(id), thread);
        busyNs += times.busyNs;
        waitNs += times.waitNs;
      }
    }
    return { waitUs: Math.round(waitNs / 1000), busyUs: Math.round(busyNs / 1000) };
  }
}

/** Counters that went back are those of a new thread with an old id. */
function since(before: ThreadCounters | undefined, now: ThreadCounters): ThreadCounters {
  if (before === undefined || now.busyNs < before.busyNs || now.waitNs < before.waitNs) return now;
  return { busyNs: now.busyNs - before.busyNs, waitNs: now.waitNs - before.waitNs };
}
