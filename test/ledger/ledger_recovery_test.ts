// A new leader: what it takes over, whom it waits for, what the first reports change.

import { LEAVES_MAX } from "../../shared/ledger/messages.ts";
import { assert, suite } from "../support/harness.ts";
import {
  chargedOf,
  chargesOf,
  LEASE_MS,
  ledgerOf,
  linesOf,
  oneLeaf,
  reportOf,
  rulesOf,
  SILENT_MS,
} from "./fixtures.ts";

const test = suite("ledger/ledger_recovery");

const LEAF = "pool:a/b";
const old = { epoch: 1 };
const ours = { epoch: 2 };

/** Leader 2 of an account of 10, with 6 charged to worker 1. */
function recovering() {
  const ledger = ledgerOf(oneLeaf(10), 2);
  ledger.restore(1, 1, chargesOf({ [LEAF]: [6, 2] }), 0);
  return ledger;
}

test("restore() charges what was saved", () => {
  const ledger = recovering();
  assert.is(chargedOf(ledger, LEAF), 6);
  assert.equal([...ledger.workers()], [{
    worker: 1,
    incarnation: 1,
    lastReportAt: 0,
    state: "restored",
    heldServers: 0,
  }]);
  assert.equal(ledger.decide(0), []);
});

test("restore() passes over numbers that are none", () => {
  const ledger = ledgerOf(oneLeaf(10), 2);
  ledger.restore(1, 1, chargesOf({ [LEAF]: [NaN, 0], "pool:c/d": [-1, 0] }), 0);
  assert.is(chargedOf(ledger, LEAF), 0);
});

test("decide() raises nobody while a restored worker may still report, and says that more will come", () => {
  const ledger = recovering();
  ledger.report(reportOf(2, 1, { [LEAF]: { wanted: 3 } }, ours), 10);
  assert.equal(linesOf(ledger.decide(10)), [`2 ${LEAF} 0+`]);
  assert.equal(linesOf(ledger.decide(SILENT_MS - 1)), []);
  assert.equal(linesOf(ledger.decide(SILENT_MS)), [`2 ${LEAF} 3`]);
});

test("decide() raises as soon as all restored workers have reported", () => {
  const ledger = recovering();
  ledger.report(reportOf(2, 1, { [LEAF]: { wanted: 3 } }, ours), 10);
  ledger.decide(10);
  ledger.report(reportOf(1, 9, { [LEAF]: { held: 1, wanted: 1, granted: 1 } }, ours), 20);
  const granted = ledger.decide(20).find(({ worker }) => worker === 2)!.grant.leaves[0]!.granted;
  assert.ok(granted >= 3);
});

test("decide() raises when a restored worker has been silent for long enough, from what it is not charged", () => {
  const ledger = recovering();
  ledger.report(reportOf(2, 1, { [LEAF]: { wanted: 9 } }, ours), 10);
  ledger.decide(10);
  ledger.report(reportOf(2, 2, { [LEAF]: { wanted: 9, ack: 1 } }, ours), SILENT_MS);
  assert.equal(linesOf(ledger.decide(SILENT_MS)), [`2 ${LEAF} 4`]);
});

test("decide() raises when a restored worker is gone", () => {
  const ledger = recovering();
  ledger.report(reportOf(2, 1, { [LEAF]: { wanted: 9 } }, ours), 10);
  ledger.decide(10);
  ledger.gone(1, 1);
  assert.ok(linesOf(ledger.decide(20)).includes(`2 ${LEAF} 9`));
});

