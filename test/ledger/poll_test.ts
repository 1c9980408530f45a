// Polls: who asks whether all slots of a group are in use is told so only by what all others have said since.

import {
  type Decision,
  groupLeaf,
  type LeafReport,
  Ledger,
  poolLeaf,
} from "../../shared/ledger/mod.ts";
import { assert, suite } from "../support/harness.ts";
import { chargesOf, LEASE_MS, oneLeaf, reportOf, SILENT_MS } from "./fixtures.ts";

const tests = suite("poll");

const GROUP = groupLeaf("reports");

/** Workers that say what the test lets them say, of one leaf. */
class Bench {
  now = 0;
  readonly ledger: Ledger;
  readonly #leaf: string;
  readonly #seqs = new Map<number, number>();
  readonly #acks = new Map<number, number>();

  constructor(cap: number, leaf = GROUP) {
    this.#leaf = leaf;
    const rules = oneLeaf(cap, leaf);
    this.ledger = new Ledger({
      epoch: 1,
      rules,
      leaseMs: LEASE_MS,
      silentMs: SILENT_MS,
      now: 0,
    });
  }

  /** Acknowledges all that the worker was sent, or what it had been sent before. */
  report(worker: number, numbers: Partial<LeafReport>, ack = this.#acks.get(worker) ?? 0): number {
    const seq = (this.#seqs.get(worker) ?? 0) + 1;
    this.#seqs.set(worker, seq);
    this.ledger.report(reportOf(worker, seq, { [this.#leaf]: { ...numbers, ack } }), this.now);
    return seq;
  }

  ackOf(worker: number): number {
    return this.#acks.get(worker) ?? 0;
  }

  /** What is sent: "worker?" asks it, "worker!seq" tells it that all are in use. */
  sent(ms = 10): string[] {
    this.now += ms;
    return this.ledger.decide(this.now).flatMap((decision) => this.#linesOf(decision));
  }

  readonly #told = new Map<number, number>();

  #linesOf({ worker, grant }: Decision): string[] {
    return grant.leaves.flatMap(({ poll, usedUp }) => {
      this.#acks.set(worker, grant.seq);
      const isTold = usedUp > (this.#told.get(worker) ?? 0);
      this.#told.set(worker, usedUp);
      return [...poll ? [`${worker}?`] : [], ...isTold ? [`${worker}!${usedUp}`] : []];
    });
  }
}

/** And has for long. */
const uses = { held: 1, wanted: 1, granted: 1, busyMs: 1000 };
const rests = { held: 0, wanted: 0, granted: 1 };
const asks = { wanted: 1, asks: true };

tests("nobody is asked while no one asks", () => {
  const bench = new Bench(1);
  bench.report(1, uses);
  bench.report(2, { wanted: 1 });
  assert.equal(bench.sent(), []);
  bench.report(1, rests);
  bench.report(2, { wanted: 1 });
  for (let n = 0; n < 20; n++) {
    assert.equal(bench.sent(250).filter((line) => /[?!]/.test(line)), []);
  }
});

// What it had said before was believed, when the query of which it had said so was over.
tests("who asks is told by what others say since, not by what they have said", () => {
  const bench = new Bench(1);
  bench.report(1, uses);
  bench.report(2, asks);
  const before = bench.ackOf(1);
  assert.equal(bench.sent(), ["1?"]);
  // It was on its way when the worker was asked.
  bench.report(1, uses, before);
  assert.equal(bench.sent(), []);
  bench.report(1, uses);
  assert.equal(bench.sent(), ["2!1"]);
});

tests("a slot that is not in use: who asks is not told that all are, and gets it", () => {
  const bench = new Bench(1);
  bench.report(1, uses);
  bench.report(2, asks);
  assert.equal(bench.sent(), ["1?"]);
  bench.report(1, { held: 0, wanted: 0, granted: 1 });
  assert.equal(bench.sent(), []);
  bench.report(1, { held: 0, wanted: 0, granted: 0 });
  const [decision] = bench.ledger.decide(bench.now + 10).filter(({ worker }) => worker === 2);
  assert.is(decision!.grant.leaves[0]!.granted, 1);
});

tests("two slots are in use by two: both are asked, and both have to have answered", () => {
  const bench = new Bench(2);
  bench.report(1, uses);
  bench.report(2, uses);
  bench.report(3, asks);
  assert.equal(bench.sent().sort(), ["1?", "2?"]);
  bench.report(1, uses);
  assert.equal(bench.sent(), []);
  bench.report(2, uses);
  assert.equal(bench.sent(), ["3!1"]);
});

// One query after the other, each at the worker that was asked at that moment, looked like two at once.
tests(
  "slots in use one after the other are not all in use: who asks is told so after some polls only",
  () => {
    for (const busyMs of [0, 20, 21, 500]) {
      const bench = new Bench(2);
      bench.report(1, uses);
      bench.report(2, uses);
      const told: string[] = [];
      let polls = 0;
      for (; polls < 10 && told.length === 0; polls++) {
        bench.report(3, asks);
        told.push(...bench.sent().filter((line) => line.startsWith("3!")));
        bench.report(1, uses);
        bench.sent();
        bench.now += 10;
        bench.report(2, { ...uses, busyMs });
        told.push(...bench.sent().filter((line) => line.startsWith("3!")));
      }
      assert.equal([busyMs, polls], [busyMs, busyMs < 21 ? 5 : 1]);
      assert.equal(told, ["3!1"]);
    }
  },
);

tests("a slot that was free in one of the polls: it takes as many polls again", () => {
  const bench = new Bench(1);
  bench.report(1, uses);
  const lines: string[] = [];
  for (let n = 0; n < 8; n++) {
    bench.report(2, asks);
    lines.push(...bench.sent());
    const isFree = n === 3;
    bench.report(1, isFree ? { ...uses, held: 0, wanted: 0, busyMs: 0 } : { ...uses, busyMs: 0 });
    lines.push(...bench.sent());
  }
  assert.not.ok(lines.some((line) => line.startsWith("2!")), lines.join());
});

tests("who asks meanwhile is told by the next poll, not by this one", () => {
  const bench = new Bench(1);
  bench.report(1, uses);
  bench.report(2, asks);
  assert.equal(bench.sent(), ["1?"]);
  bench.report(2, asks);
  bench.report(3, asks);
  assert.equal(bench.sent(), []);
  bench.report(1, uses);
  assert.equal(bench.sent().sort(), ["1?", "2!1"]);
  bench.report(1, uses);
  assert.equal(bench.sent().sort(), ["2!2", "3!1"]);
});

tests(
  "whoever asks all the time is told all the same, and others are asked once in each poll",
  () => {
    const bench = new Bench(1);
    bench.report(1, uses);
    let asked = 0;
    let told = 0;
    for (let n = 0; n < 100; n++) {
      bench.report(2, asks);
      for (const line of bench.sent()) {
        if (line === "1?") asked++;
        else if (line.startsWith("2!")) told++;
      }
      if (n % 5 === 4) bench.report(1, uses);
    }
    assert.ok(told >= 18, `told ${told} times`);
    assert.ok(asked <= told + 1, `asked ${asked} times`);
  },
);

tests("who shares with nobody is told at once", () => {
  const bench = new Bench(1);
  const seq = bench.report(1, { ...uses, wanted: 2, asks: true });
  assert.equal(bench.sent(), [`1!${seq}`]);
});

tests("those who have slots and ask as well have to answer each other", () => {
  const bench = new Bench(4);
  bench.report(1, { held: 3, wanted: 4, granted: 3, asks: true });
  bench.report(2, { held: 1, wanted: 2, granted: 1, asks: true });
  bench.report(3, asks);
  assert.equal(bench.sent().sort(), ["1?", "2?"]);
  bench.report(1, { ...uses, held: 3, wanted: 4, granted: 3 });
  assert.equal(bench.sent(), []);
  bench.report(2, { ...uses, held: 1, wanted: 2, granted: 1 });
  assert.equal(bench.sent().sort(), ["1!1", "2!1", "3!1"]);
});

tests("a silent worker uses what it is charged, and one that is gone nothing", () => {
  const bench = new Bench(1);
  bench.report(1, rests);
  bench.sent();
  for (let ms = 0; ms < SILENT_MS + 500; ms += 100) {
    bench.report(2, { wanted: 0 });
    bench.sent(100);
  }
  const seq = bench.report(2, asks);
  assert.equal(bench.sent(100), [`2!${seq}`]);
  bench.report(2, asks);
  bench.ledger.gone(1, 1);
  assert.equal(bench.sent(), []);
});

tests("an answer that does not come is asked for again, and no answer is no slot in use", () => {
  const bench = new Bench(1);
  bench.report(1, uses);
  bench.report(2, asks);
  assert.equal(bench.sent(), ["1?"]);
  const lines: string[] = [];
  for (let ms = 0; ms < 2000; ms += 100) {
    // Of reports that do not answer there may be any number.
    bench.report(1, uses, 0);
    bench.report(2, asks);
    lines.push(...bench.sent(100));
  }
  assert.ok(lines.includes("1?"), lines.join());
  assert.not.ok(lines.some((line) => line.startsWith("2!")), lines.join());
});

// A new leader does not know yet what those have that it has not heard of.
tests("while a leader takes over nobody is told anything", () => {
  const bench = new Bench(2);
  bench.ledger.restore(1, 1, chargesOf({ [GROUP]: [1, 1] }), 0);
  bench.ledger.restore(2, 1, chargesOf({ [GROUP]: [1, 1] }), 0);
  bench.report(1, uses);
  bench.report(3, asks);
  for (let n = 0; n < 5; n++) assert.equal(bench.sent(100), []);
  bench.report(2, uses);
  assert.equal(bench.sent().sort(), ["1?", "2?"]);
});

tests("of pools nobody asks", () => {
  const bench = new Bench(1, poolLeaf("a", "b"));
  bench.report(1, uses);
  bench.report(2, asks);
  assert.equal(bench.sent(), []);
});

tests.run();
