// Clients that take too long: query_timeout, idle_transaction_timeout, transaction_timeout, client_idle_timeout.
// Each ends what it is meant for, with its reason, and PostgreSQL is rid of it; and it ends nothing else.
// A limit is in force only while all clients are where a test wants them: what leads there takes its time.
// load: waits
// limit: 300 s

import { startFakePostgres } from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { backendOf, backendsWhere, waiting } from "../modes/support.ts";

needs("postgresql");

const postgres = await startPostgres();
await postgres.query("CREATE ROLE free LOGIN SUPERUSER; CREATE ROLE short LOGIN SUPERUSER");
await postgres.query("CREATE TABLE t (i int); INSERT INTO t VALUES (0)");
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
const patient = { timeoutMs: 30_000 };
const RESULT = 'T D C"SELECT 1" Z(I)';
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
const poolers: Pgweir[] = [];

const tests = suite("client timeouts");

type Values = Record<string, string | number>;

function iniOf(pgbouncer: Values, users: Record<string, string>, database: string) {
  return {
    databases: { db: `${at} ${database}`, session: `${at} pool_mode=session` },
    users,
    // A query that is to be cancelled is, however long PostgreSQL takes.
    pgbouncer: { cancel_wait_timeout: 60, ...pgbouncer },
  };
}

async function start(
  pgbouncer: Values,
  users: Record<string, string> = {},
  database = "",
): Promise<Pgweir> {
  const pooler = await startPgweir({
    ini: iniOf(pgbouncer, users, database),
    userlist: { postgres: "", free: "", short: "", admin: "" },
  });
  poolers.push(pooler);
  return pooler;
}

/** A limit is in force while something is done, and not before or after. */
async function under<T>(
  pooler: Pgweir,
  name: string,
  seconds: number,
  work: () => Promise<T>,
): Promise<T> {
  await pooler.console(`SET ${name} = ${seconds}`);
  try {
    return await work();
  } finally {
    await pooler.console(`SET ${name} = 0`);
  }
}

// What waits for one of these locks goes on when it is told to.
const locks = await RawClient.login(postgres, { user: "postgres", database: "postgres" });
const waitsFor = (lock: number) => `pg_advisory_xact_lock_shared(${lock})`;
const close = (lock: number) => locks.query(`SELECT pg_advisory_lock(${lock})`);
const open = (lock: number) => locks.query(`SELECT pg_advisory_unlock(${lock})`);
const waitAt = (lock: number, clients: number) =>
  backendsWhere(postgres, clients, `wait_event = 'advisory' AND query LIKE '%shared(${lock})%'`);

tests.after.each(async () => {
  await Promise.all(poolers.splice(0).map((pooler) => pooler.stop()));
});

tests.after(async () => {
  locks.close();
  await postgres.stop("immediate");
});

function login(pooler: Pgweir, user = "postgres", database = "db"): Promise<RawClient> {
  return RawClient.login(pooler, { user, database });
}

/** Asserts that a client is told why, and let go; other messages may come before. */
async function isEnded(client: RawClient, code: string, message: string): Promise<void> {
  const all = await client.messagesUntil(null, 1, 30_000);
  const last = new TextDecoder().decode(all.at(-1)?.body);
  assert.ok(last.startsWith(`SFATAL\0VFATAL\0C${code}\0M${message}\0`), last);
}

// A timeout closed the server connection, and PostgreSQL worked on for a client that was gone.
tests("query_timeout cancels the query, and the server serves the next client", async () => {
  const pooler = await start({ default_pool_size: 1 });
  const isAsleep = `query LIKE '%sleep(60)%' AND state = 'active'`;
  for (const [database, way] of [["db", f.Q], ["db", extended], ["session", f.Q]] as const) {
    const client = await login(pooler, "postgres", database);
    const backend = await backendOf(client);
    const next = await login(pooler, "postgres", database);
    client.send(way("SELECT pg_sleep(60)"));
    await backendsWhere(postgres, 1, isAsleep);
    await under(pooler, "query_timeout", 0.5, () => isEnded(client, "57014", "query timeout"));
    await backendsWhere(postgres, 0, isAsleep);
    assert.is(await backendOf(next), backend);
    await next.end();
  }
  // What a transaction had done is undone, and nobody waits for its locks.
  const client = await login(pooler);
  const backend = await backendOf(client);
  await client.query("BEGIN");
  await client.query("UPDATE t SET i = i + 1");
  client.send(f.Q("SELECT pg_sleep(60)"));
  await under(pooler, "query_timeout", 0.5, () => isEnded(client, "57014", "query timeout"));
  const next = await login(pooler);
  assert.equal(await next.query("UPDATE t SET i = i RETURNING i"), [["0"]]);
  assert.is(await backendOf(next), backend);
  await next.end();
});

