// Finds the programs the benchmark measures with and against, their versions, and the machine; and
// starts programs the way the benchmark wants all of them started.
// It measures nothing.

import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { cpus, release, totalmem } from "node:os";
import { join } from "node:path";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import { ManagedProcess } from "../support/managed_process.ts";
import { findProgram } from "../support/needs.ts";
import { parseVersion } from "./pgbench_output.ts";
import type { Machine } from "./results.ts";

export interface Program {
  readonly path: string;
  readonly version: readonly number[];
}

export interface User {
  readonly uid: number;
  readonly gid: number;
}

export interface Programs {
  readonly pgbench: Program;
  readonly pgbouncer: Program;
  /** Name -> version of everything that takes part but PostgreSQL. */
  readonly versions: Readonly<Record<string, string>>;
}

export function findPrograms(): Programs {
  const pgbench = findPgbench();
  const pgbouncer = findPgbouncer();
  return {
    pgbench,
    pgbouncer,
    versions: {
      pgbench: pgbench.version.join("."),
      PgBouncer: pgbouncer.version.join("."),
      pgweir: packageVersion(),
      Bun: programVersion("bun"),
      Deno: programVersion("deno"),
    },
  };
}

function packageVersion(): string {
  const file = join(import.meta.dirname!, "../../package.json");
  return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version;
}

function programVersion(runtime: "bun" | "deno"): string {
  const [path] = runtimeCommand(runtime) as [string];
  return program(path).version.join(".");
}

/** pgbench of PATH, or of the newest server package of Debian. */
export function findPgbench(): Program {
  const path = findProgram("pgbench") ?? newestOf("/usr/lib/postgresql", "bin/pgbench");
  if (path === null) {
    throw new Error(
      'find pgbench: neither in PATH nor in "/usr/lib/postgresql", wanted one (apt-get install postgresql)',
    );
  }
  return program(path);
}

/** The PgBouncer the environment variable PGBOUNCER names, or the system's, installed if need be. */
function findPgbouncer(): Program {
  const named = process.env["PGBOUNCER"] ?? "";
  if (named !== "") return program(named);
  let path = findProgram("pgbouncer");
  if (path === null) {
    const script = join(import.meta.dirname!, "../system_packages.sh");
    execFileSync("/bin/sh", [script], { stdio: ["ignore", "ignore", "inherit"] });
    path = findProgram("pgbouncer");
  }
  if (path === null) {
    throw new Error(
      "find PgBouncer: not in PATH nor /usr/sbin, wanted one there or named by PGBOUNCER=/path",
    );
  }
  return program(path);
}

function program(path: string): Program {
  let text: string;
  try {
    text = execFileSync(path, ["--version"], { encoding: "utf8" });
  } catch (error) {
    throw new Error(`ask "${path}" for its version: ${(error as Error).message}`);
  }
  return { path, version: parseVersion(text) };
}

function newestOf(root: string, file: string): string | null {
  const versions = existsSync(root) ? readdirSync(root) : [];
  const newestFirst = versions.sort((a, b) => Number(b) - Number(a));
  return newestFirst.map((version) => join(root, version, file)).find(existsSync) ?? null;
}

/** PgBouncer refuses to run as root: another user to run it as, or null when we are not root. */
export function unprivilegedUser(): User | null {
  if (process.getuid?.() !== 0) return null;
  const lines = readFileSync("/etc/passwd", "utf8").split("\n").map((line) => line.split(":"));
  for (const name of ["postgres", "nobody"]) {
    const fields = lines.find((line) => line[0] === name);
    if (fields !== undefined) return { uid: Number(fields[2]), gid: Number(fields[3]) };
  }
  throw new Error('find a user to run PgBouncer as: no "postgres" nor "nobody" in "/etc/passwd"');
}

/** Our environment without what would steer libpq, pgbench or pgweir. */
export function plainEnvironment(): Record<string, string> {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith("PG"));
  return Object.fromEntries(kept) as Record<string, string>;
}

/** Starts a program with as many file descriptors as the system allows. */
export function launch(
  command: readonly string[],
  options: { readonly user?: User | null; readonly exitSignal?: NodeJS.Signals } = {},
): Promise<ManagedProcess> {
  return ManagedProcess.launch({
    // The shell lifts the soft limit and is replaced by the command: the pid is the command's.
    command: ["/bin/sh", "-c", 'ulimit -n "$(ulimit -Hn)"; exec "$@"', "sh", ...command],
    environment: plainEnvironment(),
    ...(options.user == null ? {} : { user: options.user }),
    ...(options.exitSignal === undefined ? {} : { exitSignal: options.exitSignal }),
  });
}

/** Throws, with the end of its output, when a process that should run is no more. */
/** Fills a database with pgbench's tables, a scale of 1 being 100,000 accounts. */
export async function fillDatabase(
  pgbench: string,
  server: { readonly host: string; readonly port: number },
  scale: number,
  database: string,
): Promise<void> {
  const load = await launch([
    ...[pgbench, "-h", server.host, "-p", String(server.port), "-U", "postgres"],
    ...["-i", "-q", "-s", String(scale), database],
  ]);
  const end = await load.ended(120_000);
  if (end.code !== 0) {
    throw new Error(`fill the database: pgbench ended with ${end.code}:\n${tail(load)}`);
  }
}

export function assertRunning(what: string, child: ManagedProcess): void {
  if (child.running) return;
  throw new Error(`keep ${what} running: it ended; its output:\n${tail(child)}`);
}

export function tail(child: ManagedProcess): string {
  return child.output().trimEnd().slice(-2000);
}

export function describeMachine(): Machine {
  const all = cpus();
  return {
    cpu: (all[0]?.model ?? "unknown CPU").replace(/\s+/g, " ").trim(),
    cores: all.length,
    memoryBytes: totalmem(),
    kernel: release(),
  };
}
