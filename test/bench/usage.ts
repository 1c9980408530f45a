// CPU time and resident memory of groups of processes, descendants included, from /proc.
// CPU comes per thread from schedstat, exact to the nanosecond, as long as no thread ended between
// two readings; else per process from utime + stime, which keep the time of ended threads but come
// in steps of 10 ms.

import { readFileSync } from "node:fs";
import { listProcesses, residentBytes, threadCpuSeconds } from "../support/processes.ts";

interface TreeNode {
  readonly pid: number;
  readonly parent: number;
}

/** The processes of a list with these pids, and all their descendants. */
export function descendants<T extends TreeNode>(all: readonly T[], roots: readonly number[]): T[] {
  const found = all.filter((process) => roots.includes(process.pid));
  for (const parent of found) { // grows while it is walked
    found.push(...all.filter((child) => child.parent === parent.pid && !found.includes(child)));
  }
  return found;
}

/** The living processes with these pids and all their descendants. */
export function processTree(roots: readonly number[]) {
  return descendants(listProcesses().filter((process) => process.state !== "Z"), roots);
}

interface ProcessUsage {
  /** utime + stime, also of ended threads. */
  readonly coarseSeconds: number;
  readonly threadSeconds: ReadonlyMap<number, number>;
}

export interface Usage {
  readonly processes: ReadonlyMap<number, ProcessUsage>;
  readonly residentBytes: number;
}

/** What a group of processes, with descendants, has used so far. */
export function readUsage(roots: readonly number[]): Usage {
  const processes = new Map<number, ProcessUsage>();
  let resident = 0;
  for (const { pid } of processTree(roots)) {
    processes.set(pid, {
      coarseSeconds: coarseCpuSeconds(pid),
      threadSeconds: threadCpuSeconds(pid),
    });
    resident += residentBytes(pid);
  }
  return { processes, residentBytes: resident };
}

/** utime + stime of /proc/<pid>/stat text; the name in it may hold blanks and brackets. */
export function parseCpuSeconds(stat: string): number {
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100; // USER_HZ is 100 on every Linux we run on
}

function coarseCpuSeconds(pid: number): number {
  try {
    return parseCpuSeconds(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return 0; // ended while we looked; usedCpuSeconds() notices
  }
}

/** CPU seconds used between two readings. A process that is gone took its time with it: an error. */
export function usedCpuSeconds(before: Usage, after: Usage): number {
  let total = 0;
  for (const [pid, then] of before.processes) {
    const now = after.processes.get(pid);
    if (now === undefined) throw new Error(`measure the CPU of process ${pid}: it has ended`);
    const complete = [...then.threadSeconds.keys()].every((id) => now.threadSeconds.has(id));
    total += complete
      ? sum(now.threadSeconds) - sum(then.threadSeconds)
      : now.coarseSeconds - then.coarseSeconds;
  }
  for (const [pid, now] of after.processes) {
    if (!before.processes.has(pid)) total += sum(now.threadSeconds);
  }
  return total;
}

function sum(values: ReadonlyMap<number, number>): number {
  let total = 0;
  for (const value of values.values()) total += value;
  return total;
}
