// What a transaction leaves on its session, in transaction pooling: it never reaches another client, and parameters are
// all that the same one's next transaction finds; what leaves nothing behind costs nothing. Locks are in
// advisory_locks_test.ts, programs of many settings in settings_test.ts.
// limit: 400 s

import { message } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import type { RawClient } from "../../support/raw_client.ts";
import {
  ask,
  closeAll,
  inParallel,
  login,
  nothingHangs,
  open,
  startPair,
  startPooler,
  Twin,
  upTo,
} from "../protocol/support.ts";
import {
  backendOf,
  cleanFor,
  logsStatements,
  noLocks,
  residueOf,
  statementsDuring,
  waiting,
} from "./support.ts";

needs("postgresql");

const test = suite("state of transactions");
let postgres: Postgres;
/** One server connection. */
let pooler: Pgweir;
/** Two server connections. */
let two: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair({ postgres: logsStatements }));
  two = await startPooler(postgres, { settings: { default_pool_size: 2 } });
  await postgres.query("CREATE ROLE other; CREATE SCHEMA elsewhere; GRANT other TO postgres");
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await two.stop();
  await postgres.stop("immediate");
});

const cycle = (sql: string, values: string[] = []) => [
  f.P("", sql),
  f.B("", "", values),
  f.E(),
  f.S(),
];

/** Changes a session in a way that PostgreSQL does not report, and how it shows. */
const settings: [string, string][] = [
  ["SET statement_timeout = '59s'", "SHOW statement_timeout"],
  ["set session lock_timeout to '59s'", "SHOW lock_timeout"],
  ["/* c */ SET statement_timeout='8s'; SET lock_timeout=1000", "SHOW lock_timeout"],
  ["-- c\n  SET work_mem = '5MB'", "SHOW work_mem"],
  ["SET search_path = elsewhere", "SHOW search_path"],
  ["SET SCHEMA 'elsewhere'", "SHOW search_path"],
  ["SET ROLE other", "SELECT current_user"],
  ["SET SESSION ROLE other", "SELECT current_user"],
  ["SET SESSION AUTHORIZATION other", "SELECT session_user"],
  ["SET SESSION SESSION AUTHORIZATION other", "SELECT session_user"],
  ["SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SHOW transaction_read_only"],
  [
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SHOW transaction_isolation",
  ],
  ["SET my.own = 'mine'", "SELECT nullif(current_setting('my.own', true), '')"],
  ["SELECT set_config('statement_timeout', '59s', false)", "SHOW statement_timeout"],
  ["SELECT pg_catalog.set_config('search_path', '', false)", "SHOW search_path"],
  ["select \"set_config\"('work_mem', '5MB', 1 > 2)", "SHOW work_mem"],
  ["SELECT set_config('work_mem', '5MB', x) FROM (VALUES (false)) v(x)", "SHOW work_mem"],
  ["DO $$ BEGIN PERFORM set_config('work_mem', '5MB', false); END $$", "SHOW work_mem"],
  ["DO $$ BEGIN SET work_mem = '5MB'; END $$", "SHOW work_mem"],
  ["SET XML OPTION DOCUMENT", "SHOW xmloption"],
  ["SET LOCAL work_mem = '6MB'; SET work_mem = '5MB'", "SHOW work_mem"],
  ["SET TimeZone = 'UTC'; SET work_mem = '5MB'", "SHOW work_mem"],
  ["SET work_mem = '5MB'; SET TimeZone = 'UTC'", "SHOW work_mem"],
  ["BEGIN; SET work_mem = '5MB'; COMMIT", "SHOW work_mem"],
  ["SELECT 1; SET work_mem = '5MB'; SELECT 1", "SHOW work_mem"],
  ["LOAD 'plpgsql'; SET work_mem = '5MB'", "SHOW work_mem"],
  ["UPDATE pg_settings SET setting = '5MB' WHERE name = 'work_mem'", "SHOW work_mem"],
  ["EXPLAIN ANALYZE SELECT set_config('work_mem', '5MB', false)", "SHOW work_mem"],
  ["SELECT U&\"set!005fconfig\" UESCAPE '!' ('work_mem', '5MB', false)", "SHOW work_mem"],
  [
    "SELECT query_to_xml($$SELECT set_config('work_mem', '5MB', false)$$, true, true, '')",
    "SHOW work_mem",
  ],
];

