// What the ledger's simulation checks. After every step the exact rule: no account has more than its cap, neither in
// what PostgreSQL counts nor in what all workers together may still act on, and the leader charges at least that. While
// a cap was lowered below what is held, that sum may only fall. At quiet ends, progress: shares are fair (a slot for
// each cell; beyond, leaves are equal, and the cells of a leaf have slots in proportion to their demand), and nothing
// unused is kept from who lacks it.

import type { Lease } from "../../shared/ledger/mod.ts";
import type { Coordinator } from "./simulated_coordinator.ts";
import type { Topology, Version } from "./simulated_rules.ts";
import type { Worker } from "./simulated_worker.ts";

export interface Cluster {
  readonly topology: Topology;
  /** Workers that live, and dead ones of which PostgreSQL has connections yet. */
  readonly workers: readonly Worker[];
  readonly coordinators: readonly Coordinator[];
}

export class ExactRule {
  readonly #cluster: Cluster;
  readonly #accounts: readonly string[];
  readonly #accountsOfLeaf: ReadonlyMap<string, readonly number[]>;
  /** Per account: what it may have now, the cap or, while that was lowered, what it had. */
  readonly #bounds: Float64Array;
  readonly #open: Float64Array;
  readonly #potential: Float64Array;
  readonly #floors: Float64Array;
  readonly #charged: Float64Array;
  readonly #index: ReadonlyMap<string, number>;
  readonly #capsChange: boolean;
  #newestEpoch = 0;

  constructor(cluster: Cluster, version: Version, capsChange: boolean) {
    this.#cluster = cluster;
    this.#capsChange = capsChange;
    const { accountsOf } = cluster.topology;
    this.#accounts = [...new Set([...accountsOf.values()].flat())];
    const index = new Map(this.#accounts.map((account, at) => [account, at]));
    this.#index = index;
    this.#accountsOfLeaf = new Map(
      [...accountsOf].map(([leaf, names]) => [leaf, names.map((name) => index.get(name)!)]),
    );
    const { length } = this.#accounts;
    this.#bounds = new Float64Array(length);
    this.#accounts.forEach((account, at) => {
      this.#bounds[at] = version.caps.get(account) ?? Infinity;
    });
    this.#open = new Float64Array(length);
    this.#potential = new Float64Array(length);
    this.#floors = new Float64Array(length);
    this.#charged = new Float64Array(length);
  }

  /** The reason of a breach, or null. */
  check(): string | null {
    const leader = this.#newestLeader();
    this.#charged.fill(Infinity);
    if (leader !== null) this.#followLeader(leader);
    this.#open.fill(0);
    this.#potential.fill(0);
    this.#floors.fill(0);
    for (const worker of this.#cluster.workers) {
      for (const { lease, backends } of worker.pools) {
        const potential = worker.potential(lease, backends);
        if (potential === 0) continue;
        const floor = worker.alive ? Math.min(potential, lease.floor) : 0;
        for (const at of this.#accountsOfLeaf.get(lease.leaf)!) {
          this.#open[at]! += backends.open;
          this.#potential[at]! += potential;
          this.#floors[at]! += floor;
        }
      }
      for (const group of worker.groups) {
        const queries = worker.queries(group);
        for (const at of this.#accountsOfLeaf.get(group.lease.leaf)!) {
          this.#potential[at]! += queries;
        }
      }
      if (!worker.alive) continue;
      for (const lease of worker.clientLeases) {
        const potential = worker.potential(lease, null);
        for (const at of this.#accountsOfLeaf.get(lease.leaf)!) this.#potential[at]! += potential;
      }
    }
    for (let at = 0; at < this.#accounts.length; at++) {
      const bound = this.#bounds[at]!;
      if (this.#open[at]! > bound) {
        return `PostgreSQL has ${this.#open[at]} connections of ${this.#breach(at)}`;
      }
      if (this.#potential[at]! > bound) {
        return `workers may act on ${this.#potential[at]} slots of ${this.#breach(at)}`;
      }
      if (this.#potential[at]! > this.#charged[at]!) {
        return `workers may act on ${this.#potential[at]} slots, of which the leader ` +
          `charges ${this.#charged[at]}, of ${this.#breach(at)}`;
      }
      if (this.#floors[at]! > bound) {
        return `the floors add up to ${this.#floors[at]} of ${this.#breach(at)}`;
      }
    }
    for (const worker of this.#cluster.workers) {
      for (const { lease } of worker.pools) {
        if (lease.floor > lease.granted) {
          return `${worker.name} has a floor of ${lease.floor} in ${lease.leaf} with ${lease.granted} granted`;
        }
      }
    }
    return null;
  }

  #breach(at: number): string {
    const account = this.#accounts[at]!;
    const lines = this.#cluster.workers.flatMap((worker) => {
      const leases: [Lease, number][] = [
        ...worker.pools.map(({ lease, backends }): [Lease, number] => [lease, backends.open]),
        ...worker.groups.map(({ lease }): [Lease, number] => [lease, 0]),
        ...worker.clientLeases.map((lease): [Lease, number] => [lease, 0]),
      ];
      return leases.filter(([{ leaf }]) => this.#accountsOfLeaf.get(leaf)!.includes(at)).map((
        [lease, open],
      ) =>
        `  ${worker.key}${
          worker.alive ? "" : " (dead)"
        } ${lease.leaf}: granted ${lease.granted}, ` +
        `floor ${lease.floor}, held ${lease.held}, open at PostgreSQL ${open}, ` +
        `${Math.round(worker.clock() - worker.table.contactAt)} ms since contact`
      );
    });
    const leaders = this.#cluster.coordinators.filter(({ ledger }) => ledger !== null).map(
      (leader) => {
        const account_ = [...leader.ledger!.accounts()].find(({ name }) => name === account);
        return `  ${leader.name} (epoch ${leader.epoch}): cap ${account_?.cap}, charged ${account_?.charged}`;
      },
    );
    return `${account}, which may have ${this.#bounds[at]}\n${[...lines, ...leaders].join("\n")}`;
  }

  /** The last that took over; null if it is no more, or could not yet. */
  #newestLeader(): Coordinator | null {
    let newest: Coordinator | null = null;
    for (const one of this.#cluster.coordinators) {
      if (one.ledger === null || one.epoch < this.#newestEpoch) continue;
      this.#newestEpoch = one.epoch;
      newest = one;
    }
    return newest;
  }

  /**
   * A cap holds from the moment the newest leader knows it. If more is charged then, that much may remain, but only
   * falls. When that leader is no more, its word stands until the next one has taken over.
   */
  #followLeader({ ledger, version }: Coordinator): void {
    for (const { name, charged } of ledger!.accounts()) {
      const at = this.#index.get(name);
      if (at !== undefined) this.#charged[at] = charged;
    }
    this.#accounts.forEach((account, at) => {
      const cap = version.caps.get(account);
      if (cap === undefined) this.#charged[at] = Infinity;
      else if (this.#charged[at] === Infinity) this.#charged[at] = 0;
      if (!this.#capsChange) return;
      const rest = Math.min(this.#bounds[at]!, this.#charged[at]!);
      this.#bounds[at] = Math.max(cap ?? Infinity, rest);
    });
  }
}

