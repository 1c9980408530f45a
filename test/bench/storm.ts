// Benchmark of a login storm, against PgBouncer: `bun test/bench/storm.ts`; --help lists options.
//
// What it measures. One process of each pooler in front of one PostgreSQL, SCRAM from clients (the secret in the
// auth_file, so neither derives anything from a password), trust towards PostgreSQL. So many clients are connected and
// idle, and pgbench runs `-S` with 8 clients at a fixed rate. Then all those idle clients drop their connections and
// come back in one moment. Per contender: how many SCRAM logins per second that makes until the last one is in, the
// p99 latency of pgbench's clients while it lasts, and the same in the seconds before it.
//
// How. In each round every contender has its storm, one right after the other; ratios to PgBouncer are taken within a
// round, and medians over the rounds are reported. Latencies are of every transaction, from the moment it was due, so a
// pooler that stands still is not sent less.
//
// How it could mislead. The clients that come back are one process of JavaScript on the same machine, which makes
// proofs and reads greetings: it takes CPU from the pooler and pgbench, from each contender's alike, and bounds the
// logins per second. On two cores the p99 in the
// storm is that of a machine that is full. The backlog of the listeners is raised, for both alike: a storm that does not
// fit into it is made of the kernel's retries after seconds.

import { readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import { deriveScramSecret, formatScramSecret, saltedPassword } from "../../shared/wire/mod.ts";
import { until } from "../support/harness.ts";
import type { ManagedProcess } from "../support/managed_process.ts";
import { startPostgres } from "../support/postgres.ts";
import { tempDir } from "../support/temp.ts";
import { type Contender, POOLED_DATABASE, startContender } from "./contenders.ts";
import { CONTENDERS } from "./options.ts";
import { type LatencySummary, summariseLatencies } from "./pgbench_output.ts";
import {
  assertRunning,
  describeMachine,
  fillDatabase,
  findPrograms,
  launch,
  type Programs,
  tail,
  unprivilegedUser,
} from "./programs.ts";
import { renderTable } from "./report.ts";
import { median, medianRatio } from "./stats.ts";
import { otherShare, readMachineUsage } from "./usage.ts";

const USAGE = `bun test/bench/storm.ts [options]

  --clients 2000      how many come back at once
  --rounds 5          storms of each contender
  --rate 400          transactions per second of the clients that stay
  --quiet 5           seconds before a storm, of which the first does not count
  --contenders a,b    of ${
  CONTENDERS.filter(({ shape }) => shape === "single").map(({ id }) => id).join(", ")
} (all)

environment: PGBOUNCER=/path/to/pgbouncer measures against another binary than the system's.`;

const user = "postgres";
const password = "after the storm";
const steadyClients = 8;
/** A storm that is slower than so many logins per second is an error. */
const leastLogins = 200;
/** What the median of p99 in the storm may be, of that before it. */
const targetRatio = 3;
const targetLogins = 500;

interface Options {
  readonly clients: number;
  readonly rounds: number;
  readonly rate: number;
  readonly quiet: number;
  readonly contenders: readonly string[];
}

function readOptions(): Options | null {
  const { values } = parseArgs({
    options: {
      clients: { type: "string", default: "2000" },
      rounds: { type: "string", default: "5" },
      rate: { type: "string", default: "400" },
      quiet: { type: "string", default: "5" },
      contenders: { type: "string", default: "pgbouncer,pgweir-bun,pgweir-deno" },
      help: { type: "boolean", default: false },
    },
  });
  const [clients, rounds, rate, quiet] = [values.clients, values.rounds, values.rate, values.quiet]
    .map(Number) as [number, number, number, number];
  const contenders = values.contenders.split(",").map((id) => id.trim());
  const isKnown = (id: string) => CONTENDERS.some((c) => c.id === id && c.shape === "single");
  const numbers = [clients, rounds, rate, quiet - 1];
  const isGood = numbers.every((n) => Number.isInteger(n) && n > 0) && contenders.every(isKnown);
  return values.help || !isGood ? null : { clients, rounds, rate, quiet, contenders };
}

interface Storm {
  readonly loginsPerSecond: number;
  readonly quiet: LatencySummary;
  readonly storm: LatencySummary;
}

/** The clients of a contender that come back, connected for the first time. */
class Crowd {
  readonly #contender: Contender;
  readonly #process: ManagedProcess;

  private constructor(contender: Contender, process: ManagedProcess) {
    this.#contender = contender;
    this.#process = process;
  }

  static async connect(contender: Contender, count: number): Promise<Crowd> {
    const script = join(import.meta.dirname!, "storm_clients.ts");
    const args = [contender.port, user, password, POOLED_DATABASE, count].map(String);
    const crowd = new Crowd(
      contender,
      await launch([...runtimeCommand("bun"), script, ...args]),
    );
    await crowd.#said(/^connected$/m, 120);
    return crowd;
  }

  /** Until the last one is back, in milliseconds. */
  async storm(patienceSeconds: number): Promise<number> {
    this.#process.signal("SIGUSR2");
    return Number((await this.#said(/^in (\d+)$/m, patienceSeconds))[1]);
  }

  #said(what: RegExp, seconds: number): Promise<RegExpExecArray> {
    return until(`the clients to be connected to ${this.#contender.name.id}`, () => {
      this.#contender.assertRunning();
      assertRunning("the clients", this.#process);
      return what.exec(this.#process.stdout());
    }, seconds * 1000);
  }

  async leave(): Promise<void> {
    await this.#process.stop();
  }
}

async function storm(
  programs: Programs,
  contender: Contender,
  options: Options,
): Promise<Storm> {
  const crowd = await Crowd.connect(contender, options.clients);
  try {
    const folder = tempDir("pgbench");
    const patience = patienceFor(options);
    const seconds = options.quiet + patience;
    const steady = await launch([
      programs.pgbench.path,
      ...["-h", "127.0.0.1", "-p", String(contender.port), "-U", user],
      ...["-n", "-S", "-M", "extended", "-c", String(steadyClients), "-j", "1"],
      ...["-T", String(seconds), "-R", String(options.rate), "-l", "--log-prefix"],
      ...[join(folder, "log"), `dbname=${POOLED_DATABASE} password='${password}'`],
    ]);
    const from = Date.now() + 1000;
    await delay(options.quiet * 1000);
    assertRunning("pgbench", steady);
    const begun = Date.now();
    const tookMs = await crowd.storm(patience);
    const end = await steady.ended(seconds * 1000 + 30_000);
    if (end.code !== 0) throw new Error(`run pgbench: it ended with ${end.code}:\n${tail(steady)}`);
    const logs = readdirSync(folder).map((name) => readFileSync(join(folder, name), "utf8"));
    rmSync(folder, { recursive: true });
    const quiet = summariseLatencies(logs, { fromMs: from, toMs: begun });
    const during = summariseLatencies(logs, { fromMs: begun, toMs: begun + tookMs });
    if (quiet === null || during === null) {
      throw new Error("summarise pgbench's log: nothing in it before the storm, or in it");
    }
    return { loginsPerSecond: options.clients / tookMs * 1000, quiet, storm: during };
  } finally {
    await crowd.leave();
  }
}

function patienceFor({ clients }: Options): number {
  return Math.max(3, Math.ceil(clients / leastLogins));
}

/** Code is compiled, heaps find their size. */
async function warmUp(contender: Contender, options: Options): Promise<void> {
  const crowd = await Crowd.connect(contender, options.clients);
  await crowd.storm(patienceFor(options));
  await crowd.leave();
}

async function main(options: Options): Promise<number> {
  const programs = findPrograms();
  const machine = describeMachine();
  const postgres = await startPostgres({ settings: { max_connections: "200" } });
  await postgres.query(`CREATE DATABASE ${POOLED_DATABASE}`);
  await fillDatabase(programs.pgbench.path, postgres, 1, POOLED_DATABASE);
  const salt = new Uint8Array(16).fill(1);
  const salted = await saltedPassword(password, salt, 4096);
  const contenders: Contender[] = [];
  const found = new Map<string, Storm[]>();
  const before = readMachineUsage();
  try {
    for (const name of CONTENDERS.filter(({ id }) => options.contenders.includes(id))) {
      const setting = {
        serverPort: postgres.port,
        user,
        poolSize: 20,
        maxClients: options.clients * 2 + 100,
        maxSessions: steadyClients,
        cores: machine.cores,
        pgbouncer: programs.pgbouncer,
        pgbouncerUser: unprivilegedUser(),
        certificate: null,
        scramSecret: formatScramSecret(deriveScramSecret(salted, salt, 4096)),
      };
      contenders.push(await startContender(name, setting));
    }
    for (const contender of contenders) await warmUp(contender, options);
    for (let round = 1; round <= options.rounds; round++) {
      for (const contender of contenders) {
        const { id } = contender.name;
        const one = await storm(programs, contender, options);
        found.set(id, [...found.get(id) ?? [], one]);
        console.error(
          `round ${round}, ${id}: ${one.loginsPerSecond.toFixed(0)} logins/s, ` +
            `p99 ${one.quiet.p99Ms.toFixed(1)} ms, in the storm ${one.storm.p99Ms.toFixed(1)} ms`,
        );
      }
    }
  } finally {
    for (const contender of contenders) await contender.stop();
    await postgres.stop();
  }
  const other = otherShare(before, readMachineUsage(), machine.cores);
  const base = found.get("pgbouncer")?.map((one) => one.loginsPerSecond) ?? [];
  const rows = [...found].map(([id, storms]) => {
    const values = (get: (one: Storm) => number) => storms.map(get);
    const logins = values((one) => one.loginsPerSecond);
    const ratio = medianRatio(logins, base);
    return [
      id,
      median(logins).toFixed(0),
      ratio === null ? "" : ratio.median.toFixed(2),
      median(values((one) => one.quiet.p99Ms)).toFixed(1),
      median(values((one) => one.storm.p99Ms)).toFixed(1),
      median(values((one) => one.storm.p99Ms / one.quiet.p99Ms)).toFixed(1),
    ];
  });
  const head = [
    "",
    "SCRAM logins/s",
    "× PgBouncer",
    "p99 before, ms",
    "p99 meanwhile, ms",
    "times",
  ];
  console.log(
    `${machine.cpu}, ${machine.cores} cores; ${options.clients} clients come back at once, ` +
      `${steadyClients} stay at ${options.rate} transactions/s; PgBouncer ` +
      `${programs.versions["PgBouncer"]}; medians of ${options.rounds} rounds; other work took ` +
      `${(other * 100).toFixed(0)} % of the CPU. Wanted: ${targetLogins} logins/s and more, ` +
      `at most ${targetRatio} times the p99.\n\n${renderTable(head, rows)}`,
  );
  return 0;
}

const options = readOptions();
if (options === null) {
  console.log(USAGE);
  process.exitCode = process.argv.includes("--help") ? 0 : 2;
} else {
  process.exitCode = await main(options);
}
