// SUSPEND, as PgBouncer has it: what is under way comes to rest, nothing more is read, and RESUME goes on where all
// stopped. Who does not let it come to rest within suspend_timeout is disconnected.
// limit: 400 s
// load: waits

import { sslRequest } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { signal } from "../../support/processes.ts";
import { type Login, RawClient } from "../../support/raw_client.ts";
import { BulkClient } from "../limits/bulk_client.ts";
import { closeAll, open } from "../protocol/support.ts";
import { errorOf, farewell } from "./support.ts";

needs("postgresql");

const tests = suite("SUSPEND");

let postgres: Postgres;
let pgweir: Pgweir;

const loginAsApp = { user: "postgres", database: "app" };
const app: Login = loginAsApp;
const admin: Login = { user: "admin", database: "pgbouncer" };
const patienceMs = 30_000;

type Settings = Readonly<Record<string, string | number>>;

async function start(settings: Settings = {}, workers?: number) {
  pgweir = await startPgweir({
    ini: {
      databases: { app: `host=127.0.0.1 port=${postgres.port} dbname=postgres` },
      pgbouncer: { default_pool_size: 5, ...settings },
    },
    userlist: { postgres: "", admin: "" },
    ...(workers === undefined ? {} : { workers }),
  });
}

tests.before(async () => {
  postgres = await startPostgres();
});

tests.after.each(async () => {
  await closeAll();
  await pgweir.stop();
});

tests.after(() => postgres.stop("immediate"));

async function state(boss: RawClient): Promise<string> {
  const rows = await boss.table("SHOW STATE");
  return rows.filter(({ value }) => value === "yes").map(({ key }) => key).join();
}

async function clientsIn(boss: RawClient, wanted: string): Promise<number> {
  const rows = await boss.table("SHOW CLIENTS");
  return rows.filter((row) => row["state"] === wanted).length;
}

/** What waits for a lock that somebody else has, past the pooler, until `release`. */
const LOCKED = "SELECT pg_advisory_xact_lock(1)";

async function lock(): Promise<{ release: () => Promise<unknown> }> {
  const holder = await open(postgres, { user: "postgres", database: "postgres" });
  await holder.query("SELECT pg_advisory_lock(1)");
  return { release: () => holder.query("SELECT pg_advisory_unlock(1)") };
}

const running = async (sql: string) =>
  (await postgres.backends()).filter(({ query, state }) => state === "active" && query === sql);

/** Two consoles: one that waits, and one that watches, since nobody new is let in. */
const consoles = () => Promise.all([open(pgweir, admin), open(pgweir, admin)]);

async function suspends(boss: RawClient, watcher: RawClient) {
  boss.send(f.Q("SUSPEND"));
  await until("the suspension", async () => await state(watcher) === "suspended");
}

tests("nothing is read until RESUME, which goes on where all stopped", async () => {
  await start();
  const [idle, inside, busy, boss] = [
    await open(pgweir, app),
    await open(pgweir, app),
    await open(pgweir, app),
    await open(pgweir, admin),
  ];
  await idle.query("SELECT 1");
  await inside.query("BEGIN");
  const { release } = await lock();
  busy.send(f.Q(LOCKED));
  await until("it to run", async () => (await running(LOCKED)).length === 1);
  assert.is(await state(boss), "active");
  assert.equal(await boss.query("SUSPEND"), []);
  assert.is(await state(boss), "suspended");
  // Unlike PAUSE it waits for nothing that PostgreSQL does.
  assert.is((await running(LOCKED)).length, 1);
  idle.send(f.Q("SELECT 2"));
  inside.send(f.Q("SELECT 3"));
  const fresh = await RawClient.connect(pgweir);
  fresh.startup({ user: "postgres", database: "app" });
  await release();
  await until("the query to be over", async () => (await running(LOCKED)).length === 0);
  assert.equal(await running("SELECT 2"), []);
  assert.is(await clientsIn(boss, "active"), 2);
  assert.equal([idle, inside, busy, fresh].map(({ unread }) => unread), [0, 0, 0, 0]);
  for (const command of ["SUSPEND", "PAUSE", "PAUSE app", "KILL"]) {
    assert.is(await errorOf(boss, command), "08P01 already suspended/paused");
  }
  await boss.query("RESUME");
  assert.is(await state(boss), "active");
  for (const client of [idle, inside, busy]) {
    assert.match(await client.replies(1), /^T D C"SELECT 1" Z\([IT]\)$/);
  }
  assert.match(await fresh.replies(), /Z\(I\)$/);
  fresh.close();
  await inside.query("COMMIT");
  assert.is(await errorOf(boss, "RESUME"), "08P01 pooler is not paused/suspended");
  await boss.query("PAUSE app");
  assert.is(await errorOf(boss, "SUSPEND"), "08P01 cannot suspend with paused databases");
});