interface Cell {
  readonly worker: Worker;
  readonly lease: Lease;
  readonly sticky: boolean;
  readonly accounts: readonly { name: string; cap: number }[];
  /** Whether there is a slot for it when each that wants some has one. */
  hasOne: boolean;
}

/** Clients, and queries of groups, need slots of several leases at once. */
function needsSeveral({ leaf }: Lease): boolean {
  return /^(clients|group:)/.test(leaf);
}

/** Averages of demand are at the demand but for this. */
const AVERAGING = 1.05;

/** The shares of a mesh with steady demand. */
export class Shares {
  readonly #cells: readonly Cell[];
  readonly #members = new Map<string, Cell[]>();
  /** Accounts of which there are fewer slots than takers: those take turns, and nobody's share is steady. */
  readonly #scarce: ReadonlySet<string>;

  constructor({ workers }: Cluster, version: Version) {
    this.#cells = workers.filter(({ alive }) => alive).flatMap((worker) =>
      worker.leases().flatMap((lease) => {
        const rule = version.rules(lease.leaf);
        if (rule === null) return [];
        const { accounts, sticky } = rule;
        return [{ worker, lease, sticky, accounts, hasOne: false }];
      })
    );
    for (const cell of this.#cells) {
      for (const { name } of cell.accounts) {
        this.#members.set(name, [...this.#members.get(name) ?? [], cell]);
      }
    }
    this.#giveOneEach();
    this.#scarce = this.#findScarce();
  }

  /** Whether slots of a leaf are too few for all that want some. */
  isScarce(leaf: string): boolean {
    const cell = this.#cells.find(({ lease }) => lease.leaf === leaf);
    return cell !== undefined && cell.accounts.some(({ name }) => this.#scarce.has(name));
  }

  /** Those that have to wait for their turn now and then, if there are slots that nobody keeps for himself. */
  waiting(): { readonly worker: Worker; readonly lease: Lease }[] {
    return this.#cells.filter(({ lease, accounts }) =>
      !needsSeveral(lease) && lease.wanted > 0 && this.isScarce(lease.leaf) &&
      accounts.every(({ name, cap }) => this.#stuck(name) < cap)
    );
  }

  #used(account: string): number {
    let used = 0;
    for (const { lease } of this.#members.get(account)!) {
      used += Math.max(lease.granted, lease.held);
    }
    return used;
  }

  /** Slots of an account that are not taken back. */
  #stuck(account: string): number {
    let stuck = 0;
    for (const { lease, sticky } of this.#members.get(account)!) if (sticky) stuck += lease.held;
    return stuck;
  }

  /** The reason why they are not right, or null. */
  check(): string | null {
    for (const cell of this.#cells) {
      const { worker, lease, sticky } = cell;
      const what =
        `${worker.name} ${lease.leaf} (wants ${lease.wanted}, granted ${lease.granted}, holds ${lease.held})`;
      // While more is charged than a cap that was lowered nothing is granted, not even what is held.
      const fits = cell.accounts.every(({ name, cap }) => this.#used(name) <= cap);
      if (sticky && fits && lease.granted < lease.held) {
        return `${what} is asked for what it may keep`;
      }
      if (cell.accounts.some(({ name }) => this.#scarce.has(name))) continue;
      if (!needsSeveral(lease) && lease.held < Math.min(lease.wanted, lease.granted)) {
        return `${what} does not use what it has`;
      }
      if (Math.max(lease.granted, sticky ? lease.held : 0) >= lease.wanted) continue;
      if (lease.pending) return `${what} still waits for more that is not coming`;
      const reasons = cell.accounts.map((account) => this.#slackOf(account, cell));
      if (!reasons.includes(null)) return `${what} lacks its share: ${reasons.join("; ")}`;
    }
    return null;
  }

  /** Why an account is no reason to give a cell no more; null if it is one: full, used, and fairly divided. */
  #slackOf({ name, cap }: { name: string; cap: number }, { lease }: Cell): string | null {
    const used = this.#used(name);
    if (used < cap) return `${name} has ${cap - used} free`;
    const envied = this.#members.get(name)!.find(({ lease: theirs, sticky }) => {
      const stuck = sticky ? theirs.held : 0;
      if (theirs.granted > Math.max(theirs.wanted, stuck)) return true;
      if (theirs.granted <= Math.max(1, stuck)) return false;
      if (theirs.leaf !== lease.leaf) return this.#total(theirs) > this.#total(lease) + 1;
      const [rich, poor] = [
        (theirs.granted - 1) / theirs.wanted,
        (lease.granted + 1) / lease.wanted,
      ];
      return rich > poor * AVERAGING;
    });
    if (envied === undefined) return null;
    const { lease: theirs, worker } = envied;
    return `in ${name}, ${worker.name} ${theirs.leaf} wants ${theirs.wanted}, ` +
      `granted ${theirs.granted}, holds ${theirs.held}`;
  }

  /** What all workers have of a leaf. */
  #total({ leaf }: Lease): number {
    let total = 0;
    for (const { lease } of this.#cells) if (lease.leaf === leaf) total += lease.granted;
    return total;
  }

  #giveOneEach(): void {
    const room = new Map<string, number>();
    for (const { accounts, lease, sticky } of this.#cells) {
      const held = sticky ? lease.held : 0;
      for (const { name, cap } of accounts) room.set(name, (room.get(name) ?? cap) - held);
    }
    for (const cell of this.#cells) {
      const { accounts, lease, sticky } = cell;
      cell.hasOne = sticky && lease.held > 0;
      if (cell.hasOne || lease.wanted === 0) continue;
      cell.hasOne = accounts.every(({ name }) => room.get(name)! > 0);
      if (cell.hasOne) { for (const { name } of accounts) room.set(name, room.get(name)! - 1); }
    }
  }

  #findScarce(): Set<string> {
    const scarce = new Set<string>();
    for (const { hasOne, lease, accounts } of this.#cells) {
      if (!hasOne && lease.wanted > 0) { for (const { name } of accounts) scarce.add(name); }
    }
    // What hangs together moves together.
    for (let before = -1; before < scarce.size;) {
      before = scarce.size;
      for (const { accounts } of this.#cells) {
        if (!accounts.some(({ name }) => scarce.has(name))) continue;
        for (const { name } of accounts) scarce.add(name);
      }
    }
    // What is wanted of a group depends on what there is of those below.
    if ([...scarce].some((name) => name.startsWith("group:"))) {
      for (const name of this.#members.keys()) if (name.startsWith("group:")) scarce.add(name);
    }
    return scarce;
  }
}
