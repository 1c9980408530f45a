// The coordinator's side of the budget: who is charged for how many slots, who gets how many. Pure: no
// input or output, no clock. Saving and sending are the caller's, in the order in which they are handed
// out. Why the sum of charges stays within a cap at every step (see cell.ts, divide.ts,
// worker_charges.ts for each):
// - a charge is at least all that its worker may hold or act on, now or by any message under way;
// - it rises by our decision only, and by no more than cap - sum of charges. What a report shows beyond
//   its charge (after a loss of what was saved, say) is charged as well, and nothing raised meanwhile;
// - it falls only by a report of this epoch, or because the worker is gone, or must be down to its floor;
// - a leader before us can have granted no more than it saved, which is what we began with; the first
//   report of this epoch replaces that, because its worker ignores earlier leaders from then on.

import type { LeafRules } from "./accounts.ts";
import type { Books } from "./books.ts";
import type { Component } from "./components.ts";
import { Components } from "./components.ts";
import { divide, raiseTouched } from "./divide.ts";
import type { Charges, Decision, Report, Saving } from "./messages.ts";
import { isCount, LEAVES_MAX } from "./messages.ts";
import { WorkerCharges } from "./worker_charges.ts";

export interface LedgerOptions {
  readonly epoch: number;
  readonly rules: LeafRules;
  readonly leaseMs: number;
  /** a worker that has not reported for so long is silent: it is neither raised nor lowered */
  readonly silentMs: number;
  readonly now: number;
}

export interface WorkerView {
  readonly worker: number;
  readonly incarnation: number;
  /** of one that has not reported yet: when its charges were restored */
  readonly lastReportAt: number;
  /** restored: not heard in this epoch; live: heard lately; silent: not heard for silentMs */
  readonly state: "restored" | "live" | "silent";
  /** server connections by its last reports, or by what PostgreSQL showed since */
  readonly heldServers: number;
}

export interface AccountView {
  readonly name: string;
  readonly cap: number;
  readonly charged: number;
  readonly wanted: number;
}

/** Incarnations that are gone and remembered as such. */
const GONE_MAX = 65_536;
/** An incarnation that is charged nothing and silent for so long is forgotten. */
const FORGET_MS = 600_000;
/** How often a worker that holds nothing more than before is saved, at most. */
const SAVE_MS = 1000;
/** How often workers are looked through for those that fell silent. */
const LOOK_MS = 100;
/** Cells that may be divided per millisecond in the long run, and at once after a quiet time. */
const WORK_PER_MS = 200;
const WORK_MAX = 50_000;
/** Silence, in leases, after which a worker has given up even the floors it does not use. */
const FLOORS_GONE_LEASES = 30;
/** And for how many of them PostgreSQL has to have shown none of its backends: it may be between two. */
const FLOORS_EMPTY_LEASES = 2;

export class Ledger {
  readonly epoch: number;
  /** may be changed: the configuration was read again */
  leaseMs: number;
  readonly #silentMs: number;
  readonly #startedAt: number;
  readonly #workers = new Map<string, WorkerCharges>();
  readonly #gone = new Set<string>();
  readonly #books: Books;
  /** workers of which charges were restored and nothing was heard yet */
  readonly #awaited = new Set<WorkerCharges>();
  #recovering = false;
  #lookedAt = -Infinity;
  #work = WORK_MAX;
  #workAt: number;

