// What the driver tests share: one PostgreSQL with a lone worker and a host of four workers in front of it, a
// deadline for every step, and programs run to their end. Pools are small and few statements are kept on a server,
// so that every client meets every server and every statement is evicted and prepared again. Not a test.

import { spawn } from "node:child_process";
import { runtimeName } from "../../../shared/sys/mod.ts";
import { atExit } from "../../support/at_exit.ts";
import type { Test } from "../../support/harness.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { isAlive, signal } from "../../support/processes.ts";
import { type Postgres, type PostgresOptions, startPostgres } from "../../support/postgres.ts";
import { type StandingChecks, standingChecks } from "../../support/standing_checks.ts";

/** How long a step may take that is over in a moment on an idle machine. */
export const STEP_S = 120;
/** Clients that share the servers. */
export const CLIENTS = 20;

export type Mode = "transaction" | "session";

/** The tables that drivers work on. */
const TABLES = `CREATE TYPE mood AS ENUM ('ok', 'sad');
  CREATE TABLE mine (tag text, n int, PRIMARY KEY (tag, n));
  CREATE TABLE copied (tag text, n int, body text);
  CREATE TABLE counted (tag text PRIMARY KEY, n int);
  CREATE TABLE numbers AS SELECT n FROM generate_series(1, 1000) n;`;

/** A name of PostgreSQL's database `postgres` under which the pool mode is session. */
export const IN_SESSION = "in_session";

/** A pooler in front of the one PostgreSQL. */
export interface Side {
  /** For the names of tests: "1 worker". */
  readonly name: string;
  readonly workers: number;
  /** The database whose pool mode is that of the file. */
  readonly database: string;
  readonly pooler: Pgweir;
  readonly postgres: Postgres;
  readonly host: string;
  readonly port: number;
}

export interface Sides {
  readonly postgres: Postgres;
  readonly all: readonly Side[];
  /** Registers the last tests of a file: nothing is left of it. */
  check(tests: Test): void;
}

export interface SidesOptions {
  /** Default: transaction, with two servers; session has one for each client and a few more. */
  readonly mode?: Mode;
  readonly settings?: Readonly<Record<string, string | number>>;
  readonly postgres?: PostgresOptions;
  /** More database entries: what comes after host and port. */
  readonly databases?: Readonly<Record<string, string>>;
}

export async function startSides(options: SidesOptions = {}): Promise<Sides> {
  const database = options.mode === "session" ? IN_SESSION : "postgres";
  const postgres = await startPostgres({
    ...options.postgres,
    settings: { deadlock_timeout: "20ms", ...options.postgres?.settings },
  });
  await postgres.query(TABLES);
  const target = `host=127.0.0.1 port=${postgres.port}`;
  const databases: Record<string, string> = {
    [IN_SESSION]: `${target} dbname=postgres pool_mode=session pool_size=${CLIENTS + 4}`,
  };
  for (const [name, more] of Object.entries(options.databases ?? {})) {
    databases[name] = `${target} ${more}`;
  }
  const ini = {
    databases: { ...databases, "*": target },
    pgbouncer: {
      max_client_conn: 2000,
      default_pool_size: 2,
      max_prepared_statements: 10,
      ...options.settings,
    },
    pgweir: { runtime: runtimeName },
  };
  const side = async (workers: number): Promise<Side> => {
    const pooler = await startPgweir(workers === 1 ? { ini } : { ini, workers });
    const name = workers === 1 ? "1 worker" : `${workers} workers`;
    return { name, workers, database, pooler, postgres, host: pooler.host, port: pooler.port };
  };
  const all = [await side(1), await side(4)];
  const checks = new Map<Side, StandingChecks>();
  // Code that runs hot is compiled while the tests run, and takes memory: growth is the soak test's subject.
  const limits = { residentGrowthBytes: 256 * 2 ** 20, idleMs: 0 };
  for (const each of all) {
    const login = { user: "postgres", database };
    checks.set(each, await standingChecks(each.pooler, postgres, login, limits));
  }
  return {
    postgres,
    all,
    check(tests) {
      for (const each of all) {
        tests(`nothing is left of it in ${each.name}`, async () => {
          await checks.get(each)!.verify();
        });
      }
      tests.after(async () => {
        for (const each of all) await each.pooler.stop();
        await postgres.stop("immediate");
      });
    },
  };
}

/** The result of a step; an error that names the step when it takes longer. */
export async function within<T>(what: string, step: Promise<T>, seconds = STEP_S): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    const error = new Error(`${what}: not over after ${seconds} s`);
    timer = setTimeout(() => reject(error), seconds * 1000);
  });
  try {
    return await Promise.race([step, late]);
  } finally {
    clearTimeout(timer);
  }
}

export interface Ran {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly input?: string;
  readonly environment?: Readonly<Record<string, string>>;
  readonly seconds?: number;
  readonly cwd?: string;
  /** Called with the process id once it runs. */
  readonly running?: (pid: number) => Promise<void>;
}

/** Runs a program to its end; a program that is not over in time is killed, and that is an error. */
export async function run(command: readonly string[], options: RunOptions = {}): Promise<Ran> {
  const [program = "", ...args] = command;
  const child = spawn(program, args, {
    cwd: options.cwd ?? "/",
    env: { ...process.env, LC_ALL: "C", ...options.environment },
  });
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8");
    child[name].on("data", (text: string) => output[name] += text);
  }
  // A program may end before it has read everything.
  child.stdin.on("error", () => {});
  child.stdin.end(options.input ?? "");
  const ended = new Promise<number | null>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", resolve);
  });
  const { pid } = child;
  const kill = () => pid !== undefined && isAlive(pid) && signal(pid, "SIGKILL");
  const forget = atExit(kill);
  try {
    if (pid !== undefined) await options.running?.(pid);
    const code = await within(command.join(" ").slice(0, 120), ended, options.seconds);
    return { code, ...output };
  } catch (error) {
    const said = (output.stdout + output.stderr).trimEnd().slice(-2_000);
    throw new Error(`${(error as Error).message}\n--- its output:\n${said}`);
  } finally {
    kill();
    forget();
  }
}

/** 0 to `count - 1`. */
export function below(count: number): number[] {
  return Array.from({ length: count }, (_, at) => at);
}

/** The SQLSTATE (or the driver's own code) that something fails with. */
export async function codeOf(step: Promise<unknown>): Promise<string> {
  try {
    await step;
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    return code ?? message;
  }
  return "no error";
}
