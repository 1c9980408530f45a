// Users who may not log in any more: found by PgBouncer's own auth_query or in the auth_file, whichever worker is
// asked, with servers of theirs at hand, and by a pooler that has just been started.

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";

needs("postgresql");

const WORKERS = 2;
const postgres = await startPostgres({ auth: "scram-sha-256" });
const sql = (text: string) => postgres.query(text);
await sql("CREATE ROLE asker SUPERUSER LOGIN PASSWORD 'asks'");
await sql("CREATE DATABASE shop");
await sql("REVOKE CONNECT ON DATABASE shop FROM PUBLIC");
const ini = {
  databases: { shop: `host=127.0.0.1 port=${postgres.port}` },
  pgbouncer: { auth_type: "scram-sha-256", auth_user: "asker", server_login_retry: 0.2 },
};
const userlist = { asker: "asks", admin: "right", filed: "right" };
const fleet = await startPgweir({ ini, userlist, workers: WORKERS });

const tests = suite("users who may not log in any more");

tests.after(async () => {
  await fleet.stop();
  await postgres.stop("immediate");
});

/** `in`, or the SQLSTATE. */
async function attempt(client: RawClient, user: string): Promise<string> {
  try {
    await client.login({ user, database: "shop", password: "right" });
    assert.equal(await client.query("SELECT session_user"), [[user]]);
    return "in";
  } catch (error) {
    if (error instanceof ServerError) return error.code;
    throw error;
  }
}

async function outcome(pooler: Pgweir, user: string): Promise<string> {
  const client = await RawClient.connect(pooler);
  try {
    return await attempt(client, user);
  } finally {
    client.close();
  }
}

/** The worker that the client at a port came to, by the log. */
function workerOf(port: number): Promise<string> {
  const line = new RegExp(
    `\\[(\\d+)\\] LOG C-.*@127\\.0\\.0\\.1:${port} login attempt`,
  );
  return until("the log", () => line.exec(fleet.log())?.[1]);
}

/** A login with each worker, all of which must end alike; `meanwhile`: how some may end before. */
async function everywhere(user: string, expected: string, meanwhile = ""): Promise<RawClient[]> {
  const clients = new Map<string, RawClient>();
  while (clients.size < WORKERS) {
    const client = await RawClient.connect(fleet);
    const { localPort } = client;
    const ended = await attempt(client, user);
    if (ended === meanwhile) continue;
    assert.is(ended, expected);
    const worker = await workerOf(localPort);
    if (clients.has(worker)) client.close();
    else clients.set(worker, client);
  }
  return [...clients.values()];
}

async function are(user: string, expected: string, meanwhile = ""): Promise<void> {
  for (const client of await everywhere(user, expected, meanwhile)) client.close();
}

/** Has all servers of the fleet connect anew. */
async function reconnect(): Promise<void> {
  const login = { user: "admin", database: "pgbouncer", password: "right" };
  const admin = await RawClient.login(fleet, login);
  await admin.query("RECONNECT shop");
  await admin.end();
}

const make = async (user: string) => {
  await sql(`CREATE ROLE ${user} LOGIN PASSWORD 'right'`);
  await sql(`GRANT CONNECT ON DATABASE shop TO ${user}`);
};
const drop = async (user: string) => {
  await sql(`REVOKE CONNECT ON DATABASE shop FROM ${user}`);
  await sql(`DROP ROLE ${user}`);
};

// CVE-2025-2291: the query read the password and not its time, and servers that were there let anybody on.
tests("who auth_query finds is refused by each worker from the next login on", async () => {
  await make("u");
  const warm = await everywhere("u", "in");
  await sql("ALTER ROLE u VALID UNTIL '2020-01-01'");
  await are("u", "28P01");
  await sql("ALTER ROLE u VALID UNTIL 'infinity'");
  await are("u", "in");
  await sql("DO $$ BEGIN EXECUTE format('ALTER ROLE u VALID UNTIL %L', now() + '3 s'); END $$");
  await until("the password to expire", async () => {
    if (await outcome(fleet, "u") === "in") return false;
    const is = "SELECT rolvaliduntil <= now() AS over FROM pg_roles WHERE rolname = 'u'";
    assert.equal(await sql(is), [{ over: true }]);
    return true;
  });
  await are("u", "28P01");
  await sql("ALTER ROLE u VALID UNTIL 'infinity' NOLOGIN");
  await are("u", "28P01");
  await sql("ALTER ROLE u LOGIN PASSWORD NULL");
  await are("u", "28P01");
  await sql("ALTER ROLE u PASSWORD 'right'");
  await are("u", "in");
  await drop("u");
  await are("u", "28P01");
  // Who is in stays, as with PostgreSQL.
  for (const client of warm) {
    assert.equal(await client.query("SELECT 'still here'"), [["still here"]]);
    await client.end();
  }
});

// Only PostgreSQL knows who may connect to a database, and says so to servers.
tests("who may not connect to the database is refused when a server is needed", async () => {
  await make("lost");
  await are("lost", "in");
  await sql("REVOKE CONNECT ON DATABASE shop FROM lost");
  await are("lost", "in");
  await reconnect();
  await are("lost", "42501");
  await sql("GRANT CONNECT ON DATABASE shop TO lost");
  await are("lost", "in", "42501");
});

tests("a password of the auth_file is good until a server is needed", async () => {
  await make("filed");
  await are("filed", "in");
  for (
    const [change, expected, back] of [
      ["VALID UNTIL '2020-01-01'", "28P01", "VALID UNTIL 'infinity'"],
      ["NOLOGIN", "28000", "LOGIN"],
      ["PASSWORD NULL", "28P01", "PASSWORD 'right'"],
    ] as const
  ) {
    await sql(`ALTER ROLE filed ${change}`);
    await are("filed", "in");
    await reconnect();
    await are("filed", expected);
    await sql(`ALTER ROLE filed ${back}`);
    // An error is remembered for as long as server_login_retry says.
    await are("filed", "in", expected);
  }
  await drop("filed");
  await reconnect();
  await are("filed", "28P01");
});

tests("a pooler that was just started knows no better", async () => {
  const fresh = await startPgweir({ ini, userlist });
  await make("filed");
  await sql("ALTER ROLE filed VALID UNTIL '2020-01-01'");
  await make("timed");
  assert.is(await outcome(fresh, "timed"), "in");
  await sql("ALTER ROLE timed VALID UNTIL '2020-01-01'");
  await sql("CREATE ROLE outside LOGIN PASSWORD 'right'");
  for (
    const [user, expected] of [
      ["timed", "28P01"],
      ["filed", "28P01"],
      ["outside", "42501"],
    ] as const
  ) {
    assert.is(await outcome(fresh, user), expected, user);
  }
  await fresh.stop();
});

tests.run();
