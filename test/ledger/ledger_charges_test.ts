// What a worker is charged: every way a report or a grant can be lost, late, doubled or out of order, by hand.
// Reports are written out, so that each test shows who knew what when.

import type { Decision, Ledger } from "../../shared/ledger/mod.ts";
import { assert, suite } from "../support/harness.ts";
import {
  chargedOf,
  chargesOf,
  LEASE_MS,
  ledgerOf,
  linesOf,
  oneLeaf,
  reportOf,
  SILENT_MS,
} from "./fixtures.ts";

const test = suite("ledger/ledger_charges");

const LEAF = "pool:a/b";

/** A ledger in which worker 1 has 8 of 10: 6 that it wants, 2 in advance; nothing is under way. */
function grantedLedger(): { ledger: Ledger; seq: number } {
  const ledger = ledgerOf(oneLeaf(10));
  ledger.report(reportOf(1, 1, { [LEAF]: { wanted: 6 } }), 0);
  const [decision] = ledger.decide(0);
  const { seq, leaves } = decision!.grant;
  const { granted } = leaves[0]!;
  ledger.report(reportOf(1, 2, { [LEAF]: { held: 6, wanted: 6, granted, ack: seq } }), 10);
  ledger.decide(10);
  return { ledger, seq };
}

/** Worker 2 wants all: worker 1 is asked to give back what it does not use. */
function lower(ledger: Ledger, now: number): Decision {
  ledger.report(reportOf(2, 1, { [LEAF]: { wanted: 10 } }), now);
  const lowering = ledger.decide(now).find(({ worker }) => worker === 1);
  assert.is(lowering!.grant.leaves[0]!.granted, 6);
  return lowering!;
}

function charged(ledger: Ledger): number {
  return chargedOf(ledger, LEAF);
}

test("decide() charges a grant from when it is decided", () => {
  const ledger = ledgerOf(oneLeaf(10));
  ledger.report(reportOf(1, 1, { [LEAF]: { wanted: 4 } }), 0);
  const [decision] = ledger.decide(0);
  const { granted } = decision!.grant.leaves[0]!;
  assert.ok(granted >= 4);
  assert.is(charged(ledger), granted);
  assert.equal([...decision!.save!.values()].map(({ charge }) => charge), [granted]);
});

test("a charge does not fall because a lowering was sent", () => {
  const { ledger } = grantedLedger();
  const before = charged(ledger);
  lower(ledger, 20);
  assert.is(charged(ledger), 10);
  assert.ok(charged(ledger) >= before);
});

test("a charge falls when the lowering was acknowledged and what was held is closed, not before", () => {
  const { ledger } = grantedLedger();
  const { seq } = lower(ledger, 20).grant;
  const taken = () => ledger.decide(30).find(({ worker }) => worker === 2)?.grant.leaves ?? [];
  for (const [held, two] of [[8, []], [7, [3]], [6, [4]]] as const) {
    const report = { held, wanted: 6, granted: 6, ack: seq };
    ledger.report(reportOf(1, 20 - held, { [LEAF]: report }), 30);
    assert.equal(taken().map(({ granted }) => granted), two, `held ${held}`);
  }
  assert.is(charged(ledger), 10);
});

test("a report from before the lowering changes nothing when it comes after the acknowledgement", () => {
  const { ledger, seq } = grantedLedger();
  const lowered = lower(ledger, 20).grant.seq;
  const after = reportOf(1, 5, { [LEAF]: { held: 6, wanted: 6, granted: 6, ack: lowered } });
  ledger.report(after, 30);
  ledger.report(reportOf(1, 4, { [LEAF]: { held: 8, wanted: 8, granted: 8, ack: seq } }), 31);
  ledger.report(after, 32);
  ledger.decide(33);
  assert.is(charged(ledger), 10);
  const [one] = [...ledger.accounts()];
  assert.is(one!.wanted, 16);
});

