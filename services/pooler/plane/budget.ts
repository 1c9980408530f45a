// The worker's slots: one lease for each pool and for each limit on clients, reported to the budget
// (the mesh's coordinator, or with `budget_mode = static` the control thread) and raised and lowered by
// its grants. Nothing waits here: who lacks a slot queues, and is told when its lease changes.
// Invariants: a slot is taken before what it is for is opened, and given back when that has ended at
// the other side too; without contact leases only shrink, see shared/ledger.

import type { Config } from "../../../shared/config/mod.ts";
import { type Grant, leafRules, type Lease, LeaseTable } from "../../../shared/ledger/mod.ts";
import type { Plane } from "./plane.ts";

/** What a lease is for. */
export interface LeaseOwner {
  /** Its numbers changed, or a report of it was answered. */
  onLease(): void;
  /** Brings the lease's `held` up to date, where it is not kept so. */
  tally?(): void;
  /** Brings the lease's `wanted` and `idleMs` up to date; `touch()` if that changed what it wants. */
  measure(now: number): void;
}

/** Reports that may follow each other at once, and the pace of those beyond. */
const burst = 4;
const paceMs = 50;
/** Between two reports of everything, at most; a short lease needs answers more often. */
const refreshMs = 1000;
const refreshesPerLease = 4;
/** Answers take milliseconds, or, while a coordinator takes over, a few seconds. */
const answerMs = 3000;

export class Budget {
  readonly #plane: Plane;
  readonly #clock: () => number;
  readonly #refreshMs: number;
  readonly #table: LeaseTable;
  readonly #retired = new Set<Lease>();
  readonly #owners = new Map<Lease, LeaseOwner>();
  #tokens = burst;
  #tokensAt = 0;
  #refreshedAt = -Infinity;
  #urgent = false;
  /** A report that had to wait for its turn is on its way. */
  #paced = false;

  /** `leaseMs`: how long grants hold without contact; Infinity where contact can't be lost. */
  constructor(plane: Plane, leaseMs: number, clock = () => performance.now()) {
    this.#plane = plane;
    this.#clock = clock;
    this.#refreshMs = Math.min(refreshMs, leaseMs / refreshesPerLease);
    const { workerId, incarnation } = plane.seat;
    const rules = leafRules(plane.config);
    this.#table = new LeaseTable({ worker: workerId, incarnation, leaseMs, rules });
  }

  lease(leaf: string, owner: LeaseOwner): Lease {
    const lease = this.#table.lease(leaf);
    this.#owners.set(lease, owner);
    this.#retired.delete(lease);
    return lease;
  }

  /** The owner has no more use for the lease: it is forgotten when nothing of it is left. */
  retire(lease: Lease): void {
    this.#retired.add(lease);
  }

  /** The configuration has changed. */
  setRules(config: Config): void {
    this.#table.setRules(leafRules(config));
  }

  get leases(): Iterable<Lease> {
    return this.#owners.keys();
  }

  /** Milliseconds since the newest report that was answered; Infinity before the first. */
  get silentMs(): number {
    return this.#clock() - this.#table.contactAt;
  }

  /** Nobody has answered for so long that no answer is to be expected soon. */
  get isSilent(): boolean {
    return this.silentMs > answerMs;
  }

  /** Out of contact for so long that nothing may be opened beyond the floors. */
  get isLost(): boolean {
    return this.#table.lapsed(this.#clock());
  }

  /** For the cold moment before something is opened: the process may have slept since the last sweep. */
  expire(): void {
    this.#tally();
    this.#table.expire(this.#clock());
  }

  #tally(): void {
    for (const owner of this.#owners.values()) owner.tally?.();
  }

  /** Something lacks a slot, or gave one back that others may lack: report after this batch. */
  ask(): void {
    this.#urgent = true;
  }

  onBatchEnd(): void {
    if (this.#urgent) this.#report();
  }

  onGrant(grant: Grant): void {
    for (const lease of this.#table.onGrant(grant, this.#clock())) {
      this.#owners.get(lease)?.onLease();
    }
  }

  onLeader(epoch: number): void {
    if (this.#table.onLeader(epoch, this.#clock())) this.refresh();
  }

  /** Says everything again: whoever listened may have forgotten it. */
  refresh(): void {
    this.#refreshedAt = -Infinity;
    this.#urgent = true;
  }

  /** Called ten times a second. */
  sweep(now: number): void {
    this.expire();
    for (const owner of this.#owners.values()) owner.measure(now);
    for (const lease of this.#retired) {
      if (!this.#table.forget(lease.leaf)) continue;
      this.#retired.delete(lease);
      this.#owners.delete(lease);
    }
    this.#report();
  }

  #report(): void {
    const now = this.#clock();
    if (!this.#mayReport(now)) {
      if (this.#urgent) this.#reportLater();
      return;
    }
    this.#urgent = false;
    const full = now - this.#refreshedAt >= this.#refreshMs;
    if (full) this.#refreshedAt = now;
    this.#tally();
    const reports = this.#table.reports(now, full);
    if (reports.length === 0) return;
    this.#tokens--;
    this.#plane.control.post({ type: "reports", reports });
  }

  #reportLater(): void {
    if (this.#paced) return;
    this.#paced = true;
    this.#plane.reactor.after(paceMs, () => {
      this.#paced = false;
      this.#report();
    });
  }

  #mayReport(now: number): boolean {
    const more = Math.floor((now - this.#tokensAt) / paceMs);
    if (more > 0) {
      this.#tokens = Math.min(burst, this.#tokens + more);
      this.#tokensAt = this.#tokens === burst ? now : this.#tokensAt + more * paceMs;
    }
    return this.#tokens > 0;
  }
}
