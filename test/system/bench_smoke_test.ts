// The benchmark itself, tiny and against PgBouncer alone: that it measures, reports and cleans up.
// No figure is judged here. Skipped where PgBouncer or PostgreSQL's pgbench is not installed.
// limit: 400 s

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import { type BenchResult, parseResult } from "../bench/results.ts";
import { assert, suite, until } from "../support/harness.ts";
import { ManagedProcess } from "../support/managed_process.ts";
import { needs } from "../support/needs.ts";
import { isAlive, listProcesses } from "../support/processes.ts";
import { tempDir } from "../support/temp.ts";

needs("pgbouncer", "postgresql");

const test = suite("bench smoke");

const patienceMs = 200_000;
const TINY = ["--contenders", "pgbouncer", "--clients", "2", "--rounds", "1", "--seconds", "2"];

function bench(...args: string[]): Promise<ManagedProcess> {
  const main = join(import.meta.dirname!, "../bench/main.ts");
  return ManagedProcess.launch({ command: [...runtimeCommand(), main, ...args] });
}

test("bench measures PgBouncer and reports it as Markdown and as JSON", async () => {
  const file = join(tempDir("bench"), "result.json");
  const run = await bench(...TINY, "--protocols", "simple", "--idle-clients", "50", "--json", file);
  const end = await run.ended(patienceMs);
  assert.is(end.code, 0, run.output());
  assert.match(run.stdout(), /^\| one process: simple, 2 clients \| PgBouncer \| [\d,]+ \|/m);
  assert.match(run.stdout(), /^\| one process: new connections, 8 clients \| PgBouncer \|/m);

  const result: BenchResult = parseResult(readFileSync(file, "utf8"), file);
  assert.equal(result.cells.map((cell) => cell.kind), ["simple", "connect"]);
  for (const cell of result.cells) {
    const [sample] = cell.samples;
    assert.ok(sample !== undefined && sample.transactions > 0 && sample.cpuMicros > 0);
    assert.ok(sample.p50Ms! > 0 && sample.p99Ms! >= sample.p50Ms!);
  }
  assert.is(result.idle[0]?.clients, 50);
  assert.ok(result.idle[0]!.restBytes > 1e6);
});

test("the benchmark of login storms measures logins and who stays meanwhile", async () => {
  const storm = join(import.meta.dirname!, "../bench/storm.ts");
  const tiny = ["--contenders", "pgbouncer", "--clients", "100", "--rounds", "1", "--quiet", "2"];
  const run = await ManagedProcess.launch({ command: [...runtimeCommand(), storm, ...tiny] });
  assert.is((await run.ended(patienceMs)).code, 0, run.output());
  assert.match(run.stdout(), /^\| pgbouncer \| \d+ \| 1\.00 \| [\d.]+ \| [\d.]+ \| [\d.]+ \|$/m);
});

test("bench stops everything it started when it is interrupted", async () => {
  const run = await bench(...TINY, "--protocols", "simple", "--rounds", "1000");
  await run.ready("the first measurement", () => run.stderr().includes("round 1 of 1000"));
  const started = listProcesses().filter((process) => process.parent === run.pid);
  assert.ok(started.length >= 2, `${started.length} children, PostgreSQL and PgBouncer wanted`);
  run.signal("SIGINT");
  assert.is((await run.ended(patienceMs)).code, 130);
  await until("its children to end", () => !started.some((child) => isAlive(child.pid)));
});

test("bench refuses a wrong option with exit code 2", async () => {
  const run = await bench("--clients", "many");
  assert.is((await run.ended()).code, 2);
  assert.match(run.stderr(), /read --clients: "many" given/);
});

test.run();
