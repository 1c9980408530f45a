// What a client is told of session features that pooling by transactions does not keep: nothing, a warning
// beside the answer, or an error instead of it; and the counts on the console.

import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { type Login, RawClient } from "../../support/raw_client.ts";
import { ask, closeAll, connectString, nothingHangs, open } from "../protocol/support.ts";

needs("postgresql");

const test = suite("session features");
let postgres: Postgres;
let pooler: Pgweir;

test.before(async () => {
  postgres = await startPostgres();
  const entry = (more: string) => connectString(postgres, `dbname=postgres ${more}`);
  pooler = await startPgweir({
    ini: {
      databases: {
        plain: entry(""),
        told: entry("warn_session_features=notice"),
        strict: entry("warn_session_features=refuse"),
        session: entry("warn_session_features=refuse pool_mode=session"),
        statement: entry("warn_session_features=refuse pool_mode=statement"),
      },
      pgbouncer: { default_pool_size: 1, admin_users: "postgres" },
    },
  });
});
test.after.each(closeAll);
test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const to = (database: string): Login => ({ user: "postgres", database });
const extended = (sql: string) => [f.P("", sql), f.B(), f.D(), f.E(), f.S()];
const named = (sql: string) => [f.P("s", sql), f.D("S", "s"), f.B("", "s"), f.E(), f.S()];

/** Texts with what is wrong with them, and their answer. */
const used: readonly (readonly [string, string, RegExp])[] = [
  ["CREATE TEMP TABLE t (i int)", "a temporary table ends with the transaction", /C"CREATE TABLE"/],
  ["DECLARE c CURSOR WITH HOLD FOR SELECT 1", "a cursor WITH HOLD ends", /C"DECLARE CURSOR"/],
  ["PREPARE p AS SELECT 1", "what SQL PREPARE makes ends", /C"PREPARE"/],
  ["SELECT pg_try_advisory_lock(1) IS NULL", "a session-level advisory lock keeps", /D\("f"\)/],
];

test("nothing is said where warn_session_features is off", async () => {
  for (const [sql, , answer] of used) {
    const client = await open(pooler, to("plain"));
    for (const bytes of [[f.Q(sql)], extended(sql), named(sql)]) {
      const said = await ask(client, bytes);
      assert.match(said, answer);
      assert.not.match(said, /N\(|E\(/);
      await ask(client, [f.Q("DISCARD ALL")]);
    }
    await client.end();
  }
});

test("a warning stands before the ReadyForQuery where it is notice", async () => {
  for (const [sql, what] of used) {
    const client = await open(pooler, to("told"));
    for (const bytes of [[f.Q(sql)], extended(sql), named(sql)]) {
      client.send(...bytes);
      const messages = await client.messagesUntil("Z");
      const notice = messages.at(-2)!;
      assert.is(String.fromCharCode(notice.type), "N", sql);
      const text = new TextDecoder().decode(notice.body);
      assert.match(text, "WARNING");
      assert.match(text, "01000");
      assert.match(text, what);
      assert.match(await ask(client, [f.Q("SELECT 'next'")]), /^T D\("next"\)/);
      await ask(client, [f.Q("DISCARD ALL")]);
    }
    await client.end();
  }
});

test("an error stands in place of the answer where it is refuse, and the client lives on", async () => {
  for (const database of ["strict", "statement"]) {
    for (const [sql] of used) {
      const client = await open(pooler, to(database));
      for (const bytes of [[f.Q(sql)], extended(sql), named(sql)]) {
        assert.is(await ask(client, bytes), "E(0A000) Z(I)", `${database}: ${sql}`);
        assert.match(await ask(client, [f.Q("SELECT 'next'")]), /^T D\("next"\)/);
      }
      await client.end();
    }
  }
  assert.equal(await postgres.query("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"), []);
});

test("a refused text fails its transaction and its pipeline as any error does", async () => {
  const client = await open(pooler, to("strict"));
  assert.is(
    await ask(
      client,
      [f.Q("BEGIN"), f.Q("PREPARE p AS SELECT 1"), f.Q("SELECT 1"), f.Q("COMMIT")],
      4,
    ),
    'C"BEGIN" Z(T) E(0A000) Z(E) E(25P02) Z(E) C"ROLLBACK" Z(I)',
  );
  const pipeline = [
    ...[f.P("", "SELECT 'before'"), f.B(), f.E()],
    ...[f.P("x", "PREPARE p AS SELECT 1"), f.B("", "x"), f.E()],
    ...[f.P("", "SELECT 'skipped'"), f.B(), f.E(), f.S()],
    ...[f.P("x", "SELECT 'after'"), f.B("", "x"), f.E(), f.S()],
  ];
  assert.is(
    await ask(client, pipeline, 2),
    '1 2 D("before") C"SELECT 1" E(0A000) Z(I) 1 2 D("after") C"SELECT 1" Z(I)',
  );
  await client.end();
});

test("the message names the setting, the mode and what to do", async () => {
  const client = await open(pooler, to("strict"));
  client.send(f.Q("CREATE TEMP TABLE t (i int)"));
  const [error] = await client.messagesUntil("Z");
  const text = new TextDecoder().decode(error!.body);
  for (const part of ["warn_session_features", "transaction pooling", "pool_mode = session"]) {
    assert.match(text, part);
  }
  await client.end();
});

test("session pooling keeps everything and says nothing", async () => {
  const client = await open(pooler, to("session"));
  for (const [sql, , answer] of used) assert.match(await ask(client, [f.Q(sql)]), answer);
  assert.match(await ask(client, [f.Q("EXECUTE p")]), /D\("1"\)/);
  await client.end();
});

test("what is of the transaction only is no feature of a session", async () => {
  const client = await open(pooler, to("strict"));
  for (
    const sql of [
      "BEGIN; CREATE TEMP TABLE t (i int) ON COMMIT DROP; COMMIT",
      "BEGIN; DECLARE c CURSOR FOR SELECT 1; COMMIT",
      "SELECT pg_advisory_xact_lock(1)",
      "SET work_mem = '5MB'",
    ]
  ) assert.not.match(await ask(client, [f.Q(sql)]), /E\(|N\(/);
  await client.end();
});

test("SHOW FEATURES counts for each database and each client", async () => {
  const admin = await RawClient.login(pooler, to("pgbouncer"));
  const counts = async () => {
    const rows = await admin.query("SHOW FEATURES");
    return rows.filter(([database]) => database === "plain").map((row) => row.slice(4));
  };
  const [before] = await counts();
  const client = await open(pooler, to("plain"));
  await client.query("CREATE TEMP TABLE t (i int)");
  await client.query("PREPARE p AS SELECT 1");
  await client.query("PREPARE p AS SELECT 1; PREPARE q AS SELECT 2");
  const [after, own] = await counts();
  assert.equal(own, ["1", "0", "2", "0", "0"]);
  assert.equal(after!.map((count, i) => Number(count) - Number(before![i])), [1, 0, 2, 0, 0]);
  await client.end();
  await admin.end();
});

test("the pooler and its servers are well after all this", async () => {
  await nothingHangs(pooler, postgres);
});

test.run();
