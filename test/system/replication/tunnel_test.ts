// Replication connections as clients of the pooler: which startup values make one, what they count for, how they
// end when either side goes in the middle of a stream. What the tools do with them is in drivers/.
// limit: 240 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { residentBytes } from "../../support/processes.ts";
import { type Login, RawClient, type ServerError } from "../../support/raw_client.ts";
import { ask, closeAll, nothingHangs, open, startPooler } from "../protocol/support.ts";

needs("postgresql");

const test = suite("replication connections");
let postgres: Postgres;
/** One server connection. */
let pooler: Pgweir;

test.before(async () => {
  postgres = await startPostgres({ settings: { wal_level: "logical" } });
  pooler = await startPooler(postgres, { settings: { default_pool_size: 1 } });
  await postgres.query("CREATE TABLE written (i int, t text)");
});
test.after.each(async () => {
  closeAll();
  await noSenders();
});
test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const replication = (value: string, more: Record<string, string> = {}): Login => ({
  user: "postgres",
  database: "postgres",
  parameters: { replication: value, ...more },
});

const senders = () =>
  postgres.query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walsender'");

async function noSenders(): Promise<void> {
  await until("walsenders to end", async () => (await senders()).length === 0);
}

/** A client in the middle of a stream of decoded changes, with a slot of its own. */
async function follower(name: string, target: Pgweir | Postgres = pooler): Promise<RawClient> {
  const client = await open(target, replication("database"));
  await client.query(`CREATE_REPLICATION_SLOT ${name} TEMPORARY LOGICAL test_decoding`);
  client.send(f.Q(`START_REPLICATION SLOT ${name} LOGICAL 0/0`));
  assert.is(await client.repliesUntil("W"), "W");
  return client;
}

test("words that mean no give an ordinary session, others that mean nothing are refused", async () => {
  for (const value of ["false", "0", "off", "no", "f", "n", "OFF", "fal", "of"]) {
    const client = await open(pooler, replication(value));
    assert.equal(await client.query("SELECT 1"), [["1"]]);
    await client.end();
  }
  for (const value of ["junk", "", "2", "databases", "DATABASE", "o", "trues"]) {
    const refused = await RawClient.login(pooler, replication(value)).then(
      () => null,
      (error: ServerError) => error.fields,
    );
    const direct = await RawClient.login(postgres, replication(value)).then(
      () => null,
      (error: ServerError) => error.fields,
    );
    assert.is(refused?.code, direct?.code, value);
    assert.match(refused?.message ?? "", "replication");
  }
});

test("words that mean yes give a connection that speaks the replication protocol", async () => {
  for (const value of ["true", "1", "on", "yes", "t", "y", "database", "TRU", "ye"]) {
    const client = await open(pooler, replication(value));
    const [pooled] = await client.query("IDENTIFY_SYSTEM");
    const direct = await open(postgres, replication(value));
    const [own] = await direct.query("IDENTIFY_SYSTEM");
    assert.is(pooled![0], own![0]);
    assert.is(pooled![3], own![3]);
    await client.end();
    await direct.end();
  }
});

test("what it asks for at its login is between it and its server", async () => {
  const client = await open(
    pooler,
    replication("database", { application_name: "copier", options: "-c work_mem=5MB" }),
  );
  assert.equal(await client.query("SHOW work_mem"), [["5MB"]]);
  assert.equal(
    await postgres.query(
      "SELECT application_name FROM pg_stat_activity WHERE backend_type = 'walsender'",
    ),
    [{ application_name: "copier" }],
  );
  assert.is(client.settings.get("application_name"), "copier");
  await client.end();
  const refused = await RawClient.login(pooler, replication("database", { work_mem: "much" }))
    .then(() => null, (error: ServerError) => error.fields);
  assert.is(refused?.code, "22023");
});

test("the extended protocol is the server's affair, and the connection lives on", async () => {
  const client = await open(pooler, replication("true"));
  const direct = await open(postgres, replication("true"));
  const sent = [f.P("", "SELECT 1"), f.S()];
  assert.is(await ask(client, sent), await ask(direct, sent));
  assert.is((await client.query("IDENTIFY_SYSTEM")).length, 1);
  await client.end();
  await direct.end();
});

