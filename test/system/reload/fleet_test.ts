// One pooler of many workers: a command that is given on the console of any of them, or by a signal to the
// supervisor, is carried out by all, also by one that is killed meanwhile and starts again; a file that is broken
// breaks nothing, not even for workers that start while it is.
// limit: 400 s

import { cancelKeyWorker } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import type { Ini } from "../../support/ini.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { freeze, signal } from "../../support/processes.ts";
import { type Login, RawClient, type ServerError } from "../../support/raw_client.ts";
import { closeAll, open, upTo } from "../protocol/support.ts";
import { errorOf } from "./support.ts";

needs("postgresql");

const tests = suite("one pooler of many workers");

let postgres: Postgres;
let pgweir: Pgweir;

const app: Login = { user: "postgres", database: "app" };
const admin: Login = { user: "admin", database: "pgbouncer" };
const patienceMs = 30_000;

type Settings = Readonly<Record<string, string | number>>;

function ini(settings: Settings = {}): Ini {
  return {
    databases: { app: `host=127.0.0.1 port=${postgres.port} dbname=postgres` },
    pgbouncer: { default_pool_size: 6, ...settings },
  };
}

tests.before(async () => {
  postgres = await startPostgres();
});

tests.before.each(async () => {
  pgweir = await startPgweir({ workers: 2, ini: ini(), userlist: { postgres: "", admin: "" } });
});

tests.after.each(async () => {
  await closeAll();
  await pgweir.stop();
});

tests.after(() => postgres.stop("immediate"));

const workerOf = (client: RawClient) => cancelKeyWorker(client.key!.processId, client.key!.secret);

/** A client on each of the workers. */
async function onEach(login: Login): Promise<RawClient[]> {
  const found = new Map<number, RawClient>();
  await until("a client on each worker", async () => {
    const client = await open(pgweir, login);
    if (found.has(workerOf(client))) client.close();
    else found.set(workerOf(client), client);
    return found.size === 2;
  }, patienceMs);
  return [...found.values()];
}

async function valueOf(console: RawClient, name: string): Promise<string | null | undefined> {
  return (await console.table("SHOW CONFIG")).find(({ key }) => key === name)?.["value"];
}

async function isPaused(console: RawClient): Promise<boolean> {
  return (await console.table("SHOW STATE")).some(({ key, value }) =>
    key === "paused" && value === "yes"
  );
}

/** Waits until PostgreSQL has so many connections: of one that was closed it hears a little later. */
const backendsAre = (wanted: number) =>
  until(
    `${wanted} connections of PostgreSQL`,
    async () => (await postgres.backends()).length === wanted,
  );

/** Waits until all go by a value: of a worker that is too busy to answer a command does not wait for ever. */
async function valueIs(consoles: readonly RawClient[], name: string, wanted: string) {
  for (const console of consoles) {
    await until(`${name} = ${wanted}`, async () => await valueOf(console, name) === wanted);
  }
}

/** Kills a worker as a crash would, and waits for the next one. */
async function replace(): Promise<void> {
  const [victim] = pgweir.workerPids();
  const before = pgweir.log().match(/worker \d+ is ready/g)?.length ?? 0;
  signal(victim!, "SIGKILL");
  await until("another worker", () => {
    return (pgweir.log().match(/worker \d+ is ready/g)?.length ?? 0) > before;
  }, patienceMs);
}

tests("RELOAD on one console reloads every worker", async () => {
  const consoles = await onEach(admin);
  pgweir.rewrite(ini({ default_pool_size: 9 }));
  await consoles[0]!.query("RELOAD");
  await valueIs(consoles, "default_pool_size", "9");
  // The limit itself is the coordinator's.
  const clients = await Promise.all(upTo(9).map(() => open(pgweir, app)));
  for (const client of clients) await client.query("BEGIN");
  await backendsAre(9);
});

tests(
  "a broken file changes nothing anywhere, and a worker that starts meanwhile does without it",
  async () => {
    const consoles = await onEach(admin);
    pgweir.rewrite("[pgbouncer]\nlisten_addr = *\npool_mode = nonsense\n");
    for (const console of consoles) {
      assert.is(
        await errorOf(console, "RELOAD"),
        "F0000 RELOAD failed, see logs for additional details",
      );
    }
    await until("the reason", () => /reload: .*pgweir\.ini:3: pool_mode/.test(pgweir.log()));
    pgweir.signal("SIGHUP");
    await until("the log", () => pgweir.log().match(/reload failed/g)?.length === 3);
    for (const console of consoles) assert.is(await valueOf(console, "default_pool_size"), "6");
    await replace();
    for (const client of await onEach(app)) assert.equal(await client.query("SELECT 1"), [["1"]]);
    for (const console of await onEach(admin)) {
      assert.is(await valueOf(console, "default_pool_size"), "6");
    }
  },
);

