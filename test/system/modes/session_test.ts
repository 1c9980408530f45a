// Session pooling: for as long as a client is there its server is its own, with everything a session can hold, and
// every answer is PostgreSQL's own. What happens when it leaves is in leaving_test.ts and reset_test.ts.

import {
  message,
  noticeResponse,
  parameterStatus,
  parseDataRow,
} from "../../../shared/wire/mod.ts";
import { type FakeSession, startFakePostgres } from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import {
  ask,
  closeAll,
  login,
  nothingHangs,
  open,
  startPair,
  startPooler,
  Twin,
  upTo,
} from "../protocol/support.ts";
import { backendOf, logsStatements, poolRow, statementsDuring, waiting } from "./support.ts";

needs("postgresql");

const test = suite("session pooling");
let postgres: Postgres;
/** One server connection. */
let pooler: Pgweir;

test.before(async () => {
  const settings = { pool_mode: "session" };
  ({ postgres, pooler } = await startPair({ settings, postgres: logsStatements }));
  await postgres.query("CREATE ROLE other; CREATE SEQUENCE numbers");
});

test.after.each(async () => {
  closeAll();
  // A session that a failed test has left must not be the next one's.
  await until(
    "the server to be free",
    async () => Number((await poolRow(pooler, "postgres"))["sv_active"]) === 0,
  ).catch(() => {});
});

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

/** Asserts that the pooler and PostgreSQL answer each step alike. */
async function allTheSame(steps: readonly (string | Uint8Array[])[], as = login): Promise<void> {
  const twin = await Twin.login(pooler, postgres, as);
  for (const [at, step] of steps.entries()) {
    const parts = typeof step === "string" ? [f.Q(step)] : step;
    const count = parts.filter((part) => part[0] === 0x53 || part[0] === 0x51).length;
    try {
      await twin.same(parts, count);
    } catch (error) {
      const { message: text, details } = error as { message: string; details?: string };
      throw new Error(`step ${at} (${typeof step === "string" ? step : ""}): ${text} ${details}`);
    }
  }
  await twin.end();
}

test("a statement may have a name that in other modes is the pooler's", async () => {
  // It was prepared, and could then be neither bound, described nor closed.
  const name = "PGWEIR_1";
  const use = [f.B("", name), f.E(), f.S()];
  await allTheSame([
    [f.P(name, "SELECT 8"), f.S()],
    [f.D("S", name), ...use],
    [f.P(name, "SELECT 9"), f.S()],
    [f.C("S", name), f.P(name, "SELECT 9"), ...use],
    `DEALLOCATE "${name}"`,
    use,
  ]);
});

test("what a session holds is there until the session ends", async () => {
  // In a mode that gives the server back at the end of a transaction each of these is gone, or on
  // another server, or somebody else's.
  const channel = "'c' || pg_backend_pid()";
  await allTheSame([
    "CREATE TEMP TABLE t AS SELECT i FROM generate_series(1, 3) i",
    "SELECT * FROM t",
    "CREATE TEMP SEQUENCE s",
    "SELECT nextval('s'), nextval('s')",
    "SELECT currval('s'), lastval()",
    "SET statement_timeout = '7s'",
    "SHOW statement_timeout",
    "SET search_path = pg_catalog",
    "SELECT current_schemas(false)",
    "SELECT set_config('work_mem', '5MB', false)",
    "SHOW work_mem",
    "SET my.own = 'mine'",
    "SHOW my.own",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "SHOW transaction_read_only",
    "SET default_transaction_read_only = off",
    "SET ROLE other",
    "SELECT current_user, session_user",
    "RESET ROLE",
    "SET SESSION AUTHORIZATION other",
    "SELECT current_user, session_user",
    "RESET SESSION AUTHORIZATION",
    "PREPARE p AS SELECT $1::text || '!'",
    "EXECUTE p('a')",
    "BEGIN",
    "EXECUTE p('b')",
    "COMMIT",
    "DECLARE c CURSOR WITH HOLD FOR SELECT i FROM generate_series(1, 10) i",
    "FETCH 3 FROM c",
    "SELECT 1/0",
    "FETCH 3 FROM c",
    "SELECT pg_try_advisory_lock(pg_backend_pid())",
    "SELECT pg_advisory_unlock(pg_backend_pid())",
    "SELECT pg_advisory_unlock(pg_backend_pid())",
    `DO $$ BEGIN EXECUTE 'LISTEN ' || ${channel}; END $$`,
    `SELECT count(*) FROM pg_listening_channels() c WHERE c = ${channel}`,
    "LOAD 'plpgsql'",
    "SELECT setseed(0.5)",
    "SELECT random()",
    "SELECT random()",
    "BEGIN",
    "INSERT INTO t VALUES (4)",
    "SAVEPOINT one",
    "INSERT INTO t VALUES ('x')",
    "ROLLBACK TO one",
    "COMMIT",
    "SELECT * FROM t",
    "BEGIN; SELECT 1; SELECT 2",
    "SELECT 3",
    "ROLLBACK",
    "DISCARD ALL",
    "SELECT * FROM t",
    "EXECUTE p('a')",
    "SHOW statement_timeout",
  ]);
});

