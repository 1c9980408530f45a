// The division of slots: the classic cases by hand, and random ones against what must always hold.

import type { FillAccount, FillCell, Keeps } from "../../shared/ledger/fill.ts";
import { fill } from "../../shared/ledger/fill.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";

const test = suite("ledger/fill");

interface Row {
  readonly accounts: readonly number[];
  readonly low?: number;
  readonly high: number;
  readonly weight?: number;
}

function accountOf(room: number): FillAccount {
  return { room, asked: 0, weight: 0, offset: 0 };
}

function cellsOf(caps: readonly number[], rows: readonly Row[]): FillCell[] {
  const accounts = caps.map(accountOf);
  return rows.map(({ accounts: of, low = 0, high, weight = 1 }, index): FillCell => {
    for (const at of of) accounts[at]!.room -= low;
    const own = of.map((at) => accounts[at]!);
    const scratch = { filled: 0, extra: false, keeps: false, level: 0, rise: 0 } as const;
    return { accounts: own, weight, waitingSince: index, low, high, ...scratch };
  });
}

const nobodyKeeps: Keeps<FillCell> = () => false;

/** Divides room under `caps`; what each cell gets. */
function divide(caps: readonly number[], rows: readonly Row[], keeps = nobodyKeeps): number[] {
  const cells = cellsOf(caps, rows);
  fill(cells, keeps);
  return cells.map(({ filled }) => filled);
}

/** Cells of one account that want so much each. */
function wishes(...highs: number[]): Row[] {
  return highs.map((high) => ({ accounts: [0], high }));
}

const rows: readonly [string, readonly number[], readonly Row[], readonly number[]][] = [
  ["gives all when all fits", [10], wishes(1, 2, 3), [1, 2, 3]],
  ["gives nothing of nothing", [0], wishes(1, 2), [0, 0]],
  ["divides evenly what is not enough", [9], wishes(10, 10, 10), [3, 3, 3]],
  ["gives the modest all, the rest to the others", [10], wishes(1, 10, 10, 2), [1, 4, 3, 2]],
  ["gives whole slots only", [2], wishes(5, 5, 5), [1, 1, 0]],
  ["leaves an account over its cap alone", [2], [
    { accounts: [0], low: 3, high: 5 },
    { accounts: [0], high: 5 },
  ], [3, 0]],
  ["lifts those below the level first", [10], [
    { accounts: [0], low: 6, high: 9 },
    { accounts: [0], high: 9 },
    { accounts: [0], high: 9 },
  ], [6, 2, 2]],
  ["obeys the tightest of several accounts", [10, 4], [
    { accounts: [0], high: 9 },
    { accounts: [0, 1], high: 9 },
    { accounts: [1], high: 9 },
  ], [8, 2, 2]],
  ["gives what a joint account leaves to who can use it", [3, 100, 12], [
    { accounts: [0, 2], high: 50 },
    { accounts: [1, 2], high: 50 },
  ], [3, 9]],
  ["divides by weight", [9], [
    { accounts: [0], high: 50, weight: 2 },
    { accounts: [0], high: 50, weight: 1 },
  ], [6, 3]],
  ["gives a heavy one no more than it wants", [9], [
    { accounts: [0], high: 4, weight: 5 },
    { accounts: [0], high: 50, weight: 1 },
  ], [4, 5]],
  ["does without cells", [5], [], []],
];

for (const [what, caps, cells, wanted] of rows) {
  test(`fill() ${what}`, () => {
    assert.equal(divide(caps, cells), wanted);
  });
}

test("fill() gives the slot that cannot be split to who has been waiting for longest", () => {
  const cells = cellsOf([1], wishes(5, 5, 5));
  cells.forEach((cell, at) => cell.waitingSince = [7, 3, 5][at]!);
  assert.is(fill(cells, nobodyKeeps), 2);
  assert.equal(cells.map(({ filled, extra }) => [filled, extra]), [
    [0, false],
    [1, true],
    [0, false],
  ]);
});

