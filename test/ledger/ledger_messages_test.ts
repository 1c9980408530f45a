// What goes in and out of the ledger beyond plain numbers of slots: answers, many leaves, unknown leaves,
// garbage, and how much of all that is kept.

import type { LeafReport } from "../../shared/ledger/mod.ts";
import { LEAF_LENGTH_MAX, LEAVES_MAX, poolLeaf } from "../../shared/ledger/mod.ts";
import { assert, suite } from "../support/harness.ts";
import {
  chargedOf,
  ledgerOf,
  linesOf,
  Mesh,
  oneLeaf,
  reportOf,
  rulesOf,
  SILENT_MS,
} from "./fixtures.ts";

const test = suite("ledger/ledger_messages");

const LEAF = "pool:a/b";

function everyPool(cap: number) {
  return (leaf: string) =>
    leaf.startsWith("pool:") ? { accounts: [{ name: leaf, cap }], sticky: false } : null;
}

test("decide() answers every report once, with the highest seq seen", () => {
  const ledger = ledgerOf(oneLeaf(10));
  ledger.report(reportOf(1, 2, {}), 0);
  ledger.report(reportOf(1, 1, {}), 0);
  ledger.report(reportOf(2, 5, {}), 0);
  const answers = ledger.decide(0).map(({ worker, grant }) => [worker, grant.report, grant.leaves]);
  assert.equal(answers, [[1, 2, []], [2, 5, []]]);
  assert.equal(ledger.decide(1), []);
  ledger.report(reportOf(1, 2, {}), 2);
  assert.equal(ledger.decide(2).map(({ grant }) => grant.report), [2]);
});

test("decide() numbers grants upwards", () => {
  const ledger = ledgerOf(oneLeaf(10));
  const seqs: number[] = [];
  for (let seq = 1; seq < 5; seq++) {
    ledger.report(reportOf(1, seq, {}), seq);
    seqs.push(...ledger.decide(seq).map(({ grant }) => grant.seq));
  }
  assert.equal(seqs, [...new Set(seqs)].sort((a, b) => a - b));
});

test("decide() numbers grants upwards for a worker that was forgotten in between", () => {
  const ledger = ledgerOf(oneLeaf(10));
  ledger.report(reportOf(1, 1, {}), 0);
  const before = ledger.decide(0)[0]!.grant.seq;
  ledger.decide(700_000);
  assert.equal([...ledger.workers()], []);
  ledger.report(reportOf(1, 900, {}), 700_001);
  assert.ok(ledger.decide(700_001)[0]!.grant.seq > before);
});

test("decide() divides many leaves over several grants, and saves before the first", () => {
  const ledger = ledgerOf(everyPool(10));
  const count = LEAVES_MAX * 2 + 50;
  const all = Array.from({ length: count }, (_, n) => poolLeaf(`d${n}`, "u"));
  for (let at = 0; at < count; at += LEAVES_MAX) {
    const leaves = all.slice(at, at + LEAVES_MAX).map((leaf) => [leaf, { wanted: 1 }]);
    ledger.report(reportOf(1, at + 1, Object.fromEntries(leaves)), 0);
  }
  const decisions = ledger.decide(0);
  assert.equal(decisions.map(({ grant }) => grant.leaves.length), [LEAVES_MAX, LEAVES_MAX, 50]);
  assert.equal(decisions.map(({ save }) => save?.size ?? null), [count, null, null]);
  const named = decisions.flatMap(({ grant }) => grant.leaves.map(({ leaf }) => leaf));
  assert.equal(named.sort(), all.sort());
});

test("a mesh with more leaves than a message holds comes to rest", () => {
  const mesh = new Mesh(everyPool(10), 2);
  for (let n = 0; n < LEAVES_MAX * 2 + 1; n++) {
    mesh.use(1, poolLeaf(`d${n}`, "u"), 2);
    mesh.use(2, poolLeaf(`d${n}`, "u"), 1);
  }
  mesh.ticks(5);
  mesh.takeGranted();
  mesh.ticks(20);
  assert.is(mesh.takeGranted(), 0);
  for (const lease of mesh.tables.get(1)!.leases()) assert.ok(lease.granted >= 2);
});

