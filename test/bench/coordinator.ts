// Benchmark of the budget coordinator: `bun test/bench/coordinator.ts`; --help lists options.
//
// What it measures. One real coordinator process on a real bus (nats-server with JetStream where there is
// one, else the embedded bus), and simulated workers, each a lease table with so many pools, that report
// once a second, all leaves, of which a tenth has changed since. Per number of workers: CPU seconds of
// the coordinator per second (all its threads; 1.0 is one core), its memory, the time from a report to
// the grant that answers it, grants and saves per second, for either runtime. Two loads: "room", where
// the pools have more slots than are wanted, and "short", where a third of the wishes cannot be met,
// so that slots have to be taken from some and given to others all the time.
// With --on-change workers also report what changed within 50 ms, their new grants included, as the
// pooler does: about twice the reports, and short ones.
//
// How. The workers all live in this process, spread over the second, and hold at once what they may.
// Reports are built and sent by the same code as the pooler's. A warm-up is not measured. At the end a
// second coordinator takes over: the time from its election until it serves, in which it has read and
// rewritten what is saved of every worker.
//
// What it does not measure: the first second of a thousand workers that come at once, clients.
//
// How it could mislead. The broker and this process need CPU as well: on two cores with a thousand workers
// the times from report to grant are those of a machine that is full, and so an upper bound; two columns
// say what they, and what work that is none of ours, took. A coordinator that is short of CPU decides about
// more reports at once, which is cheaper: then the CPU seconds are a little low.

import { randomUUID } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import {
  type Bus,
  connectBus,
  MemoryStore,
  openEmbeddedStore,
  openStore,
  type Pattern,
  serveStore,
} from "../../shared/bus/mod.ts";
import { type Grant, type Lease, LeaseTable, poolLeaf } from "../../shared/ledger/mod.ts";
import { processUsage, runtimeCommand, type RuntimeName } from "../../shared/sys/mod.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { seededRandom, until } from "../support/harness.ts";
import { ManagedProcess } from "../support/managed_process.ts";
import { startNats } from "../support/nats.ts";
import { findProgram } from "../support/needs.ts";
import { residentBytes } from "../support/processes.ts";
import { freePort, tempDir } from "../support/temp.ts";
import { describeMachine } from "./programs.ts";
import { groupThousands, renderTable } from "./report.ts";
import { quantile } from "./stats.ts";

const USAGE = `bun test/bench/coordinator.ts [options]

  --workers 10,100,1000   numbers of workers
  --pools 100             pools of each worker
  --seconds 10            length of a measurement
  --warm-up 5             seconds before it
  --runtimes bun,deno     runtimes of the coordinator
  --loads room,short      loads
  --bus nats|embedded     the bus (nats where there is a nats-server)
  --on-change             workers also report changes within 50 ms`;

type Load = "room" | "short";

interface Options {
  readonly workers: readonly number[];
  readonly pools: number;
  readonly seconds: number;
  readonly warmUp: number;
  readonly runtimes: readonly RuntimeName[];
  readonly loads: readonly Load[];
  readonly bus: "nats" | "embedded";
  readonly onChange: boolean;
}

interface Cell {
  readonly cpu: number;
  readonly residentBytes: number;
  readonly reports: number;
  readonly grants: number;
  readonly saves: number;
  readonly answerMs: readonly number[];
  readonly otherCpu: number;
  /** Cores that work which is none of ours took: the times are worth nothing when it is much. */
  readonly foreignCpu: number;
  /** From the election of a second coordinator until it has taken all charges over. */
  readonly takeOverMs: number;
}

const root = resolve(import.meta.dirname!, "../..");
const changingShare = 0.1;
/** Slots per worker and pool. */
const slots = 2;
/** Wishes per worker and pool, from 0 to this. */
const most: Record<Load, number> = { room: 2, short: 6 };
const changeMs = 50;
/** USER_HZ, the unit of /proc/stat. */
const ticksPerSecond = 100;
const expireMs = 100;

/** The workers of one measurement. */
class Workers {
  readonly tables: LeaseTable[] = [];
  readonly #leases: Lease[][] = [];
  readonly #bus: Bus;
  readonly #most: number;
  readonly #onChange: boolean;
  readonly #random = seededRandom(1);
  /** By worker: when each report was sent that is not answered yet. */
  readonly #sent: Map<number, number>[] = [];
  readonly #timers: ReturnType<typeof setInterval>[] = [];
  readonly #stops: (() => void)[] = [];
  #turn = 0;
  answerMs: number[] = [];
  reports = 0;
  grants = 0;