  constructor({ epoch, rules, leaseMs, silentMs, now }: LedgerOptions) {
    this.epoch = epoch;
    this.leaseMs = leaseMs;
    this.#silentMs = silentMs;
    this.#startedAt = now;
    this.#workAt = now;
    this.#books = {
      epoch,
      components: new Components(rules),
      due: new Set(),
      unsaved: new Set(),
      seq: 0,
      liveWorkers: 0,
    };
  }

  /**
   * Charges that an earlier leader saved; to be called before anything is reported. None: it may have some all
   * the same, so nothing is raised before it has reported or is silent.
   */
  restore(worker: number, incarnation: number, charges: Charges, now: number): void {
    const key = keyOf(worker, incarnation);
    if (this.#gone.has(key)) return;
    const charged = this.#workerOf(worker, incarnation, now);
    if (charged.heard) return;
    charged.restore(charges);
    this.#awaited.add(charged);
    this.#recovering = true;
  }

  /** The configuration was read again: caps may rise and fall, leaves may come to nothing. */
  setRules(rules: LeafRules, _now: number): void {
    const before = this.#books.components;
    const after = new Components(rules);
    for (const { cells } of this.#workers.values()) {
      for (const cell of cells.values()) cell.move(before, after);
    }
    this.#books.components = after;
    after.stirAll();
  }

  report(report: Report, now: number): void {
    const { worker, incarnation, epoch, seq } = report;
    if (![worker, incarnation, epoch, seq].every(isCount)) return;
    // One that has promised itself to a later leader takes nothing from us.
    if (epoch > this.epoch || this.#gone.has(keyOf(worker, incarnation))) return;
    const charged = this.#workerOf(worker, incarnation, now);
    charged.take(report, now);
    if (!charged.heard) return;
    // A full message is a part of what it has, and the others follow.
    if (report.leaves.length < LEAVES_MAX) this.#awaited.delete(charged);
    charged.setLive(now - charged.lastReportAt < this.#silentMs);
  }

  /** The process is no more, nor are its connections; what it reported before and comes late is ignored. */
  gone(worker: number, incarnation: number): void {
    const key = keyOf(worker, incarnation);
    this.#gone.add(key);
    if (this.#gone.size > GONE_MAX) {
      for (const oldest of this.#gone) {
        this.#gone.delete(oldest);
        break;
      }
    }
    const charged = this.#workers.get(key);
    if (charged === undefined) return;
    charged.drop();
    this.#workers.delete(key);
    this.#awaited.delete(charged);
  }

  /**
   * What PostgreSQL shows of a worker that has been silent for so long that it has ratcheted down to
   * its floors and what it holds; `shown` is by leaf of server connections, one that is not in it has
   * no backend.
   */
  backends(
    worker: number,
    incarnation: number,
    shown: ReadonlyMap<string, number>,
    now: number,
  ): void {
    const charged = this.#workers.get(keyOf(worker, incarnation));
    if (charged === undefined) return;
    const silentMs = now - charged.lastReportAt;
    if (silentMs <= this.leaseMs * 1.1 + 1000) return;
    const endAfterMs = silentMs > FLOORS_GONE_LEASES * this.leaseMs
      ? FLOORS_EMPTY_LEASES * this.leaseMs
      : Infinity;
    charged.shown(shown, endAfterMs, now);
  }

  /**
   * The process is no more, but some of its backends are, by leaf: it is charged no more than them.
   * The last of them is `gone()`.
   */
  left(worker: number, incarnation: number, shown: ReadonlyMap<string, number>): void {
    this.#workers.get(keyOf(worker, incarnation))?.left(shown);
  }

  /** What is to be sent now: an answer to every report, and what changes for whom. */
  decide(now: number): Decision[] {
    this.#look(now);
    this.#divide(now);
    const decisions: Decision[] = [];
    for (const charged of this.#books.due) {
      if (charged.tell(now, decisions)) this.#books.due.delete(charged);
    }
    return decisions;
  }

  /** Charges to be saved that only fell: a later leader would start from too much, and that is all. */
  unsaved(now: number): Saving[] {
    const savings: Saving[] = [];
    for (const charged of [...this.#books.unsaved]) {
      if (now - charged.savedAt < SAVE_MS) continue;
      const { worker, incarnation } = charged;
      const save = charged.save(now);
      if (save !== null) savings.push({ worker, incarnation, save });
    }
    return savings;
  }

  *workers(): Iterable<WorkerView> {
    for (const charged of this.#workers.values()) {
      const { worker, incarnation, lastReportAt, heldServers, heard, live } = charged;
      const state = !heard ? "restored" : live ? "live" : "silent";
      yield { worker, incarnation, lastReportAt, state, heldServers };
    }
  }

  *accounts(): Iterable<AccountView> {
    for (const { name, cap, charged, wanted, hidden } of this.#books.components.accounts()) {
      if (!hidden) yield { name, cap, charged, wanted };
    }
  }

  #workerOf(worker: number, incarnation: number, now: number): WorkerCharges {
    const key = keyOf(worker, incarnation);
    let charged = this.#workers.get(key);
    if (charged === undefined) {
      charged = new WorkerCharges(worker, incarnation, this.#books, now);
      this.#workers.set(key, charged);
    }
    return charged;
  }

  #look(now: number): void {
    if (this.#recovering) {
      const waits = this.#awaited.size > 0 && now - this.#startedAt < this.#silentMs;
      if (!waits) {
        this.#recovering = false;
        this.#books.components.stirAll();
      }
    }
    if (now - this.#lookedAt < LOOK_MS) return;
    this.#lookedAt = now;
    for (const [key, charged] of this.#workers) {
      const silentMs = now - charged.lastReportAt;
      if (silentMs >= this.#silentMs) charged.setLive(false);
      if (silentMs >= FORGET_MS && charged.cells.size === 0) {
        charged.drop();
        this.#workers.delete(key);
      }
    }
  }

  /**
   * Divides what changed, as much of it as there is time for, longest waiting first. Whoever reported
   * something that is not decided yet is answered when it is.
   */
  #divide(now: number): void {
    const { changed, reviewed } = this.#books.components;
    this.#work = Math.min(WORK_MAX, this.#work + Math.max(0, now - this.#workAt) * WORK_PER_MS);
    this.#workAt = now;
    for (const component of reviewed) {
      if (now >= component.reviewAt) this.#books.components.stir(component);
    }
    for (const component of changed) {
      if (this.#work <= 0) break;
      this.#divideOne(component, now);
      changed.delete(component);
    }
    if (!this.#recovering) this.#poll(now);
    for (const charged of this.#books.due) charged.waitsFor = null;
    for (const { touched } of changed) {
      for (const { leaf, owner } of touched) {
        if (owner.waitsFor !== "clients") owner.waitsFor = leaf.sticky ? "clients" : "servers";
      }
    }
  }

  /** While it is not known what all workers have, nobody is told that all slots are in use. */
  #poll(now: number): void {
    const { polled } = this.#books.components;
    for (const component of polled) {
      if (this.#work <= 0) return;
      const poll = component.poll!;
      this.#work -= poll.advance(component, now);
      if (poll.isIdle) polled.delete(component);
    }
  }

  #divideOne(component: Component, now: number): void {
    const mayRaise = !this.#recovering;
    this.#work -= component.touched.size;
    if (component.stale || !mayRaise || !raiseTouched(component)) {
      this.#work -= component.cells.length;
      if (divide(component, now, mayRaise)) divide(component, now, mayRaise);
      if (mayRaise && !component.lacking) raiseTouched(component);
    }
    component.touched.clear();
    component.stale = false;
    const { reviewed } = this.#books.components;
    if (component.reviewAt === Infinity) reviewed.delete(component);
    else reviewed.add(component);
  }
}

function keyOf(worker: number, incarnation: number): string {
  return `${worker}.${incarnation}`;
}
