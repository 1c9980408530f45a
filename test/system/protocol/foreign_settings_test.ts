// Statements prepared while settings hold that are not the client's for good, or not known yet: of the transaction, or
// in front of them and not answered. What one client prepares then is nobody else's, and its own in that transaction.

import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import type { RawClient } from "../../support/raw_client.ts";
import {
  ask,
  closeAll,
  login,
  noServers,
  nothingHangs,
  open,
  startPair,
  Twin,
  upTo,
} from "./support.ts";

needs("postgresql");

const test = suite("statements under foreign settings");
let postgres: Postgres;
/** One server connection. */
let pooler: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair());
  await postgres.query(
    "CREATE SCHEMA s1; CREATE TABLE s1.named AS SELECT 'other' AS t;" +
      "CREATE TABLE named AS SELECT 'own' AS t",
  );
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const nulls = "SELECT 42 WHERE NULL = NULL";
const epoch = "SELECT extract(epoch from '2020-01-01 00:00'::timestamptz)::text";
const month = "SELECT extract(month from '01/02/2020'::date)::text";
const run = (sql: string) => [f.P("", sql), f.B(), f.E()];
const use = [f.B("", "s"), f.E()];

/** A text, and what is sent with its Parse in the middle. How many ReadyForQuery it has. */
const ways: [what: string, sql: string, parts: (sql: string) => Uint8Array[], count: number][] = [
  [
    "SET LOCAL in the pipeline",
    epoch,
    (sql) => [
      f.Q("BEGIN"),
      f.Q("SET LOCAL TimeZone = 'Asia/Tokyo'"),
      f.P("s", sql),
      ...use,
      f.S(),
      f.Q("COMMIT"),
    ],
    4,
  ],
  [
    "SET without a Sync behind it",
    epoch,
    (sql) => [
      ...run("SET TimeZone = 'Asia/Tokyo'"),
      f.P("s", sql),
      ...use,
      f.S(),
      f.Q("RESET TimeZone"),
    ],
    2,
  ],
  [
    "all in one group",
    month,
    (sql) => [
      ...run("BEGIN"),
      ...run("SET LOCAL DateStyle = 'SQL, DMY'"),
      f.P("s", sql),
      ...use,
      ...run("COMMIT"),
      f.S(),
    ],
    1,
  ],
  [
    "set_config() of the transaction",
    "SELECT t FROM named",
    (sql) => [
      ...run("SELECT set_config('search_path', 's1', true)"),
      f.P("s", sql),
      ...use,
      f.S(),
    ],
    1,
  ],
  [
    "SET LOCAL in a named statement",
    month,
    (sql) => [
      f.P("local", "SET LOCAL DateStyle = 'SQL, DMY'"),
      f.B("", "local"),
      f.E(),
      f.P("s", sql),
      ...use,
      f.S(),
    ],
    1,
  ],
  [
    "a code block",
    nulls,
    (sql) => [
      ...run("DO $$BEGIN SET LOCAL transform_null_equals = on; END$$"),
      f.P("s", sql),
      ...use,
      f.S(),
    ],
    1,
  ],
  [
    "a transaction that ends within the group",
    nulls,
    (sql) => [
      ...run("BEGIN"),
      ...run("SET LOCAL transform_null_equals = on"),
      f.P("s", sql),
      ...use,
      ...run("COMMIT"),
      f.P("t", sql),
      f.B("", "t"),
      f.E(),
      f.S(),
    ],
    1,
  ],
];

/** The text as nobody has sent it yet. */
const fresh = (sql: string, round: unknown) => `${sql} -- ${round}`;

/** What a client of its own gets for a text is what PostgreSQL itself says. */
async function isClean(sql: string, what: string): Promise<void> {
  const twin = await Twin.login(pooler, postgres);
  for (const round of upTo(2)) {
    const name = `x${round}`;
    try {
      await twin.same([f.P(name, sql), f.B("", name), f.E(), f.S()]);
    } catch (error) {
      throw new Error(`${what}: ${(error as { details?: string }).details}`);
    }
  }
  await twin.end();
}

for (const [what, text, parts, count] of ways) {
  test(`what is prepared behind it is one client's alone: ${what}`, async () => {
    // Others were given the statement: a day for a month, rows where there are none, another schema's table.
    const sql = fresh(text, what);
    const twin = await Twin.login(pooler, postgres);
    await twin.same(parts(sql), count);
    await isClean(sql, what);
    await ask(twin.pooled, [...use, f.S()]);
    await isClean(sql, `${what}, used again`);
    await twin.end();
  });
}

