// Benchmark of overload control: `bun test/bench/overload.ts`; --help lists options.
//
// What it measures. One PostgreSQL and two hosts of `pgweir up` in front of it with one worker each, equal but for
// overload control: "off" has none, "on" has bounds, warnings and so a monitor. Rounds alternate between them.
// 1. Cost: `pgbench -S` on a machine with nothing else to do, and bounds that are far away. CPU time per transaction
//    of all processes of the host, monitor included, and the ratio of on to off, round by round.
// 2. Overload: busy processes that take the CPUs, and pgbench that begins transactions at a rate that is too much
//    (-R, an open loop: a transaction that begins late counts as slow from when it was due). Per side: transactions
//    per second that were done, the part that was refused, p50 and p99 of those that were done.
//
// How. The rate is a share of what "off" does without a rate beside the same busy processes (--rate 1.5 is half as
// much again). Refused transactions are not tried again: pgbench counts them as failed (SQLSTATE 40001, which it
// takes for a failure that may be tried again) and goes on to the next. Latencies are from pgbench's log of every transaction.
//
// What it does not measure: clients that back off, refused connections, a database host's monitor.
//
// How it could mislead.
// - Without refusals an open loop above the capacity has a queue that grows as long as the run lasts, so its p99 is
//   as large as --seconds allow: say how long it was. With them the queue ends where enough is refused.
// - pgbench and PostgreSQL wait for the CPUs as the worker does, and nobody refuses their work: with enough busy
//   processes the latency that is left is theirs.
// - Other work on the machine is an overload, too. Its share in part 1 is printed.

import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { availableParallelism } from "node:os";
import { runtimeCommand, type RuntimeName } from "../../shared/sys/mod.ts";
import type { ManagedProcess } from "../support/managed_process.ts";
import { type Postgres, startPostgres } from "../support/postgres.ts";
import { childrenOf, commandLine, threadCpuSeconds } from "../support/processes.ts";
import { freePort, tempDir } from "../support/temp.ts";
import { parsePgbenchOutput, summariseLatencies } from "./pgbench_output.ts";
import { describeMachine, fillDatabase, findPgbench, launch, tail } from "./programs.ts";
import { groupThousands, renderTable } from "./report.ts";
import { median, medianRatio } from "./stats.ts";
import { otherShare, readMachineUsage, readUsage, usedCpuSeconds } from "./usage.ts";

const USAGE = `bun test/bench/overload.ts [options]

  --runtimes bun,deno   runtimes of the hosts
  --rounds 7            rounds of the cost, each with both sides
  --seconds 5           length of a measurement of the cost
  --load-rounds 3       rounds of the overload
  --load-seconds 15     length of a measurement of the overload
  --clients 16          pgbench clients
  --hogs N              busy processes of the overload (four for each core)
  --rate 1.5            transactions that begin, as a multiple of what is done without a rate
  --min 0.5 --max 4     bounds of the overload`;

interface Options {
  readonly runtimes: readonly RuntimeName[];
  readonly rounds: number;
  readonly seconds: number;
  readonly loadRounds: number;
  readonly loadSeconds: number;
  readonly clients: number;
  readonly hogs: number;
  readonly rate: number;
  readonly min: number;
  readonly max: number;
}

type Side = "off" | "on";
const sides: readonly Side[] = ["off", "on"];
const warmUpSeconds = 3;

interface Host {
  readonly side: Side;
  readonly port: number;
  readonly process: ManagedProcess;
  readonly folder: string;
}

const pgbench = findPgbench().path;

function iniOf(
  side: Side,
  host: { port: number; folder: string },
  lines: readonly string[],
): string {
  const file = join(host.folder, "pgweir.ini");
  writeFileSync(join(host.folder, "users"), '"postgres" ""\n');
  const text = [
    "[databases]",
    `bench = host=127.0.0.1 port=${server!.port} dbname=postgres`,
    "[pgbouncer]",
    "listen_addr = 127.0.0.1",
    `listen_port = ${host.port}`,
    "unix_socket_dir =",
    "auth_type = trust",
    `auth_file = ${host.folder}/users`,
    "pool_mode = transaction",
    "default_pool_size = 20",
    "log_connections = 0",
    "log_disconnections = 0",
    "server_idle_timeout = 0",
    "overload_sqlstate = 40001",
    ...(side === "on" ? lines : []),
    "",
  ];
  writeFileSync(file, text.join("\n"));
  return file;
}

let server: Postgres | null = null;

async function startHost(
  side: Side,
  runtime: RuntimeName,
  lines: readonly string[],
): Promise<Host> {
  const place = { port: await freePort(), folder: tempDir("overload") };
  const file = iniOf(side, place, lines);
  const cli = join(import.meta.dirname!, "../../services/cli.ts");
  const command = [
    ...runtimeCommand(runtime),
    cli,
    "up",
    "--workers=1",
    `--runtime=${runtime}`,
    file,
  ];
  const child = await launch(command, { exitSignal: "SIGTERM" });
  await child.ready("pgweir to be ready", () => child.stdout().includes("pgweir is ready"));
  const host = { side, process: child, ...place };
  const hasMonitor = () => monitorOf(host) !== undefined;
  if (side === "on") await child.ready("the monitor", hasMonitor);
  return host;
}

