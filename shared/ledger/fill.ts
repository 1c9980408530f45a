// Max-min fair division of whole slots ("water-filling"): each cell has a low (what it has anyway), a high
// (what it could use) and accounts that each have room for so many slots more. A water level rises; a
// cell rises with level * weight from its low to its high, until an account of it is full. Pure: works on
// scratch fields of its arguments. Invariants:
// - low <= filled <= max(low, high), and no account gives more than its room, whatever rounding does.
// - Nobody could get more without an account being over-full: no slot is wasted.
// - Who gets the slot that cannot be split is decided by turns and never by name.

export interface FillAccount {
  /** slots it can give beyond the lows; falls as they are given. At most 0: nothing. */
  room: number;
  /** scratch: all that its cells could use beyond their lows */
  asked: number;
  /** scratch: weight of the cells that rise now */
  weight: number;
  /** scratch: the account is full at level `offset / weight` */
  offset: number;
}

export interface FillCell {
  readonly accounts: readonly FillAccount[];
  readonly weight: number;
  /** since when it has been waiting for its turn */
  waitingSince: number;
  low: number;
  high: number;
  /** result */
  filled: number;
  /** result: it has its share rounded up */
  extra: boolean;
  /** scratch: it has its turn */
  keeps: boolean;
  /** scratch: filled, before it is made whole */
  level: number;
  /** scratch: waiting to rise, rising, or done */
  rise: Rise;
}

/** 0: its low is above the level; 1: rises with the level; 2: done. */
export type Rise = 0 | 1 | 2;

/** Who has its turn at the slot that cannot be split; asked when `filled` is the share rounded down. */
export type Keeps<C> = (cell: C) => boolean;

/** Shares are fractions of small numbers: nothing that is not whole is so close to a whole number. */
const ROUNDING = 1e-6;

/** Sets `filled` of all cells; returns how many wait for their turn. */
export function fill<C extends FillCell>(cells: readonly C[], keeps: Keeps<C>): number {
  const contested = giveUncontested(cells);
  if (contested.length === 0) return 0;
  findLevels(contested);
  for (const cell of contested) {
    const whole = Math.floor(cell.level + ROUNDING);
    cell.filled = cell.low;
    give(cell, Math.min(whole - cell.low, roomOf(cell)));
  }
  const waiting = giveTurns(contested, keeps);
  giveRest(contested);
  return waiting;
}

/** Cells of which every account has room for all that is asked of it get all; returns the others. */
function giveUncontested<C extends FillCell>(cells: readonly C[]): C[] {
  for (const { accounts } of cells) {
    for (const account of accounts) account.asked = 0;
  }
  for (const cell of cells) {
    cell.filled = cell.low;
    cell.extra = false;
    if (cell.high <= cell.low) continue;
    for (const account of cell.accounts) account.asked += cell.high - cell.low;
  }
  const contested: C[] = [];
  const content: C[] = [];
  for (const cell of cells) {
    if (cell.high <= cell.low) continue;
    (cell.accounts.some(isContested) ? contested : content).push(cell);
  }
  for (const cell of content) {
    const slots = cell.high - cell.low;
    for (const account of cell.accounts) account.asked -= slots;
    give(cell, slots);
  }
  return contested;
}

function isContested(account: FillAccount): boolean {
  return account.asked > account.room;
}

function roomOf(cell: FillCell): number {
  let room = Infinity;
  for (const account of cell.accounts) room = Math.min(room, account.room);
  return room;
}

function give(cell: FillCell, slots: number): void {
  if (slots <= 0) return;
  cell.filled += slots;
  for (const account of cell.accounts) account.room -= slots;
}

interface Members<C> {
  readonly account: FillAccount;
  readonly cells: C[];
}

/** Lets the level rise from event to event: a cell begins to rise, has all it wants, an account is full. */
function findLevels<C extends FillCell>(contested: readonly C[]): void {
  const byAccount = new Map<FillAccount, Members<C>>();
  const events = new Map<number, { begin: C[]; end: C[] }>();
  const eventAt = (level: number) => {
    let event = events.get(level);
    if (event === undefined) events.set(level, event = { begin: [], end: [] });
    return event;
  };
  for (const cell of contested) {
    cell.rise = 0;
    cell.level = cell.low;
    eventAt(cell.low / cell.weight).begin.push(cell);
    eventAt(cell.high / cell.weight).end.push(cell);
    for (const account of cell.accounts) {
      if (!isContested(account)) continue;
      let members = byAccount.get(account);
      if (members === undefined) byAccount.set(account, members = { account, cells: [] });
      members.cells.push(cell);
      account.weight = 0;
      account.offset = account.room;
    }
  }
  const open = new Set(byAccount.values());
  for (const level of [...events.keys()].sort((a, b) => a - b)) {
    for (;;) {
      const first = firstFull(open, level);
      if (first === null) break;
      const fullAt = first.account.offset / first.account.weight;
      for (const cell of first.cells) {
        if (cell.rise !== 2) stop(cell, Math.max(cell.low, cell.weight * fullAt));
      }
      open.delete(first);
    }
    const { begin, end } = events.get(level)!;
    for (const cell of end) if (cell.rise === 1) stop(cell, cell.high);
    for (const cell of begin) if (cell.rise === 0) start(cell);
  }
}

/** The account that is full first, if it is before `level`. */
function firstFull<C>(open: Iterable<Members<C>>, level: number): Members<C> | null {
  let first: Members<C> | null = null;
  let firstAt = level;
  for (const members of open) {
    const { weight, offset } = members.account;
    if (weight <= 0) continue;
    const at = offset / weight;
    if (at < firstAt) [first, firstAt] = [members, at];
  }
  return first;
}

function start(cell: FillCell): void {
  cell.rise = 1;
  for (const account of cell.accounts) {
    account.weight += cell.weight;
    account.offset += cell.low;
  }
}

function stop(cell: FillCell, level: number): void {
  const rose = cell.rise === 1;
  cell.rise = 2;
  cell.level = rose ? level : cell.low;
  if (!rose) return;
  for (const account of cell.accounts) {
    account.weight -= cell.weight;
    account.offset -= level;
  }
}

/**
 * Rounds shares up as far as there is room: the smallest shares first, of equal ones those that have their
 * turn, then those that have been waiting for longest.
 */
function giveTurns<C extends FillCell>(contested: readonly C[], keeps: Keeps<C>): number {
  const uneven = contested.filter((cell) => cell.level - cell.filled > ROUNDING);
  const able = uneven.filter((cell) => roomOf(cell) >= 1);
  for (const cell of able) cell.keeps = keeps(cell);
  able.sort((a, b) =>
    a.filled - b.filled || Number(b.keeps) - Number(a.keeps) || a.waitingSince - b.waitingSince
  );
  let served = 0;
  for (const cell of able) {
    if (roomOf(cell) < 1) continue;
    roundUp(cell);
    served++;
  }
  return uneven.length - served;
}

function roundUp(cell: FillCell): void {
  give(cell, 1);
  cell.extra = true;
}

/** What rounding left over because an account of some cell was full goes to whoever can take it. */
function giveRest<C extends FillCell>(contested: readonly C[]): void {
  let able = contested.filter((cell) => cell.filled < cell.high);
  while (able.length > 0) {
    able = able.filter((cell) => {
      if (cell.filled >= cell.high || roomOf(cell) < 1) return false;
      give(cell, 1);
      return true;
    });
  }
}
