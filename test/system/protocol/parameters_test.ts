// Settings that follow the client: what it asked for at login or by SET holds in each of its transactions, whoever
// had the server before, and is never seen by anybody else. One server connection, so that clients alternate on it.

import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";
import { closeAll, login, nothingHangs, open, startPair, Twin } from "./support.ts";

needs("postgresql");

const test = suite("parameters");
let postgres: Postgres;
let pooler: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair({ postgres: { settings: { log_statement: "all" } } }));
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const tracked = [
  "client_encoding",
  "DateStyle",
  "TimeZone",
  "IntervalStyle",
  "standard_conforming_strings",
  "application_name",
];

async function show(client: RawClient, name: string): Promise<string | null> {
  return (await client.query(`SHOW ${name}`))[0]![0]!;
}

function loginWith(parameters: Record<string, string>) {
  return { ...login, parameters };
}

/** The SETs and RESETs the server was sent by the pooler while `work` ran. */
async function setsDuring(work: () => Promise<void>): Promise<string[]> {
  const before = postgres.log().length;
  await work();
  await postgres.query("SELECT 'all is in the log'");
  return postgres.log().slice(before).split("\n").filter((line) =>
    /statement: (SET|RESET) /.test(line)
  );
}

test("each client reads its own settings, however often the server changes hands", async () => {
  // A setting of one client was seen by the next one on that server, or was set again before every
  // transaction, because the server reports it in another spelling than it was given.
  const pairs: [string, string, string][] = [
    ["DateStyle", "ISO", "PostgreSQL,European"],
    ["DateStyle", "SQL, DMY", "ISO"],
    ["DateStyle", "German", "iso, ymd"],
    ["TimeZone", "europe/rome", "<+03>-03"],
    ["TimeZone", "UTC", "Asia/Tokyo"],
    ["IntervalStyle", "sql_standard", "iso_8601"],
    ["client_encoding", "LATIN1", "utf-8"],
    ["application_name", "", "second"],
    ["application_name", "same", "same"],
    ["standard_conforming_strings", "off", "on"],
  ];
  for (const [name, ...values] of pairs) {
    const what = `${name}: ${values.join(" and ")}`;
    const twins = await Promise.all(
      values.map((value) => Twin.login(pooler, postgres, loginWith({ [name]: value }))),
    );
    for (let round = 0; round < 3; round++) {
      for (const twin of twins) {
        assert.is(await show(twin.pooled, name), await show(twin.direct, name), what);
        for (const other of tracked) {
          assert.is(
            twin.pooled.settings.get(other),
            twin.direct.settings.get(other),
            `${what}, ${other}`,
          );
        }
      }
    }
    // The second changes its mind.
    const [first, second] = twins as [Twin, Twin];
    const sql = `SET ${name} = '${values[0]}'`;
    await second.same([f.Q(sql), f.Q(`SHOW ${name}`)], 2);
    await first.same([f.Q(`SHOW ${name}`)]);
    await second.same([f.Q(`SHOW ${name}`)]);
    const sets = await setsDuring(async () => {
      for (let round = 0; round < 5; round++) {
        await second.same([f.Q("SELECT 1")]);
        await second.same([f.P("", "SELECT 1"), f.B(), f.E(), f.S()]);
      }
    });
    assert.equal(sets, [], what);
    for (const twin of twins) await twin.end();
  }
});

test("text is converted for the encoding of the client that reads it", async () => {
  // With the server left in another client's encoding the bytes of a text are plainly wrong.
  const latin = await Twin.login(pooler, postgres, loginWith({ client_encoding: "LATIN1" }));
  const utf8 = await Twin.login(pooler, postgres);
  const latinQuery = Uint8Array.from("SELECT 'caf\xe9', length('\xe9')\0", (c) => c.charCodeAt(0));
  const message = (body: Uint8Array) => {
    const bytes = new Uint8Array(5 + body.length);
    bytes.set([0x51, 0, 0, 0, 4 + body.length]);
    bytes.set(body, 5);
    return bytes;
  };
  for (let round = 0; round < 3; round++) {
    await latin.same([message(latinQuery)]);
    assert.is(
      await utf8.same([f.Q("SELECT 'café', length('é')")]),
      'T D("café","1") C"SELECT 1" Z(I)',
    );
  }
  await latin.end();
  await utf8.end();
});