tests("SIGHUP reloads every worker, and one that starts later goes by the same", async () => {
  pgweir.rewrite(ini({ default_pool_size: 3, listen_port: 1 }));
  pgweir.signal("SIGHUP");
  await until("the reload", () => pgweir.log().includes("configuration reloaded"));
  await until("the hint", () => pgweir.log().includes("listen_port changes with a restart only"));
  await valueIs(await onEach(admin), "default_pool_size", "3");
  // Edited, but not reloaded.
  pgweir.rewrite(ini({ default_pool_size: 4 }));
  await replace();
  for (const console of await onEach(admin)) {
    assert.is(await valueOf(console, "default_pool_size"), "3");
    assert.is(await valueOf(console, "listen_port"), String(pgweir.port));
  }
});

tests("SET changes all workers, and those that start later, until RELOAD", async () => {
  const [console] = await onEach(admin);
  await console!.query("SET query_wait_timeout = 77");
  assert.is(await errorOf(console!, "SET listen_port = 1"), "08P01 SET failed");
  await replace();
  await valueIs(await onEach(admin), "query_wait_timeout", "77");
  const [again] = await onEach(admin);
  await again!.query("RELOAD");
  await valueIs(await onEach(admin), "query_wait_timeout", "120");
});

tests("PAUSE on one console holds all workers, and one that is killed meanwhile", async () => {
  const clients = await onEach(app);
  for (const client of clients) await client.query("SELECT 1");
  await clients[1]!.query("BEGIN");
  const consoles = await onEach(admin);
  const boss = consoles.find((each) => workerOf(each) !== workerOf(clients[1]!))!;
  boss.send(f.Q("PAUSE"));
  for (const console of consoles.filter((each) => each !== boss)) {
    await until("the pause", () => isPaused(console));
  }
  assert.equal(await clients[1]!.query("SELECT 2"), [["2"]]);
  assert.is(boss.unread, 0);
  await clients[1]!.query("COMMIT");
  assert.match(await boss.replies(), /C"PAUSE" Z\(I\)$/);
  await backendsAre(0);
  closeAll();
  await replace();
  for (const console of await onEach(admin)) await until("the pause", () => isPaused(console));
  // A worker that has no server yet has nothing to greet clients with.
  const waiting = upTo(6).map(() => RawClient.login(pgweir, app));
  await until("clients to wait", async () => {
    const [console] = await onEach(admin);
    const rows = await console!.table("SHOW POOLS");
    return rows.some((row) => row["database"] === "app" && Number(row["cl_waiting"]) > 0);
  }, patienceMs);
  await backendsAre(0);
  const [last] = await onEach(admin);
  assert.is(await errorOf(last!, "PAUSE"), "08P01 already suspended/paused");
  await last!.query("RESUME");
  for (const login of waiting) await (await login).end();
});

tests("a worker that is killed while a PAUSE waits for it ends the wait", async () => {
  const [client] = await onEach(app);
  await client!.query("BEGIN");
  const consoles = await onEach(admin);
  const boss = consoles.find((each) => workerOf(each) !== workerOf(client!))!;
  boss.send(f.Q("PAUSE app"));
  await until("the pause", async () => {
    const rows = await consoles.find((each) => each !== boss)!.table("SHOW DATABASES");
    return rows.some((row) => row["name"] === "app" && row["paused"] === "1");
  });
  const row = await consoles.find((each) => each !== boss)!.table("SHOW WORKER");
  signal(Number(row[0]!["pid"]), "SIGKILL");
  assert.match(await boss.replies(1, { timeoutMs: patienceMs }), /C"PAUSE" Z\(I\)$/);
});

tests("the commands of a fleet: KILL_CLIENT, KILL, DISABLE, RECONNECT and WAIT_CLOSE", async () => {
  const clients = await onEach(app);
  const consoles = await onEach(admin);
  // Whoever's client it is, any console takes its id.
  const victim = clients[0]!;
  const there = consoles.find((each) => workerOf(each) === workerOf(victim))!;
  const elsewhere = consoles.find((each) => each !== there)!;
  const rows = await there.table("SHOW CLIENTS");
  const id = rows.find((row) => Number(row["port"]) === victim.localPort)!["id"];
  await elsewhere.query(`KILL_CLIENT ${id}`);
  assert.is(await victim.repliesUntilClosed(), "E(57P01) closed");
  assert.is(await errorOf(elsewhere, `KILL_CLIENT ${id}`), "08P01 client not found");
  const spared = clients[1]!;
  assert.equal(await spared.query("SELECT 1"), [["1"]]);
  await spared.query("BEGIN");
  for (const console of consoles) await console.query("RECONNECT");
  elsewhere.send(f.Q("WAIT_CLOSE"));
  assert.equal(await spared.query("SELECT 1"), [["1"]]);
  await spared.query("COMMIT");
  assert.match(await elsewhere.replies(), /C"WAIT_CLOSE" Z\(I\)$/);
  await elsewhere.query("DISABLE app");
  for (const console of consoles) {
    await until("it to be disabled", async () => {
      const rows = await console.table("SHOW DATABASES");
      return rows.some((each) => each["name"] === "app" && each["disabled"] === "1");
    });
  }
  for (let i = 0; i < 6; i++) {
    const error = await RawClient.login(pgweir, app).then(
      () => null,
      (error: ServerError) => error,
    );
    assert.is(error?.code, "57P03");
  }
  await there.query("ENABLE app");
  const all = [spared, ...await onEach(app)];
  await elsewhere.query("KILL app");
  for (const client of all) assert.is(await client.repliesUntilClosed(), "E(57P01) closed");
  await there.query("RESUME app");
  await onEach(app);
});

