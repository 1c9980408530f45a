// RELOAD and SIGHUP of one worker: what the file says anew takes effect without a restart and without an error for
// anybody whom it does not concern, and a file with problems changes nothing.
// limit: 240 s

import { assert, suite, until } from "../../support/harness.ts";
import type { Ini } from "../../support/ini.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { type Login, RawClient } from "../../support/raw_client.ts";
import { backendOf } from "../modes/support.ts";
import { closeAll, open, upTo } from "../protocol/support.ts";
import { errorOf, farewell } from "./support.ts";

needs("postgresql");

const tests = suite("RELOAD of a worker");

let one: Postgres;
/** Another server, with a database of another name for what the clients call app. */
let other: Postgres;
let pgweir: Pgweir;

const app: Login = { user: "postgres", database: "app" };

tests.before(async () => {
  [one, other] = await Promise.all([startPostgres(), startPostgres()]);
  await other.query("CREATE DATABASE elsewhere");
  await one.query("CREATE ROLE reader LOGIN");
});

tests.after.each(async () => {
  await closeAll();
  await pgweir.stop();
});

tests.after(async () => {
  await Promise.all([one.stop("immediate"), other.stop("immediate")]);
});

type Settings = Readonly<Record<string, string | number>>;

function ini(settings: Settings = {}, databases: Settings = {}, more: Ini = {}): Ini {
  return {
    databases: { app: `host=127.0.0.1 port=${one.port} dbname=postgres`, ...databases },
    pgbouncer: { default_pool_size: 5, ...settings },
    ...more,
  };
}

async function start(settings: Settings = {}, databases: Settings = {}, more: Ini = {}) {
  pgweir = await startPgweir({ ini: ini(settings, databases, more) });
}

async function reload(settings: Settings = {}, databases: Settings = {}, more: Ini = {}) {
  pgweir.rewrite(ini(settings, databases, more));
  await pgweir.console("RELOAD");
}

/** The messages of a refused login or query. */
function failure(login: Login): Promise<string> {
  return RawClient.login(pgweir, login).then(
    (client) => {
      client.close();
      return "logged in";
    },
    (error: Error) => error.message,
  );
}

async function portOf(client: RawClient): Promise<number> {
  return Number((await client.query("SELECT pg_catalog.current_setting('port')"))[0]![0]);
}

const elsewhere = () => `host=127.0.0.1 port=${other.port} dbname=elsewhere`;

tests("a file with problems changes nothing: F0000, and the log says what and where", async () => {
  await start({ default_pool_size: 3 });
  const client = await open(pgweir, app);
  const backend = await backendOf(client);
  for (
    const [text, wanted] of [
      [`[databases]\napp = host=127.0.0.1 port=1\n[pgbouncer\n`, /pgweir\.ini:3: /],
      [
        `[databases]\napp = host=127.0.0.1 port=1\n[pgbouncer]\npool_mode = nonsense\n`,
        /:4: pool_mode/,
      ],
      [
        `[pgbouncer]\nlisten_addr = 127.0.0.1\nauth_file = /nowhere/at/all\n`,
        /:3: .*\/nowhere\/at\/all/,
      ],
    ] as const
  ) {
    pgweir.rewrite(text);
    const console = await open(pgweir, { user: "admin", database: "pgbouncer" });
    assert.is(
      await errorOf(console, "RELOAD"),
      "F0000 RELOAD failed, see logs for additional details",
    );
    await until("the log to say why", () => wanted.test(pgweir.log()));
    const config = await console.table("SHOW CONFIG");
    assert.is(config.find(({ key }) => key === "default_pool_size")?.["value"], "3");
    assert.is(await backendOf(client), backend);
  }
  // SIGHUP is no different, and does not end the worker.
  const before = pgweir.log().length;
  pgweir.signal("SIGHUP");
  await until("the log of the reload", () => pgweir.log().slice(before).includes("reload failed"));
  assert.is(await backendOf(client), backend);
});

tests("SIGHUP does what RELOAD does", async () => {
  await start();
  pgweir.rewrite(ini({ default_pool_size: 2 }));
  pgweir.signal("SIGHUP");
  await until("the new pool size", async () => {
    const rows = await pgweir.console("SHOW CONFIG");
    return rows.find(({ key }) => key === "default_pool_size")?.["value"] === "2";
  });
});

