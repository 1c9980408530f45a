// All that one worker incarnation is charged, and what it is to be told. A new incarnation under the
// same worker id is another one: the charges of the old stay until it is gone. Invariants:
// - Every report is answered, with the highest report seq seen; so what the worker takes for contact is
//   never later than what we take for its last sign of life.
// - Grants that name leaves go out only to a worker that reported in this epoch: it ignores older ones.
// - What is sent was charged, and the charges handed out for saving, before.
// - Numbers of cells and keys are bounded whatever a worker reports.

import { Cell } from "./cell.ts";
import type { Books } from "./books.ts";
import { LEAF_LENGTH_MAX } from "./leaf.ts";
import type { Charge, Charges, Decision, LeafGrant, LeafReport, Report } from "./messages.ts";
import { isCount, isSlots, LEAVES_MAX, SLOTS_MAX } from "./messages.ts";
import { FOLLOW_MS } from "./shares.ts";

/** Leaves one incarnation can be charged for; those beyond are answered with nothing granted. */
const CELLS_MAX = 20_000;
/** How often the cells of an incarnation are looked through. */
const LOOK_MS = 1000;
/** A leaf that a live worker did not mention for so long is granted again, so that it says what it has. */
const UNHEARD_MS = 5000;
const IDLE_MS = 60_000;
/** An answer waits at most so long for the decision it is to tell. */
const WAIT_MS = 250;

export class WorkerCharges {
  readonly worker: number;
  readonly incarnation: number;
  readonly cells = new Map<string, Cell>();
  /** granted something that is not acknowledged */
  readonly unacked = new Set<Cell>();
  /** highest report seq seen, and when */
  reported = 0;
  lastReportAt: number;
  /** it reported in this epoch: it ignores the grants of earlier ones from then on */
  heard = false;
  live = false;
  /**
   * What its last reports touched and is not decided yet. clients: of a sticky leaf, an answer without more of
   * which turns clients away. servers: of pools, for which an answer is put off to save messages only.
   */
  waitsFor: "clients" | "servers" | null = null;
  savedAt = -Infinity;

  readonly #books: Books;
  /** cells to tell it about */
  readonly #news = new Set<Cell>();
  /** leaves that nobody may have, asked for and not answered yet */
  readonly #refused = new Set<string>();
  /** a leaf with a saved charge was forgotten since */
  #entriesGone = false;
  #answerDue = false;
  #waitsSince = Infinity;
  #heardAt = Infinity;
  #lookedAt = -Infinity;
  /** reports up to here are too old to make a cell: it may be one that was forgotten since */
  #forgottenSeq = 0;

  constructor(worker: number, incarnation: number, books: Books, now: number) {
    this.worker = worker;
    this.incarnation = incarnation;
    this.#books = books;
    this.lastReportAt = now;
  }

  /** Server connections, by its last reports. */
  get heldServers(): number {
    let held = 0;
    for (const { leaf, held: count } of this.cells.values()) {
      if (leaf.slots === "servers") held += count;
    }
    return held;
  }

  restore(charges: Charges): void {
    for (const [key, { charge, floor }] of charges) {
      if (!isSlots(charge) || !isSlots(floor) || charge === 0 || this.cells.has(key)) continue;
      const cell = this.#open(key);
      cell.restore({ charge, floor });
      this.#books.components.stir(cell.leaf.component);
    }
  }

