// Max-min fair division of whole slots ("water-filling"): each taker has a low (what it has anyway), a high
// (what it could use) and accounts that each have room for so many slots more. A water level rises, and
// a taker with it, from its low to its high, until an account of it is full. Who takes is not known here:
// cells or whole leaves. Pure: works on scratch fields of its arguments. Invariants:
// - low <= filled <= max(low, high), and no account gives more than its room, whatever rounding does.
// - Nobody could get more without an account being over-full, but for what is held free for one turn.
// - Who gets the slot that cannot be split is decided by turns and never by name.

export interface FillAccount {
  /** slots it can give beyond the lows; falls as they are given. At most 0: nothing. */
  room: number;
  /** scratch: all that its cells could use beyond their lows */
  asked: number;
  /** scratch: how many takers rise now */
  rising: number;
  /** scratch: the account is full at level `offset / rising` */
  offset: number;
}

export abstract class Taker {
  abstract readonly accounts: readonly FillAccount[];
  /**
   * since when it has its share rounded up; null: it was not. Infinity: it is to have it, when others have given
   * back; -Infinity: its turn is over
   */
  turnSince: number | null = null;
  /** since when it has less than it wants and has had no turn; Infinity: it has either */
  waitingSince = Infinity;
  low = 0;
  high = 0;
  /** result */
  filled = 0;
  /** result: it has its share rounded up */
  extra = false;
  /** scratch: it has its turn */
  keeps = false;
  /** scratch: filled, before it is made whole */
  level = 0;
  /** scratch: waiting to rise, rising, or done */
  rise: Rise = 0;
}

/** 0: its low is above the level; 1: rises with the level; 2: done. */
export type Rise = 0 | 1 | 2;

/** Who has its turn at the slot that cannot be split; asked when `filled` is the share rounded down. */
export type Keeps<T> = (taker: T) => boolean;

/** Shares are fractions of small numbers: nothing that is not whole is so close to a whole number. */
const ROUNDING = 1e-6;

/**
 * Sets `filled` of all takers; returns how many wait for their turn. `holdsFree`: turns are short, and what
 * the first of those that wait needs beside what others have their turn at may stay free as long.
 */
export function fill<T extends Taker>(
  takers: readonly T[],
  keeps: Keeps<T>,
  holdsFree = false,
): number {
  const contested = giveUncontested(takers);
  if (contested.length === 0) return 0;
  findLevels(contested);
  for (const taker of contested) {
    const whole = Math.floor(taker.level + ROUNDING);
    taker.filled = taker.low;
    give(taker, Math.min(whole - taker.low, roomOf(taker)));
  }
  const waiting = giveTurns(contested, keeps, holdsFree);
  giveRest(contested);
  return waiting;
}

/** Takers of which every account has room for all that is asked of it get all; returns the others. */
function giveUncontested<T extends Taker>(takers: readonly T[]): T[] {
  for (const { accounts } of takers) {
    for (const account of accounts) account.asked = 0;
  }
  for (const taker of takers) {
    taker.filled = taker.low;
    taker.extra = false;
    if (taker.high <= taker.low) continue;
    for (const account of taker.accounts) account.asked += taker.high - taker.low;
  }
  const contested: T[] = [];
  const content: T[] = [];
  for (const taker of takers) {
    if (taker.high <= taker.low) continue;
    (taker.accounts.some(isContested) ? contested : content).push(taker);
  }
  for (const taker of content) {
    const slots = taker.high - taker.low;
    for (const account of taker.accounts) account.asked -= slots;
    give(taker, slots);
  }
  return contested;
}

function isContested(account: FillAccount): boolean {
  return account.asked > account.room;
}

function roomOf(taker: Taker): number {
  let room = Infinity;
  for (const account of taker.accounts) room = Math.min(room, account.room);
  return room;
}

function give(taker: Taker, slots: number): void {
  if (slots <= 0) return;
  taker.filled += slots;
  for (const account of taker.accounts) account.room -= slots;
}

interface Members<T> {
  readonly account: FillAccount;
  readonly takers: T[];
}

