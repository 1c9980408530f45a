// What a monitor on a database host does for resource groups at each look: finds out which processes of PostgreSQL work
// for which group, has the CPU divided among them, measures the memory of those that run something, and says to the workers
// what it found.
// Invariants: nothing is done to a process that is no child of the watched postmaster, or serves no client; without a right
// to do a thing all others are done, and what is missing is said once.

import { hostname } from "node:os";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { type Bus, type GroupBytes, maxGroupRows } from "../../shared/bus/mod.ts";
import type { Config } from "../../shared/config/mod.ts";
import { boundsMemory, dividesCpu } from "../../shared/groups/mod.ts";
import type { Logger } from "../../shared/telemetry/mod.ts";
import { leaderOf, servesClient } from "./backend_title.ts";
import { cgroupFiles, cpuHomeOf, monitorOf } from "./cgroup_files.ts";
import { CgroupError, type CpuHome, CpuTree, type Placement } from "./cpu_tree.ts";
import { type Claim, GroupBook } from "./group_book.ts";
import type { Proc, ProcessEntry } from "./proc.ts";

/** After a failure it is tried again so soon: the right may be given meanwhile. */
const retryMs = 10_000;
/** Of the time between two looks, at most so much is spent with measuring. */
const measuringShare = 0.1;
const rights: readonly string[] = ["EACCES", "EPERM", "EROFS"];
const wantedRights =
  "wanted the right to make cgroups there: run the monitor as root, or as the user of PostgreSQL " +
  "with Delegate=cpu in its unit (in a container: with a file system of cgroups that may be written)";

/** What its title says of a process. */
interface Kind {
  readonly servesClient: boolean;
  /** The one it helps with its query; null: none. */
  readonly leader: number | null;
}

interface Member {
  readonly entry: ProcessEntry;
  /** null: in no group. */
  readonly claim: Claim | null;
  /** Those that help with its query. */
  readonly helpers: number[];
}

export interface GroupKeeperOptions {
  readonly proc: Proc;
  /** Whether a database is one that it is for. */
  readonly isMeant: (database: string) => boolean;
  /** The name of the monitor on the bus. */
  readonly name: string;
  readonly epoch: number;
  readonly logger: Logger;
}

export class GroupKeeper {
  readonly #proc: Proc;
  readonly #book: GroupBook;
  readonly #name: string;
  readonly #epoch: number;
  readonly #log: Logger;
  #seq = 0;
  #tree: { readonly tree: CpuTree; readonly postmaster: string } | null = null;
  #retryAt = 0;
  /** The postmaster whose cgroup has no more of monitors that are gone; 0: none yet. */
  #clearedFor = 0;
  /** What was said of CPU, and of memory, last; "": nothing is missing. */
  #cpuComplaint = "";
  #memoryComplaint = "";
  /** By process id and start, those whose title is known not to change. */
  #known = new Map<string, Kind>();
  /** By process id and start. */
  #measured = new Map<string, number>();

  constructor({ proc, isMeant, name, epoch, logger }: GroupKeeperOptions) {
    this.#proc = proc;
    this.#book = new GroupBook(isMeant);
    this.#name = name;
    this.#epoch = epoch;
    this.#log = logger;
  }

  join(bus: Bus): void {
    bus.subscribe(bus.subjects.allGroupBackends, (said) => {
      this.#book.heard(said, performance.now());
    });
    bus.subscribe(bus.subjects.allPresence, ({ id, incarnation, state }) => {
      if (state === "gone") this.#book.gone(id, incarnation);
    });
  }