  /** Takes a report of this epoch or an earlier one; the caller looks after `live`. */
  take(report: Report, now: number): void {
    if (report.seq > this.reported) {
      this.reported = report.seq;
      this.lastReportAt = now;
    }
    this.#answerDue = true;
    this.#books.due.add(this);
    if (report.epoch !== this.#books.epoch) return;
    if (!this.heard) {
      this.heard = true;
      this.#heardAt = now;
    }
    for (const leaf of report.leaves) this.#takeLeaf(leaf, report.seq, now);
    this.#look(now);
  }

  /** PostgreSQL shows so many backends of it; the others of its server connections are no more. */
  shown(backends: ReadonlyMap<string, number>, floorsEndAfterMs: number, now: number): void {
    for (const [key, cell] of this.cells) {
      // It may run other queries on these than it did.
      if (cell.leaf.slots !== "servers") continue;
      const count = backends.get(key) ?? 0;
      if (!isSlots(count)) continue;
      cell.emptySince = count > 0 ? Infinity : Math.min(cell.emptySince, now);
      const keepsFloor = now - cell.emptySince < floorsEndAfterMs;
      cell.shown(count, keepsFloor, this.#books.seq);
      this.#books.components.stir(cell.leaf.component);
    }
  }

  /** Its process is no more, and opens nothing; PostgreSQL shows so many backends that it has left. */
  left(backends: ReadonlyMap<string, number>): void {
    this.setLive(false);
    let all = 0;
    for (const count of backends.values()) all += count;
    for (const [key, cell] of this.cells) {
      const { slots } = cell.leaf;
      // Which of the backends still run a query, and of which group, nobody knows.
      const count = slots === "queries" ? all : slots === "clients" ? 0 : backends.get(key) ?? 0;
      if (!isSlots(count) || count >= cell.charge) continue;
      cell.shown(count, false, this.#books.seq);
      this.#books.components.stir(cell.leaf.component);
    }
  }

  /** It fell silent, or is back: its cells may not be moved any more, or again. */
  setLive(live: boolean): void {
    if (this.live === live) return;
    this.live = live;
    this.#books.liveWorkers += live ? 1 : -1;
    for (const cell of this.cells.values()) {
      if (live || cell.leaf.component.lacking) this.#books.components.touch(cell);
    }
  }

  /** It is gone, and so are its slots. */
  drop(): void {
    this.setLive(false);
    for (const cell of this.cells.values()) {
      this.#books.components.stir(cell.leaf.component);
      cell.drop(this.#books.components);
    }
    this.cells.clear();
    this.#books.due.delete(this);
    this.#books.unsaved.delete(this);
  }

  /** There is something to tell it about a cell. */
  send(cell: Cell): void {
    this.#news.add(cell);
    this.#books.due.add(this);
  }

  unsaved(): void {
    this.#books.unsaved.add(this);
  }

  /** Its charges as they are now, to be saved; null: as they were handed out last. */
  save(now: number): Charges | null {
    this.#books.unsaved.delete(this);
    this.savedAt = now;
    const charges = new Map<string, Charge>();
    let changed = this.#entriesGone;
    this.#entriesGone = false;
    for (const [key, cell] of this.cells) {
      const { charge, chargedFloor: floor } = cell;
      if (cell.saved.charge !== charge || cell.saved.floor !== floor) {
        cell.saved = { charge, floor };
        changed = true;
      }
      if (charge > 0) charges.set(key, cell.saved);
    }
    return changed ? charges : null;
  }

  /** What it is to be told now; false: not before what it asked for is decided. */
  tell(now: number, decisions: Decision[]): boolean {
    const mayWait = this.waitsFor === "clients" ||
      (this.waitsFor === "servers" && !this.#hasFreeSlots());
    if (mayWait && this.#answerDue) {
      this.#waitsSince = Math.min(this.#waitsSince, now);
      if (now - this.#waitsSince < WAIT_MS) return false;
    }
    this.#waitsSince = Infinity;
    const cells = this.heard ? this.#toSend() : [];
    if (cells.length === 0 && this.#refused.size === 0 && !this.#answerDue) return true;
    const grants = this.#grants(cells, now);
    const risen = cells.some(({ charge, chargedFloor, saved }) =>
      charge > saved.charge || chargedFloor > saved.floor
    );
    const save = risen ? this.save(now) : null;
    const { worker, incarnation } = this;
    grants.forEach((grant, at) =>
      decisions.push({ worker, incarnation, grant, save: at === 0 ? save : null })
    );
    this.#answerDue = false;
    this.#news.clear();
    this.#refused.clear();
    return true;
  }

  /** It gets slots of a pool that nobody contends for: they do not wait for the division of another. */
  #hasFreeSlots(): boolean {
    if (!this.heard) return false;
    for (const cell of this.#news) if (cell.rises && !cell.leaf.component.lacking) return true;
    return false;
  }

  /** News, and what may have been lost: granted before the last report, which does not acknowledge it. */
  #toSend(): Cell[] {
    if (this.#answerDue) {
      for (const cell of this.unacked) if (cell.sentReport < this.reported) this.#news.add(cell);
    }
    return [...this.#news];
  }

  #grants(cells: readonly Cell[], now: number): Decision["grant"][] {
    const { worker, incarnation, reported: report } = this;
    const { epoch } = this.#books;
    const grants: Decision["grant"][] = [];
    const refused = [...this.#refused];
    const count = cells.length + refused.length;
    for (let at = 0; at === 0 || at < count; at += LEAVES_MAX) {
      const seq = ++this.#books.seq;
      const leaves = cells.slice(at, at + LEAVES_MAX)
        .map((cell): LeafGrant => cell.sending(seq, this.#floorOf(cell), now));
      const from = Math.max(0, at - cells.length);
      for (const leaf of refused.slice(from, Math.max(from, at + LEAVES_MAX - cells.length))) {
        leaves.push({ leaf, granted: 0, floor: 0, pending: false, poll: false, usedUp: 0 });
      }
      grants.push({ worker, incarnation, epoch, seq, report, leaves });
    }
    return grants;
  }

  /** An equal part of the cap, at least one: what it can always have, if it has anything. */
  #floorOf({ target, leaf }: Cell): number {
    return Math.min(target, leaf.partOf(this.#books.liveWorkers));
  }

  #takeLeaf(report: LeafReport, seq: number, now: number): void {
    const { held, granted, idleMs } = report;
    if (typeof report.leaf !== "string" || report.leaf.length > LEAF_LENGTH_MAX) return;
    if (!isSlots(held) || !isSlots(granted) || !isCount(report.ack) || !isCount(idleMs)) return;
    if (!isCount(report.wanted) || !isCount(report.busyMs)) return;
    const cell = this.cells.get(report.leaf) ?? this.#meet(report, seq);
    if (cell === null || seq <= cell.reportSeq) return;
    const wanted = Math.min(report.wanted, SLOTS_MAX);
    const ack = Math.min(report.ack, this.#books.seq);
    const { charge, demand, held: heldBefore, known, wanted: wantedBefore } = cell;
    const settled = Math.max(cell.share, cell.target);
    cell.apply({ ...report, wanted, ack }, seq, now);
    if (cell.blank) {
      this.#forget(cell);
      return;
    }
    const { components } = this.#books;
    const { component } = cell.leaf;
    if (cell.leaf.isOfGroup) components.hear(cell, report.asks, seq, now);
    // Above its share and what it has, a wish bears on shares slowly.
    if (component.lacking && wanted !== wantedBefore) {
      components.review(component, now + FOLLOW_MS);
    }
    const wishMatters = cell.demand !== demand && Math.min(cell.demand, demand) <= settled;
    const heldMatters = cell.leaf.sticky && cell.held !== heldBefore;
    const overCharged = cell.charge > charge && cell.leaf.free < 0;
    if (overCharged) components.stir(component);
    const matters = component.lacking
      ? cell.charge !== charge || wishMatters || heldMatters
      : cell.demand > demand || cell.demand > cell.target;
    if (matters || overCharged || !known) components.touch(cell);
    if (cell.unsent) this.send(cell);
  }

  /** A leaf that it is not charged for yet; null: it needs no cell. */
  #meet({ leaf, held, wanted, granted, ack }: LeafReport, seq: number): Cell | null {
    if (seq <= this.#forgottenSeq || (held === 0 && wanted === 0 && granted === 0)) return null;
    const known = this.#books.components.hasRule(leaf);
    const has = held > 0 || granted > 0;
    if (this.cells.size < CELLS_MAX && (known || has)) {
      const cell = this.#open(leaf);
      if (!known) this.send(cell);
      return cell;
    }
    // Told once: it acknowledges, and is not asked to acknowledge that again.
    if ((ack === 0 || has) && this.#refused.size < CELLS_MAX) {
      this.#refused.add(leaf);
      this.#books.due.add(this);
    }
    return null;
  }

  #open(key: string): Cell {
    const cell = new Cell(this, key, this.#books.components);
    this.cells.set(key, cell);
    return cell;
  }

  #forget(cell: Cell): void {
    const { component } = cell.leaf;
    if (component.lacking) this.#books.components.stir(component);
    cell.drop(this.#books.components);
    this.cells.delete(cell.leaf.key);
    this.unacked.delete(cell);
    this.#news.delete(cell);
    this.#forgottenSeq = Math.max(this.#forgottenSeq, cell.reportSeq);
    if (cell.saved.charge > 0) {
      this.#entriesGone = true;
      this.unsaved();
    }
  }

  /** Takes idle leaves back, and asks after those it has not mentioned. */
  #look(now: number): void {
    if (now - this.#lookedAt < LOOK_MS) return;
    this.#lookedAt = now;
    for (const cell of this.cells.values()) {
      if (!cell.known) {
        if (now - Math.max(this.#heardAt, cell.sentAt) >= LOOK_MS) cell.ask();
      } else if (now - Math.max(cell.reportAt, cell.sentAt) >= UNHEARD_MS) {
        this.send(cell);
      } else if (cell.sentFloor > this.#floorOf(cell)) {
        // There are more workers now: an equal part is less.
        this.send(cell);
      } else if (cell.target > 0 && now - cell.idleSince >= IDLE_MS) {
        cell.settle(0, false);
      }
    }
  }
}
