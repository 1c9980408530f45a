// Decides what the cells of one component are to have: how they get from what they have to their shares
// (shares.ts). Pure: no message is made here. Invariants:
// - A raise takes only what is free: cap - sum of charges, in every account of the leaf. What others
//   are asked to give back is free when they have said that it is, not before. While an account is
//   charged beyond its cap nothing of it is raised, not even to what a cell is charged anyway.
// - Nobody is lowered below its fair share, a sticky cell not below what it holds, and no more is taken
//   back than those lack who have less than their share (or than the cap fell by).
// - While nobody lacks anything nothing is lowered, and little is raised: a wish that goes up and down
//   below what was granted moves nothing.

import type { Cell } from "./cell.ts";
import type { Component } from "./components.ts";
import { fill } from "./fill.ts";
import { findShares } from "./shares.ts";

/**
 * The short way, for when nobody lacks anything: gives each touched cell what it wants, and some more in
 * advance where much is free. False: not all of it fits, nothing was given, and the component must be divided.
 */
export function raiseTouched(component: Component): boolean {
  const cells = [...component.touched].filter((cell) => cell.movable);
  if (!fits(cells)) return false;
  for (const cell of cells) cell.settle(Math.max(cell.target, cell.demand), false);
  for (const cell of cells) topUp(cell);
  return true;
}

/** What a cell would take of what is free to have all it wants. */
function needOf(cell: Cell): number {
  return Math.max(0, cell.demand - cell.charge);
}

function fits(cells: readonly Cell[]): boolean {
  for (const { accounts } of cells) {
    for (const account of accounts) account.room = account.free;
  }
  for (const cell of cells) {
    const need = needOf(cell);
    for (const account of cell.accounts) account.room -= need;
  }
  return cells.every(({ accounts }) => accounts.every(({ room }) => room >= 0));
}

/** Slots in advance: half of what is free, divided by all; renewed when half of that is used up. */
function topUp(cell: Cell): void {
  if (cell.wanted === 0) return;
  let most = cell.leaf.cap - cell.demand;
  for (const account of cell.accounts) {
    most = Math.min(most, Math.floor(account.free / 2 / account.cells));
  }
  if (most < 1 || (cell.target - cell.demand) * 2 >= most) return;
  cell.settle(Math.max(cell.target, cell.demand + most), false);
}

/**
 * Divides the whole component. `mayRaise` false: nobody is given anything yet. True: a raise was taken back
 * that had not been sent, and what it took is free again: divide once more.
 */
export function divide(component: Component, now: number, mayRaise: boolean): boolean {
  const movable = findShares(component, now);
  const decided = mayRaise ? raise(movable) : new Map<Cell, number>();
  reclaim(component, movable, decided);
  component.lacking = false;
  let freed = false;
  for (const cell of movable) {
    const target = decided.get(cell) ?? cell.target;
    const { charge } = cell;
    // What is held for good is no raise to wait for, even where it cannot be granted.
    const has = Math.max(target, cell.kept);
    cell.settle(target, has < (mayRaise ? cell.share : cell.high));
    if (cell.charge < charge) freed = true;
    if (target < cell.high) component.lacking = true;
  }
  for (const account of component.accounts) if (account.free < 0) component.lacking = true;
  return freed && component.lacking;
}

/** Gives what is free now to those that have less than their share: to those that have least, first. */
function raise(movable: readonly Cell[]): Map<Cell, number> {
  const decided = new Map<Cell, number>();
  const lacking = movable.filter(({ target, share, stuck, held, leaf }) =>
    Math.max(target, stuck ? held : 0) < share && leaf.free >= 0
  );
  for (const cell of lacking) {
    for (const account of cell.accounts) account.room = account.free;
    cell.low = cell.charge;
    cell.high = Math.max(cell.charge, cell.share);
  }
  fill(lacking, () => false);
  for (const cell of lacking) {
    const target = Math.min(cell.filled, cell.share);
    if (target > cell.target) decided.set(cell, target);
    cell.high = Math.max(cell.kept, cell.demand);
  }
  return decided;
}

/** How much a cell can give back, in the order in which it hurts least. */
const stages: readonly {
  spare(cell: Cell): number;
  before(a: Cell, b: Cell): number;
}[] = [
  {
    // granted, but not in use
    spare: (cell) => cell.target - Math.max(cell.held, cell.share),
    before: (a, b) => (b.target - b.held) - (a.target - a.held),
  },
  {
    // idle: those that have been for longest
    spare: (cell) => Math.min(cell.target, cell.held) - Math.max(cell.wanted, cell.share),
    before: (a, b) => b.idleMs - a.idleMs,
  },
  {
    // in use, beyond the fair share
    spare: (cell) => cell.target - cell.share,
    before: (a, b) => (b.target - b.share) - (a.target - a.share),
  },
];

/** Takes back what is lacking; what is on its way back already counts as given. */
function reclaim(
  component: Component,
  movable: readonly Cell[],
  decided: Map<Cell, number>,
): void {
  for (const account of component.accounts) account.owed = -account.cap;
  for (const cell of component.cells) {
    const due = cell.movable ? Math.max(cell.target, cell.share) : cell.charge;
    for (const account of cell.accounts) account.owed += due;
  }
  let rich = movable.filter((cell) => cell.target > cell.share && owedOf(cell) > 0);
  for (const { spare, before } of stages) {
    if (rich.length === 0) return;
    for (const cell of rich.filter((cell) => spare(cell) > 0).sort(before)) {
      const target = decided.get(cell) ?? cell.target;
      const slots = Math.min(spare(cell), target - cell.share, owedOf(cell));
      if (slots <= 0) continue;
      decided.set(cell, target - slots);
      for (const account of cell.accounts) account.owed -= slots;
    }
    rich = rich.filter((cell) =>
      owedOf(cell) > 0 && (decided.get(cell) ?? cell.target) > cell.share
    );
  }
}

/** The most that an account of the cell lacks. */
function owedOf(cell: Cell): number {
  let owed = 0;
  for (const account of cell.accounts) owed = Math.max(owed, account.owed);
  return owed;
}
