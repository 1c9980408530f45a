// What the tests of shared limits have in common: a supervised host in front of a PostgreSQL that itself refuses
// one connection too many, an eye on its backends, clients that never stop, and clients of a chosen worker.
// It judges nothing but the values that clients read back; what must hold is in the tests.

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import pg from "pg";
import { runtimeCommand } from "../../../shared/sys/mod.ts";
import { cancelKeyWorker } from "../../../shared/wire/mod.ts";
import { assert, until } from "../../support/harness.ts";
import { ManagedProcess } from "../../support/managed_process.ts";
import type { NatsServer } from "../../support/nats.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { type Login, RawClient, ServerError, type Target } from "../../support/raw_client.ts";

export type Settings = Readonly<Record<string, string | number>>;

/** For whatever a test waits for: it must come, and when is not what is tested. */
export const patienceMs = 60_000;

export const login: Login = { user: "app", database: "app" };

export const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, ms));

/** A measured figure, for whoever reads the output. */
export function note(text: string): void {
  console.log(`# ${text}`);
}

// --- PostgreSQL

/**
 * A PostgreSQL with users that it allows so many connections each. It counts exactly where a sample may miss
 * something: a backend of one role too many is refused, and that is in its log.
 */
export async function startLimitedPostgres(
  limits: Readonly<Record<string, number>>,
): Promise<Postgres> {
  const postgres = await startPostgres({ settings: { max_connections: "60" } });
  for (const [user, limit] of Object.entries(limits)) {
    await postgres.query(`CREATE ROLE ${user} LOGIN CONNECTION LIMIT ${limit}`);
  }
  return postgres;
}

/** Whether PostgreSQL ever had to refuse a connection for the limit of its role or its own. */
export function assertNeverRefused(postgres: Postgres): void {
  const refusals = postgres.log().split("\n").filter((line) =>
    /too many connections|too many clients|slots are reserved/.test(line)
  );
  assert.equal(refusals, []);
}

export interface Seen {
  readonly pid: number;
  readonly usename: string;
  readonly datname: string;
  readonly state: string | null;
  readonly query: string;
  /** Since its state changed. */
  readonly restsMs: number;
}

/** Looks at the backends of PostgreSQL itself all the time, on one connection past any pooler. */
export class BackendWatch {
  /** Looks so far. */
  samples = 0;
  /** The most backends ever seen at once. */
  most = 0;
  now: readonly Seen[] = [];
  /** Called at each look. */
  onSample: ((seen: readonly Seen[]) => void) | null = null;
  readonly #client: pg.Client;
  #stopped = false;
  #loop: Promise<void> = Promise.resolve();

  private constructor(client: pg.Client) {
    this.#client = client;
  }

  static async start(postgres: Postgres, everyMs = 20): Promise<BackendWatch> {
    const client = new pg.Client({
      host: postgres.socketDir,
      port: postgres.port,
      user: "postgres",
    });
    client.on("error", () => {});
    await client.connect();
    const watch = new BackendWatch(client);
    await watch.#look();
    watch.#loop = watch.#run(everyMs);
    return watch;
  }

  get active(): number {
    return this.now.filter(({ state }) => state === "active").length;
  }

  count(is: (seen: Seen) => boolean): number {
    return this.now.filter(is).length;
  }

  /** Forgets what was seen, so that figures are those of one test. */
  reset(): void {
    this.samples = 0;
    this.most = 0;
  }

  /** Waits for a look that began after this call. */
  async fresh(): Promise<readonly Seen[]> {
    const wanted = this.samples + 2;
    await until("a look at the backends", () => this.samples >= wanted, patienceMs);
    return this.now;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#loop;
    await this.#client.end();
  }

  async #run(everyMs: number): Promise<void> {
    while (!this.#stopped) {
      const began = performance.now();
      await this.#look();
      await pause(Math.max(0, everyMs - (performance.now() - began)));
    }
  }

  async #look(): Promise<void> {
    const { rows } = await this.#client.query(
      `SELECT pid, usename, datname, state, query,
              extract(epoch FROM clock_timestamp() - state_change)::float8 * 1000 AS "restsMs"
       FROM pg_stat_activity
       WHERE backend_type = 'client backend' AND usename <> 'postgres' ORDER BY pid`,
    );
    this.now = rows as Seen[];
    this.samples++;
    this.most = Math.max(this.most, rows.length);
    this.onSample?.(this.now);
  }
}

