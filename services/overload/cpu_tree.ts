// The cgroups of resource groups, in the cgroup of their PostgreSQL: makes them, moves processes, and leaves no trace.
// What a predecessor has left that was killed is removed by the next one that comes, also if that divides nothing.
// Invariants:
// - Only processes are moved that the caller has checked; one whose id has come to another since is moved back.
// - In version 2 a cgroup that has the controller for those below it has no processes: all that were in PostgreSQL's own
//   are in `rest` meanwhile, and back at the end.

import type { GroupConfig } from "../../shared/config/mod.ts";
import { type CgroupVersion, type CpuPlan, cpuPlan, restPath, weightText } from "./cpu_plan.ts";

/** The file system of cgroups; failures are thrown as of node:fs. Paths as `CpuHome` has them. */
export interface CgroupFiles {
  make(folder: string): void;
  remove(folder: string): void;
  /** null: there is none. */
  read(file: string): string | null;
  write(file: string, text: string): void;
  /** Names of the folders in one; none of one that is gone. */
  folders(folder: string): readonly string[];
}

/** The cgroup of a PostgreSQL. */
export interface CpuHome {
  readonly folder: string;
  readonly version: CgroupVersion;
}

/** A process, and the group its work is in; null: none. */
export interface Placement {
  readonly pid: number;
  /** When it was started: tells it from an earlier one of the same id. */
  readonly startedMs: number;
  readonly group: string | null;
}

export interface CpuTreeOptions {
  readonly files: CgroupFiles;
  readonly home: CpuHome;
  /** Of the process that makes the tree. */
  readonly pid: number;
  readonly startedMs: number;
  /** When a process was started; null: it is gone. */
  readonly startOf: (pid: number) => number | null;
}

export const treeName = /^pgweir-(\d+)-(\d+)$/;
/** Processes may be started while others are moved. */
const roundsMax = 50;

/** A cgroup could not be made or changed; the message says which, and why. */
export class CgroupError extends Error {
  readonly code: string;

  /** `path`: as `CpuHome` has them. */
  constructor(what: string, path: string, cause: unknown) {
    const { code = "", message } = cause as { code?: string; message?: string };
    super(`${what} "/${path}": ${code === "" ? message : code}`);
    this.code = code;
  }
}

export class CpuTree {
  readonly #files: CgroupFiles;
  readonly #home: CpuHome;
  readonly #startOf: (pid: number) => number | null;
  readonly #base: string;
  #isOpen = false;
  /** What was written last, by path below the base; in the order they were made. */
  readonly #weights = new Map<string, string>();
  /** By process id and start, where a process was moved. */
  #placed = new Map<string, string>();

  constructor({ files, home, pid, startedMs, startOf }: CpuTreeOptions) {
    this.#files = files;
    this.#home = home;
    this.#startOf = startOf;
    this.#base = `${home.folder}/pgweir-${pid}-${startedMs}`;
  }

  get base(): string {
    return this.#base;
  }