tests("settings that change at the start only are named, and keep their values", async () => {
  await start();
  await reload({ listen_port: pgweir.port + 1, default_pool_size: 4 });
  await until("the hint", () => pgweir.log().includes("listen_port changes with a restart only"));
  const rows = await pgweir.console("SHOW CONFIG");
  const value = (name: string) => rows.find(({ key }) => key === name)?.["value"];
  assert.is(value("listen_port"), String(pgweir.port));
  assert.is(value("default_pool_size"), "4");
});

tests(
  "a pool that grows takes its waiting clients in, one that shrinks lets transactions end",
  async () => {
    await start({ default_pool_size: 1 });
    const clients = await Promise.all(upTo(3).map(() => open(pgweir, app)));
    for (const client of clients) client.send(f.Q("BEGIN; SELECT 1"));
    await until("two clients to wait", async () => {
      const [row] = await pgweir.console("SHOW POOLS");
      return row?.["cl_waiting"] === "2";
    });
    await reload({ default_pool_size: 3 });
    for (const client of clients) assert.match(await client.replies(), /Z\(T\)$/);
    // Those of the pooler of the test before go a little later.
    await until("three backends", async () => (await one.backends()).length === 3);
    await reload({ default_pool_size: 1 });
    for (const client of clients) assert.equal(await client.query("SELECT 2"), [["2"]]);
    for (const client of clients) await client.query("COMMIT");
    await until("the backends beyond the pool's size to go", async () => {
      return (await one.backends()).length === 1;
    });
    for (const client of clients) assert.equal(await client.query("SELECT 3"), [["3"]]);
  },
);

