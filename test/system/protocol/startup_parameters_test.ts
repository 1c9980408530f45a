// Startup parameters of any kind: what PostgreSQL knows holds for the client that asked for it and for nobody else,
// what it does not know or does not want is told at login, and defaults are the servers' own, also when they change.

import { errorResponse, parameterStatus } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { queryText, startFakePostgres } from "../../support/fake_postgres.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { RawClient, ServerError, type Target } from "../../support/raw_client.ts";
import {
  closeAll,
  login,
  noServers,
  nothingHangs,
  open,
  startPair,
  startPooler,
  Twin,
} from "./support.ts";

needs("postgresql");

const test = suite("startup parameters");
let postgres: Postgres;
let pooler: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair({
    settings: { ignore_startup_parameters: "geqo, Enable_Sort" },
    userlist: { postgres: "", admin: "", app: "", own1: "", own2: "" },
  }));
  await postgres.query(`
    CREATE ROLE r1; CREATE ROLE x SUPERUSER; CREATE ROLE app LOGIN; GRANT r1 TO app;
    CREATE SCHEMA s1; CREATE TABLE s1.t AS SELECT 1 AS i;
    CREATE SCHEMA s2; CREATE TABLE s2.t AS SELECT 'two' AS i;
    CREATE TABLE public.t AS SELECT 0.5 AS i`);
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

type Parameters = Readonly<Record<string, string>>;

function loginWith(parameters: Parameters, user = "postgres") {
  return { ...login, user, parameters };
}

/** The error that a login ends with, as text; "" if it succeeds. */
async function refusal(target: Target, parameters: Parameters, user?: string): Promise<string> {
  try {
    await open(target, loginWith(parameters, user));
    return "";
  } catch (error) {
    if (error instanceof ServerError) return error.message;
    throw error;
  }
}

async function pid(client: RawClient): Promise<string> {
  return (await client.query("SELECT pg_backend_pid()"))[0]![0]!;
}

const honoured: [Parameters, string][] = [
  [{ extra_float_digits: "2" }, "SHOW extra_float_digits"],
  [{ statement_timeout: "50000" }, "SHOW statement_timeout"],
  [{ lock_timeout: "100ms" }, "SHOW lock_timeout"],
  [{ idle_in_transaction_session_timeout: "1min" }, "SHOW idle_in_transaction_session_timeout"],
  [{ enable_seqscan: "off" }, "SHOW enable_seqscan"],
  [{ ENABLE_SeqScan: "Off" }, "SHOW enable_seqscan"],
  [{ search_path: "s1" }, "SELECT * FROM t"],
  [{ search_path: 's2, "we""ird", public' }, "SHOW search_path"],
  [{ search_path: "" }, "SHOW search_path"],
  [{ options: "-c search_path=s2 --work-mem=1MB" }, "SELECT i, current_setting('work_mem') FROM t"],
  [{ options: "-c work_mem=1MB", WORK_MEM: "2MB" }, "SHOW work_mem"],
  [{ WORK_MEM: "2MB", options: "-c work_mem=1MB" }, "SHOW work_mem"],
  [{ default_transaction_read_only: "on" }, "SHOW transaction_read_only"],
  [{ default_transaction_isolation: "serializable" }, "SHOW transaction_isolation"],
  [{ role: "r1" }, "SELECT current_user, session_user"],
  [{ role: "r1", log_statement: "none", work_mem: "3MB" }, "SHOW work_mem"],
  [{ client_encoding: "LATIN1", statement_timeout: "1h" }, "SHOW client_encoding"],
  [{ "bogus.custom": 'it\'s \\ "1"; --' }, "SHOW bogus.custom"],
  [{ IntervalStyle: "iso_8601" }, "SHOW IntervalStyle"],
  [
    { intervalstyle: "iso_8601", timezone: "asia/tokyo" },
    "SELECT now() - now(), current_setting('timezone')",
  ],
];