  constructor(bus: Bus, count: number, pools: number, load: Load, onChange: boolean) {
    this.#bus = bus;
    this.#most = most[load];
    this.#onChange = onChange;
    for (let worker = 0; worker < count; worker++) {
      const table = new LeaseTable({ worker, incarnation: 1, leaseMs: 10_000 });
      this.tables.push(table);
      this.#sent.push(new Map());
      this.#leases.push(
        Array.from({ length: pools }, (_, pool) => table.lease(poolLeaf(`database${pool}`, "app"))),
      );
      for (const lease of this.#leases[worker]!) this.#wish(lease);
    }
    const grantOfOne = bus.subjects.budgetGrant(0);
    const ofAll: Pattern<Grant> = {
      subject: grantOfOne.subject.replace(/\d+$/, "*"),
      message: grantOfOne.message,
      reply: null,
    };
    this.#stops.push(
      bus.subscribe(ofAll, (grant) => this.#onGrant(grant)),
      bus.subscribe(bus.subjects.budgetLeader, ({ epoch }) => {
        for (const table of this.tables) table.onLeader(epoch, performance.now());
      }),
    );
  }

  start(): void {
    // Reports are spread evenly over the second, in steps of the event loop.
    const startedAt = performance.now();
    this.#timers.push(
      setInterval(() => {
        const due = Math.floor((performance.now() - startedAt) / 1000 * this.tables.length);
        while (this.#turn < due) this.#report(this.#turn++ % this.tables.length);
      }, 1),
      setInterval(() => {
        for (const table of this.tables) table.expire(performance.now());
      }, expireMs),
    );
    if (!this.#onChange) return;
    this.#timers.push(setInterval(() => {
      for (const [worker, table] of this.tables.entries()) {
        if (table.reportDue) this.#send(worker, false);
      }
    }, changeMs));
  }

  stop(): void {
    for (const timer of this.#timers) clearInterval(timer);
    for (const stop of this.#stops) stop();
  }

  resetCounters(): void {
    this.answerMs = [];
    this.reports = 0;
    this.grants = 0;
  }

  /** By pool: the most that was held or allowed of all workers, at this moment. */
  used(): number {
    const sums = new Array<number>(this.#leases[0]!.length).fill(0);
    for (const leases of this.#leases) {
      leases.forEach(({ granted, held }, pool) => sums[pool]! += Math.max(granted, held));
    }
    return Math.max(...sums);
  }

  #report(worker: number): void {
    const leases = this.#leases[worker]!;
    const changes = Math.max(1, Math.round(leases.length * changingShare));
    for (let n = 0; n < changes; n++) {
      this.#wish(leases[Math.floor(this.#random() * leases.length)]!);
    }
    this.#send(worker, true);
  }

  #wish(lease: Lease): void {
    lease.wanted = Math.floor(this.#random() * (this.#most + 1));
    lease.held = Math.min(lease.limit, lease.wanted);
    lease.touch();
  }

  #send(worker: number, full: boolean): void {
    const now = performance.now();
    for (const report of this.tables[worker]!.reports(now, full)) {
      this.#sent[worker]!.set(report.seq, now);
      this.#bus.publish(this.#bus.subjects.budgetReport(worker), report);
      this.reports += 1;
    }
  }

  #onGrant(grant: Grant): void {
    const now = performance.now();
    this.grants += 1;
    const sent = this.#sent[grant.worker]!;
    for (const [seq, at] of sent) {
      if (seq > grant.report) continue;
      this.answerMs.push(now - at);
      sent.delete(seq);
    }
    for (const lease of this.tables[grant.worker]!.onGrant(grant, now)) {
      lease.held = Math.min(lease.limit, lease.wanted);
    }
  }
}

interface Broker {
  readonly url: string;
  readonly token: string;
  readonly pid: number;
  stop(): Promise<unknown>;
}

async function startBroker(kind: Options["bus"]): Promise<Broker> {
  if (kind === "nats") {
    const nats = await startNats({ jetstream: true });
    return { url: nats.url, token: nats.token, pid: nats.pid, stop: () => nats.stop() };
  }
  const token = randomUUID();
  const port = await freePort();
  const program = join(root, "test/bus/embedded_process.ts");
  const broker = await ManagedProcess.launch({
    command: [...runtimeCommand("bun"), program, String(port), token, "{}"],
  });
  await broker.ready("the embedded bus", () => broker.stdout().includes("ready nats://"));
  const url = `nats://127.0.0.1:${port}`;
  return { url, token, pid: broker.pid, stop: () => broker.stop() };
}

