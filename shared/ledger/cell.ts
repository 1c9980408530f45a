// What one worker incarnation is charged for one leaf, and what it was granted. Invariants:
// - charge = max(base, every granted value sent that the worker may still act on or come to act on,
//   target). base = max(held, granted) of the newest report, or what an earlier leader saved.
// - A report says ack = k: the worker will never again act on a grant with seq <= k. So its max(held,
//   granted) can rise above that of the report only by a grant with a seq above k: those stay charged,
//   whether they arrive late, twice, never, or in another order. Only this lowers a charge (and `shown`,
//   when the worker must have given up what it was granted).
// - A report that is not newer than the last one heard of this leaf changes nothing.
// - What a cell is charged its worker has or may get anyway, so to grant just that is no raise. Two kinds
//   of charges may be more: those restored (`ask`), and those by a report that is older than what
//   PostgreSQL showed (`shown`). Neither is granted where accounts are charged beyond their cap.
// - The target counts as charged from when it is decided, so no slot is given away twice; and it is sent
//   only after the charge was handed out to be saved.
// - floor <= granted in every grant, so sums of floors fit where sums of charges fit.

import type { Charge, LeafGrant, LeafReport } from "./messages.ts";
import type { Account, ChargedLeaf, Components } from "./components.ts";
import type { Portion } from "./apportion.ts";
import { Average } from "./average.ts";
import { Taker } from "./fill.ts";
import type { WorkerCharges } from "./worker_charges.ts";

/** A granted value that the worker may act on, or get to act on. */
interface Outstanding {
  seq: number;
  granted: number;
  floor: number;
}

/** Who was asked for slots and has given none back for so long uses all it holds in long transactions. */
const STUCK_MS = 2000;
/** More of them are merged: charged for longer than need be, never for less. */
const OUTSTANDING_MAX = 8;

export class Cell extends Taker implements Portion {
  readonly owner: WorkerCharges;
  leaf: ChargedLeaf;
  index = 0;
  /** reported in this epoch; until then nothing is known but a saved charge */
  known = false;
  held = 0;
  wanted = 0;
  idleMs = 0;
  busyMs = 0;
  /** since when nothing is held or wanted; Infinity: something is */
  idleSince = Infinity;
  reportSeq = 0;
  reportAt = -Infinity;
  /** since when PostgreSQL shows nothing of a silent worker here; Infinity: it does, or was not asked */
  emptySince = Infinity;
  charge = 0;
  /** what the worker is to have, and whether more is on its way */
  target = 0;
  pending = false;
  /** what was handed out for saving last */
  saved: Charge = { charge: 0, floor: 0 };
  sentAt = -Infinity;
  /** highest report seq of the worker that was seen when the last grant of this leaf went out */
  sentReport = 0;
  /** fair share by the last division */
  share = 0;
  weight = 1;
  has = 0;
  shortfall = 0;
  credit = 0;
  /** it was asked to give back, and all it holds is in use for long: see `stuckAt` */
  stuck = false;

  /** when it was first seen to hold so many, more than it is to have; Infinity: it does not */
  #owesSince = Infinity;
  #owesOf = 0;
  readonly #average = new Average();
  /** seq of the grant that asks what is in use; 0: none did, Infinity: it is to be sent */
  #pollSeq = 0;
  /** see LeafGrant */
  #usedUp = 0;
  #base = 0;
  #baseFloor = 0;
  /** rising by seq, falling by granted: one that a later one covers is not kept */
  #outstanding: Outstanding[] = [];
  /** the last grant sent, and the seq of the first message that said just that; 0 = none was sent */
  #sent: Omit<LeafGrant, "poll" | "usedUp">;
  #sentSeq = 0;
  #ack = 0;
  /** the worker acts on no more than this until it has a grant with a higher seq than that */
  #ceiling = Infinity;
  #ceilingSeq = 0;

  constructor(owner: WorkerCharges, key: string, components: Components) {
    super();
    this.owner = owner;
    this.leaf = components.enter(this, key, []);
    this.#sent = { leaf: key, granted: 0, floor: 0, pending: false };
  }

  get accounts(): readonly Account[] {
    return this.leaf.accounts;
  }

  /** It can be raised and lowered: its worker listens, and has said what it has. */
  get movable(): boolean {
    return this.known && this.owner.live;
  }