/** Lets the level rise from event to event: a taker begins to rise, has all it wants, an account is full. */
function findLevels<T extends Taker>(contested: readonly T[]): void {
  const byAccount = new Map<FillAccount, Members<T>>();
  const events = new Map<number, { begin: T[]; end: T[] }>();
  const eventAt = (level: number) => {
    let event = events.get(level);
    if (event === undefined) events.set(level, event = { begin: [], end: [] });
    return event;
  };
  for (const taker of contested) {
    taker.rise = 0;
    taker.level = taker.low;
    eventAt(taker.low).begin.push(taker);
    eventAt(taker.high).end.push(taker);
    for (const account of taker.accounts) {
      if (!isContested(account)) continue;
      let members = byAccount.get(account);
      if (members === undefined) byAccount.set(account, members = { account, takers: [] });
      members.takers.push(taker);
      account.rising = 0;
      account.offset = account.room;
    }
  }
  const open = new Set(byAccount.values());
  for (const level of [...events.keys()].sort((a, b) => a - b)) {
    for (;;) {
      const first = firstFull(open, level);
      if (first === null) break;
      const fullAt = first.account.offset / first.account.rising;
      for (const taker of first.takers) {
        if (taker.rise !== 2) stop(taker, Math.max(taker.low, fullAt));
      }
      open.delete(first);
    }
    const { begin, end } = events.get(level)!;
    for (const taker of end) if (taker.rise === 1) stop(taker, taker.high);
    for (const taker of begin) if (taker.rise === 0) start(taker);
  }
}

/** The account that is full first, if it is before `level`. */
function firstFull<T>(open: Iterable<Members<T>>, level: number): Members<T> | null {
  let first: Members<T> | null = null;
  let firstAt = level;
  for (const members of open) {
    const { rising, offset } = members.account;
    if (rising <= 0) continue;
    const at = offset / rising;
    if (at < firstAt) [first, firstAt] = [members, at];
  }
  return first;
}

function start(taker: Taker): void {
  taker.rise = 1;
  for (const account of taker.accounts) {
    account.rising++;
    account.offset += taker.low;
  }
}

function stop(taker: Taker, level: number): void {
  const rose = taker.rise === 1;
  taker.rise = 2;
  taker.level = rose ? level : taker.low;
  if (!rose) return;
  for (const account of taker.accounts) {
    account.rising--;
    account.offset -= level;
  }
}

/**
 * Rounds shares up as far as there is room: the smallest shares first, of equal ones those that have their
 * turn, then those that have been waiting for longest. Who needs slots of several accounts, whose turns end
 * at different moments, would never find all free: see `holdsFree`.
 */
function giveTurns<T extends Taker>(
  contested: readonly T[],
  keeps: Keeps<T>,
  holdsFree: boolean,
): number {
  const uneven = contested.filter((taker) => taker.level - taker.filled > ROUNDING);
  const able = uneven.filter((taker) => roomOf(taker) >= 1);
  for (const taker of able) taker.keeps = keeps(taker);
  able.sort((a, b) =>
    a.filled - b.filled || precedence(a) - precedence(b) || a.waitingSince - b.waitingSince
  );
  let served = 0;
  let mayHold = holdsFree;
  for (const taker of able) {
    if (roomOf(taker) >= 1) {
      roundUp(taker);
      served++;
    } else if (mayHold && !taker.keeps) {
      mayHold = false;
      for (const account of taker.accounts) if (account.room >= 1) account.room--;
    }
  }
  return uneven.length - served;
}

/** Whose turn it is comes before who is to have it next, and both before who waits. */
function precedence({ keeps, turnSince }: Taker): number {
  return !keeps ? 2 : turnSince === Infinity ? 1 : 0;
}

function roundUp(taker: Taker): void {
  give(taker, 1);
  taker.extra = true;
}

/** What rounding left over because an account of some taker was full goes to whoever can take it. */
function giveRest<T extends Taker>(contested: readonly T[]): void {
  let able = contested.filter((taker) => taker.filled < taker.high);
  while (able.length > 0) {
    able = able.filter((taker) => {
      if (taker.filled >= taker.high || roomOf(taker) < 1) return false;
      give(taker, 1);
      return true;
    });
  }
}