// --- the host

export interface HostOptions {
  readonly postgres: { readonly port: number };
  readonly workers?: number;
  /** Default: the embedded bus. */
  readonly nats?: NatsServer | null;
  readonly databases?: Readonly<Record<string, string>>;
  readonly users?: readonly string[];
  readonly pgbouncer?: Settings;
  readonly pgweir?: Settings;
}

export async function startHost(options: HostOptions): Promise<Pgweir> {
  const { nats = null, postgres } = options;
  const users = options.users ?? ["app"];
  const bus: Settings = nats === null
    ? {}
    : { bus_url: `nats://${nats.token}@${nats.host}:${nats.port}` };
  return await startPgweir({
    ini: {
      databases: options.databases ??
        { app: `host=127.0.0.1 port=${postgres.port} dbname=postgres` },
      pgbouncer: { max_client_conn: 1000, ...options.pgbouncer },
      pgweir: { budget_mode: "leased", ...bus, ...options.pgweir },
    },
    userlist: Object.fromEntries(["admin", ...users].map((user) => [user, ""])),
    workers: options.workers ?? 4,
    readyTimeoutMs: 60_000,
  });
}

/** The id of the worker a client is connected to, which its cancel key tells. */
export function ownerOf(client: RawClient): number {
  return cancelKeyWorker(client.key!.processId, client.key!.secret);
}

/** The worker id that a worker's process was started with. */
export function workerIdOf(pid: number): number {
  const variables = readFileSync(`/proc/${pid}/environ`, "utf8").split("\0");
  const seat = variables.find((variable) => variable.startsWith("PGWEIR_FLEET="))!;
  return JSON.parse(seat.slice(seat.indexOf("=") + 1)).workerId;
}

/** The only coordinator that the supervisor runs. */
export async function coordinatorOf(host: Pgweir): Promise<number> {
  return await until("a coordinator", () => host.servicePids("budget")[0], patienceMs);
}

/** A coordinator beside the one of the supervisor, as an operator starts it. */
export async function startCoordinator(iniFile: string): Promise<ManagedProcess> {
  const cli = join(resolve(import.meta.dirname!, "../../.."), "services/cli.ts");
  return await ManagedProcess.launch({ command: [...runtimeCommand(), cli, "budget", iniFile] });
}

/** Waits until every worker has heard from a coordinator since this call. */
export async function inContact(host: Pgweir, workers: number): Promise<void> {
  const since = performance.now();
  const heard = new Map<number, boolean>();
  await until("every worker to be in contact", async () => {
    const client = await RawClient.login(host, { user: "admin", database: "pgbouncer" });
    const leases = await client.table("SHOW LEASES");
    const isNew = leases.some(({ contact_ms: ms }) =>
      ms !== null && Number(ms) < performance.now() - since
    );
    heard.set(Number((await client.table("SHOW WORKER"))[0]!["worker_id"]), isNew);
    await client.end();
    return heard.size === workers && [...heard.values()].every((is) => is);
  }, patienceMs);
}

/** Logs in until every worker has `each` of the clients, by worker; the kernel chooses where one lands. */
export async function clientsOf(
  host: Pgweir,
  workers: number,
  each: number,
  who: Login = login,
): Promise<Map<number, RawClient[]>> {
  const found = new Map<number, RawClient[]>();
  const surplus: RawClient[] = [];
  await until(
    `${each} clients on each of ${workers} workers`,
    async () => {
      const client = await RawClient.login(host, who);
      const list = found.get(ownerOf(client)) ?? [];
      found.set(ownerOf(client), list);
      (list.length < each ? list : surplus).push(client);
      return found.size === workers && [...found.values()].every((some) => some.length === each);
    },
    60_000,
    0,
  );
  await Promise.all(surplus.map((client) => client.end()));
  return found;
}

/** Runs the same query on clients at once, each until all are done; their first column. */
export async function all(clients: readonly RawClient[], sql: string): Promise<(string | null)[]> {
  const results = await Promise.all(clients.map((client) => client.query(sql, 60_000)));
  return results.map((rows) => rows[0]![0]!);
}

