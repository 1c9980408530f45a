// The charge of one leaf of one worker, at close range: which of the grants under way still count after which
// acknowledgement. Values are sent directly here, up and down, as no sensible division would.

import type { Books } from "../../shared/ledger/books.ts";
import { Cell } from "../../shared/ledger/cell.ts";
import { Components } from "../../shared/ledger/components.ts";
import { WorkerCharges } from "../../shared/ledger/worker_charges.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";
import { chargesOf, oneLeaf } from "./fixtures.ts";

const test = suite("ledger/cell");

const LEAF = "pool:a/b";

class Bench {
  readonly books: Books = {
    epoch: 1,
    components: new Components(oneLeaf(1000)),
    due: new Set(),
    unsaved: new Set(),
    seq: 0,
    liveWorkers: 1,
  };
  readonly worker = new WorkerCharges(1, 1, this.books, 0);
  readonly cell = new Cell(this.worker, LEAF, this.books.components);
  #reports = 0;

  /** Sends values one after the other; the seq of the last. */
  send(...values: number[]): number {
    for (const value of values) {
      this.cell.settle(value, false);
      this.cell.sending(++this.books.seq, Math.min(1, value), 0);
    }
    return this.books.seq;
  }

  report(granted: number, ack: number, held = 0): void {
    const numbers = {
      leaf: LEAF,
      held,
      wanted: 1,
      granted,
      ack,
      idleMs: 0,
      asks: false,
      busyMs: 0,
    };
    this.cell.apply(numbers, ++this.#reports, 0);
  }

  get charge(): number {
    const [account] = this.books.components.accounts();
    assert.is(account!.charged, this.cell.charge, "the account's sum is kept");
    return this.cell.charge;
  }
}

const rows: readonly [string, readonly number[], number, number, number][] = [
  // what, values sent as seq 1, 2 ..., acknowledged, granted by the report, charge after it
  ["a raise under way", [5], 0, 0, 5],
  ["a raise that arrived", [5], 1, 5, 5],
  ["a lowering under way", [5, 2], 1, 5, 5],
  ["a lowering that arrived", [5, 2], 2, 2, 2],
  ["up and down, up arrived", [2, 8, 3], 2, 8, 8],
  ["up and down, nothing arrived", [2, 8, 3], 0, 0, 8],
  ["up and down, first arrived", [2, 8, 3], 1, 2, 8],
  ["down and up, down arrived", [8, 3, 6], 2, 3, 6],
  ["down and up, first arrived", [8, 3, 6], 1, 8, 8],
  ["down and up, all arrived", [8, 3, 6], 3, 6, 6],
  ["down in steps, some arrived", [9, 7, 5, 3], 2, 7, 7],
  ["down in steps, a later one arrived", [9, 7, 5, 3], 3, 5, 5],
  ["the same again, one of them arrived", [9, 4, 4, 4], 2, 4, 4],
  ["the same again, the first arrived", [9, 4, 4, 4], 1, 9, 9],
];

for (const [what, values, ack, granted, charge] of rows) {
  test(`charge after ${what} is ${charge}`, () => {
    const bench = new Bench();
    bench.send(...values);
    assert.is(bench.charge, Math.max(...values));
    bench.report(granted, ack);
    assert.is(bench.charge, charge);
  });
}

test("charge is what is held when that is more than what is granted", () => {
  const bench = new Bench();
  bench.send(9, 3);
  bench.report(3, 2, 7);
  assert.is(bench.charge, 7);
  bench.report(3, 2, 2);
  assert.is(bench.charge, 3);
});

test("charge counts more grants under way than are kept one by one for too much, never too little", () => {
  const bench = new Bench();
  const values = Array.from({ length: 40 }, (_, at) => 100 - at);
  bench.send(...values);
  bench.report(100, 1);
  assert.is(bench.charge, 100);
  bench.report(80, 21);
  assert.ok(bench.charge >= 80 && bench.charge <= 100);
  bench.report(61, 40);
  assert.is(bench.charge, 61);
});

test("charge covers whatever the worker may act on, in random orders of arrival", () => {
  for (let seed = 1; seed <= 500; seed++) {
    const random = seededRandom(seed);
    const whole = (most: number) => Math.floor(random() * (most + 1));
    const bench = new Bench();
    const sent: { seq: number; value: number }[] = [];
    const worker = { granted: 0, ack: 0 };
    for (let step = 0; step < 60; step++) {
      const value = whole(20);
      if (random() < 0.6) sent.push({ seq: bench.send(value), value });
      const arriving = sent[whole(sent.length - 1)];
      if (arriving !== undefined && random() < 0.5 && arriving.seq > worker.ack) {
        [worker.granted, worker.ack] = [arriving.value, arriving.seq];
      }
      if (random() < 0.4) bench.report(worker.granted, worker.ack);
      const open = sent.filter(({ seq }) => seq > worker.ack).map(({ value }) => value);
      const most = Math.max(worker.granted, ...open);
      assert.ok(bench.charge >= most, `seed ${seed} step ${step}: ${bench.charge} < ${most}`);
    }
    bench.report(worker.granted, bench.books.seq);
    assert.is(bench.charge, worker.granted);
  }
});

test("charged floor is the highest of those that may count", () => {
  const bench = new Bench();
  bench.cell.settle(8, false);
  bench.cell.sending(1, 6, 0);
  bench.cell.settle(4, false);
  bench.cell.sending(2, 2, 0);
  assert.is(bench.cell.chargedFloor, 6);
  bench.report(8, 1);
  assert.is(bench.cell.chargedFloor, 6);
  bench.report(4, 2);
  assert.is(bench.cell.chargedFloor, 2);
  bench.report(1, 2);
  assert.is(bench.cell.chargedFloor, 1, "it gave up more than it must");
});

test("a restored charge and floor count until the worker says what it has", () => {
  const bench = new Bench();
  bench.cell.restore({ charge: 7, floor: 3 });
  assert.equal([bench.charge, bench.cell.chargedFloor, bench.cell.known], [7, 3, false]);
  bench.report(2, 0, 4);
  assert.equal([bench.charge, bench.cell.chargedFloor, bench.cell.known], [4, 2, true]);
});

test("save() hands out what has changed since, whole", () => {
  const bench = new Bench();
  bench.worker.cells.set(LEAF, bench.cell);
  bench.send(5);
  assert.equal(bench.worker.save(0), chargesOf({ [LEAF]: [5, 1] }));
  assert.is(bench.worker.save(0), null);
});

test.run();