test("a lowering that was repeated is freed by the first of its messages that is acknowledged", () => {
  const { ledger } = grantedLedger();
  const before = charged(ledger);
  const first = lower(ledger, 20).grant.seq;
  // Not acknowledged: repeated with a new seq; each is enough to free what was lowered.
  ledger.report(reportOf(1, 3, { [LEAF]: { held: 8, wanted: 6, granted: 8, ack: first - 1 } }), 30);
  const again = ledger.decide(30).find(({ worker }) => worker === 1)!.grant;
  assert.equal(again.leaves.map(({ granted }) => granted), [6]);
  assert.ok(again.seq > first);
  assert.ok(charged(ledger) >= before);
  ledger.report(reportOf(1, 4, { [LEAF]: { held: 6, wanted: 6, granted: 6, ack: first } }), 40);
  assert.equal(
    linesOf(ledger.decide(40)).filter((line) => line.startsWith("2")),
    [`2 ${LEAF} 4`],
  );
});

test("decide() repeats a grant in every answer until it is acknowledged, and then no more", () => {
  const ledger = ledgerOf(oneLeaf(10));
  ledger.report(reportOf(1, 1, { [LEAF]: { wanted: 3 } }), 0);
  const first = ledger.decide(0)[0]!.grant;
  for (const seq of [2, 3]) {
    ledger.report(reportOf(1, seq, {}), seq);
    const [again] = ledger.decide(seq);
    assert.equal(again!.grant.leaves, first.leaves);
    assert.ok(again!.grant.seq > first.seq);
    assert.is(again!.save, null);
  }
  const { granted } = first.leaves[0]!;
  ledger.report(reportOf(1, 4, { [LEAF]: { wanted: 3, granted, ack: first.seq } }), 4);
  assert.equal(ledger.decide(4).map(({ grant }) => grant.leaves), [[]]);
});

test("what a report shows beyond its charge is charged, and nothing is raised meanwhile", () => {
  const ledger = ledgerOf(oneLeaf(10));
  ledger.report(reportOf(1, 1, { [LEAF]: { held: 8, wanted: 8, granted: 3 } }), 0);
  ledger.report(reportOf(2, 1, { [LEAF]: { held: 7, wanted: 7, granted: 7 } }), 0);
  ledger.decide(0);
  assert.is(charged(ledger), 15);
  ledger.report(reportOf(3, 1, { [LEAF]: { wanted: 1 } }), 1);
  assert.equal(linesOf(ledger.decide(1)).filter((line) => line.startsWith("3")), [
    `3 ${LEAF} 0+`,
  ]);
});

test("a worker that ratcheted down is charged what it has, and granted anew", () => {
  const { ledger, seq } = grantedLedger();
  ledger.report(reportOf(1, 3, { [LEAF]: { held: 1, wanted: 4, granted: 2, ack: seq } }), 5000);
  const [decision] = ledger.decide(5000);
  assert.ok(decision!.grant.seq > seq);
  assert.ok(decision!.grant.leaves[0]!.granted >= 4);
  assert.is(charged(ledger), decision!.grant.leaves[0]!.granted);
});

test("a worker that ratcheted down and needs no more is granted what it has, anew", () => {
  const { ledger, seq } = grantedLedger();
  ledger.report(reportOf(1, 3, { [LEAF]: { held: 1, wanted: 1, granted: 2, ack: seq } }), 5000);
  assert.equal(linesOf(ledger.decide(5000)), [`1 ${LEAF} 2`]);
  assert.is(charged(ledger), 2);
});

test("a new incarnation is charged beside the old one until that is gone", () => {
  const { ledger } = grantedLedger();
  const old = charged(ledger);
  ledger.report(reportOf(1, 1, { [LEAF]: { wanted: 10 } }, { incarnation: 2 }), 20);
  const [fresh] = ledger.decide(20).filter(({ incarnation }) => incarnation === 2);
  assert.is(fresh!.grant.leaves[0]!.granted, 10 - old);
  assert.is(charged(ledger), 10);
  ledger.gone(1, 1);
  assert.is(charged(ledger), 10 - old);
  assert.equal(linesOf(ledger.decide(30)), [`1 ${LEAF} 10`]);
});