test("what PostgreSQL knows holds for the client that asked for it, and for nobody else", async () => {
  // Unknown keys were dropped in silence, or set on a shared server that never reported them back: the next
  // client had another's timeout, schema or even role.
  const other = await Twin.login(pooler, postgres);
  for (const [parameters, sql] of honoured) {
    const twin = await Twin.login(pooler, postgres, loginWith(parameters));
    for (let round = 0; round < 3; round++) {
      const what = JSON.stringify(parameters);
      assert.equal(await twin.pooled.query(sql), await twin.direct.query(sql), what);
      // A custom parameter exists from then on, without a value: PostgreSQL forgets none.
      if (!("bogus.custom" in parameters)) await other.same([f.Q(sql)]);
      else assert.equal(await other.pooled.query("SHOW bogus.custom"), [[""]]);
      assert.is(await pid(twin.pooled), await pid(other.pooled));
    }
    assert.equal(twin.pooled.settings, twin.direct.settings, JSON.stringify(parameters));
    await twin.end();
  }
  // From one to the next, without anybody's defaults between them.
  const twins: Twin[] = [];
  for (const [parameters] of honoured) {
    twins.push(await Twin.login(pooler, postgres, loginWith(parameters)));
  }
  for (let round = 0; round < 2; round++) {
    for (const [index, twin] of twins.entries()) {
      const sql = honoured[index]![1];
      assert.equal(await twin.pooled.query(sql), await twin.direct.query(sql), sql);
    }
  }
});

test("a session that acts for another user is nobody else's", async () => {
  // Whoever came next had the rights of the one before, or of the one before that.
  const other = await open(pooler);
  const who = "SELECT session_user, current_user";
  const rows: [Parameters, string[]][] = [
    [{ session_authorization: "x" }, ["x", "x"]],
    [{ session_authorization: "app", role: "r1" }, ["app", "r1"]],
    [{ role: "r1" }, ["postgres", "r1"]],
  ];
  const clients = await Promise.all(
    rows.map(([parameters]) => open(pooler, loginWith(parameters))),
  );
  for (let round = 0; round < 3; round++) {
    for (const [index, client] of clients.entries()) {
      assert.equal(await client.query(who), [rows[index]![1]]);
      if (round > 0) assert.equal(await other.query(who), [["postgres", "postgres"]]);
    }
  }
  assert.is(clients[1]!.settings.get("session_authorization"), "app");
  assert.is(clients[1]!.settings.get("is_superuser"), "off");
  assert.is(other.settings.get("is_superuser"), "on");
});

test("a timeout ends the statements of its client only", async () => {
  // A statement_timeout that stayed on the server ended the queries of whoever came next.
  // Long enough for what a busy machine makes of everything else that runs under it.
  const twin = await Twin.login(pooler, postgres, loginWith({ statement_timeout: "1000" }));
  const other = await open(pooler);
  for (let round = 0; round < 2; round++) {
    assert.is(await twin.same([f.Q("SELECT pg_sleep(60)")]), "T E(57014) Z(I)");
    assert.equal(await other.query("SELECT 1 FROM pg_sleep(1.2)"), [["1"]]);
  }
});

test("what the file lists is ignored, in any spelling", async () => {
  // An operator's list was compared with the letters as the client sent them.
  const parameters = { geqo: "nonsense", ENABLE_SORT: "off", options: "-c Geqo=off" };
  const client = await open(pooler, loginWith(parameters));
  assert.equal(await client.query("SHOW geqo"), [["on"]]);
  assert.equal(await client.query("SHOW enable_sort"), [["on"]]);
});

