// Server connections outside of pools: they have the limits of their database and user in common with pools,
// what is held of them is never asked back, and where there is no such limit they may have any number.

import { type LeafRules, LeaseTable, Ledger, UNLIMITED } from "../../shared/ledger/mod.ts";
import { assert, suite } from "../support/harness.ts";
import {
  chargedOf,
  chargesOf,
  LEASE_MS,
  ledgerOf,
  linesOf,
  Mesh,
  reportOf,
  rulesOf,
  SILENT_MS,
} from "./fixtures.ts";

const test = suite("ledger/ledger_direct");

const POOL = "pool:a/u";
const DIRECT = "direct:a/u";

/** A pool of up to 20 and direct connections of one database. */
function joined(cap: number): LeafRules {
  return rulesOf({ [POOL]: { [POOL]: 20, "db:a": cap }, [DIRECT]: { "db:a": cap } });
}

const free = rulesOf({ [POOL]: { [POOL]: 20 }, [DIRECT]: {} });

/** Sets what a worker holds, wants and has idle of a leaf. */
function put(mesh: Mesh, worker: number, leaf: string, held: number, wanted: number): void {
  const lease = mesh.tables.get(worker)!.lease(leaf);
  lease.held = held;
  lease.wanted = wanted;
  lease.idleMs = held > wanted ? 1000 : 0;
  lease.touch();
}

test("a direct connection is charged to the limit of its database, beside the pool", () => {
  const mesh = new Mesh(joined(10), 2);
  mesh.use(1, DIRECT, 2);
  mesh.use(1, POOL, 20);
  mesh.use(2, POOL, 20);
  mesh.ticks(20);
  const direct = mesh.grantedTo(1, DIRECT);
  assert.is(direct, 2);
  assert.equal(mesh.split(POOL), [4, 4]);
  assert.is(chargedOf(mesh.ledger, "db:a"), 10);
  assert.is(chargedOf(mesh.ledger, POOL), 8);
});

test("a direct connection gets the slot of a pool's idle server, within one report of each side", () => {
  const mesh = new Mesh(joined(10), 2);
  mesh.use(1, POOL, 10);
  mesh.ticks(3);
  put(mesh, 1, POOL, 10, 3);
  mesh.ticks(5);
  assert.equal(mesh.split(POOL), [10, 0]);
  mesh.use(2, DIRECT, 1);
  mesh.tick(50, false);
  assert.is(mesh.grantedTo(1, POOL), 9);
  mesh.tick(50, false);
  assert.is(mesh.grantedTo(2, DIRECT), 1);
});

test("a direct connection gets the slot of a pool that uses all it has, as soon as it gives one back", () => {
  const mesh = new Mesh(joined(10), 1);
  mesh.use(1, POOL, 50);
  mesh.ticks(3);
  mesh.use(1, DIRECT, 1);
  mesh.ticks(2);
  assert.equal([mesh.grantedTo(1, POOL), mesh.grantedTo(1, DIRECT)], [9, 1]);
});

test("what is held of direct connections is never asked back, whoever lacks a slot", () => {
  const mesh = new Mesh(joined(10), 4);
  mesh.use(1, DIRECT, 8);
  mesh.ticks(3);
  for (const worker of [1, 2, 3, 4]) mesh.use(worker, POOL, 20);
  for (let n = 0; n < 200; n++) {
    mesh.tick();
    assert.is(mesh.grantedTo(1, DIRECT), 8);
    assert.ok(mesh.split(POOL).reduce((a, b) => a + b) <= 2);
  }
  put(mesh, 1, DIRECT, 2, 2);
  mesh.ticks(5);
  assert.equal(mesh.split(POOL), [2, 2, 2, 2]);
});

test("what direct connections were granted and do not hold goes to pools that lack it", () => {
  const mesh = new Mesh(joined(10), 2);
  mesh.use(1, DIRECT, 1);
  mesh.ticks(3);
  assert.ok(mesh.grantedTo(1, DIRECT) > 1, "some in advance");
  mesh.use(2, POOL, 9);
  mesh.ticks(3);
  assert.equal([mesh.grantedTo(1, DIRECT), mesh.grantedTo(2, POOL)], [1, 9]);
});