/**
 * Has each of some clients run a query until `end` is called: as long as a test needs it to, whatever PostgreSQL's
 * backends do not notice meanwhile. No other queries are on the lock.
 */
export async function runUntilTold(
  postgres: Postgres,
  clients: readonly RawClient[],
  sql: string,
  database = "postgres",
): Promise<{ end(): void }> {
  const holder = await RawClient.login(postgres, { user: "postgres", database });
  await holder.query("SELECT pg_advisory_lock(4711)");
  for (const client of clients) client.send(f.Q(`${sql} pg_advisory_xact_lock_shared(4711)`));
  return { end: () => holder.close() };
}

// --- clients that never stop

/** Runs a query on each of some clients again and again until it is stopped. */
export class Work {
  readonly beganAt: number = performance.now();
  readonly #loops: Promise<void>[];
  #stopped = false;

  constructor(clients: readonly RawClient[], sql = "SELECT pg_sleep(0.02)") {
    this.#loops = clients.map(async (client) => {
      while (!this.#stopped) await client.query(sql, 2 * patienceMs);
    });
    // It is awaited when it is stopped, which may be later than an error.
    for (const loop of this.#loops) loop.catch(() => {});
  }

  /** Milliseconds since it began. */
  get ms(): number {
    return Math.round(performance.now() - this.beganAt);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#loops);
  }
}

export interface LoadOptions {
  readonly clients: number;
  readonly login?: Login;
  /** How long each transaction keeps its server busy. */
  readonly sleepMs?: number;
}

/**
 * Clients that run short transactions one after another, check what comes back, and connect again when the
 * worker they were on was killed. Any other loss or error is kept in `errors`.
 */
export class Load {
  transactions = 0;
  reconnects = 0;
  readonly errors: string[] = [];
  /** Transactions by worker. */
  readonly byWorker: Map<number, number> = new Map();
  readonly #target: Target;
  readonly #login: Login;
  readonly #sql: (value: string) => string;
  readonly #dead = new Set<number>();
  readonly #clients: Promise<void>[] = [];
  #stopped = false;

  constructor(target: Target, options: LoadOptions) {
    this.#target = target;
    this.#login = options.login ?? login;
    const sleepS = (options.sleepMs ?? 10) / 1000;
    this.#sql = (value) => `SELECT '${value}', pg_sleep(${sleepS})`;
    for (let i = 0; i < options.clients; i++) this.#clients.push(this.#run(i));
  }

  /** The worker with this id is about to be killed: its clients lose their connections. */
  loses(worker: number): void {
    this.#dead.add(worker);
  }

  /** Waits until so many more transactions are done. */
  async more(transactions: number): Promise<void> {
    const wanted = this.transactions + transactions;
    await until(`${transactions} transactions`, () => this.transactions >= wanted, patienceMs, 10);
  }

  /** Waits until so many workers have done so many each. */
  async everywhere(workers: number, transactions: number): Promise<void> {
    const done = () => [...this.byWorker.values()].filter((count) => count >= transactions).length;
    await until(`transactions on ${workers} workers`, () => done() >= workers, patienceMs, 10);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#clients);
  }

  async #run(index: number): Promise<void> {
    let client: RawClient | null = null;
    for (let n = 0; !this.#stopped; n++) {
      try {
        client ??= await RawClient.login(this.#target, this.#login);
        const value = `${index}/${n}`;
        const rows = await client.query(this.#sql(value), 2 * patienceMs);
        if (rows[0]?.[0] !== value) this.errors.push(`read ${rows[0]?.[0]}, wanted ${value}`);
        this.transactions++;
        const owner = ownerOf(client);
        this.byWorker.set(owner, (this.byWorker.get(owner) ?? 0) + 1);
      } catch (error) {
        // A connection that breaks during its login belongs to nobody knows which worker.
        const lost = client === null
          ? this.#dead.size > 0 && !(error instanceof ServerError)
          : this.#dead.has(ownerOf(client));
        if (!lost) {
          const place = client === null ? "at login" : `on worker ${ownerOf(client)}`;
          this.errors.push(`${place}: ${(error as Error).message}`);
        }
        client?.close();
        client = null;
        this.reconnects++;
        await pause(20);
      }
    }
    await client?.end();
  }
}