test("what PostgreSQL refuses is told at login, in its words, and costs nobody a server", async () => {
  // The client was logged in first and ended at its first query, or the server was closed.
  const other = await open(pooler);
  const server = await pid(other);
  const refused: Parameters[] = [
    { nonsense: "1" },
    { statement_timeout: "soon" },
    { work_mem: "1 parsec" },
    { enable_seqscan: "perhaps" },
    { TimeZone: "nonsense" },
    { DateStyle: "nonsense" },
    { IntervalStyle: "nonsense", application_name: "good" },
    { client_encoding: "nonsense" },
    { search_path: "a,,b" },
    { role: "nobody" },
    { port: "1" },
    { server_version: "1" },
    { shared_buffers: "1GB" },
    { work_mem: "1MB", search_path: "s1", options: "-c lock_timeout=never" },
    { default_tablespace: "nowhere" },
  ];
  for (const parameters of refused) {
    const what = JSON.stringify(parameters);
    const direct = await refusal(postgres, parameters);
    // A setting that exists and may not be changed now has other words in a session than at its start.
    const expected = direct.replace("cannot be changed without restarting the server", "...");
    const pooled = await refusal(pooler, parameters);
    assert.is(
      pooled.replace("cannot be changed without restarting the server", "..."),
      expected,
      what,
    );
    assert.not(pooled === "", what);
    assert.is(await pid(other), server);
    assert.equal(await other.query("SELECT * FROM t"), [["0.5"]]);
    assert.equal(await other.query("SHOW work_mem"), [["4MB"]]);
  }
  // A role without the right to take another, and a setting of superusers.
  for (
    const parameters of [{ role: "x" }, { session_authorization: "x" }, { log_statement: "all" }]
  ) {
    const what = JSON.stringify(parameters);
    assert.is(
      await refusal(pooler, parameters, "app"),
      await refusal(postgres, parameters, "app"),
      what,
    );
  }
  const client = await open(pooler, loginWith({ role: "r1" }, "app"));
  assert.equal(await client.query("SELECT current_user, session_user"), [["r1", "app"]]);
});

test("names that cannot be PostgreSQL's, and too many of them, are refused by the pooler", async () => {
  // A name went into a statement as it was.
  await postgres.query("CREATE TABLE target (i int)");
  for (
    const name of [
      "work_mem; DROP TABLE target",
      'a"b',
      "a'b",
      "a b",
      "a.",
      ".a",
      "1a",
      'a."b"',
      "é",
    ]
  ) {
    assert.match(
      await refusal(pooler, { [name]: "1" }),
      /^.*FATAL 22023 unsupported startup/,
      name,
    );
  }
  const many = Object.fromEntries(Array.from({ length: 51 }, (_, i) => [`own.p${i}`, "v"]));
  assert.match(await refusal(pooler, many), /FATAL 22023 too many startup parameters/);
  const { "own.p0": _, ...fewer } = many;
  assert.is(await refusal(pooler, fewer), "");
  const options = Object.entries(many).map(([name, value]) => `-c ${name}=${value}`).join(" ");
  assert.match(await refusal(pooler, { options }), /FATAL 22023 too many startup parameters/);
  assert.equal(await postgres.query("SELECT * FROM target"), []);
});

test("a value is the same after every change of hands, whatever is in it", async () => {
  // Quotes, backslashes and lists of names were quoted once more with each server, or ran as SQL.
  const values = [
    "a'b",
    "a\\b",
    "a\\'; DROP TABLE t; --",
    "'; DROP TABLE t; --",
    '"we""ird", public',
    "$$x$$",
    "",
    " ",
    "two\nlines",
    "x".repeat(63),
    "x".repeat(64),
    "x".repeat(4000),
    "日本語",
    "E'x'",
    "%s",
    "\u{1f600}",
  ];
  for (const strings of ["on", "off"]) {
    const other = await open(pooler, loginWith({ standard_conforming_strings: strings }));
    for (const value of values) {
      for (const name of ["own.value", "search_path"]) {
        const what = `${name} ${JSON.stringify(value.slice(0, 80))}`;
        const direct = await refusal(postgres, { [name]: value });
        assert.is(await refusal(pooler, { [name]: value }), direct, what);
        if (direct !== "") continue;
        const parameters = { [name]: value, standard_conforming_strings: strings };
        const twin = await Twin.login(pooler, postgres, loginWith(parameters));
        for (let round = 0; round < 4; round++) {
          await twin.same([f.Q(`SHOW ${name}`)]);
          assert.equal(await other.query("SELECT i, current_schemas(false) FROM t"), [[
            "0.5",
            "{public}",
          ]]);
        }
        await twin.end();
      }
    }
    await other.end();
  }
});

