// The reserve of a pool, in one worker: who may have of it and when, what limits it, and how it is given back.
// What a fleet has of it together is in test/system/budget.
// load: waits

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { backendOf, backendsWhere, waiting } from "../modes/support.ts";

needs("postgresql");

const postgres = await startPostgres();
const roles = ["plain", "rich", "poor"];
for (const role of roles) await postgres.query(`CREATE ROLE ${role} LOGIN`);
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
const patient = { timeoutMs: 30_000 };
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
const RESULT = 'T D C"SELECT 1" Z(I)';

const tests = suite("reserve");

tests.after(async () => {
  await postgres.stop("immediate");
});

function start(
  databases: Record<string, string>,
  pgbouncer: Record<string, string | number>,
  users: Record<string, string> = {},
): Promise<Pgweir> {
  return startPgweir({
    ini: { databases, users, pgbouncer },
    userlist: { admin: "", ...Object.fromEntries(roles.map((role) => [role, ""])) },
  });
}

/** Clients with a transaction each, as many as have a server, of the pool and not of its reserve. */
async function holders(
  pooler: Pgweir,
  count: number,
  user: string,
  database = "db",
): Promise<RawClient[]> {
  const clients = await Promise.all(
    Array.from({ length: count }, () => RawClient.login(pooler, { user, database })),
  );
  // A login of a server that takes longer than reserve_pool_timeout has the reserve open another one.
  await until("the reserve to be left alone", async () => {
    const { reserve } = await leases(pooler, user);
    return Number(reserve ?? 0) === 0;
  });
  for (const client of clients) await client.query("BEGIN");
  await until("the pool to pay for all of them", async () => {
    const { pool, reserve } = await leases(pooler, user);
    return Number(pool) === count && Number(reserve ?? 0) === 0;
  });
  return clients;
}

async function leases(pooler: Pgweir, user: string): Promise<Record<string, string | null>> {
  const rows = await pooler.console("SHOW LEASES");
  const own = rows.filter((row) => row["user"] === user);
  return Object.fromEntries(own.map(({ kind, held }) => [kind, held!]));
}

const idle = (user: string) => `usename = '${user}'`;

tests("the reserve is for clients that have waited, and no more than its size", async () => {
  const pooler = await start({ db: `${at} pool_size=2 reserve_pool_size=1` }, {
    reserve_pool_timeout: 1,
  });
  const held = await holders(pooler, 2, "plain");
  const [late, later] = await Promise.all(
    [1, 2].map(() => RawClient.login(pooler, { user: "plain", database: "db" })),
  ) as [RawClient, RawClient];
  const began = performance.now();
  late.send(f.Q("BEGIN"));
  assert.is(await late.replies(1, patient), 'C"BEGIN" Z(T)');
  const took = performance.now() - began;
  assert.ok(took >= 990, `${took} ms`);
  await backendsWhere(postgres, 3, idle("plain"));
  const taken = / WARNING C-0x[0-9a-f]+: db\/plain@\S+ taking connection from reserve_pool$/m;
  await until("the log to say so", () => taken.test(pooler.log()));
  assert.equal(await leases(pooler, "plain"), { pool: "2", reserve: "1" });
  // There is no more of it.
  later.send(f.Q("SELECT 1"));
  await pause(1_500);
  await waiting(pooler, 1, "db", "plain");
  await backendsWhere(postgres, 3, idle("plain"));
  // Whoever waits longest gets what comes free, from whichever.
  await held[0]!.query("COMMIT");
  assert.is(await later.replies(1, patient), RESULT);
  for (const client of [...held, late, later]) client.close();
  // And it is given back when nobody needs it.
  await until("the reserve to be given back", async () => {
    const { reserve } = await leases(pooler, "plain");
    return reserve === "0";
  });
  await backendsWhere(postgres, 2, idle("plain"));
  await pooler.stop();
});