  /** Makes the base, and clears away what is left of others. Throws a CgroupError, and then nothing is left. */
  open(): void {
    this.#expectAlone();
    this.clearAway();
    this.#make(this.#base);
    this.#isOpen = true;
    try {
      this.#make(`${this.#base}/${restPath}`);
      if (this.#home.version === 2) this.#enableHome();
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Removes what monitors that are gone have left, and moves its processes back. Throws a CgroupError. */
  clearAway(): void {
    for (const { folder, isAlive } of this.#trees()) if (!isAlive) this.#removeTree(folder);
  }

  *#trees(): Generator<{ folder: string; pid: string; isAlive: boolean }> {
    for (const name of this.#files.folders(this.#home.folder)) {
      const [, pid, startedMs] = treeName.exec(name) ?? [];
      if (pid === undefined) continue;
      const isAlive = this.#startOf(Number(pid)) === Number(startedMs);
      yield { folder: `${this.#home.folder}/${name}`, pid, isAlive };
    }
  }

  /** In version 1 each has its own beside the others. */
  #expectAlone(): void {
    if (this.#home.version === 1) return;
    for (const { folder, pid, isAlive } of this.#trees()) {
      if (!isAlive) continue;
      throw new CgroupError("make cgroups beside", folder, {
        message: `the monitor with process id ${pid} has them, wanted one monitor with several ` +
          "--database",
      });
    }
  }

  #enableHome(): void {
    const { folder } = this.#home;
    for (let round = 1;; round++) {
      if (!this.#isRoot) this.#drain(folder, `${this.#base}/${restPath}`);
      try {
        this.#write(`${folder}/cgroup.subtree_control`, "+cpu");
        return;
      } catch (error) {
        // Somebody was started in it meanwhile.
        if ((error as CgroupError).code !== "EBUSY" || round === roundsMax) throw error;
      }
    }
  }

  /** The root of all may have processes, and what it gives to those below is not for us to change. */
  get #isRoot(): boolean {
    return this.#files.read(`${this.#home.folder}/cgroup.type`) === null;
  }

  /** Makes the tree that of the groups, with each process in its place. Throws a CgroupError. */
  arrange(groups: readonly GroupConfig[], placements: readonly Placement[]): void {
    const plan = cpuPlan(groups, placements.length);
    for (const { path, shares, isInner } of plan.folders) {
      const folder = this.#folderOf(path);
      if (!this.#weights.has(path)) {
        this.#make(folder);
        this.#weights.set(path, "");
        if (isInner && this.#home.version === 2) {
          this.#write(`${folder}/cgroup.subtree_control`, "+cpu");
        }
      }
      const weight = weightText(shares, this.#home.version);
      if (this.#weights.get(path) === weight) continue;
      const file = this.#home.version === 1 ? "cpu.shares" : "cpu.weight";
      this.#write(`${folder}/${file}`, weight);
      this.#weights.set(path, weight);
    }
    this.#place(plan, placements);
    this.#removeOthers(plan);
  }

  #place(plan: CpuPlan, placements: readonly Placement[]): void {
    const placed = new Map<string, string>();
    for (const { pid, startedMs, group } of placements) {
      const leaf = (group === null ? undefined : plan.leaves.get(group)) ?? restPath;
      const key = `${pid} ${startedMs}`;
      if (this.#placed.get(key) !== leaf) {
        if (this.#startOf(pid) !== startedMs || !this.#move(pid, this.#folderOf(leaf))) continue;
        const startedNow = this.#startOf(pid);
        if (startedNow !== startedMs) {
          if (startedNow !== null) this.#move(pid, this.#outside);
          continue;
        }
      }
      placed.set(key, leaf);
    }
    this.#placed = placed;
  }

  /** Where those are that are in no group, as far as may be in PostgreSQL's own cgroup. */
  get #outside(): string {
    return this.#home.version === 1 ? this.#home.folder : this.#folderOf(restPath);
  }

  #removeOthers(plan: CpuPlan): void {
    const wanted = new Set(plan.folders.map(({ path }) => path));
    const unwanted = [...this.#weights.keys()].filter((path) => !wanted.has(path));
    for (const path of unwanted.reverse()) {
      const folder = this.#folderOf(path);
      this.#drain(folder, this.#folderOf(restPath));
      this.#remove(folder);
      this.#weights.delete(path);
    }
  }

  #folderOf(path: string): string {
    return path === "" ? this.#base : `${this.#base}/${path}`;
  }

  /** Moves all processes back and removes all cgroups. Throws a CgroupError; idempotent. */
  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#weights.clear();
    this.#placed.clear();
    this.#removeTree(this.#base);
  }

  #removeTree(base: string): void {
    const folders: string[] = [];
    const collect = (folder: string) => {
      for (const name of this.#files.folders(folder)) collect(`${folder}/${name}`);
      folders.push(folder);
    };
    collect(base);
    const { folder: home, version } = this.#home;
    if (version === 2) {
      // From below: a controller that is in use there cannot be taken away.
      for (const folder of [...folders, ...(this.#isRoot ? [] : [home])]) {
        const file = `${folder}/cgroup.subtree_control`;
        if (this.#files.read(file)?.split(/\s+/).includes("cpu")) this.#write(file, "-cpu");
      }
    }
    for (const folder of folders) {
      for (let round = 1;; round++) {
        this.#drain(folder, home);
        try {
          this.#remove(folder);
          break;
        } catch (error) {
          if ((error as CgroupError).code !== "EBUSY" || round === roundsMax) throw error;
        }
      }
    }
  }

  /** Moves all processes, and those that are started meanwhile. */
  #drain(from: string, to: string): void {
    for (let round = 0; round < roundsMax; round++) {
      const pids = (this.#files.read(`${from}/cgroup.procs`) ?? "").split("\n").map(Number);
      let moved = 0;
      for (const pid of pids) if (pid > 0 && this.#move(pid, to)) moved++;
      if (moved === 0) return;
    }
  }

  /** False: it is gone. */
  #move(pid: number, folder: string): boolean {
    try {
      this.#write(`${folder}/cgroup.procs`, String(pid));
      return true;
    } catch (error) {
      if ((error as CgroupError).code === "ESRCH") return false;
      throw error;
    }
  }

  #make(folder: string): void {
    attempt("make", folder, () => this.#files.make(folder), "EEXIST");
  }

  #remove(folder: string): void {
    attempt("remove", folder, () => this.#files.remove(folder), "ENOENT");
  }

  #write(file: string, text: string): void {
    attempt(`write "${text}" to`, file, () => this.#files.write(file, text));
  }
}

/** `fine`: the code of a failure that is none. */
function attempt(what: string, path: string, act: () => void, fine = ""): void {
  try {
    act();
  } catch (error) {
    if (fine !== "" && (error as { code?: string }).code === fine) return;
    throw new CgroupError(what, path, error);
  }
}