test("they have slots of their own beside a pool, under the limit of the database", async () => {
  const limited = await startPooler(postgres, {
    settings: { default_pool_size: 1, max_db_connections: 3 },
  });
  const clients = [];
  for (let i = 0; i < 2; i++) clients.push(await open(limited, replication("database")));
  const ordinary = await open(limited);
  assert.equal(await ordinary.query("SELECT 1"), [["1"]]);
  const rows = await limited.console("SHOW SERVERS");
  assert.equal(
    rows.map((row) => row["replication"]).sort(),
    ["logical", "logical", "none"],
  );
  // The third makes the idle server of the pool give way; the fourth has to wait, in vain.
  clients.push(await open(limited, replication("database")));
  await limited.console("SET query_wait_timeout = 1");
  const refused = await RawClient.login(limited, replication("database"))
    .then(() => null, (error: ServerError) => error.fields);
  assert.is(refused?.code, "53300");
  await limited.console("SET query_wait_timeout = 60");
  await clients.pop()!.end();
  assert.equal(await ordinary.query("SELECT 2"), [["2"]]);
  for (const client of clients) await client.end();
  await ordinary.end();
  await limited.stop();
});

test("an idle one is nobody's to close: not for its age, not for its rest", async () => {
  const strict = await startPooler(postgres, {
    settings: { default_pool_size: 1, server_lifetime: 1, server_idle_timeout: 1 },
  });
  const ordinary = await open(strict);
  await ordinary.query("SELECT 1");
  const client = await open(strict, replication("database"));
  const [before] = await client.query("SELECT pg_backend_pid()");
  await until(
    "the ordinary server to be closed",
    async () =>
      (await strict.console("SHOW SERVERS")).every((row) => row["replication"] !== "none"),
  );
  assert.equal((await client.query("SELECT pg_backend_pid()"))[0], before);
  await client.end();
  await ordinary.end();
  await strict.stop();
});

test("a stream ends at the server whatever way its client goes", async () => {
  for (const way of ["reset", "close", "halfClose"] as const) {
    const client = await follower(`gone_${way.toLowerCase()}`);
    await postgres.query("INSERT INTO written VALUES (1)");
    await client.repliesUntil("d");
    client[way]();
    await noSenders();
    await until(
      "its slot to be gone",
      async () => (await postgres.query("SELECT 1 FROM pg_replication_slots")).length === 0,
    );
    client.close();
  }
});

test("a client that ends its stream goes on with the connection", async () => {
  const client = await follower("stopped");
  client.send(f.c());
  const said = await client.repliesUntil("Z");
  assert.match(said, /c .*C"COPY 0" C"START_REPLICATION" Z\(I\)$|c C"COPY 0" Z\(I\)$/);
  assert.is((await client.query("IDENTIFY_SYSTEM")).length, 1);
  await client.end();
});

test("the last words of a server that is shut off reach the client", async () => {
  const client = await follower("cut");
  const [row] = await senders();
  await postgres.query("SELECT pg_terminate_backend($1::int)", [row!["pid"]]);
  assert.match(await client.repliesUntilClosed(), /E\(57P01\) closed$/);
});

test("a cancel request reaches what runs on it", async () => {
  const client = await open(pooler, replication("database"));
  client.send(f.Q("SELECT pg_sleep(60)"));
  await until("it to run", async () => {
    const rows = await postgres.query(
      "SELECT 1 FROM pg_stat_activity WHERE backend_type = 'walsender' AND wait_event = 'PgSleep'",
    );
    return rows.length === 1;
  });
  assert.is(await client.cancel(), "");
  assert.match(await client.replies(), /E\(57014\) Z\(I\)$/);
  await client.end();
});

test("a client that does not read holds up its server, not the pooler", async () => {
  const client = await follower("slow");
  client.pauseReading();
  const before = residentBytes(pooler.pid);
  await postgres.query(
    "INSERT INTO written SELECT i, repeat('x', 1000) FROM generate_series(1, 60000) i",
  );
  await until("the server to wait for its client", async () => {
    const rows = await postgres.query(
      "SELECT 1 FROM pg_stat_activity WHERE backend_type = 'walsender' AND wait_event = 'WalSenderWriteData'",
    );
    return rows.length === 1;
  });
  const other = await open(pooler);
  assert.equal(await other.query("SELECT 1"), [["1"]]);
  const grown = residentBytes(pooler.pid) - before;
  assert.ok(grown < 24 * 1024 * 1024, `${grown} bytes more`);
  client.resumeReading();
  let rows = 0;
  while (rows < 60_000) {
    const message = await client.message();
    assert.ok(message !== null);
    if (message.type === 0x64 && new TextDecoder().decode(message.body).includes("INSERT")) rows++;
  }
  client.reset();
  await other.end();
});

test("a worker that stops ends a stream between two messages", async () => {
  const stopping = await startPooler(postgres, { settings: { default_pool_size: 1 } });
  const client = await follower("drained", stopping);
  const stopped = stopping.stop();
  assert.match(await client.repliesUntilClosed(), /E\(57P01\) closed$/);
  await stopped;
});

test("the pooler and its servers are well after all this", async () => {
  await nothingHangs(pooler, postgres);
});

test.run();