test("gone() ignores what the incarnation reported and comes later", () => {
  const { ledger, seq } = grantedLedger();
  ledger.gone(1, 1);
  ledger.report(reportOf(1, 3, { [LEAF]: { held: 6, wanted: 6, granted: 6, ack: seq } }), 20);
  ledger.restore(1, 1, chargesOf({ [LEAF]: [6, 1] }), 20);
  assert.equal(ledger.decide(20), []);
  assert.is(charged(ledger), 0);
  assert.equal([...ledger.workers()], []);
});

test("gone() of an incarnation not heard of yet counts too", () => {
  const ledger = ledgerOf(oneLeaf(10));
  ledger.gone(5, 7);
  ledger.report(reportOf(5, 1, { [LEAF]: { wanted: 1 } }, { incarnation: 7 }), 0);
  assert.equal(ledger.decide(0), []);
});

test("a silent worker stays charged, and is neither raised nor lowered", () => {
  const { ledger } = grantedLedger();
  const before = charged(ledger);
  const now = 10 + SILENT_MS;
  ledger.report(reportOf(2, 1, { [LEAF]: { wanted: 10 } }), now);
  const decisions = ledger.decide(now);
  assert.equal(decisions.map(({ worker }) => worker), [2]);
  assert.is(decisions[0]!.grant.leaves[0]!.granted, 10 - before);
  assert.equal([...ledger.workers()].map(({ state }) => state), ["silent", "live"]);
});

// A worker that had been the first kept all slots for its floor: when it was lost nobody else got any.
test("a floor shrinks to an equal part when there are more workers", () => {
  const ledger = ledgerOf(oneLeaf(8));
  ledger.report(reportOf(1, 1, { [LEAF]: { wanted: 8 } }), 0);
  const { seq, leaves } = ledger.decide(0)[0]!.grant;
  assert.is(leaves[0]!.floor, 8);
  ledger.report(reportOf(2, 1, { clients: { wanted: 1 } }), 10);
  const held = { wanted: 0, held: 0, granted: 8, ack: seq };
  ledger.report(reportOf(1, 2, { [LEAF]: held }), 1500);
  const later = ledger.decide(1500).find(({ worker }) => worker === 1);
  assert.equal(later!.grant.leaves.map(({ granted, floor }) => [granted, floor]), [[8, 4]]);
  ledger.report(reportOf(1, 3, { [LEAF]: { ...held, ack: later!.grant.seq } }), 3000);
  ledger.report(reportOf(2, 2, { clients: { wanted: 1 } }), 3000);
  const last = ledger.decide(3000).find(({ worker }) => worker === 1);
  assert.equal(last!.grant.leaves, []);
});

test("a silent worker that is back gives back what others lack", () => {
  const { ledger, seq } = grantedLedger();
  const now = 10 + SILENT_MS;
  ledger.report(reportOf(2, 1, { [LEAF]: { wanted: 10 } }), now);
  const taken = ledger.decide(now)[0]!.grant.seq;
  const two = { wanted: 10, granted: 2, held: 2, ack: taken };
  ledger.report(reportOf(2, 2, { [LEAF]: two }), now + 2900);
  const one = { held: 8, wanted: 10, granted: 8, ack: seq };
  ledger.report(reportOf(1, 3, { [LEAF]: one }), now + 2900);
  assert.ok(linesOf(ledger.decide(now + 2900)).includes(`1 ${LEAF} 5`));
});

/** When worker 1 of grantedLedger() has been silent for so long that it has given up what it may. */
const RATCHETED = 10 + LEASE_MS * 1.1 + 1001;

