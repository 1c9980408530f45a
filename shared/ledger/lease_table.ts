// The worker's side of the budget: which slots it may hold, what it reports, and what it gives up
// when the coordinator is out of reach. Single-threaded, no input or output. Invariants:
// - A number rises only by a grant of the promised epoch, newer than what last set that leaf, that
//   answers a report sent less than a lease ago. So nothing delayed on its way for longer than that
//   can raise anything, and a coordinator that has heard nothing for longer knows it.
// - In contact means: a report sent less than a lease ago was answered. It counts from when the report
//   was SENT, so the coordinator, which counts from when it arrived, judges silence later than we do.
// - Out of contact a lease only falls, to what it holds but not below its floor. Nobody is thrown out. So it
//   goes on in contact until it is granted anew: the coordinator may know better what it still holds.
//   One that nothing limits rises instead: there is no sum to keep. Whether something does is the
//   coordinator's word, and until it has spoken that of the worker's own configuration.
// - `ack` is a promise: grants of the epoch up to that seq do nothing for that leaf any more. A lease that
//   is forgotten leaves its promise to all that are made later.

import type { LeafRules } from "./accounts.ts";
import { slotsOf } from "./leaf.ts";
import { Lease } from "./lease.ts";
import type { Grant, LeafGrant, LeafReport, Report } from "./messages.ts";
import { isCount, LEAVES_MAX, UNLIMITED } from "./messages.ts";

/** Reports whose time of sending is known; more than a lease of them. */
const SENT_MAX = 4096;
/** Leases without contact after which a floor that is not in use is given up as well. */
const FLOOR_LEASES = 20;

export interface LeaseTableOptions {
  readonly worker: number;
  readonly incarnation: number;
  readonly leaseMs: number;
  /** of the worker's own configuration; none: each leaf has a limit */
  readonly rules?: LeafRules;
}

export class LeaseTable {
  readonly worker: number;
  readonly incarnation: number;
  /** may be changed: the configuration was read again */
  leaseMs: number;
  #rules: LeafRules;
  readonly #leases = new Map<string, Lease>();
  readonly #dirty = new Set<Lease>();
  /** reported, and no answer yet */
  readonly #unanswered = new Set<Lease>();
  /** when report seq was sent, at seq % SENT_MAX */
  readonly #sentAt = new Float64Array(SENT_MAX).fill(-Infinity);
  #seq = 0;
  #contactAt = -Infinity;
  #expiredAt = -Infinity;
  #anyWaning = false;
  #epoch = 0;
  /** first report seq that carried the promise of the epoch */
  #epochSeq = 1;
  #promiseDue = false;
  #answeredSeq = 0;
  #forgottenAck = 0;

  constructor({ worker, incarnation, leaseMs, rules = () => null }: LeaseTableOptions) {
    this.worker = worker;
    this.incarnation = incarnation;
    this.leaseMs = leaseMs;
    this.#rules = rules;
  }

  /** When the newest report that was answered was sent; -Infinity: none was. */
  get contactAt(): number {
    return this.#contactAt;
  }

  /** Highest epoch seen. */
  get epoch(): number {
    return this.#epoch;
  }

  /** The next report has something to say that the coordinator should hear soon. */
  get reportDue(): boolean {
    return this.#promiseDue || this.#dirty.size > 0;
  }

  /** No contact for a lease or longer. */
  lapsed(now: number): boolean {
    return now - this.#contactAt >= this.leaseMs;
  }

