// Benchmark of resource groups: `bun test/bench/groups.ts`; --help lists options.
//
// What it measures, with real PostgreSQL and one worker with groups and one without, in rounds taken in turn:
//  priority  Heavy queries (a count over a generated series, a few hundred milliseconds of CPU each) of 30 clients keep
//            PostgreSQL busy, beside short ones (one row by its key) of 4 clients that ask every few milliseconds. With
//            groups, one heavy query runs at a time, and the short ones go first. Without, once with the same pool of
//            20, where short ones wait for servers as well, and once with a server for each client, where all compete
//            for the CPU alone. p50 and p99 of the short ones as their clients see them, and how many heavy ones
//            were done.
//  cost      pgbench -S, 8 clients, nothing ever waits for its group: CPU of the worker per transaction, with groups
//            as a ratio to without.
//
// How it could mislead. The clients run in this process, whose own delays are in all latencies. How much heavy work is done
// depends on the number of cores: with groups one of them at most. With a server for each client the short queries have
// the favour of the kernel's scheduler, as they sleep most of the time; short ones that need memory or locks have not.

import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { findProgram } from "../support/needs.ts";
import { type Pgweir, startPgweir } from "../support/pgweir.ts";
import { type Postgres, startPostgres } from "../support/postgres.ts";
import { RawClient } from "../support/raw_client.ts";
import { parsePgbenchOutput } from "./pgbench_output.ts";
import { describeMachine, fillDatabase, launch, tail } from "./programs.ts";
import { renderTable } from "./report.ts";
import { median, medianRatio, quantile } from "./stats.ts";
import { readUsage, usedCpuSeconds } from "./usage.ts";

const USAGE = `bun test/bench/groups.ts [options]

  --rounds 3       rounds of each
  --seconds 10     length of a run
  --only cost      one of the two: priority or cost
  --runtime bun    runtime of the workers: bun or deno`;

const heavyClients = 30;
const shortClients = 4;
const pauseMs = 5;
const heavyQuery = "SELECT count(*) FROM generate_series(1, 1500000)";
const shortQuery = "SELECT abalance FROM pgbench_accounts WHERE aid = 1234";
const WITHOUT = "without groups";
const WITH = "with groups";
/** What the short ones have to gain at least, in p99. */
const target = 5;

const groups = {
  groups: {
    all: "max_concurrent_queries=20",
    adhoc: "parent=all max_concurrent_queries=1 queue_timeout=0",
    checkout: "parent=all priority=10",
  },
  group_rules: {
    adhoc: "application_name=adhoc group=adhoc",
    rest: "group=checkout",
  },
};

interface Options {
  readonly rounds: number;
  readonly seconds: number;
  readonly only: string;
  readonly runtime: "bun" | "deno";
}

interface Run {
  readonly latenciesMs: readonly number[];
  readonly heavy: number;
}

function readOptions(): Options | null {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: "3" },
      seconds: { type: "string", default: "10" },
      only: { type: "string", default: "" },
      runtime: { type: "string", default: "bun" },
      help: { type: "boolean", default: false },
    },
  });
  const { runtime, only } = values;
  const isKnown = ["", "priority", "cost"].includes(only);
  if (values.help || !isKnown || (runtime !== "bun" && runtime !== "deno")) return null;
  return { rounds: Number(values.rounds), seconds: Number(values.seconds), only, runtime };
}

function startWorker(
  postgres: Postgres,
  { runtime }: Options,
  poolSize = 20,
  more = {},
): Promise<Pgweir> {
  return startPgweir({
    runtime,
    ini: {
      databases: { bench: `host=127.0.0.1 port=${postgres.port} dbname=postgres` },
      pgbouncer: { default_pool_size: poolSize },
      ...more,
    },
  });
}

function clientsOf(worker: Pgweir, count: number, application_name: string) {
  const login = { user: "postgres", database: "bench", parameters: { application_name } };
  return Promise.all(Array.from({ length: count }, () => RawClient.login(worker, login)));
}

