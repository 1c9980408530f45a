// Benchmark of overload control: `bun test/bench/overload.ts`; --help lists options.
//
// What it measures. One PostgreSQL and two hosts of `pgweir up` in front of it with one worker each, equal but for
// overload control: "off" has none, "on" has bounds, and so a monitor of its workers.
//  cost      `pgbench -S` on a machine with nothing else to do, and bounds that are far away. CPU time per transaction
//            of all processes of the host, monitor included: on as a ratio to off, in many short rounds of both, in
//            turn. The median of the ratios, and where it lies with 95 % certainty.
//  overload  Queries that cost PostgreSQL CPU (a count over a generated series, some milliseconds) come by a schedule,
//            --rate times as many as are done when they come one after the other (an open loop: nobody waits for an
//            answer before the next one comes), beside busy processes on the same CPUs. "on" has a monitor of
//            PostgreSQL (`pgweir overload`) as well. Per side: how many came and were done per second, the part that was refused,
//            p50 and p99 of those that were done, counted from when they were due.
//
// How. Each round measures what is done without a schedule anew, and puts both sides under the same load, in turn.
// Who is refused backs off, as the HINT has it: he does not come again in this run. pgbench counts him as failed (SQLSTATE
// 40001, which it takes for a failure that may be tried again). Latencies are from pgbench's log of every transaction.
//
// What it does not measure: clients that try again at once (nothing helps those), refused connections.
//
// How it could mislead.
// - Without refusals the queue of an open loop above the capacity grows as long as the run lasts, so its p99 is as
//   large as --seconds allow: say how long it was. With them the queue ends where enough is refused. Both include the
//   first second, in which no monitor has seen anything yet.
// - What is done per second is less with refusals than without by what a monitor refuses too much: both are shown.
// - Other work on the machine is an overload, too. Its share while the cost is measured is printed.

import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { availableParallelism } from "node:os";
import { runtimeCommand, type RuntimeName } from "../../shared/sys/mod.ts";
import type { ManagedProcess } from "../support/managed_process.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { type Postgres, startPostgres } from "../support/postgres.ts";
import { childrenOf, commandLine, threadCpuSeconds } from "../support/processes.ts";
import { freePort, tempDir } from "../support/temp.ts";
import { parsePgbenchOutput, summariseLatencies } from "./pgbench_output.ts";
import { describeMachine, fillDatabase, findPgbench, launch, tail } from "./programs.ts";
import { groupThousands, renderTable } from "./report.ts";
import { median, medianInterval, medianRatio } from "./stats.ts";
import { otherShare, readMachineUsage, readUsage, usedCpuSeconds } from "./usage.ts";

const USAGE = `bun test/bench/overload.ts [options]

  --only cost           one of the two: cost or overload
  --runtimes bun,deno   runtimes of the hosts
  --rounds N            rounds, each with both sides (cost 60, overload 5)
  --seconds S           length of a measurement (cost 1, overload 15)
  --clients N           pgbench clients (cost 16, overload 64)
  --hogs N              busy processes beside the overload (one for each core)
  --rate 1.5            transactions that come, as a multiple of what is done without a schedule
  --work 20000          rows that a query of the overload counts
  --min 2 --max 12      bounds of the overload`;

/** What there is a default of for each of the two. */
interface Length {
  readonly rounds: number;
  readonly seconds: number;
  readonly clients: number;
}

interface Options {
  readonly only: string;
  readonly runtimes: readonly RuntimeName[];
  readonly cost: Length;
  readonly overload: Length;
  readonly hogs: number;
  readonly rate: number;
  readonly work: number;
  readonly min: number;
  readonly max: number;
}

type Side = "off" | "on";
const sides: readonly Side[] = ["off", "on"];
const warmUpSeconds = 5;
/** Between two runs, so that the one has no part in the other. */
const restMs = 1000;
const poolSize = 20;

interface Host {
  readonly side: Side;
  readonly port: number;
  /** It, and its monitor of PostgreSQL. */
  readonly processes: ManagedProcess[];
  readonly folder: string;
}

