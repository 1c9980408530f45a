// The shapes of copy data: the same rows in every format in messages of any size, empty messages, markers, headers,
// errors of every kind with PostgreSQL's own words. The bounds of messages have nothing to do with rows.

import {
  Backend,
  concatBytes,
  Frontend,
  type Message,
  message,
  parseErrorFields,
} from "../../../shared/wire/mod.ts";
import { queryText, startFakePostgres } from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import type { RawClient } from "../../support/raw_client.ts";
import {
  ask,
  closeAll,
  login,
  nothingHangs,
  open,
  startPair,
  startPooler,
  transcript,
  Twin,
  upTo,
} from "./support.ts";

needs("postgresql");

const test = suite("shapes of copy data");
const ROWS = 10_000;
const formats = ["text", "csv", "binary"] as const;
let postgres: Postgres;
/** One server connection. */
let pooler: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair());
  // Everything that formats write in ways of their own, in rows of about 60 bytes.
  await postgres.query(
    String.raw`CREATE TABLE source AS SELECT i, CASE i % 7
         WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN E'tab\tand\nline' WHEN 3 THEN 'back\slash \. \N'
         WHEN 4 THEN 'quote " and , comma' WHEN 5 THEN 'héllo 水' ELSE md5(i::text) END AS t,
       i::float8 / 7 AS x FROM generate_series(1, ${ROWS}) i` +
      "; CREATE TABLE target (LIKE source);" +
      `CREATE TABLE wide_source AS SELECT i, repeat(md5(i::text), 209) AS t, NULL::float8 AS x
         FROM generate_series(1, ${ROWS}) i; CREATE TABLE t (i int PRIMARY KEY, s text);
       CREATE TABLE plain (i int, s text)`,
  );
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

async function copyOut(client: RawClient, sql: string): Promise<Uint8Array> {
  client.send(f.Q(sql));
  const messages = await client.messagesUntil("Z", 1, 60_000);
  const isData = (each: Message) => each.type === Backend.copyData;
  return concatBytes(...messages.filter(isData).map((each) => each.body));
}

/** CopyData messages of `size` bytes each. */
function frames(data: Uint8Array, size: number): Uint8Array {
  const count = Math.ceil(data.length / size);
  const all = new Uint8Array(data.length + 5 * count);
  for (let i = 0, to = 0; i < count; i++) {
    const frame = f.d(data.subarray(i * size, (i + 1) * size));
    all.set(frame, to);
    to += frame.length;
  }
  return all;
}

const sumOf = (table: string) =>
  `SELECT count(*), md5(string_agg(md5(${table}::text), '' ORDER BY i)) FROM ${table}`;

for (const format of formats) {
  test(`ten thousand rows in ${format}, in messages of any size, are the same rows`, async () => {
    // Proxies that looked for rows in copy data lost those that were split, or all but the first of a message.
    const client = await open(pooler);
    const wanted = await client.query(sumOf("source"));
    const data = await copyOut(client, `COPY source TO STDOUT (FORMAT ${format})`);
    const direct = await open(postgres);
    assert.equal(await copyOut(direct, `COPY source TO STDOUT (FORMAT ${format})`), data);
    await direct.end();
    for (const size of [1, 2, 7, 4096, 1 << 20, data.length]) {
      client.send(f.Q(`COPY target FROM STDIN (FORMAT ${format})`), frames(data, size), f.c());
      assert.is(await client.replies(1, { timeoutMs: 60_000 }), `G C"COPY ${ROWS}" Z(I)`);
      assert.equal(await client.query(sumOf("target")), wanted, `${format} in ${size}`);
      await client.query("TRUNCATE target");
    }
    await client.end();
  });

  test(`64 MiB of rows in ${format} go in as one message`, async () => {
    // A message that no buffer can hold, with the bounds of thousands of rows in it.
    const client = await open(pooler);
    const wanted = await client.query(sumOf("wide_source"));
    const data = await copyOut(client, `COPY wide_source TO STDOUT (FORMAT ${format})`);
    assert.ok(data.length > 63 << 20);
    client.send(f.Q(`COPY target FROM STDIN (FORMAT ${format})`), f.d(data), f.c());
    assert.is(await client.replies(1, { timeoutMs: 60_000 }), `G C"COPY ${ROWS}" Z(I)`);
    assert.equal(await client.query(sumOf("target"), 60_000), wanted);
    await client.query("TRUNCATE target");
    await client.end();
  });
}

