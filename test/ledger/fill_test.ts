// The division of slots: the classic cases by hand, and random ones against what must always hold.

import type { FillAccount, Keeps } from "../../shared/ledger/fill.ts";
import { fill, Taker } from "../../shared/ledger/fill.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";

const test = suite("ledger/fill");

interface Row {
  readonly accounts: readonly number[];
  readonly low?: number;
  readonly high: number;
}

class TestTaker extends Taker {
  readonly accounts: readonly FillAccount[];

  constructor(accounts: readonly FillAccount[], low: number, high: number, waitingSince: number) {
    super();
    this.accounts = accounts;
    this.low = low;
    this.high = high;
    this.waitingSince = waitingSince;
  }
}

function accountOf(room: number): FillAccount {
  return { room, asked: 0, rising: 0, offset: 0 };
}

function takersOf(caps: readonly number[], rows: readonly Row[]): TestTaker[] {
  const accounts = caps.map(accountOf);
  return rows.map(({ accounts: of, low = 0, high }, index) => {
    for (const at of of) accounts[at]!.room -= low;
    return new TestTaker(of.map((at) => accounts[at]!), low, high, index);
  });
}

const nobodyKeeps: Keeps<Taker> = () => false;

/** Divides room under `caps`; what each taker gets. */
function divide(caps: readonly number[], rows: readonly Row[], keeps = nobodyKeeps): number[] {
  const takers = takersOf(caps, rows);
  fill(takers, keeps);
  return takers.map(({ filled }) => filled);
}

/** Takers of one account that want so much each. */
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
  ["does without takers", [5], [], []],
];

for (const [what, caps, takers, wanted] of rows) {
  test(`fill() ${what}`, () => {
    assert.equal(divide(caps, takers), wanted);
  });
}

test("fill() gives the slot that cannot be split to who has been waiting for longest", () => {
  const takers = takersOf([1], wishes(5, 5, 5));
  takers.forEach((taker, at) => taker.waitingSince = [7, 3, 5][at]!);
  assert.is(fill(takers, nobodyKeeps), 2);
  assert.equal(takers.map(({ filled, extra }) => [filled, extra]), [
    [0, false],
    [1, true],
    [0, false],
  ]);
});

test("fill() leaves the slot that cannot be split to who keeps it", () => {
  const keeps = (taker: Taker) => taker.waitingSince === 2;
  assert.equal(divide([4], wishes(5, 5, 5), keeps), [1, 1, 2]);
  assert.equal(divide([5], wishes(5, 5, 5), keeps), [2, 1, 2]);
});

test("fill() does not leave a slot to who keeps it while one with less waits for it", () => {
  // One had two and a half of an account and kept the half, another half of it, and never had a turn.
  const keeps = (taker: Taker) => taker.waitingSince === 0;
  const rows: Row[] = [{ accounts: [0], high: 9 }, { accounts: [0, 1], high: 9 }];
  const others = [{ accounts: [1], high: 9 }];
  assert.equal(divide([3, 1], [...rows, ...others], keeps), [2, 1, 0]);
});

// Turns at either account ended at different moments: who needs both never found both free.
test("fill() holds free what the first of those that wait needs beside what another has its turn at", () => {
  const rows: Row[] = [
    { accounts: [0, 1], high: 1 },
    { accounts: [0], high: 1 },
    { accounts: [1], high: 1 },
  ];
  const keeps = (taker: Taker) => taker.waitingSince === 1;
  assert.equal(divide([1, 1], rows, keeps), [0, 1, 1]);
  const takers = takersOf([1, 1], rows);
  assert.is(fill(takers, keeps, true), 2);
  assert.equal(takers.map(({ filled }) => filled), [0, 1, 0]);
  assert.equal(divide([1, 1], rows), [1, 0, 0]);
});

/** What must hold of every division. */
function check(
  caps: readonly number[],
  takers: readonly Taker[],
  rooms: readonly number[],
): void {
  const accounts = [...new Set(takers.flatMap((taker) => taker.accounts))];
  for (const taker of takers) {
    assert.ok(Number.isInteger(taker.filled), "whole");
    assert.ok(
      taker.filled >= taker.low && taker.filled <= Math.max(taker.low, taker.high),
      "in bounds",
    );
    const full = taker.accounts.filter(({ room }) => room <= 0);
    if (taker.filled >= taker.high) continue;
    assert.ok(full.length > 0, "no slot is wasted");
    // Max-min: in some full account nobody that could give a slot has clearly more than this one.
    const bottleneck = full.some((account) =>
      takers.every((other) =>
        !other.accounts.includes(account) || other.filled <= Math.max(other.low, taker.filled + 2)
      )
    );
    assert.ok(bottleneck, `${takers.indexOf(taker)} of ${JSON.stringify(caps)} has its fair share`);
  }
  for (const account of accounts) {
    const of = takers.filter((taker) => taker.accounts.includes(account));
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
    const takers = takersOf(
      caps,
      Array.from({ length: whole(12) }, (): Row => {
        const accounts = caps.map((_, at) => at).filter(() => random() < 0.4).slice(0, 3);
        const low = random() < 0.3 ? whole(5) : 0;
        return { accounts: accounts.length > 0 ? accounts : [0], low, high: whole(most) };
      }),
    );
    const rooms = [...new Set(takers.flatMap((taker) => taker.accounts))].map(({ room }) => room);
    fill(takers, nobodyKeeps);
    try {
      check(caps, takers, rooms);
    } catch (error) {
      throw new Error(`seed ${seed}: ${(error as Error).message}`, { cause: error });
    }
  }
});

test.run();
