// The measurements themselves: one run of pgbench against one contender, and a contender's memory with
// idle clients. Only what happens between two readings of /proc belongs to the contender; starting
// and warming up is the caller's business.

import { readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import { until } from "../support/harness.ts";
import type { ManagedProcess } from "../support/managed_process.ts";
import { tempDir } from "../support/temp.ts";
import type { Contender } from "./contenders.ts";
import { parsePgbenchOutput, type PgbenchReport, summariseLatencies } from "./pgbench_output.ts";
import { assertRunning, launch, type Program, tail } from "./programs.ts";
import { type IdleResult, type Sample, SLOW_MS, type Workload } from "./results.ts";
import { otherShare, readMachineUsage, usedCpuSeconds } from "./usage.ts";

/** The part of the transactions that pgbench writes to its log; enough for a p99, cheap to write. */
const SAMPLING_RATE = 0.2;
/** Logins in flight at once; within the smallest listen backlog of the contenders (128). */
const LOGINS_AT_ONCE = 64;

export interface Tools {
  readonly pgbench: Program;
  readonly user: string;
  readonly cores: number;
  readonly tls: boolean;
}

/** Runs pgbench for some seconds; an aborted run or a failed transaction is an error. */
export async function measure(
  tools: Tools,
  contender: Contender,
  workload: Workload,
  database: string,
  seconds: number,
): Promise<Sample> {
  const folder = tempDir("pgbench");
  const machineBefore = readMachineUsage();
  const before = contender.usage();
  const child = await launch([
    tools.pgbench.path,
    ...["-h", "127.0.0.1", "-p", String(contender.port), "-U", tools.user],
    ...["-n", "-S", "-T", String(seconds), "-L", String(SLOW_MS)],
    ...(workload.kind === "connect" ? ["-C"] : ["-M", workload.kind]),
    ...["-c", String(workload.clients), "-j", String(Math.min(workload.clients, tools.cores))],
    ...["-l", "--log-prefix", join(folder, "log"), "--sampling-rate", String(SAMPLING_RATE)],
    `dbname=${database} sslmode=${tools.tls ? "require" : "disable"}`,
  ]);
  const end = await child.ended(seconds * 1000 + 60_000);
  contender.assertRunning(); // first: its own end says more than pgbench's complaint about it
  if (end.code !== 0) throw new Error(`run pgbench: it ended with ${end.code}:\n${tail(child)}`);
  const after = contender.usage();
  const machineAfter = readMachineUsage();
  const report = parsePgbenchOutput(child.stdout());
  assertSound(report);
  const latency = summariseLatencies(
    readdirSync(folder).map((name) => readFileSync(join(folder, name), "utf8")),
  );
  rmSync(folder, { recursive: true });
  return {
    transactions: report.transactions,
    slow: report.slow,
    tps: report.tps,
    p50Ms: latency?.p50Ms ?? null,
    p99Ms: latency?.p99Ms ?? null,
    cpuMicros: usedCpuSeconds(before, after) * 1e6 / report.transactions,
    residentBytes: after.residentBytes,
    otherShare: otherShare(machineBefore, machineAfter, tools.cores),
  };
}

function assertSound(report: PgbenchReport): void {
  if (report.failed > 0 || report.transactions === 0) {
    throw new Error(
      `run pgbench: ${report.transactions} transactions and ${report.failed} failed, ` +
        `some and none wanted`,
    );
  }
}

/**
 * Memory of a fresh contender at rest, and what each of `clients` idle clients adds. As many are
 * connected first and stay: what a pooler and its runtime set up for their first clients (compiled
 * code, room in the heap) is not counted per client.
 */
export async function measureIdle(
  tools: Tools,
  contender: Contender,
  database: string,
  clients: number,
): Promise<IdleResult> {
  const restBytes = await settledBytes(contender);
  const groups: ManagedProcess[] = [];
  const open = async (count: number) => {
    const script = join(import.meta.dirname!, "idle_clients.ts");
    const args = [contender.port, tools.user, database, count, LOGINS_AT_ONCE].map(String);
    const child = await launch([...runtimeCommand(), script, ...args]);
    groups.push(child);
    await until(`${count} idle clients of ${contender.name.id}`, () => {
      contender.assertRunning();
      assertRunning("the idle clients", child);
      return child.stdout().includes("connected");
    }, 60_000);
    return await settledBytes(contender);
  };
  try {
    const before = await open(clients);
    const after = await open(clients);
    return {
      contender: contender.name.id,
      restBytes,
      clients,
      bytesPerClient: (after - before) / clients,
    };
  } finally {
    await Promise.all(groups.map((child) => child.stop()));
  }
}

/** Resident memory once it has not moved for half a second, or after three seconds anyway. */
async function settledBytes(contender: Contender): Promise<number> {
  let still = 0;
  let last = contender.usage().residentBytes;
  for (let i = 0; i < 30 && still < 5; i++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    const now = contender.usage().residentBytes;
    still = Math.abs(now - last) < 64 * 1024 ? still + 1 : 0;
    last = now;
  }
  return last;
}
