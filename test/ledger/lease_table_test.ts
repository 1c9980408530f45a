// The worker's side: which grants count, what is reported, what is given up without contact.

import { LeaseTable, LEAVES_MAX, UNLIMITED } from "../../shared/ledger/mod.ts";
import { assert, suite } from "../support/harness.ts";
import { grantOf, LEASE_MS, rulesOf, tableOf } from "./fixtures.ts";

const test = suite("ledger/lease_table");

const LEAF = "pool:a/b";

/** A table that promised epoch 1 and sent report 1 at time 0, with the leaf in it. */
function reportedTable(wanted = 9): LeaseTable {
  const table = tableOf(1);
  table.onLeader(1, 0);
  const lease = table.lease(LEAF);
  lease.wanted = wanted;
  lease.touch();
  table.reports(0, true);
  return table;
}

function names(leases: readonly { readonly leaf: string }[]): string[] {
  return leases.map(({ leaf }) => leaf);
}

test("lease() returns the same object for the same leaf", () => {
  const table = tableOf(1);
  assert.is(table.lease(LEAF), table.lease(LEAF));
  assert.is(table.lease(LEAF).room, 0);
});

test("onGrant() applies a raise at once", () => {
  const table = reportedTable();
  const lease = table.lease(LEAF);
  const grant = grantOf(1, 1, { [LEAF]: { granted: 5, floor: 2, pending: true } });
  assert.equal(names(table.onGrant(grant, 10)), [LEAF]);
  assert.equal([lease.granted, lease.floor, lease.limit, lease.room, lease.pending], [
    5,
    2,
    5,
    5,
    true,
  ]);
  assert.is(lease.answeredSeq, 1);
  assert.is(lease.answered, true);
  assert.is(table.contactAt, 0);
});

test("onGrant() applies a lowering at once, below what is held too", () => {
  const table = reportedTable();
  const lease = table.lease(LEAF);
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 5, floor: 5 } }), 10);
  lease.held = 5;
  table.onGrant(grantOf(2, 1, { [LEAF]: { granted: 2, floor: 1 } }), 20);
  assert.equal([lease.limit, lease.floor, lease.room], [2, 1, 0]);
});

test("onGrant() ignores what is for another worker or incarnation", () => {
  const table = reportedTable();
  const leaves = { [LEAF]: { granted: 5 } };
  assert.equal(table.onGrant(grantOf(1, 1, leaves, { worker: 2 }), 10), []);
  assert.equal(table.onGrant(grantOf(1, 1, leaves, { incarnation: 2 }), 10), []);
  assert.is(table.lease(LEAF).granted, 0);
  assert.is(table.contactAt, -Infinity);
});

test("onGrant() ignores an epoch that is over, as a sign of contact too", () => {
  const table = reportedTable();
  table.onLeader(2, 5);
  assert.equal(table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 5 } }), 10), []);
  assert.is(table.lease(LEAF).granted, 0);
  assert.is(table.contactAt, -Infinity);
});

test("onGrant() keeps the newest of grants that come late, twice or out of order", () => {
  const table = reportedTable();
  const lease = table.lease(LEAF);
  const first = grantOf(1, 1, { [LEAF]: { granted: 8 } });
  const second = grantOf(2, 1, { [LEAF]: { granted: 3 }, "pool:c/d": { granted: 1 } });
  table.onGrant(second, 10);
  table.onGrant(first, 11);
  table.onGrant(second, 12);
  assert.is(lease.granted, 3);
  assert.is(lease.ack, 2);
  assert.is(table.lease("pool:c/d").granted, 1);
});

test("onGrant() takes an earlier message for a leaf that a later one did not name", () => {
  const table = reportedTable();
  table.onGrant(grantOf(2, 1, { "pool:c/d": { granted: 1 } }), 10);
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 8 } }), 11);
  assert.is(table.lease(LEAF).granted, 8);
});