/** Ways to run one statement, each a transaction of its own. */
const forms: [string, (client: RawClient, sql: string) => Promise<unknown>][] = [
  ["alone", (client, sql) => client.query(sql)],
  ["in a transaction", async (client, sql) => {
    await client.query("BEGIN");
    await client.query(sql);
    await client.query("COMMIT");
  }],
  ["in the extended protocol", async (client, sql) => {
    const replies = await ask(client, cycle(sql));
    assert.match(replies, /^1 2 (?!.* E\().*Z\(I\)$/s, sql);
  }],
  ["prepared before", async (client, sql) => {
    assert.is(await ask(client, [f.P("s", sql), f.S()]), "1 Z(I)");
    await client.query("SELECT 1");
    const replies = await ask(client, [f.B("", "s"), f.E(), f.S()]);
    assert.match(replies, /^2 (?!.* E\().*Z\(I\)$/s, sql);
    await ask(client, [f.C("S", "s"), f.S()]);
  }],
  ["in one write with the whole transaction", async (client, sql) => {
    client.send(f.Q("BEGIN"), f.Q(sql), f.Q("COMMIT"));
    assert.match(await client.replies(3), /^C"BEGIN" Z\(T\) .*Z\(I\)$/);
  }],
];

test("a setting that is not reported is its client's, and nobody else's", async () => {
  // A statement_timeout or a role that one client had set was found by whoever had the server next, and was gone
  // for the client itself.
  const other = await open(pooler);
  const defaults = new Map<string, string>();
  for (const [, look] of settings) defaults.set(look, await ask(other, [f.Q(look)]));
  const problems: string[] = [];
  for (const [form, run] of forms) {
    const client = await open(pooler);
    const direct = await open(postgres);
    for (const [sql, look] of settings) {
      // Several statements are no statement of the extended protocol, and some of these hold a COMMIT.
      if (form !== "alone" && sql.includes(";") && !sql.startsWith("DO")) continue;
      await Promise.all([run(client, sql), run(direct, sql)]);
      const looks = [other, client, direct].map((reader) => ask(reader, [f.Q(look)]));
      const [seen, own, wanted] = await Promise.all(looks);
      if (seen !== defaults.get(look)) problems.push(`${sql}, ${form}, another client: ${seen}`);
      if (own !== wanted) problems.push(`${sql}, ${form}, its own client: ${own}, not ${wanted}`);
      assert.is.not(wanted, seen);
      for (const each of [client, direct]) await each.query("DISCARD ALL");
    }
    assert.is(await residueOf(other), cleanFor("postgres"));
    await client.end();
    await direct.end();
  }
  assert.equal(problems, []);
  await other.end();
});

/** A Query message of these bytes, each character one. */
function queryOf(bytes: string): Uint8Array {
  const body = Uint8Array.from(`${bytes}\0`, (character) => character.charCodeAt(0));
  return message(0x51, body);
}

test("a setting is found in any text, in any encoding", async () => {
  // What looks like the inside of a string to a lexer that takes a backslash for another thing, or half a
  // character for a backslash, is a statement to PostgreSQL.
  const other = await open(pooler);
  const hidden: [string, Record<string, string>, Uint8Array][] = [
    [
      "behind a backslash",
      { standard_conforming_strings: "off" },
      f.Q(
        "SELECT 'it\\'s', ';'; SET work_mem = '5MB'",
      ),
    ],
    ["behind an escaped quote", {}, f.Q("SELECT E'it\\'s', ';'; SET work_mem = '5MB'")],
    ["behind no escape", {}, f.Q("SELECT 'it\\', ''; SET work_mem = '5MB'")],
    [
      "behind half a character",
      { client_encoding: "SJIS" },
      queryOf(
        "SELECT E'\x95\x5c'; SET work_mem = '5MB'",
      ),
    ],
    [
      "behind half a character of another kind",
      { client_encoding: "BIG5" },
      queryOf(
        "SELECT E'\xa5\x5c'; SET work_mem = '5MB'",
      ),
    ],
    [
      "at the end of a long text",
      {},
      f.Q(
        `SELECT '${"x".repeat(300_000)}'; SET work_mem = '5MB'`,
      ),
    ],
    ["in a nested comment", {}, f.Q("/* /* */ ' */ SET work_mem = '5MB' /* ' */")],
    ["behind a dollar", {}, f.Q("SELECT $a$ ' $b$ $a$; SET work_mem = '5MB'")],
    ["behind a name with a dollar", {}, f.Q("SELECT 1 AS a$b$; SET work_mem = '5MB'")],
  ];
  const problems: string[] = [];
  for (const [what, parameters, query] of hidden) {
    const client = await open(pooler, { ...login, parameters });
    client.send(query);
    assert.match(await client.replies(), / C"SET" (S )*Z\(I\)$|^C"SET" Z\(I\)$/, what);
    const residue = await residueOf(other);
    if (residue !== cleanFor("postgres")) problems.push(`${what}: left is ${residue}`);
    assert.equal(await client.query("SHOW work_mem"), [["5MB"]], what);
    await client.end();
  }
  assert.equal(problems, []);
  await other.end();
});

test("what a function call of the protocol leaves is its client's", async () => {
  const [client, other] = [await open(pooler), await open(pooler)];
  const [oids] = await postgres.query(
    "SELECT 'set_config'::regproc::oid AS set, 'pg_advisory_lock(bigint)'::regprocedure::oid AS lock, " +
      "'pg_advisory_unlock(bigint)'::regprocedure::oid AS unlock",
  );
  const call = (name: string, values: string[]) => ask(client, [f.F(Number(oids![name]), values)]);
  assert.match(await call("set", ["work_mem", "5MB", "f"]), /^V Z\(I\)$/);
  assert.is(await residueOf(other), cleanFor("postgres"));
  assert.is(await residueOf(client), cleanFor("postgres").replace("4MB", "5MB"));
  await call("lock", ["7"]);
  other.send(f.Q("SELECT 1"));
  await waiting(pooler, 1);
  await call("unlock", ["7"]);
  assert.ok(await noLocks(postgres));
  assert.is(await other.replies(), 'T D C"SELECT 1" Z(I)');
  await client.end();
  await other.end();
});

test("a setting of a client that leaves at once is gone with it", async () => {
  const other = await open(pooler);
  const texts = [
    "SET work_mem = '5MB'",
    "CREATE TEMP TABLE t (i int)",
    "SELECT pg_advisory_lock(7)",
  ];
  for (let round = 0; round < 30; round++) {
    const client = await open(pooler);
    client.send(f.Q(texts[round % texts.length]!));
    if (round % 2 === 0) client.reset();
    else client.halfClose();
    assert.is(await residueOf(other), cleanFor("postgres"), texts[round % texts.length]);
    client.close();
  }
  // A server that did not come clean in time is gone a moment later.
  await until("no lock to be left", () => noLocks(postgres));
  await other.end();
});

test("a setting is its client's whatever else is reported beside it", async () => {
  // A pooler that counted what was set and what was reported took a reset, a SET LOCAL, the end of one or
  // another client's value for the report of a setting that PostgreSQL never reports.
  const other = await open(pooler);
  const steps: string[][] = [
    ["SET TimeZone = 'Asia/Tokyo'", "SET work_mem = '5MB'; RESET TimeZone"],
    ["SET TimeZone = 'Asia/Tokyo'", "RESET TimeZone; SET work_mem = '5MB'"],
    ["SET TimeZone = 'Asia/Tokyo'", "SET work_mem = '5MB'; SET TimeZone = DEFAULT"],
    ["BEGIN", "SELECT set_config('TimeZone', 'Asia/Tokyo', true); SET work_mem = '5MB'", "COMMIT"],
    ["BEGIN", "SET LOCAL TimeZone = 'Asia/Tokyo'", "COMMIT; SET work_mem = '5MB'"],
    ["BEGIN", "SET TimeZone = 'Asia/Tokyo'", "ROLLBACK; SET work_mem = '5MB'"],
    ["BEGIN; SET LOCAL TimeZone = 'Asia/Tokyo'", "SET work_mem = '5MB'; COMMIT"],
    [
      "BEGIN",
      "SAVEPOINT s",
      "SET DateStyle = 'German'",
      "SET work_mem = '5MB'; RELEASE s",
      "COMMIT",
    ],
    [
      "BEGIN",
      "SAVEPOINT s",
      "SET DateStyle = 'SQL'",
      "ROLLBACK TO s; SET work_mem = '5MB'",
      "COMMIT",
    ],
    ["SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'; SET work_mem = '5MB'"],
    ["SELECT set_config('TimeZone', 'Asia/Tokyo', false)", "SET work_mem = '5MB'; DISCARD PLANS"],
    ["SET ROLE other; SET work_mem = '5MB'; SET SESSION AUTHORIZATION DEFAULT"],
    ["SET SESSION AUTHORIZATION other", "SET work_mem = '5MB'"],
  ];
  const problems: string[] = [];
  for (const step of steps) {
    for (const zone of ["UTC", "Europe/Rome"]) {
      const as = { ...login, parameters: { TimeZone: zone } };
      const { pooled, direct } = await Twin.login(pooler, postgres, as);
      for (const sql of step) await Promise.all([pooled.query(sql), direct.query(sql)]);
      const residue = await residueOf(other);
      const what = `${step.join(", ")} (${zone})`;
      if (residue !== cleanFor("postgres")) problems.push(`${what}: left is ${residue}`);
      assert.equal(await other.query("SHOW TimeZone"), [["UTC"]], what);
      assert.is(await residueOf(pooled), await residueOf(direct), what);
      assert.equal(await pooled.query("SHOW TimeZone"), await direct.query("SHOW TimeZone"), what);
      await pooled.end();
      await direct.end();
    }
  }
  assert.equal(problems, []);
  await other.end();
});

test("inside its transaction a setting holds as long as PostgreSQL says", async () => {
  const steps = [
    ["BEGIN", "SET work_mem = '5MB'", "SHOW work_mem", "ROLLBACK"],
    [
      "BEGIN",
      "SET ROLE other",
      "SELECT current_user",
      "RESET ROLE",
      "SELECT current_user",
      "COMMIT",
    ],
    ["BEGIN", "SAVEPOINT s", "SET work_mem = '5MB'", "ROLLBACK TO s", "SHOW work_mem", "COMMIT"],
    ["BEGIN", "SET LOCAL work_mem = '5MB'", "SHOW work_mem", "COMMIT"],
    ["BEGIN", "SET LOCAL ROLE other", "SELECT current_user", "COMMIT", "SELECT current_user"],
    ["BEGIN", "SELECT set_config('work_mem', '5MB', true)", "SHOW work_mem", "COMMIT"],
    ["BEGIN", "SELECT set_config('work_mem', '5MB', false)", "SHOW work_mem", "ROLLBACK"],
    [
      "BEGIN",
      "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
      "SHOW transaction_isolation",
      "COMMIT",
    ],
    ["SHOW transaction_isolation", "SHOW work_mem", "SELECT current_user, session_user"],
    ["BEGIN", "SET work_mem = 'nonsense'", "SHOW work_mem", "ROLLBACK"],
    ["SET work_mem = 'nonsense'", "SHOW work_mem"],
    ["BEGIN", "CREATE TEMP TABLE t (i int) ON COMMIT DROP", "INSERT INTO t VALUES (1)", "COMMIT"],
    ["BEGIN", "PREPARE p AS SELECT 1", "EXECUTE p", "DEALLOCATE p", "EXECUTE p", "ROLLBACK"],
    ["BEGIN", "DECLARE c CURSOR FOR SELECT 1", "FETCH c", "COMMIT"],
    [
      "BEGIN",
      "CREATE TEMP TABLE t AS SELECT 1 AS i",
      "SELECT * FROM t",
      "ROLLBACK",
      "SELECT * FROM t",
    ],
  ];
  const twin = await Twin.login(pooler, postgres);
  for (const step of steps) {
    for (const sql of step) await twin.same([f.Q(sql)]);
    for (const sql of step) {
      if (/nonsense|EXECUTE|SELECT \* FROM t/.test(sql)) continue;
      await twin.same(cycle(sql));
    }
    await twin.same([f.Q("ROLLBACK")]);
  }
  await twin.end();
});

test("the time zone follows its client through transactions and savepoints, and no other", async () => {
  // A pooler that noted a SET when it saw it kept what was rolled back; one that noted SET LOCAL made it last.
  const other = await open(pooler);
  const twin = await Twin.login(pooler, postgres);
  const steps = [
    ["BEGIN", "SET TimeZone='Asia/Tokyo'", "ROLLBACK"],
    ["BEGIN", "SAVEPOINT s", "SET TimeZone='Asia/Tokyo'", "ROLLBACK TO s", "COMMIT"],
    ["BEGIN", "SET LOCAL TimeZone='Asia/Tokyo'", "COMMIT"],
    ["BEGIN", "SELECT 1", "SET TimeZone='Asia/Tokyo'", "COMMIT"],
    ["SELECT set_config('TimeZone', 'UTC', false)"],
    ["SELECT set_config('TimeZone', 'Europe/Rome', true)"],
    ["SELECT set_config('TimeZone', NULL, false)"],
    ["BEGIN", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "COMMIT"],
    ["SET TimeZone='nonsense'"],
    ["BEGIN", "SET TimeZone='nonsense'", "COMMIT"],
    ["BEGIN", "SET TimeZone='Asia/Tokyo'", "SET statement_timeout='7s'", "COMMIT"],
  ];
  for (const step of steps) {
    for (const sql of step) await twin.same([f.Q(sql)]);
    const what = step.join("; ");
    assert.equal(await other.query("SHOW TimeZone"), [["UTC"]], what);
    assert.equal(await other.query("SHOW statement_timeout"), [["0"]], what);
    await twin.same([f.Q("SHOW TimeZone")]);
  }
  const asked = [...cycle("SET TimeZone='nonsense'"), ...cycle("SHOW TimeZone")];
  await twin.same(asked, 2);
  await twin.end();
  await other.end();
});

test("a reset between transactions leaves the settings of logins as they are", async () => {
  // The pooler's own reset takes what PostgreSQL reports back to the server's defaults as well.
  const as = (name: string, zone: string) => ({
    ...login,
    parameters: { application_name: name, TimeZone: zone, client_encoding: "LATIN1" },
  });
  const clients = [
    await open(pooler, as("one", "Asia/Tokyo")),
    await open(pooler, as("two", "Europe/Rome")),
    await open(pooler),
  ];
  const wanted = [["one", "Asia/Tokyo", "LATIN1"], ["two", "Europe/Rome", "LATIN1"], [
    "",
    "UTC",
    "UTF8",
  ]];
  for (const sql of ["SET work_mem = '5MB'", "CREATE TEMP TABLE t (i int)", "SET ROLE other"]) {
    for (let round = 0; round < 3; round++) {
      for (const [at, client] of clients.entries()) {
        const seen = [];
        for (const name of ["application_name", "TimeZone", "client_encoding"]) {
          seen.push((await client.query(`SHOW ${name}`))[0]![0]);
        }
        assert.equal(seen, wanted[at], sql);
        await client.query(sql);
      }
    }
  }
  for (const client of clients) await client.end();
});

test("what leaves nothing behind costs nothing", async () => {
  const client = await open(pooler);
  const other = await open(pooler);
  const backend = await backendOf(client);
  const free = [
    ["SELECT 1"],
    ["BEGIN", "SET LOCAL work_mem = '5MB'", "COMMIT"],
    ["BEGIN", "set local role other", "COMMIT"],
    ["BEGIN", "SET TRANSACTION READ ONLY", "COMMIT"],
    ["BEGIN", "SET CONSTRAINTS ALL DEFERRED", "COMMIT"],
    ["BEGIN", "SELECT set_config('work_mem', '5MB', true)", "COMMIT"],
    ["SELECT pg_catalog.set_config('work_mem', '5MB', TRUE)"],
    ["SET TimeZone = 'Asia/Tokyo'"],
    ["SET TimeZone = 'UTC'"],
    ["SET application_name = 'a'"],
    ["RESET application_name"],
    ["BEGIN", "DECLARE c CURSOR FOR SELECT 1", "FETCH c", "COMMIT"],
    ["SELECT pg_advisory_xact_lock(1)"],
    ["SELECT pg_try_advisory_xact_lock(1)"],
    ["BEGIN", "SELECT pg_advisory_xact_lock_shared(1)", "COMMIT"],
    ["SELECT 'SET work_mem = 1; PREPARE p; CREATE TEMP TABLE x'"],
    ["SELECT 1 -- CREATE TEMP TABLE t"],
    ["NOTIFY nobody"],
    ["SELECT 1 / (random() * 0)::int"],
  ];
  const before = [
    'T D("UTC") C"SHOW" Z(I)',
    'T D("") C"SHOW" Z(I)',
  ];
  for (const sql of free) {
    const seen = await statementsDuring(postgres, backend, async () => {
      for (const each of sql) await ask(client, [f.Q(each)]);
      await ask(client, [f.Q("SELECT 'next'")]);
    });
    assert.equal(seen, [...sql, "SELECT 'next'"]);
    // The reported ones go back, so that they are changes again.
    await client.query("SET TimeZone = 'UTC'");
    await client.query("SET application_name = ''");
    const extended = await statementsDuring(postgres, backend, async () => {
      for (const each of sql) await ask(client, cycle(each));
    });
    assert.equal(extended, sql);
  }
  assert.is(await ask(other, [f.Q("SHOW TimeZone")]), before[0]);
  assert.is(await ask(other, [f.Q("SHOW application_name")]), before[1]);
  await client.end();
  await other.end();
});

test("a reported setting that has the value already costs nothing", async () => {
  // Drivers set these each time they take a connection from their pool; PostgreSQL reports no change.
  const client = await open(pooler);
  const backend = await backendOf(client);
  const sets = [
    "SET client_encoding = 'UTF8'",
    "SET NAMES 'UTF8'",
    "SET TimeZone = 'UTC'",
    "SET TIME ZONE 'UTC'",
    "set session datestyle to 'ISO'",
    "SET application_name = ''",
    'SET "standard_conforming_strings" = on',
    "SET TimeZone = 'UTC'; SELECT 1",
  ];
  for (const sql of sets) {
    const seen = await statementsDuring(postgres, backend, async () => {
      for (let i = 0; i < 3; i++) await client.query(sql);
    });
    assert.equal(seen, [sql, sql, sql]);
  }
  await client.end();
});

test("a reset, or a question, is run once for a transaction that needs it, and for no other", async () => {
  for (const sql of ["SET work_mem = '5MB'", "CREATE TEMP TABLE t (i int)"]) {
    const client = await open(pooler);
    const backend = await backendOf(client);
    const seen = await statementsDuring(postgres, backend, async () => {
      await client.query("BEGIN");
      await client.query(sql);
      await client.query("SELECT 1");
      await client.query("COMMIT");
      for (let i = 0; i < 3; i++) await client.query("SELECT 2");
    });
    const rest = seen.filter((each) => each !== "SELECT 2");
    assert.equal(rest.slice(0, 4), ["BEGIN", sql, "SELECT 1", "COMMIT"]);
    assert.is(rest.length, 5, rest.join("\n"));
    await client.end();
  }
});

test("temporary tables, prepared statements and held cursors end with their transaction", async () => {
  // They stuck to the server: another client read them, or found their names taken.
  const client = await open(pooler);
  const other = await open(pooler);
  const things: [string, string, string][] = [
    ["CREATE TEMP TABLE t AS SELECT 'secret'", "SELECT * FROM t", "E(42P01) Z(I)"],
    ["create temporary table t (s text)", "SELECT * FROM t", "E(42P01) Z(I)"],
    ["SELECT 'secret' INTO TEMP t", "SELECT * FROM t", "E(42P01) Z(I)"],
    ["CREATE LOCAL TEMP TABLE t (s text)", "SELECT * FROM t", "E(42P01) Z(I)"],
    ["CREATE TABLE pg_temp.t (s text)", "SELECT * FROM t", "E(42P01) Z(I)"],
    ["CREATE TEMP VIEW t AS SELECT 1", "SELECT * FROM t", "E(42P01) Z(I)"],
    ["CREATE TEMP SEQUENCE t", "SELECT nextval('t')", "E(42P01) Z(I)"],
    ["CREATE OR REPLACE TEMP VIEW t AS SELECT 'secret'", "SELECT * FROM t", "E(42P01) Z(I)"],
    ["CREATE TEMP RECURSIVE VIEW t (n) AS SELECT 1", "SELECT * FROM t", "E(42P01) Z(I)"],
    [
      "CREATE FUNCTION pg_temp.t() RETURNS int LANGUAGE sql AS 'SELECT 1'",
      "SELECT pg_temp.t()",
      "E(42883) Z(I)",
    ],
    ["EXPLAIN ANALYZE CREATE TEMP TABLE t AS SELECT 'secret'", "SELECT * FROM t", "E(42P01) Z(I)"],
    [
      "DO $$ BEGIN CREATE TEMP TABLE t AS SELECT 'secret'; END $$",
      "SELECT * FROM t",
      "E(42P01) Z(I)",
    ],
    ["DO $$ BEGIN EXECUTE 'PREPARE q AS SELECT 1'; END $$", "EXECUTE q", "E(26000) Z(I)"],
    ["PREPARE q AS SELECT 'secret'", "EXECUTE q", "E(26000) Z(I)"],
    ["DECLARE c CURSOR WITH HOLD FOR SELECT 'secret'", "FETCH c", "E(34000) Z(I)"],
    ["declare c insensitive cursor with hold for select 'secret'", "FETCH c", "E(34000) Z(I)"],
  ];
  const problems: string[] = [];
  for (const [make, use, gone] of things) {
    for (const [form, run] of forms) {
      for (const reader of [other, client]) {
        const whose = `${make}, ${form}, ${reader === client ? "its own" : "another"} client`;
        try {
          await run(client, make);
          const seen = await ask(reader, [f.Q(use)]);
          if (seen !== gone) problems.push(`${whose}: ${seen}`);
          // The name is free.
          await run(other, make);
        } catch (error) {
          problems.push(`${whose}: ${(error as Error).message}`);
          await Promise.all([client, other].map((each) => each.query("ROLLBACK")));
        }
        await client.query("DISCARD ALL");
        await client.query("SELECT 1");
      }
    }
  }
  // Where a search path leads to the schema of temporary things, a table is one without the word.
  for (const path of ["SET LOCAL search_path = pg_temp", "SET search_path TO 'pg_temp', public"]) {
    for (const sql of ["BEGIN", path, "CREATE TABLE t AS SELECT 'secret'", "COMMIT"]) {
      await client.query(sql);
    }
    const seen = await ask(other, [f.Q("SELECT * FROM t")]);
    if (seen !== "E(42P01) Z(I)") problems.push(`${path}: ${seen}`);
    await client.query("DISCARD ALL");
  }
  assert.equal(problems, []);
  assert.is(await residueOf(other), cleanFor("postgres"));
  await client.end();
  await other.end();
});

test("PREPARE of one client is never run by another's EXECUTE", async () => {
  const [a, b] = [await open(pooler), await open(pooler)];
  for (const [client, name] of [[a, "A"], [b, "B"]] as const) {
    await client.query(`PREPARE q AS SELECT '${name}'`);
  }
  assert.is(await ask(a, [f.Q("EXECUTE q")]), "E(26000) Z(I)");
  assert.is(await ask(b, [f.Q("EXECUTE q")]), "E(26000) Z(I)");
  for (const sql of ["BEGIN", "PREPARE z AS SELECT 'Z'", "COMMIT"]) await a.query(sql);
  const c = await open(pooler);
  assert.is(await ask(c, [f.Q("SELECT 'C'")]), 'T D("C") C"SELECT 1" Z(I)');
  await a.query("PREPARE q AS SELECT 'A'");
  await a.end();
  const d = await open(pooler);
  assert.is(await ask(d, [f.Q("EXECUTE q")]), "E(26000) Z(I)");
  for (let i = 0; i < 300; i++) await d.query(`PREPARE q AS SELECT ${i}, '${"x".repeat(500)}'`);
  assert.equal(await d.query("SELECT count(*) FROM pg_prepared_statements"), [["0"]]);
  for (const client of [b, c, d]) await client.end();
});

test("statements of the protocol outlast the resets of others", async () => {
  // A reset drops what the pooler has prepared on the server for everybody.
  await inParallel(upTo(6), 6, async (number) => {
    const client = await open(two);
    const own = `SELECT ${number}, $1::text`;
    assert.is(await ask(client, [f.P("own", own), f.S()]), "1 Z(I)");
    const dirt = [
      "CREATE TEMP TABLE t (i int)",
      "SET work_mem = '5MB'",
      "PREPARE q AS SELECT 1",
      "SET ROLE other",
      "SELECT 1",
      "DISCARD ALL",
    ];
    for (const round of upTo(40)) {
      const parts = [f.B("", "own", [String(round)]), f.E(), f.S()];
      const row = `2 D("${number}","${round}") C"SELECT 1" Z(I)`;
      assert.is(await ask(client, parts), row);
      const sql = dirt[(number + round) % dirt.length]!;
      if (sql === "DISCARD ALL") {
        await client.query(sql);
        assert.is(await ask(client, [f.P("own", own), f.S()]), "1 Z(I)");
      } else if (round % 2 === 0) {
        // In one write: the second comes while the first is not answered.
        client.send(f.Q(sql), ...parts);
        const replies = await client.replies(2, { values: true });
        assert.ok(replies.endsWith(row), `${sql}: ${replies}`);
      } else await client.query(sql);
    }
    await client.end();
  });
});

test("the poolers and their servers are well after all this", async () => {
  for (const each of [pooler, two]) await nothingHangs(each, postgres);
});

test.run();