// A connection of the reserve stayed one for good, and the reserve was used up when it was needed.
tests("a slot of the pool that comes free takes a server over from the reserve", async () => {
  const pooler = await start({ db: `${at} pool_size=1` }, {
    reserve_pool_size: 1,
    reserve_pool_timeout: 0.3,
  });
  const [held] = await holders(pooler, 1, "plain") as [RawClient];
  const late = await RawClient.login(pooler, { user: "plain", database: "db" });
  await late.query("BEGIN");
  const backend = await backendOf(late);
  assert.equal(await leases(pooler, "plain"), { pool: "1", reserve: "1" });
  await postgres.query(`SELECT pg_terminate_backend(${await backendOf(held)})`);
  await until("it to be the pool's", async () => {
    const { pool, reserve } = await leases(pooler, "plain");
    return pool === "1" && reserve === "0";
  });
  assert.is(await backendOf(late), backend);
  // The reserve is there for the next one that waits, and what moved is counted once when it ends.
  const next = await RawClient.login(pooler, { user: "plain", database: "db" });
  assert.is((await next.query("SELECT 1")).length, 1);
  await late.query("COMMIT");
  await postgres.query(`SELECT pg_terminate_backend(${backend})`);
  await until("nothing to be held", async () => {
    const { pool, reserve } = await leases(pooler, "plain");
    return Number(pool) + Number(reserve) <= 1;
  });
  for (const client of [held, late, next]) client.close();
  await pooler.stop();
});

tests("users and databases have reserves of their own, in the limits of all", async () => {
  const pooler = await start(
    {
      db: `${at} pool_size=1 reserve_pool=2`,
      capped: `${at} pool_size=1 reserve_pool_size=5 max_db_connections=2`,
      never: `${at} pool_size=1 reserve_pool_size=0`,
    },
    { reserve_pool_size: 4, reserve_pool_timeout: 0.3 },
    { rich: "reserve_pool_size=3", poor: "reserve_pool_size=0" },
  );
  const rows: readonly [user: string, database: string, servers: number][] = [
    ["plain", "db", 3],
    ["rich", "db", 4],
    ["poor", "db", 1],
  ];
  for (const [user, database, servers] of rows) {
    const clients = await Promise.all(
      Array.from({ length: 6 }, () => RawClient.login(pooler, { user, database })),
    );
    for (const client of clients) client.send(f.Q("BEGIN"));
    await backendsWhere(postgres, servers, idle(user));
    await pause(800);
    await backendsWhere(postgres, servers, idle(user));
    for (const client of clients) client.close();
  }
  for (const [database, servers] of [["capped", 2], ["never", 1]] as const) {
    await backendsWhere(postgres, 0, "state <> 'idle'");
    const before = (await postgres.backends()).filter(({ usename }) => usename === "plain").length;
    const clients = await Promise.all(
      Array.from({ length: 6 }, () => RawClient.login(pooler, { user: "plain", database })),
    );
    for (const client of clients) client.send(f.Q("BEGIN"));
    await backendsWhere(postgres, servers, `${idle("plain")} AND state = 'idle in transaction'`);
    await pause(800);
    await backendsWhere(postgres, servers, `${idle("plain")} AND state = 'idle in transaction'`);
    assert.ok(before >= 1);
    for (const client of clients) client.close();
  }
  await pooler.stop();
});

tests("with reserve_pool_timeout = 0 there is no reserve", async () => {
  const pooler = await start({ db: `${at} pool_size=1` }, {
    reserve_pool_size: 3,
    reserve_pool_timeout: 0,
  });
  const held = await holders(pooler, 1, "plain");
  const late = await RawClient.login(pooler, { user: "plain", database: "db" });
  late.send(f.Q("SELECT 1"));
  await pause(1_000);
  assert.is(late.unread, 0);
  await held[0]!.query("COMMIT");
  assert.is(await late.replies(1, patient), RESULT);
  for (const client of [...held, late]) client.close();
  await pooler.stop();
});

tests.run();