// Another's slots were given away when the store had lost what was saved of them.
test("decide() raises nobody while a worker may report of which nothing was saved", () => {
  const ledger = ledgerOf(oneLeaf(10), 2);
  ledger.restore(1, 1, new Map(), 0);
  ledger.report(reportOf(2, 1, { [LEAF]: { wanted: 10 } }, ours), 10);
  assert.equal(linesOf(ledger.decide(10)), [`2 ${LEAF} 0+`]);
  // Its answer tells it of our epoch, and what it said before is no promise.
  ledger.report(reportOf(1, 9, { [LEAF]: { held: 6, wanted: 6, granted: 8, ack: 4 } }, old), 20);
  assert.equal(ledger.decide(20).map(({ worker, grant }) => [worker, grant.leaves]), [[1, []]]);
  const held = { held: 6, wanted: 6, granted: 8 };
  ledger.report(reportOf(1, 10, { [LEAF]: held }, ours), 30);
  assert.is(chargedOf(ledger, LEAF), 8);
  ledger.decide(30);
  assert.ok(chargedOf(ledger, LEAF) <= 10);
  assert.ok(linesOf(ledger.decide(30)).every((line) => !line.startsWith("2")));
});

test("decide() raises when a worker of which nothing was saved is silent", () => {
  const ledger = ledgerOf(oneLeaf(10), 2);
  ledger.restore(1, 1, new Map(), 0);
  ledger.report(reportOf(2, 1, { [LEAF]: { wanted: 3 } }, ours), 10);
  assert.equal(linesOf(ledger.decide(SILENT_MS - 1)), [`2 ${LEAF} 0+`]);
  assert.equal(linesOf(ledger.decide(SILENT_MS)), [`2 ${LEAF} 3`]);
});

test("decide() raises nobody while the second part of what a worker has may be on its way", () => {
  const leaves = Array.from({ length: LEAVES_MAX }, (_, at) => `pool:d${at}/u`);
  const all = [...leaves, LEAF];
  const ledger = ledgerOf(
    rulesOf(Object.fromEntries(all.map((leaf) => [leaf, { [leaf]: 10 }]))),
    2,
  );
  ledger.restore(1, 1, new Map(), 0);
  ledger.report(reportOf(2, 1, { [LEAF]: { wanted: 10 } }, ours), 10);
  const one = { held: 1, wanted: 1, granted: 1 };
  const first = Object.fromEntries(leaves.map((leaf) => [leaf, one]));
  ledger.report(reportOf(1, 1, first, ours), 10);
  assert.equal(linesOf(ledger.decide(10)).filter((line) => line.startsWith("2")), [`2 ${LEAF} 0+`]);
  ledger.report(reportOf(1, 2, { [LEAF]: { held: 10, wanted: 10, granted: 10 } }, ours), 20);
  ledger.decide(20);
  assert.is(chargedOf(ledger, LEAF), 10);
});

test("report() of an earlier epoch promises nothing, and is answered with ours", () => {
  const ledger = recovering();
  ledger.report(reportOf(1, 9, { [LEAF]: { held: 1, wanted: 1, granted: 1, ack: 4 } }, old), 10);
  assert.is(chargedOf(ledger, LEAF), 6);
  const [answer] = ledger.decide(10);
  assert.equal([answer!.grant.epoch, answer!.grant.report, answer!.grant.leaves], [2, 9, []]);
  assert.is([...ledger.workers()][0]!.state, "restored");
});

test("report() of a later epoch is not for us", () => {
  const ledger = recovering();
  ledger.report(reportOf(1, 9, { [LEAF]: { granted: 1 } }, { epoch: 3 }), 10);
  assert.equal(ledger.decide(10), []);
  assert.is(chargedOf(ledger, LEAF), 6);
});

for (const [held, granted, charge] of [[1, 3, 3], [4, 2, 4], [0, 0, 0], [7, 6, 7]] as const) {
  test(`the first report replaces what was saved: held ${held}, granted ${granted}`, () => {
    const ledger = recovering();
    ledger.report(reportOf(1, 9, { [LEAF]: { held, granted, wanted: 0 } }, ours), 10);
    assert.is(chargedOf(ledger, LEAF), charge);
  });
}

test("a report from before the change of leaders that comes late changes nothing", () => {
  const ledger = recovering();
  ledger.report(reportOf(1, 9, { [LEAF]: { held: 2, wanted: 2, granted: 2 } }, ours), 10);
  ledger.report(reportOf(1, 8, { [LEAF]: { held: 6, wanted: 6, granted: 6, ack: 4 } }, old), 20);
  ledger.report(reportOf(1, 7, { [LEAF]: { held: 6, wanted: 6, granted: 6 } }, ours), 20);
  assert.is(chargedOf(ledger, LEAF), 2);
});