interface Load {
  readonly seconds: number;
  readonly clients: number;
  /** What pgbench runs: its arguments. */
  readonly script: readonly string[];
  /** Per second; null: one after the other. */
  readonly rate: number | null;
}

const pgbench = findPgbench().path;
let server: Postgres | null = null;
let nats: NatsServer | null = null;

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
    `default_pool_size = ${poolSize}`,
    "log_connections = 0",
    "log_disconnections = 0",
    "server_idle_timeout = 0",
    "overload_sqlstate = 40001",
    `mesh = bench-${side}`,
    `bus_url = nats://${encodeURIComponent(nats!.token)}@127.0.0.1:${nats!.port}`,
    ...(side === "on" ? lines : []),
    "",
  ];
  writeFileSync(file, text.join("\n"));
  return file;
}

async function startHost(
  side: Side,
  runtime: RuntimeName,
  lines: readonly string[],
  watchesDatabase: boolean,
): Promise<Host> {
  const place = { port: await freePort(), folder: tempDir("overload") };
  const file = iniOf(side, place, lines);
  const cli = [...runtimeCommand(runtime), join(import.meta.dirname!, "../../services/cli.ts")];
  const up = await launch([...cli, "up", "--workers=1", `--runtime=${runtime}`, file], {
    exitSignal: "SIGTERM",
  });
  const host: Host = { side, processes: [up], ...place };
  await up.ready("pgweir to be ready", () => up.stdout().includes("pgweir is ready"));
  if (side === "off") return host;
  await up.ready("the monitor", () => monitorOf(host) !== undefined);
  if (!watchesDatabase) return host;
  const port = String(server!.port);
  const watch = await launch([...cli, "overload", "--database", "bench", "--port", port, file], {
    exitSignal: "SIGTERM",
  });
  host.processes.push(watch);
  await watch.ready("the monitor of PostgreSQL", () => {
    return watch.stderr().includes("watching a PostgreSQL");
  });
  return host;
}

async function stopHosts(hosts: readonly Host[]): Promise<void> {
  const all = hosts.flatMap(({ processes }) => processes.toReversed());
  await Promise.all(all.map((each) => each.stop("SIGTERM")));
}

function monitorOf({ processes }: Host): number | undefined {
  return childrenOf(processes[0]!.pid)
    .find((child) => commandLine(child).includes("cli.ts overload"));
}

