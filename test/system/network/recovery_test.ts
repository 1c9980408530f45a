// PostgreSQL crashes, stops answering, or vanishes from the network in the middle of traffic: who has work there gets
// one clear error, who waits is served after, and afterwards the whole pool is in use again.
// limit: 480 s
// load: waits

import { BlackHole } from "../../support/black_hole.ts";
import { startFakePostgres } from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { needsOwnNames, OwnNames } from "../../support/own_names.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";

needs("postgresql");
needsOwnNames();

const poolSize = 4;
const postgres = await startPostgres();
const other = await startFakePostgres();
let lost = await startFakePostgres({}, "127.0.0.5");
const lostPort = lost.port;
// The name has an address at which nobody listens, beside PostgreSQL's own.
const own = new OwnNames({ localhost: ["127.0.0.1", "::1"] });
const pooler = await startPgweir({
  ini: {
    databases: {
      real: `host=localhost port=${postgres.port} dbname=postgres pool_size=${poolSize}`,
      other: `host=127.0.0.1 port=${other.port}`,
      lost: `host=127.0.0.5 port=${lostPort} pool_size=${poolSize}`,
    },
    pgbouncer: { server_login_retry: 0.5 },
  },
  prefix: own.prefix,
});
const user = "postgres";
const RESULT = 'T D C"SELECT 1" Z(I)';
const patient = { timeoutMs: 90_000 };

const clients = (count: number, database: string) =>
  Promise.all(Array.from({ length: count }, () => RawClient.login(pooler, { user, database })));

async function begin(client: RawClient): Promise<void> {
  client.send(f.Q("BEGIN"));
  assert.match(await client.replies(1, patient), /Z\(T\)$/);
}

/** As many transactions at once as the pool has servers: no slot was lost. */
async function allSlotsWork(database: string): Promise<void> {
  const all = await clients(poolSize, database);
  for (const client of all) await begin(client);
  const servers = (await pooler.console("SHOW POOLS"))
    .filter((row) => row["database"] === database);
  assert.is(servers[0]!["sv_active"], String(poolSize));
  for (const client of all) client.send(f.Q("COMMIT"));
  for (const client of all) assert.match(await client.replies(1, patient), /Z\(I\)$/);
  await Promise.all(all.map((client) => client.end()));
}

async function otherIsServed(): Promise<void> {
  const [client] = await clients(1, "other");
  for (let i = 0; i < 20; i++) assert.is((await client!.query("SELECT 1")).length, 1);
  await client!.end();
}

/** Of as many as the pool has servers half are in a transaction, half run `query`, which waits; six more wait for one. */
async function traffic(query: string, waitEvent: string) {
  const idle = await clients(poolSize / 2, "real");
  for (const client of idle) await begin(client);
  const running = await clients(poolSize / 2, "real");
  for (const client of running) client.send(f.Q(query));
  await until("them to run", async () => {
    const all = await postgres.backends();
    return all.filter(({ wait_event }) => wait_event === waitEvent).length === running.length;
  });
  const waiting = await clients(6, "real");
  for (const client of waiting) client.send(f.Q("SELECT 1"));
  return { idle, running, waiting };
}

/** A query that only the end of PostgreSQL ends: a lock would be given when its holder ends first. */
const endlessTraffic = () => traffic("SELECT pg_sleep(10000)", "PgSleep");

const closeAll = (all: readonly RawClient[]) => all.forEach((client) => client.close());

const tests = suite("PostgreSQL fails in the middle of traffic");

tests.after(async () => {
  await pooler.stop();
  await other.stop();
  await lost.stop();
  await postgres.stop("immediate");
});