tests("who waits for a server is served first", async () => {
  await start({ default_pool_size: 1 });
  const [busy, waiter] = [await open(pgweir, app), await open(pgweir, app)];
  const [boss, watcher] = await consoles();
  const { release } = await lock();
  busy.send(f.Q(LOCKED));
  await until("it to run", async () => await clientsIn(boss, "active") === 1);
  waiter.send(f.Q("SELECT 2"));
  await until("it to wait", async () => await clientsIn(boss, "waiting") === 1);
  await suspends(boss, watcher);
  assert.is(boss.unread, 0);
  await release();
  assert.is(await boss.replies(), 'C"SUSPEND" Z(I)');
  assert.match(await busy.replies(), /^T D C"SELECT 1" Z\(I\)$/);
  // It has its server, and what that answers is read after RESUME.
  assert.is(await clientsIn(boss, "waiting"), 0);
  await until("it to run", async () => {
    return (await postgres.backends()).some(({ query }) => query === "SELECT 2");
  });
  assert.is(waiter.unread, 0);
  await boss.query("RESUME");
  assert.match(await waiter.replies(), /^T D C"SELECT 1" Z\(I\)$/);
});

/** A client that takes nothing of a long result, which PostgreSQL has begun to send. */
async function stuckReader(rows: number): Promise<BulkClient> {
  const reader = await BulkClient.login(pgweir, app);
  reader.pause();
  reader.send(f.Q(`SELECT repeat('x', 1000) FROM generate_series(1, ${rows})`));
  // In the pooler there are bytes that it does not take, and that is so for good: it was seen three times.
  let seen = 0;
  await until("it to be stuck", async () => {
    const sockets = await pgweir.console("SHOW SOCKETS");
    const isWaited = sockets.some((row) => row["type"] === "C" && Number(row["send_avail"]) > 0);
    const backends = await postgres.backends();
    const isStuck = isWaited && backends.some(({ wait_event }) => wait_event === "ClientWrite");
    seen = isStuck ? seen + 1 : 0;
    return seen === 3;
  }, patienceMs);
  return reader;
}

tests("what a client has to take yet is waited for, in the middle of a result too", async () => {
  // The kernel's buffers may grow to 33 MB, in which the larger part of the result fits.
  await start({ tcp_socket_buffer: 262144 });
  const [boss, watcher] = await consoles();
  const rows = 20_000;
  const reader = await stuckReader(rows);
  await suspends(boss, watcher);
  assert.is(boss.unread, 0);
  reader.resume();
  assert.is(await boss.replies(), 'C"SUSPEND" Z(I)');
  // What the pooler had is out; the rest is still PostgreSQL's to send.
  await until("it to wait", async () => {
    return (await postgres.backends()).some(({ wait_event }) => wait_event === "ClientWrite");
  });
  await watcher.query("RESUME");
  assert.match(
    await reader.replies(),
    new RegExp(`^T (D\\[1006\\] ){3}.* C"SELECT ${rows}" Z\\(I\\)$`),
  );
  reader.close();
});

tests("suspend_timeout: who does not take it, or stops in a message, is disconnected", async () => {
  await start({ suspend_timeout: 0.5 });
  const [boss, watcher] = await consoles();
  const reader = await stuckReader(1_000_000);
  const [half, whole] = [await open(pgweir, app), await open(pgweir, app)];
  const silent = await RawClient.connect(pgweir);
  await until("it to be accepted", async () => {
    const rows = await watcher.table("SHOW WORKER");
    return Number(rows[0]!["clients"]) === 6;
  });
  half.send(f.Q("SELECT 1").subarray(0, 8));
  await until("half of it to be there", async () => {
    const rows = await watcher.table("SHOW SOCKETS");
    return rows.some((row) => Number(row["recv_pos"]) > 0);
  });
  boss.send(f.Q("SUSPEND"));
  assert.is(await boss.replies(1, { timeoutMs: patienceMs }), 'C"SUSPEND" Z(I)');
  assert.is(await farewell(half), "FATAL 57P01 suspend_timeout");
  await until("the log to tell of both", () => {
    return (pgweir.log().match(/closing because: suspend_timeout/g)?.length ?? 0) >= 2;
  });
  whole.send(f.Q("SELECT 1"));
  await watcher.query("RESUME");
  assert.match(await whole.replies(), /^T D C"SELECT 1" Z\(I\)$/);
  // It has sent nothing that could be in the way.
  silent.startup(loginAsApp);
  assert.match(await silent.replies(), /Z\(I\)$/);
  reader.close();
});