test("a client is greeted with the values as PostgreSQL spells them", async () => {
  // It was greeted with its own words, and corrected behind its first query.
  const parameters = {
    DateStyle: "german",
    TimeZone: "asia/tokyo",
    client_encoding: "latin-1",
    application_name: "n".repeat(70),
    default_transaction_read_only: "1",
  };
  const twin = await Twin.login(pooler, postgres, loginWith(parameters));
  assert.equal(twin.pooled.settings, twin.direct.settings);
  await twin.same([f.Q("SELECT 1")]);
  await twin.same([f.P("", "SELECT 1"), f.B(), f.E(), f.S()]);
  // Who comes second is told the same, and without a server's help: the only one is in use.
  await twin.pooled.query("BEGIN");
  const again = await open(pooler, loginWith(parameters));
  assert.equal(again.settings, twin.direct.settings);
  const named = await open(pooler, loginWith({ ...parameters, application_name: "other" }));
  assert.is(named.settings.get("application_name"), "other");
  await twin.pooled.query("ROLLBACK");
  await twin.end();
});

test("a value that no server has judged waits for one as a query does", async () => {
  // A client that was told it was in, and then that it was not, had sent its first transaction already.
  const holder = await open(pooler);
  await holder.query("BEGIN");
  const waiting = async () => {
    const rows = await pooler.console("SHOW POOLS");
    return rows.find((row) =>
      row["database"] === "postgres" && row["user"] === "postgres"
    )!["cl_waiting"];
  };
  const parameters = { TimeZone: "Africa/Cairo", work_mem: "5MB" };
  const bad = refusal(pooler, { TimeZone: "Africa/Nowhere" });
  await until("the first to wait", async () => await waiting() === "1");
  const leaver = await RawClient.connect(pooler);
  leaver.startup({ user: "postgres", database: "postgres", TimeZone: "Africa/Accra" });
  await until("the second to wait", async () => await waiting() === "2");
  const client = open(pooler, loginWith(parameters));
  await until("the third to wait", async () => await waiting() === "3");
  leaver.close();
  await until("the second to leave", async () => await waiting() === "2");
  // Nothing new in these: the server is not needed to let them in.
  await (await open(pooler)).end();
  await (await open(pooler, loginWith({ application_name: "never heard of" }))).end();
  await holder.query("COMMIT");
  assert.match(await bad, /FATAL 22023 .*Africa\/Nowhere/);
  assert.equal(await (await client).query("SHOW work_mem"), [["5MB"]]);
  assert.is((await client).settings.get("TimeZone"), "Africa/Cairo");
  assert.is(await waiting(), "0");
});

test("who waits in vain at its login is told so as one who waits with a query", async () => {
  // The limit on waiting was not for those who had not been greeted yet.
  const impatient = await startPooler(postgres, { settings: { default_pool_size: 1 } });
  const holder = await open(impatient);
  await holder.query("BEGIN");
  await impatient.console("SET query_wait_timeout = 1");
  assert.match(await refusal(impatient, { work_mem: "6MB" }), /FATAL 53300 query_wait_timeout/);
  await impatient.console("SET query_wait_timeout = 60");
  await holder.query("COMMIT");
  assert.is(await refusal(impatient, { work_mem: "6MB" }), "");
  await impatient.stop();
});