test("the server is the client's own between transactions, too", async () => {
  // Who waits gets it when the session has ended, not when a transaction has.
  const client = await open(pooler);
  const backend = await backendOf(client);
  await client.query("BEGIN; SELECT 1; COMMIT");
  const other = await open(pooler);
  other.send(f.Q("SELECT pg_backend_pid()"));
  await waiting(pooler, 1);
  for (let round = 0; round < 20; round++) assert.is(await backendOf(client), backend);
  await other.readNothingFor(20);
  const { cl_active, sv_active, sv_idle, pool_mode } = await poolRow(pooler, "postgres");
  assert.equal([cl_active, sv_active, sv_idle, pool_mode], ["1", "1", "0", "session"]);
  await client.end();
  assert.is(await other.replies(1, { values: true }), `T D("${backend}") C"SELECT 1" Z(I)`);
  await other.end();
});

test("a client that has asked nothing holds no server", async () => {
  const idle = await Promise.all(upTo(5).map(() => open(pooler)));
  const client = await open(pooler);
  assert.equal(await client.query("SELECT 1"), [["1"]]);
  await client.end();
  for (const each of idle) await each.end();
});

test("a login gets in although all servers are taken", async () => {
  // Whether a server takes what it asks for can't be tried just now; who only connects must not wait for that.
  const holder = await open(pooler);
  await holder.query("SELECT 1");
  const as = (TimeZone: string) => open(pooler, { ...login, parameters: { TimeZone } });
  const [known, unknown, wrong] = await Promise.all([
    as("UTC"),
    as("Europe/Paris"),
    as("nonsense"),
  ]);
  assert.is(known!.settings.get("TimeZone"), "UTC");
  unknown!.send(f.Q("SHOW TimeZone"));
  await waiting(pooler, 1);
  await holder.end();
  assert.match(
    await unknown!.replies(1, { values: true }),
    /T D\("Europe\/Paris"\) C"SHOW" Z\(I\)$/,
  );
  await unknown!.end();
  wrong!.send(f.Q("SELECT 1"));
  assert.match(await wrong!.repliesUntilClosed(), /^E\(22023\) closed$/);
  assert.is(await ask(known!, [f.Q("SHOW TimeZone")]), 'T D("UTC") C"SHOW" Z(I)');
  await known!.end();
});

test("prepared statements keep their names on the way to the server", async () => {
  // Renamed ones can't be found by EXECUTE, DEALLOCATE or in pg_prepared_statements, and statements
  // made by PREPARE can't be found by Bind.
  const names = "SELECT name, from_sql, parameter_types FROM pg_prepared_statements ORDER BY name";
  await allTheSame([
    [f.P("mine", "SELECT $1::int + 1"), f.P("", "SELECT 'unnamed'"), f.S()],
    names,
    "EXECUTE mine(41)",
    [f.P("mine", "SELECT 1"), f.S()],
    "PREPARE yours AS SELECT $1::text",
    [f.D("S", "yours"), f.B("", "yours", ["bound"]), f.D(), f.E(), f.S()],
    [f.P("yours", "SELECT 1"), f.S()],
    names,
    "DEALLOCATE mine",
    [f.B("", "mine", ["1"]), f.E(), f.S()],
    [f.P("mine", "SELECT 'again'"), f.B("", "mine"), f.E(), f.S()],
    [f.C("S", "yours"), f.S()],
    "EXECUTE yours('x')",
    names,
    "DEALLOCATE ALL",
    names,
    [f.B("", "mine"), f.E(), f.S()],
    [f.P("PGWEIR_1", "SELECT 1"), f.P("s 1", "SELECT 2"), f.P("Ä\u{1f600}", "SELECT 3"), f.S()],
    names,
    'DEALLOCATE PREPARE "PGWEIR_1"',
    names,
  ]);
});

