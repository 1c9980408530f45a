// What the tests of pool modes share: which backend a client is on, what that backend was asked to run in
// PostgreSQL's own words, what a session has left on it, and who holds what. Not a test.

import { until } from "../../support/harness.ts";
import type { ConsoleRow, Pooler } from "../../support/pooler.ts";
import type { Postgres, PostgresOptions } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";

/** Has PostgreSQL write down every statement, for `statementsDuring`. */
export const logsStatements: PostgresOptions = { settings: { log_statement: "all" } };

/** The process id of the backend that serves a client just now. */
export async function backendOf(client: RawClient): Promise<number> {
  return Number((await client.query("SELECT pg_catalog.pg_backend_pid()"))[0]![0]);
}

let marks = 0;

/** Where PostgreSQL's log ends, with all that was logged before. */
async function logEnd(postgres: Postgres): Promise<number> {
  const mark = `log mark ${++marks} of ${process.pid}`;
  await postgres.query(`SELECT '${mark}'`);
  return await until("PostgreSQL's log", () => {
    const at = postgres.log().indexOf(mark);
    return at < 0 ? 0 : at + mark.length;
  });
}

/** What one backend was asked to run while `work` ran, a line each, as PostgreSQL logged it. */
export async function statementsDuring(
  postgres: Postgres,
  backend: number,
  work: () => Promise<unknown>,
): Promise<string[]> {
  const start = await logEnd(postgres);
  await work();
  const end = await logEnd(postgres);
  return postgres.log().slice(start, end).split("\n").flatMap((line) => {
    const found = /\[(\d+)\] \S+ LOG: {2}(?:statement|execute [^:]+): (.*)$/.exec(line);
    return found !== null && Number(found[1]) === backend ? [found[2]!] : [];
  });
}

/** What a session can leave behind on its backend, one thing a column; all null or zero when there is nothing. */
const residue = `SELECT
  (SELECT string_agg(relname, ',') FROM pg_catalog.pg_class
    WHERE relpersistence = 't' AND pg_catalog.pg_table_is_visible(oid)) AS tables,
  (SELECT count(*) FROM pg_catalog.pg_prepared_statements WHERE from_sql) AS statements,
  (SELECT count(*) FROM pg_catalog.pg_cursors WHERE is_holdable) AS cursors,
  (SELECT count(*) FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory' AND pid = pg_catalog.pg_backend_pid()) AS locks,
  (SELECT string_agg(c, ',') FROM pg_catalog.pg_listening_channels() c) AS channels,
  pg_catalog.current_setting('statement_timeout') AS timeout,
  pg_catalog.current_setting('work_mem') AS memory,
  pg_catalog.current_setting('search_path') AS path,
  pg_catalog.current_setting('residue.mark', true) AS mark,
  current_user, session_user`;

/** What is left on the backend that serves a client, in one line. */
export async function residueOf(client: RawClient): Promise<string> {
  const [row] = await client.query(residue);
  return row!.map((value) => value ?? "").join("|");
}

/** The residue of a session that has done nothing. */
export function cleanFor(user: string): string {
  return `|0|0|0||0|4MB|"$user", public||${user}|${user}`;
}

/** Makes a session leave all of it behind. It needs the role "other". */
export const leaveEverything: readonly string[] = [
  "CREATE TEMP TABLE left_behind (i int)",
  "INSERT INTO left_behind VALUES (1)",
  "PREPARE left_behind AS SELECT 'left behind'",
  "DECLARE left_behind CURSOR WITH HOLD FOR SELECT 'left behind'",
  "SELECT pg_advisory_lock(4711)",
  "LISTEN left_behind",
  "SET statement_timeout = '59s'",
  "SELECT set_config('work_mem', '5MB', false)",
  "SET search_path = pg_catalog",
  "SET residue.mark = 'left behind'",
  "SET ROLE other",
];

/** The row of a pool in SHOW POOLS. */
export async function poolRow(
  pooler: Pooler,
  database: string,
  user = "postgres",
): Promise<ConsoleRow> {
  const rows = await pooler.console("SHOW POOLS");
  const row = rows.find((each) => each["database"] === database && each["user"] === user);
  if (row === undefined) throw new Error(`SHOW POOLS: no row of ${database}/${user}`);
  return row;
}

/** Waits until a pool counts so many clients that wait. */
export async function waiting(
  pooler: Pooler,
  wanted: number,
  database = "postgres",
  user = "postgres",
): Promise<void> {
  await until(
    `${wanted} clients of ${database} to wait`,
    async () => Number((await poolRow(pooler, database, user))["cl_waiting"]) === wanted,
  );
}

/** Waits until so many client backends are in a state that SQL describes. */
export async function backendsWhere(
  postgres: Postgres,
  wanted: number,
  where: string,
  timeoutMs?: number,
): Promise<void> {
  await until(
    `${wanted} backends where ${where}`,
    async () => {
      const rows = await postgres.query(
        `SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'
         AND pid <> pg_backend_pid() AND (${where})`,
      );
      return rows.length === wanted;
    },
    timeoutMs,
  );
}

/** A server whose client left in the middle of something is closed unless it has come clean in this time. */
const RECOVERY_MS = 1000;

/**
 * Whether the next client gets the server of one that has left, as `attempt` says. Where that took longer than the
 * pooler waits, as on a machine that stood still, another server is right and says nothing: then it is tried again.
 */
export async function isKept(attempt: () => Promise<boolean>): Promise<boolean> {
  for (let tries = 5;; tries--) {
    const began = performance.now();
    const isSame = await attempt();
    if (isSame || tries === 1 || performance.now() - began < RECOVERY_MS) return isSame;
  }
}

/** Whether nobody has an advisory lock. */
export async function noLocks(postgres: Postgres): Promise<boolean> {
  const rows = await postgres.query("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'");
  return rows.length === 0;
}

/** The ways to leave without a good-bye, and the one with. */
export const departures: readonly (readonly [string, (client: RawClient) => void])[] = [
  ["with Terminate", (client) => void client.end()],
  ["with FIN", (client) => client.halfClose()],
  ["with RST", (client) => client.reset()],
];