tests("a worker that does not answer is named", async () => {
  const consoles = await onEach(admin);
  const [silent, boss] = consoles as [RawClient, RawClient];
  const [row] = await silent.table("SHOW WORKER");
  const pid = Number(row!["pid"]);
  await freeze(pid);
  boss.send(f.Q("DISABLE app"));
  const messages = await boss.messagesUntil("Z", 1, patienceMs);
  const text = new TextDecoder().decode(messages[0]!.body);
  assert.match(text, `no answer from: worker ${workerOf(silent)}`);
  // What it missed it has when it is back.
  signal(pid, "SIGCONT");
  await until("it to know", async () => {
    const rows = await silent.table("SHOW DATABASES");
    return rows.some((each) => each["name"] === "app" && each["disabled"] === "1");
  }, patienceMs);
});

// PAUSE was called complete while a worker that stood still had a transaction open.
for (const end of ["goes on", "is killed"] as const) {
  tests(`PAUSE waits for a worker that stands still until it ${end}`, async () => {
    const consoles = await onEach(admin);
    const [silent, boss] = consoles as [RawClient, RawClient];
    const busy = (await onEach(app)).find((client) => workerOf(client) === workerOf(silent))!;
    await busy.query("BEGIN");
    const [row] = await silent.table("SHOW WORKER");
    const pid = Number(row!["pid"]);
    await freeze(pid);
    boss.send(f.Q("PAUSE"));
    // Longer than a worker's answer is waited for.
    await new Promise((resolve) => setTimeout(resolve, 4000));
    assert.is(boss.unread, 0);
    if (end === "is killed") signal(pid, "SIGKILL");
    else {
      signal(pid, "SIGCONT");
      await until("it to know", () => isPaused(silent));
      assert.is(boss.unread, 0);
      await busy.query("COMMIT");
    }
    assert.is(await boss.replies(1, { timeoutMs: patienceMs }), 'C"PAUSE" Z(I)');
    assert.is((await postgres.backends()).length, 0);
  });
}

tests("signals to the supervisor: USR1 pauses all workers, USR2 resumes them", async () => {
  const clients = await onEach(app);
  for (const client of clients) await client.query("SELECT 1");
  const consoles = await onEach(admin);
  pgweir.signal("SIGUSR1");
  for (const console of consoles) await until("the pause", () => isPaused(console));
  await backendsAre(0);
  for (const client of clients) client.send(f.Q("SELECT 2"));
  pgweir.signal("SIGUSR2");
  for (const client of clients) assert.match(await client.replies(), /^T D C"SELECT 1" Z\(I\)$/);
});

tests("clients under load see no error while all is paused, resumed and reloaded", async () => {
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
  const [boss] = await onEach(admin);
  for (let round = 0; round < 5; round++) {
    await boss!.query("PAUSE");
    await boss!.query("RESUME");
    pgweir.rewrite(ini({ default_pool_size: 2 + round }));
    await boss!.query("RELOAD");
    await boss!.query("RECONNECT");
    const before = done;
    await until("work to go on", () => done > before + 20, patienceMs);
  }
  over = true;
  await Promise.all(work);
});

tests(
  "SHUTDOWN on one console ends the whole host; SIGTERM waits for clients, SIGINT for transactions",
  async () => {
    const [client] = await onEach(app);
    await client!.query("BEGIN");
    pgweir.signal("SIGTERM");
    await until("the log", () => pgweir.log().match(/pooler.*got SIGTERM|got SIGTERM/g) !== null);
    assert.equal(await client!.query("SELECT 1"), [["1"]]);
    pgweir.signal("SIGINT");
    assert.equal(await client!.query("SELECT 1"), [["1"]]);
    await client!.query("COMMIT");
    assert.equal(await until("its end", () => pgweir.end, patienceMs), { code: 0, signal: null });
    pgweir = await startPgweir({ workers: 2, ini: ini(), userlist: { postgres: "", admin: "" } });
    const [console] = await onEach(admin);
    console!.send(f.Q("SHUTDOWN"));
    assert.match(await console!.repliesUntil("Z"), /C"SHUTDOWN" Z\(I\)$/);
    assert.equal(await until("its end", () => pgweir.end, patienceMs), { code: 0, signal: null });
  },
);

tests.run();
