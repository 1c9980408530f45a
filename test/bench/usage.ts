// CPU time and resident memory of groups of processes, descendants included, from /proc.
// CPU comes per thread from schedstat, exact to the nanosecond, as long as no thread ended between
// two readings; else per process from utime + stime, which keep the time of ended threads but come
// in steps of 10 ms.

import { readFileSync } from "node:fs";
import { listProcesses, residentBytes, threadCpuSeconds } from "../support/processes.ts";

/** USER_HZ: the unit of CPU times in /proc, 100 on every architecture we run on. */
const TICKS_PER_SECOND = 100;

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
      coarseSeconds: cpuSeconds(pid).own,
      threadSeconds: threadCpuSeconds(pid),
    });
    resident += residentBytes(pid);
  }
  return { processes, residentBytes: resident };
}

/** CPU times of /proc/<pid>/stat text; the name in it may hold blanks and brackets. */
export function parseCpuSeconds(stat: string): { own: number; endedChildren: number } {
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ").map(Number);
  const field = (number: number) => fields[number - 3] ?? NaN; // proc(5) counts from 1
  return {
    own: (field(14) + field(15)) / TICKS_PER_SECOND,
    endedChildren: (field(16) + field(17)) / TICKS_PER_SECOND,
  };
}

function cpuSeconds(pid: number): { own: number; endedChildren: number } {
  try {
    return parseCpuSeconds(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return { own: 0, endedChildren: 0 }; // ended while we looked; its parent has its time
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

/** CPU seconds of the whole machine. */
export interface MachineUsage {
  readonly atSeconds: number;
  /** Everything that ran, and what the host of a virtual machine took away. */
  readonly busySeconds: number;
  /** This process and all its descendants, ended ones included. */
  readonly ownSeconds: number;
}

export function readMachineUsage(): MachineUsage {
  let ownSeconds = 0;
  for (const { pid } of processTree([process.pid])) {
    const { own, endedChildren } = cpuSeconds(pid);
    ownSeconds += own + endedChildren;
  }
  return {
    atSeconds: performance.now() / 1000,
    busySeconds: parseBusySeconds(readFileSync("/proc/stat", "utf8")),
    ownSeconds,
  };
}

/** Of /proc/stat: user, nice, system, irq, softirq and steal time of all CPUs; not idle and iowait. */
export function parseBusySeconds(stat: string): number {
  const [, user, nice, system, , , irq, softirq, steal] = stat.split("\n", 1)[0]!
    .split(/ +/).map(Number) as number[];
  return [user, nice, system, irq, softirq, steal].reduce<number>((sum, t) => sum + (t ?? 0), 0) /
    TICKS_PER_SECOND;
}

/** The part of the machine's CPU, 0 to 1, that work other than ours took between two readings. */
export function otherShare(before: MachineUsage, after: MachineUsage, cores: number): number {
  const busy = after.busySeconds - before.busySeconds;
  const own = after.ownSeconds - before.ownSeconds;
  const available = (after.atSeconds - before.atSeconds) * cores;
  return Math.min(1, Math.max(0, (busy - own) / available));
}