test("onGrant() raises nothing when the report it answers was sent a lease ago", () => {
  // A grant that hung in the network for longer than a lease came when the coordinator had given the
  // slots to others already.
  const table = reportedTable();
  const lease = table.lease(LEAF);
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 4, floor: 2 } }), 10);
  lease.held = 4;
  table.reports(LEASE_MS - 1, true);
  table.onGrant(grantOf(3, 2, {}), LEASE_MS);
  table.onGrant(grantOf(2, 1, { [LEAF]: { granted: 8, floor: 8 } }), LEASE_MS);
  assert.equal([lease.granted, lease.floor, lease.ack], [4, 2, 2]);
});

test("onGrant() lowers even when the report it answers was sent long ago", () => {
  const table = reportedTable();
  const lease = table.lease(LEAF);
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 4, floor: 2 } }), 10);
  lease.held = 4;
  table.onGrant(grantOf(2, 1, { [LEAF]: { granted: 1, floor: 1 } }), LEASE_MS * 2);
  assert.equal([lease.granted, lease.floor], [1, 1]);
});

test("onGrant() takes no contact from reports that were never sent", () => {
  const table = reportedTable();
  for (const report of [0, 2, -1, NaN]) table.onGrant(grantOf(1, report, {}), 10);
  assert.is(table.contactAt, -Infinity);
});

test("onGrant() counts contact from when the report was sent", () => {
  const table = reportedTable();
  table.reports(700, true);
  table.onGrant(grantOf(1, 2, {}), 900);
  assert.is(table.contactAt, 700);
  table.onGrant(grantOf(2, 1, {}), 950);
  assert.is(table.contactAt, 700);
});

test("onGrant() returns the leases whose report it answers, once", () => {
  const table = reportedTable();
  assert.equal(names(table.onGrant(grantOf(1, 1, {}), 10)), [LEAF]);
  assert.equal(names(table.onGrant(grantOf(2, 1, {}), 11)), []);
});

test("onGrant() passes over numbers that are none", () => {
  const table = reportedTable();
  for (const granted of [NaN, -1, 1.5, Infinity]) {
    table.onGrant(grantOf(1, 1, { [LEAF]: { granted } }), 10);
  }
  table.onGrant(grantOf(NaN, 1, { [LEAF]: { granted: 3 } }), 10);
  assert.is(table.lease(LEAF).granted, 0);
  assert.is(table.lease(LEAF).ack, 0);
});

test("onGrant() keeps a floor within what is granted", () => {
  const table = reportedTable();
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 2, floor: 7 } }), 10);
  assert.is(table.lease(LEAF).floor, 2);
});

test("onLeader() promises a higher epoch and asks for a full report, once", () => {
  const table = tableOf(1);
  assert.is(table.onLeader(3, 0), true);
  assert.is(table.epoch, 3);
  assert.is(table.reportDue, true);
  const [report] = table.reports(1, false);
  assert.is(report!.epoch, 3);
  assert.is(table.onLeader(3, 2), false);
  assert.is(table.onLeader(2, 3), false);
  assert.is(table.epoch, 3);
  assert.is(table.reportDue, false);
});

test("onLeader() still asks for the report when a grant brought the epoch first", () => {
  const table = tableOf(1);
  table.reports(0, true);
  table.onGrant(grantOf(1, 1, {}, { epoch: 2 }), 1);
  assert.is(table.onLeader(2, 2), true);
});

test("onLeader() makes acknowledgements of earlier epochs void", () => {
  const table = reportedTable();
  table.onGrant(grantOf(7, 1, { [LEAF]: { granted: 4, floor: 1 } }), 10);
  table.onLeader(2, 20);
  const [report] = table.reports(30, false);
  assert.equal(report!.leaves.map(({ granted, ack }) => [granted, ack]), [[4, 0]]);
  table.onGrant(grantOf(1, report!.seq, { [LEAF]: { granted: 5 } }, { epoch: 2 }), 40);
  assert.is(table.lease(LEAF).granted, 5);
});

test("onLeader() forgets what an earlier leader announced and answered", () => {
  // A client waited for ever for a slot that only the leader before had promised.
  const table = reportedTable();
  const lease = table.lease(LEAF);
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 1, pending: true } }), 10);
  table.onLeader(2, 20);
  assert.equal([lease.granted, lease.pending, lease.answered], [1, false, false]);
  table.reports(30, false);
  assert.equal(names(table.onGrant(grantOf(1, 2, {}, { epoch: 2 }), 40)), [LEAF]);
  assert.equal([lease.pending, lease.answered], [false, true]);
});