test("copies without rows, with markers, headers and empty messages get PostgreSQL's answers", async () => {
  // An empty message or a marker is no end of the data, and a copy of nothing is a copy.
  const twin = await Twin.login(pooler, postgres);
  const signature = [0x50, 0x47, 0x43, 0x4f, 0x50, 0x59, 0x0a, 0xff, 0x0d, 0x0a, 0];
  const header = Uint8Array.from([...signature, 0, 0, 0, 0, 0, 0, 0, 0]);
  const trailer = Uint8Array.of(0xff, 0xff);
  const copies: [string, Uint8Array[]][] = [
    ["FORMAT text", []],
    ["FORMAT csv", []],
    ["FORMAT binary", [f.d(header), f.d(trailer)]],
    ["FORMAT binary", []],
    ["FORMAT binary", [f.d(header), f.d(trailer), f.d("more")]],
    ["FORMAT text", upTo(1000).map(() => f.d(""))],
    ["FORMAT text", [f.d("\\.\n")]],
    ["FORMAT text", [f.d("1\ta\n"), f.d("\\"), f.d("."), f.d("\n")]],
    ["FORMAT text", [f.d("1\ta\n\\.\n2\tb\n")]],
    ["FORMAT text", [f.d("1\ta\n\\.\n"), f.d("not a row\n")]],
    ["FORMAT text", [f.d("1\ta")]],
    ["FORMAT text", [f.d("1\ta\r\n2\tb\r\n")]],
    ["FORMAT csv", [f.d("1,a\n"), f.d("\\.\n")]],
    ["FORMAT csv, HEADER", [f.d("i,s\n")]],
    ["FORMAT csv, HEADER", [f.d("i"), f.d(",s\n1"), f.d(',"a\nb"\n')]],
    ["FORMAT csv, HEADER MATCH", [f.d("i,s\n1,a\n")]],
    ["FORMAT csv, HEADER MATCH", [f.d("s,i\n1,a\n")]],
    ["FORMAT csv, DELIMITER ';', NULL '-'", [f.d("1;-\n2;b\n")]],
  ];
  for (const [options, data] of copies) {
    const command = `COPY plain FROM STDIN (${options})`;
    const back = f.Q(`COPY plain TO STDOUT (${options.replace(" MATCH", "")})`);
    await twin.same([f.Q(command), ...data, f.c(), f.Q("SELECT 1")], 2);
    await postgres.query("TRUNCATE plain");
    // What goes in is seen by nobody else, so that each side reads its own.
    await twin.same([f.Q("BEGIN"), f.Q(command), ...data, f.c(), back, f.Q("ROLLBACK")], 4);
    const extended = [f.P("", command), f.B(), f.D(), f.E()];
    await twin.same([f.Q("BEGIN"), ...extended, ...data, f.c(), f.S(), back, f.Q("ROLLBACK")], 4);
  }
  await twin.end();
});

test("what is wrong with a copy is told in PostgreSQL's words", async () => {
  // Poolers wrote an error of their own, or cut the context off that says which line it was.
  const [pooled, direct] = [await open(pooler), await open(postgres)];
  const wrong: [string, string, Uint8Array[]][] = [
    ["a bad number", "text", [f.d("1\ta\nbad\tb\n3\tc\n"), f.c()]],
    ["too few columns", "text", [f.d("1\n"), f.c()]],
    ["too many columns", "text", [f.d("1\ta\tb\n"), f.c()]],
    ["a double key", "text", [f.d("1\ta\n1\tb\n"), f.c()]],
    ["bytes that are no text", "text", [f.d(Uint8Array.of(0x31, 9, 0xff, 0xfe, 10)), f.c()]],
    ["a quote without end", "csv", [f.d('1,"a\n'), f.c()]],
    ["no binary", "binary", [f.d("1\ta\n"), f.c()]],
    ["an end by the client", "text", [f.d("1\ta\n"), f.f("client says no")]],
    ["an end by the client at once", "csv", [f.f("")]],
    ["an end by the client at length", "binary", [f.f("x".repeat(5000))]],
  ];
  for (const [what, format, data] of wrong) {
    for (const begin of [false, true]) {
      const errors: string[] = [];
      for (const client of [pooled, direct]) {
        if (begin) {
          await client.query("BEGIN; CREATE TEMP TABLE kept AS SELECT 7 AS i; SAVEPOINT p");
        }
        client.send(f.Q(`COPY t FROM STDIN (FORMAT ${format})`), ...data);
        const messages = await client.messagesUntil("Z");
        const failure = messages.find((each) => each.type === Backend.errorResponse);
        errors.push(JSON.stringify(parseErrorFields(failure!.body)));
        assert.is(transcript(messages).slice(-4), begin ? "Z(E)" : "Z(I)", what);
        if (!begin) continue;
        // The transaction is there, with its table.
        await client.query("ROLLBACK TO p");
        assert.equal(await client.query("SELECT i FROM kept"), [["7"]], what);
        await client.query("ROLLBACK");
      }
      assert.is(errors[0], errors[1], what);
    }
  }
  const stopped = await open(pooler);
  stopped.send(f.Q("COPY t FROM STDIN"), f.f("client says no"));
  const { code, message } = parseErrorFields((await stopped.messagesUntil("Z"))[1]!.body);
  assert.is(`${code} ${message}`, "57014 COPY from stdin failed: client says no");
  for (const client of [pooled, direct, stopped]) await client.end();
});