test("backends() is ignored while the worker may act on what it was granted", () => {
  const { ledger } = grantedLedger();
  const before = charged(ledger);
  ledger.backends(1, 1, new Map([[LEAF, 2]]), RATCHETED - 1);
  ledger.backends(9, 9, new Map([[LEAF, 2]]), RATCHETED);
  assert.is(charged(ledger), before);
});

test("backends() charges a silent worker its floor, or what is shown if that is more", () => {
  const { ledger } = grantedLedger();
  ledger.backends(1, 1, new Map([[LEAF, 6]]), RATCHETED);
  assert.is(charged(ledger), 8, "the floor of one that was alone");
  ledger.backends(1, 1, new Map([[LEAF, 9]]), RATCHETED);
  assert.is(charged(ledger), 9);
  ledger.backends(1, 1, new Map(), RATCHETED);
  assert.is(charged(ledger), 8);
  ledger.backends(1, 1, new Map(), 10 + LEASE_MS * 30 + 1);
  assert.is(charged(ledger), 0);
});

test("backends() keeps the highest floor that the worker may have got", () => {
  const ledger = ledgerOf(oneLeaf(12));
  ledger.report(reportOf(1, 1, { [LEAF]: { wanted: 12 } }), 0);
  const { floor } = ledger.decide(0)[0]!.grant.leaves[0]!;
  assert.is(floor, 12);
  ledger.backends(1, 1, new Map(), RATCHETED);
  assert.is(chargedOf(ledger, LEAF), 12);
});

// One query of a killed worker that ran on kept all slots that the worker had held.
test("left() charges a worker that has ended what PostgreSQL shows of it, at once and without a floor", () => {
  const { ledger } = grantedLedger();
  ledger.left(1, 1, new Map([[LEAF, 1]]));
  assert.is(charged(ledger), 1);
  ledger.left(1, 1, new Map([[LEAF, 5]]));
  assert.is(charged(ledger), 1, "it cannot open any");
  ledger.left(9, 9, new Map());
  ledger.gone(1, 1);
  assert.is(charged(ledger), 0);
});

test("left() gives the places of its clients back", () => {
  const ledger = ledgerOf(oneLeaf(10, "clients"));
  ledger.report(reportOf(1, 1, { clients: { held: 4, wanted: 4, granted: 4 } }), 0);
  ledger.decide(0);
  ledger.left(1, 1, new Map());
  assert.is(chargedOf(ledger, "clients"), 0);
});

test("backends() leaves clients alone", () => {
  const ledger = ledgerOf(oneLeaf(10, "clients"));
  ledger.report(reportOf(1, 1, { clients: { held: 4, wanted: 4, granted: 4 } }), 0);
  ledger.decide(0);
  ledger.backends(1, 1, new Map(), 10 + LEASE_MS * 31);
  assert.ok(chargedOf(ledger, "clients") >= 4);
});

test("a late report does not void a grant that came after it, when backends() was in between", () => {
  // Report 3 hung in the network; the worker got what was granted in answer to report 2 meanwhile, fell out
  // of contact and kept 7 of it. Then report 3 came and said: 2.
  const ledger = ledgerOf(oneLeaf(20));
  ledger.report(reportOf(1, 1, { [LEAF]: { held: 2, wanted: 2, granted: 2 } }), 0);
  const raised = ledger.decide(0)[0]!.grant.leaves[0]!.granted;
  assert.ok(raised > 7);
  ledger.report(reportOf(9, 1, {}), 0);
  ledger.report(reportOf(1, 2, { [LEAF]: { held: 2, wanted: 8, granted: 2 } }), 5);
  ledger.decide(5);
  const now = 6 + LEASE_MS * 1.1 + 1001;
  ledger.backends(1, 1, new Map([[LEAF, 7]]), now);
  const kept = charged(ledger);
  assert.ok(kept >= 7);
  ledger.report(reportOf(1, 3, { [LEAF]: { held: 2, wanted: 8, granted: 2 } }), now);
  assert.is(charged(ledger), kept);
});