test("in a transaction with SET LOCAL nothing is prepared for others, step by step", async () => {
  const twin = await Twin.login(pooler, postgres);
  const sql = fresh(nulls, "steps");
  await twin.same([f.Q("BEGIN")]);
  await twin.same([f.Q("SET LOCAL transform_null_equals = on")]);
  await twin.same([f.P("s", sql), ...use, f.S()]);
  await twin.same([f.Q("SET LOCAL transform_null_equals = off")]);
  await twin.same([f.P("t", sql), f.B("", "t"), f.E(), f.S()]);
  await twin.same([...use, f.S()]);
  await twin.same([f.Q("COMMIT")]);
  await isClean(sql, "step by step");
  await twin.end();
});

test("a statement that the server lacks in such a transaction is not prepared for others either", async () => {
  // Prepared under the client's own settings on one server, and brought to the next one in a transaction with others.
  const sql = fresh(nulls, "lacking");
  const client = await open(pooler);
  await ask(client, [f.P("s", sql), f.S()]);
  await ask(client, [f.Q("DISCARD ALL")]);
  await ask(client, [f.P("s", sql), f.S()]);
  const killer = await open(postgres);
  await killer.query(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
  );
  await noServers(pooler);
  await client.query("BEGIN");
  await client.query("SET LOCAL transform_null_equals = on");
  await ask(client, [...use, f.S()]);
  await client.query("COMMIT");
  await isClean(sql, "lacking");
  assert.is(await ask(client, [...use, f.S()]), '2 C"SELECT 0" Z(I)');
  await killer.end();
  await client.end();
});

test("statements are shared on where nothing changes their meaning, and after it", async () => {
  const clients: RawClient[] = [];
  for (const _ of upTo(2)) clients.push(await open(pooler));
  const sql = fresh("SELECT 'shared'", 1);
  const harmless = ["SET LOCAL statement_timeout = '10s'", "SET TRANSACTION READ ONLY"];
  for (const [at, client] of clients.entries()) {
    await client.query("BEGIN");
    await client.query(harmless[at]!);
    await client.query("SELECT set_config('app.tenant', '1', true)");
    await ask(client, [f.P("s", sql), ...use, f.S()]);
    await client.query("COMMIT");
  }
  const count = async () =>
    Number(
      (await clients[0]!.query(
        "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%''shared''%1'",
      ))[0]![0],
    );
  assert.is(await count(), 1);
  for (const client of clients) {
    await client.query("BEGIN");
    await client.query("SET LOCAL search_path = s1");
    const other = fresh("SELECT 'shared'", "private 1");
    await ask(client, [f.P("t", other), f.S()]);
    await client.query("COMMIT");
    await ask(client, [...use, f.S()]);
  }
  // Those of the one transaction are gone with the next use of any.
  assert.is(await count(), 1);
  for (const client of clients) await client.end();
});

/** A cycle that is under way without its Sync when the answer to what stands before it arrives. */
const lateWays: [what: string, begin: Uint8Array[], rest: Uint8Array[], count: number][] = [
  ["RESET ALL", run("RESET ALL"), [f.S(), f.Q("SHOW application_name")], 2],
  [
    "SET TO DEFAULT",
    run("SET application_name TO DEFAULT"),
    [f.S(), f.Q("SHOW application_name")],
    2,
  ],
  [
    "SET",
    run("SET transform_null_equals = on"),
    [f.P("s", fresh(nulls, "late")), ...use, f.S(), f.Q("RESET transform_null_equals")],
    2,
  ],
  [
    "DEALLOCATE ALL",
    run("DEALLOCATE ALL"),
    [f.S(), f.P("k", "SELECT 2"), f.B("", "k"), f.E(), f.S()],
    2,
  ],
];

for (const [what, begin, rest, count] of lateWays) {
  test(`a cycle is not over when the one before it is answered: ${what}`, async () => {
    // The answer to the query before it ended what was noted of the cycle: others got its statement, and the
    // client's own login values were lost.
    const parameters = { application_name: "mine" };
    const twin = await Twin.login(pooler, postgres, { ...login, parameters });
    await twin.same([f.P("k", "SELECT 1"), f.S()]);
    for (const client of [twin.pooled, twin.direct]) {
      client.send(f.Q("SELECT pg_sleep(0.1)"), ...begin);
      await client.messagesUntil("Z");
    }
    const settings = / S\{application_name=[^}]*\}/g;
    const [pooled, direct] = [
      await ask(twin.pooled, rest, count),
      await ask(twin.direct, rest, count),
    ];
    assert.is(pooled.replace(settings, ""), direct.replace(settings, ""));
    await isClean(fresh(nulls, "late"), what);
    await twin.same([f.Q("SHOW application_name")]);
    await twin.end();
  });
}

test("the pooler and its servers are well after all this", async () => {
  await nothingHangs(pooler, postgres);
});

test.run();