interface Run {
  readonly tps: number;
  readonly transactions: number;
  readonly refusedShare: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

async function run(host: Host, { seconds, clients, script, rate }: Load): Promise<Run> {
  const folder = tempDir("pgbench");
  const child = await launch([
    pgbench,
    ...["-h", "127.0.0.1", "-p", String(host.port), "-U", "postgres", "-n", ...script],
    ...["-T", String(seconds), "-c", String(clients), "-j", "2", "--max-tries=1"],
    ...(rate === null ? [] : ["-R", rate.toFixed(0)]),
    ...["-l", "--log-prefix", join(folder, "log")],
    "bench",
  ]);
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

/** Who comes first changes, since the second one finds warm caches. */
function inTurn(hosts: readonly Host[], round: number): readonly Host[] {
  return round % 2 === 0 ? hosts : hosts.toReversed();
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
  const { rounds, seconds, clients } = options.cost;
  const hosts = await Promise.all(sides.map((side) => startHost(side, runtime, far, false)));
  const load: Load = { seconds, clients, script: ["-S"], rate: null };
  const micros: Record<Side, number[]> = { off: [], on: [] };
  const [others, monitorMs]: [number[], number[]] = [[], []];
  try {
    for (const host of hosts) await run(host, { ...load, seconds: warmUpSeconds });
    for (let round = 0; round < rounds; round++) {
      for (const host of inTurn(hosts, round)) {
        const machine = readMachineUsage();
        const before = readUsage([host.processes[0]!.pid]);
        const monitor = monitorOf(host);
        const own = () => monitor === undefined ? 0 : cpuOf(monitor);
        const [ownBefore, startedAt] = [own(), performance.now()];
        const { transactions } = await run(host, load);
        const used = usedCpuSeconds(before, readUsage([host.processes[0]!.pid]));
        micros[host.side].push(used * 1e6 / transactions);
        if (monitor !== undefined) {
          monitorMs.push((own() - ownBefore) * 1e6 / (performance.now() - startedAt));
        }
        others.push(otherShare(machine, readMachineUsage(), availableParallelism()));
      }
    }
  } finally {
    await stopHosts(hosts);
  }
  const ratios = micros.on.map((on, round) => on / micros.off[round]!);
  const { low, high } = medianInterval(ratios);
  say(`cost, ${runtime}: ${ratios.map((ratio) => ratio.toFixed(3)).join(" ")}`);
  return [
    runtime,
    median(micros.off).toFixed(2),
    median(micros.on).toFixed(2),
    `${median(ratios).toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)})`,
    median(monitorMs).toFixed(1),
    `${(median(others) * 100).toFixed(0)} %`,
  ];
}

function cpuOf(pid: number): number {
  return [...threadCpuSeconds(pid).values()].reduce((sum, seconds) => sum + seconds, 0);
}

async function measureOverload(runtime: RuntimeName, options: Options): Promise<string[][]> {
  const bounds = [
    `min_os_cpu_wait_time_ratio_to_throw = ${options.min}`,
    `max_os_cpu_wait_time_ratio_to_throw = ${options.max}`,
    "overload_interval = 0.25",
    // Of PostgreSQL it is exceeded, of a worker with a few hundred queries per second not.
    "os_cpu_busy_time_threshold = 100000",
  ];
  const { rounds, seconds, clients } = options.overload;
  const file = join(tempDir("overload"), "work.sql");
  writeFileSync(file, `SELECT count(*) FROM generate_series(1, ${options.work});\n`);
  const load: Load = { seconds, clients, script: ["-f", file], rate: null };
  const closed: Load = { ...load, clients: poolSize, seconds: Math.ceil(seconds / 3) };
  const hosts = await Promise.all(sides.map((side) => startHost(side, runtime, bounds, true)));
  const hogs = await Promise.all(
    Array.from({ length: options.hogs }, () => launch(["sh", "-c", "while :; do :; done"])),
  );
  const rates: number[] = [];
  const runs: Record<Side, Run[]> = { off: [], on: [] };
  try {
    await run(hosts[0]!, { ...closed, seconds: warmUpSeconds });
    for (let round = 0; round < rounds; round++) {
      const rate = options.rate * (await run(hosts[0]!, closed)).tps;
      rates.push(rate);
      for (const host of inTurn(hosts, round)) {
        await delay(restMs);
        const done = await run(host, { ...load, rate });
        runs[host.side].push(done);
        say(
          `overload, ${runtime}, round ${round + 1}, ${host.side}: ${done.tps.toFixed(0)} of ` +
            `${rate.toFixed(0)} TPS, p50 ${done.p50Ms.toFixed(0)} ms, p99 ` +
            `${done.p99Ms.toFixed(0)} ms, ${(done.refusedShare * 100).toFixed(0)} % refused`,
        );
      }
    }
  } finally {
    await Promise.all(hogs.map((hog) => hog.stop("SIGKILL")));
    await stopHosts(hosts);
  }
  const of = (side: Side, value: (run: Run) => number) => runs[side].map(value);
  const shown = (side: Side, value: (run: Run) => number) => {
    const all = of(side, value);
    const [low, high] = [Math.min(...all), Math.max(...all)].map((each) => each.toFixed(0));
    return `${groupThousands(median(all).toFixed(0))} (${low} to ${high})`;
  };
  const p99 = (side: Side) => of(side, ({ p99Ms }) => p99Ms);
  const gain = medianRatio(p99("off"), p99("on"))!;
  const done = medianRatio(of("on", ({ tps }) => tps), of("off", ({ tps }) => tps))!;
  const range = (ratio: typeof gain, digits: number) => {
    const [middle, low, high] = [ratio.median, ratio.low, ratio.high]
      .map((each) => each.toFixed(digits));
    return `${middle} (${low} to ${high})`;
  };
  say(
    `overload, ${runtime}: with refusals p99 of what is done is ${range(gain, 1)} times better, ` +
      `and ${range(done, 2)} times as much is done`,
  );
  return sides.map((side) => [
    `${runtime}, ${side}`,
    groupThousands(median(rates).toFixed(0)),
    groupThousands(median(of(side, ({ tps }) => tps)).toFixed(0)),
    `${(median(of(side, ({ refusedShare }) => refusedShare)) * 100).toFixed(0)} %`,
    shown(side, ({ p50Ms }) => p50Ms),
    shown(side, ({ p99Ms }) => p99Ms),
  ]);
}

function say(text: string): void {
  console.error(text);
}

function readOptions(): Options | null {
  const { values } = parseArgs({
    options: {
      help: { type: "boolean", short: "h" },
      only: { type: "string", default: "" },
      runtimes: { type: "string", default: "bun,deno" },
      rounds: { type: "string" },
      seconds: { type: "string" },
      clients: { type: "string" },
      hogs: { type: "string", default: String(availableParallelism()) },
      rate: { type: "string", default: "1.5" },
      work: { type: "string", default: "20000" },
      min: { type: "string", default: "2" },
      max: { type: "string", default: "12" },
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
  const { only } = values;
  if (!["", "cost", "overload"].includes(only)) {
    throw new Error(`read --only: "${only}" given, cost or overload wanted`);
  }
  const length = (rounds: number, seconds: number, clients: number): Length => ({
    rounds: count("--rounds", values.rounds ?? String(rounds)),
    seconds: count("--seconds", values.seconds ?? String(seconds)),
    clients: count("--clients", values.clients ?? String(clients)),
  });
  return {
    only,
    runtimes: values.runtimes.split(",").map((text) => {
      if (text === "bun" || text === "deno") return text;
      throw new Error(`read --runtimes: "${text}" given, one of bun, deno wanted`);
    }),
    cost: length(60, 1, 16),
    overload: length(5, 15, 64),
    hogs: number("--hogs", values.hogs),
    rate: number("--rate", values.rate),
    work: count("--work", values.work),
    min: number("--min", values.min),
    max: number("--max", values.max),
  };
}

async function main(): Promise<void> {
  const options = readOptions();
  if (options === null) return console.log(USAGE);
  const machine = describeMachine();
  server = await startPostgres({ settings: { max_connections: "200", shared_buffers: "256MB" } });
  nats = await startNats({ jetstream: true });
  const cost: string[][] = [];
  const overload: string[][] = [];
  try {
    if (options.only !== "overload") {
      await fillDatabase(pgbench, server, 10, "postgres");
      for (const runtime of options.runtimes) cost.push(await measureCost(runtime, options));
    }
    if (options.only !== "cost") {
      for (const runtime of options.runtimes) {
        overload.push(...await measureOverload(runtime, options));
      }
    }
  } finally {
    await nats.stop();
    await server.stop("immediate");
  }
  console.log(`${machine.cpu}, ${machine.cores} cores.`);
  if (cost.length > 0) {
    const { rounds, seconds, clients } = options.cost;
    console.log(
      `\nCost while nothing is overloaded, µs of CPU per transaction; ${clients} clients of ` +
        `pgbench -S, ${rounds} rounds of ${seconds} s:\n`,
    );
    console.log(renderTable(
      ["runtime", "off", "on", "ratio, median (95 %)", "ms/s of the monitor", "other work"],
      cost,
      1,
    ));
  }
  if (overload.length === 0) return;
  const { rounds, seconds, clients } = options.overload;
  console.log(
    `\nOverload: ${options.rate} times as many transactions as are done, ${clients} clients, ` +
      `${options.hogs} busy processes; ${rounds} rounds of ${seconds} s; bounds ${options.min} ` +
      `and ${options.max}; medians, and the range:\n`,
  );
  console.log(renderTable(
    ["overload control", "come per s", "done per s", "refused", "p50 ms", "p99 ms"],
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
