// Divides the slots of one leaf among its cells, the workers that use the pool, in proportion to their demand:
// as if all clients stood in one queue. Pure: works on fields of its arguments. Invariants:
// - filled <= share <= high, and the shares add up to the total (or to all highs, if that is less).
// - The exact share is level * weight, not below what a cell has anyway nor above what it could use; the
//   whole share is that, rounded up or down.
// - Rounding moves no slot by itself: a cell that has a slot keeps it until its exact share is lower by
//   three quarters of a slot. Over minutes each is rounded up as often as its exact share asks for, whoever
//   it is: a credit grows while a cell has less than its exact share, and falls while it has more.

export interface Portion {
  /** what it has anyway */
  readonly filled: number;
  /** what it could use */
  readonly high: number;
  /** its demand, damped; above 0 */
  readonly weight: number;
  /** slots it has had so far: what it is to keep, where rounding decides */
  readonly has: number;
  /** result */
  share: number;
  /** result: the exact share less the whole one */
  shortfall: number;
  /** its shortfall, summed up over the turns so far */
  credit: number;
}

/** How far ahead, in slots, another has to be for a slot to move that rounding decides. */
const KEEP = 0.5;
/** Nothing that is not whole is so close to a whole number. */
const ROUNDING = 1e-6;

/** `turns`: how long the last division has stood. True: somebody waits for a slot that cannot be split. */
export function apportion(cells: readonly Portion[], total: number, turns: number): boolean {
  const level = levelAt(cells, total);
  const uneven: Portion[] = [];
  let left = total;
  for (const cell of cells) {
    const exact = Math.min(cell.high, Math.max(cell.filled, level * cell.weight));
    cell.credit += cell.shortfall * turns;
    cell.share = Math.floor(exact + ROUNDING);
    cell.shortfall = Math.max(0, exact - cell.share);
    left -= cell.share;
    if (cell.shortfall > ROUNDING) uneven.push(cell);
  }
  uneven.sort((a, b) => claimOf(b) - claimOf(a));
  for (const cell of uneven.slice(0, Math.max(0, left))) {
    cell.share++;
    cell.shortfall--;
  }
  return uneven.length > left;
}

/** All that cells could use is there. */
export function giveAll(cells: readonly Portion[]): void {
  for (const cell of cells) {
    cell.share = cell.high;
    cell.shortfall = cell.credit = 0;
  }
}

function claimOf({ shortfall, credit, has, share }: Portion): number {
  return shortfall + credit + (has > share ? KEEP : 0);
}

/** The level at which the exact shares add up to the total. */
function levelAt(cells: readonly Portion[], total: number): number {
  const bends: { readonly at: number; readonly slope: number }[] = [];
  let sum = 0;
  for (const { filled, high, weight } of cells) {
    sum += filled;
    if (high <= filled) continue;
    bends.push({ at: filled / weight, slope: weight }, { at: high / weight, slope: -weight });
  }
  bends.sort((a, b) => a.at - b.at);
  let level = 0;
  let slope = 0;
  for (const bend of bends) {
    const next = sum + slope * (bend.at - level);
    if (next >= total) {
      return slope > 0 ? Math.min(bend.at, level + Math.max(0, total - sum) / slope) : level;
    }
    sum = next;
    level = bend.at;
    slope += bend.slope;
  }
  return level;
}