function writeIni(options: Options, broker: Broker, workers: number): string {
  const file = join(tempDir("coordinator"), "pgweir.ini");
  const servers = broker.url.replace("//", `//${broker.token}@`);
  writeFileSync(
    file,
    [
      "[databases]",
      "* = host=127.0.0.1",
      "[pgbouncer]",
      "pool_mode = transaction",
      `default_pool_size = ${slots * workers}`,
      "budget_mode = leased",
      ...(options.bus === "nats" ? [`bus_url = ${servers}`] : []),
      "",
    ].join("\n"),
  );
  return file;
}

async function measure(
  options: Options,
  runtime: RuntimeName,
  count: number,
  load: Load,
): Promise<Cell> {
  const broker = await startBroker(options.bus);
  const logger = createLogger({ component: "bench", level: "warning", format: "text" });
  const { url, token } = broker;
  const mesh = "default";
  const bus = await connectBus({ servers: [url], token, name: "bench", mesh, logger });
  const stopServing = options.bus === "embedded" ? serveStore(bus, new MemoryStore()) : () => {};
  const seat = {
    busUrl: url,
    busToken: token,
    mesh,
    supervisorPid: process.pid,
    embedded: true,
  };
  const ini = writeIni(options, broker, count);
  const startCoordinator = (name: string) =>
    ManagedProcess.launch({
      command: [...runtimeCommand(runtime), join(root, "services/cli.ts"), "budget", ini],
      environment: {
        ...process.env as Record<string, string>,
        ...(options.bus === "embedded" ? { PGWEIR_BUDGET: JSON.stringify({ ...seat, name }) } : {}),
      },
    });
  const coordinator = await startCoordinator("budget-one");
  let successor: ManagedProcess | null = null;
  const workers = new Workers(bus, count, options.pools, load, options.onChange);
  try {
    await coordinator.ready("a leader", () => coordinator.stderr().includes("coordinator leads"));
    workers.start();
    await passSeconds(options.warmUp);
    const savesBefore = await revisionNow(bus, options);
    const before = readCounts(coordinator.pid, broker.pid);
    workers.resetCounters();
    await passSeconds(options.seconds);
    const after = readCounts(coordinator.pid, broker.pid);
    const { reports, grants } = workers;
    const answerMs = [...workers.answerMs];
    const saves = await revisionNow(bus, options) - savesBefore;
    const cap = slots * count;
    if (workers.used() > cap) throw new Error(`${workers.used()} slots of ${cap} are in use`);
    const seconds = (after.at - before.at) / 1000;
    const cpu = (after.coordinator - before.coordinator) / seconds;
    const otherCpu = (after.others - before.others) / seconds;
    const memory = residentBytes(coordinator.pid);
    successor = await startCoordinator("budget-two");
    await successor.ready("the successor", () => successor!.stderr().includes("bus connected"));
    await coordinator.stop();
    await successor.ready("its term", () => successor!.stderr().includes("coordinator leads"));
    return {
      takeOverMs: timeOf(successor, "coordinator leads") - timeOf(successor, "elected to"),
      cpu,
      otherCpu,
      foreignCpu: Math.max(0, (after.machine - before.machine) / seconds - cpu - otherCpu),
      residentBytes: memory,
      reports: reports / seconds,
      grants: grants / seconds,
      saves: saves / seconds,
      answerMs,
    };
  } finally {
    workers.stop();
    await coordinator.stop();
    await successor?.stop();
    stopServing();
    await bus.close();
    await broker.stop();
  }
}

/** When a process logged the line with this text, in milliseconds. */
function timeOf(logged: ManagedProcess, text: string): number {
  const line = logged.stderr().split("\n").find((line) => line.includes(text)) ?? "";
  return Date.parse(line.split(" ").slice(0, 2).join("T") + "Z");
}

/** Every write of the store has the next revision: a write of our own tells how many there were. */
async function revisionNow(bus: Bus, options: Options): Promise<number> {
  const store = options.bus === "nats" ? await openStore(bus) : openEmbeddedStore(bus);
  const key = `bench.${randomUUID()}`;
  return await store.create(key, new Uint8Array()) ?? 0;
}