test("a late report is not taken for what the worker still has, when backends() was in between", () => {
  // It said 8 of a worker that had ratcheted down to 3 since. The lowering that this led to, to its share of 5, gave it
  // more than it had, before the others had given theirs back.
  const ledger = ledgerOf(oneLeaf(10));
  for (const worker of [2, 3, 4]) ledger.report(reportOf(worker, 1, {}), 0);
  ledger.report(reportOf(1, 1, { [LEAF]: { wanted: 6 } }), 0);
  const [first] = ledger.decide(0).filter(({ worker }) => worker === 1);
  const { seq: ack, leaves: [leaf] } = first!.grant;
  assert.equal([leaf!.granted, leaf!.floor], [8, 2]);
  const now = LEASE_MS * 1.1 + 1001;
  ledger.backends(1, 1, new Map([[LEAF, 3]]), now);
  ledger.report(reportOf(2, 2, { [LEAF]: { wanted: 10 } }), now);
  assert.ok(linesOf(ledger.decide(now)).includes(`2 ${LEAF} 7`));
  ledger.report(reportOf(1, 2, { [LEAF]: { held: 8, wanted: 9, granted: 8, ack } }), now);
  const lines = linesOf(ledger.decide(now));
  assert.ok(lines.includes(`1 ${LEAF} 3+`), lines.join());
});

test("a worker that is back after backends() is charged what it says", () => {
  const { ledger, seq } = grantedLedger();
  ledger.backends(1, 1, new Map([[LEAF, 3]]), RATCHETED);
  ledger.report(
    reportOf(1, 3, { [LEAF]: { held: 5, wanted: 5, granted: 5, ack: seq } }),
    RATCHETED + 1,
  );
  assert.is(charged(ledger), 5);
});

test("unsaved() hands out charges that fell, once, and at most once a second", () => {
  const { ledger, seq } = grantedLedger();
  assert.equal(ledger.unsaved(10), []);
  ledger.report(reportOf(1, 3, { [LEAF]: { held: 2, wanted: 2, granted: 2, ack: seq } }), 900);
  ledger.decide(900);
  assert.equal(ledger.unsaved(999), []);
  const [saving] = ledger.unsaved(1010);
  assert.equal([saving!.worker, saving!.incarnation], [1, 1]);
  assert.equal([...saving!.save.values()].map(({ charge }) => charge), [2]);
  assert.equal(ledger.unsaved(5000), []);
});

test("unsaved() hands out nothing at all for a worker that has given all back", () => {
  const { ledger, seq } = grantedLedger();
  ledger.report(reportOf(1, 3, { [LEAF]: { granted: 6, ack: seq } }), 100);
  ledger.decide(100);
  ledger.report(reportOf(1, 4, { [LEAF]: { granted: 6, ack: seq } }), 60_200);
  const [decision] = ledger.decide(60_200);
  assert.equal(linesOf([decision!]), [`1 ${LEAF} 0`]);
  ledger.report(reportOf(1, 5, { [LEAF]: { ack: decision!.grant.seq } }), 60_300);
  assert.equal(ledger.unsaved(63_000).map(({ save }) => [...save]), [[]]);
  assert.is(charged(ledger), 0);
});

test("a report that comes twice does not bring a forgotten leaf back", () => {
  const { ledger, seq } = grantedLedger();
  const old = reportOf(1, 3, { [LEAF]: { held: 1, wanted: 1, granted: 6, ack: seq } });
  ledger.report(old, 100);
  ledger.report(reportOf(1, 4, { [LEAF]: { ack: seq } }), 200);
  ledger.decide(200);
  ledger.report(reportOf(1, 5, { [LEAF]: { ack: seq + 1 } }), 300);
  ledger.decide(300);
  ledger.report(old, 400);
  ledger.decide(400);
  assert.is(charged(ledger), 0);
});

test.run();