test("a change inside a transaction holds as long as PostgreSQL says", async () => {
  // Poolers that noted a SET when they saw its text kept values that had been rolled back, and made
  // SET LOCAL last for ever.
  const other = await open(pooler);
  const steps = [
    ["BEGIN", "SET TimeZone='Asia/Tokyo'", "ROLLBACK"],
    ["BEGIN", "SAVEPOINT s", "SET TimeZone='Asia/Tokyo'", "ROLLBACK TO s", "COMMIT"],
    ["BEGIN", "SET LOCAL TimeZone='Asia/Tokyo'", "SHOW TimeZone", "COMMIT"],
    ["BEGIN", "SELECT 1", "SET TimeZone='Asia/Tokyo'", "COMMIT"],
    ["SELECT set_config('TimeZone', 'Europe/Rome', false)"],
    ["SELECT set_config('TimeZone', 'UTC', true)"],
    ["SET TimeZone='nonsense'"],
    ["BEGIN", "SET TimeZone='nonsense'", "ROLLBACK"],
    ["SET TimeZone=DEFAULT; SET application_name='a;b'; SELECT 1/0"],
    ["BEGIN", "SET application_name='x'", "SELECT 1/0", "COMMIT"],
  ];
  const twin = await Twin.login(pooler, postgres, loginWith({ application_name: "mine" }));
  for (const step of steps) {
    for (const sql of step) await twin.same([f.Q(sql)]);
    assert.is(await show(other, "TimeZone"), "UTC");
    assert.is(await show(other, "application_name"), "");
    await twin.same([f.Q("SHOW TimeZone"), f.Q("SHOW application_name")], 2);
  }
  await twin.end();
  await other.end();
});

test("RESET ALL and DISCARD ALL lead back to what the client asked for at login", async () => {
  // On a connection of its own the startup packet gives a session its defaults. Behind a pooler the
  // server was started without them, and a reset, as drivers send it when they give a connection
  // back, turned the client's name and time zone into the server's.
  const parameters = {
    application_name: "app1",
    TimeZone: "asia/tokyo",
    options: "-c IntervalStyle=sql_standard",
  };
  const other = await open(pooler, loginWith({ application_name: "app2", TimeZone: "UTC" }));
  const twin = await Twin.login(pooler, postgres, loginWith(parameters));
  const resets = [
    "RESET ALL",
    "DISCARD ALL",
    "RESET application_name",
    "RESET TIME ZONE",
    "SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL;",
  ];
  for (const reset of resets) {
    for (const client of [twin.pooled, twin.direct]) {
      await client.query("SET application_name='tmp'");
      await client.query("SET TimeZone='America/Lima'");
      await client.query(reset);
    }
    for (let round = 0; round < 2; round++) {
      assert.is(await show(other, "application_name"), "app2");
      for (const name of tracked) {
        assert.is(
          await show(twin.pooled, name),
          await show(twin.direct, name),
          `${name} after ${reset}`,
        );
        assert.is(
          twin.pooled.settings.get(name),
          twin.direct.settings.get(name),
          `${name} after ${reset}`,
        );
      }
    }
  }
  const name = "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()";
  assert.equal(await twin.pooled.query(name), [["app1"]]);
  await twin.end();
  await other.end();
});