test("statements and portals follow PostgreSQL's rules of names", async () => {
  // The rules are PostgreSQL's business here, and nobody else's.
  await allTheSame([
    [f.P("x", "SELECT 1"), f.S()],
    [f.P("x", "SELECT 2"), f.S()],
    [f.B("", "x"), f.E(), f.S()],
    [f.P("", "SELECT 1"), f.P("", "SELECT 2"), f.B(), f.E(), f.S()],
    [f.P("y", "SELEC 1"), f.S()],
    [f.P("y", "SELECT 3"), f.B("", "y"), f.E(), f.S()],
    [f.C("S", "nope"), f.C("P", "nope"), f.S()],
    [f.P("n", "SELECT 1"), f.B("n", "n"), f.C("P", "n"), f.B("", "n"), f.E(), f.S()],
    [f.D("S", "nope"), f.S(), f.B("", "nope"), f.S(), f.D("P", "nope"), f.S()],
    [f.P("m", "SELECT * FROM not_yet"), f.S()],
    "CREATE TEMP TABLE not_yet (i int)",
    [f.P("m", "SELECT * FROM not_yet"), f.S()],
    [f.B("", "nope"), f.C("S", "x"), f.P("j", "SELECT 2"), f.S()],
    [f.B("", "x"), f.E(), f.S()],
    [f.B("", "j"), f.E(), f.S()],
    "BEGIN",
    [f.B("kept", "x"), f.S()],
    [f.E("kept"), f.S()],
    "SELECT 1/0",
    [f.B("", "x"), f.S(), f.P("z", "SELECT 1"), f.S(), f.C("S", "x"), f.S()],
    "ROLLBACK",
    [f.B("", "x"), f.E(), f.S()],
    // Cleaning up, in every spelling that drivers have.
    ...["DEALLOCATE ALL", "DISCARD ALL", "discard all;", "/* x */ DISCARD  ALL"].flatMap((sql) => [
      [f.P("s1", "SELECT 1"), f.S()],
      sql,
      [f.B("", "s1"), f.E(), f.S()],
      [f.P("s1", "SELECT 2"), f.B("", "s1"), f.E(), f.S()],
      "BEGIN",
      sql,
      "ROLLBACK",
      [f.P("", sql), f.B(), f.E(), f.S()],
      [f.P("s1", "SELECT 3"), f.B("", "s1"), f.E(), f.C("S", "s1"), f.S()],
    ]),
  ]);
});

test("the unnamed statement lasts until the next one", async () => {
  await allTheSame([
    [f.P("", "SELECT 'kept', $1::text"), f.D("S", ""), f.S()],
    [f.B("", "", ["x"]), f.E(), f.S()],
    [f.S()],
    [f.B("", "", ["y"]), f.D(), f.E(), f.S()],
    "SELECT 1",
    [f.B("", "", ["z"]), f.E(), f.S()],
  ]);
});

test("a changed table is the next client's only as it is now", async () => {
  // A statement that outlived its client was given to the next one with the columns of before.
  await postgres.query("CREATE TABLE changing (a int)");
  await postgres.query("INSERT INTO changing VALUES (1)");
  const parts = [f.P("s", "SELECT * FROM changing"), f.D("S", "s"), f.B("", "s"), f.E(), f.S()];
  const twin = await Twin.login(pooler, postgres);
  await twin.same(parts);
  await postgres.query("ALTER TABLE changing ADD b int DEFAULT 5");
  await twin.same([f.B("", "s"), f.E(), f.S()]);
  await twin.same([f.P("s2", "SELECT * FROM changing"), f.B("", "s2"), f.E(), f.S()]);
  await twin.end();
  await allTheSame([parts, [f.B("", "s"), f.E(), f.S()]]);
});