function readCounts(coordinator: number, broker: number) {
  const [, user, nice, system, , , irq, softIrq, steal] = readFileSync("/proc/stat", "utf8")
    .split("\n", 1)[0]!.split(/ +/).map(Number);
  const cpuOf = (pid: number) => processUsage(pid)?.cpuSeconds ?? 0;
  return {
    at: performance.now(),
    coordinator: cpuOf(coordinator),
    others: cpuOf(broker) + cpuOf(process.pid),
    machine: (user! + nice! + system! + irq! + softIrq! + steal!) / ticksPerSecond,
  };
}

async function passSeconds(seconds: number): Promise<void> {
  const end = performance.now() + seconds * 1000;
  await until("the time to pass", () => performance.now() >= end, seconds * 1000 + 10_000, 50);
}

function readOptions(): Options | null {
  const { values } = parseArgs({
    options: {
      help: { type: "boolean", short: "h" },
      workers: { type: "string", default: "10,100,1000" },
      pools: { type: "string", default: "100" },
      seconds: { type: "string", default: "10" },
      "warm-up": { type: "string", default: "5" },
      runtimes: { type: "string", default: "bun,deno" },
      loads: { type: "string", default: "room,short" },
      bus: { type: "string", default: findProgram("nats-server") === null ? "embedded" : "nats" },
      "on-change": { type: "boolean", default: false },
    },
  });
  if (values.help === true) return null;
  const pick = <T extends string>(option: string, text: string, from: readonly T[]): T => {
    const found = from.find((candidate) => candidate === text);
    if (found !== undefined) return found;
    throw new Error(`read ${option}: "${text}" given, one of ${from.join(", ")} wanted`);
  };
  const count = (option: string, text: string): number => {
    const value = Number(text);
    if (Number.isInteger(value) && value > 0 && value <= 30_000) return value;
    throw new Error(`read ${option}: "${text}" given, a whole number from 1 to 30000 wanted`);
  };
  return {
    workers: values.workers.split(",").map((text) => count("--workers", text)),
    pools: count("--pools", values.pools),
    seconds: count("--seconds", values.seconds),
    warmUp: count("--warm-up", values["warm-up"]),
    runtimes: values.runtimes.split(",").map((text) => pick("--runtimes", text, ["bun", "deno"])),
    loads: values.loads.split(",").map((text) => pick("--loads", text, ["room", "short"])),
    bus: pick("--bus", values.bus, ["nats", "embedded"]),
    onChange: values["on-change"],
  };
}

async function main(): Promise<void> {
  const options = readOptions();
  if (options === null) return console.log(USAGE);
  const machine = describeMachine();
  const rows: string[][] = [];
  for (const load of options.loads) {
    for (const runtime of options.runtimes) {
      for (const count of options.workers) {
        const cell = await measure(options, runtime, count, load);
        const whole = (value: number) => groupThousands(value.toFixed(0));
        rows.push([
          `${load}, ${runtime}`,
          whole(count),
          cell.cpu.toFixed(3),
          (cell.cpu / count * 1e6).toFixed(0),
          whole(cell.residentBytes / 1e6),
          whole(cell.reports),
          whole(cell.grants),
          whole(cell.saves),
          quantile(cell.answerMs, 0.5).toFixed(1),
          quantile(cell.answerMs, 0.99).toFixed(1),
          cell.otherCpu.toFixed(2),
          cell.foreignCpu.toFixed(2),
          whole(cell.takeOverMs),
        ]);
        console.error(rows.at(-1)!.join("  "));
      }
    }
  }
  console.log(
    `${machine.cpu}, ${machine.cores} cores; ${options.bus} bus; ${options.pools} pools a worker, ` +
      `a full report each second, ${changingShare * 100} % of the leaves change` +
      `${options.onChange ? ", changes reported within 50 ms as well" : ""}; ` +
      `${options.seconds} s each. Cores: CPU seconds per second.\n`,
  );
  console.log(renderTable(
    [
      "load, runtime",
      "workers",
      "cores of the coordinator",
      "µs per worker and second",
      "MB",
      "reports/s",
      "grants/s",
      "saves/s",
      "p50 ms to the answer",
      "p99 ms",
      "cores of broker and workers",
      "cores of other work",
      "ms to take over",
    ],
    rows,
    1,
  ));
}

try {
  await main();
} catch (error) {
  console.error((error as Error).message);
  process.exitCode = 1;
}
