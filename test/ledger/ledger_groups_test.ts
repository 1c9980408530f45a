// Leaves of resource groups in the ledger: what runs in a group is asked back as it ends, and what a worker has left
// behind counts until PostgreSQL shows that it has ended.

import { groupLeaf, leafRules, poolLeaf, queueLeaf } from "../../shared/ledger/mod.ts";
import { loadConfig } from "../../shared/config/mod.ts";
import { assert, suite } from "../support/harness.ts";
import {
  chargedOf,
  grantOf,
  LEASE_MS,
  ledgerOf,
  Mesh,
  oneLeaf,
  reportOf,
  rulesOf,
  tableOf,
} from "./fixtures.ts";

const tests = suite("ledger of groups");

const GROUP = groupLeaf("reports");
const QUEUE = queueLeaf("reports");
const POOL = poolLeaf("a", "b");

tests("leafRules() gives each group with a limit an account of its own", () => {
  const { config } = loadConfig(
    "main.ini",
    () =>
      "[databases]\na = host=h user=u\n[pgbouncer]\npool_mode = transaction\nauth_type = any\n" +
      "[groups]\ntop = max_concurrent_queries=6 max_queued=9\nlow = parent=top max_concurrent_queries=2\n" +
      "free = parent=top\n[group_rules]\nr = group=low\n",
  );
  const rules = leafRules(config!);
  const accountsOf = (group: string) => rules(groupLeaf(group))?.accounts ?? null;
  assert.equal(accountsOf("top"), [{ name: "group:top", cap: 6 }]);
  assert.equal(accountsOf("low"), [{ name: "group:low", cap: 2 }]);
  assert.equal(accountsOf("free"), []);
  assert.is(accountsOf("gone"), null);
  assert.is(rules(GROUP), null);
  assert.is(rules(groupLeaf("low"))?.sticky, false);
  const part = leafRules(config!, { index: 1, count: 4 });
  assert.equal(part(groupLeaf("top"))?.accounts, [{ name: "group:top", cap: 2 }]);
  assert.equal(rules(queueLeaf("top"))?.accounts, [{ name: "queue:top", cap: 9 }]);
  assert.is(rules(queueLeaf("top"))?.sticky, true);
  assert.equal(rules(queueLeaf("low"))?.accounts, []);
  assert.is(rules(QUEUE), null);
  assert.equal(part(queueLeaf("top"))?.accounts, [{ name: "queue:top", cap: 2 }]);
});

tests("who waits in a group keeps its place, and others get what is free", () => {
  const mesh = new Mesh(oneLeaf(6, QUEUE), 2);
  mesh.use(1, QUEUE, 6);
  mesh.ticks(4);
  assert.equal(mesh.split(QUEUE), [6, 0]);
  mesh.use(2, QUEUE, 6);
  mesh.ticks(40);
  assert.equal(mesh.split(QUEUE), [6, 0]);
  assert.is(mesh.tables.get(2)!.lease(QUEUE).pending, false);
  const lease = mesh.tables.get(1)!.lease(QUEUE);
  lease.wanted = lease.held = 2;
  lease.touch();
  mesh.ticks(40);
  assert.equal(mesh.split(QUEUE), [2, 4]);
});

tests("slots of a group go where queries wait, and those not in use are asked back", () => {
  const mesh = new Mesh(oneLeaf(6, GROUP), 3);
  mesh.use(1, GROUP, 20);
  mesh.ticks(4);
  assert.equal(mesh.split(GROUP), [6, 0, 0]);
  mesh.use(2, GROUP, 20);
  mesh.ticks(40);
  assert.equal(mesh.split(GROUP), [3, 3, 0]);
  const lease = mesh.tables.get(1)!.lease(GROUP);
  lease.wanted = lease.held = 0;
  lease.touch();
  mesh.ticks(10);
  assert.equal(mesh.split(GROUP).slice(1), [6, 0]);
});

function withQueries(held: number) {
  const rules = rulesOf({ [GROUP]: { [GROUP]: 8 }, [POOL]: { [POOL]: 8 } });
  const ledger = ledgerOf(rules);
  const numbers = { held, wanted: held, granted: held };
  ledger.report(
    reportOf(1, 1, { [GROUP]: numbers, [POOL]: { held: 5, wanted: 5, granted: 5 } }),
    0,
  );
  ledger.decide(0);
  return ledger;
}

// The slots of a killed worker were free while its queries went on.
tests("left() charges a group at most as many queries as there are backends left", () => {
  const ledger = withQueries(4);
  ledger.left(1, 1, new Map([[POOL, 4]]));
  assert.is(chargedOf(ledger, GROUP), 4);
  ledger.left(1, 1, new Map([[POOL, 3]]));
  assert.is(chargedOf(ledger, GROUP), 3);
  ledger.left(1, 1, new Map([[POOL, 0]]));
  assert.is(chargedOf(ledger, GROUP), 0);
});

tests(
  "backends() leaves groups alone: a silent worker may run other queries on what it has",
  () => {
    const ledger = withQueries(4);
    const before = chargedOf(ledger, GROUP);
    ledger.backends(1, 1, new Map([[POOL, 1]]), LEASE_MS * 100);
    assert.is(chargedOf(ledger, GROUP), before);
  },
);

// A group that was at rest just when the bus had been away for long ran nothing until it was back.
tests(
  "expire() leaves a group its floor, however long there is no contact and nothing runs",
  () => {
    const table = tableOf(1);
    const [group, pool] = [table.lease(GROUP), table.lease(POOL)];
    table.reports(0, true);
    const numbers = { granted: 4, floor: 2 };
    table.onGrant(grantOf(1, 1, { [GROUP]: numbers, [POOL]: numbers }), 10);
    table.expire(LEASE_MS * 50);
    assert.equal([group.granted, group.floor], [2, 2]);
    assert.equal([pool.granted, pool.floor], [0, 0]);
  },
);

tests("queries are no server connections", () => {
  const [worker] = [...withQueries(4).workers()];
  assert.is(worker!.heldServers, 5);
});

tests.run();