test("settings of a login hold through resets, and nobody else sees them", async () => {
  // On a connection of its own a reset leads back to the startup packet. The server was started
  // without it, and in a session there is no next transaction in front of which to set it right.
  const parameters = {
    application_name: "app1",
    TimeZone: "asia/tokyo",
    options: "-c IntervalStyle=sql_standard",
  };
  const names = ["application_name", "TimeZone", "IntervalStyle", "DateStyle", "client_encoding"];
  const resets = [
    "RESET ALL",
    "DISCARD ALL",
    "RESET application_name",
    "SET application_name TO DEFAULT",
    "RESET TIME ZONE",
    "SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL;",
  ];
  for (const reset of resets) {
    const twin = await Twin.login(pooler, postgres, { ...login, parameters });
    for (const client of [twin.pooled, twin.direct]) {
      await client.query("SET application_name = 'tmp'");
      await client.query("SET TimeZone = 'America/Lima'");
      await client.query(reset);
    }
    for (let round = 0; round < 2; round++) {
      for (const name of names) {
        const shown = await twin.pooled.query(`SHOW ${name}`);
        assert.equal(shown, await twin.direct.query(`SHOW ${name}`), `${name} after ${reset}`);
        assert.is(
          twin.pooled.settings.get(name),
          twin.direct.settings.get(name),
          `${name} as told after ${reset}`,
        );
      }
    }
    await twin.end();
    const next = await open(pooler);
    const settings = "application_name IN ('app1', 'tmp') AND pid = pg_backend_pid()";
    const left = `SELECT count(*) FROM pg_stat_activity WHERE ${settings}`;
    assert.equal(await next.query(left), [["0"]], reset);
    assert.equal(await next.query("SHOW TimeZone"), [["UTC"]], reset);
    await next.end();
  }
});

test("settings are the client's own, from one session to the next", async () => {
  const pairs: [string, string, string][] = [
    ["DateStyle", "ISO", "PostgreSQL,European"],
    ["TimeZone", "Europe/Rome", "<+03>-03"],
    ["IntervalStyle", "sql_standard", "iso_8601"],
    ["client_encoding", "LATIN1", "utf-8"],
    ["application_name", "", "second"],
    ["standard_conforming_strings", "off", "on"],
  ];
  for (const [name, ...values] of pairs) {
    for (const value of values) {
      const as = { ...login, parameters: { [name]: value } };
      const other = values.find((each) => each !== value) ?? value;
      await allTheSame([`SHOW ${name}`, `SET ${name} = '${other}'`, `SHOW ${name}`], as);
    }
    await allTheSame([`SHOW ${name}`]);
  }
});

test("nothing is added to what a session sends", async () => {
  const client = await open(pooler);
  const backend = await backendOf(client);
  const sql = [
    "SELECT 1",
    "SET TimeZone = 'Asia/Tokyo'",
    "BEGIN",
    "SELECT 2",
    "COMMIT",
    "SELECT 3",
  ];
  const seen = await statementsDuring(postgres, backend, async () => {
    for (const each of sql) await client.query(each);
    await ask(client, [f.P("n", "SELECT 4"), f.B("", "n"), f.E(), f.S()]);
  });
  assert.equal(seen, [...sql, "SELECT 4"]);
  await client.end();
});

test("a listener hears of a notification while it waits for it", async () => {
  const client = await open(pooler);
  await client.query("LISTEN news");
  await postgres.query("NOTIFY news, 'first'");
  assert.is(await client.repliesUntil("A"), "A");
  // Inside a transaction it comes at its end, as PostgreSQL does it.
  await client.query("BEGIN");
  await postgres.query("NOTIFY news, 'second'");
  assert.is(await ask(client, [f.Q("SELECT 1")]), 'T D("1") C"SELECT 1" Z(T)');
  client.send(f.Q("COMMIT"));
  const replies = await client.repliesUntil("A");
  assert.match(replies, /^(C"COMMIT" )?(Z\(I\) )?A$/);
  if (!replies.includes("Z(I)")) await client.replies();
  await client.query("UNLISTEN news");
  // However it came to listen.
  await client.query("DO $$ BEGIN EXECUTE 'LISTEN hidden'; END $$");
  await postgres.query("NOTIFY hidden, 'third'");
  assert.is(await client.repliesUntil("A"), "A");
  await postgres.query("NOTIFY news, 'fourth'");
  assert.is(await ask(client, [f.Q("SELECT 2")]), 'T D("2") C"SELECT 1" Z(I)');
  await client.readNothingFor(30);
  await client.end();
});