function monitorOf({ process: { pid } }: Host): number | undefined {
  return childrenOf(pid).find((child) => commandLine(child).includes("cli.ts overload"));
}

interface Run {
  readonly tps: number;
  readonly transactions: number;
  readonly refusedShare: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

async function run(
  host: Host,
  options: Options,
  seconds: number,
  rate: number | null,
): Promise<Run> {
  const folder = tempDir("pgbench");
  const child = await launch([
    pgbench,
    ...["-h", "127.0.0.1", "-p", String(host.port), "-U", "postgres", "-n", "-S"],
    ...["-T", String(seconds), "-c", String(options.clients), "-j", "2", "--max-tries=1"],
    ...(rate === null ? [] : ["-R", rate.toFixed(0)]),
    ...["-l", "--log-prefix", join(folder, "log")],
    "bench",
  ]);
  // In an open loop what is due at the end is done to its end.
  const end = await child.ended(seconds * 1000 + 600_000);
  if (end.code !== 0) throw new Error(`run pgbench: it ended with ${end.code}:\n${tail(child)}`);
  const { tps, transactions, failed } = parsePgbenchOutput(child.stdout());
  const latency = summariseLatencies(
    readdirSync(folder).map((name) => readFileSync(join(folder, name), "utf8")),
  );
  rmSync(folder, { recursive: true });
  return {
    tps,
    transactions,
    refusedShare: failed / (failed + transactions),
    p50Ms: latency?.p50Ms ?? NaN,
    p99Ms: latency?.p99Ms ?? NaN,
  };
}

async function measureCost(runtime: RuntimeName, options: Options): Promise<string[]> {
  const far = [
    "min_os_cpu_wait_time_ratio_to_throw = 1000",
    "max_os_cpu_wait_time_ratio_to_throw = 2000",
    "min_os_cpu_wait_time_ratio_to_drop_connection = 1000",
    "max_os_cpu_wait_time_ratio_to_drop_connection = 2000",
    "min_event_loop_lag_to_throw = 100000",
    "max_event_loop_lag_to_throw = 200000",
    "cpu_overload_warn_ratio = 1",
    "memory_overload_warn_ratio = 1",
  ];
  const hosts = await Promise.all(sides.map((side) => startHost(side, runtime, far)));
  const micros: Record<Side, number[]> = { off: [], on: [] };
  let [other, monitorMs] = [0, 0];
  try {
    for (const host of hosts) await run(host, options, warmUpSeconds, null);
    for (let round = 0; round < options.rounds; round++) {
      // Who comes first changes, since the second one finds warm caches.
      for (const host of round % 2 === 0 ? hosts : hosts.toReversed()) {
        const machine = readMachineUsage();
        const before = readUsage([host.process.pid]);
        const monitor = monitorOf(host);
        const own = () => monitor === undefined ? 0 : cpuOf(monitor);
        const ownBefore = own();
        const { transactions } = await run(host, options, options.seconds, null);
        const used = usedCpuSeconds(before, readUsage([host.process.pid]));
        micros[host.side].push(used * 1e6 / transactions);
        if (host.side === "on") monitorMs = (own() - ownBefore) * 1000 / options.seconds;
        other = Math.max(other, otherShare(machine, readMachineUsage(), availableParallelism()));
      }
      say(
        `cost, ${runtime}, round ${round + 1}: ${
          sides.map((s) => micros[s].at(-1)!.toFixed(2)).join(" ")
        } µs`,
      );
    }
  } finally {
    await Promise.all(hosts.map((host) => host.process.stop("SIGQUIT")));
  }
  const ratio = medianRatio(micros.on, micros.off)!;
  return [
    runtime,
    median(micros.off).toFixed(2),
    median(micros.on).toFixed(2),
    `${ratio.median.toFixed(3)} (${ratio.low.toFixed(3)} to ${ratio.high.toFixed(3)})`,
    monitorMs.toFixed(1),
    `${(other * 100).toFixed(0)} %`,
  ];
}

function cpuOf(pid: number): number {
  return [...threadCpuSeconds(pid).values()].reduce((sum, seconds) => sum + seconds, 0);
}

async function measureOverload(runtime: RuntimeName, options: Options): Promise<string[][]> {
  const bounds = [
    `min_os_cpu_wait_time_ratio_to_throw = ${options.min}`,
    `max_os_cpu_wait_time_ratio_to_throw = ${options.max}`,
    "overload_interval = 0.5",
    "os_cpu_busy_time_threshold = 20000",
  ];
  const hosts = await Promise.all(sides.map((side) => startHost(side, runtime, bounds)));
  const hogs = await Promise.all(
    Array.from(
      { length: options.hogs },
      () => launch(["sh", "-c", "while :; do :; done"]),
    ),
  );
  const runs: Record<Side, Run[]> = { off: [], on: [] };
  let rate = 0;
  try {
    for (const host of hosts) await run(host, options, warmUpSeconds, null);
    rate = options.rate * (await run(hosts[0]!, options, options.loadSeconds, null)).tps;
    for (let round = 0; round < options.loadRounds; round++) {
      for (const host of round % 2 === 0 ? hosts : hosts.toReversed()) {
        const done = await run(host, options, options.loadSeconds, rate);
        runs[host.side].push(done);
        say(
          `overload, ${runtime}, round ${round + 1}, ${host.side}: ${done.tps.toFixed(0)} TPS, ` +
            `p99 ${done.p99Ms.toFixed(0)} ms, ${(done.refusedShare * 100).toFixed(0)} % refused`,
        );
      }
    }
  } finally {
    await Promise.all(hogs.map((hog) => hog.stop("SIGKILL")));
    await Promise.all(hosts.map((host) => host.process.stop("SIGQUIT")));
  }
  const of = (side: Side, value: (run: Run) => number) => median(runs[side].map(value));
  return sides.map((side) => [
    `${runtime}, ${side}`,
    groupThousands(rate.toFixed(0)),
    groupThousands(of(side, ({ tps }) => tps).toFixed(0)),
    `${(of(side, ({ refusedShare }) => refusedShare) * 100).toFixed(0)} %`,
    of(side, ({ p50Ms }) => p50Ms).toFixed(1),
    of(side, ({ p99Ms }) => p99Ms).toFixed(1),
  ]);
}

function say(text: string): void {
  console.error(text);
}

function readOptions(): Options | null {
  const { values } = parseArgs({
    options: {
      help: { type: "boolean", short: "h" },
      runtimes: { type: "string", default: "bun,deno" },
      rounds: { type: "string", default: "7" },
      seconds: { type: "string", default: "5" },
      "load-rounds": { type: "string", default: "3" },
      "load-seconds": { type: "string", default: "15" },
      clients: { type: "string", default: "16" },
      hogs: { type: "string", default: String(4 * availableParallelism()) },
      rate: { type: "string", default: "1.5" },
      min: { type: "string", default: "0.5" },
      max: { type: "string", default: "4" },
    },
  });
  if (values.help === true) return null;
  const number = (option: string, text: string): number => {
    const value = Number(text);
    if (value >= 0 && text !== "") return value;
    throw new Error(`read ${option}: "${text}" given, a number wanted`);
  };
  const count = (option: string, text: string): number => {
    const value = number(option, text);
    if (Number.isInteger(value) && value > 0) return value;
    throw new Error(`read ${option}: "${text}" given, a whole number from 1 on wanted`);
  };
  return {
    runtimes: values.runtimes.split(",").map((text) => {
      if (text === "bun" || text === "deno") return text;
      throw new Error(`read --runtimes: "${text}" given, one of bun, deno wanted`);
    }),
    rounds: count("--rounds", values.rounds),
    seconds: count("--seconds", values.seconds),
    loadRounds: count("--load-rounds", values["load-rounds"]),
    loadSeconds: count("--load-seconds", values["load-seconds"]),
    clients: count("--clients", values.clients),
    hogs: count("--hogs", values.hogs),
    rate: number("--rate", values.rate),
    min: number("--min", values.min),
    max: number("--max", values.max),
  };
}

async function main(): Promise<void> {
  const options = readOptions();
  if (options === null) return console.log(USAGE);
  const machine = describeMachine();
  server = await startPostgres({ settings: { max_connections: "200", shared_buffers: "256MB" } });
  await fillDatabase(pgbench, server, 10, "postgres");
  const cost: string[][] = [];
  const overload: string[][] = [];
  try {
    for (const runtime of options.runtimes) cost.push(await measureCost(runtime, options));
    for (const runtime of options.runtimes) {
      overload.push(...await measureOverload(runtime, options));
    }
  } finally {
    await server.stop("immediate");
  }
  console.log(
    `${machine.cpu}, ${machine.cores} cores; ${options.clients} clients of pgbench -S.\n`,
  );
  console.log("Cost while nothing is overloaded, µs of CPU per transaction:\n");
  console.log(renderTable(
    ["runtime", "off", "on", "ratio, median (range)", "ms/s of the monitor", "other work at most"],
    cost,
    1,
  ));
  console.log(
    `\nOverload: ${options.hogs} busy processes, ${options.rate} times as many transactions as are done, ` +
      `${options.loadSeconds} s each, bounds ${options.min} and ${options.max}:\n`,
  );
  console.log(renderTable(
    ["overload control", "begun per s", "done per s", "refused", "p50 ms", "p99 ms"],
    overload,
    1,
  ));
}

try {
  await main();
} catch (error) {
  console.error((error as Error).message);
  process.exitCode = 1;
}