test("a login waits a while for a server to try its values, not for ever", async () => {
  // Where all servers are held by sessions, nobody with a new time zone could log in at all.
  const busy = await startPooler(postgres, {
    settings: { default_pool_size: 1, pool_mode: "session" },
  });
  const holder = await open(busy);
  await holder.query("SELECT 1");
  const client = await open(busy, loginWith({ TimeZone: "africa/cairo" }));
  const bad = await open(busy, loginWith({ TimeZone: "Africa/Nowhere" }));
  await holder.end();
  assert.equal(await client.query("SHOW TimeZone"), [["Africa/Cairo"]]);
  await client.end();
  bad.send(f.Q("SELECT 1"));
  assert.match(await bad.repliesUntilClosed(), "E(22023)");
  // Each of these values was taken before, if not together.
  const next = await open(busy);
  await next.query("SELECT 1");
  await (await open(busy, loginWith({ TimeZone: "africa/cairo", DateStyle: "iso, mdy" }))).end();
  await next.end();
  await busy.stop();
});

test("a client that leaves while its values are tried leaves no trace on the server", async () => {
  // What had been set for it stayed, unknown to the pooler, for the next client.
  const fake = await startFakePostgres();
  const front = await startPooler(fake, { settings: { default_pool_size: 1 } });
  const other = await open(front);
  await other.query("SELECT 1");
  const held: (() => void)[] = [];
  fake.options = {
    onMessage: (session, message) => {
      if (message.type === 0x51 && /work_mem/.test(queryText(message)) && held.length === 0) {
        held.push(() => session.answer(message));
      } else session.answer(message);
    },
  };
  const leaver = await RawClient.connect(front);
  leaver.startup({ user: "postgres", database: "postgres", work_mem: "7MB" });
  await until("its values to be tried", () => held.length === 1);
  leaver.close();
  await until("it to be gone", async () => (await front.console("SHOW CLIENTS")).length === 2);
  held[0]!();
  const asked = await other.query("SELECT 2");
  assert.equal(asked, [["SELECT 2"]]);
  const sent = fake.sessions.flatMap((session) => session.messages)
    .filter((message) => message.type === 0x51).map(queryText);
  const own = sent.findIndex((sql) => sql.includes("set_config('work_mem','7MB',false)"));
  const next = sent.findIndex((sql) => sql === "SELECT 2");
  assert.ok(own >= 0 && next > own);
  // Reset in front of the next query, unless that went to another server.
  if (fake.sessions.length === 1) {
    assert.ok(sent.slice(own, next).includes('RESET "work_mem"'), sent.join("\n"));
  }
  await front.stop();
  await fake.stop();
});

test("a client whose server ends while its values are set there is told why", async () => {
  // The server's last words were taken for the answer to the SET, and nobody was told: a bare end.
  const fake = await startFakePostgres({ settings: { application_name: "" } });
  const front = await startPooler(fake, { settings: { default_pool_size: 1 } });
  const named = (name: string) => ({ ...login, parameters: { application_name: name } });
  const farewell = errorResponse({ severity: "FATAL", code: "57P01", message: "bye" });
  let sets = 0;
  fake.options = {
    onMessage: (session, message) => {
      if (message.type !== 0x51 || !/mortal/.test(queryText(message)) || ++sets === 1) {
        session.answer(message);
      } else if (!session.isClosed) {
        session.send(farewell);
        session.end();
      }
    },
  };
  const other = await open(front, named("plain"));
  const client = await open(front, named("mortal"));
  await other.query("SELECT 1");
  client.send(f.Q("SELECT 2"));
  assert.is(await client.repliesUntilClosed(), "E(57P01) closed");
  await other.query("SELECT 3");
  // At its login they go alone.
  const late = await RawClient.connect(front);
  late.startup({
    user: "postgres",
    database: "postgres",
    application_name: "mortal",
    work_mem: "1",
  });
  assert.is(await late.repliesUntilClosed(), "E(57P01) closed");
  await front.stop();
  await fake.stop();
});

