// Throw-away PostgreSQL clusters: a new data folder, a random port on 127.0.0.1, a unix socket folder, no fsync.
// Versions: Debian's packages and the 18 that npm brings. As root the server runs as `postgres` (or `nobody`).
// The superuser `postgres` may always come in by the unix socket without a password: that is what `query` uses.

import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import pg from "pg";
import type { Certificate } from "./certificates.ts";
import { until } from "./harness.ts";
import { ManagedProcess } from "./managed_process.ts";
import { postgresFolders } from "./needs.ts";
import { childrenOf, isAlive, signal } from "./processes.ts";
import { freePort, tempDir } from "./temp.ts";

export type PostgresVersion = "15" | "18";
export type PostgresAuth = "trust" | "md5" | "scram-sha-256" | "password";
export type StopMode = "smart" | "fast" | "immediate";

export interface PostgresOptions {
  /** Default: 15 where Debian has it, else 18. */
  readonly version?: PostgresVersion;
  /** How pg_hba asks everybody but `postgres` on the unix socket; default trust. */
  readonly auth?: PostgresAuth;
  /** Lines put before the others of pg_hba.conf. */
  readonly hba?: readonly string[];
  /** More settings of postgresql.conf. */
  readonly settings?: Readonly<Record<string, string>>;
  /** A password for `postgres`, for logins over TCP. */
  readonly superuserPassword?: string;
  /** Turns TLS on. The files are copied, since PostgreSQL insists on owning its key. */
  readonly tls?: Certificate & { readonly caFile?: string };
}

export interface Backend {
  readonly pid: number;
  readonly usename: string;
  readonly datname: string;
  readonly application_name: string;
  readonly state: string;
  readonly wait_event: string | null;
  readonly query: string;
}

export type Row = Record<string, unknown>;

// What `query` calls itself, so that `backends` can leave it out.
const OWN_NAME = "test support";

const STOP_SIGNALS = { smart: "SIGTERM", fast: "SIGINT", immediate: "SIGQUIT" } as const;

const BASE_SETTINGS = {
  listen_addresses: "127.0.0.1",
  fsync: "off",
  synchronous_commit: "off",
  full_page_writes: "off",
  autovacuum: "off",
  jit: "off",
  shared_buffers: "16MB",
  log_line_prefix: "%m [%p] %u@%d ",
  log_timezone: "UTC",
};

/** The user a server runs as: PostgreSQL refuses to run as root. */
function serverUser(): { uid: number; gid: number } | null {
  if (process.getuid?.() !== 0) return null;
  const users = readFileSync("/etc/passwd", "utf8").split("\n").map((line) => line.split(":"));
  const user = users.find((u) => u[0] === "postgres") ?? users.find((u) => u[0] === "nobody");
  if (user === undefined) {
    throw new Error('start PostgreSQL: no user "postgres" or "nobody" to run it as');
  }
  return { uid: Number(user[2]), gid: Number(user[3]) };
}

function environment(): Record<string, string> {
  const kept = Object.entries(process.env).filter(([name]) => !/^(PG|LC_)/.test(name));
  return { ...Object.fromEntries(kept) as Record<string, string>, LC_ALL: "C", TZ: "UTC" };
}

/** Whether everybody may go to a folder: a checkout below /root, say, is closed to the server's user. */
function openToAll(folder: string): boolean {
  for (let dir = folder; dir !== "/"; dir = dirname(dir)) {
    if ((statSync(dir).mode & 0o001) === 0) return false;
  }
  return true;
}

let ownCache: string | null = null;

/** Where copies and templates are kept: for the runner's whole run, else for this process. */
function cacheDir(): string {
  const dir = process.env["PGWEIR_TEST_CACHE"] ?? (ownCache ??= tempDir("cache"));
  mkdirSync(dir, { recursive: true, mode: 0o755 });
  return dir;
}

/** Makes `name` in the cache once, though several processes may try at the same time. */
function cached(name: string, make: (dir: string) => void): string {
  const path = join(cacheDir(), name);
  if (existsSync(path)) return path;
  const draft = `${path}.${process.pid}`;
  make(draft);
  try {
    renameSync(draft, path);
  } catch (error) {
    if (!existsSync(path)) throw error;
    // Another process was faster.
    rmSync(draft, { recursive: true, force: true });
  }
  return path;
}