tests(
  "max_client_conn and limits for a database and a user take effect, also on who is there",
  async () => {
    await start({ max_client_conn: 10 });
    await Promise.all(upTo(2).map(() => open(pgweir, app)));
    await reload({ max_client_conn: 2 });
    assert.match(await failure(app), /53300 no more connections allowed/);
    await reload({ max_client_conn: 10, max_db_client_connections: 2 });
    assert.match(await failure(app), /53300 client connections exceeded \(max_db_client/);
    await reload({ max_client_conn: 10, max_user_client_connections: 2 });
    assert.match(await failure(app), /53300 client connections exceeded \(max_user_client/);
    await reload({ max_client_conn: 10 });
    await open(pgweir, app);
  },
);

tests(
  "another server: idle connections go at once, those in use when their transaction ends",
  async () => {
    await start();
    const [idle, busy] = [await open(pgweir, app), await open(pgweir, app)];
    await busy.query("BEGIN");
    assert.is(await portOf(idle), one.port);
    await reload({}, { app: elsewhere() });
    assert.is(await portOf(idle), other.port);
    assert.is(await portOf(busy), one.port);
    const [row] = (await pgweir.console("SHOW SERVERS")).filter((each) =>
      each["close_needed"] === "1"
    );
    assert.is(row?.["state"], "active");
    await busy.query("COMMIT");
    assert.is(await portOf(busy), other.port);
    assert.equal(await busy.query("SELECT current_database()"), [["elsewhere"]]);
    await until("no backend to be left", async () => (await one.backends()).length === 0);
    // Who logs in is greeted with what the new server reports.
    const fresh = await open(pgweir, app);
    assert.is(await portOf(fresh), other.port);
  },
);

tests(
  "a server that could not be reached is tried anew as soon as the file names another",
  async () => {
    await start({ server_login_retry: 60 }, { app: "host=127.0.0.1 port=1" });
    const client = await RawClient.connect(pgweir);
    client.startup({ user: "postgres", database: "app" });
    await until("the failure", () => pgweir.log().includes("connection to server failed"));
    await reload({ server_login_retry: 60 });
    assert.match(await client.replies(), /Z\(I\)$/);
    client.close();
  },
);

tests(
  "a database that is removed ends its clients, and only those; one that is added lets them in",
  async () => {
    const more = { more: `host=127.0.0.1 port=${one.port} dbname=postgres` };
    await start({}, more);
    const stays = await open(pgweir, app);
    const backend = await backendOf(stays);
    const goes = await open(pgweir, { ...app, database: "more" });
    const works = await open(pgweir, { ...app, database: "more" });
    await goes.query("SELECT 1");
    works.send(f.Q("SELECT pg_sleep(60)"));
    await until(
      "it to run",
      async () => (await one.backends()).some(({ query }) => query.includes("sleep")),
    );
    await reload();
    for (const client of [goes, works]) {
      assert.is(await farewell(client), "FATAL 57P01 database removed");
    }
    await until("its backends to go", async () => (await one.backends()).length === 1);
    assert.match(await failure({ ...app, database: "more" }), /3D000 no such database: more/);
    const pools = await pgweir.console("SHOW POOLS");
    assert.not.ok(pools.some((row) => row["database"] === "more"));
    await reload({}, more);
    const back = await open(pgweir, { ...app, database: "more" });
    assert.equal(await back.query("SELECT 1"), [["1"]]);
    assert.is(await backendOf(stays), backend);
  },
);

// They went on in another database, without a word: the one that `*` makes of the name.
tests("a database that is removed ends its clients also where `*` takes its name", async () => {
  const any = { "*": `host=127.0.0.1 port=${one.port}` };
  const more = { more: `host=127.0.0.1 port=${one.port} dbname=template1`, ...any };
  await start({}, more);
  const stays = await open(pgweir, { ...app, database: "postgres" });
  const backend = await backendOf(stays);
  const [idle, works, listens] = await Promise.all(
    [1, 2, 3].map(() => open(pgweir, { ...app, database: "more" })),
  );
  assert.equal(await idle!.query("SELECT current_database()"), [["template1"]]);
  await works!.query("BEGIN");
  await works!.query("SELECT 1");
  await listens!.query("LISTEN news");
  await reload({}, any);
  for (const client of [idle!, works!, listens!]) {
    assert.is(await farewell(client), "FATAL 57P01 database removed");
  }
  // Who comes now asks for what the file says now.
  assert.match(await failure({ ...app, database: "more" }), /3D000 database "more" does not exist/);
  await one.query("CREATE DATABASE more");
  await until("the new one to be there", async () => {
    return (await failure({ ...app, database: "more" })) === "logged in";
  });
  const after = await open(pgweir, { ...app, database: "more" });
  assert.equal(await after.query("SELECT current_database()"), [["more"]]);
  await after.query("LISTEN news");
  // An entry for the name that `*` has made lets its clients be.
  await reload({}, { ...any, postgres: `host=127.0.0.1 port=${one.port}` });
  assert.is(await backendOf(stays), backend);
  assert.equal(await after.query("SELECT 1"), [["1"]]);
});

// The connection that listened, and its slot, were kept for as long as the worker ran.
tests("a database that is removed takes with it what listens for its clients", async () => {
  const more = { more: `host=127.0.0.1 port=${one.port} dbname=postgres` };
  await start({}, more);
  const leases = async () => (await pgweir.console("SHOW LEASES")).map((row) => row["database"]);
  const listeners = async () =>
    (await pgweir.console("SHOW LISTENERS")).map((row) => row["database"]);
  for (let round = 0; round < 2; round++) {
    const client = await open(pgweir, { ...app, database: "more" });
    await client.query("LISTEN news");
    assert.equal(await listeners(), ["more"]);
    assert.ok((await leases()).includes("more"));
    await reload();
    assert.is(await farewell(client), "FATAL 57P01 database removed");
    await until("its listener to go", async () => (await listeners()).length === 0);
    await until("its backends to go", async () => (await one.backends()).length === 0);
    await until("its slots to be forgotten", async () => {
      return !(await leases()).includes("more");
    });
    await reload({}, more);
  }
});

tests("another forced user ends the clients, who may come again", async () => {
  await start({}, { app: `host=127.0.0.1 port=${one.port} dbname=postgres user=postgres` });
  const client = await open(pgweir, app);
  assert.equal(await client.query("SELECT current_user"), [["postgres"]]);
  await reload({}, { app: `host=127.0.0.1 port=${one.port} dbname=postgres user=reader` });
  assert.is(await farewell(client), "FATAL 57P01 database configuration changed");
  const again = await open(pgweir, app);
  assert.equal(await again.query("SELECT current_user"), [["reader"]]);
});

tests(
  "a session keeps its server until it leaves; with server_fast_close until it is idle",
  async () => {
    await start({ pool_mode: "session" });
    const client = await open(pgweir, app);
    assert.is(await portOf(client), one.port);
    await reload({ pool_mode: "session" }, { app: elsewhere() });
    assert.is(await portOf(client), one.port);
    await client.query("BEGIN");
    await reload({ pool_mode: "session", server_fast_close: 1 });
    assert.is(await portOf(client), one.port);
    client.send(f.Q("COMMIT"));
    assert.match(await client.repliesUntilClosed(), /C"COMMIT" Z\(I\) E\(57P01\) closed$/);
    // Of one that rests it is closed at once.
    const resting = await open(pgweir, app);
    assert.is(await portOf(resting), one.port);
    await reload({ pool_mode: "session", server_fast_close: 1 }, { app: elsewhere() });
    assert.match(await resting.repliesUntilClosed(), /^E\(57P01\) closed$/);
  },
);

tests(
  "users of the auth_file: new ones get in, changed secrets hold, removed ones are out",
  async () => {
    await start({ auth_type: "scram-sha-256" });
    pgweir.rewriteUsers({ postgres: "first", admin: "adminpw", reader: "r" });
    pgweir.signal("SIGHUP");
    const admin = { user: "admin", database: "pgbouncer", password: "adminpw" };
    const console = await until(
      "the new password of admin",
      () => RawClient.login(pgweir, admin).catch(() => null),
    );
    const before = await open(pgweir, { ...app, password: "first" });
    await before.query("SELECT 1");
    await open(pgweir, { ...app, user: "reader", password: "r" });
    pgweir.rewriteUsers({ postgres: "second", admin: "adminpw" });
    await console.query("RELOAD");
    console.close();
    assert.match(await failure({ ...app, password: "first" }), /28P01/);
    await open(pgweir, { ...app, password: "second" });
    assert.match(await failure({ ...app, user: "reader", password: "r" }), /28P01/);
    // Who is in stays in.
    assert.equal(await before.query("SELECT 1"), [["1"]]);
  },
);

tests("settings of users, timeouts and statement pooling are those of the new file", async () => {
  await start({ default_pool_size: 1, query_wait_timeout: 60 });
  const [holder, waiter] = [await open(pgweir, app), await open(pgweir, app)];
  await holder.query("BEGIN");
  waiter.send(f.Q("SELECT 1"));
  await until(
    "it to wait",
    async () => (await pgweir.console("SHOW POOLS"))[0]?.["cl_waiting"] === "1",
  );
  await reload({ default_pool_size: 1, query_wait_timeout: 60 }, {}, {
    users: { postgres: "query_wait_timeout=1" },
  });
  assert.is(await farewell(waiter), "FATAL 53300 query_wait_timeout");
  await holder.query("COMMIT");
  await reload({ pool_mode: "statement" });
  const strict = await open(pgweir, app);
  strict.send(f.Q("BEGIN"));
  assert.match(await strict.repliesUntilClosed(), /E\(0A000\) closed$/);
});

tests(
  "a LISTEN goes on at the other server, and its client is told what it may have missed",
  async () => {
    await start();
    const client = await open(pgweir, app);
    await client.query("LISTEN jobs");
    await reload({}, { app: elsewhere() });
    const notice = await client.repliesUntil("N", 1, { values: true });
    assert.match(notice, /N/);
    await until("the listener at the other server", async () => {
      await other.query("NOTIFY jobs, 'there'", [], "elsewhere");
      return client.unread > 0;
    });
  },
);

tests("clients under load see no error while the file is reloaded over and over", async () => {
  const long = { app: `host=127.0.0.1,localhost port=${one.port} dbname=postgres` };
  await start({ default_pool_size: 4 });
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
  for (let round = 0; round < 20; round++) {
    const before = done;
    await reload({ default_pool_size: 2 + round % 4 }, round % 2 === 0 ? long : {});
    await until("work to go on", () => done > before + 20);
  }
  over = true;
  await Promise.all(work);
});

tests.run();
