// What each cell of a component should have: the rule by which slots follow the clients.
// 1. Every cell with demand has one slot; where there are fewer slots than such cells, they take turns.
// 2. Beyond, leaves are equal (max-min fair): of an account that several pools share, one that is spread over
//    many workers gets no more than one that is on a single worker, however many clients either has.
// 3. What a leaf gets is divided among its cells in proportion to their demand, averaged over about two
//    seconds, but to none less than its one: of 8 slots, 90, 4, 3 and 3 clients get 5, 1, 1 and 1. So a
//    client waits about as long on one worker as on another. What clients hold already (sticky) they keep.
// 4. What is in use for long by who was asked to give some back is not there for others: it is theirs, sticky or not.
// Shares are whole, and what rounding decides moves by turns of minutes, never with each report.

import { apportion, giveAll } from "./apportion.ts";
import type { Cell } from "./cell.ts";
import type { ChargedLeaf, Component } from "./components.ts";
import { fill, type Taker } from "./fill.ts";

/** How long who has it keeps the slot that others need as much: shorter when they have none at all. */
const TURN_MS = 300_000;
const ONLY_TURN_MS = 500;
/** How often turns over the slots of one leaf are looked after. */
const TURN_LOOK_MS = 5000;
/** How often shares follow demands that have changed. */
export const FOLLOW_MS = 250;

/** Sets `share` of the cells that can be moved, and returns them. The others keep what they have. */
export function findShares(component: Component, now: number): Cell[] {
  for (const account of component.accounts) account.room = account.cap;
  component.reviewAt = Infinity;
  const movable: Cell[] = [];
  const leaves = new Map<ChargedLeaf, Cell[]>();
  for (const cell of component.cells) {
    const { leaf } = cell;
    let cells = leaves.get(leaf);
    if (cells === undefined) {
      leaves.set(leaf, cells = []);
      leaf.kept = 0;
    }
    const stuckAt = cell.stuckAt(now);
    cell.stuck = stuckAt <= now;
    if (!cell.stuck) component.reviewAt = Math.min(component.reviewAt, stuckAt);
    cell.low = cell.kept;
    const kept = cell.movable ? cell.low : cell.charge;
    for (const account of cell.accounts) account.room -= kept;
    if (cell.movable) {
      movable.push(cell);
      cells.push(cell);
    } else {
      leaf.kept += kept;
      cell.shortfall = 0;
    }
  }
  for (const cell of movable) {
    cell.high = Math.max(cell.low, Math.min(1, cell.demand));
    // It has not waited yet: it still has what it is to give back.
    if (cell.held > 0) cell.waitingSince = Infinity;
  }
  component.reviewAt = Math.min(component.reviewAt, fillByTurns(movable, now, ONLY_TURN_MS));
  for (const [leaf, cells] of leaves) {
    leaf.low = leaf.high = leaf.target = leaf.kept;
    for (const cell of cells) {
      cell.high = Math.max(cell.low, cell.demand);
      leaf.low += cell.filled;
      leaf.high += cell.high;
      leaf.target += cell.target;
    }
  }
  const turnAt = fillByTurns([...leaves.keys()], now, TURN_MS);
  component.reviewAt = Math.min(component.reviewAt, turnAt);
  for (const [leaf, cells] of leaves) {
    component.reviewAt = Math.min(component.reviewAt, divideLeaf(leaf, cells, now));
  }
  return movable;
}

/**
 * When turns are to be looked at again, if somebody waits for one. A turn begins when its worker has the slot: others
 * may have to end a transaction first, and the grant may be lost. Who is to have it next is so until then.
 */
function fillByTurns<T extends Taker & { readonly target: number; readonly given: number }>(
  takers: readonly T[],
  now: number,
  turnMs: number,
): number {
  for (const taker of takers) if (taker.waitingSince === Infinity) taker.waitingSince = now;
  const waiting = fill(
    takers,
    ({ turnSince, target, filled }) =>
      turnSince === null ? target > filled : now - turnSince < turnMs,
    turnMs === ONLY_TURN_MS,
  );
  let turnAt = Infinity;
  for (const taker of takers) {
    const isGiven = Math.max(taker.given, taker.low) >= taker.filled;
    if (isGiven && (taker.extra || taker.filled >= taker.high)) taker.waitingSince = Infinity;
    if (!taker.extra) {
      // Whose turn is over, or lost, does not keep what was not taken from it yet.
      if (taker.filled >= taker.high) taker.turnSince = null;
      else if (taker.turnSince !== null) taker.turnSince = -Infinity;
      continue;
    }
    if (taker.turnSince === null || now - taker.turnSince >= turnMs) taker.turnSince = Infinity;
    if (taker.turnSince === Infinity && isGiven) taker.turnSince = now;
    if (taker.turnSince === Infinity) turnAt = Math.min(turnAt, now + FOLLOW_MS);
    else if (waiting > 0) turnAt = Math.min(turnAt, taker.turnSince + turnMs);
  }
  return turnAt;
}

/** Divides what a leaf has among its cells; when that is to be done again. */
function divideLeaf(leaf: ChargedLeaf, cells: readonly Cell[], now: number): number {
  if (leaf.filled >= leaf.high) {
    giveAll(cells);
    leaf.dividedAt = null;
    return Infinity;
  }
  const { dividedAt } = leaf;
  let moving = false;
  for (const cell of cells) {
    cell.weight = cell.weightAt(now);
    // Before there was too little, cells had what they were given, whatever their share was.
    cell.has = dividedAt === null ? cell.target : cell.share;
    moving ||= cell.wishMoves(now);
  }
  const stoodMs = dividedAt === null ? 0 : Math.min(now - dividedAt, TURN_LOOK_MS);
  const waiting = apportion(cells, leaf.filled - leaf.kept, stoodMs / TURN_MS);
  leaf.dividedAt = now;
  if (moving) return now + FOLLOW_MS;
  return waiting ? now + TURN_LOOK_MS : Infinity;
}
