// Sums and averages of pools' counters, and the log line made of them.

import {
  jointAverages,
  statsLine,
  statsRows,
  sumOfTotals,
  totalsRows,
} from "../../../services/pooler/plane/console/stats_rows.ts";
import { Counter, PoolStats } from "../../../services/pooler/plane/stats.ts";
import { assert, suite } from "../../support/harness.ts";
import { addPool, fakePlane, fakePool } from "./fake_plane.ts";

const tests = suite("console statistics");

/** Counters after a period of 10 s; times in milliseconds. */
function statsOf(counts: Partial<Record<keyof typeof Counter, number>>): PoolStats {
  const stats = new PoolStats();
  for (const [name, value] of Object.entries(counts)) {
    stats.totals[Counter[name as keyof typeof Counter]] = value;
  }
  stats.endPeriod(10_000);
  return stats;
}

const busy = () =>
  statsOf({
    assignments: 30,
    transactions: 30,
    queries: 60,
    bytesReceived: 1_000,
    bytesSent: 5_000,
    transactionTime: 300,
    queryTime: 120,
    waitTime: 3.0005,
    clientParses: 20,
    serverParses: 10,
    binds: 40,
    logins: 10,
  });
const slow = () => statsOf({ assignments: 10, transactions: 10, queries: 10, queryTime: 1_000 });

tests("jointAverages() adds rates and weighs times by what they are counted for", () => {
  const joint = jointAverages([busy(), slow(), statsOf({})]);
  assert.is(joint[Counter.queries], 7);
  assert.is(joint[Counter.transactions], 4);
  assert.is(joint[Counter.queryTime], 1_120 / 70);
  assert.is(joint[Counter.transactionTime], 300 / 40);
  assert.is(joint[Counter.bytesSent], 500);
  assert.ok(jointAverages([]).every((value) => value === 0));
  assert.is(sumOfTotals([busy(), slow()])[Counter.queries], 70);
});

// A wait was once divided by the clients that waited, in another place by all: it is per assignment.
tests("jointAverages() counts waiting per server assignment", () => {
  const one = statsOf({ assignments: 4, waitTime: 2_000 });
  assert.is(jointAverages([one])[Counter.waitTime], 500);
});

tests("averages are of the last period only", () => {
  const stats = busy();
  stats.endPeriod(10_000);
  assert.ok(jointAverages([stats]).every((value) => value === 0));
  stats.totals[Counter.queries]! += 5;
  stats.endPeriod(1_000);
  assert.is(jointAverages([stats])[Counter.queries], 5);
});

tests("statsRows() sums the pools of each database, times in microseconds", () => {
  const plane = fakePlane({ databases: "shop = host=10.0.0.5\nother = host=10.0.0.5" });
  addPool(plane, fakePool(plane.config, "shop", "u", { stats: busy() }));
  addPool(plane, fakePool(plane.config, "shop", "v", { stats: slow() }));
  addPool(plane, fakePool(plane.config, "other", "u"));
  plane.consoleStats.totals[Counter.queries] = 3;
  const totals = [40, 40, 70, 1_000, 5_000, 300_000, 1_120_000, 3_001, 20, 10, 40, 10];
  const averages = [4, 4, 7, 100, 500, 7_500, 16_000, 75, 2, 1, 4, 1];
  const zeros = new Array(12).fill(0);
  const console = [0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
  assert.equal([...statsRows(plane, "both")], [
    ["shop", ...totals, ...averages],
    ["other", ...zeros, ...zeros],
    ["pgbouncer", ...console, ...zeros],
  ]);
  assert.equal([...statsRows(plane, "totals")][0], ["shop", ...totals]);
  assert.equal([...statsRows(plane, "averages")][0], ["shop", ...averages]);
});

tests("totalsRows() has a row for each total and each average, without the console", () => {
  const plane = fakePlane();
  addPool(plane, fakePool(plane.config, "shop", "u", { stats: busy() }));
  plane.consoleStats.totals[Counter.queries] = 1_000;
  assert.equal([...totalsRows(plane)], [
    ["total_server_assignment_count", 30],
    ["total_xact_count", 30],
    ["total_query_count", 60],
    ["total_client_bytes", 1_000],
    ["total_server_bytes", 5_000],
    ["total_xact_time", 300_000],
    ["total_query_time", 120_000],
    ["total_wait_time", 3_001],
    ["total_ps_client_parse_count", 20],
    ["total_ps_server_parse_count", 10],
    ["total_ps_bind_count", 40],
    ["total_client_login_count", 10],
    ["avg_server_assignment_count", 3],
    ["avg_xact_count", 3],
    ["avg_query_count", 6],
    ["avg_client_bytes", 100],
    ["avg_server_bytes", 500],
    ["avg_xact_time", 10_000],
    ["avg_query_time", 2_000],
    ["avg_wait_time", 100],
    ["avg_ps_client_parse_count", 2],
    ["avg_ps_server_parse_count", 1],
    ["avg_ps_bind_count", 4],
    ["avg_client_login_count", 1],
  ]);
});

tests("statsLine() is worded as log readers know it", () => {
  assert.is(
    statsLine([busy(), slow()]),
    "stats: 4 xacts/s, 7 queries/s, 2 client parses/s, 1 server parses/s, 4 binds/s, " +
      "in 100 B/s, out 500 B/s, xact 7500 us, query 16000 us, wait 75 us",
  );
  assert.is(
    statsLine([]),
    "stats: 0 xacts/s, 0 queries/s, 0 client parses/s, 0 server parses/s, 0 binds/s, " +
      "in 0 B/s, out 0 B/s, xact 0 us, query 0 us, wait 0 us",
  );
});

tests.run();