  /** What it is to have, as far as its worker is known to know. */
  get given(): number {
    return this.acked ? this.target : Math.min(this.target, this.held);
  }

  /** What it has whatever its share is. */
  get kept(): number {
    return this.leaf.sticky || this.stuck ? this.held : 0;
  }

  /** When it will be stuck, if it gives nothing back before. */
  stuckAt(now: number): number {
    if (this.held <= this.target || !this.movable) this.#owesSince = Infinity;
    else if (this.#owesSince === Infinity || this.held < this.#owesOf) this.#owesSince = now;
    this.#owesOf = this.held;
    return this.#owesSince + STUCK_MS;
  }

  /** As much as it can use. */
  get demand(): number {
    return Math.min(this.wanted, this.leaf.cap);
  }

  /** Its demand as it bears on shares: over the last seconds, and what it has in use at any rate. */
  weightAt(now: number): number {
    return Math.max(1, this.#average.at(now), Math.min(this.wanted, this.held));
  }

  /** It will weigh more or less soon, even if nothing is heard of it. */
  wishMoves(now: number): boolean {
    return this.#average.isMoving(now);
  }

  /** The highest floor the worker may act on. */
  get chargedFloor(): number {
    let floor = this.#baseFloor;
    for (const sent of this.#outstanding) floor = Math.max(floor, sent.floor);
    return floor;
  }

  /** The floor of the last grant that was sent. */
  get sentFloor(): number {
    return this.#sent.floor;
  }

  /** The worker has the last grant that was sent, if any was. */
  get acked(): boolean {
    return this.#sentSeq === 0 || this.#ack >= this.#sentSeq;
  }

  /** What is decided differs from what was sent in a way the worker should know. */
  get unsent(): boolean {
    const { granted, pending } = this.#sent;
    if (this.target !== granted) return true;
    return this.pending !== pending && this.wanted > this.target;
  }

  /** It is given more than was sent. */
  get rises(): boolean {
    return this.target > this.#sent.granted;
  }

  /** Nothing is held, wanted, granted or on its way. */
  get blank(): boolean {
    return this.held === 0 && this.wanted === 0 && this.target === 0 && this.charge === 0 &&
      this.acked && !this.unsent;
  }

  /** An earlier leader saved this; nothing else is known. */
  restore({ charge, floor }: Charge): void {
    this.#base = charge;
    this.#baseFloor = Math.min(floor, charge);
    this.target = charge;
    this.#sent = { ...this.#sent, granted: charge, floor: this.#baseFloor };
    this.saved = { charge, floor: this.#baseFloor };
    this.#recharge();
  }

  /** Takes what the worker says; the caller has made sure that it is newer than what was said before. */
  apply(report: LeafReport, seq: number, now: number): void {
    this.known = true;
    this.reportSeq = seq;
    this.reportAt = now;
    this.emptySince = Infinity;
    this.held = report.held;
    this.idleMs = report.idleMs;
    this.busyMs = report.busyMs;
    this.#average.set(report.wanted, now);
    this.#want(report.wanted);
    if (this.held > 0 || this.wanted > 0) this.idleSince = Infinity;
    else this.idleSince = Math.min(this.idleSince, now);
    this.#take(report.ack, report.granted);
    this.#base = Math.max(report.held, report.granted);
    if (report.ack > this.#ceilingSeq) this.#ceiling = Infinity;
    const granted = Math.min(report.granted, this.#ceiling);
    if (this.#sentSeq === 0) {
      this.target = granted;
      this.#sent = { ...this.#sent, granted: report.granted, floor: this.#baseFloor };
    } else if (this.acked) {
      // Less than was granted: it was out of contact and gave up the difference.
      this.target = granted;
    }
    this.#recharge();
  }

  /**
   * PostgreSQL shows so many backends of a worker that must be down to its floor, or below (0). A report from
   * before may still come: it does not know of what was sent since, so that stays charged, up to this; and
   * it tells of more than there is, so the worker is not granted that as if it had it. `seq` is of the last grant.
   */
  shown(backends: number, keepsFloor: boolean, seq: number): void {
    const floor = keepsFloor ? this.chargedFloor : 0;
    const most = Math.max(floor, backends);
    this.held = backends;
    this.#base = most;
    this.#baseFloor = floor;
    for (const sent of this.#outstanding) {
      sent.granted = Math.min(sent.granted, most);
      sent.floor = Math.min(sent.floor, floor);
    }
    this.target = most;
    this.pending = false;
    this.#ceiling = most;
    this.#ceilingSeq = seq;
    this.#recharge();
  }

  /**
   * Grants what was restored, so that the worker says what it has. It may have less than was saved: where the
   * saved charges are more than the cap, it is granted as much less.
   */
  ask(): void {
    this.target = Math.max(0, this.charge + Math.min(0, this.leaf.free));
    this.owner.send(this);
  }

  /** Decides; the caller has made sure that a raise fits the caps. */
  settle(target: number, pending: boolean): void {
    this.target = target;
    this.pending = pending;
    this.#recharge();
    if (this.unsent) this.owner.send(this);
  }

  /** Asks what is in use now. */
  poll(): void {
    this.#pollSeq = Infinity;
    this.owner.send(this);
  }

  /** It has said what is in use since it was asked last. */
  get hasAnswered(): boolean {
    return this.#ack >= this.#pollSeq;
  }

  /** All slots were in use, after the report `seq` had asked. */
  tellUsedUp(seq: number): void {
    this.#usedUp = seq;
    this.owner.send(this);
  }

  /** What the message `seq` says of this leaf; from now on it may arrive. */
  sending(seq: number, floor: number, now: number): LeafGrant {
    const { granted, pending } = this.#sent;
    const isNews = this.target !== granted || this.pending !== pending || floor < this.#sent.floor;
    if (this.#sentSeq === 0 || isNews) {
      this.#sent = { leaf: this.leaf.key, granted: this.target, floor, pending: this.pending };
      this.#sentSeq = seq;
    }
    this.sentAt = now;
    this.sentReport = this.owner.reported;
    this.#push({ seq, granted: this.#sent.granted, floor: this.#sent.floor });
    if (!this.acked) this.owner.unacked.add(this);
    this.#recharge();
    const poll = this.#pollSeq === Infinity;
    if (poll) this.#pollSeq = seq;
    return { ...this.#sent, poll, usedUp: this.#usedUp };
  }

  /** Moves to the components of new rules. */
  move(from: Components, to: Components): void {
    const key = this.leaf.key;
    this.#count(-this.charge, -this.wanted);
    const former = this.leaf.accounts;
    from.leave(this, this.leaf);
    this.leaf = to.enter(this, key, former);
    this.#count(this.charge, this.wanted);
  }

  /** Is charged for nothing any more. */
  drop(from: Components): void {
    this.#count(-this.charge, -this.wanted);
    from.leave(this, this.leaf);
  }

  /** What the worker ignores from now on is not charged any more. */
  #take(ack: number, granted: number): void {
    this.#ack = ack;
    let floor = 0;
    let dropped = 0;
    for (const sent of this.#outstanding) {
      if (sent.seq > ack) break;
      floor = Math.max(floor, sent.floor);
      dropped++;
    }
    if (dropped > 0) this.#outstanding.splice(0, dropped);
    if (this.acked) this.owner.unacked.delete(this);
    if (this.acked && this.#sentSeq > 0) floor = this.#sent.floor;
    else if (dropped === 0) floor = this.#baseFloor;
    this.#baseFloor = Math.min(floor, granted);
  }

  #push(sent: Outstanding): void {
    const all = this.#outstanding;
    for (let last = all.at(-1); last !== undefined; last = all.at(-1)) {
      if (last.granted > sent.granted) break;
      sent.floor = Math.max(sent.floor, last.floor);
      all.pop();
    }
    all.push(sent);
    if (all.length <= OUTSTANDING_MAX) return;
    const oldest = all.shift()!;
    all[0]!.granted = oldest.granted;
    all[0]!.floor = Math.max(all[0]!.floor, oldest.floor);
  }

  #want(wanted: number): void {
    this.#count(0, wanted - this.wanted);
    this.wanted = wanted;
  }

  #recharge(): void {
    const charge = Math.max(this.#base, this.target, this.#outstanding[0]?.granted ?? 0);
    if (charge === this.charge) return;
    this.#count(charge - this.charge, 0);
    this.charge = charge;
    if (charge !== this.saved.charge) this.owner.unsaved();
  }

  #count(charge: number, wanted: number): void {
    for (const account of this.leaf.accounts) {
      account.charged += charge;
      account.wanted += wanted;
    }
  }
}