test("pools and direct connections that want all have equal parts", () => {
  const mesh = new Mesh(joined(10), 1);
  mesh.use(1, DIRECT, 30);
  mesh.use(1, POOL, 30);
  mesh.ticks(4);
  assert.equal([mesh.grantedTo(1, DIRECT), mesh.grantedTo(1, POOL)], [5, 5]);
});

test("a limit lowered below what direct connections hold raises nobody, and takes pools' slots only", () => {
  const mesh = new Mesh(joined(10), 2);
  mesh.use(1, DIRECT, 6);
  mesh.use(2, POOL, 4);
  mesh.ticks(4);
  mesh.ledger.setRules(joined(5), mesh.now);
  mesh.ticks(4);
  assert.equal([mesh.grantedTo(1, DIRECT), mesh.grantedTo(2, POOL)], [6, 0]);
  put(mesh, 1, DIRECT, 3, 3);
  mesh.ticks(4);
  assert.equal([mesh.grantedTo(1, DIRECT), mesh.grantedTo(2, POOL)], [3, 2]);
});

// Where more was held than a limit allowed, a worker was told to wait for what it held already.
test("what is held of direct connections beyond a grant is nothing to wait for", () => {
  const ledger = ledgerOf(joined(4));
  ledger.report(reportOf(1, 1, { [DIRECT]: { held: 4, wanted: 4, granted: 4 } }), 0);
  ledger.report(reportOf(2, 1, { [DIRECT]: { held: 2, wanted: 6 } }), 0);
  const pending = ledger.decide(0).flatMap(({ grant }) => grant.leaves).filter((leaf) =>
    leaf.pending
  );
  assert.equal(pending, []);
});

test("direct connections of a database that is no more keep what they hold, and get no more", () => {
  const mesh = new Mesh(joined(10), 1);
  mesh.use(1, DIRECT, 2);
  mesh.ticks(3);
  mesh.ledger.setRules(() => null, mesh.now);
  mesh.use(1, DIRECT, 4);
  mesh.ticks(4);
  const lease = mesh.tables.get(1)!.lease(DIRECT);
  assert.equal([lease.granted, lease.pending], [2, false]);
  assert.is(chargedOf(mesh.ledger, "db:a"), 2);
});

test("direct connections that nothing limits get any number at once, and keep it without contact", () => {
  const mesh = new Mesh(free, 3);
  for (const worker of [1, 2, 3]) mesh.use(worker, DIRECT, 1);
  mesh.tick(50, false);
  for (const worker of [1, 2, 3]) {
    const { granted, floor, pending } = mesh.tables.get(worker)!.lease(DIRECT);
    assert.equal([granted, floor, pending], [UNLIMITED, UNLIMITED, false]);
  }
  assert.equal([...mesh.ledger.accounts()], [], "it is no account to show");
});

test("direct connections that nothing limits are forgotten when nobody has used them for a minute", () => {
  const mesh = new Mesh(free, 1);
  mesh.use(1, DIRECT, 1);
  mesh.ticks(3);
  put(mesh, 1, DIRECT, 0, 0);
  for (let n = 0; n < 70; n++) mesh.tick(1000);
  const lease = mesh.tables.get(1)!.lease(DIRECT);
  assert.equal([lease.granted, lease.held], [0, 0]);
  assert.is(mesh.tables.get(1)!.forget(DIRECT), true);
});

test("a limit that is new holds at once: pools get nothing before direct connections are known to keep to it", () => {
  const mesh = new Mesh(free, 2);
  mesh.use(1, DIRECT, 3);
  mesh.use(2, POOL, 5);
  mesh.ticks(3);
  const { granted } = mesh.tables.get(2)!.lease(POOL);
  mesh.ledger.setRules(joined(9), mesh.now);
  mesh.use(2, POOL, 20);
  mesh.tick(50, false);
  assert.ok(mesh.grantedTo(1, DIRECT) <= 9, "lowered");
  assert.ok(mesh.grantedTo(2, POOL) <= granted, "not raised");
  mesh.ticks(4);
  assert.equal([mesh.grantedTo(1, DIRECT), mesh.grantedTo(2, POOL)], [3, 6]);
  mesh.ledger.setRules(free, mesh.now);
  mesh.use(1, DIRECT, 4);
  mesh.ticks(2);
  assert.equal([mesh.grantedTo(1, DIRECT), mesh.grantedTo(2, POOL)], [UNLIMITED, 20]);
});

