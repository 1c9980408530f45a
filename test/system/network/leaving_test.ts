// Clients that leave in odd ways at odd moments: half-closed, reset, in the queue, in mid-query, in mid-result, in
// their login. A FIN means that the client leaves: what it runs is cancelled, what it had not begun never is.

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { openFiles } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import { halfClosed } from "../../support/sockets.ts";
import { standingChecks } from "../../support/standing_checks.ts";
import { startupPacket } from "../../../shared/wire/mod.ts";

needs("postgresql");

const postgres = await startPostgres({ settings: { max_connections: "150" } });
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
const pooler = await startPgweir({
  ini: {
    databases: { two: `${at} pool_size=2`, many: `${at} pool_size=50` },
    pgbouncer: { max_client_conn: 1000 },
  },
});
const user = "postgres";
const two = { user, database: "two" };
const RESULT = 'T D C"SELECT 1" Z(I)';

const clients = (count: number, database: string) =>
  Promise.all(Array.from({ length: count }, () => RawClient.login(pooler, { user, database })));
const count = (where: string) =>
  postgres.query(
    `SELECT count(*)::int AS n FROM pg_stat_activity
     WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND (${where})`,
  ).then((rows) => Number(rows[0]!["n"]));
const backends = (wanted: number, where: string) =>
  until(`${wanted} backends ${where}`, async () => await count(where) === wanted);

type Leave = (client: RawClient) => void;
const ways: readonly [string, Leave][] = [
  ["with FIN", (client) => client.halfClose()],
  ["with RST", (client) => client.reset()],
  ["by closing", (client) => client.close()],
];

const tests = suite("clients that leave");

await (await RawClient.login(pooler, two)).query("SELECT 1");
// The first hundreds of connections warm the worker up.
const checks = await standingChecks(pooler, postgres, two, {
  idleMs: 500,
  residentGrowthBytes: 32 * 2 ** 20,
});

tests.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

for (const [how, leave] of ways) {
  // The query of a client that is gone went on, and its server with it: nobody reads a socket whose client is
  // waited for.
  tests(`a client that leaves ${how} in mid-query frees its server`, async () => {
    const [client] = await clients(1, "two");
    client!.send(f.Q("SELECT pg_sleep(300)"));
    await backends(1, "wait_event = 'PgSleep'");
    leave(client!);
    await backends(0, "wait_event = 'PgSleep'");
    client!.close();
  });

  // The transaction of a client that is gone stayed open with its locks, or was handed to the next client, who
  // went on inside it.
  tests(`a client that leaves ${how} inside a transaction rolls it back`, async () => {
    const [client] = await clients(1, "two");
    await client!.query("BEGIN");
    await client!.query("SELECT pg_advisory_xact_lock(1)");
    leave(client!);
    await backends(0, "state LIKE 'idle in transaction%'");
    const [next] = await clients(1, "two");
    assert.equal(await next!.query("SELECT pg_try_advisory_xact_lock(1)"), [["t"]]);
    await next!.end();
    client!.close();
  });

  // A client in the queue had left; its query was run all the same when its turn came.
  tests(`the query of a client that leaves ${how} in the queue never runs`, async () => {
    await postgres.query("DROP TABLE IF EXISTS marks");
    await postgres.query("CREATE TABLE marks (who text)");
    const holders = await clients(2, "two");
    for (const holder of holders) await holder.query("BEGIN");
    const [client, next] = await clients(2, "two");
    client!.send(f.Q("INSERT INTO marks VALUES ('left')"));
    const waiting = async () =>
      (await pooler.console("SHOW POOLS")).find((row) => row["database"] === "two")!["cl_waiting"];
    await until("it to wait", async () => await waiting() === "1");
    leave(client!);
    await until("it to be forgotten", async () => await waiting() === "0");
    next!.send(f.Q("INSERT INTO marks VALUES ('stayed')"));
    for (const holder of holders) await holder.query("COMMIT");
    assert.is(await next!.replies(), 'C"INSERT 0 1" Z(I)');
    assert.equal(await postgres.query("SELECT who FROM marks"), [{ who: "stayed" }]);
    for (const each of [...holders, next!]) await each.end();
    client!.close();
  });

  // A large result stuck on its way to a client: the server stayed blocked when the client had left.
  tests(`a client that leaves ${how} with a result stuck frees its server`, async () => {
    const [client] = await clients(1, "two");
    client!.pauseReading();
    client!.send(f.Q("SELECT repeat('x', 1000) FROM generate_series(1, 100000)"));
    await backends(1, "wait_event = 'ClientWrite'");
    leave(client!);
    await backends(0, "wait_event = 'ClientWrite' OR state = 'active'");
    client!.close();
  });
}

// What a client has asked for before it said good-bye is done, as PostgreSQL does it.
tests("a client that says good-bye behind its query has it done", async () => {
  await postgres.query("DROP TABLE IF EXISTS marks");
  await postgres.query("CREATE TABLE marks (who text)");
  const [client] = await clients(1, "two");
  client!.send(f.Q("INSERT INTO marks SELECT 'done' FROM pg_sleep(0.2)"), f.X());
  client!.close();
  await until(
    "it to be done",
    async () => (await postgres.query("SELECT who FROM marks")).length === 1,
  );
});

// Dozens of clients vanished at once, as when an application server dies. Cancels for some of their queries
// found no room and were forgotten: those ran on, on connections that the pooler no longer counts.
tests("a crowd that vanishes in mid-query leaves no query running", async () => {
  const crowd = await clients(50, "many");
  for (const client of crowd) client.send(f.Q("SELECT pg_sleep(300)"));
  await backends(50, "wait_event = 'PgSleep'");
  for (const client of crowd) client.reset();
  await backends(0, "wait_event = 'PgSleep'");
});

// A login that ends half-way left its socket in CLOSE_WAIT: after some thousands no descriptor was free.
tests("ten thousand logins that end half-way leave no socket behind", async () => {
  const files = openFiles(pooler.pid);
  const startup = startupPacket({ user, database: "two" });
  const beginnings = [new Uint8Array(0), startup.subarray(0, 3), startup.subarray(0, 20), startup];
  const logins = ways.flatMap(([, leave]) => beginnings.map((bytes) => ({ leave, bytes })));
  for (let done = 0; done < 10_000; done += 4 * logins.length) {
    await Promise.all([...logins, ...logins, ...logins, ...logins].map(async ({ leave, bytes }) => {
      const client = await RawClient.connect(pooler);
      client.send(bytes);
      leave(client);
      // An orderly end is answered by one.
      if (leave === ways[0]![1]) await client.closed;
    }));
  }
  await until("descriptors to be free", () => openFiles(pooler.pid) <= files + 2);
  await until("no socket to be half closed", () => halfClosed(pooler.port) === 0);
  const [client] = await clients(1, "two");
  client!.send(f.Q("SELECT 1"));
  assert.is(await client!.replies(), RESULT);
  await client!.end();
});

tests("nothing is left of all of them", async () => {
  await checks.verify();
});

tests.run();
