// What must hold after every test of a pooler, whatever the test did: nobody crashed or restarted, every worker
// serves, nothing is left open, nothing grew, nothing spins, and a bystander got no byte it did not ask for.
//   const checks = await standingChecks(pooler, postgres, login);  ... the test ...;  await checks.verify();

import {
  bindMessage,
  cancelKeyWorker,
  describeMessage,
  executeMessage,
  parseMessage,
  syncMessage,
} from "../../shared/wire/mod.ts";
import { until } from "./harness.ts";
import type { ConsoleRow, Pooler } from "./pooler.ts";
import type { Backend, Postgres } from "./postgres.ts";
import { atRest, openFiles, processInfo, residentBytes } from "./processes.ts";
import { type Login, RawClient } from "./raw_client.ts";

export interface StandingOptions {
  /** How much a process may have grown since the warm-up; default 8 MiB. */
  readonly residentGrowthBytes?: number;
  /** Watches every thread's CPU for so long at a time; default 1,000 ms, 0 leaves the check out. */
  readonly idleMs?: number;
  /** How long things may take to come back to rest, which costs only who fails; default 30,000 ms. */
  readonly settleMs?: number;
  /** What the bystander and the fresh clients ask; default SELECT 1. */
  readonly sql?: string;
}

const warmRounds = 300;
const FILE_GROWTH = 5;
const IDLE_CPU_SHARE = 0.05;

interface Baseline {
  readonly processes: ReadonlyMap<number, number>;
  readonly files: ReadonlyMap<number, number>;
  readonly resident: ReadonlyMap<number, number>;
  readonly counters: string;
  readonly backends: number;
}

/** The console's counters that must come back to what they were; idle servers may come and go. */
function counters(pools: readonly ConsoleRow[]): string {
  if (!pools.some((row) => "cl_active" in row)) throw new Error("SHOW POOLS: no rows of pools");
  const names = ["cl_active", "cl_waiting", "sv_active", "sv_login", "sv_being_canceled"];
  const sums = names.map((name) => {
    let sum = 0;
    // The console's own pool counts the very connection that asks.
    for (const row of pools) if (row["database"] !== "pgbouncer") sum += Number(row[name] ?? 0);
    return `${name}=${sum}`;
  });
  return sums.join(" ");
}

function isStuck(backend: Backend): boolean {
  return backend.state.startsWith("idle in transaction") ||
    (backend.state === "active" && backend.wait_event === "ClientRead");
}

export class StandingChecks {
  readonly #pooler: Pooler;
  readonly #postgres: Postgres;
  readonly #login: Login;
  readonly #options: StandingOptions;
  readonly #bystander: RawClient;
  readonly #baseline: Baseline;

  constructor(
    pooler: Pooler,
    postgres: Postgres,
    login: Login,
    options: StandingOptions,
    bystander: RawClient,
    baseline: Baseline,
  ) {
    this.#pooler = pooler;
    this.#postgres = postgres;
    this.#login = login;
    this.#options = options;
    this.#bystander = bystander;
    this.#baseline = baseline;
  }

