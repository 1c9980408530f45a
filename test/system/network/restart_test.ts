// PostgreSQL restarts, crashes and loses connections under a worker: who was idle notices nothing, who was busy
// gets one error, and the worker comes back to it without a storm.
// limit: 480 s
// load: waits

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { startRelay } from "../../support/relay.ts";

needs("postgresql");

const postgres = await startPostgres();
const relay = await startRelay(postgres);
const pooler = await startPgweir({
  ini: {
    databases: {
      straight: `host=127.0.0.1 port=${postgres.port} dbname=postgres pool_size=5`,
      relayed: `host=127.0.0.1 port=${relay.port} dbname=postgres pool_size=5`,
    },
    pgbouncer: { server_login_retry: 0.5 },
  },
});
const user = "postgres";
const RESULT = 'T D C"SELECT 1" Z(I)';
const patient = { timeoutMs: 60_000 };

const clients = (count: number, database: string) =>
  Promise.all(Array.from({ length: count }, () => RawClient.login(pooler, { user, database })));

/** Makes the pool open all its five servers, which are idle afterwards. */
async function fillPool(five: readonly RawClient[]): Promise<void> {
  for (const client of five.slice(0, 5)) {
    client.send(f.Q("BEGIN"));
    assert.is(await client.replies(1, patient), 'C"BEGIN" Z(T)');
  }
  for (const client of five.slice(0, 5)) await client.query("COMMIT");
  assert.ok((await postgres.backends()).length >= 5);
}

async function allServed(all: readonly RawClient[]): Promise<void> {
  for (const client of all) client.send(f.Q("SELECT 1"));
  for (const client of all) assert.is(await client.replies(1, patient), RESULT);
}

const endAll = (all: readonly RawClient[]) => Promise.all(all.map((client) => client.end()));

/** Ends backends of the pooler, and returns when their processes are gone. */
async function terminate(where: string): Promise<void> {
  const rows = await postgres.query(
    `SELECT count(pg_terminate_backend(pid, 20000))::int AS n FROM pg_stat_activity
     WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND ${where}`,
  );
  assert.ok(Number(rows[0]!["n"]) > 0, `no backend ${where}`);
}

const tests = suite("PostgreSQL restarts and crashes");

tests.after(async () => {
  await pooler.stop();
  await relay.stop();
  await postgres.stop("immediate");
});

for (const mode of ["fast", "immediate"] as const) {
  // Idle servers had received their end, and the pooler noticed only when a client was given one: that
  // client got an error for a query that never ran.
  tests(`a ${mode} restart goes unnoticed by clients that were idle`, async () => {
    const all = await clients(20, "straight");
    await fillPool(all);
    await postgres.restart(mode);
    await allServed(all);
    await endAll(all);
  });
}

// Between the end of a server and the moment the pooler read of it a client was given that server: an error for
// a query that never ran.
tests("a client is never given a server whose process has ended", async () => {
  const all = await clients(5, "straight");
  for (let round = 0; round < 4; round++) {
    await fillPool(all);
    await terminate("true");
    await allServed(all);
  }
  await endAll(all);
});

for (const how of ["reset", "fin"] as const) {
  // A firewall cut idle connections: no good-bye came, only a reset or nothing but the end, and the next client
  // of each of them got the error.
  tests(`idle servers whose connections were cut (${how}) are replaced`, async () => {
    await terminate("true").catch(() => {});
    const all = await clients(20, "relayed");
    await fillPool(all);
    relay.cut(how);
    await until("the relay to forget them", () => relay.open.length === 0);
    await allServed(all);
    await endAll(all);
  });
}

// The pooler's own text and code stood where the server's were, or came after them as a second error.
tests("a client whose server is ended gets one error, the server's", async () => {
  const [between, asleep, pipelining] = await clients(3, "straight");
  await between!.query("BEGIN");
  await between!.query("SELECT 'between'");
  asleep!.send(f.Q("SELECT pg_sleep(300)"));
  const group = (sql: string) => [f.P("", sql), f.B(), f.E(), f.S()];
  pipelining!.send(
    ...group("SELECT 1"),
    ...group("SELECT pg_sleep(301)"),
    ...group("SELECT 2"),
  );
  await until(
    "both to sleep",
    async () => (await postgres.backends()).filter((b) => b.wait_event === "PgSleep").length === 2,
  );
  await terminate("true");
  assert.is(await between!.repliesUntilClosed(patient), "E(57P01) closed");
  assert.match(await asleep!.repliesUntilClosed(patient), /^(T )?E\(57P01\) closed$/);
  assert.match(
    await pipelining!.repliesUntilClosed(patient),
    /^1 2 D C"SELECT 1" Z\(I\) 1 2 E\(57P01\) closed$/,
  );
});

