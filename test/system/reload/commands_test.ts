// Commands of the console of one worker, as PgBouncer has them: each does what it says, waits for what it says, and
// clients whom it does not concern notice nothing.
// limit: 300 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { type Login, RawClient, type ServerError } from "../../support/raw_client.ts";
import { backendOf } from "../modes/support.ts";
import { closeAll, open, upTo } from "../protocol/support.ts";
import { errorOf, farewell } from "./support.ts";

needs("postgresql");

const tests = suite("commands of a worker");

let postgres: Postgres;
let pgweir: Pgweir;

const app: Login = { user: "postgres", database: "app" };
const more: Login = { user: "postgres", database: "more" };
const admin: Login = { user: "admin", database: "pgbouncer" };

type Settings = Readonly<Record<string, string | number>>;

async function start(settings: Settings = {}) {
  const entry = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
  pgweir = await startPgweir({
    ini: {
      databases: { app: entry, more: entry },
      pgbouncer: { default_pool_size: 5, stats_users: "watcher", ...settings },
    },
    userlist: { postgres: "", admin: "", watcher: "" },
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

const console = () => open(pgweir, admin);

async function state(name: string): Promise<string | null | undefined> {
  return (await pgweir.console("SHOW STATE")).find(({ key }) => key === name)?.["value"];
}

async function column(database: string, name: string): Promise<string | null | undefined> {
  const rows = await pgweir.console("SHOW DATABASES");
  return rows.find((row) => row["name"] === database)?.[name];
}

async function waiters(): Promise<number> {
  const rows = await pgweir.console("SHOW POOLS");
  return rows.reduce((sum, row) => sum + Number(row["cl_waiting"]), 0);
}

/** Waits until PostgreSQL has so many connections: of one that was closed it hears a little later. */
const backendsAre = (wanted: number) =>
  until(
    `${wanted} connections of PostgreSQL`,
    async () => (await postgres.backends()).length === wanted,
  );

tests(
  "PAUSE waits for transactions, closes all connections, and holds who comes until RESUME",
  async () => {
    await start();
    const [busy, idle, boss] = [await open(pgweir, app), await open(pgweir, app), await console()];
    await idle.query("SELECT 1");
    await busy.query("BEGIN");
    boss.send(f.Q("PAUSE"));
    await until("the pause", async () => await state("paused") === "yes");
    idle.send(f.Q("SELECT 2"));
    await until("it to wait", async () => await waiters() === 1);
    // A transaction that is open goes on.
    assert.equal(await busy.query("SELECT 3"), [["3"]]);
    assert.is(boss.unread, 0);
    await busy.query("COMMIT");
    assert.is(await boss.replies(), 'C"PAUSE" Z(I)');
    await backendsAre(0);
    busy.send(f.Q("SELECT 4"));
    await until("both to wait", async () => await waiters() === 2);
    // Who comes now gets in, and waits too.
    const fresh = await open(pgweir, app);
    fresh.send(f.Q("SELECT 5"));
    await until("a third to wait", async () => await waiters() === 3);
    assert.is(await errorOf(boss, "PAUSE"), "08P01 already suspended/paused");
    await backendsAre(0);
    assert.equal(await boss.query("RESUME"), []);
    assert.match(await idle.replies(), /^T D C"SELECT 1" Z\(I\)$/);
    assert.match(await busy.replies(), /^T D C"SELECT 1" Z\(I\)$/);
    assert.match(await fresh.replies(), /^T D C"SELECT 1" Z\(I\)$/);
    assert.is(await state("paused"), "no");
    assert.is(await errorOf(boss, "RESUME"), "08P01 pooler is not paused/suspended");
  },
);

tests("PAUSE of one database leaves the others alone", async () => {
  await start();
  const [one, other, boss] = [await open(pgweir, app), await open(pgweir, more), await console()];
  await one.query("SELECT 1");
  const backend = await backendOf(other);
  await boss.query("PAUSE app");
  assert.is(await column("app", "paused"), "1");
  assert.is(await column("more", "paused"), "0");
  assert.is(await state("paused"), "no");
  one.send(f.Q("SELECT 1"));
  await until("it to wait", async () => await waiters() === 1);
  assert.is(await backendOf(other), backend);
  assert.is(await errorOf(boss, "RESUME more"), "08P01 database more is not paused");
  assert.is(await errorOf(boss, "PAUSE nope"), "08P01 no such database: nope");
  assert.is(await errorOf(boss, "PAUSE pgbouncer"), "08P01 cannot pause admin db: pgbouncer");
  await boss.query("RESUME app");
  assert.match(await one.replies(), /^T D C"SELECT 1" Z\(I\)$/);
});

tests("a console that leaves, or cancels, takes its PAUSE back", async () => {
  await start();
  const busy = await open(pgweir, app);
  await busy.query("BEGIN");
  const boss = await console();
  boss.send(f.Q("PAUSE"));
  await until("the pause", async () => await state("paused") === "yes");
  boss.close();
  await until("its end", async () => await state("paused") === "no");
  const other = await console();
  other.send(f.Q("PAUSE"));
  await until("the pause", async () => await state("paused") === "yes");
  await other.cancel();
  assert.is(await other.replies(), "E(57014) Z(I)");
  await until("its end", async () => await state("paused") === "no");
  await busy.query("COMMIT");
  // One that is complete stays.
  await other.query("PAUSE");
  await other.end();
  assert.is(await state("paused"), "yes");
});

tests(
  "who waits for a pause to end is not to blame: query_wait_timeout begins with RESUME",
  async () => {
    // A busy machine takes its time to connect anew after RESUME.
    await start({ query_wait_timeout: 5 });
    const client = await open(pgweir, app);
    const boss = await console();
    await boss.query("PAUSE");
    client.send(f.Q("SELECT 1"));
    await until("it to wait for longer", async () => {
      const rows = await pgweir.console("SHOW POOLS");
      return rows.some((row) => Number(row["maxwait"]) >= 6);
    });
    await boss.query("RESUME");
    assert.match(await client.replies(), /^T D C"SELECT 1" Z\(I\)$/);
  },
);

tests("a session holds up PAUSE until it ends", async () => {
  await start({ pool_mode: "session" });
  const [session, boss] = [await open(pgweir, app), await console()];
  await session.query("SELECT 1");
  boss.send(f.Q("PAUSE"));
  await until("the pause", async () => await state("paused") === "yes");
  assert.equal(await session.query("SELECT 2"), [["2"]]);
  assert.is(boss.unread, 0);
  await session.end();
  assert.is(await boss.replies(), 'C"PAUSE" Z(I)');
});

tests("DISABLE refuses who comes and leaves who is there; ENABLE lets in", async () => {
  await start();
  const [inside, boss] = [await open(pgweir, app), await console()];
  await boss.query("DISABLE app");
  assert.is(await column("app", "disabled"), "1");
  const error = await RawClient.login(pgweir, app).then(() => null, (error: ServerError) => error);
  assert.is(`${error?.code} ${error?.fields.message}`, '57P03 database "app" is disabled');
  await open(pgweir, more);
  assert.equal(await inside.query("SELECT 1"), [["1"]]);
  assert.is(await errorOf(boss, "DISABLE"), "08P01 a database is required");
  await boss.query("ENABLE app");
  await open(pgweir, app);
});

tests("KILL ends clients and connections at once, whatever they do, until RESUME", async () => {
  await start();
  const [busy, idle, spared] = [
    await open(pgweir, app),
    await open(pgweir, app),
    await open(pgweir, more),
  ];
  busy.send(f.Q("SELECT pg_sleep(60)"));
  await idle.query("SELECT 1");
  await spared.query("SELECT 1");
  await until(
    "it to run",
    async () => (await postgres.backends()).some(({ query }) => /sleep/.test(query)),
  );
  const boss = await console();
  await boss.query("KILL app");
  for (const client of [busy, idle]) {
    assert.is(await farewell(client), "FATAL 57P01 admin forced disconnect");
  }
  await backendsAre(1);
  assert.equal(await spared.query("SELECT 1"), [["1"]]);
  const next = await open(pgweir, app);
  next.send(f.Q("SELECT 1"));
  await until("it to wait", async () => await waiters() === 1);
  await boss.query("RESUME app");
  assert.match(await next.replies(), /^T D C"SELECT 1" Z\(I\)$/);
  await boss.query("KILL");
  for (const client of [spared, next]) {
    assert.is(await farewell(client), "FATAL 57P01 admin forced disconnect");
  }
  assert.is(await state("paused"), "yes");
  await boss.query("RESUME");
  await open(pgweir, app);
});

tests("KILL_CLIENT ends the one client that SHOW CLIENTS names", async () => {
  await start();
  const [victim, spared, boss] = [
    await open(pgweir, app),
    await open(pgweir, app),
    await console(),
  ];
  await victim.query("SELECT 1");
  const rows = await boss.table("SHOW CLIENTS");
  const id = rows.find((row) => Number(row["port"]) === victim.localPort)?.["id"];
  assert.is(await errorOf(boss, "KILL_CLIENT 999999"), "08P01 client not found");
  assert.is(await errorOf(boss, "KILL_CLIENT x"), "08P01 invalid client pointer supplied");
  await boss.query(`KILL_CLIENT ${id}`);
  assert.is(await farewell(victim), "FATAL 57P01 admin forced disconnect");
  assert.equal(await spared.query("SELECT 1"), [["1"]]);
});

tests("RECONNECT replaces every connection, WAIT_CLOSE waits for the last", async () => {
  await start();
  const [busy, idle, boss] = [await open(pgweir, app), await open(pgweir, app), await console()];
  const before = await backendOf(idle);
  await busy.query("BEGIN");
  await boss.query("RECONNECT");
  assert.is.not(await backendOf(idle), before);
  boss.send(f.Q("WAIT_CLOSE app"));
  assert.equal(await busy.query("SELECT 1"), [["1"]]);
  assert.is(boss.unread, 0);
  await busy.query("COMMIT");
  assert.is(await boss.replies(), 'C"WAIT_CLOSE" Z(I)');
  await boss.query("WAIT_CLOSE");
});

tests("server_fast_close: RECONNECT ends sessions when their transaction does", async () => {
  await start({ pool_mode: "session", server_fast_close: 1 });
  const [busy, idle, boss] = [await open(pgweir, app), await open(pgweir, app), await console()];
  await busy.query("BEGIN");
  await idle.query("SELECT 1");
  await boss.query("RECONNECT app");
  assert.match(await farewell(idle), /^FATAL 57P01 /);
  assert.equal(await busy.query("SELECT 1"), [["1"]]);
  busy.send(f.Q("COMMIT"));
  assert.match(await busy.repliesUntilClosed(), /^C"COMMIT" Z\(I\) E\(57P01\) closed$/);
  await boss.query("WAIT_CLOSE");
});

tests("SET changes a setting at once and until RELOAD; what it can't change it says", async () => {
  await start({ default_pool_size: 1 });
  const [busy, waiter, boss] = [await open(pgweir, app), await open(pgweir, app), await console()];
  await busy.query("BEGIN");
  waiter.send(f.Q("SELECT 1"));
  await until("it to wait", async () => await waiters() === 1);
  await boss.query("SET default_pool_size = 2");
  assert.match(await waiter.replies(), /^T D C"SELECT 1" Z\(I\)$/);
  await boss.query("SET server_reset_query TO 'DISCARD ALL'");
  const value = async (name: string) =>
    (await boss.table("SHOW CONFIG")).find(({ key }) => key === name)?.["value"];
  assert.is(await value("default_pool_size"), "2");
  for (
    const text of [
      "listen_port = 1",
      "no_such_thing = 1",
      "default_pool_size = many",
      "pool_mode = x",
    ]
  ) {
    assert.is(await errorOf(boss, `SET ${text}`), "08P01 SET failed", text);
  }
  assert.is(await value("default_pool_size"), "2");
  await boss.query("RELOAD");
  assert.is(await value("default_pool_size"), "1");
});

tests("none of it is for a user of the statistics", async () => {
  await start();
  const watcher = await open(pgweir, { user: "watcher", database: "pgbouncer" });
  for (
    const command of [
      "PAUSE",
      "RESUME",
      "DISABLE app",
      "ENABLE app",
      "KILL",
      "KILL_CLIENT 1",
      "RECONNECT",
      "WAIT_CLOSE",
      "RELOAD",
      "SET verbose = 1",
      "SHUTDOWN",
    ]
  ) assert.is(await errorOf(watcher, command), "42501 admin access needed", command);
});

tests(
  "a listener is told that it may have missed something, and listens again after the pause",
  async () => {
    await start();
    const [client, boss] = [await open(pgweir, app), await console()];
    await client.query("LISTEN jobs");
    await boss.query("PAUSE");
    await backendsAre(0);
    await boss.query("RESUME");
    await client.repliesUntil("N");
    await postgres.query("NOTIFY jobs, 'x'");
    assert.match(await client.repliesUntil("A"), /A/);
  },
);

tests(
  "clients under load see no error through PAUSE and RESUME, RECONNECT and WAIT_CLOSE",
  async () => {
    await start({ default_pool_size: 3 });
    let over = false;
    let done = 0;
    const work = upTo(8).map(async () => {
      const client = await open(pgweir, app);
      while (!over) {
        await client.query("BEGIN");
        await client.query("SELECT pg_sleep(0.001)");
        await client.query("COMMIT");
        done++;
      }
    });
    const boss = await console();
    for (let round = 0; round < 10; round++) {
      await boss.query("PAUSE");
      await backendsAre(0);
      await boss.query("RESUME");
      const before = done;
      await until("work to go on", () => done > before + 20);
      await boss.query("RECONNECT app");
      await boss.query("WAIT_CLOSE app");
    }
    over = true;
    await Promise.all(work);
  },
);

tests("SHUTDOWN WAIT_FOR_CLIENTS lets nobody in and ends with the last client", async () => {
  await start();
  const client = await open(pgweir, app);
  await pgweir.console("SHUTDOWN WAIT_FOR_CLIENTS");
  await until(
    "it to listen no more",
    () => RawClient.connect(pgweir).then((socket) => (socket.close(), false), () => true),
  );
  assert.equal(await client.query("SELECT 1"), [["1"]]);
  assert.is(pgweir.end, null);
  await client.end();
  assert.equal(await until("its end", () => pgweir.end), { code: 0, signal: null });
});

tests(
  "SHUTDOWN WAIT_FOR_SERVERS ends when transactions have, and sends away who waits",
  async () => {
    await start({ default_pool_size: 1 });
    const [busy, waiter, idle] = await Promise.all(upTo(3).map(() => open(pgweir, app)));
    await busy!.query("BEGIN");
    waiter!.send(f.Q("SELECT 1"));
    await until("it to wait", async () => await waiters() === 1);
    await pgweir.console("SHUTDOWN WAIT_FOR_SERVERS");
    assert.is(await farewell(waiter!), "FATAL 57P01 server shutting down");
    assert.equal(await busy!.query("SELECT 1"), [["1"]]);
    busy!.send(f.Q("COMMIT"));
    assert.match(await busy!.repliesUntil("Z"), /^C"COMMIT" Z\(I\)$/);
    assert.is(await farewell(idle!), "FATAL 57P01 pooler is shutting down");
    assert.equal(await until("its end", () => pgweir.end), { code: 0, signal: null });
  },
);

tests(
  "signals: USR1 pauses, USR2 resumes, INT waits for servers, TERM for clients, twice is at once",
  async () => {
    await start();
    const client = await open(pgweir, app);
    await client.query("SELECT 1");
    pgweir.signal("SIGUSR1");
    await until("the pause", async () => await state("paused") === "yes");
    await backendsAre(0);
    pgweir.signal("SIGUSR2");
    await until("its end", async () => await state("paused") === "no");
    await client.query("BEGIN");
    pgweir.signal("SIGTERM");
    await until("the log", () => pgweir.log().includes("got SIGTERM"));
    assert.equal(await client.query("SELECT 1"), [["1"]]);
    pgweir.signal("SIGINT");
    await until("the log", () => pgweir.log().includes("got SIGINT"));
    assert.equal(await client.query("SELECT 1"), [["1"]]);
    assert.is(pgweir.end, null);
    pgweir.signal("SIGTERM");
    assert.is(await farewell(client), "FATAL 57P01 pooler is shutting down");
    assert.equal(await until("its end", () => pgweir.end), { code: 0, signal: null });
  },
);

tests("drain_timeout bounds what a shutdown waits for", async () => {
  await start({ drain_timeout: 1 });
  const client = await open(pgweir, app);
  pgweir.signal("SIGTERM");
  assert.is(await farewell(client), "FATAL 57P01 pooler is shutting down");
  assert.equal(await until("its end", () => pgweir.end), { code: 0, signal: null });
});

tests.run();