test("nothing runs with a role or a setting that a server refuses later", async () => {
  // The query was sent right behind the SET: that failed, and the query ran with the rights of another.
  const granted = await open(pooler, loginWith({ role: "r1" }, "app"));
  await granted.query("SELECT 1");
  const other = await open(pooler, { ...login, user: "app" });
  await postgres.query("CREATE TABLE rights (who text); GRANT ALL ON rights TO app, r1");
  await granted.query("INSERT INTO rights SELECT current_user");
  await other.query("SELECT 1");
  await postgres.query("REVOKE r1 FROM app");
  granted.send(f.Q("INSERT INTO rights SELECT current_user"));
  assert.is(await granted.repliesUntilClosed(), "E(42501) closed");
  assert.equal(await postgres.query("SELECT who FROM rights"), [{ who: "r1" }]);
  assert.equal(await other.query("SELECT current_user"), [["app"]]);
  await postgres.query("GRANT r1 TO app");
});

for (const mode of ["transaction", "session"]) {
  test(`RESET and DISCARD ALL lead back to the startup packet in ${mode} mode`, async () => {
    // On a connection of its own the packet gives a session its defaults. Behind a pooler a reset, as
    // drivers send it when they give a connection back, led to the servers' defaults.
    const front = await startPooler(postgres, {
      settings: { pool_mode: mode, default_pool_size: mode === "session" ? 2 : 1 },
    });
    const parameters = {
      application_name: "app1",
      TimeZone: "Asia/Tokyo",
      work_mem: "5MB",
      options: "-c IntervalStyle=sql_standard -c search_path=s1",
    };
    const twin = await Twin.login(front, postgres, loginWith(parameters));
    const other = await Twin.login(
      front,
      postgres,
      loginWith({ application_name: "app2", work_mem: "6MB" }),
    );
    const names = ["application_name", "TimeZone", "IntervalStyle", "work_mem", "search_path"];
    const resets = [
      "RESET ALL",
      "DISCARD ALL",
      "RESET application_name",
      "SET application_name TO DEFAULT",
      "RESET TIME ZONE",
      "RESET work_mem",
      "BEGIN; RESET work_mem; ROLLBACK",
      "SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL;",
    ];
    for (const reset of resets) {
      for (const client of [twin.pooled, twin.direct]) {
        await client.query("SET application_name = 'tmp'");
        await client.query("SET TimeZone = 'America/Lima'");
        for (const sql of reset.startsWith("BEGIN") ? reset.split("; ") : [reset]) {
          await client.query(sql);
        }
      }
      for (let round = 0; round < 2; round++) {
        for (const name of names) {
          const what = `${name} after ${reset}`;
          const sql = `SHOW ${name}`;
          assert.equal(await twin.pooled.query(sql), await twin.direct.query(sql), what);
          assert.is(twin.pooled.settings.get(name), twin.direct.settings.get(name), what);
          assert.equal(await other.pooled.query(sql), await other.direct.query(sql), what);
        }
      }
    }
    await twin.end();
    await other.end();
    await front.stop();
  });
}

test("a SET of what PostgreSQL does not report is its client's, and its rollback too", async () => {
  // Such a SET stayed on the server for whoever came next, and for its own client until another had the server.
  const other = await open(pooler);
  const sees = async (who: RawClient) =>
    (await who.query(
      "SELECT current_setting('work_mem'), current_setting('search_path'), i, " +
        "current_setting('lock_timeout'), current_setting('transaction_read_only'), " +
        "current_user, session_user FROM public.t",
    ))[0];
  const clean = await sees(other);
  const sets = [
    "SET work_mem = '9MB'",
    "/* c */ SET work_mem = '9MB'; SET lock_timeout = 1",
    "SELECT pg_catalog.set_config('search_path', '', false)",
    "SELECT set_config('work_mem', '9MB', true)",
    "SET LOCAL work_mem = '9MB'",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "DO $$ BEGIN PERFORM set_config('work_mem', '9MB', false); END $$",
    "SET work_mem TO DEFAULT",
    "SET search_path = s2, public",
    "SET SESSION AUTHORIZATION x",
    "SET ROLE x",
  ];
  for (const sql of sets) {
    for (const whole of [[sql], ["BEGIN", sql, "COMMIT"], ["BEGIN", sql, "ROLLBACK"]]) {
      const asked = loginWith({ work_mem: "5MB", search_path: "s1" });
      const { pooled, direct } = await Twin.login(pooler, postgres, asked);
      for (const part of whole) await Promise.all([pooled.query(part), direct.query(part)]);
      assert.equal(await sees(other), clean, sql);
      for (const _ of [1, 2]) assert.equal(await sees(pooled), await sees(direct), sql);
      await pooled.end();
      await direct.end();
    }
  }
});