tests("who logs in and has sent nothing that is here still is not waited for", async () => {
  // Waiting for them would take as long as suspend_timeout. What comes before and after has to be done in loginS.
  const loginS = 6;
  await start({ suspend_timeout: 120, client_login_timeout: loginS, tcp_defer_accept: 0 });
  const boss = await open(pgweir, admin);
  const mute = await Promise.all(Array.from({ length: 20 }, () => RawClient.connect(pgweir)));
  const asked = await RawClient.connect(pgweir);
  asked.send(sslRequest());
  assert.is(await asked.byte(), "N");
  await boss.query("SUSPEND");
  // What comes now is read at RESUME, and who ends is gone then.
  for (const client of mute.slice(5)) client.close();
  asked.startup(loginAsApp);
  await asked.readNothingFor(1_000 * loginS + 500);
  await boss.query("RESUME");
  assert.match(await asked.replies(), /Z\(I\)$/);
  mute[0]!.startup(loginAsApp);
  assert.match(await mute[0]!.replies(), /Z\(I\)$/);
  assert.not.match(pgweir.log(), /suspend_timeout/);
  // Their time goes on where it stopped.
  assert.is(await mute[1]!.repliesUntilClosed(), "E(08006) closed");
  for (const client of [asked, ...mute.slice(0, 5)]) client.close();
});

tests("a console that leaves, or cancels, takes its SUSPEND back", async () => {
  await start();
  const half = await open(pgweir, app);
  half.send(f.Q("SELECT 1").subarray(0, 8));
  const [boss, watcher] = await consoles();
  await suspends(boss, watcher);
  boss.close();
  await until("its end", async () => await state(watcher) === "active");
  const other = await open(pgweir, admin);
  await suspends(other, watcher);
  await watcher.query("RESUME");
  assert.is(await other.replies(), "E(57014) Z(I)");
  half.send(f.Q("SELECT 1").subarray(8));
  assert.match(await half.replies(), /^T D C"SELECT 1" Z\(I\)$/);
});

tests("the time of a suspension counts for nobody", async () => {
  // Enough for what comes before the suspension and after it.
  const limitMs = 5000;
  const limit = limitMs / 1000;
  await start({
    client_idle_timeout: limit,
    query_timeout: limit,
    idle_transaction_timeout: limit,
  });
  const [boss] = await consoles();
  const [idle, inside, busy] = [
    await open(pgweir, app),
    await open(pgweir, app),
    await open(pgweir, app),
  ];
  await inside.query("BEGIN");
  const sleep = "SELECT pg_sleep(0.2)";
  busy.send(f.Q(sleep));
  await boss.query("SUSPEND");
  const since = performance.now();
  for (const client of [idle, inside]) client.send(f.Q("SELECT 1"));
  await until("the limits to pass", () => performance.now() - since > 1.2 * limitMs);
  await boss.query("RESUME");
  for (const client of [idle, inside, busy]) {
    assert.match(await client.replies(), /^T D C"SELECT 1" Z\([IT]\)$/);
  }
});

tests(
  "a fleet is suspended as a whole, with a worker that starts meanwhile; SIGUSR2 goes on",
  async () => {
    await start({}, 2);
    const boss = await open(pgweir, admin);
    const clients = await Promise.all([1, 2, 3, 4, 5, 6].map(() => open(pgweir, app)));
    await boss.query("SUSPEND");
    for (const client of clients) client.send(f.Q("SELECT 1"));
    const ready = () => pgweir.log().match(/worker \d+ is ready/g)?.length ?? 0;
    const before = ready();
    const row = (await boss.table("SHOW WORKER"))[0]!;
    // Not the one of the console.
    const victim = pgweir.workerPids().find((pid) => String(pid) !== row["pid"])!;
    signal(victim, "SIGKILL");
    await until("another worker", () => ready() > before, patienceMs);
    const fresh = await Promise.all([1, 2, 3, 4, 5, 6].map(async () => {
      const client = await RawClient.connect(pgweir);
      client.startup({ user: "postgres", database: "app" });
      return client;
    }));
    assert.is(await state(boss), "suspended");
    assert.is(await clientsIn(boss, "active"), 0);
    assert.equal([...clients, ...fresh].map(({ unread }) => unread), new Array(12).fill(0));
    pgweir.signal("SIGUSR2");
    for (const client of fresh) {
      assert.match(await client.replies(), /Z\(I\)$/);
      client.close();
    }
    // Those of the worker that was killed are gone.
    for (const client of clients) {
      assert.match(await client.replies(), /^(T D C"SELECT 1" Z\(I\)|closed)$/);
    }
    await until("the end", async () => await state(boss) === "active");
  },
);

tests("a shutdown ends a suspension: clients are let finish", async () => {
  await start();
  const inside = await open(pgweir, app);
  const boss = await open(pgweir, admin);
  await inside.query("BEGIN");
  await boss.query("SUSPEND");
  inside.send(f.Q("COMMIT"));
  await boss.query("SHUTDOWN WAIT_FOR_SERVERS");
  assert.match(await inside.repliesUntilClosed(), /^C"COMMIT" Z\(I\)/);
  assert.equal(await until("its end", () => pgweir.end), { code: 0, signal: null });
});

tests.run();