test("many requests in one write are answered one by one", async () => {
  // A pooler that gave the server back at the first ReadyForQuery lost the rest of the answers.
  const other = await open(pooler);
  const twin = await Twin.login(pooler, postgres);
  await twin.same([f.Q("SELECT 0")]);
  other.send(f.Q("SELECT 'B'"));
  for (let round = 0; round < 20; round++) {
    await twin.same(upTo(50).map((i) => f.Q(`SELECT ${i}`)), 50);
    await twin.same(
      upTo(50).flatMap((i) => [f.P("", `SELECT ${i}`), f.B(), f.E(), f.S()]),
      50,
    );
    await twin.same([f.Q("SELECT 'after'")]);
  }
  // More than the pooler reads ahead.
  await twin.same(upTo(6000).map((i) => f.Q(`SELECT ${i}`)), 6000);
  await twin.end();
  assert.is(await other.replies(1, { values: true }), 'T D("B") C"SELECT 1" Z(I)');
  await other.end();
});

test("a reset in front of a command is answered in its place", async () => {
  // Drivers put DISCARD ALL in front of the first command after taking a connection from their pool,
  // and send the next command before the answer to the last.
  const twin = await Twin.login(pooler, postgres);
  const parts = (value: string) => [f.P("", "SELECT $1::text"), f.B("", "", [value]), f.D(), f.E()];
  for (let round = 0; round < 20; round++) {
    await twin.same([f.Q("DISCARD ALL"), ...parts("a"), f.S()], 2);
    await twin.same([
      f.Q("DISCARD ALL"),
      f.P("n", "SELECT $1::text"),
      f.D("S", "n"),
      f.B("", "n", ["a"]),
      f.E(),
      f.S(),
    ], 2);
    for (const client of [twin.pooled, twin.direct]) {
      client.send(...parts("a"), f.S(), f.P("", "SELECT $1::text"), f.H());
      assert.is(await client.replies(), '1 2 T D C"SELECT 1" Z(I)');
      assert.is(await client.repliesUntil("1"), "1");
      client.send(f.B("", "", ["b"]), f.E(), f.S());
      assert.is(await client.replies(1, { values: true }), '2 D("b") C"SELECT 1" Z(I)');
    }
    await twin.same([f.Q(`SELECT '${"x".repeat(10_000)}'`), f.Q("SELECT version()")], 2);
  }
  await twin.end();
});

test("messages cut anywhere are answered the same", async () => {
  const bytes = [
    f.P("s", "SELECT $1::int"),
    f.B("", "s", ["7"]),
    f.D(),
    f.E(),
    f.C("S", "s"),
    f.S(),
    f.Q("SELECT 'x'"),
  ];
  const whole = Uint8Array.from(bytes.flatMap((part) => [...part]));
  const client = await open(pooler);
  const wanted = await ask(client, bytes, 2);
  assert.is(wanted, '1 2 T D("7") C"SELECT 1" 3 Z(I) T D("x") C"SELECT 1" Z(I)');
  for (let cut = 1; cut < whole.length; cut++) {
    await client.sendCut(whole, [cut]);
    assert.is(await ask(client, [], 2), wanted, `cut at ${cut}`);
  }
  await client.sendByteByByte(whole);
  assert.is(await ask(client, [], 2), wanted, "byte by byte");
  // Statements and names of more than one read.
  const sizes = [32 * 1024, 64 * 1024, 200_000];
  for (const size of sizes) {
    const name = "n".repeat(1000);
    const text = `SELECT ${size} -- ${"x".repeat(size)}`;
    const parts = [f.P(name, text), f.B("", name), f.E(), f.C("S", name), f.S()];
    assert.is(await ask(client, parts), `1 2 D("${size}") C"SELECT 1" 3 Z(I)`);
  }
  await client.end();
});

test("copies run through in both directions", async () => {
  await allTheSame([
    "CREATE TEMP TABLE copied (i int primary key)",
    "COPY (SELECT i FROM generate_series(1, 5) i) TO STDOUT",
    [f.Q("COPY copied FROM STDIN"), f.d("1\n2\n"), f.c()],
    "SELECT count(*) FROM copied",
    [f.Q("COPY copied FROM STDIN"), f.d("3\n"), f.f("no")],
    [f.Q("COPY copied FROM STDIN"), f.d("bad\n"), f.d("4\n"), f.c()],
    "SELECT count(*) FROM copied",
  ]);
});

