// Pools and databases that nobody uses any more are forgotten: pool_idle_timeout, autodb_idle_timeout. What is in
// use stays, and what was counted is not lost.
// load: waits

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";

needs("postgresql");

const postgres = await startPostgres();
await postgres.query("CREATE ROLE other LOGIN");
const names = Array.from({ length: 12 }, (_, i) => `made_${i}`);
const at = `host=127.0.0.1 port=${postgres.port}`;
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

const tests = suite("unused pools");

tests.after(async () => {
  await postgres.stop("immediate");
});

function start(
  databases: Record<string, string>,
  pgbouncer: Record<string, string | number>,
): Promise<Pgweir> {
  return startPgweir({
    ini: { databases, pgbouncer },
    userlist: { postgres: "", other: "", admin: "" },
  });
}

async function use(
  pooler: Pgweir,
  user: string,
  database: string,
  sql = "SELECT 1",
): Promise<void> {
  const client = await RawClient.login(pooler, { user, database });
  await client.query(sql);
  await client.end();
}

/** `database/user` of the pools that there are. */
async function pools(pooler: Pgweir): Promise<string[]> {
  const rows = await pooler.console("SHOW POOLS");
  return rows.map(({ database, user }) => `${database}/${user}`)
    .filter((name) => name !== "pgbouncer/pgbouncer").sort();
}

async function queriesOf(pooler: Pgweir, database: string): Promise<number | null> {
  const row = (await pooler.console("SHOW STATS")).find((each) => each["database"] === database);
  return row === undefined ? null : Number(row["total_query_count"]);
}

tests("a pool that no client uses is forgotten, with its connections", async () => {
  const db = `${at} dbname=postgres`;
  const pooler = await start({ db, kept: `${db} user=other min_pool_size=1` }, {
    pool_idle_timeout: 0.6,
  });
  const stays = await RawClient.login(pooler, { user: "postgres", database: "db" });
  await stays.query("SELECT 1");
  for (let round = 1; round <= 3; round++) {
    await use(pooler, "other", "db");
    await until("its end", async () => !(await pools(pooler)).includes("db/other"));
    await until("its backend to go", async () => {
      const rows = await postgres.query(
        "SELECT 1 FROM pg_stat_activity WHERE usename = 'other'",
      );
      return rows.length === 1;
    });
    // The sum of a database goes up only.
    assert.is(await queriesOf(pooler, "db"), round + 1);
  }
  // One with a client that does nothing, and one that is kept up without any, are in use.
  await pause(1_500);
  assert.equal(await pools(pooler), ["db/postgres", "kept/other"]);
  await stays.query("SELECT 1");
  await stays.end();
  await pooler.stop();
});

// Whoever was let in could make pools for any number of databases, and they were kept for good.
tests("databases of the * entry are forgotten, those of the file are not", async () => {
  const pooler = await start(
    { named: `${at} dbname=postgres`, "*": `${at} dbname=postgres` },
    { max_db_client_connections: 5, server_idle_timeout: 1 },
  );
  await use(pooler, "postgres", "named");
  const open = await RawClient.login(pooler, { user: "postgres", database: "made_0" });
  await open.query("BEGIN");
  for (const name of names) await use(pooler, "postgres", name, "LISTEN news");
  assert.is((await pools(pooler)).length, names.length + 1);
  await pooler.console("SET autodb_idle_timeout = 1.5");
  const left = ["made_0/postgres", "named/postgres"];
  await until("the others to be forgotten", async () => {
    return (await pools(pooler)).join() === left.join();
  });
  await pooler.console("SET autodb_idle_timeout = 3600");
  const databases = (await pooler.console("SHOW DATABASES")).map(({ name }) => name).sort();
  assert.equal(databases, ["made_0", "named", "pgbouncer"]);
  assert.is(await queriesOf(pooler, "made_1"), null);
  assert.is(await queriesOf(pooler, "named"), 1);
  await until("the others' listeners to go", async () => {
    const listeners = await pooler.console("SHOW LISTENERS");
    return listeners.map(({ database }) => database).join() === "made_0";
  });
  // The one that is in use still is.
  assert.equal(await open.query("SELECT 7"), [["7"]]);
  await open.query("COMMIT");
  await open.end();
  // And they can be had again.
  await use(pooler, "postgres", "made_5");
  assert.is(await queriesOf(pooler, "made_5"), 1);
  await pooler.stop();
});

tests.run();