  /** `pids`: of the postmaster and its children; none while it does not run. */
  look(bus: Bus, pids: readonly number[], config: Config): void {
    const { groups, settings: { overloadIntervalMs } } = config;
    const [postmaster] = pids;
    const divides = dividesCpu(groups);
    if (!divides) {
      if (this.#tree !== null) this.#log.info("no longer dividing CPU among resource groups");
      this.#closeTree();
      if (postmaster !== undefined) this.#clearAway(postmaster);
    }
    if (postmaster === undefined || !(divides || boundsMemory(groups))) return;
    const now = performance.now();
    this.#book.expire(now);
    const members = this.#membersOf(postmaster, pids, now);
    if (divides) this.#divideCpu(postmaster, members, config);
    else this.#cpuComplaint = "";
    this.#measure(members, now + overloadIntervalMs * measuringShare);
    for (const worker of this.#book.workers) this.#tell(bus, worker, members, overloadIntervalMs);
  }

  /** Leaves no trace. */
  close(): void {
    this.#closeTree();
  }

  // --- whose they are

  #membersOf(postmaster: number, pids: readonly number[], now: number): Map<number, Member> {
    const members = new Map<number, Member>();
    const known = new Map<string, Kind>();
    const helpers: [leader: number, helper: number][] = [];
    for (const pid of pids) {
      const entry = this.#proc.entry(pid);
      if (entry === null || (pid !== postmaster && entry.parent !== postmaster)) continue;
      const claim = pid === postmaster
        ? null
        : this.#book.claimOf(pid, now - this.#proc.ageOf(entry));
      const kind = this.#kindOf(entry);
      if (kind !== null) known.set(keyOf(entry), kind);
      if (kind !== null && kind.leader !== null) helpers.push([kind.leader, pid]);
      members.set(pid, {
        entry,
        claim: kind?.servesClient ? claim : null,
        helpers: [],
      });
    }
    for (const [leader, helper] of helpers) {
      const member = members.get(leader);
      if (member === undefined) continue;
      member.helpers.push(helper);
      members.set(helper, { ...members.get(helper) as Member, claim: member.claim });
    }
    this.#known = known;
    return members;
  }

  /** null: it has not said what it is yet. */
  #kindOf(entry: ProcessEntry): Kind | null {
    const known = this.#known.get(keyOf(entry));
    if (known !== undefined) return known;
    const title = this.#proc.text("proc", `${entry.pid}`, "cmdline") ?? "";
    if (!title.startsWith("postgres: ")) return null;
    const kind = { servesClient: servesClient(title), leader: leaderOf(title) };
    // A client that is not logged in yet may not be told from others.
    return kind.servesClient || kind.leader !== null ? kind : null;
  }

  // --- CPU