test("a cancel hits the running query of its session, and nothing between queries", async () => {
  const client = await open(pooler);
  const backend = await backendOf(client);
  for (let round = 0; round < 5; round++) {
    client.send(f.Q("SELECT pg_sleep(60)"));
    await until(
      "the query to run",
      async () =>
        (await postgres.backends()).some((b) =>
          b.query.includes("pg_sleep(60)") && b.state === "active"
        ),
    );
    assert.is(await client.cancel(), "");
    assert.is(await client.replies(), "T E(57014) Z(I)");
    for (let i = 0; i < 3; i++) assert.is(await client.cancel(), "");
    await client.readNothingFor(20);
    assert.is(await backendOf(client), backend);
  }
  await client.end();
});

test("a session whose backend ends is told so, and the next one gets another", async () => {
  const client = await open(pooler);
  const backend = await backendOf(client);
  await postgres.query(`SELECT pg_terminate_backend(${backend})`);
  assert.is(await client.repliesUntilClosed(), "E(57P01) closed");
  const next = await open(pooler);
  assert.is.not(await backendOf(next), backend);
  await next.end();
});

test("a worker that stops waits for its sessions, and lets nobody in", async () => {
  const stopping = await startPooler(postgres, {
    settings: { pool_mode: "session", default_pool_size: 3 },
  });
  try {
    const [idle, busy, fresh] = await Promise.all(upTo(3).map(() => open(stopping)));
    await idle!.query("SELECT 1");
    await busy!.query("BEGIN");
    stopping.signal("SIGINT");
    await until("the log", () => stopping.log().includes("got SIGINT"));
    await until("the listener to be closed", async () => {
      const late = await RawClient.connect(stopping).catch(() => null);
      late?.close();
      return late === null;
    });
    assert.is(await ask(idle!, [f.Q("SELECT 1")]), 'T D("1") C"SELECT 1" Z(I)');
    // It has no server yet, and gets none.
    fresh!.send(f.Q("SELECT 1"));
    assert.is(await fresh!.repliesUntilClosed(), "E(57P01) closed");
    await busy!.query("COMMIT");
    await busy!.end();
    assert.is(await ask(idle!, [f.Q("SELECT 2")]), 'T D("2") C"SELECT 1" Z(I)');
    assert.is(stopping.end, null);
    await idle!.end();
    assert.equal(await until("its end", () => stopping.end), { code: 0, signal: null });
  } finally {
    closeAll();
    await stopping.stop();
  }
});

test("a server's age ends no session, but no other session gets it", async () => {
  const aging = await startPooler(postgres, {
    settings: {
      pool_mode: "session",
      default_pool_size: 1,
      server_lifetime: 1,
      server_idle_timeout: 1,
    },
  });
  try {
    const client = await open(aging);
    const backend = await backendOf(client);
    await client.query("SELECT pg_sleep(2.2)");
    await client.readNothingFor(100);
    assert.is(await backendOf(client), backend);
    await client.end();
    const next = await open(aging);
    assert.is.not(await backendOf(next), backend);
    await next.end();
  } finally {
    closeAll();
    await aging.stop();
  }
});

test("what a server says between queries reaches the client whose session it is", async () => {
  // Where servers go from hand to hand nobody may get this; here it is always for this client.
  const fake = await startFakePostgres();
  const front = await startPooler(fake, {
    settings: { pool_mode: "session", default_pool_size: 1 },
  });
  try {
    const client = await open(front);
    await ask(client, [f.Q("hello")]);
    const [session] = fake.open as [FakeSession];
    const body = new TextEncoder().encode("\0\0\0\x07news\0payload\0");
    session.send(
      noticeResponse({ severity: "WARNING", code: "01000", message: "unasked" }),
      parameterStatus("in_hot_standby", "on"),
      parameterStatus("TimeZone", "Europe/Rome"),
      message(0x41, body),
    );
    const messages = await client.messagesUntil("A");
    assert.is(messages.map((m) => String.fromCharCode(m.type)).join(" "), "N S S A");
    assert.equal(Uint8Array.from(messages.at(-1)!.body), body);
    assert.is(client.settings.get("TimeZone"), "Europe/Rome");
    client.send(f.Q("still there"));
    const row = (await client.messagesUntil("Z")).find((m) => m.type === 0x44)!;
    assert.is(new TextDecoder().decode(parseDataRow(row.body)![0]!), "still there");
    assert.is(fake.sessions.length, 1);
    await client.end();
  } finally {
    closeAll();
    await front.stop();
    await fake.stop();
  }
});

test("the pooler and its servers are well after all this", async () => {
  await nothingHangs(pooler, postgres);
});

test.run();
