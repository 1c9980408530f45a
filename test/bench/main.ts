// Benchmark of pgweir against PgBouncer: `npm run bench`, or `deno task bench`; --help lists options.
//
// What it measures. One throw-away PostgreSQL, one pooler after the other in front of it, all on
// this machine over loopback TCP, trust authentication, transaction pooling, the same pool, read-only
// `pgbench -S` in a closed loop. Per protocol and number of clients: throughput, p50 and p99
// latency, transactions over 50 ms, CPU time of the pooler per transaction and its resident
// memory. Then new connections per second (`pgbench -C`, 8 clients, one query each) and the memory
// of a fresh pooler at rest and per idle client. "One process" compares one PgBouncer with one pgweir
// worker; "N processes" compares a PgBouncer per core, on one port by so_reuseport with the limits
// divided, with `pgweir up` and as many workers, supervisor and all its services included.
//
// How. All contenders run all the time; in each round every workload is run by every contender, one
// right after the other (A B C, A B C, ...). A ratio is taken within a round and the median over the
// rounds is reported, so that slow drift of the machine cancels. Each contender is warmed up first, by a
// second of each protocol with more clients than are measured later: server connections are opened
// and a just-in-time compiler is slow only once in a worker's life.
// - Latencies come from pgbench's own log of every transaction, of which it writes one in five
//   (drawn at random): that costs pgbench little and gives thousands of values per run. The
//   transactions over 50 ms are counted among all of them (`-L 50`).
// - CPU is what /proc says all threads of all processes of the pooler ran between two readings,
//   divided by pgbench's number of transactions. The logins of the clients are in it: at 256 clients
//   and a few seconds one or two percent.
// - Memory is the sum of the resident sets, so pages that processes share count once for each.
//
// What it does not measure: TLS to servers (to clients: --tls), authentication other than trust, large results, COPY, writes, a
// network, more than one host, behaviour when the pool is short of what clients want for long.
//
// How it could mislead.
// - pgbench, PostgreSQL and the pooler share the cores. On few cores throughput is set by the CPU
//   of all three together: a pooler that needs half the CPU gains far less than twice the throughput.
//   CPU per transaction is the figure that carries over to other machines.
// - A closed loop hides queueing: a slow pooler is simply sent fewer transactions, so p99 is that of
//   saturation, not of a given load.
// - A pooler that is busier is woken less often and reads more at once: CPU per transaction at 1
//   client is mostly the price of waking up.
// - PgBouncer before 1.21 cannot pool prepared statements by transaction. It then runs that protocol
//   in session pooling with a server connection per client, which is less work; the row says so.
// - Other work on the machine hits whoever is running, and raises even the CPU per transaction (cold
//   caches, more switches). Its share is measured and printed; above 5 % the report warns.
// - Two runs are comparable by their ratios (--baseline), hardly ever by their absolute figures.

import { readFileSync, writeFileSync } from "node:fs";
import { Bench } from "./bench.ts";
import { parseOptions, USAGE, UsageError } from "./options.ts";
import { describeMachine, findPrograms } from "./programs.ts";
import { renderComparison, renderReport } from "./report.ts";
import { parseResult } from "./results.ts";
import { judge } from "./targets.ts";

async function main(): Promise<number> {
  const machine = describeMachine();
  const options = parseOptions(process.argv.slice(2), machine.cores);
  if (options === null) {
    console.log(USAGE);
    return 0;
  }
  // Read first: that it is no result should not turn out half an hour later.
  const baseline = options.baselineFile === null
    ? null
    : parseResult(readFileSync(options.baselineFile, "utf8"), options.baselineFile);

  const bench = new Bench(options, machine, findPrograms());
  let failed = false;
  try {
    await bench.run();
  } catch (error) {
    failed = true;
    console.error((error as Error).message);
  }

  const result = bench.result();
  if (result.cells.length > 0) {
    const verdicts = judge(result);
    if (failed) console.log("Incomplete: the run failed before its end.\n");
    console.log(renderReport(result, verdicts));
    if (baseline !== null) console.log(`\n${renderComparison(result, baseline)}`);
    if (options.jsonFile !== null) {
      writeFileSync(options.jsonFile, JSON.stringify({ ...result, verdicts }, null, 1) + "\n");
    }
    if (options.assertTargets && verdicts.some((verdict) => !verdict.reached)) return 1;
  }
  return failed ? 1 : 0;
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error((error as Error).message);
  process.exitCode = error instanceof UsageError ? 2 : 1;
}