test("clients that search other schemas never share a prepared statement", async () => {
  // A cache that knew a statement by its text gave one client the other's table, types or dates.
  const twins: Twin[] = [];
  const each: Parameters[] = [
    { search_path: "s1" },
    { search_path: "s2" },
    {},
    { options: "-csearch_path=s1" },
    { DateStyle: "ISO, DMY" },
    { TimeZone: "Asia/Tokyo" },
  ];
  for (const parameters of each) {
    twins.push(await Twin.login(pooler, postgres, loginWith(parameters)));
  }
  const texts = [
    "SELECT * FROM t",
    "SELECT '02/03/2004'::date",
    "SELECT '2004-01-01 00:00'::timestamptz AT TIME ZONE 'UTC'",
  ];
  for (const [index, text] of texts.entries()) {
    for (const twin of twins) {
      await twin.same([f.P(`x${index}`, text), f.D("S", `x${index}`), f.S()]);
    }
  }
  for (let round = 0; round < 2; round++) {
    for (const twin of twins) {
      for (const index of texts.keys()) {
        await twin.same([f.B("", `x${index}`), f.D(), f.E(), f.S()]);
      }
    }
  }
  for (const twin of twins) await twin.end();
});

test("what is tracked although the server does not report it holds as well", async () => {
  // Such a value was taken and never set anywhere.
  const tracking = await startPooler(postgres, {
    settings: {
      default_pool_size: 1,
      track_extra_parameters: "IntervalStyle, search_path, work_mem",
    },
  });
  const other = await open(tracking);
  const twin = await Twin.login(
    tracking,
    postgres,
    loginWith({ search_path: "s1", WORK_MEM: "3MB" }),
  );
  for (let round = 0; round < 2; round++) {
    await twin.same([f.Q("SELECT i, current_setting('work_mem') FROM t")]);
    assert.equal(await other.query("SELECT i, current_setting('work_mem') FROM t"), [[
      "0.5",
      "4MB",
    ]]);
  }
  await tracking.stop();
});

test("what would end servers that wait for work is refused, but in session mode", async () => {
  // idle_session_timeout ended servers in the pool, under the hands of the next client.
  assert.match(
    await refusal(pooler, { idle_session_timeout: "100" }),
    /FATAL 22023 .*idle_session_timeout/,
  );
  assert.is(await refusal(pooler, { idle_session_timeout: "0" }), "");
  const front = await startPooler(postgres, { settings: { pool_mode: "session" } });
  const client = await open(front, loginWith({ idle_session_timeout: "2000" }));
  await client.query("SELECT 1");
  assert.is(await client.repliesUntilClosed(), "E(57P05) closed");
  await front.stop();
});

