// How long clients wait for a server, and how long servers live: query_wait_timeout, server_idle_timeout,
// server_lifetime. Each ends what it is meant for and nothing that is at work.
// load: waits

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { startFakePostgres } from "../../support/fake_postgres.ts";

needs("postgresql");

const postgres = await startPostgres();
const hanging = await startFakePostgres({ onStartup: () => new Promise<void>(() => {}) });
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
const user = "postgres";
const RESULT = 'T D C"SELECT 1" Z(I)';
const patient = { timeoutMs: 30_000 };
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

const tests = suite("server limits");

function start(
  databases: Record<string, string>,
  pgbouncer: Record<string, string | number>,
): Promise<Pgweir> {
  return startPgweir({ ini: { databases, pgbouncer } });
}

tests.after(async () => {
  await hanging.stop();
  await postgres.stop("immediate");
});

const pidOf = async (client: RawClient) => (await client.query("SELECT pg_backend_pid()"))[0]![0]!;

// Clients in a full queue got an error and a ReadyForQuery in the middle of what they had sent, and were one
// answer ahead from then on; or their query ran after all.
tests(
  "who waits longer than query_wait_timeout is told and let go, and its query never runs",
  async () => {
    const pooler = await start({ one: `${at} pool_size=1` }, { max_client_conn: 500 });
    const seconds = 2;
    await postgres.query("CREATE TABLE late (who text)");
    const login = { user, database: "one" };
    const holder = await RawClient.login(pooler, login);
    await holder.query("BEGIN");
    const server = await pidOf(holder);
    const insert = "INSERT INTO late VALUES ('late')";
    const group = [f.P("", insert), f.B(), f.E(), f.S()];
    const sends: readonly Uint8Array[][] = [
      [f.Q(insert)],
      group,
      [...group, ...group, ...group],
      [f.P("", insert), f.B(), f.E(), f.H()],
      [f.Q(insert), f.Q(insert)],
    ];
    const clients = await Promise.all(
      Array.from({ length: 200 }, () => RawClient.login(pooler, login)),
    );
    // Nobody's login is meant.
    await pooler.console(`SET query_wait_timeout = ${seconds}`);
    const began = performance.now();
    for (const [i, client] of clients.entries()) client.send(...sends[i % sends.length]!);
    const waited: number[] = [];
    await Promise.all(clients.map(async (client) => {
      const [error] = await client.messagesUntil("E", 1, 30_000);
      waited.push(performance.now() - began);
      assert.match(
        new TextDecoder().decode(error!.body),
        /FATAL\0.*C53300\0.*Mquery_wait_timeout\0/,
      );
      // Who sends the end of what it had begun finds nobody.
      client.send(f.S());
      assert.is(await client.repliesUntilClosed(), "closed");
    }));
    // They are told together: one at each look at the queue would take 20 s. The rest is for a busy machine.
    assert.ok(
      Math.min(...waited) >= seconds * 1000 - 50,
      `the first after ${Math.min(...waited)} ms`,
    );
    assert.ok(Math.max(...waited) < seconds * 3000, `the last after ${Math.max(...waited)} ms`);
    assert.is(await pidOf(holder), server);
    await pooler.console("SET query_wait_timeout = 60");
    await holder.query("COMMIT");
    assert.equal(await holder.query("SELECT count(*) FROM late"), [["0"]]);
    await holder.end();
    await pooler.stop();
  },
);

// A client whose login waits for the first server of its pool was in no queue, and no limit was looked at: it
// hung with a server that takes connections and says nothing.
tests("who waits for the first server of its pool waits no longer than that either", async () => {
  const pooler = await start(
    { silent: `host=127.0.0.1 port=${hanging.port}`, patient: `${at} query_wait_timeout=60` },
    { query_wait_timeout: 1 },
  );
  const client = await RawClient.connect(pooler);
  client.startup({ user, database: "silent" });
  assert.is(await client.repliesUntilClosed(patient), "E(53300) closed");
  // The database's own limit counts where it has one.
  const holders = await Promise.all(
    Array.from({ length: 20 }, () => RawClient.login(pooler, { user, database: "patient" })),
  );
  for (const holder of holders) holder.send(f.Q("SELECT pg_sleep(2)"));
  const waiting = await RawClient.login(pooler, { user, database: "patient" });
  waiting.send(f.Q("SELECT 1"));
  assert.is(await waiting.replies(1, patient), RESULT);
  for (const holder of [...holders, waiting]) holder.close();
  await pooler.stop();
});

// Servers that nobody needed any more stayed, or one was closed as a client was given it.
tests("idle servers leave after server_idle_timeout, those at work stay", async () => {
  const pooler = await start({ idle: `${at} pool_size=5` }, { server_idle_timeout: 1 });
  const clients = await Promise.all(
    Array.from({ length: 5 }, () => RawClient.login(pooler, { user, database: "idle" })),
  );
  const [worker, ...others] = clients;
  await worker!.query("BEGIN");
  const pid = await pidOf(worker!);
  for (const client of others) client.send(f.Q("SELECT pg_sleep(0.1)"));
  for (const client of others) assert.is(await client.replies(1, patient), RESULT);
  const pids = async () => (await postgres.backends()).map((backend) => String(backend.pid));
  await until("the idle ones to leave", async () => {
    const now = await pids();
    return now.length === 1 && now[0] === pid;
  });
  assert.is(await pidOf(worker!), pid);
  await worker!.query("COMMIT");
  await until("the last one to leave", async () => (await pids()).length === 0);
  for (const client of clients) {
    client.send(f.Q("SELECT 1"));
    assert.is(await client.replies(1, patient), RESULT);
  }
  for (const client of clients) await client.end();
  await pooler.stop();
});

// A server past its lifetime was closed under a transaction, or lived on because it was never idle.
tests("a server past server_lifetime is replaced between transactions", async () => {
  const pooler = await start(
    { old: `${at} pool_size=1`, once: `${at} pool_size=2 server_lifetime=0` },
    { server_lifetime: 1 },
  );
  const client = await RawClient.login(pooler, { user, database: "old" });
  await client.query("BEGIN");
  const first = await pidOf(client);
  await pause(1_500);
  assert.is(await pidOf(client), first);
  await client.query("COMMIT");
  assert.is.not(await pidOf(client), first);
  // Never idle for long: replaced all the same.
  const seen = new Set<string>();
  await until(
    "a new server",
    async () => {
      seen.add(await pidOf(client));
      return seen.size >= 3;
    },
    30_000,
    0,
  );
  await client.end();

  const user2 = await RawClient.login(pooler, { user, database: "once" });
  const pids = [await pidOf(user2), await pidOf(user2), await pidOf(user2)];
  assert.is(new Set(pids).size, 3);
  await user2.query("BEGIN");
  assert.is(await pidOf(user2), await pidOf(user2));
  await user2.query("COMMIT");
  await user2.end();
  await pooler.stop();
});

tests.run();
