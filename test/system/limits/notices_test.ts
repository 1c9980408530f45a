// What the pooler tells clients that is no error: query_wait_notify and login_notify_message.
// load: waits

import { readInt32 } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { waiting } from "../modes/support.ts";

needs("postgresql");

const postgres = await startPostgres();
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
const user = "postgres";
const patient = { timeoutMs: 30_000 };
const text = new TextDecoder();
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
const queued = "SNOTICE\0VNOTICE\0C00000\0" +
  "MNo server connection available in postgres backend, client being queued\0\0";

const tests = suite("notices");

tests.after(async () => {
  await postgres.stop("immediate");
});

tests("query_wait_notify tells a client that waits, once for each wait", async () => {
  const pooler = await startPgweir({
    ini: { databases: { db: `${at} pool_size=1` }, pgbouncer: { query_wait_notify: 0.5 } },
  });
  const login = { user, database: "db" };
  const holder = await RawClient.login(pooler, login);
  const clients = [await RawClient.login(pooler, login), await RawClient.login(pooler, login)];
  const ways = [
    f.Q("SELECT 1"),
    new Uint8Array([...f.P("", "SELECT 1"), ...f.B(), ...f.E(), ...f.S()]),
  ];
  const answers = ['T D C"SELECT 1" Z(I)', '1 2 D C"SELECT 1" Z(I)'];
  for (let round = 0; round < 2; round++) {
    await holder.query("BEGIN");
    for (const [i, client] of clients.entries()) client.send(ways[i]!);
    for (const client of clients) {
      const [notice] = await client.messagesUntil("N", 1, 30_000);
      assert.is(text.decode(notice!.body), queued);
    }
    // Not again, however long it waits.
    await pause(800);
    await waiting(pooler, 2, "db");
    await holder.query("COMMIT");
    for (const [i, client] of clients.entries()) {
      assert.is(await client.replies(1, patient), answers[i]!);
    }
  }
  for (const client of [holder, ...clients]) await client.end();
  await pooler.stop();
});

// libpq takes anything but an answer to its startup packet for a broken server.
tests("query_wait_notify tells nobody who is not logged in, and nobody when it is 0", async () => {
  const pooler = await startPgweir({
    ini: {
      databases: { db: `${at} pool_size=1 connect_query='SELECT pg_sleep(1.2)'` },
      pgbouncer: { query_wait_notify: 0.3 },
    },
  });
  const client = await RawClient.connect(pooler);
  client.startup({ user, database: "db" });
  const [first, ...others] = await client.messagesUntil("Z", 1, 30_000);
  assert.is(String.fromCharCode(first!.type), "R");
  assert.is(others.some(({ type }) => type === 0x4e), false);
  await client.end();
  await pooler.stop();

  const silent = await startPgweir({
    ini: { databases: { db: `${at} pool_size=1` }, pgbouncer: { query_wait_notify: 0 } },
  });
  const holder = await RawClient.login(silent, { user, database: "db" });
  const other = await RawClient.login(silent, { user, database: "db" });
  await holder.query("BEGIN");
  other.send(f.Q("SELECT 1"));
  await pause(1_000);
  assert.is(other.unread, 0);
  await holder.query("COMMIT");
  assert.is(await other.replies(1, patient), 'T D C"SELECT 1" Z(I)');
  for (const each of [holder, other]) await each.end();
  await silent.stop();
});

// The place of the cancel key in a greeting is counted from its end.
tests("login_notify_message comes with the greeting, which stays whole", async () => {
  const words = "maintenance tonight at 22:00, Grüße";
  const pooler = await startPgweir({
    ini: {
      databases: { db: at, session: `${at} pool_mode=session` },
      pgbouncer: { login_notify_message: words },
    },
  });
  const secrets = new Set<string>();
  for (const database of ["db", "db", "session"]) {
    for (const minor of [0, 2]) {
      const client = await RawClient.connect(pooler);
      client.startup({ user, database }, minor);
      const greeting = await client.messagesUntil("Z", 1, 30_000);
      const kinds = greeting.map(({ type }) => String.fromCharCode(type)).join("");
      assert.match(kinds, /^RS+NKZ$/);
      const notice = greeting.find(({ type }) => type === 0x4e)!;
      assert.is(text.decode(notice.body), `SNOTICE\0VNOTICE\0C00000\0M${words}\0\0`);
      const key = greeting.find(({ type }) => type === 0x4b)!.body;
      assert.is(key.length, minor === 0 ? 8 : 36);
      assert.ok(readInt32(key, 0) > 0);
      secrets.add(Buffer.from(key).toString("hex"));
      await client.query("SELECT 1");
      await client.end();
    }
  }
  assert.is(secrets.size, 6);
  // A cancel with such a key finds its client.
  const client = await RawClient.login(pooler, { user, database: "db" });
  client.send(f.Q("SELECT pg_sleep(60)"));
  await until(
    "the query to run",
    async () =>
      (await postgres.query(
        "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%sleep(60)%' " +
          "AND state = 'active' AND pid <> pg_backend_pid()",
      )).length === 1,
  );
  await client.cancel();
  assert.match(await client.replies(1, patient), /E\(57014\) Z\(I\)$/);
  await client.end();
  // The console speaks for itself.
  const console = await RawClient.connect(pooler);
  console.startup({ user: "admin", database: "pgbouncer" });
  assert.is((await console.messagesUntil("Z")).some(({ type }) => type === 0x4e), false);
  await console.end();
  await pooler.stop();
});

tests.run();
