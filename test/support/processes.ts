// Processes as /proc shows them: who is alive, whose child, in which session. Linux only, like pgweir itself.
// It never finds a process by its name: a process is stopped by a pid that the caller started or inherited.

import { readdirSync, readFileSync } from "node:fs";
import { constants } from "node:os";
import { until } from "./harness.ts";

export interface ProcessInfo {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  /** One letter of proc(5): R, S, D, T (stopped), Z (zombie). */
  readonly state: string;
  /** Clock ticks since boot; with the pid it names one process for ever. */
  readonly startTime: number;
}

/** What /proc says of a process, or null when there is none (any more). */
export function processInfo(pid: number): ProcessInfo | null {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    return null;
  }
  // The name, field 2, is in parentheses and may hold spaces and parentheses itself.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return {
    pid,
    state: fields[0] ?? "",
    parent: Number(fields[1]),
    group: Number(fields[2]),
    session: Number(fields[3]),
    startTime: Number(fields[19]),
  };
}

/** Whether a process runs (or is stopped); a zombie has ended. */
export function isAlive(pid: number): boolean {
  const info = processInfo(pid);
  return info !== null && info.state !== "Z" && info.state !== "X";
}

export function listProcesses(): ProcessInfo[] {
  const found: ProcessInfo[] = [];
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    const info = pid > 0 ? processInfo(pid) : null;
    if (info !== null) found.push(info);
  }
  return found;
}

/** The living children of a process, oldest first. */
export function childrenOf(pid: number): number[] {
  return listProcesses()
    .filter((p) => p.parent === pid && p.state !== "Z")
    .sort((a, b) => a.startTime - b.startTime || a.pid - b.pid)
    .map((p) => p.pid);
}

/** The command line of a process, arguments joined by spaces; "" when it is gone. */
export function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").trim();
  } catch {
    return "";
  }
}

/** Whether `NAME=value` was in the environment a process was started with; false where that may not be read. */
export function startedWith(pid: number, assignment: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, "latin1").split("\0").includes(assignment);
  } catch {
    return false;
  }
}

/** Whether a process has a handler of its own for a signal: before that the signal would just end it. */
export function handles(pid: number, name: NodeJS.Signals): boolean {
  let status: string;
  try {
    status = readFileSync(`/proc/${pid}/status`, "latin1");
  } catch {
    return false;
  }
  const caught = BigInt(`0x${/^SigCgt:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? "0"}`);
  return (caught >> BigInt(constants.signals[name] - 1) & 1n) === 1n;
}

/** Sends a signal; a process that is already gone is no error. A negative pid means its process group. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // Gone between the decision and the signal: what the signal was for has happened.
  }
}

/** Stops a process (SIGSTOP) and waits until it runs no more: on a busy machine it may read on for a while. */
export async function freeze(pid: number): Promise<void> {
  signal(pid, "SIGSTOP");
  await until(`process ${pid} to stop`, () => {
    const threads = readdirSync(`/proc/${pid}/task`);
    return threads.every((thread) => processInfo(Number(thread))?.state === "T");
  });
}

/** Number of open file descriptors of a process, 0 when it is gone. */
export function openFiles(pid: number): number {
  try {
    return readdirSync(`/proc/${pid}/fd`).length;
  } catch {
    return 0;
  }
}

/** Resident memory of a process in bytes, 0 when it is gone. */
export function residentBytes(pid: number): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}

/** CPU time each thread of a process has used, in seconds, by thread id (from schedstat, nanosecond exact). */
export function threadCpuSeconds(pid: number): Map<number, number> {
  const used = new Map<number, number>();
  let threads: string[];
  try {
    threads = readdirSync(`/proc/${pid}/task`);
  } catch {
    return used;
  }
  for (const thread of threads) {
    try {
      const text = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8");
      used.set(Number(thread), Number(text.split(" ")[0]) / 1e9);
    } catch {
      // The thread ended while we were reading.
    }
  }
  return used;
}

/**
 * Waits for a time in which no thread of a process uses more than a share of a processor: what spins does so all the
 * time; what collects garbage, or was late with something, comes to rest.
 */
export async function atRest(pid: number, share = 0.05, forMs = 1_000): Promise<void> {
  let busy = "";
  const isQuiet = async () => {
    const before = threadCpuSeconds(pid);
    const began = performance.now();
    await new Promise((resolve) => setTimeout(resolve, forMs));
    const seconds = (performance.now() - began) / 1000;
    busy = "";
    for (const [thread, used] of threadCpuSeconds(pid)) {
      const own = (used - (before.get(thread) ?? used)) / seconds;
      if (own > share) busy += ` thread ${thread} uses ${(own * 100).toFixed(0)} %`;
    }
    return busy === "";
  };
  await until(`all threads of process ${pid} to be at rest`, isQuiet).catch((error) => {
    throw new Error(`${(error as Error).message}:${busy}`);
  });
}