test("report() of a leaf that there is not is answered with nothing granted, until that is known", () => {
  const ledger = ledgerOf(oneLeaf(10));
  for (const leaf of ["pool:x/y", "no leaf", "group:a"]) {
    ledger.report(reportOf(1, 1, { [leaf]: { wanted: 3 } }), 0);
    assert.equal(linesOf(ledger.decide(0)), [`1 ${leaf} 0`]);
    ledger.report(reportOf(1, 2, { [leaf]: { wanted: 3, ack: 1 } }), 1);
    assert.equal(linesOf(ledger.decide(1)), []);
  }
  assert.equal([...ledger.accounts()], []);
});

test("report() of something held of a leaf that there is not takes it back", () => {
  const ledger = ledgerOf(oneLeaf(10));
  ledger.report(reportOf(1, 1, { "pool:x/y": { held: 2, wanted: 2, granted: 2 } }), 0);
  const [decision] = ledger.decide(0);
  assert.equal(linesOf([decision!]), ["1 pool:x/y 0"]);
  assert.equal([...ledger.accounts()], [], "it is no account to show");
  const ack = decision!.grant.seq;
  ledger.report(reportOf(1, 2, { "pool:x/y": { ack } }), 1);
  assert.equal(linesOf(ledger.decide(1)), []);
});

const garbage: readonly [string, Partial<LeafReport>][] = [
  ["negative", { held: -1 }],
  ["not a number", { held: NaN }],
  ["not whole", { granted: 1.5 }],
  ["infinite", { wanted: Infinity }],
  ["too large to be slots", { held: 2 ** 40 }],
  ["too large to be counted", { granted: 2 ** 60 }],
  ["a negative acknowledgement", { ack: -3 }],
  ["no age", { idleMs: NaN }],
  ["text", { held: "7" as unknown as number }],
];

for (const [what, numbers] of garbage) {
  test(`report() passes over a leaf with a number that is ${what}`, () => {
    const ledger = ledgerOf(rulesOf({ [LEAF]: { [LEAF]: 10 }, "pool:c/d": { "pool:c/d": 10 } }));
    ledger.report(reportOf(1, 1, { [LEAF]: { held: 4, wanted: 4, granted: 4 } }), 0);
    ledger.decide(0);
    const before = chargedOf(ledger, LEAF);
    ledger.report(reportOf(1, 2, { [LEAF]: numbers, "pool:c/d": { wanted: 1 } }), 1);
    ledger.decide(1);
    assert.is(chargedOf(ledger, LEAF), before);
    assert.ok(chargedOf(ledger, "pool:c/d") >= 1);
  });
}

test("report() takes a wish beyond all bounds for as much as there is", () => {
  const ledger = ledgerOf(oneLeaf(10));
  ledger.report(reportOf(1, 1, { [LEAF]: { wanted: Number.MAX_SAFE_INTEGER } }), 0);
  assert.equal(linesOf(ledger.decide(0)), [`1 ${LEAF} 10`]);
});

test("report() does not let a worker acknowledge what was not sent yet", () => {
  const ledger = ledgerOf(oneLeaf(10));
  ledger.report(reportOf(1, 1, { [LEAF]: { wanted: 8, ack: 1_000_000 } }), 0);
  ledger.decide(0);
  ledger.report(reportOf(1, 2, { [LEAF]: { wanted: 8, ack: 0 } }), 1);
  assert.equal(linesOf(ledger.decide(1)), [`1 ${LEAF} 9`]);
  assert.is(chargedOf(ledger, LEAF), 9);
});

for (
  const numbers of [{ worker: -1 }, { incarnation: NaN }, { epoch: 1.5 }, {
    seq: Infinity,
  }] as const
) {
  test(`report() ignores one with ${JSON.stringify(Object.entries(numbers))}`, () => {
    const ledger = ledgerOf(oneLeaf(10));
    ledger.report({ ...reportOf(1, 1, { [LEAF]: { wanted: 1 } }), ...numbers }, 0);
    assert.equal(ledger.decide(0), []);
    assert.equal([...ledger.workers()], []);
  });
}

test("report() ignores a key that is too long, and keeps none that nobody may have", () => {
  const ledger = ledgerOf(everyPool(10));
  const long = "pool:" + "x".repeat(LEAF_LENGTH_MAX);
  ledger.report(reportOf(1, 1, { [long]: { wanted: 1, held: 1, granted: 1 } }), 0);
  assert.equal(linesOf(ledger.decide(0)), []);
  assert.equal([...ledger.accounts()], []);
});