async function mixed(worker: Pgweir, seconds: number): Promise<Run> {
  const heavy = await clientsOf(worker, heavyClients, "adhoc");
  const short = await clientsOf(worker, shortClients, "checkout");
  const latenciesMs: number[] = [];
  let done = 0;
  let ends = false;
  const loops = [
    ...heavy.map(async (client) => {
      while (!ends) {
        await client.query(heavyQuery, 300_000);
        if (!ends) done++;
      }
    }),
    ...short.map(async (client) => {
      while (!ends) {
        const asked = performance.now();
        await client.query(shortQuery, 300_000);
        latenciesMs.push(performance.now() - asked);
        await delay(pauseMs);
      }
    }),
  ];
  await delay(seconds * 1000);
  ends = true;
  await Promise.all(loops);
  for (const client of [...heavy, ...short]) client.close();
  return { latenciesMs, heavy: done };
}

async function priority(workers: ReadonlyMap<string, Pgweir>, options: Options): Promise<void> {
  const runs = new Map([...workers.keys()].map((name): [string, Run[]] => [name, []]));
  for (let round = 0; round < options.rounds; round++) {
    for (const [name, worker] of workers) {
      runs.get(name)!.push(await mixed(worker, options.seconds));
    }
  }
  const at = (name: string, q: number) =>
    runs.get(name)!.map(({ latenciesMs }) => quantile(latenciesMs, q));
  const rows = [...runs].map(([name, all]) => [
    name,
    median(at(name, 0.5)).toFixed(1),
    median(at(name, 0.99)).toFixed(1),
    median(all.map(({ latenciesMs }) => latenciesMs.length)).toFixed(0),
    median(all.map(({ heavy }) => heavy)).toFixed(0),
  ]);
  console.log(
    `priority: short queries beside ${heavyClients} clients with heavy ones, ${options.seconds} s`,
  );
  console.log(renderTable(["", "p50, ms", "p99, ms", "short ones", "heavy ones"], rows));
  for (const name of runs.keys()) {
    if (name === WITH) continue;
    const gain = medianRatio(at(name, 0.99), at(WITH, 0.99))!;
    console.log(
      `p99 is ${gain.median.toFixed(1)} times better with groups than ${name} ` +
        `(${gain.low.toFixed(1)} to ${gain.high.toFixed(1)}), wanted at least ${target}`,
    );
  }
}

/** Microseconds of the worker's CPU per transaction. */
async function cpuOf(worker: Pgweir, seconds: number): Promise<number> {
  const before = readUsage([worker.pid]);
  const child = await launch([
    findProgram("pgbench")!,
    ...["-h", "127.0.0.1", "-p", String(worker.port), "-U", "postgres", "-n", "-S"],
    ...["-c", "8", "-j", "2", "-T", String(seconds), "bench"],
  ]);
  const { code } = await child.ended(seconds * 1000 + 60_000);
  if (code !== 0) throw new Error(`run pgbench: it ended with ${code}:\n${tail(child)}`);
  const { transactions } = parsePgbenchOutput(child.stdout());
  return usedCpuSeconds(before, readUsage([worker.pid])) * 1e6 / transactions;
}

async function cost(workers: ReadonlyMap<string, Pgweir>, options: Options): Promise<void> {
  const [without, withGroups]: [number[], number[]] = [[], []];
  const pair = [[workers.get(WITHOUT)!, without], [workers.get(WITH)!, withGroups]] as const;
  for (const [worker] of pair) await cpuOf(worker, 3);
  for (let round = 0; round < options.rounds; round++) {
    for (const [worker, found] of pair) found.push(await cpuOf(worker, options.seconds));
  }
  const { median: ratio, low, high } = medianRatio(withGroups, without)!;
  console.log(
    `cost: ${median(without).toFixed(2)} us of CPU per transaction without groups, ` +
      `${median(withGroups).toFixed(2)} with; ` +
      `ratio ${ratio.toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)})`,
  );
}

const options = readOptions();
if (options === null) {
  console.log(USAGE);
  process.exit(2);
}
console.log(JSON.stringify(describeMachine()));
const postgres = await startPostgres({});
await fillDatabase(findProgram("pgbench")!, postgres, 1, "postgres");
const workers = new Map([
  [WITHOUT, await startWorker(postgres, options)],
  ["without groups, a server for each", await startWorker(postgres, options, 40)],
  [WITH, await startWorker(postgres, options, 20, groups)],
]);
if (options.only !== "cost") await priority(workers, options);
if (options.only !== "priority") await cost(workers, options);
for (const worker of workers.values()) await worker.stop();
await postgres.stop("immediate");
process.exit(0);