// The server ended in the middle of a result: the rest of the message was filled up with an error, or with
// the next client's rows.
tests("a client whose server ends in mid-result gets whole messages and the end", async () => {
  const [reader, other] = await clients(2, "straight");
  reader!.pauseReading();
  reader!.send(f.Q("SELECT repeat('x', 100000) FROM generate_series(1, 2000)"));
  await until(
    "the server to be stuck",
    async () => (await postgres.backends()).some((b) => b.wait_event === "ClientWrite"),
  );
  // It may not wait at this moment: the buffers on its way grow for a while.
  await terminate("state = 'active'");
  await allServed([other!]);
  reader!.resumeReading();
  const got = await reader!.repliesUntilClosed(patient);
  assert.match(got, /^T( D)+( E\((57P01|08006)\))? closed$/, got.slice(-100));
  await other!.end();
});

// A crash of one backend takes all sessions of the server with it: clients got no error, two, or hung.
tests(
  "when a backend crashes every busy client gets one error, and service comes back",
  async () => {
    const busy = await clients(5, "straight");
    const queued = await clients(10, "straight");
    for (const client of busy) client.send(f.Q("SELECT pg_sleep(300)"));
    await until(
      "five to sleep",
      async () =>
        (await postgres.backends()).filter((b) => b.wait_event === "PgSleep").length === 5,
    );
    for (const client of queued) client.send(f.Q("SELECT 1"));
    const [victim] = await postgres.backends();
    process.kill(victim!.pid, "SIGKILL");
    for (const client of busy) {
      const got = await client.repliesUntilClosed(patient);
      assert.match(got, /^(T )?(N )?E\((57P02|08006)\) closed$/);
    }
    // The postmaster may let somebody in before it has heard of the crash: whose query runs then shares the fate of
    // the busy ones. The pool has 5 servers, so that can be 5 at most.
    const answers = await Promise.all(queued.map((client) => client.replies(1, patient)));
    const caught = answers.filter((answer) => answer !== RESULT);
    for (const answer of caught) assert.match(answer, /^(N )?E\((57P02|08006)\) closed$/);
    assert.ok(caught.length <= 5, answers.join("; "));
    await endAll(queued.filter((_, at) => answers[at] === RESULT));
  },
);

// PostgreSQL was away for longer than the retry interval, nobody was waiting when it came back, and the
// pooler went on refusing everybody with the error it remembered.
tests("a server that was away is used again when it is back", async () => {
  const all = await clients(3, "straight");
  await fillPool(await clients(5, "straight"));
  await postgres.stop("fast");
  const refused = await until("a client to be refused", async () => {
    const client = await RawClient.login(pooler, { user, database: "straight" }).catch(() => null);
    if (client === null) return null;
    client.send(f.Q("SELECT 1"));
    // Until the retry interval is over clients wait in the queue.
    const got = await client.replies(1, { timeoutMs: 3_000 }).catch(() => null);
    client.close();
    return got;
  }, 90_000);
  assert.is(refused, "E(08001) closed");
  await postgres.start();
  await until(
    "a new client to be served",
    async () => {
      const client = await RawClient.login(pooler, { user, database: "straight" }).catch(() =>
        null
      );
      if (client === null) return false;
      client.send(f.Q("SELECT 1"));
      const got = await client.replies(1, patient);
      client.close();
      return got === RESULT;
    },
    90_000,
    100,
  );
  await allServed(all);
  await endAll(all);
});

// Clients that waited through an outage were all refused at once, or forgotten.
tests("clients that wait through an outage are served when the server is back", async () => {
  const all = await clients(20, "straight");
  await fillPool(all);
  const before = pooler.log().length;
  await postgres.stop("immediate");
  for (const client of all) client.send(f.Q("SELECT 1"));
  const failed = /connection to server failed/;
  await until("an attempt to fail", () => failed.test(pooler.log().slice(before)));
  await postgres.start();
  for (const client of all) assert.is(await client.replies(1, patient), RESULT);
  assert.ok((await postgres.backends()).length <= 5);
  await endAll(all);
});

tests.run();