function programFolder(version: string): string {
  const folder = postgresFolders().get(version);
  if (folder === undefined) throw new Error(`start PostgreSQL ${version}: not installed`);
  if (serverUser() === null || openToAll(folder)) return folder;
  const copy = cached(`server-${version}`, (dir) => {
    execFileSync("cp", ["-a", dirname(folder), dir]);
  });
  return join(copy, "bin");
}

/** A freshly made cluster to copy: copying takes a tenth of the time of making one. */
function templateCluster(version: string): string {
  return cached(`cluster-${version}`, (dir) => {
    const user = serverUser();
    mkdirSync(dir, { mode: 0o700 });
    if (user !== null) chownSync(dir, user.uid, user.gid);
    const args = ["-D", dir, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"];
    execFileSync(
      join(programFolder(version), "initdb"),
      [...args, "--no-sync", "--no-instructions", "--wal-segsize=1"],
      { env: environment(), cwd: "/", stdio: ["ignore", "ignore", "pipe"], ...user },
    );
  });
}

function hbaLines(options: PostgresOptions): string {
  const auth = options.auth ?? "trust";
  return [
    "local all,replication postgres trust",
    ...options.hba ?? [],
    `local all,replication all ${auth}`,
    `host all,replication all 127.0.0.1/32 ${auth}`,
    `host all,replication all ::1/128 ${auth}`,
    "",
  ].join("\n");
}

export class Postgres {
  readonly host = "127.0.0.1";
  readonly port: number;
  readonly version: string;
  readonly socketDir: string;
  readonly dataDir: string;
  readonly #programs: string;
  #process: ManagedProcess | null = null;
  #logs = "";

  constructor(version: string, port: number, programs: string, base: string) {
    this.version = version;
    this.port = port;
    this.#programs = programs;
    this.socketDir = base;
    this.dataDir = join(base, "data");
  }

  /** The postmaster's process id; throws when it does not run. */
  get pid(): number {
    if (this.#process === null) throw new Error("PostgreSQL: not running");
    return this.#process.pid;
  }

  async start(): Promise<void> {
    if (this.#process !== null) throw new Error("start PostgreSQL: already started");
    const user = serverUser();
    const server = await ManagedProcess.launch({
      command: [join(this.#programs, "postgres"), "-D", this.dataDir],
      environment: environment(),
      exitSignal: "SIGQUIT",
      ...(user === null ? {} : { user }),
    });
    this.#process = server;
    const pidFile = join(this.dataDir, "postmaster.pid");
    await server.ready("PostgreSQL to start", () => {
      if (!existsSync(pidFile)) return false;
      const lines = readFileSync(pidFile, "utf8").split("\n");
      return lines[0] === String(server.pid) && lines[7]?.trim() === "ready";
    });
  }

  /** Ends the server; like `pg_ctl stop -m`. Does nothing when it does not run. */
  async stop(mode: StopMode = "fast"): Promise<void> {
    const server = this.#process;
    if (server === null) return;
    this.#process = null;
    await server.stop(STOP_SIGNALS[mode]);
    this.#logs += server.output();
  }

  async restart(mode: StopMode = "fast"): Promise<void> {
    await this.stop(mode);
    await this.start();
  }

  /** Sends a signal to the postmaster, or to every process of the server (`all`). */
  signal(name: NodeJS.Signals, whom: "postmaster" | "all" = "postmaster"): void {
    // Between the look and the signal one of the children may end; the postmaster does not.
    for (const pid of whom === "all" ? childrenOf(this.pid) : []) signal(pid, name);
    process.kill(this.pid, name);
  }

  /** Crashes the server as a power cut would: every process ends by SIGKILL. `start` recovers it. */
  async crash(): Promise<void> {
    const server = this.#process;
    if (server === null) return;
    const children = childrenOf(server.pid);
    this.signal("SIGKILL", "all");
    this.#process = null;
    await server.ended();
    await until("PostgreSQL's processes to end", () => !children.some(isAlive));
    this.#logs += server.output();
  }

  /** Applies settings (postgresql.conf) and reloads. */
  async configure(settings: Readonly<Record<string, string>>): Promise<void> {
    appendFileSync(join(this.dataDir, "postgresql.conf"), settingLines(settings));
    await this.reload();
  }

  /** Replaces pg_hba.conf and reloads. */
  async setAuth(options: Pick<PostgresOptions, "auth" | "hba">): Promise<void> {
    writeFileSync(join(this.dataDir, "pg_hba.conf"), hbaLines(options));
    await this.reload();
  }

  async reload(): Promise<void> {
    const loadTime = async () =>
      (await this.query("SELECT pg_conf_load_time()::text AS at"))[0]!["at"];
    const before = await loadTime();
    await this.query("SELECT pg_reload_conf()");
    await until("PostgreSQL to reload", async () => await loadTime() !== before);
  }

  /** Runs SQL as superuser on a connection of its own, past any pooler. */
  async query(
    sql: string,
    parameters: readonly unknown[] = [],
    database = "postgres",
  ): Promise<Row[]> {
    const client = new pg.Client({
      host: this.socketDir,
      port: this.port,
      user: "postgres",
      database,
      application_name: OWN_NAME,
    });
    // A server that goes away under the query makes the query fail; the event is the same news again.
    client.on("error", () => {});
    await client.connect();
    try {
      const result = parameters.length > 0
        ? await client.query(sql, [...parameters])
        : await client.query(sql);
      return (Array.isArray(result) ? result.at(-1) : result).rows as Row[];
    } finally {
      await client.end();
    }
  }

  /** The client connections the server has now, without those of `query`. */
  async backends(): Promise<Backend[]> {
    return await this.query(
      `SELECT pid, usename, datname, application_name, state, wait_event, query FROM pg_stat_activity
       WHERE backend_type = 'client backend' AND application_name <> $1 ORDER BY backend_start, pid`,
      [OWN_NAME],
    ) as unknown as Backend[];
  }

  /** Ends the connections of a user, and waits until they have ended. */
  async endBackends(user: string): Promise<void> {
    await this.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", [
      user,
    ]);
    const isGone = async () => !(await this.backends()).some((each) => each.usename === user);
    await until(`the connections of ${user} to end`, isGone);
  }

  /** Everything the server has logged since the first start. */
  log(): string {
    return this.#logs + (this.#process?.output() ?? "");
  }
}

function settingLines(settings: Readonly<Record<string, string>>): string {
  const lines = Object.entries(settings)
    .map(([name, value]) =>
      `${name} = '${value.replaceAll("\\", "\\\\").replaceAll("'", "''")}'\n`
    );
  return lines.join("");
}

function installTls(dataDir: string, tls: NonNullable<PostgresOptions["tls"]>): void {
  const user = serverUser();
  const settings: Record<string, string> = { ssl: "on" };
  const files = { ssl_cert_file: tls.certFile, ssl_key_file: tls.keyFile, ssl_ca_file: tls.caFile };
  for (const [setting, source] of Object.entries(files)) {
    if (source === undefined) continue;
    const copy = join(dataDir, setting);
    copyFileSync(source, copy);
    chmodSync(copy, 0o600);
    if (user !== null) chownSync(copy, user.uid, user.gid);
    settings[setting] = copy;
  }
  appendFileSync(join(dataDir, "postgresql.conf"), settingLines(settings));
}

export async function startPostgres(options: PostgresOptions = {}): Promise<Postgres> {
  const version = options.version ?? (postgresFolders().has("15") ? "15" : "18");
  const user = serverUser();
  const base = tempDir("pg");
  const postgres = new Postgres(version, await freePort(), programFolder(version), base);
  execFileSync("cp", ["-a", templateCluster(version), postgres.dataDir]);
  appendFileSync(
    join(postgres.dataDir, "postgresql.conf"),
    settingLines({
      ...BASE_SETTINGS,
      port: String(postgres.port),
      unix_socket_directories: base,
      password_encryption: options.auth === "md5" ? "md5" : "scram-sha-256",
      ...options.settings,
    }),
  );
  writeFileSync(join(postgres.dataDir, "pg_hba.conf"), hbaLines(options));
  if (options.tls !== undefined) installTls(postgres.dataDir, options.tls);
  if (user !== null) chownSync(base, user.uid, user.gid);
  await postgres.start();
  if (options.superuserPassword !== undefined) {
    const literal = options.superuserPassword.replaceAll("'", "''");
    await postgres.query(`ALTER ROLE postgres PASSWORD '${literal}'`);
  }
  return postgres;
}
