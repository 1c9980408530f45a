// Cancels in great numbers: with the pool full and PostgreSQL nearly so, many for one query, and with cancel
// connections that PostgreSQL never answers. They need no place in the pool, and none of them stays.
// limit: 240 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { openFiles } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import { startRelay } from "../../support/relay.ts";

needs("postgresql");

// Five for the pool, and two to spare: this test looks on one of them.
const postgres = await startPostgres({
  settings: { max_connections: "7", superuser_reserved_connections: "0", max_wal_senders: "0" },
});
const relay = await startRelay(postgres);
const pooler = await startPgweir({
  ini: {
    databases: {
      full: `host=127.0.0.1 port=${postgres.port} dbname=postgres pool_size=5`,
      relayed: `host=127.0.0.1 port=${relay.port} dbname=postgres pool_size=5`,
    },
    pgbouncer: { cancel_wait_timeout: 60, max_client_conn: 1000, server_idle_timeout: 1 },
  },
});
const CANCELLED = "T E(57014) Z(I)";

// One connection for all questions: what is closed may take a while to end, and there is no room for that.
const eye = await RawClient.login(postgres, { user: "postgres", database: "postgres" });
const count = async (where: string) =>
  Number((await eye.query(`SELECT count(*) FROM pg_stat_activity WHERE ${where}`))[0]![0]);
const asleep = () => count("wait_event = 'PgSleep'");
const sleeping = (wanted: number) =>
  until(`${wanted} queries to run`, async () => await asleep() === wanted);
const clients = (count: number, database: string) =>
  Promise.all(
    Array.from({ length: count }, () => RawClient.login(pooler, { user: "postgres", database })),
  );

const tests = suite("many cancels");

tests.after(async () => {
  eye.close();
  await pooler.stop();
  await relay.stop();
  await postgres.stop("immediate");
});

// Cancels waited for a server connection behind the very queries they should stop.
tests("cancels get through with the pool full and clients in its queue", async () => {
  const running = await clients(5, "full");
  for (const client of running) client.send(f.Q("SELECT pg_sleep(300)"));
  await sleeping(5);
  const queued = await clients(20, "full");
  for (const client of queued) client.send(f.Q("SELECT pg_sleep(0)"));
  await until(
    "20 clients to wait",
    async () => (await pooler.console("SHOW POOLS")).some((row) => row["cl_waiting"] === "20"),
  );
  // Of those in the queue half are cancelled there.
  const inQueue = queued.slice(0, 10);
  assert.equal([...new Set(await Promise.all(inQueue.map((client) => client.cancel())))], [""]);
  for (const client of inQueue) assert.is(await client.replies(), "E(57014) Z(I)");
  const closings = await Promise.all(running.map((client) => client.cancel()));
  assert.equal([...new Set(closings)], [""]);
  for (const client of running) assert.is(await client.replies(), CANCELLED);
  for (const client of queued.slice(10)) {
    assert.is(await client.replies(), 'T D C"SELECT 1" Z(I)');
  }
  for (const client of [...running, ...queued]) {
    assert.is(client.unread, 0);
    await client.end();
  }
});

// Each cancel opened its own connection to PostgreSQL: hundreds of them used up its slots, and the pooler's
// descriptors, so that nobody could log in.
tests("a storm of cancels leaves room for logins and opens few connections", async () => {
  const running = await clients(5, "full");
  for (const client of running) client.send(f.Q("SELECT pg_sleep(300)"));
  await sleeping(5);
  const files = openFiles(pooler.pid);
  let over = false;
  const logins = (async () => {
    let count = 0;
    while (!over) {
      const [client] = await clients(1, "full");
      await client!.end();
      count++;
    }
    return count;
  })();
  let most = 0;
  const victim = running[0]!;
  for (let burst = 0; burst < 4; burst++) {
    const closings = Array.from({ length: 100 }, (_, i) => {
      if (i % 2 === 0) return victim.cancel();
      return running[1 + (i >> 1) % 4]!.cancel();
    });
    most = Math.max(most, openFiles(pooler.pid));
    assert.equal([...new Set(await Promise.all(closings))], [""]);
    for (const client of running) assert.is(await client.replies(), CANCELLED);
    for (const client of running) client.send(f.Q("SELECT pg_sleep(300)"));
    await sleeping(5);
  }
  over = true;
  assert.ok(await logins > 0);
  assert.ok(most < files + 250, `${most} open files`);
  assert.not.match(postgres.log(), /too many clients|remaining connection slots/);
  await until("sockets to be closed", () => openFiles(pooler.pid) <= files + 5);
  for (const client of running) {
    await client.cancel();
    assert.is(await client.replies(), CANCELLED);
    await client.end();
  }
});

// PostgreSQL's host took cancel connections and said nothing: their sockets stayed, on both sides, and a
// request that had joined another one waited as long again.
tests("cancels that PostgreSQL never answers are given up together", async () => {
  await until("idle servers to leave", async () => {
    return await count("backend_type = 'client backend' AND pid <> pg_backend_pid()") === 0;
  });
  const running = await clients(5, "relayed");
  for (const client of running) client.send(f.Q("SELECT pg_sleep(300)"));
  await sleeping(5);
  const files = openFiles(pooler.pid);
  relay.cancels.blackHole = true;
  // Long enough for all to come before the first is given up: who comes later begins again.
  await pooler.console("SET cancel_wait_timeout = 8");
  const closings = running.flatMap((client) => Array.from({ length: 20 }, () => client.cancel()));
  assert.equal([...new Set(await Promise.all(closings))], [""]);
  const cancelLinks = () => relay.links.filter((link) => link.kind === "cancel");
  assert.is(cancelLinks().length, 5);
  await until("both sides to be closed", () => cancelLinks().every((link) => link.isClosed));
  await until("descriptors to be free", () => openFiles(pooler.pid) <= files + 2);
  assert.is(await asleep(), 5);
  await pooler.console("SET cancel_wait_timeout = 60");
  relay.cancels.blackHole = false;
  for (const client of running) {
    assert.is(await client.cancel(), "");
    assert.is(await client.replies(), CANCELLED);
    assert.equal(await client.query("SELECT 1"), [["1"]]);
    await client.end();
  }
});

// A worker that was told to stop said so to everybody, also to who had sent a cancel.
tests("a cancel under way when the worker stops is closed without an answer", async () => {
  const [client] = await clients(1, "relayed");
  client!.send(f.Q("SELECT pg_sleep(300)"));
  await sleeping(1);
  relay.cancels.blackHole = true;
  const cancel = client!.cancel();
  const cancels = relay.links.filter((link) => link.kind === "cancel").length;
  await until(
    "it to be under way",
    () => relay.links.filter((link) => link.kind === "cancel").length > cancels,
  );
  pooler.signal("SIGQUIT");
  assert.is(await cancel, "");
  client!.close();
});

tests.run();
