// min_pool_size: servers that are kept open in a pool that is in use, or whose user is the database's.
// load: waits
// limit: 240 s

import { errorResponse } from "../../../shared/wire/mod.ts";
import { startFakePostgres } from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { backendsWhere } from "../modes/support.ts";

needs("postgresql");

const postgres = await startPostgres();
await postgres.query("CREATE ROLE service LOGIN");
for (const name of ["used", "small", "standing"]) await postgres.query(`CREATE DATABASE ${name}`);
const at = `host=127.0.0.1 port=${postgres.port}`;
const user = "postgres";
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
const of = (name: string) => `datname = '${name}'`;

const tests = suite("min_pool_size");

tests.after(async () => {
  await postgres.stop("immediate");
});

tests("a pool in use keeps its minimum, and gives it up when nobody is there", async () => {
  const pooler = await startPgweir({
    ini: {
      databases: { used: `${at} min_pool_size=3`, small: `${at} min_pool_size=9 pool_size=2` },
      pgbouncer: { server_idle_timeout: 0.5 },
    },
  });
  await pause(700);
  await backendsWhere(postgres, 0, of("used"));
  const clients = await Promise.all(
    ["used", "small"].map((database) => RawClient.login(pooler, { user, database })),
  );
  await backendsWhere(postgres, 3, of("used"), 30_000);
  // Never more than the pool may have.
  await backendsWhere(postgres, 2, of("small"), 30_000);
  const pids = async () =>
    (await postgres.query(
      `SELECT pid FROM pg_stat_activity WHERE ${of("used")} ORDER BY pid`,
    )).map(({ pid }) => pid).join();
  const first = await pids();
  // Idle for longer than server_idle_timeout.
  await pause(1_800);
  assert.is(await pids(), first);
  // What is lost, or has reached its lifetime, is replaced.
  await postgres.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${of("used")}`,
  );
  const others = (than: string) =>
    until("new servers", async () => {
      const now = await pids();
      const old = than.split(",");
      const isNew = now.split(",").length === 3 &&
        now.split(",").every((pid) => !old.includes(pid));
      return isNew ? now : null;
    });
  const second = await others(first);
  // Not before: whatever took so long would have been replaced already.
  await pooler.console("SET server_lifetime = 3");
  await others(second);
  for (const client of clients) await client.end();
  await backendsWhere(postgres, 0, of("used"), 30_000);
  await backendsWhere(postgres, 0, of("small"), 30_000);
  await pooler.stop();
});

tests("a pool whose user is the database's is there before any client", async () => {
  const pooler = await startPgweir({
    ini: {
      databases: { standing: `${at} user=service min_pool_size=2` },
      pgbouncer: { server_idle_timeout: 0.5 },
    },
  });
  await backendsWhere(postgres, 2, `${of("standing")} AND usename = 'service'`, 30_000);
  await pause(1_500);
  await backendsWhere(postgres, 2, `${of("standing")} AND usename = 'service'`, 30_000);
  const client = await RawClient.login(pooler, { user, database: "standing" });
  assert.equal(await client.query("SELECT current_user"), [["service"]]);
  await client.end();
  await pooler.stop();
});

tests("the missing ones are opened all at once", async () => {
  let under = 0;
  let most = 0;
  let all = () => {};
  const allThere = new Promise<void>((resolve) => all = resolve);
  const fake = await startFakePostgres({
    onStartup: async (session) => {
      most = Math.max(most, ++under);
      if (under === 5) all();
      await allThere;
      under--;
      session.acceptLogin();
    },
  });
  const pooler = await startPgweir({
    ini: {
      databases: { db: `host=127.0.0.1 port=${fake.port} user=service min_pool_size=5` },
      pgbouncer: {},
    },
  });
  await until("five logins at once", () => most === 5, 30_000);
  await pause(500);
  assert.is(fake.sessions.length, 5);
  await pooler.stop();
  await fake.stop();
});

// A minimum that nobody waited for was asked for again and again while the server refused.
tests("a server that refuses is not asked more often than server_login_retry allows", async () => {
  let attempts = 0;
  const fake = await startFakePostgres({
    onStartup: (session) => {
      attempts++;
      session.send(errorResponse({ severity: "FATAL", code: "28000", message: "no" }));
      session.end();
    },
  });
  const pooler = await startPgweir({
    ini: {
      databases: { db: `host=127.0.0.1 port=${fake.port} user=service min_pool_size=10` },
      pgbouncer: { server_login_retry: 1 },
    },
  });
  await until("a first attempt", () => attempts > 0, 30_000);
  const began = performance.now();
  await pause(2_500);
  // Those that began together, and then one after pauses that double up to a second, and are half of that or more.
  const most = 10 + 6 + 2 * (performance.now() - began) / 1000;
  assert.ok(attempts < most, `${attempts} attempts`);
  await pooler.stop();
  await fake.stop();
});

tests.run();