// The limit of a database was taken out of the file, and its clients were refused from then on by workers that
// still had it.
test("clients whose limit is no more in the file get any number", () => {
  const leaf = "clients/db:a";
  const mesh = new Mesh(rulesOf({ [leaf]: { [leaf]: 2 } }), 1);
  mesh.use(1, leaf, 5);
  mesh.ticks(3);
  assert.is(mesh.grantedTo(1, leaf), 2);
  mesh.ledger.setRules(rulesOf({ [leaf]: {} }), mesh.now);
  mesh.ticks(2);
  assert.ok(mesh.grantedTo(1, leaf) >= 5);
});

test("a worker that was free without contact is charged all it may open, until it knows the limit", () => {
  const ledger = ledgerOf(joined(10));
  const table = new LeaseTable({ worker: 1, incarnation: 1, leaseMs: LEASE_MS, rules: free });
  table.onLeader(1, 0);
  const lease = table.lease(DIRECT);
  table.expire(0);
  lease.held = lease.wanted = 2;
  for (const report of table.reports(0, true)) ledger.report(report, 0);
  assert.is(chargedOf(ledger, "db:a"), UNLIMITED);
  for (const { grant } of ledger.decide(0)) table.onGrant(grant, 1);
  assert.ok(lease.granted >= 2 && lease.granted <= 10);
  for (const report of table.reports(2, false)) ledger.report(report, 2);
  assert.ok(chargedOf(ledger, "db:a") <= 10);
});

test("restore() of what nothing limited charges it to a limit that there is now", () => {
  const ledger = ledgerOf(joined(10), 2);
  ledger.restore(1, 1, chargesOf({ [DIRECT]: [UNLIMITED, UNLIMITED] }), 0);
  ledger.report(reportOf(2, 1, { [POOL]: { wanted: 5 } }, { epoch: 2 }), SILENT_MS);
  assert.equal(linesOf(ledger.decide(SILENT_MS + 1)), []);
  assert.is(chargedOf(ledger, "db:a"), UNLIMITED);
  ledger.gone(1, 1);
  assert.equal(linesOf(ledger.decide(SILENT_MS + 2)), ["2 pool:a/u 5"]);
});

const RATCHETED = LEASE_MS * 1.1 + 1100;

/** Worker 1 holds 4 direct connections of 10, and is not heard again. */
function silentLedger(): Ledger {
  const ledger = ledgerOf(joined(10));
  ledger.report(reportOf(2, 1, {}), 0);
  const leaf = { held: 4, wanted: 4, granted: 4 };
  ledger.report(reportOf(1, 1, { [DIRECT]: leaf }), 0);
  const sent = ledger.decide(0).find(({ worker }) => worker === 1)!.grant;
  const granted = sent.leaves[0]?.granted ?? 4;
  ledger.report(reportOf(1, 2, { [DIRECT]: { ...leaf, granted, ack: sent.seq } }), 1);
  ledger.decide(1);
  return ledger;
}

test("backends() and left() count direct connections, which outlive their worker", () => {
  const ledger = silentLedger();
  assert.equal([...ledger.workers()].map(({ heldServers }) => heldServers), [0, 4]);
  ledger.backends(1, 1, new Map([[DIRECT, 7]]), RATCHETED);
  assert.is(chargedOf(ledger, "db:a"), 7);
  ledger.backends(1, 1, new Map([[DIRECT, 6]]), RATCHETED);
  assert.is(chargedOf(ledger, "db:a"), 6);
  ledger.left(1, 1, new Map([[DIRECT, 1]]));
  assert.is(chargedOf(ledger, "db:a"), 1);
  ledger.left(1, 1, new Map());
  assert.is(chargedOf(ledger, "db:a"), 0);
});

test.run();