test("a value is the same after every change of hands, whatever is in it", async () => {
  // The pooler writes SET name = 'value' from what a client has sent: quotes and backslashes broke
  // the statement, doubled with each change of hands, or ran as SQL on a shared server.
  await postgres.query("CREATE TABLE target (i int)");
  const values = [
    "a'b",
    "a''b",
    "a\\b",
    "a\\'; DROP TABLE target; --",
    "'; DROP TABLE target; --",
    '"we""ird", public',
    "$$x$$",
    "",
    " ",
    "two\nlines",
    "tab\tand\x01control",
    "x".repeat(63),
    "x".repeat(64),
    "x".repeat(4000),
    "日本語",
    "é'\\",
    "\u{1f600}",
    "E'x'",
    "a;b",
    "%s",
  ];
  for (const strings of ["on", "off"]) {
    const other = await open(pooler, loginWith({ standard_conforming_strings: strings }));
    for (const value of values) {
      const twin = await Twin.login(pooler, postgres, loginWith({ application_name: value }));
      for (let round = 0; round < 4; round++) {
        assert.is(await show(other, "application_name"), "");
        const what = JSON.stringify(value.slice(0, 80));
        assert.is(
          await show(twin.pooled, "application_name"),
          await show(twin.direct, "application_name"),
          what,
        );
        assert.is(
          twin.pooled.settings.get("application_name"),
          twin.direct.settings.get("application_name"),
          what,
        );
      }
      await twin.end();
    }
    await other.end();
  }
  assert.equal(await postgres.query("SELECT * FROM target"), []);
});

test("a search path of any spelling follows its client", async () => {
  // Characters outside ASCII were replaced by question marks, which names another schema.
  const recent = await startPair({
    settings: { track_extra_parameters: "IntervalStyle,search_path" },
    postgres: { version: "18" },
  });
  try {
    for (const schema of ['"sché\\ma"', '"we""ird"', "plain"]) {
      await recent.postgres.query(`CREATE SCHEMA ${schema}; CREATE TABLE ${schema}.t ()`);
    }
    const other = await open(recent.pooler);
    for (const path of ['"sché\\ma", public', '"we""ird"', "plain", "nowhere"]) {
      const twin = await Twin.login(
        recent.pooler,
        recent.postgres,
        loginWith({ search_path: path }),
      );
      for (let round = 0; round < 2; round++) {
        assert.is(await show(other, "search_path"), '"$user", public');
        await twin.same([
          f.Q("SHOW search_path"),
          f.Q("SELECT current_schemas(false), to_regclass('t')"),
        ], 2);
      }
      await twin.end();
    }
    await other.end();
  } finally {
    await recent.pooler.stop();
    await recent.postgres.stop("immediate");
  }
});

test("a value that PostgreSQL refuses ends that client only, with PostgreSQL's code", async () => {
  // The server was closed for a client's typing error, or went on with another client's settings.
  const other = await open(pooler);
  const pid = await other.query("SELECT pg_backend_pid()");
  for (
    const parameters of [
      { TimeZone: "nonsense" },
      { DateStyle: "nonsense" },
      { client_encoding: "nonsense" },
      { application_name: "good", IntervalStyle: "nonsense" },
    ]
  ) {
    const refusal = async (target: typeof pooler | Postgres) => {
      try {
        await open(target, loginWith(parameters));
        return "logged in";
      } catch (error) {
        if (error instanceof ServerError) return error.message;
        throw error;
      }
    };
    assert.is(await refusal(pooler), await refusal(postgres), JSON.stringify(parameters));
    assert.equal(await other.query("SELECT pg_backend_pid()"), pid);
    assert.is(await show(other, "application_name"), "");
  }
  for (const name of ["application_name; DROP TABLE target", 'a"b', "a b", "é"]) {
    let refused: unknown = null;
    await open(pooler, loginWith({ [name]: "1" })).catch((error) => refused = error);
    assert.ok(refused instanceof ServerError && refused.code === "22023", name);
  }
  await other.end();
});

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  await nothingHangs(pooler, postgres);
});

test.run();