test("a report that carried no promise of the epoch is not answered by its leader", () => {
  // A new leader answers such a report to make itself known, without having read what is in it: a client that
  // waited for that answer was refused although slots were free.
  const table = reportedTable();
  table.onLeader(2, 5);
  table.onGrant(grantOf(1, 1, {}, { epoch: 2 }), 10);
  assert.is(table.lease(LEAF).answered, false);
  table.reports(20, true);
  assert.equal(names(table.onGrant(grantOf(2, 2, {}, { epoch: 2 }), 30)), [LEAF]);
});

test("reports() carries what was touched, once", () => {
  const table = reportedTable();
  const lease = table.lease(LEAF);
  assert.equal(table.reports(1, false), []);
  lease.held = 2;
  lease.idleMs = 7.9;
  lease.touch();
  assert.equal(table.reports(2, false), [{
    worker: 1,
    incarnation: 1,
    epoch: 1,
    seq: 2,
    leaves: [
      { leaf: LEAF, held: 2, wanted: 9, granted: 0, ack: 0, idleMs: 7, asks: false, busyMs: 0 },
    ],
  }]);
  assert.is(lease.lastReportSeq, 2);
  assert.equal(table.reports(3, false), []);
});

test("reports() in full carries all that is not zero, and at least itself", () => {
  const table = tableOf(1);
  assert.equal(table.reports(0, true).map(({ leaves }) => leaves), [[]]);
  table.lease("pool:zero/u");
  table.lease("pool:held/u").held = 1;
  table.lease("pool:wanted/u").wanted = 1;
  const leaves = table.reports(1, true).flatMap(({ leaves }) => names(leaves));
  assert.equal(leaves.sort(), ["pool:held/u", "pool:wanted/u"]);
});

test("reports() acknowledges a grant by the next report, that of nothing too", () => {
  const table = reportedTable(0);
  table.onGrant(grantOf(4, 1, { [LEAF]: { granted: 0 } }), 10);
  assert.is(table.reportDue, true);
  assert.equal(table.reports(20, false).flatMap(({ leaves }) => leaves.map(({ ack }) => ack)), [4]);
  assert.equal(table.reports(30, true).flatMap(({ leaves }) => leaves), []);
});

test("reports() divides many leaves", () => {
  const table = tableOf(1);
  for (let n = 0; n < LEAVES_MAX * 2 + 1; n++) table.lease(`pool:d${n}/u`).wanted = 1;
  const reports = table.reports(0, true);
  assert.equal(reports.map(({ leaves }) => leaves.length), [LEAVES_MAX, LEAVES_MAX, 1]);
  assert.equal(reports.map(({ seq }) => seq), [1, 2, 3]);
});

test("expire() keeps all for a lease after the report that was answered last", () => {
  const table = reportedTable();
  const lease = table.lease(LEAF);
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 8, floor: 2 } }), 5000);
  table.expire(LEASE_MS - 1);
  assert.is(table.lapsed(LEASE_MS - 1), false);
  assert.is(lease.limit, 8);
  table.expire(LEASE_MS);
  assert.is(table.lapsed(LEASE_MS), true);
  assert.is(lease.limit, 2);
});

test("expire() goes down with what is held, to the floor, and never up", () => {
  const table = reportedTable();
  const lease = table.lease(LEAF);
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 8, floor: 2 } }), 0);
  const limits = [6, 7, 4, 1, 2, 0].map((held) => {
    lease.held = held;
    table.expire(LEASE_MS);
    return lease.limit;
  });
  assert.equal(limits, [6, 6, 4, 2, 2, 2]);
  assert.is(table.reportDue, true);
});