  /** The configuration was read again. That nothing limits a leaf any more is for the coordinator to say. */
  setRules(rules: LeafRules): void {
    this.#rules = rules;
    for (const lease of this.#leases.values()) {
      if (!this.#isFree(lease.leaf)) lease.unlimited = false;
    }
  }

  leases(): Iterable<Lease> {
    return this.#leases.values();
  }

  /** The lease of a leaf, made at its first use; the same object from then on. */
  lease(leaf: string): Lease {
    let lease = this.#leases.get(leaf);
    if (lease === undefined) {
      lease = new Lease(leaf, this.#forgottenAck, this.#isFree(leaf), this.#dirty);
      this.#leases.set(leaf, lease);
    }
    return lease;
  }

  /** Drops a lease that its owner will not use again; false: it is not all zero and answered yet. */
  forget(leaf: string): boolean {
    const lease = this.#leases.get(leaf);
    if (lease === undefined) return true;
    if (!lease.blank || this.#dirty.has(lease) || this.#unanswered.has(lease)) return false;
    this.#forgottenAck = Math.max(this.#forgottenAck, lease.ack);
    return this.#leases.delete(leaf);
  }

  /**
   * Takes a grant; returns the leases whose numbers it set, and those whose last report it answers.
   * None: it is for another incarnation, of an epoch that is over, or says nothing new.
   */
  onGrant(grant: Grant, now: number): readonly Lease[] {
    if (grant.worker !== this.worker || grant.incarnation !== this.incarnation) return [];
    if (!isCount(grant.epoch) || !isCount(grant.seq) || grant.epoch < this.#epoch) return [];
    this.#promise(grant.epoch);
    this.expire(now);
    const sentAt = this.#sent(grant.report);
    if (sentAt > this.#contactAt) this.#contactAt = sentAt;
    const concerned = new Set<Lease>();
    const fresh = now - sentAt < this.leaseMs;
    for (const leafGrant of grant.leaves) {
      if (!isCount(leafGrant.granted) || !isCount(leafGrant.floor)) continue;
      const lease = this.lease(leafGrant.leaf);
      if (grant.seq <= lease.ack) continue;
      set(lease, leafGrant, grant.seq, fresh);
      if (fresh) lease.waning = false;
      this.#believe(lease, leafGrant);
      this.#dirty.add(lease);
      concerned.add(lease);
    }
    this.#answer(grant.report, concerned);
    this.expire(now);
    return [...concerned];
  }

  /** A leader announced itself; true = its epoch is new to us, and a full report is due now. */
  onLeader(epoch: number, _now: number): boolean {
    if (isCount(epoch)) this.#promise(epoch);
    return this.#promiseDue;
  }

  /**
   * What to send now. `full`: all leases that are not all zero, and at least one report; else those
   * touched since their last report, none if none was. The first after a new epoch is always full.
   */
  reports(now: number, full: boolean): Report[] {
    const all = full || this.#promiseDue;
    const chosen = [...this.#dirty];
    if (all) {
      for (const lease of this.#leases.values()) {
        if (!lease.blank && !this.#dirty.has(lease)) chosen.push(lease);
      }
    }
    if (this.#promiseDue) this.#epochSeq = this.#seq + 1;
    this.#promiseDue = false;
    this.#dirty.clear();
    const reports: Report[] = [];
    for (let at = 0; at < chosen.length || (all && at === 0); at += LEAVES_MAX) {
      reports.push(this.#report(chosen.slice(at, at + LEAVES_MAX), now));
    }
    return reports;
  }

  /**
   * Gives up what may not be kept without contact, or what is not held any more after a time without it.
   * Call it before opening and about 10 times a second.
   */
  expire(now: number): void {
    const silentMs = now - this.#contactAt;
    // Stopped, that is: some of what is held may have ended meanwhile, and is not known to have yet.
    const slept = now - this.#expiredAt >= this.leaseMs;
    this.#expiredAt = now;
    if (silentMs < this.leaseMs) {
      if (this.#anyWaning) this.#goOn();
      return;
    }
    this.#anyWaning = true;
    const floorsEnd = silentMs >= FLOOR_LEASES * this.leaseMs;
    for (const lease of this.#leases.values()) {
      if (lease.unlimited) {
        if (lease.granted < UNLIMITED) this.#dirty.add(lease);
        lease.granted = lease.floor = UNLIMITED;
        continue;
      }
      // Of queries it is never taken for unused: they come and go, and PostgreSQL does not show whose they are.
      const mayEnd = floorsEnd && slotsOf(lease.leaf) !== "queries";
      if (mayEnd && (lease.held <= lease.opening || slept)) lease.floor = 0;
      lease.waning = true;
      this.#lower(lease);
    }
  }

  /** In contact again: what was not granted anew. */
  #goOn(): void {
    this.#anyWaning = false;
    for (const lease of this.#leases.values()) {
      if (!lease.waning || lease.granted === 0) continue;
      this.#anyWaning = true;
      this.#lower(lease);
    }
  }

  #lower(lease: Lease): void {
    const kept = Math.max(lease.floor, lease.held - lease.opening);
    if (lease.granted <= kept) return;
    lease.granted = kept;
    this.#dirty.add(lease);
  }

  /** By the worker's own configuration there is such a leaf, and nothing limits it. */
  #isFree(leaf: string): boolean {
    return this.#rules(leaf)?.accounts.length === 0;
  }

  /** What a grant says of whether something limits the leaf. */
  #believe(lease: Lease, { granted, pending }: LeafGrant): void {
    if (granted >= UNLIMITED) lease.unlimited = this.#isFree(lease.leaf);
    // Nothing at all may be no limit: nothing was wanted for long, or nothing can be granted yet.
    else if (granted > 0 || (lease.wanted > 0 && !pending)) lease.unlimited = false;
  }

  #promise(epoch: number): void {
    if (epoch <= this.#epoch) return;
    this.#epoch = epoch;
    this.#promiseDue = true;
    this.#epochSeq = this.#seq + 1;
    this.#forgottenAck = 0;
    for (const lease of this.#leases.values()) {
      // What was given back is reported too: the charge may not have been saved as lower since.
      if (lease.ack > 0 || !lease.blank) this.#dirty.add(lease);
      lease.ack = 0;
      // What an earlier leader had on its way is not, and what it answered is asked again.
      lease.pending = false;
      lease.answeredSeq = 0;
    }
  }

  #report(leases: readonly Lease[], now: number): Report {
    const seq = ++this.#seq;
    this.#sentAt[seq % SENT_MAX] = now;
    const leaves = leases.map((lease): LeafReport => {
      lease.lastReportSeq = seq;
      lease.polled = false;
      this.#unanswered.add(lease);
      const { leaf, held, wanted, granted, ack, asks, busyMs } = lease;
      const idleMs = Math.max(0, Math.floor(lease.idleMs));
      return { leaf, held, wanted, granted, ack, idleMs, asks, busyMs };
    });
    const { worker, incarnation } = this;
    return { worker, incarnation, epoch: this.#epoch, seq, leaves };
  }

  /** When a report was sent; -Infinity: too long ago to know, or never. */
  #sent(seq: number): number {
    if (!isCount(seq) || seq > this.#seq || seq <= this.#seq - SENT_MAX) return -Infinity;
    return this.#sentAt[seq % SENT_MAX]!;
  }

  #answer(seq: number, concerned: Set<Lease>): void {
    // A report from before the promise was seen, but its leaves were not read: that is no answer.
    if (!isCount(seq) || seq > this.#seq || seq < this.#epochSeq) return;
    if (this.#promiseDue || seq <= this.#answeredSeq) return;
    this.#answeredSeq = seq;
    for (const lease of this.#unanswered) {
      lease.answeredSeq = seq;
      if (lease.lastReportSeq > seq) continue;
      this.#unanswered.delete(lease);
      concerned.add(lease);
    }
  }
}

/** A grant that is not fresh may come after the coordinator gave up on us: it only takes. */
function set(lease: Lease, grant: LeafGrant, ack: number, fresh: boolean) {
  const { granted, floor, pending, poll, usedUp } = grant;
  lease.ack = ack;
  if (poll) lease.polled = true;
  lease.usedUp = Math.max(lease.usedUp, usedUp);
  lease.pending = pending;
  lease.granted = fresh ? granted : Math.min(lease.granted, granted);
  lease.floor = Math.min(fresh ? floor : Math.min(lease.floor, floor), lease.granted);
}