test("defaults are the servers' own, also where they have changed since", async () => {
  // The first greeting was kept for good: ALTER ROLE SET and a reload stayed invisible, and what the pooler
  // took for the default was set again on servers that had another.
  const front = await startPooler(postgres, {
    settings: { default_pool_size: 1 },
    userlist: { own1: "", own2: "", postgres: "", admin: "" },
  });
  await postgres.query("CREATE ROLE own1 LOGIN; CREATE ROLE own2 LOGIN");
  await postgres.query("ALTER ROLE own2 SET TimeZone = 'Europe/Rome'");
  const as = (user: string, parameters: Parameters = {}) =>
    open(front, loginWith(parameters, user));
  const zone = async (client: RawClient) => (await client.query("SHOW TimeZone"))[0]![0];
  const lost = async (user: string) => {
    await postgres.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND backend_type = 'client backend'",
      [user],
    );
  };
  const old = await as("own1");
  const tokyo = await as("own1", { TimeZone: "Asia/Tokyo" });
  const rome = await as("own2");
  assert.is(await zone(old), "UTC");
  assert.is(await zone(tokyo), "Asia/Tokyo");
  assert.is(await zone(rome), "Europe/Rome");
  assert.is(rome.settings.get("TimeZone"), "Europe/Rome");
  await postgres.query("ALTER ROLE own1 SET TimeZone = 'Europe/Lisbon'");
  assert.is(await zone(old), "UTC");
  await lost("own1");
  await noServers(front, "own1");
  const young = await as("own1");
  for (const client of [young, old, young]) {
    assert.is(await zone(client), "Europe/Lisbon");
    assert.is(client.settings.get("TimeZone"), "Europe/Lisbon");
  }
  assert.is(await zone(tokyo), "Asia/Tokyo");
  assert.is(tokyo.settings.get("TimeZone"), "Asia/Tokyo");
  assert.is(await zone(rome), "Europe/Rome");
  // A reload, under a server that stays.
  const others = await as("postgres");
  assert.is(await zone(others), "UTC");
  const server = await pid(others);
  await postgres.configure({ timezone: "Australia/Perth" });
  const came = await as("postgres");
  await until("the server to have heard of it", async () => await zone(came) === "Australia/Perth");
  for (const client of [others, came, await as("postgres")]) {
    assert.is(await zone(client), "Australia/Perth");
    assert.is(client.settings.get("TimeZone"), "Australia/Perth");
    assert.is(await pid(client), server);
  }
  await postgres.configure({ timezone: "UTC" });
  await until("the server to have heard of it", async () => await zone(came) === "UTC");
  assert.is(await zone(others), "UTC");
  assert.is(others.settings.get("TimeZone"), "UTC");
  await front.stop();
});

test("servers that report other versions serve the clients that are there", async () => {
  // A changed server_version or in_hot_standby was SET on a server, or ended the clients.
  const settings = {
    server_version: "15.10",
    client_encoding: "UTF8",
    TimeZone: "UTC",
    in_hot_standby: "on",
    standard_conforming_strings: "on",
    DateStyle: "ISO, MDY",
    application_name: "",
  };
  const fake = await startFakePostgres({ settings });
  const front = await startPooler(fake, { settings: { default_pool_size: 1 } });
  const old = await open(front);
  assert.is(old.settings.get("server_version"), "15.10");
  await old.query("SELECT 1");
  fake.options = { settings: { ...settings, server_version: "15.12", in_hot_standby: "off" } };
  fake.open[0]!.end();
  await until("the server to be gone", () => fake.open.length === 0);
  assert.equal(await old.query("SELECT 2"), [["SELECT 2"]]);
  const young = await open(front);
  assert.is(young.settings.get("server_version"), "15.12");
  assert.is(young.settings.get("in_hot_standby"), "off");
  assert.equal(await young.query("SELECT 3"), [["SELECT 3"]]);
  fake.open[0]!.send(parameterStatus("in_hot_standby", "on"));
  assert.equal(await old.query("SELECT 4"), [["SELECT 4"]]);
  const sent = fake.sessions.flatMap((session) => session.messages)
    .filter((message) => message.type === 0x51).map(queryText);
  assert.equal(sent, ["SELECT 1", "SELECT 2", "SELECT 3", "SELECT 4"]);
  await front.stop();
  await fake.stop();
});

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  await nothingHangs(pooler, postgres);
});

test.run();