test("expire() does not keep connections that are still opening, beyond the floor", () => {
  // A worker cut off from all others had connections under way to PostgreSQL, which showed none of them; they
  // came through when the coordinator had given their slots to others.
  const table = reportedTable();
  const lease = table.lease(LEAF);
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 8, floor: 2 } }), 0);
  lease.held = 8;
  lease.opening = 5;
  table.expire(LEASE_MS);
  assert.equal([lease.limit, lease.room], [3, 0]);
  lease.held = lease.opening = 2;
  table.expire(LEASE_MS);
  assert.is(lease.limit, 2);
  table.expire(20 * LEASE_MS);
  assert.is(lease.limit, 0);
});

test("expire() does not give back on contact what it took", () => {
  const table = reportedTable();
  const lease = table.lease(LEAF);
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 8, floor: 2 } }), 0);
  table.expire(LEASE_MS);
  table.reports(LEASE_MS + 1, true);
  table.onGrant(grantOf(2, 2, {}), LEASE_MS + 2);
  table.expire(LEASE_MS + 2);
  assert.equal([table.lapsed(LEASE_MS + 2), lease.limit], [false, 2]);
  table.onGrant(grantOf(3, 2, { [LEAF]: { granted: 5, floor: 2 } }), LEASE_MS + 3);
  assert.is(lease.limit, 5);
});

test("expire() goes on with what is held when contact is back, until it is granted anew", () => {
  // A process was stopped for longer than a lease, and some of its connections were ended meanwhile. It was
  // answered before it had read of that, and then opened as many others, which were granted to somebody else.
  const table = reportedTable();
  const lease = table.lease(LEAF);
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 8, floor: 2 } }), 0);
  lease.held = 6;
  table.reports(3 * LEASE_MS, true);
  table.onGrant(grantOf(2, 2, {}), 3 * LEASE_MS + 1);
  assert.equal([table.lapsed(3 * LEASE_MS + 1), lease.limit, lease.waning], [false, 6, true]);
  for (const [held, limit] of [[5, 5], [6, 5], [1, 2]] as const) {
    lease.held = held;
    table.expire(3 * LEASE_MS + 2);
    assert.is(lease.limit, limit);
  }
  assert.is(table.reportDue, true);
  table.onGrant(grantOf(3, 2, { [LEAF]: { granted: 7, floor: 2 } }), 3 * LEASE_MS + 3);
  table.expire(3 * LEASE_MS + 4);
  assert.equal([lease.limit, lease.waning], [7, false]);
});

test("expire() gives up a floor that is not used after twenty leases", () => {
  const table = reportedTable();
  const lease = table.lease(LEAF);
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 8, floor: 3 } }), 0);
  lease.held = 1;
  for (let at = 0; at <= 20 * LEASE_MS; at += LEASE_MS / 2) table.expire(at);
  assert.equal([lease.floor, lease.limit], [3, 3]);
  lease.held = 0;
  table.expire(20 * LEASE_MS + 1);
  assert.equal([lease.floor, lease.limit], [0, 0]);
});

test("expire() does not trust a floor after it was not called for a lease, out of contact for twenty", () => {
  // A stopped process that went on read of the end of its connections one by one, and opened others up to its
  // floor, which had been given away when PostgreSQL showed none of them.
  const table = reportedTable();
  const lease = table.lease(LEAF);
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 8, floor: 3 } }), 0);
  lease.held = 2;
  table.expire(20 * LEASE_MS);
  assert.equal([lease.floor, lease.limit], [0, 2]);
  lease.held = 1;
  table.expire(20 * LEASE_MS + 1);
  assert.equal([lease.limit, lease.room], [1, 0]);
});

const DIRECT = "direct:a/b";

/** A table of a worker of whose leaves only LEAF has a limit, by its own configuration. */
function freeTable(): LeaseTable {
  const rules = rulesOf({ [LEAF]: { [LEAF]: 5 }, [DIRECT]: {} });
  const table = new LeaseTable({ worker: 1, incarnation: 1, leaseMs: LEASE_MS, rules });
  table.onLeader(1, 0);
  return table;
}

test("expire() lets a worker that nobody has answered yet open what nothing limits, and that only", () => {
  const table = freeTable();
  table.expire(0);
  const leaves = [DIRECT, LEAF, "direct:no/rule"].map((leaf) => table.lease(leaf));
  table.expire(1);
  assert.equal(leaves.map(({ room }) => room), [UNLIMITED, 0, 0]);
  const [report] = table.reports(2, false);
  assert.equal(report!.leaves.map(({ leaf, granted }) => [leaf, granted]), [[DIRECT, UNLIMITED]]);
  table.expire(3);
  assert.is(table.reportDue, false);
});

