// One leaf among its cells: demands and what each gets, by hand, and random ones against what must always hold.

import { apportion, giveAll, type Portion } from "../../shared/ledger/apportion.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";

const test = suite("ledger/apportion");

interface TestPortion extends Portion {
  filled: number;
  high: number;
  weight: number;
  has: number;
}

/** Cells that want so much each and have had a slot each so far, and no more. */
function portionsOf(...demands: number[]): TestPortion[] {
  return demands.map((demand) => ({
    filled: Math.min(demand, 1),
    high: demand,
    weight: Math.max(1, demand),
    has: 0,
    share: 0,
    shortfall: 0,
    credit: 0,
  }));
}

function sharesOf(cells: readonly Portion[]): number[] {
  return cells.map(({ share }) => share);
}

const rows: readonly [string, number, readonly number[], readonly number[]][] = [
  ["gives the crowded one nearly all, and the others one", 8, [90, 4, 3, 3], [5, 1, 1, 1]],
  ["halves", 8, [40, 40], [4, 4]],
  ["follows the demands", 8, [13, 5, 5, 13], [3, 1, 1, 3]],
  ["takes only what is left of one from the one with most", 7, [90, 4, 3, 3], [4, 1, 1, 1]],
  ["gives no more than is wanted", 8, [2, 2, 5], [2, 2, 4]],
  ["rounds the largest remainders up", 10, [14, 33, 53], [2, 3, 5]],
  ["gives one each when there is no more", 3, [90, 5, 5], [1, 1, 1]],
  ["passes by who wants nothing", 4, [0, 5, 5], [0, 2, 2]],
];

for (const [what, total, demands, wanted] of rows) {
  test(`apportion() ${what}`, () => {
    const cells = portionsOf(...demands);
    apportion(cells, total, 0);
    assert.equal(sharesOf(cells), wanted);
  });
}

test("apportion() lets who has more than its share anyway keep it, and divides the rest", () => {
  const cells = portionsOf(10, 10, 10);
  cells[0]!.filled = 6;
  apportion(cells, 10, 0);
  assert.equal(sharesOf(cells), [6, 2, 2]);
});

test("apportion() gives what the heavy one cannot use to the others", () => {
  const cells = portionsOf(10, 10, 10);
  cells[0]!.weight = 50;
  cells[0]!.high = 4;
  apportion(cells, 10, 0);
  assert.equal(sharesOf(cells), [4, 3, 3]);
});

test("apportion() moves a slot when the exact share has moved by three quarters, not before", () => {
  const cells = portionsOf(40, 40);
  const sharesFor = (weight: number) => {
    cells[0]!.weight = weight;
    for (const cell of cells) cell.has = cell.share;
    apportion(cells, 8, 0);
    return sharesOf(cells);
  };
  assert.equal(sharesFor(40), [4, 4]);
  assert.equal(sharesFor(57), [4, 4], "4.70 are due");
  assert.equal(sharesFor(60), [5, 3], "4.80 are due");
  assert.equal(sharesFor(47), [5, 3], "4.32 are due");
  assert.equal(sharesFor(44), [4, 4], "4.19 are due");
});

/** How many of `rounds` each cell had the slot that cannot be split. */
function turnsOf(cells: readonly TestPortion[], total: number, rounds: number): number[] {
  const turns = cells.map(() => 0);
  for (let round = 0; round < rounds; round++) {
    assert.is(apportion(cells, total, 0.1), true);
    cells.forEach((cell, at) => {
      turns[at]! += cell.share - Math.floor(cell.share + cell.shortfall);
      cell.has = cell.share;
    });
  }
  return turns;
}

test("apportion() rounds equal shares up in turns, and each for as long", () => {
  const turns = turnsOf(portionsOf(50, 50, 50), 11, 3000);
  for (const count of turns) assert.ok(Math.abs(count - 2000) <= 20, `turns ${turns.join(" ")}`);
});

test("apportion() rounds unequal shares up for as long as their remainders are", () => {
  const cells = portionsOf(39, 31);
  const turns = turnsOf(cells, 7, 3000);
  assert.ok(Math.abs(turns[0]! - 2700) <= 30, `turns ${turns.join(" ")}`);
});

test("giveAll() gives all, and credits from before are void", () => {
  const cells = portionsOf(50, 50, 50);
  turnsOf(cells, 11, 3);
  giveAll(cells);
  assert.equal(sharesOf(cells), [50, 50, 50]);
  assert.ok(cells.every(({ credit, shortfall }) => credit === 0 && shortfall === 0));
});

test("apportion() gives all of the total in proportion, in random cases", () => {
  for (let seed = 1; seed <= 3000; seed++) {
    const random = seededRandom(seed);
    const whole = (most: number) => Math.floor(random() * (most + 1));
    const cells = Array.from({ length: 1 + whole(9) }, (): TestPortion => {
      const filled = random() < 0.3 ? whole(6) : whole(1);
      const high = filled + whole(30);
      const weight = 1 + random() * 10 ** whole(9);
      return { filled, high, weight, has: whole(8), share: 0, shortfall: 0, credit: 0 };
    });
    const least = cells.reduce((sum, { filled }) => sum + filled, 0);
    const most = cells.reduce((sum, { high }) => sum + high, 0);
    const total = least + whole(most - least);
    apportion(cells, total, 0);
    const told = `seed ${seed}: ${total} as ${sharesOf(cells).join(" ")}`;
    assert.is(cells.reduce((sum, { share }) => sum + share, 0), total, told);
    for (const { share, filled, high } of cells) {
      assert.ok(Number.isInteger(share) && share >= filled && share <= high, told);
    }
    for (const rich of cells) {
      if (rich.share <= rich.filled) continue;
      for (const poor of cells) {
        if (poor.share >= poor.high) continue;
        const [least, most] = [(rich.share - 1) / rich.weight, (poor.share + 1) / poor.weight];
        assert.ok(least <= most * (1 + 1e-6) + 1e-6, told);
      }
    }
  }
});

test.run();
