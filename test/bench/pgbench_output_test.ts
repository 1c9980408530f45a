// What pgbench prints, from real runs of several versions, and its transaction log.

import { assert, suite } from "../support/harness.ts";
import { atLeast, parsePgbenchOutput, parseVersion, summariseLatencies } from "./pgbench_output.ts";

const PGBENCH_15 = `pgbench (15.18 (Debian 15.18-0+deb12u1))
transaction type: <builtin: select only>
scaling factor: 10
query mode: simple
number of clients: 8
number of threads: 2
maximum number of tries: 1
duration: 2 s
number of transactions actually processed: 52341
number of failed transactions: 3 (0.006%)
number of transactions above the 50.0 ms latency limit: 7/52341 (0.013%)
latency average = 0.305 ms
latency stddev = 0.120 ms
initial connection time = 4.870 ms
tps = 26228.911231 (without initial connection time)
`;

const PGBENCH_15_CONNECT = `transaction type: <builtin: select only>
number of transactions actually processed: 5894
number of failed transactions: 0 (0.000%)
latency average = 1.357 ms
average connection time = 0.601 ms
tps = 5893.992 (including reconnection times)
`;

const PGBENCH_13 = `number of transactions actually processed: 100
latency average = 0.080 ms
tps = 11000.5 (including connections establishing)
tps = 12000.5 (excluding connections establishing)
`;

const test = suite("bench pgbench output");

test("parsePgbenchOutput() reads counts, late ones and throughput when run by pgbench 15", () => {
  assert.equal(parsePgbenchOutput(PGBENCH_15), {
    transactions: 52341,
    failed: 3,
    slow: 7,
    tps: 26228.911231,
    latencyAverageMs: 0.305,
  });
});

test("parsePgbenchOutput() takes the throughput with logins when every transaction logs in", () => {
  const report = parsePgbenchOutput(PGBENCH_15_CONNECT);
  assert.is(report.tps, 5893.992);
  assert.is(report.slow, 0);
});

test("parsePgbenchOutput() takes the line without logins when pgbench 13 prints both", () => {
  assert.is(parsePgbenchOutput(PGBENCH_13).tps, 12000.5);
});

test("parsePgbenchOutput() throws and quotes the text when there is no throughput in it", () => {
  assert.throws(
    () => parsePgbenchOutput("pgbench: error: connection refused"),
    /the text is "pgbench: error: connection refused"/,
  );
});

test("summariseLatencies() takes the quantiles over the logs of all threads", () => {
  const one = Array.from({ length: 50 }, (_, i) => `0 ${i} ${(i + 1) * 1000} 0 1700000000 1`);
  const two = Array.from({ length: 51 }, (_, i) => `1 ${i} ${(i + 51) * 1000} 0 1700000000 1`);
  const summary = summariseLatencies([one.join("\n") + "\n", two.join("\n") + "\n"]);
  assert.equal(summary, { samples: 101, p50Ms: 51, p99Ms: 100 });
});

test("summariseLatencies() takes what ended in the span it is given", () => {
  const log = [10, 20, 30, 40].map((ms) => `0 1 ${ms * 1000} 0 1700000000 ${ms * 1000} 5`).join(
    "\n",
  );
  const at = 1_700_000_000_000;
  const span = (from: number, to: number) => ({ fromMs: at + from, toMs: at + to });
  assert.equal(summariseLatencies([log], span(20, 40)), { samples: 2, p50Ms: 25, p99Ms: 29.9 });
  assert.is(summariseLatencies([log], span(41, 50)), null);
});

test("summariseLatencies() leaves failed transactions out when the log names them", () => {
  const summary = summariseLatencies(["0 1 250 0 1 1\n0 2 failed 0 1 1\n0 3 750 0 1 1\n"]);
  assert.equal(summary?.samples, 2);
  assert.is(summary?.p50Ms, 0.5);
  assert.is(summariseLatencies(["", "\n"]), null);
});

test("parseVersion() finds the number when the program says its name and more", () => {
  assert.equal(parseVersion("pgbench (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), [15, 18]);
  assert.equal(parseVersion("PgBouncer 1.18.0\nlibevent 2.1.12-stable"), [1, 18, 0]);
  assert.throws(() => parseVersion("no idea"), /none in "no idea"/);
});

test("atLeast() compares number by number, not as text", () => {
  assert.ok(atLeast([1, 21], [1, 21]));
  assert.ok(atLeast([1, 25, 2], [1, 21]));
  assert.ok(atLeast([2], [1, 21]));
  assert.not.ok(atLeast([1, 18, 0], [1, 21]));
  assert.not.ok(atLeast([1, 3], [1, 21]));
});

test.run();