test("report() bounds the leaves that one worker can be charged for", () => {
  const ledger = ledgerOf(everyPool(10));
  let seq = 0;
  for (let n = 0; n < 21_000; n += 200) {
    const leaves = Array.from({ length: 200 }, (_, at) => [`pool:d${n + at}/u`, { wanted: 1 }]);
    ledger.report(reportOf(1, ++seq, Object.fromEntries(leaves)), seq);
  }
  const lines = linesOf(ledger.decide(seq));
  assert.is([...ledger.accounts()].length, 20_000);
  assert.is(lines.filter((line) => line.endsWith(" 0")).length, 1000);
});

test("workers() tells restored, live and silent ones, and what they hold", () => {
  const ledger = ledgerOf(rulesOf({ [LEAF]: { [LEAF]: 10 }, clients: { clients: 10 } }));
  const leaves = { [LEAF]: { held: 3, wanted: 3 }, clients: { held: 5, wanted: 5 } };
  ledger.report(reportOf(1, 1, leaves), 0);
  ledger.report(reportOf(2, 1, {}, { epoch: 0 }), 100);
  ledger.report(reportOf(3, 1, {}), 200);
  ledger.decide(SILENT_MS);
  const views = [...ledger.workers()].map(({ worker, state, heldServers, lastReportAt }) =>
    `${worker} ${state} ${heldServers} ${lastReportAt}`
  );
  assert.equal(views, ["1 silent 3 0", "2 restored 0 100", "3 live 0 200"]);
});

test("accounts() tells caps, charges and wishes", () => {
  const ledger = ledgerOf(rulesOf({ [LEAF]: { [LEAF]: 10, "db:a": 7 } }));
  ledger.report(reportOf(1, 1, { [LEAF]: { wanted: 50 } }), 0);
  ledger.decide(0);
  assert.equal([...ledger.accounts()], [
    { name: LEAF, cap: 10, charged: 7, wanted: 50 },
    { name: "db:a", cap: 7, charged: 7, wanted: 50 },
  ]);
});

test("decide() puts off what is too much at once, and answers whoever waits for it in the end", () => {
  // 600 workers contend for each of 150 pools: more than is divided at once.
  const ledger = ledgerOf(everyPool(5));
  const leaves = Object.fromEntries(
    Array.from({ length: 150 }, (_, n) => [`pool:d${n}/u`, { wanted: 2 }]),
  );
  for (let worker = 0; worker < 600; worker++) ledger.report(reportOf(worker, 1, leaves), 0);
  const answered = new Set<number>();
  let now = 0;
  for (const { worker } of ledger.decide(now)) answered.add(worker);
  assert.ok(answered.size < 600, "some wait");
  while (answered.size < 600 && now < 2000) {
    now += 10;
    for (const { worker } of ledger.decide(now)) answered.add(worker);
  }
  assert.is(answered.size, 600);
  while (now < 2000) ledger.decide(now += 10);
  for (const { charged, cap } of ledger.accounts()) assert.is(charged, cap);
});

// A pool with free slots had to wait until another one was divided that hundreds of workers contended for.
test("decide() does not put off a pool that has slots for one that cannot be divided yet", () => {
  const contended = Object.fromEntries(
    Array.from({ length: 150 }, (_, n) => [`pool:d${n}/u`, { wanted: 2 }]),
  );
  const rows = [["pool:free/u", {}, 600], ["pool:free/u", { clients: { wanted: 1 } }, 0]] as const;
  for (const [free, more, given] of rows) {
    const ledger = ledgerOf((leaf) => ({
      accounts: [{ name: leaf, cap: leaf === free ? 5000 : 5 }],
      sticky: leaf === "clients",
    }));
    const leaves = { [free]: { wanted: 1 }, ...contended, ...more };
    for (let worker = 0; worker < 600; worker++) ledger.report(reportOf(worker, 1, leaves), 0);
    const decisions = ledger.decide(0);
    const raised = decisions.filter(({ grant }) => grant.leaves.some(({ leaf }) => leaf === free));
    // Clients that wait for a place are turned away by an answer without one: that is decided first.
    assert.is(raised.length, given);
  }
});

test.run();
