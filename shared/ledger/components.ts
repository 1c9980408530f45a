// Accounts with the sums over their cells, and which accounts hang together. Two accounts are of one
// component when a leaf is charged to both: only then does deciding about one bear on the other, so
// each component is divided by itself, and only when something in it changed. Invariant: `charged` of an
// account is the sum of the charges of its cells at every moment (Cell keeps it).

import type { LeafRules } from "./accounts.ts";
import type { Cell } from "./cell.ts";
import { type FillAccount, Taker } from "./fill.ts";
import { isOfGroup, isSticky, slotsOf } from "./leaf.ts";
import { UNLIMITED } from "./messages.ts";
import { Poll } from "./poll.ts";

export class Account implements FillAccount {
  readonly name: string;
  cap: number;
  /** no limit of the configuration: stands in where a leaf has no rule, or nothing limits it */
  readonly hidden: boolean;
  component: Component;
  charged = 0;
  wanted = 0;
  cells = 0;
  /** leaves charged to it */
  leaves = 0;
  room = 0;
  asked = 0;
  rising = 0;
  offset = 0;
  /** scratch of a division: slots that others have to give back */
  owed = 0;

  constructor(name: string, cap: number, hidden: boolean, component: Component) {
    this.name = name;
    this.cap = cap;
    this.hidden = hidden;
    this.component = component;
  }

  /** May still be granted; negative: the cap fell below what is charged. */
  get free(): number {
    return this.cap - this.charged;
  }
}

/** A leaf that somebody has a charge or a wish for. */
export class ChargedLeaf extends Taker {
  readonly key: string;
  readonly accounts: readonly Account[];
  readonly sticky: boolean;
  readonly slots: ReturnType<typeof slotsOf>;
  /** workers may ask whether all are in use */
  readonly isOfGroup: boolean;
  /** nobody can have more of it */
  readonly cap: number;
  cells = 0;
  /** when what is less than its cells want was divided among them last; null: they had all they want */
  dividedAt: number | null = null;
  /** scratch of a division: what its cells that cannot be moved keep */
  kept = 0;
  /** scratch of a division: what its other cells are to have so far */
  target = 0;

  constructor(key: string, accounts: readonly Account[], sticky: boolean) {
    super();
    this.key = key;
    this.accounts = accounts;
    this.sticky = sticky;
    this.slots = slotsOf(key);
    this.isOfGroup = isOfGroup(key);
    this.cap = Math.min(UNLIMITED, ...accounts.map(({ cap }) => cap));
  }

  get given(): number {
    return this.target;
  }

  /** What each of so many workers can always have, if it has anything; all of them together can. */
  partOf(workers: number): number {
    const [first] = this.accounts;
    if (first!.cap === Infinity) return UNLIMITED;
    return Math.max(1, Math.floor(this.cap / Math.max(1, workers)));
  }

  get component(): Component {
    return this.accounts[0]!.component;
  }

  /** May still be granted to any one cell. */
  get free(): number {
    let free = Infinity;
    for (const account of this.accounts) free = Math.min(free, account.free);
    return free;
  }
}

export class Component {
  readonly accounts = new Set<Account>();
  /** in no order; each knows its index */
  readonly cells: Cell[] = [];
  /** cells that something was heard of that is not decided yet */
  readonly touched = new Set<Cell>();
  /** what changed bears on others: the whole component is to be divided */
  stale = false;
  /** some cell has less than it wants, or an account is charged beyond its cap */
  lacking = false;
  /** of a group of which somebody has asked whether all slots are in use */
  poll: Poll | null = null;
  /** when it is to be divided again if nothing happens: shares change with time, and turns end */
  reviewAt = Infinity;

  add(cell: Cell): void {
    cell.index = this.cells.push(cell) - 1;
  }

  remove(cell: Cell): void {
    const last = this.cells.pop()!;
    if (last !== cell) {
      this.cells[cell.index] = last;
      last.index = cell.index;
    }
    this.touched.delete(cell);
    this.poll?.drop(cell);
  }
}

export class Components {
  readonly #rules: LeafRules;
  readonly #accounts = new Map<string, Account>();
  readonly #leaves = new Map<string, ChargedLeaf>();
  /** touched or stale, oldest first */
  readonly changed = new Set<Component>();
  /** with a poll that is under way or to begin */
  readonly polled = new Set<Component>();
  /** with a review that will be due */
  readonly reviewed = new Set<Component>();