tests("localhost is reached at the address where PostgreSQL listens, by cancels too", async () => {
  const [client] = await clients(1, "real");
  client!.send(f.Q("SELECT pg_sleep(100)"));
  await until(
    "it to run",
    async () => (await postgres.backends()).some(({ wait_event }) => wait_event === "PgSleep"),
  );
  const servers = (await pooler.console("SHOW SERVERS"))
    .filter((row) => row["database"] === "real");
  for (const row of servers) assert.is(row["addr"], "127.0.0.1");
  await client!.cancel();
  assert.match(await client!.replies(1, patient), /E\(57014\) Z\(I\)$/);
  await client!.end();
  await allSlotsWork("real");
});

tests("killed with SIGKILL: one error for who was busy, the others wait and go on", async () => {
  const { idle, running, waiting } = await endlessTraffic();
  await postgres.crash();
  for (const client of [...idle, ...running]) {
    assert.match(
      await client.repliesUntilClosed(patient),
      /^(T )?(N )?E\((57P0[12]|08006)\) closed$/,
    );
  }
  await otherIsServed();
  await until("a login to fail", () => /connect failed/.test(pooler.log()));
  await postgres.start();
  for (const client of waiting) assert.is(await client.replies(1, patient), RESULT);
  await allSlotsWork("real");
  closeAll(waiting);
});

tests("restarted: the same, with PostgreSQL's own reason", async () => {
  const { idle, running, waiting } = await endlessTraffic();
  await postgres.restart("fast");
  for (const client of [...idle, ...running]) {
    assert.match(await client.repliesUntilClosed(patient), /^(T )?E\(57P01\) closed$/);
  }
  for (const client of waiting) assert.is(await client.replies(1, patient), RESULT);
  await allSlotsWork("real");
  closeAll(waiting);
});

tests(
  "stopped with SIGSTOP: all wait, also those who come, and all go on when it wakes",
  async () => {
    const gate = await RawClient.login(postgres, { user });
    await gate.query("SELECT pg_advisory_lock(1)");
    const query = "SELECT pg_advisory_xact_lock_shared(1)";
    const { idle, running, waiting } = await traffic(query, "advisory");
    postgres.signal("SIGSTOP", "all");
    try {
      // One slot is lost to PostgreSQL, so that a login hangs as well.
      idle[0]!.close();
      for (const client of idle.slice(1)) client.send(f.Q("SELECT 1"));
      await otherIsServed();
      assert.is(
        waiting.filter((client) => client.unread > 0 || client.closeReason !== null).length,
        0,
      );
    } finally {
      postgres.signal("SIGCONT", "all");
    }
    for (const client of idle.slice(1)) {
      assert.is(await client.replies(1, patient), 'T D C"SELECT 1" Z(T)');
      client.send(f.Q("COMMIT"));
      assert.match(await client.replies(1, patient), /Z\(I\)$/);
    }
    await gate.query("SELECT pg_advisory_unlock(1)");
    for (const client of [...running, ...waiting]) {
      assert.is(
        await client.replies(1, patient),
        RESULT,
      );
    }
    await allSlotsWork("real");
    closeAll([gate, ...idle, ...running, ...waiting]);
  },
);

// Nothing comes back from there, no refusal either: each attempt lasts until server_connect_timeout.
tests("vanished from the network: attempts end in time, and who waited goes on after", async () => {
  await allSlotsWork("lost");
  const busy = await clients(1, "lost");
  await begin(busy[0]!);
  await pooler.console("SET server_connect_timeout = 1");
  await lost.stop();
  const hole = await BlackHole.dig("127.0.0.5", lostPort);
  assert.match(await busy[0]!.repliesUntilClosed(patient), /^E\(08006\) closed$/);
  const waiting = await clients(6, "lost");
  for (const client of waiting) client.send(f.Q("SELECT 1"));
  await until("an attempt to be given up", () => pooler.log().includes("connect timeout"));
  await otherIsServed();
  hole.fill();
  lost = await startFakePostgres({}, "127.0.0.5", lostPort);
  await pooler.console("SET server_connect_timeout = 15");
  for (const client of waiting) assert.is(await client.replies(1, patient), RESULT);
  await allSlotsWork("lost");
  closeAll([...busy, ...waiting]);
});

tests.run();