  get #settleMs(): number {
    return this.#options.settleMs ?? 30_000;
  }

  /** Checks everything and ends the bystander. Throws an Error that names all that does not hold. */
  async verify(): Promise<void> {
    const problems: string[] = [];
    const checks = [
      () => this.#sameProcesses(),
      () => this.#everyWorkerServes(),
      () => this.#noBackendIsStuck(),
      () => this.#countersAreBack(),
      () => this.#nothingGrew(),
      () => this.#bystanderIsWell(),
      () => this.#nothingSpins(),
    ];
    for (const check of checks) {
      try {
        await check();
      } catch (error) {
        problems.push((error as Error).message);
      }
    }
    this.#bystander.close();
    if (problems.length === 0) return;
    const log = this.#pooler.log().trimEnd().split("\n").slice(-20).join("\n");
    throw new Error(
      `standing checks:\n- ${problems.join("\n- ")}\n--- the pooler's log ends with:\n${log}`,
    );
  }

  #sameProcesses(): void {
    const now = processesOf(this.#pooler);
    for (const [pid, startTime] of this.#baseline.processes) {
      if (now.get(pid) !== startTime) throw new Error(`process ${pid} of the pooler has ended`);
    }
    if (now.size === this.#baseline.processes.size) return;
    throw new Error(
      `the pooler has ${now.size} processes, wanted ${this.#baseline.processes.size}`,
    );
  }

  /** The kernel chooses the worker, so connections are opened until each has been met. */
  async #everyWorkerServes(): Promise<void> {
    const workers = this.#pooler.workerPids().length;
    const met = new Set<number>();
    for (let attempt = 0; attempt < 40 * workers && met.size < workers; attempt++) {
      const client = await RawClient.login(this.#pooler, this.#login);
      const rows = await client.query(this.#options.sql ?? "SELECT 1");
      if (rows.length !== 1) throw new Error(`a fresh client got ${rows.length} rows, wanted 1`);
      const worker = client.key === null
        ? -1
        : cancelKeyWorker(client.key.processId, client.key.secret);
      // One worker needs no telling apart, and another pooler's keys say nothing.
      met.add(workers === 1 ? 0 : worker);
      await client.end();
    }
    if (met.size < workers) throw new Error(`${met.size} workers serve, wanted ${workers}`);
  }

  async #noBackendIsStuck(): Promise<void> {
    let stuck: Backend[] = [];
    try {
      await until(
        "backends to be idle",
        async () => {
          stuck = (await this.#postgres.backends()).filter(isStuck);
          return stuck.length === 0;
        },
        this.#settleMs,
        50,
      );
    } catch {
      const list = stuck.map((b) => `${b.pid} ${b.state} (${b.query.slice(0, 60)})`);
      throw new Error(`backends are stuck: ${list.join(", ")}`);
    }
  }

  async #countersAreBack(): Promise<void> {
    let now = "";
    try {
      await until(
        "counters",
        async () => {
          now = counters(await this.#pooler.console("SHOW POOLS"));
          return now === this.#baseline.counters;
        },
        this.#settleMs,
        50,
      );
    } catch {
      throw new Error(`the console counts ${now}, wanted ${this.#baseline.counters}`);
    }
  }

  async #nothingGrew(): Promise<void> {
    // A server connection that was opened meanwhile is a file more, and is meant to stay.
    const servers = Math.max(0, (await this.#postgres.backends()).length - this.#baseline.backends);
    const residentGrowth = this.#options.residentGrowthBytes ?? 8 * 1024 * 1024;
    let grown = "";
    const probe = () => {
      grown = "";
      for (const [pid, before] of this.#baseline.files) {
        const files = openFiles(pid) - before - servers;
        if (files > FILE_GROWTH) grown += ` process ${pid} has ${files} more open files;`;
      }
      for (const [pid, before] of this.#baseline.resident) {
        const bytes = residentBytes(pid) - before;
        if (bytes > residentGrowth) {
          grown += ` process ${pid} is ${(bytes / 2 ** 20).toFixed(1)} MiB larger;`;
        }
      }
      return grown === "";
    };
    // Sockets close and garbage is collected a little later.
    await until("processes to shrink", probe, this.#settleMs, 50).catch(() => {
      throw new Error(`the pooler grew:${grown}`);
    });
  }

  async #bystanderIsWell(): Promise<void> {
    if (this.#bystander.unread > 0) {
      throw new Error(`a bystander received ${this.#bystander.unread} bytes it had not asked for`);
    }
    const rows = await this.#bystander.query(this.#options.sql ?? "SELECT 1");
    if (rows.length !== 1) throw new Error(`a bystander got ${rows.length} rows, wanted 1`);
  }

  async #nothingSpins(): Promise<void> {
    const idleMs = this.#options.idleMs ?? 1_000;
    if (idleMs === 0) return;
    const pids = [...this.#baseline.processes.keys()];
    await Promise.all(pids.map((pid) => atRest(pid, IDLE_CPU_SHARE, idleMs)));
  }
}

/** The pooler's processes with their start times: the one started and all workers. */
function processesOf(pooler: Pooler): Map<number, number> {
  const found = new Map<number, number>();
  for (const pid of new Set([pooler.pid, ...pooler.workerPids()])) {
    const info = processInfo(pid);
    if (info !== null && info.state !== "Z") found.set(pid, info.startTime);
  }
  return found;
}

/**
 * Makes the runtimes compile what every test uses: their code and heap grow by some 10 MiB in the first
 * seconds, which is no leak.
 */
async function warmUp(pooler: Pooler, login: Login, sql: string): Promise<void> {
  for (let i = 0; i < 4 * Math.max(1, pooler.workerPids().length); i++) {
    const client = await RawClient.login(pooler, login);
    for (let round = 0; round < warmRounds; round++) {
      await client.query(sql);
      client.send(
        parseMessage("", sql),
        bindMessage("", ""),
        describeMessage("P", ""),
        executeMessage("", 0),
        syncMessage(),
      );
      await client.replies();
    }
    await client.end();
  }
}

/** Connects a bystander and takes the baseline that `verify` compares with. */
export async function standingChecks(
  pooler: Pooler,
  postgres: Postgres,
  login: Login,
  options: StandingOptions = {},
): Promise<StandingChecks> {
  const sql = options.sql ?? "SELECT 1";
  await warmUp(pooler, login, sql);
  const bystander = await RawClient.login(pooler, login);
  await bystander.query(sql);
  // A server that logs in for a client that found none is on its way to being one of the idle ones.
  await until("logins of servers to end", async () => {
    return counters(await pooler.console("SHOW POOLS")).includes("sv_login=0");
  });
  const processes = processesOf(pooler);
  const pids = [...processes.keys()];
  const baseline: Baseline = {
    processes,
    files: new Map(pids.map((pid) => [pid, openFiles(pid)])),
    resident: new Map(pids.map((pid) => [pid, residentBytes(pid)])),
    counters: counters(await pooler.console("SHOW POOLS")),
    backends: (await postgres.backends()).length,
  };
  return new StandingChecks(pooler, postgres, login, options, bystander, baseline);
}