test("a leaf that a restored worker does not report keeps its charge, until it is asked and says", () => {
  const ledger = ledgerOf(
    rulesOf({ [LEAF]: { [LEAF]: 10 }, "pool:c/d": { "pool:c/d": 10 } }),
    2,
  );
  ledger.restore(1, 1, chargesOf({ [LEAF]: [6, 2], "pool:c/d": [5, 1] }), 0);
  ledger.report(reportOf(1, 9, { "pool:c/d": { granted: 5, held: 5, wanted: 5 } }, ours), 10);
  const { seq } = ledger.decide(10)[0]!.grant;
  assert.is(chargedOf(ledger, LEAF), 6);
  const both = { granted: 7, held: 5, wanted: 5, ack: seq };
  ledger.report(reportOf(1, 10, { "pool:c/d": both }, ours), 1100);
  const asked = ledger.decide(1100)[0]!.grant;
  assert.equal(linesOf([{ worker: 1, incarnation: 1, grant: asked, save: null }]), [`1 ${LEAF} 6`]);
  ledger.report(reportOf(1, 11, { [LEAF]: { granted: 6, ack: asked.seq } }, ours), 1200);
  ledger.report(reportOf(1, 12, { [LEAF]: { granted: 6, ack: asked.seq } }, ours), 70_000);
  assert.equal(linesOf(ledger.decide(70_000)).includes(`1 ${LEAF} 0`), true);
});

test("a leaf that a restored worker does not report is asked after with no more than fits", () => {
  // What worker 1 had given back was not saved as lower yet, and worker 2 had it. To ask, worker 1 was granted
  // what was saved, and took it.
  const ledger = ledgerOf(oneLeaf(4), 2);
  ledger.restore(1, 1, chargesOf({ [LEAF]: [3, 1] }), 0);
  ledger.restore(2, 1, chargesOf({ [LEAF]: [2, 1] }), 0);
  const two = { held: 2, wanted: 2, granted: 2 };
  ledger.report(reportOf(1, 1, {}, ours), 10);
  ledger.report(reportOf(2, 1, { [LEAF]: two }, ours), 10);
  ledger.decide(10);
  ledger.report(reportOf(1, 2, {}, ours), 1100);
  assert.equal(linesOf(ledger.decide(1100)), [`1 ${LEAF} 2`]);
});

test("a restored worker that is never heard is charged by what PostgreSQL shows", () => {
  const ledger = recovering();
  ledger.backends(1, 1, new Map([[LEAF, 1]]), LEASE_MS * 1.1 + 1000);
  assert.is(chargedOf(ledger, LEAF), 6);
  ledger.backends(1, 1, new Map([[LEAF, 1]]), LEASE_MS * 1.1 + 1001);
  assert.is(chargedOf(ledger, LEAF), 2);
});

test("a worker that still reports with an earlier epoch is not judged by what PostgreSQL shows", () => {
  // It may have an earlier leader's answers, so it has not lost contact.
  const ledger = recovering();
  ledger.report(reportOf(1, 9, {}, old), 8000);
  ledger.backends(1, 1, new Map(), LEASE_MS * 1.1 + 1001);
  assert.is(chargedOf(ledger, LEAF), 6);
});

test("decide() has charges saved again only when they rise above what was saved", () => {
  const ledger = recovering();
  ledger.report(reportOf(1, 9, { [LEAF]: { held: 2, wanted: 4, granted: 2 } }, ours), 10);
  const [first] = ledger.decide(10);
  const { seq, leaves: [leaf] } = first!.grant;
  assert.ok(leaf!.granted >= 4);
  assert.is(first!.save !== null, leaf!.granted > 6 || leaf!.floor > 2);
  ledger.report(
    reportOf(1, 10, { [LEAF]: { held: 2, wanted: 10, granted: leaf!.granted, ack: seq } }, ours),
    20,
  );
  const [second] = ledger.decide(20);
  assert.equal([...second!.save!.values()].map(({ charge }) => charge), [10]);
});

test.run();
