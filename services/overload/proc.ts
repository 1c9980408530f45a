// What the kernel says of processes, CPU and memory: /proc and the cgroup file systems. All reads are of files that
// are made when they are read, and cheap. What a kernel does not have, or does not show us, is null or left out:
// no failure of a read ends a monitor.

import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { type Counters, parseSchedstat, type ThreadCounters } from "./cpu_book.ts";

/** Of a process: whose child it is, and what its program is called. */
export interface ProcessEntry {
  readonly pid: number;
  readonly parent: number;
  readonly name: string;
  /** When it was started, in ms of the clock that starts are counted by. */
  readonly startedMs: number;
}

interface Group {
  readonly folder: string;
  readonly version: 1 | 2;
}

/** Without it a folder is no group, or the root, which has no limit; by controller and version. */
const tellingFiles: Readonly<Record<string, Readonly<Record<1 | 2, string>>>> = {
  memory: { 1: "memory.limit_in_bytes", 2: "memory.max" },
  cpu: { 1: "cpu.cfs_quota_us", 2: "cpu.max" },
};

/** What the kernel counts the starts of processes in, on every architecture. */
const ticksPerSecond = 100;

/** CPU time since the boot or the start of a group, in any unit: only shares of it are taken. */
export interface CpuTotals {
  readonly used: number;
  readonly total: number;
}

export class Proc {
  readonly #root: string;
  /** By controller, the groups that were found for such a /proc/<pid>/cgroup. */
  readonly #known = new Map<string, { readonly path: string; readonly groups: readonly Group[] }>();
  /** Our own. */
  #startedMs: number | null = null;

  /** `root` is where /proc and /sys are. */
  constructor(root = "/") {
    this.#root = root;
  }