  #divideCpu(postmaster: number, members: ReadonlyMap<number, Member>, config: Config): void {
    const now = performance.now();
    if (now < this.#retryAt) return;
    try {
      const tree = this.#treeFor(postmaster);
      const placements = [...members.values()].map(({ entry, claim }): Placement => {
        return { pid: entry.pid, startedMs: entry.startedMs, group: claim?.group ?? null };
      });
      tree.arrange(config.groups, placements);
      this.#cpuComplaint = "";
    } catch (error) {
      if (!(error instanceof CgroupError)) throw error;
      this.#retryAt = now + retryMs;
      this.#complainOfCpu(
        rights.includes(error.code) ? `${error.message}, ${wantedRights}` : error.message,
      );
      this.#closeTree();
    }
  }

  #treeFor(postmaster: number): CpuTree {
    const entry = this.#proc.entry(postmaster);
    const key = entry === null ? "" : keyOf(entry);
    if (this.#tree !== null && this.#tree.postmaster === key) return this.#tree.tree;
    // That of a postmaster which is gone.
    this.#closeTree();
    const home = cpuHomeOf(this.#proc, postmaster);
    if (typeof home === "string") {
      throw new CgroupError("make cgroups for", `proc/${postmaster}`, { message: home });
    }
    const tree = this.#newTree(home);
    tree.open();
    this.#tree = { tree, postmaster: key };
    this.#log.info("dividing CPU among resource groups", {
      cgroup: `/${tree.base}`,
      version: home.version,
    });
    // Those of monitors that are gone were cleared away.
    const rival = monitorOf(this.#proc, postmaster);
    if (rival !== null && rival !== process.pid) {
      this.#log.warning(
        `the monitor with process id ${rival} divides CPU of this PostgreSQL as well, and each takes backends from the ` +
          "other: wanted one monitor with several --database",
      );
    }
    return tree;
  }

  #newTree(home: CpuHome): CpuTree {
    return new CpuTree({
      files: cgroupFiles(),
      home,
      pid: process.pid,
      startedMs: this.#proc.entry(process.pid)?.startedMs ?? 0,
      startOf: (pid) => this.#proc.entry(pid)?.startedMs ?? null,
    });
  }

  /** Once of each postmaster: backends are not to stay where a monitor has put them that was killed. */
  #clearAway(postmaster: number): void {
    if (postmaster === this.#clearedFor) return;
    this.#clearedFor = postmaster;
    const home = cpuHomeOf(this.#proc, postmaster);
    if (typeof home === "string") return;
    try {
      this.#newTree(home).clearAway();
    } catch (error) {
      if (!(error instanceof CgroupError)) throw error;
      this.#log.warning(`remove cgroups of a monitor that is gone: ${error.message}`);
    }
  }

  #closeTree(): void {
    const tree = this.#tree?.tree;
    this.#tree = null;
    try {
      tree?.close();
    } catch (error) {
      if (!(error instanceof CgroupError)) throw error;
      this.#log.warning(`remove cgroups of resource groups: ${error.message}`);
    }
  }

  #complainOfCpu(why: string): void {
    if (why === this.#cpuComplaint) return;
    this.#cpuComplaint = why;
    this.#log.warning(
      `divide CPU among resource groups: ${why}; until then cpu_shares divides slots only, and all else works`,
    );
  }

  // --- memory

  /** As long as there is time, and first those that were not measured yet or longest ago. */
  #measure(members: ReadonlyMap<number, Member>, until: number): void {
    const wanted = [...members.values()].filter(({ claim, entry }) =>
      claim?.isRunning && !this.#isHelper(entry)
    );
    const before = this.#measured;
    const ages = new Map([...before.keys()].map((key, at) => [key, at]));
    const age = ({ entry }: Member) => ages.get(keyOf(entry)) ?? -1;
    wanted.sort((a, b) => age(a) - age(b));
    const kept = new Map<string, number>();
    const fresh = new Map<string, number>();
    let failure = "";
    for (const { entry, helpers } of wanted) {
      const key = keyOf(entry);
      const old = before.get(key);
      if (performance.now() >= until) {
        if (old !== undefined) kept.set(key, old);
        continue;
      }
      let sum = 0;
      for (const pid of [entry.pid, ...helpers]) {
        const kB = this.#proc.privateKB(pid);
        if (typeof kB === "number") sum += kB;
        else if (rights.includes(kB)) failure = `read "/proc/${pid}/smaps_rollup": ${kB}`;
      }
      if (sum > 0) fresh.set(key, sum);
    }
    this.#measured = new Map([...kept, ...fresh]);
    if (fresh.size > 0) this.#memoryComplaint = "";
    else if (failure !== "" && failure !== this.#memoryComplaint) {
      if (this.#memoryComplaint === "") {
        this.#log.warning(
          `measure memory of resource groups: ${failure}, wanted the right to look at processes of PostgreSQL: run the ` +
            "monitor as its user, or as root; until then soft_max_memory goes by estimates",
        );
      }
      this.#memoryComplaint = failure;
    }
  }

  #isHelper(entry: ProcessEntry): boolean {
    return (this.#known.get(keyOf(entry))?.leader ?? null) !== null;
  }

  // --- what workers are told

  #tell(
    bus: Bus,
    worker: number,
    members: ReadonlyMap<number, Member>,
    intervalMs: number,
  ): void {
    const own = new Map<string, { pid: number; kB: number }[]>();
    const seen = new Map<string, Map<number, number>>();
    for (const { entry, claim } of members.values()) {
      const kB = this.#measured.get(keyOf(entry));
      if (claim === null || kB === undefined || !claim.isRunning) continue;
      if (claim.worker === worker) {
        const list = own.get(claim.database) ?? [];
        own.set(claim.database, list);
        list.push({ pid: entry.pid, kB });
      } else {
        const byWorker = seen.get(claim.group) ?? new Map<number, number>();
        seen.set(claim.group, byWorker);
        byWorker.set(claim.worker, (byWorker.get(claim.worker) ?? 0) + kB * 1024);
      }
    }
    bus.publish(bus.subjects.groupMemory(worker), {
      monitor: this.#name,
      host: hostname(),
      epoch: this.#epoch,
      seq: ++this.#seq,
      intervalMs,
      worker,
      measures: this.#memoryComplaint === "",
      dividesCpu: this.#tree !== null,
      databases: [...own].slice(0, maxGroupRows).map(([database, backends]) => {
        return { database, backends };
      }),
      elsewhere: this.#elsewhere(worker, seen),
    });
  }

  /** By group: what the others count, or what is seen of theirs where that is more. */
  #elsewhere(worker: number, seen: ReadonlyMap<string, ReadonlyMap<number, number>>): GroupBytes[] {
    const sums = new Map<string, number>();
    for (const other of this.#book.workers) {
      if (other === worker) continue;
      const counted = this.#book.countedBy(other);
      for (const [group, bytes] of counted) {
        const most = Math.max(bytes, seen.get(group)?.get(other) ?? 0);
        sums.set(group, (sums.get(group) ?? 0) + most);
      }
    }
    return [...sums].map(([group, bytes]) => ({ group, bytes: Math.round(bytes) }))
      .sort((a, b) => b.bytes - a.bytes).slice(0, maxGroupRows);
  }
}

function keyOf({ pid, startedMs }: ProcessEntry): string {
  return `${pid} ${startedMs}`;
}