test("several copies in one query and in one pipeline keep their order", async () => {
  // The end of the first copy was taken for the end of the query.
  await postgres.query("CREATE DATABASE twin");
  const twin = await Twin.login(pooler, postgres, login, { ...login, database: "twin" });
  await twin.same([f.Q("CREATE TABLE a (i int); CREATE TABLE b (i int)")]);
  const both = "COPY a FROM STDIN; COPY b FROM STDIN";
  const rows = (text: string) => [f.d(text), f.c()];
  await twin.same([f.Q(both), ...rows("1\n"), ...rows("2\n"), f.Q("TABLE a; TABLE b")], 2);
  // The data of the second come when it has been asked for.
  twin.pooled.send(f.Q(both), ...rows("3\n"));
  twin.direct.send(f.Q(both), ...rows("3\n"));
  assert.is(await twin.pooled.repliesUntil("G", 2), await twin.direct.repliesUntil("G", 2));
  await twin.same([...rows("4\n"), f.Q("TABLE a; TABLE b")], 2);
  await twin.same([f.Q(both), f.d("bad\n"), f.c(), f.Q("SELECT 1")], 2);
  await twin.same([f.Q(both), ...rows("5\n"), f.d("bad\n"), f.c(), f.Q("SELECT 1")], 2);
  await twin.same([f.Q(both), ...rows("5\n"), f.f("no"), f.Q("SELECT 1")], 2);
  await twin.same([
    f.Q(`COPY a TO STDOUT; ${both}; COPY b TO STDOUT; SELECT 2`),
    ...rows(""),
    ...rows("6\n"),
  ]);
  await twin.same([f.Q("BEGIN"), f.Q(both), ...rows("7\n"), ...rows("8\n"), f.Q("ROLLBACK")], 3);
  const extended = (sql: string) => [f.P("", sql), f.B(), f.E()];
  await twin.same([
    ...extended("COPY a FROM STDIN"),
    ...rows("9\n"),
    ...extended("COPY b FROM STDIN"),
    ...rows("10\n"),
    ...extended("TABLE a"),
    f.S(),
  ]);
  await twin.same([
    ...extended("COPY a FROM STDIN"),
    ...rows("bad\n"),
    ...extended("COPY b FROM STDIN"),
    ...rows("11\n"),
    f.S(),
    f.Q("TABLE b"),
  ], 2);
  await twin.same([...extended("COPY a TO STDOUT"), ...extended("COPY b TO STDOUT"), f.S()]);
  await twin.end();
});

test("a copy in both directions on a normal connection is an error and no hang", async () => {
  // Only a replication connection may have one: PostgreSQL says so, and a server that starts it all the same is
  // one that has lost its senses.
  const twin = await Twin.login(pooler, postgres);
  await twin.same([f.Q("START_REPLICATION SLOT s PHYSICAL 0/0"), f.Q("SELECT 1")], 2);
  await twin.same([f.P("", "START_REPLICATION 0/0"), f.B(), f.E(), f.S(), f.Q("SELECT 1")], 2);
  await twin.end();
  const fake = await startFakePostgres({
    onMessage: (session, asked) => {
      if (asked.type !== Frontend.query || queryText(asked) !== "both") session.answer(asked);
      else session.send(message(Backend.copyBoth, Uint8Array.of(0, 0, 0)));
    },
  });
  const front = await startPooler(fake, { settings: { default_pool_size: 1 } });
  try {
    const client = await open(front);
    client.send(f.Q("both"), f.d("data"));
    assert.is(await client.repliesUntilClosed(), "E(08006) closed");
    await until("the server to be closed", () => fake.open.length === 0);
    const next = await open(front);
    assert.is(await ask(next, [f.Q("good")]), 'T D("good") C"SELECT 1" Z(I)');
    await next.end();
  } finally {
    await front.stop();
    await fake.stop();
  }
});

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  await nothingHangs(pooler, postgres);
});

test.run();