test("fill() leaves the slot that cannot be split to who keeps it", () => {
  const keeps = (cell: FillCell) => cell.waitingSince === 2;
  assert.equal(divide([4], wishes(5, 5, 5), keeps), [1, 1, 2]);
  assert.equal(divide([5], wishes(5, 5, 5), keeps), [2, 1, 2]);
});

test("fill() does not leave a slot to who keeps it while one with less waits for it", () => {
  // One had two and a half of an account and kept the half, another half of it, and never had a turn.
  const keeps = (cell: FillCell) => cell.waitingSince === 0;
  const rows: Row[] = [{ accounts: [0], high: 9 }, { accounts: [0, 1], high: 9 }];
  const others = [{ accounts: [1], high: 9 }];
  assert.equal(divide([3, 1], [...rows, ...others], keeps), [2, 1, 0]);
});

/** What must hold of every division. */
function check(
  caps: readonly number[],
  cells: readonly FillCell[],
  rooms: readonly number[],
): void {
  const accounts = [...new Set(cells.flatMap((cell) => cell.accounts))];
  for (const cell of cells) {
    assert.ok(Number.isInteger(cell.filled), "whole");
    assert.ok(cell.filled >= cell.low && cell.filled <= Math.max(cell.low, cell.high), "in bounds");
    const full = cell.accounts.filter(({ room }) => room <= 0);
    if (cell.filled >= cell.high) continue;
    assert.ok(full.length > 0, "no slot is wasted");
    // Max-min: in some full account nobody that could give a slot has clearly more than this one.
    const bottleneck = full.some((account) =>
      cells.every((other) =>
        !other.accounts.includes(account) || other.filled <= Math.max(other.low, cell.filled + 2)
      )
    );
    assert.ok(bottleneck, `${cells.indexOf(cell)} of ${JSON.stringify(caps)} has its fair share`);
  }
  for (const account of accounts) {
    const of = cells.filter((cell) => cell.accounts.includes(account));
    const given = of.reduce((sum, { filled, low }) => sum + filled - low, 0);
    const before = rooms[accounts.indexOf(account)]!;
    assert.is(account.room, before - given, "the room is what is left");
    assert.ok(given <= Math.max(0, before), "no account gives more than its room");
  }
}

test("fill() is fair, wastes nothing and overdraws nothing, in random cases", () => {
  for (let seed = 1; seed <= 3000; seed++) {
    const random = seededRandom(seed);
    const whole = (most: number) => Math.floor(random() * (most + 1));
    const caps = Array.from({ length: 1 + whole(5) }, () => whole(40));
    const most = 1 + whole(20);
    const cells = cellsOf(
      caps,
      Array.from({ length: whole(12) }, (): Row => {
        const accounts = caps.map((_, at) => at).filter(() => random() < 0.4).slice(0, 3);
        const low = random() < 0.3 ? whole(5) : 0;
        return { accounts: accounts.length > 0 ? accounts : [0], low, high: whole(most) };
      }),
    );
    const rooms = [...new Set(cells.flatMap((cell) => cell.accounts))].map(({ room }) => room);
    fill(cells, nobodyKeeps);
    try {
      check(caps, cells, rooms);
    } catch (error) {
      throw new Error(`seed ${seed}: ${(error as Error).message}`, { cause: error });
    }
  }
});

test("fill() divides by weights without overdrawing, in random cases", () => {
  for (let seed = 1; seed <= 1000; seed++) {
    const random = seededRandom(seed);
    const room = Math.floor(random() * 100);
    const cells = cellsOf(
      [room],
      Array.from({ length: 1 + Math.floor(random() * 8) }, (): Row => ({
        accounts: [0],
        high: 200,
        weight: 1 + Math.floor(random() * 50) / 7,
      })),
    );
    fill(cells, nobodyKeeps);
    const weight = cells.reduce((sum, cell) => sum + cell.weight, 0);
    assert.is(cells.reduce((sum, cell) => sum + cell.filled, 0), room, `seed ${seed}`);
    for (const cell of cells) {
      assert.ok(Math.abs(cell.filled - room * cell.weight / weight) <= 1, `seed ${seed}`);
    }
  }
});

test.run();
