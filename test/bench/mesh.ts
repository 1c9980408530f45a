// Benchmark of a fleet's one budget: `bun test/bench/mesh.ts`; --help lists options.
//
// What it measures, with real PostgreSQL, workers and nats-server, pgbench -S, 32 clients, pools of 8:
//  skew  All clients on one of 4 workers: transactions per second as a ratio to a host of one worker, in
//        rounds taken in turn. The clients come by the unix socket, which belongs to one worker.
//  bus   4 workers under load by TCP: transactions per second while nats-server runs, while it is killed, and
//        after it is back, and the failed ones.
// How long slots take to move is printed by test/system/budget/skew_test.ts.
//
// How it could mislead. Workers, PostgreSQL and pgbench share the machine: "skew" can show that the fleet
// costs nothing, not that it gains.

import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { until } from "../support/harness.ts";
import { startNats } from "../support/nats.ts";
import { findProgram } from "../support/needs.ts";
import { type Pgweir, startPgweir } from "../support/pgweir.ts";
import { type Postgres, startPostgres } from "../support/postgres.ts";
import { parsePgbenchOutput } from "./pgbench_output.ts";
import { describeMachine, fillDatabase, launch, tail } from "./programs.ts";
import { renderTable } from "./report.ts";
import { median, medianRatio } from "./stats.ts";

const USAGE = `bun test/bench/mesh.ts [options]

  --rounds 5       rounds of "skew"
  --seconds 5      length of a run
  --outage 60      seconds without nats-server
  --runtime bun    runtime of the workers: bun or deno`;

const poolSize = 8;
const clients = 32;
const fleet = 4;

interface Options {
  readonly rounds: number;
  readonly seconds: number;
  readonly outage: number;
  readonly runtime: "bun" | "deno";
}

function readOptions(): Options | null {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: "5" },
      seconds: { type: "string", default: "5" },
      outage: { type: "string", default: "60" },
      runtime: { type: "string", default: "bun" },
      help: { type: "boolean", default: false },
    },
  });
  const { runtime } = values;
  if (values.help || (runtime !== "bun" && runtime !== "deno")) return null;
  const [rounds, seconds, outage] = [values.rounds, values.seconds, values.outage].map(Number);
  return { rounds: rounds!, seconds: seconds!, outage: outage!, runtime };
}

function startHost(postgres: Postgres, workers: number, options: Options, more = {}) {
  return startPgweir({
    workers,
    runtime: options.runtime,
    ini: {
      databases: { bench: `host=127.0.0.1 port=${postgres.port} dbname=postgres` },
      pgbouncer: { default_pool_size: poolSize, max_client_conn: 500, ...more },
    },
  });
}

function pgbench(target: string, port: number, seconds: number, more: readonly string[] = []) {
  return launch([
    findProgram("pgbench")!,
    ...["-h", target, "-p", String(port), "-U", "postgres", "-n", "-S", "-j", "2"],
    ...["-c", String(clients), "-T", String(seconds), ...more],
    "bench",
  ]);
}

async function throughput(target: string, port: number, seconds: number): Promise<number> {
  const child = await pgbench(target, port, seconds);
  const { code } = await child.ended(seconds * 1000 + 60_000);
  if (code !== 0) throw new Error(`run pgbench: it ended with ${code}:\n${tail(child)}`);
  const report = parsePgbenchOutput(child.stdout());
  if (report.failed > 0) throw new Error(`run pgbench: ${report.failed} transactions failed`);
  return report.tps;
}

async function skew(postgres: Postgres, options: Options): Promise<void> {
  const hosts = new Map<string, Pgweir>();
  for (const workers of [1, fleet]) {
    hosts.set(`${workers} workers`, await startHost(postgres, workers, options));
  }
  const found = new Map([...hosts.keys()].map((name): [string, number[]] => [name, []]));
  for (const host of hosts.values()) await throughput(host.dir, host.port, 2);
  for (let round = 0; round < options.rounds; round++) {
    for (const [name, host] of hosts) {
      found.get(name)!.push(await throughput(host.dir, host.port, options.seconds));
    }
  }
  for (const host of hosts.values()) await host.stop();
  const [one, four] = [...found.values()] as [number[], number[]];
  const { median: ratio, low, high } = medianRatio(four, one)!;
  console.log(
    `skew: all clients on one of ${fleet} workers: ${median(four).toFixed(0)} tps, ` +
      `on the worker of a host of one: ${median(one).toFixed(0)}; ` +
      `ratio ${ratio.toFixed(2)} (${low.toFixed(2)} to ${high.toFixed(2)})`,
  );
}

interface Phase {
  readonly name: string;
  readonly tps: number[];
}

async function bus(postgres: Postgres, options: Options): Promise<void> {
  const nats = await startNats({ jetstream: true });
  const bus_url = `nats://${nats.token}@127.0.0.1:${nats.port}`;
  const host = await startHost(postgres, fleet, options, { bus_url });
  await throughput("127.0.0.1", host.port, 2);
  const around = Math.max(10, Math.round(options.outage / 3));
  const phases: Phase[] = ["before", "without the bus", "after"].map((name) => ({ name, tps: [] }));
  const child = await pgbench("127.0.0.1", host.port, 2 * around + options.outage, ["-P", "1"]);
  let read = 0;
  const collect = async (phase: Phase, seconds: number) => {
    const end = performance.now() + seconds * 1000;
    while (performance.now() < end) {
      await delay(200);
      const lines = child.stderr().match(/^progress: .*$/gm) ?? [];
      for (const line of lines.slice(read)) {
        phase.tps.push(Number(/, ([\d.]+) tps/.exec(line)![1]));
      }
      read = lines.length;
    }
  };
  await collect(phases[0]!, around);
  await nats.kill();
  await collect(phases[1]!, options.outage);
  await nats.start();
  await collect(phases[2]!, around);
  const { code } = await child.ended(60_000);
  if (code !== 0) throw new Error(`run pgbench: it ended with ${code}:\n${tail(child)}`);
  const { failed } = parsePgbenchOutput(child.stdout());
  const base = median(phases[0]!.tps);
  const rows = phases.map(({ name, tps }) => {
    return [name, String(tps.length), median(tps).toFixed(0), (median(tps) / base).toFixed(2)];
  });
  console.log(`bus: ${failed} failed transactions`);
  console.log(renderTable(["", "seconds", "tps, median", "ratio"], rows));
  await until("slots to move again", () => host.log().includes("bus connected"), 30_000);
  await host.stop();
  await nats.stop();
}

const options = readOptions();
if (options === null) {
  console.log(USAGE);
  process.exit(2);
}
console.log(JSON.stringify(describeMachine()));
const postgres = await startPostgres({});
await fillDatabase(findProgram("pgbench")!, postgres, 1, "postgres");
await skew(postgres, options);
await bus(postgres, options);
await postgres.stop("immediate");
process.exit(0);
