// What transaction and statement pooling do not keep (temporary tables, WITH HOLD cursors, SQL PREPARE, session locks,
// parameters that a text does not name): counted for the console, and, as warn_session_features says, let through, warned about, or refused.

import { Backend, parseErrorFields } from "../../../shared/wire/mod.ts";
import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import type { RawClient } from "../../support/raw_client.ts";
import { ask, closeAll, connectString, nothingHangs, open } from "../protocol/support.ts";
import { backendsWhere } from "./support.ts";

needs("postgresql");

const test = suite("session features");
let postgres: Postgres;
let pooler: Pgweir;

test.before(async () => {
  postgres = await startPostgres();
  const server = connectString(postgres, "dbname=postgres pool_size=1");
  pooler = await startPgweir({
    ini: {
      databases: {
        quiet: `${server} warn_session_features=off`,
        // The global one.
        told: server,
        refused: `${server} warn_session_features=refuse`,
        single: `${server} warn_session_features=refuse pool_mode=statement`,
        whole: `${server} warn_session_features=refuse pool_mode=session`,
      },
      pgbouncer: { pool_mode: "transaction" },
      pgweir: { warn_session_features: "notice" },
    },
  });
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const as = (database: string) => open(pooler, { user: "postgres", database });

/** What is not kept, the column that counts it, and a part of what a client is told. */
const unkept: [string, string, RegExp][] = [
  ["CREATE TEMP TABLE t (i int)", "temp_tables", /temporary table/],
  ["DECLARE c CURSOR WITH HOLD FOR SELECT 1", "hold_cursors", /WITH HOLD/],
  ["PREPARE p AS SELECT 1", "prepares", /PREPARE/],
  ["SELECT pg_try_advisory_lock(7)", "advisory_locks", /advisory lock/],
  ["SELECT set_config('my.' || 'own', '1', false)", "unnamed_settings", /a parameter with a dot/],
];
const kept = [
  "SELECT 1",
  "SELECT 'CREATE TEMP TABLE t (i int)'",
  "CREATE TEMP TABLE t (i int) ON COMMIT DROP",
  "SELECT pg_advisory_xact_lock(7)",
  "SET work_mem = '5MB'",
  "SELECT set_config('my.own', '1', false)",
  "LISTEN news",
];

const cycle = (sql: string) => [f.P("", sql), f.B(), f.E(), f.S()];

/** The replies to some bytes, and the notices and errors among them. */
async function talk(
  client: RawClient,
  parts: readonly Uint8Array[],
  count = 1,
): Promise<{ replies: string; told: ReturnType<typeof parseErrorFields>[] }> {
  client.send(...parts);
  const messages = await client.messagesUntil("Z", count);
  const isTold = (type: number) =>
    type === Backend.noticeResponse || type === Backend.errorResponse;
  return {
    replies: messages.map((m) => String.fromCharCode(m.type)).join(""),
    told: messages.filter((m) => isTold(m.type)).map((m) => parseErrorFields(m.body)),
  };
}

test("off: nothing is said", async () => {
  const client = await as("quiet");
  for (const [sql] of unkept) {
    for (const parts of [[f.Q(sql)], cycle(sql)]) {
      const { replies, told } = await talk(client, parts);
      assert.equal(told, [], sql);
      assert.ok(replies.endsWith("CZ"), replies);
    }
    await client.query("SELECT pg_advisory_unlock_all()");
  }
  await client.end();
});

test("notice: a warning comes beside the answer, and the answer is the same", async () => {
  const client = await as("told");
  const silent = await as("quiet");
  for (const [sql, , what] of unkept) {
    for (const parts of [[f.Q(sql)], cycle(sql), [f.Q("BEGIN"), f.Q(sql), f.Q("ROLLBACK")]]) {
      const count = parts.filter((part) => part[0] === 0x51).length || 1;
      const { replies, told } = await talk(client, parts, count);
      assert.is(told.length, 1, `${sql}: ${replies}`);
      assert.equal([told[0]!.severity, told[0]!.code], ["WARNING", "01000"], sql);
      assert.match(told[0]!.message, what);
      const plain = await talk(silent, parts, count);
      assert.is(replies.replace("N", ""), plain.replies, sql);
      for (const each of [client, silent]) await each.query("SELECT pg_advisory_unlock_all()");
    }
  }
  for (const sql of kept) assert.equal((await talk(client, [f.Q(sql)])).told, [], sql);
  await client.end();
  await silent.end();
});

test("notice: the warning of a prepared statement comes when it runs", async () => {
  const client = await as("told");
  await talk(client, [f.P("s", "SELECT pg_try_advisory_lock($1)"), f.S()]);
  const { told } = await talk(client, [f.B("", "s", ["7"]), f.E(), f.S()]);
  assert.match(told.map((each) => each.message).join(), /advisory lock/);
  await client.query("SELECT pg_advisory_unlock_all()");
  await client.end();
});

test("refuse: an error comes instead of the statement, which does not run", async () => {
  for (const database of ["refused", "single"]) {
    const client = await as(database);
    for (const [sql, , what] of unkept) {
      const forms: [Uint8Array[], string][] = [
        [[f.Q(sql)], "E(0A000) Z(I)"],
        [cycle(sql), "E(0A000) Z(I)"],
        [[f.Q(`SELECT 1; ${sql}`)], "E(0A000) Z(I)"],
        [[f.P("n", sql), f.D("S", "n"), f.S()], "E(0A000) Z(I)"],
      ];
      for (const [parts, wanted] of forms) assert.is(await ask(client, parts), wanted, sql);
      const { told: [error] } = await talk(client, [f.Q(sql)]);
      assert.equal([error!.severity, error!.code], ["ERROR", "0A000"]);
      assert.match(error!.message, what);
      assert.match(error!.message, /warn_session_features/);
      assert.match(error!.hint ?? "", /session/);
      // Nothing was prepared by that name.
      assert.is(await ask(client, [f.B("", "n"), f.S()]), "E(26000) Z(I)", sql);
    }
    for (const sql of kept) {
      if (database === "single" && sql.startsWith("LISTEN")) continue;
      assert.not.match(await ask(client, [f.Q(sql)]), /E\(/, sql);
    }
    const rows = await client.query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'");
    assert.equal(rows, [["0"]]);
    await client.end();
  }
});

test("refuse: the error is PostgreSQL's own in its effect on what is around it", async () => {
  // As if the statement had failed there: the transaction, the rest of the cycle, what is in the pipe.
  const client = await as("refused");
  const direct = await open(postgres);
  const bad = "CREATE TEMP TABLE t (i int)";
  const shapes: [(sql: string) => Uint8Array[], number][] = [
    [(sql) => [f.Q("BEGIN"), f.Q(sql), f.Q("SELECT 1"), f.Q("ROLLBACK"), f.Q("SELECT 2")], 5],
    [(sql) => [f.Q("BEGIN"), f.Q("SAVEPOINT s"), f.Q(sql), f.Q("ROLLBACK TO s"), f.Q("COMMIT")], 5],
    [(sql) => [f.Q("SELECT 1"), f.Q(sql), f.Q("SELECT 2")], 3],
    [(sql) => [...cycle("SELECT 1"), ...cycle(sql), ...cycle("SELECT 2")], 3],
    [(sql) => [f.P("", "SELECT 1"), f.B(), f.E(), ...cycle(sql), ...cycle("SELECT 2")], 2],
    [(sql) => [f.Q("BEGIN"), ...cycle(sql), ...cycle("SELECT 1"), f.Q("COMMIT")], 4],
  ];
  for (const [at, [shape, count]] of shapes.entries()) {
    const refused = await ask(client, shape(bad), count);
    const failed = await ask(direct, shape("SELEC 1"), count);
    assert.is(refused.replaceAll("0A000", "42601"), failed, `shape ${at}`);
  }
  const aborted = [f.Q("BEGIN"), f.Q("SELECT 1/0"), f.Q(bad), ...cycle(bad), f.Q("ROLLBACK")];
  const refused = await ask(client, aborted, 5);
  assert.match(
    refused,
    /E\(22012\) Z\(E\) E\(25P02\) Z\(E\) E\((25P02|0A000)\) Z\(E\) C"ROLLBACK" Z\(I\)$/,
  );
  await client.end();
  await direct.end();
});

test("a session keeps it all, so nothing is refused", async () => {
  const client = await as("whole");
  for (const [sql] of unkept) {
    const { told, replies } = await talk(client, [f.Q(sql)]);
    assert.equal(told, [], sql);
    assert.ok(replies.endsWith("CZ"));
  }
  await client.end();
});

test("the console counts what was used, for each pool and each client", async () => {
  const totals = async (database: string) =>
    (await pooler.console("SHOW FEATURES")).find((row) =>
      row["database"] === database && row["port"] === null
    )!;
  const before = await totals("quiet");
  const client = await as("quiet");
  for (const [sql] of unkept) {
    for (let i = 0; i < 3; i++) {
      await client.query("SELECT pg_advisory_unlock_all()").then(() => client.query(sql));
    }
  }
  await client.query("SELECT pg_advisory_unlock_all()");
  await client.query("LISTEN news");
  const after = await totals("quiet");
  for (const [, column] of unkept) {
    assert.is(Number(after[column]) - Number(before[column]), 3, column);
  }
  assert.is(Number(after["listens"]) - Number(before["listens"]), 1);
  const own = (await pooler.console("SHOW FEATURES")).find((row) =>
    row["port"] === String(client.localPort)
  )!;
  assert.equal(unkept.map(([, column]) => own[column]), unkept.map(() => "3"));
  await client.end();
});

test("the pooler and its servers are well after all this", async () => {
  await backendsWhere(postgres, 0, "state <> 'idle'");
  await nothingHangs(pooler, postgres);
});

test.run();