test("expire() takes nothing of what nothing limits, however long nobody answers", () => {
  const table = freeTable();
  const lease = table.lease(DIRECT);
  table.reports(0, true);
  table.onGrant(grantOf(1, 1, { [DIRECT]: { granted: UNLIMITED, floor: UNLIMITED } }), 1);
  table.expire(30 * LEASE_MS);
  assert.is(lease.room, UNLIMITED);
});

// A worker that runs on with the configuration it read at its start would open without end what has a limit
// since, as soon as nobody answered it.
test("onGrant() with a limit counts more than the worker's own configuration", () => {
  const rows: [wanted: number, granted: number, pending: boolean, unlimited: boolean][] = [
    [3, 2, true, false],
    [3, 3, false, false],
    [3, 0, false, false],
    // Not before all workers have said what they hold.
    [3, 0, true, true],
    // Nobody has wanted it for a minute.
    [0, 0, false, true],
  ];
  for (const [wanted, granted, pending, unlimited] of rows) {
    const table = freeTable();
    const lease = table.lease(DIRECT);
    table.reports(0, true);
    lease.wanted = wanted;
    table.onGrant(grantOf(1, 1, { [DIRECT]: { granted, pending } }), 1);
    assert.equal([lease.granted, lease.unlimited], [granted, unlimited]);
    table.expire(30 * LEASE_MS);
    assert.is(lease.room, unlimited ? UNLIMITED : 0);
    table.reports(30 * LEASE_MS, true);
    const free = grantOf(2, 2, { [DIRECT]: { granted: UNLIMITED } });
    table.onGrant(free, 30 * LEASE_MS);
    assert.is(lease.unlimited, true);
  }
});

test("onGrant() without a limit makes nothing unlimited that the worker's own configuration limits", () => {
  const table = freeTable();
  const lease = table.lease(LEAF);
  table.reports(0, true);
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: UNLIMITED, floor: UNLIMITED } }), 1);
  assert.equal([lease.granted, lease.unlimited], [UNLIMITED, false]);
  table.expire(30 * LEASE_MS);
  assert.is(lease.room, 0);
});

test("forget() drops a lease only when nothing hangs on it any more", () => {
  const table = reportedTable(0);
  const lease = table.lease(LEAF);
  assert.is(table.forget(LEAF), false, "not answered");
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 1 } }), 1);
  assert.is(table.forget(LEAF), false, "granted");
  table.onGrant(grantOf(2, 1, { [LEAF]: { granted: 0 } }), 2);
  assert.is(table.forget(LEAF), false, "not acknowledged");
  table.reports(3, false);
  table.onGrant(grantOf(3, 2, {}), 4);
  assert.is(table.forget(LEAF), true);
  assert.is(table.forget("pool:never/seen"), true);
  assert.is.not(table.lease(LEAF), lease);
});

test("forget() does not let a grant from before it count again", () => {
  // The grant of a slot came a second time when its lease had been given back and forgotten.
  const table = reportedTable(0);
  const old = grantOf(1, 1, { [LEAF]: { granted: 1 } });
  table.onGrant(old, 1);
  table.onGrant(grantOf(2, 1, { [LEAF]: { granted: 0 } }), 2);
  table.reports(3, false);
  table.onGrant(grantOf(3, 2, {}), 4);
  assert.is(table.forget(LEAF), true);
  table.onGrant(old, 5);
  assert.is(table.lease(LEAF).granted, 0);
});

test("contact of reports that were sent long ago is forgotten, not taken for new", () => {
  const table = reportedTable();
  for (let n = 0; n < 5000; n++) table.reports(n, true);
  table.onGrant(grantOf(1, 1, { [LEAF]: { granted: 5 } }), 5000);
  assert.is(table.contactAt, -Infinity);
  assert.is(table.lease(LEAF).granted, 0);
});

test.run();