  constructor(rules: LeafRules) {
    this.#rules = rules;
  }

  accounts(): Iterable<Account> {
    return this.#accounts.values();
  }

  hasRule(key: string): boolean {
    return this.#rules(key) !== null;
  }

  /** A cell joins the leaf it is for; `former`: the accounts by the rules before these. */
  enter(cell: Cell, key: string, former: readonly Account[]): ChargedLeaf {
    const leaf = this.#leaves.get(key) ?? this.#open(key, former);
    leaf.cells++;
    for (const account of leaf.accounts) account.cells++;
    leaf.component.add(cell);
    return leaf;
  }

  /** A cell leaves; what nobody uses any more is forgotten. */
  leave(cell: Cell, leaf: ChargedLeaf): void {
    const { component } = leaf;
    component.remove(cell);
    for (const account of leaf.accounts) account.cells--;
    if (--leaf.cells > 0) return;
    this.#leaves.delete(leaf.key);
    for (const account of leaf.accounts) {
      if (--account.leaves > 0) continue;
      this.#accounts.delete(account.name);
      component.accounts.delete(account);
    }
    if (component.accounts.size > 0) return;
    this.polled.delete(component);
    this.changed.delete(component);
    this.reviewed.delete(component);
  }

  /** A cell changed; where some lack something already, that bears on all. */
  touch(cell: Cell): void {
    const { component } = cell.leaf;
    component.touched.add(cell);
    if (component.lacking) component.stale = true;
    this.changed.add(component);
  }

  /** Something was given back, or is missing: who lacks may get it. */
  stir(component: Component): void {
    component.stale = true;
    this.changed.add(component);
  }

  /** A cell of a group was reported, in the report `seq`. */
  hear(cell: Cell, asks: boolean, seq: number, now: number): void {
    const { component } = cell.leaf;
    if (!asks && !this.polled.has(component)) return;
    component.poll ??= new Poll();
    component.poll.hear(cell, asks, seq, now);
    this.polled.add(component);
  }

  /** It is to be divided at `at`, if it is not before. */
  review(component: Component, at: number): void {
    component.reviewAt = Math.min(component.reviewAt, at);
    this.reviewed.add(component);
  }

  stirAll(): void {
    for (const { component } of this.#accounts.values()) this.stir(component);
  }

  /**
   * A leaf without a rule may have nothing, and is charged to its former accounts until it has given all
   * back: its connections still count. One that nothing limits has an account without a cap: what is
   * granted of it is known, should there be a limit some day.
   */
  #open(key: string, former: readonly Account[]): ChargedLeaf {
    const rule = this.#rules(key);
    const limits = rule?.accounts ?? former.filter(({ hidden }) => !hidden);
    const known = limits.map(({ name }) => this.#accounts.get(name));
    const component = this.#joined(known.flatMap((account) => account?.component ?? []));
    const accounts = limits.map(({ name, cap }, at) =>
      known[at] ?? new Account(name, cap, false, component)
    );
    if (rule === null) accounts.push(new Account(`none:${key}`, 0, true, component));
    else if (accounts.length === 0) {
      accounts.push(new Account(`free:${key}`, Infinity, true, component));
    }
    for (const account of accounts) {
      account.leaves++;
      this.#accounts.set(account.name, account);
      component.accounts.add(account);
    }
    // One that was known by a former rule only has its cap by that.
    rule?.accounts.forEach(({ cap }, at) => accounts[at]!.cap = cap);
    const leaf = new ChargedLeaf(key, accounts, rule?.sticky ?? isSticky(key));
    this.#leaves.set(key, leaf);
    return leaf;
  }

  /** One component of several that hang together from now on: the largest takes the others in. */
  #joined(components: readonly Component[]): Component {
    const [whole, ...parts] = [...new Set(components)]
      .sort((a, b) => b.cells.length - a.cells.length);
    if (whole === undefined) return new Component();
    for (const part of parts) {
      for (const account of part.accounts) {
        account.component = whole;
        whole.accounts.add(account);
      }
      for (const cell of part.cells) whole.add(cell);
      for (const cell of part.touched) whole.touched.add(cell);
      this.changed.delete(part);
      this.polled.delete(part);
      this.reviewed.delete(part);
      this.stir(whole);
    }
    return whole;
  }
}