  text(...path: string[]): string | null {
    try {
      return readFileSync(join(this.#root, ...path), "latin1");
    } catch {
      return null;
    }
  }

  /** Where a symbolic link leads to. */
  link(...path: string[]): string | null {
    try {
      return readlinkSync(join(this.#root, ...path));
    } catch {
      return null;
    }
  }

  #list(...path: string[]): string[] {
    try {
      return readdirSync(join(this.#root, ...path));
    } catch {
      return [];
    }
  }

  /** Whether the kernel counts how long threads wait. */
  get countsWait(): boolean {
    return parseSchedstat(this.text("proc/self/schedstat") ?? "") !== null;
  }

  /**
   * The counters of all threads of processes; those that are gone are left out. Both counters of a thread come from
   * one read of one line, so that no wait is without the work beside it.
   */
  counters(pids: Iterable<number>): Counters {
    const all = new Map<number, Map<number, ThreadCounters>>();
    for (const pid of pids) {
      const threads = new Map<number, ThreadCounters>();
      for (const id of this.#list("proc", `${pid}`, "task")) {
        const counters = parseSchedstat(
          this.text("proc", `${pid}`, "task", id, "schedstat") ?? "",
        );
        if (counters !== null) threads.set(Number(id), counters);
      }
      if (threads.size > 0) all.set(pid, threads);
    }
    return all;
  }

  entry(pid: number): ProcessEntry | null {
    const stat = this.text("proc", `${pid}`, "stat");
    if (stat === null) return null;
    // The name, field 2, is in parentheses and may hold spaces and parentheses itself.
    const end = stat.lastIndexOf(")");
    const fields = stat.slice(end + 2).split(" ");
    if (fields[0] === "Z" || fields[0] === "X") return null;
    return {
      pid,
      parent: Number(fields[1]),
      name: stat.slice(stat.indexOf("(") + 1, end),
      startedMs: Number(fields[19]) * 1000 / ticksPerSecond,
    };
  }

  /** How long a process has been running; Infinity for one that is not seen. */
  ageMs(pid: number): number {
    const entry = this.entry(pid);
    return entry === null ? Infinity : this.ageOf(entry);
  }

  /** The same for one that was looked at. */
  ageOf({ startedMs }: ProcessEntry): number {
    // By our own start: what a container is told of the uptime may be another clock.
    this.#startedMs ??= this.entry(process.pid)?.startedMs ?? NaN;
    const ageMs = this.#startedMs + process.uptime() * 1000 - startedMs;
    return Number.isNaN(ageMs) ? Infinity : ageMs;
  }

  /** The memory that is in use by a process alone, in kB; a text is the code of what keeps us from looking. */
  privateKB(pid: number): number | string {
    let text: string;
    try {
      text = readFileSync(join(this.#root, "proc", `${pid}`, "smaps_rollup"), "latin1");
    } catch (error) {
      return (error as { code?: string }).code ?? "EIO";
    }
    const kB = (name: string) => Number(new RegExp(`^${name}: +(\\d+) kB`, "m").exec(text)?.[1]);
    const sum = kB("Private_Clean") + kB("Private_Dirty");
    return Number.isNaN(sum) ? "EIO" : sum;
  }

  entries(): ProcessEntry[] {
    return this.#list("proc").flatMap((name) => {
      const pid = Number(name);
      const entry = pid > 0 ? this.entry(pid) : null;
      return entry === null ? [] : [entry];
    });
  }

  childrenOf(pid: number): number[] {
    const listed = this.text("proc", `${pid}`, "task", `${pid}`, "children");
    if (listed !== null) return listed.split(" ").filter((word) => word !== "").map(Number);
    // A kernel that does not keep the list.
    return this.entries().filter(({ parent }) => parent === pid).map((entry) => entry.pid);
  }

  /** Microseconds since the boot in which somebody on this host waited for a CPU; null without PSI. */
  cpuPressureUs(): number | null {
    const total = /^some .*total=(\d+)/m.exec(this.text("proc/pressure/cpu") ?? "")?.[1];
    return total === undefined ? null : Number(total);
  }

  /** Of the host. */
  cpuTotals(): CpuTotals | null {
    const line = /^cpu +(.*)$/m.exec(this.text("proc/stat") ?? "")?.[1];
    if (line === undefined) return null;
    // user nice system idle iowait irq softirq steal; guests are in user already.
    const fields = line.split(" ").slice(0, 8).map(Number);
    const total = fields.reduce((sum, value) => sum + value, 0);
    return { used: total - (fields[3] ?? 0) - (fields[4] ?? 0), total };
  }

  /** The share of memory in use where a process is: of its host, or of the group that is nearest to its limit. */
  memoryUse(pid: number): number | null {
    const meminfo = this.text("proc/meminfo") ?? "";
    const kB = (name: string) => Number(new RegExp(`^${name}: +(\\d+) kB`, "m").exec(meminfo)?.[1]);
    const host = 1 - kB("MemAvailable") / kB("MemTotal");
    const shares = [host, ...this.#groupMemoryShares(pid)].filter(Number.isFinite);
    return shares.length === 0 ? null : Math.min(1, Math.max(0, ...shares));
  }

  #groupMemoryShares(pid: number): number[] {
    return this.#groups(pid, "memory").flatMap(({ folder, version }) => {
      const number = (file: string) => Number(this.text(folder, file) ?? NaN);
      const stat = this.text(folder, "memory.stat") ?? "";
      const [limit, usage, reclaimable] = version === 2
        ? [number("memory.max"), number("memory.current"), /^inactive_file (\d+)/m]
        : [
          number("memory.limit_in_bytes"),
          number("memory.usage_in_bytes"),
          /^total_inactive_file (\d+)/m,
        ];
      // "max", and in version 1 the largest number of pages, are no limits.
      if (!(limit > 0) || limit > 2 ** 60) return [];
      // What of files was not used lately is given back before anything is short.
      return [(usage - Number(reclaimable.exec(stat)?.[1] ?? 0)) / limit];
    });
  }

  /** The groups that a process is in, from its own up to the root, as far as they are there. */
  #groups(pid: number, controller: string): readonly Group[] {
    const path = this.text("proc", `${pid}`, "cgroup") ?? "";
    const known = this.#known.get(controller);
    if (known?.path === path) return known.groups;
    const groups = path.split("\n").flatMap((line) => {
      const [, id, controllers, path] = /^(\d+):([^:]*):(.*)$/.exec(line) ?? [];
      if (id === undefined || controllers === undefined || path === undefined) return [];
      const isUnified = id === "0" && controllers === "";
      if (!isUnified && !controllers.split(",").includes(controller)) return [];
      const mount = isUnified ? "sys/fs/cgroup" : join("sys/fs/cgroup", controller);
      const steps = path.split("/").filter((step) => step !== "");
      const version: Group["version"] = isUnified ? 2 : 1;
      const telling = tellingFiles[controller]![version];
      // Of a path that is not of our view of the tree, the root is what we see.
      return Array.from({ length: steps.length + 1 }, (_, up) => ({
        folder: join(mount, ...steps.slice(0, steps.length - up)),
        version,
      })).filter(({ folder }) => existsSync(join(this.#root, folder, telling)));
    });
    this.#known.set(controller, { path, groups });
    return groups;
  }

  /** By how many CPUs a process's groups may use at most, and what they have used in microseconds: for shares. */
  groupCpu(pid: number): { readonly usedUs: number; readonly cpus: number }[] {
    return this.#groups(pid, "cpu").flatMap(({ folder, version }) => {
      if (version === 2) {
        const [quota, period] = (this.text(folder, "cpu.max") ?? "").trim().split(" ").map(Number);
        const used = /^usage_usec (\d+)/m.exec(this.text(folder, "cpu.stat") ?? "")?.[1];
        const cpus = (quota ?? NaN) / (period ?? NaN);
        return used !== undefined && cpus > 0 ? [{ usedUs: Number(used), cpus }] : [];
      }
      const number = (file: string) => Number(this.text(folder, file) ?? NaN);
      const cpus = number("cpu.cfs_quota_us") / number("cpu.cfs_period_us");
      const accounting = folder.replace("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpuacct");
      const usedUs = Number(this.text(accounting, "cpuacct.usage") ?? NaN) / 1000;
      return cpus > 0 && Number.isFinite(usedUs) ? [{ usedUs, cpus }] : [];
    });
  }
}