function extended(sql: string): Uint8Array {
  return Buffer.concat([f.P("", sql), f.B(), f.E(), f.S()]);
}

// A server that stopped in the middle of a message: what was added for the client became a part of it.
tests(
  "query_timeout ends a query whose server says no more, be it inside of a message",
  async () => {
    for (const halves of [false, true]) {
      const fake = await startFakePostgres({
        onMessage: (session, asked) => {
          if (asked.type !== 0x51) return session.answer(asked);
          if (halves) session.send(session.oneRow("x".repeat(1000)).subarray(0, 500));
        },
      });
      const pooler = await startPgweir({
        ini: { databases: { db: `host=127.0.0.1 port=${fake.port}` } },
      });
      const client = await login(pooler);
      client.send(f.Q("SELECT 1"));
      await until("the query to arrive", () => {
        return fake.sessions.some(({ messages }) => messages.some(({ type }) => type === 0x51));
      });
      if (halves) await until("half an answer", () => client.unread > 0);
      await under(pooler, "query_timeout", 0.4, async () => {
        if (!halves) return await isEnded(client, "57014", "query timeout");
        assert.not.match(await client.repliesUntilClosed(patient), /E\(/);
      });
      await pooler.stop();
      await fake.stop();
    }
  },
);

tests("query_timeout ends a wait for a server as well, and a user's own 0 neither", async () => {
  const pooler = await start({}, { free: "query_timeout=0" }, "pool_size=1");
  const clients = [await login(pooler), await login(pooler)];
  const free = await login(pooler, "free");
  const calm = await login(pooler, "free");
  await close(1);
  free.send(f.Q(`SELECT ${waitsFor(1)}`));
  await waitAt(1, 1);
  await clients[0]!.query("BEGIN");
  calm.send(f.Q("SELECT 1"));
  await waiting(pooler, 1, "db", "free");
  clients[1]!.send(f.Q("SELECT 'waits'"));
  await waiting(pooler, 1, "db");
  await under(
    pooler,
    "query_timeout",
    0.5,
    () => isEnded(clients[1]!, "57014", "query_timeout"),
  );
  await open(1);
  assert.is(await free.replies(1, patient), RESULT);
  assert.is(await calm.replies(1, patient), RESULT);
  for (const client of [clients[0]!, free, calm]) client.close();
});

// It counted from the client's last message: the time between two queries of a transaction as well.
tests("query_timeout counts no time between queries", async () => {
  const pooler = await start({});
  const clients = await Promise.all([login(pooler), login(pooler, "postgres", "session")]);
  for (const client of clients) {
    await client.query("BEGIN");
    await client.query("SELECT 1");
  }
  // Parse, Bind and Execute without a Sync are answered too, and then nothing runs.
  const open = await login(pooler);
  open.send(f.P("", "SELECT 1"), f.B(), f.E(), f.H());
  assert.is(await open.repliesUntil("C"), '1 2 D C"SELECT 1"');
  await under(pooler, "query_timeout", 0.5, () => pause(900));
  for (const client of clients) {
    await client.query("SELECT 2");
    await client.query("COMMIT");
  }
  open.send(f.S());
  assert.is(await open.replies(), "Z(I)");
  for (const client of [...clients, open]) await client.end();
});

tests("idle_transaction_timeout rolls back, frees locks and tells why", async () => {
  const pooler = await start({ default_pool_size: 1 });
  const ends = (client: RawClient) =>
    under(
      pooler,
      "idle_transaction_timeout",
      0.5,
      () => isEnded(client, "25P03", "idle transaction timeout"),
    );
  for (const database of ["db", "session"]) {
    const client = await login(pooler, "postgres", database);
    const backend = await backendOf(client);
    await client.query("BEGIN");
    await client.query("UPDATE t SET i = i + 1");
    const next = await login(pooler, "postgres", database);
    // It waits for the lock, then for the server.
    const direct = postgres.query("UPDATE t SET i = i RETURNING i");
    await ends(client);
    assert.equal(await direct, [{ i: 0 }]);
    assert.is(await backendOf(next), backend);
    await backendsWhere(postgres, 0, "state LIKE 'idle in transaction%'");
    await next.end();
  }
  // A failed transaction is one too; so is an extended query without its Sync.
  const failed = await login(pooler);
  failed.send(f.Q("BEGIN"), f.Q("SELECT 1/0"));
  assert.is(await failed.replies(2), 'C"BEGIN" Z(T) E(22012) Z(E)');
  await ends(failed);
  const open = await login(pooler);
  open.send(f.P("", "UPDATE t SET i = i + 1"), f.B(), f.E(), f.H());
  assert.is(await open.repliesUntil("C"), '1 2 C"UPDATE 1"');
  await ends(open);
  assert.equal(await postgres.query("SELECT i FROM t"), [{ i: 0 }]);
});

// It hit queries that ran, and those that came just behind each other.
tests("idle_transaction_timeout ends nobody who works, nor whom it does not concern", async () => {
  const pooler = await start({}, { free: "idle_transaction_timeout=0" });
  const limited = (work: () => Promise<unknown>) =>
    under(pooler, "idle_transaction_timeout", 0.5, work);
  const free = await login(pooler, "free");
  await free.query("BEGIN");
  const clients = await Promise.all([login(pooler), login(pooler, "postgres", "session")]);
  const each = (work: (client: RawClient) => Promise<void>) => Promise.all(clients.map(work));
  await close(1);
  await close(2);
  await each(async (client) => {
    await client.query("BEGIN");
    client.send(f.Q(`SELECT ${waitsFor(1)}`), f.Q(`SELECT ${waitsFor(2)}`));
  });
  await waitAt(1, 2);
  await limited(async () => {
    await pause(700);
    await open(1);
    await waitAt(2, 2);
    await pause(700);
  });
  await open(2);
  await each(async (client) => {
    assert.is(
      await client.replies(2, patient),
      'T D C"SELECT 1" Z(T) T D C"SELECT 1" Z(T)',
    );
    await client.query("COMMIT");
  });
  // They rest outside of a transaction, and send their parts of a COPY slowly.
  await limited(() => pause(900));
  await each(async (client) => {
    await client.query("SELECT 1");
    client.send(f.Q("BEGIN; COPY t FROM STDIN"));
    assert.is(await client.repliesUntil("G"), 'C"BEGIN" G');
  });
  await limited(() => pause(900));
  await each(async (client) => {
    client.send(f.c());
    assert.is(await client.replies(), 'C"COPY 0" Z(T)');
    await client.query("ROLLBACK");
  });
  // Long queries without a Sync, one of them answered before.
  await close(1);
  await each(async (client) => {
    client.send(f.P("", "SELECT 1"), f.B(), f.E(), f.H());
    assert.is(await client.repliesUntil("C"), '1 2 D C"SELECT 1"');
    client.send(f.P("", `SELECT ${waitsFor(1)}`), f.B(), f.E(), f.H());
  });
  await waitAt(1, 2);
  await limited(() => pause(900));
  await open(1);
  await each(async (client) => {
    assert.is(await client.repliesUntil("C", 1, patient), '1 2 D C"SELECT 1"');
    client.send(f.S());
    assert.is(await client.replies(), "Z(I)");
  });
  await free.query("COMMIT");
  for (const client of [...clients, free]) await client.end();
});

tests("transaction_timeout ends a transaction however busy it is", async () => {
  const pooler = await start({}, { free: "transaction_timeout=0" });
  const free = await login(pooler, "free");
  await free.query("BEGIN");
  const ended = { code: "25P04", message: "transaction timeout" };
  for (const database of ["db", "session"]) {
    const client = await login(pooler, "postgres", database);
    // What it did before is no part of it.
    for (let i = 0; i < 3; i++) await client.query("SELECT pg_sleep(0.1)");
    await under(pooler, "transaction_timeout", 1, async () => {
      await pause(1_200);
      const began = performance.now();
      const queries = (async () => {
        await client.query("BEGIN");
        await client.query("UPDATE t SET i = i + 1");
        while (performance.now() < began + 60_000) await client.query("SELECT pg_sleep(0.1)");
        return new Error("it was not ended");
      })();
      const failure: Error & { fields?: { code: string } } = await queries.catch((error) => error);
      const took = performance.now() - began;
      assert.is(failure.fields?.code, ended.code, failure.message);
      assert.ok(took > 950, `${took} ms`);
    });
    assert.equal(await postgres.query("UPDATE t SET i = i RETURNING i"), [{ i: 0 }]);
  }
  // A query alone is one too.
  const client = await login(pooler);
  client.send(f.Q("SELECT pg_sleep(60)"));
  await under(
    pooler,
    "transaction_timeout",
    1,
    () => isEnded(client, ended.code, ended.message),
  );
  await backendsWhere(postgres, 0, `query LIKE '%sleep(60)%' AND state = 'active'`);
  await free.query("COMMIT");
  await free.end();
});

// It never fired once a client had run a query, or in session pooling.
tests("client_idle_timeout ends clients that do nothing", async () => {
  const pooler = await start({ default_pool_size: 3 });
  const clients = await Promise.all([
    login(pooler),
    login(pooler),
    login(pooler, "postgres", "session"),
    login(pooler, "postgres", "session"),
  ]);
  await clients[1]!.query("SELECT 1");
  await clients[3]!.query("SELECT 1");
  await under(pooler, "client_idle_timeout", 0.5, async () => {
    for (const client of clients) await isEnded(client, "57P05", "client_idle_timeout");
  });
});

tests("client_idle_timeout ends nobody who works, waits or listens", async () => {
  const pooler = await start({ default_pool_size: 4 });
  // Slow rows, too: the answer is on its way for all the time.
  const slow = "SELECT repeat('x', 500), pg_sleep(0.02)::text FROM generate_series(1, 60) " +
    `UNION ALL SELECT '', ${waitsFor(1)}::text`;
  for (const database of ["db", "session"]) {
    const [holder, queued, copying, listening] = await Promise.all(
      Array.from({ length: 4 }, () => login(pooler, "postgres", database)),
    ) as [RawClient, RawClient, RawClient, RawClient];
    await close(1);
    holder.send(f.Q(slow));
    copying.send(f.Q("COPY t FROM STDIN"));
    assert.is(await copying.repliesUntil("G"), "G");
    assert.is((await listening.query("LISTEN news")).length, 0);
    const console = await login(pooler, "admin", "pgbouncer");
    await queued.query("BEGIN");
    const late = database === "db" ? [await login(pooler), await login(pooler)] : [];
    if (late.length > 0) {
      // One server is left for both of them.
      for (const client of late) client.send(f.Q(`SELECT ${waitsFor(1)}`));
      await waiting(pooler, 1, "db");
    }
    await under(pooler, "client_idle_timeout", 0.5, () => pause(1_200));
    await open(1);
    for (const client of late) assert.is(await client.replies(1, patient), RESULT);
    await queued.query("COMMIT");
    copying.send(f.c());
    assert.is(await copying.replies(), 'C"COPY 0" Z(I)');
    assert.match(await holder.replies(1, patient), /C"SELECT 61" Z\(I\)$/);
    await postgres.query("NOTIFY news, 'heard'");
    assert.match(await listening.repliesUntil("A", 1, patient), /A/);
    assert.ok((await console.table("SHOW VERSION")).length > 0);
    for (const client of [holder, queued, copying, listening, console, ...late]) client.close();
  }
});

// One user with a limit of its own made the limit of all others 0: they were cut at the next look.
tests("a user's own limit is that user's alone, and works without a setting", async () => {
  const own = "client_idle_timeout=0.3 query_timeout=0.6 idle_transaction_timeout=0.4";
  const pooler = await start({});
  const short = await Promise.all(Array.from({ length: 3 }, () => login(pooler, "short")));
  const others = [await login(pooler), await login(pooler, "free")];
  await short[1]!.query("BEGIN");
  short[2]!.send(f.Q("SELECT pg_sleep(60)"));
  pooler.rewrite(iniOf({}, { short: own, free: "client_idle_timeout=0" }, ""));
  await pooler.console("RELOAD");
  await isEnded(short[0]!, "57P05", "client_idle_timeout");
  await isEnded(short[1]!, "25P03", "idle transaction timeout");
  await isEnded(short[2]!, "57014", "query timeout");
  await pause(300);
  for (const client of others) {
    await client.query("SELECT 1");
    await client.end();
  }
});

// It was looked at only where some other limit was set.
tests("a user's own query_wait_timeout works alone, and its 0 lets that user off", async () => {
  for (
    const [setting, own, hasty, patientUser] of [
      [0, "0.5", "short", "free"],
      [0.5, "0", "free", "short"],
    ] as const
  ) {
    const pooler = await start({ query_wait_timeout: 0 }, {}, "pool_size=1");
    const clients = await Promise.all(
      [hasty, hasty, patientUser, patientUser].map((user) => login(pooler, user)),
    ) as [RawClient, RawClient, RawClient, RawClient];
    for (const holder of [clients[0], clients[2]]) await holder.query("BEGIN");
    for (const waiter of [clients[1], clients[3]]) waiter.send(f.Q("SELECT 1"));
    for (const user of [hasty, patientUser]) await waiting(pooler, 1, "db", user);
    const users = { short: `query_wait_timeout=${own}` };
    pooler.rewrite(iniOf({ query_wait_timeout: setting }, users, "pool_size=1"));
    await pooler.console("RELOAD");
    await isEnded(clients[1], "53300", "query_wait_timeout");
    await pause(500);
    await clients[2].query("COMMIT");
    assert.is(await clients[3].replies(1, patient), RESULT);
    for (const client of clients) client.close();
  }
});

tests.run();
