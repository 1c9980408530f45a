// COPY through a pooler: data cut in any way, errors while data is still on its way, and clients that leave in the
// middle. What counts: not a row of an unfinished COPY, not a lost server, and PostgreSQL's own answers.
// limit: 360 s

import { execFileSync } from "node:child_process";
import { concatBytes, type Message } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { openFiles, residentBytes } from "../../support/processes.ts";
import type { RawClient } from "../../support/raw_client.ts";
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
} from "./support.ts";

needs("postgresql");

const test = suite("COPY");
let postgres: Postgres;
/** One server connection. */
let pooler: Pgweir;
/** Two server connections. */
let wide: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair());
  wide = await startPooler(postgres, { settings: { default_pool_size: 2 } });
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await wide.stop();
  await postgres.stop("immediate");
});

/** The data of a COPY ... TO STDOUT. */
async function copyOut(client: RawClient, sql: string): Promise<Uint8Array> {
  client.send(f.Q(sql));
  const messages = await client.messagesUntil("Z", 1, 60_000);
  const isData = (message: Message) => message.type === 0x64;
  return concatBytes(...messages.filter(isData).map((message) => message.body));
}

/** CopyData messages of `size` bytes each. */
function frames(data: Uint8Array, size: number): Uint8Array {
  const parts: Uint8Array[] = [];
  for (let at = 0; at < data.length; at += size) parts.push(f.d(data.subarray(at, at + size)));
  return concatBytes(...parts);
}

test("a COPY that failed early ends there, however much is sent behind it", async () => {
  // The server leaves copy mode at a bad row while the client is still sending: its CopyDone came
  // after that, was counted as a request, and the server was never given back.
  await postgres.query("CREATE TABLE early (i int PRIMARY KEY)");
  const late = upTo(100).map(() => f.d("1\n"));
  for (const end of [f.c(), f.f("stop")]) {
    const twin = await Twin.login(pooler, postgres);
    const copy = f.Q("COPY early FROM STDIN");
    assert.is(await twin.same([copy, f.d("bad\n")]), "G E(22P02) Z(I)");
    assert.is(await twin.same([...late, end, f.Q("SELECT 1")]), 'T D("1") C"SELECT 1" Z(I)');
    assert.is(await twin.same([copy, f.d("bad\n"), ...late, end]), "G E(22P02) Z(I)");
    await twin.same([f.Q("BEGIN"), copy, f.d("bad\n")], 2);
    assert.is(await twin.same([...late, end, f.Q("SELECT 1")]), "E(25P02) Z(E)");
    await twin.same([f.Q("ROLLBACK")]);
    // The same in the extended protocol, where all is skipped up to a Sync.
    const extended = [f.P("", "COPY early FROM STDIN"), f.B(), f.E()];
    await twin.same([...extended, f.H(), f.d("bad\n"), ...late, end, f.S(), f.Q("SELECT 2")], 2);
    await twin.same([...extended, f.d("7\n"), f.f("no"), f.S(), f.S(), f.Q("SELECT 3")], 3);
    await twin.same([...extended, f.d("bad\n"), end, f.Q("SELECT 4"), f.S()]);
    await twin.same([f.P("", "COPY nowhere FROM STDIN"), f.B(), f.E(), f.d("1\n"), end, f.S()]);
    await twin.same([f.Q("COPY nowhere FROM STDIN"), f.d("1\n"), end, f.Q("SELECT 5")], 2);
    await twin.end();
  }
  // Late parts that come when the server is somebody else's already.
  const client = await open(pooler);
  const other = await open(pooler);
  assert.is(await ask(client, [f.Q("COPY early FROM STDIN"), f.d("bad\n")]), "G E(22P02) Z(I)");
  assert.is(
    await ask(other, [f.Q("BEGIN"), f.Q("SELECT 2")], 2),
    'C"BEGIN" Z(T) T D("2") C"SELECT 1" Z(T)',
  );
  client.send(...late, f.c());
  await client.readNothingFor(50);
  assert.is(await ask(other, [f.Q("COMMIT")]), 'C"COMMIT" Z(I)');
  assert.is(await ask(client, [f.Q("SELECT 3")]), 'T D("3") C"SELECT 1" Z(I)');
  assert.equal(await postgres.query("SELECT * FROM early"), []);
  await client.end();
  await other.end();
});

test("copies in every form and order get PostgreSQL's answers", async () => {
  // Poolers that keep count of requests lost it over copies: two in one query, one in a pipeline,
  // one that has no data at all, one whose Sync came too early.
  await postgres.query("CREATE DATABASE twin");
  const twin = await Twin.login(pooler, postgres, login, { ...login, database: "twin" });
  await twin.same([f.Q("CREATE TABLE a (i int, t text); CREATE TABLE b (i int)")]);
  const reset = () => twin.same([f.Q("TRUNCATE a, b")]);
  const copy = f.Q("COPY a FROM STDIN");
  await twin.same([copy, f.c()]);
  await twin.same([copy, f.d(""), f.d("1\tone\n"), f.d(""), f.c(), f.Q("SELECT * FROM a")], 2);
  await reset();
  await twin.same([copy, f.d("1\tone\n2\ttwo\n"), f.d("\\.\n"), f.c(), f.Q("SELECT * FROM a")], 2);
  await reset();
  await twin.same([copy, f.d("1\tone\n"), f.f("client says no"), f.Q("SELECT * FROM a")], 2);
  await twin.same([f.Q("COPY a FROM STDIN (FORMAT csv, HEADER)"), f.d("i,t\n1,one\n"), f.c()]);
  await twin.same([
    f.Q("COPY a FROM STDIN; COPY b FROM STDIN; SELECT 1"),
    f.d("1\tx\n"),
    f.c(),
    f.d("2\n"),
    f.c(),
    f.Q("SELECT * FROM b"),
  ], 2);
  await twin.same([f.Q("COPY a FROM STDIN; COPY b FROM STDIN"), f.d("1\tx\n"), f.c(), f.f("no")]);
  await twin.same(
    [f.Q("SELECT 1; COPY a TO STDOUT; COPY b TO STDOUT"), f.Q("COPY b TO STDOUT")],
    2,
  );
  const extended = (sql: string) => [f.P("", sql), f.B(), f.D(), f.E()];
  await twin.same([...extended("COPY b FROM STDIN"), f.d("3\n"), f.c(), f.S(), f.Q("SELECT 1")], 2);
  await twin.same([...extended("COPY b FROM STDIN"), f.S(), f.d("4\n"), f.c(), f.S()]);
  await twin.same([...extended("COPY b TO STDOUT"), f.S(), ...extended("SELECT 1"), f.S()], 2);
  await twin.same([f.P("in", "COPY b FROM STDIN"), f.B("", "in"), f.E(), f.d("5\n"), f.c(), f.S()]);
  await twin.same([f.Q("BEGIN"), f.Q("COPY b FROM STDIN"), f.d("6\n"), f.c(), f.Q("COMMIT")], 3);
  await twin.same([f.d("not in a copy"), f.c(), f.f("neither"), f.S(), f.Q("SELECT * FROM b")], 2);
  await twin.same([f.Q("START_REPLICATION 0/0"), f.Q("COPY b FROM '/dev/null'")], 2);
  // The data may come long after the command, each in its time.
  for (const part of [copy, f.d("1\t"), f.d("slow\n"), f.H()]) {
    twin.pooled.send(part);
    twin.direct.send(part);
    await twin.pooled.readNothingFor(part === copy ? 0 : 20).catch(() => {});
  }
  await twin.same([f.c(), f.Q("SELECT * FROM a"), f.Q("DROP TABLE a, b")], 3);
  await twin.end();
});

test("the frames of a COPY may be of any size", async () => {
  // The bounds of CopyData messages have nothing to do with rows: proxies that looked inside them
  // lost rows that were split, or the end of a message that was longer than their buffer.
  const source = "SELECT i, md5(i::text) AS t, i::float8 / 7 AS x FROM generate_series(1, %) i";
  await postgres.query("CREATE TABLE target (i int, t text, x float8)");
  const sum = "SELECT count(*), md5(string_agg(target::text, ',' ORDER BY i)) FROM target";
  const direct = await open(postgres);
  const client = await open(pooler);
  for (const format of ["text", "csv", "binary"]) {
    for (
      const [size, count] of [[1, 300], [2, 300], [7, 2000], [4096, 10_000], [
        1 << 20,
        10_000,
      ]] as const
    ) {
      const data = await copyOut(
        direct,
        `COPY (${source.replace("%", String(count))}) TO STDOUT (FORMAT ${format})`,
      );
      const through = await copyOut(
        client,
        `COPY (${source.replace("%", String(count))}) TO STDOUT (FORMAT ${format})`,
      );
      assert.equal(through, data);
      const copy = [f.Q(`COPY target FROM STDIN (FORMAT ${format})`), frames(data, size), f.c()];
      const what = `${format} in frames of ${size}`;
      assert.is(await ask(client, copy), `G C"COPY ${count}" Z(I)`, what);
      const copied = await client.query(sum);
      await client.query("TRUNCATE target");
      assert.is(await ask(direct, copy), `G C"COPY ${count}" Z(I)`, what);
      assert.equal(copied, await direct.query(sum), what);
      await direct.query("TRUNCATE target");
    }
  }
  await client.end();
  await direct.end();
});

test("a field as large as a hundred buffers passes, and leaves no memory behind", async () => {
  // One CopyData message may be a GiB long; held whole, a few of them end a pooler.
  await postgres.query("CREATE TABLE large (t text)");
  const client = await open(pooler);
  await client.query("SELECT 1");
  const before = residentBytes(pooler.pid);
  let most = before;
  const watch = setInterval(() => most = Math.max(most, residentBytes(pooler.pid)), 10);
  const line = new Uint8Array(64 << 20).fill(0x78);
  line[line.length - 1] = 0x0a;
  client.send(f.Q("COPY large FROM STDIN"), f.d(line), f.c());
  assert.is(await client.replies(1, { timeoutMs: 60_000 }), 'G C"COPY 1" Z(I)');
  const size = String(line.length - 1);
  assert.equal(await client.query("SELECT length(t), t = repeat('x', length(t)) FROM large"), [
    [size, "t"],
  ]);
  const data = await copyOut(client, "COPY large TO STDOUT");
  assert.is(data.length, line.length);
  assert.ok(data.every((byte, at) => byte === line[at]));
  clearInterval(watch);
  assert.ok(most - before < 32 << 20, `the pooler grew by ${(most - before) >> 20} MiB`);
  await client.end();
});

test("a transaction survives a COPY that fails in it, with all that it has made", async () => {
  // A pooler that took an error in COPY for the end of the transaction gave the server away, and
  // with it the temporary table and the savepoint of its client.
  const client = await open(pooler);
  const pid = (await client.query("BEGIN; SELECT pg_backend_pid()"))[0]![0];
  await client.query("CREATE TEMP TABLE tt (i int) ON COMMIT DROP; SAVEPOINT p");
  assert.is(
    await ask(client, [f.Q("COPY tt FROM STDIN"), f.d("1\nbad\n"), f.d("2\n"), f.c()]),
    "G E(22P02) Z(E)",
  );
  assert.is(await ask(client, [f.Q("ROLLBACK TO p")]), 'C"ROLLBACK" Z(T)');
  assert.is(await ask(client, [f.Q("COPY tt FROM STDIN"), f.d("3\n"), f.c()]), 'G C"COPY 1" Z(T)');
  assert.equal(await client.query("SELECT i, pg_backend_pid() FROM tt"), [["3", pid!]]);
  await client.query("COMMIT");
  await client.end();
});

const endings: [string, (client: RawClient) => void][] = [
  ["Terminate", (client) => client.send(f.X())],
  ["end", (client) => void client.end()],
  ["FIN", (client) => client.halfClose()],
  ["close", (client) => client.close()],
  ["RST", (client) => client.reset()],
];

test("a client that leaves in the middle of a COPY leaves no row and no server behind", async () => {
  // The server was freed as soon as it asked for data, so that the next client's messages became
  // data; or it waited for ever for data of a client that was gone; or half the rows were committed.
  await postgres.query("CREATE TABLE left_alone (i int)");
  const warm = [await open(wide), await open(wide)];
  await Promise.all(warm.map((client) => client.query("SELECT pg_sleep(0.05)")));
  for (const client of warm) await client.end();
  const files = openFiles(wide.pid);
  const data = upTo(1000).map((i) => f.d(`${i}\n`));
  const copy = f.Q("COPY left_alone FROM STDIN");
  const whole = concatBytes(...data);
  const starts: [string, Uint8Array, boolean][] = [
    ["before the first row", new Uint8Array(0), false],
    ["after a thousand rows", whole, false],
    ["in the middle of a frame", concatBytes(whole, f.d("1000000\n").subarray(0, 8)), false],
    [
      "in the middle of a large frame",
      concatBytes(whole, f.d("1".repeat(100_000)).subarray(0, 70_000)),
      false,
    ],
    ["after CopyDone", concatBytes(whole, f.c()), true],
  ];
  for (const [when, sent, done] of starts) {
    for (const [how, leave] of endings) {
      // A message within a message is none.
      if (how === "Terminate" && when.startsWith("in the middle")) continue;
      for (const extended of [false, true]) {
        const client = await open(wide);
        if (extended) client.send(f.P("", "COPY left_alone FROM STDIN"), f.B(), f.E(), f.H());
        else client.send(copy);
        assert.is(await client.repliesUntil("G"), extended ? "1 2 G" : "G");
        client.send(sent);
        leave(client);
        const what = `${how} ${when}`;
        await until(
          `the server to be free, ${what}`,
          async () => (await postgres.backends()).every((backend) => backend.state === "idle"),
        );
        const counted = await postgres.query("SELECT count(*)::int AS n FROM left_alone");
        const count = counted[0]!["n"];
        assert.ok(count === 0 || (done && count === 1000), `${count} rows, ${what}`);
        if (count !== 0) await postgres.query("TRUNCATE left_alone");
        client.close();
      }
    }
  }
  // Good-bye in the same write as the command, before the server has asked for data.
  const hasty = await open(wide);
  hasty.send(copy, f.X());
  await until(
    "the server to be free, after a hasty good-bye",
    async () => (await postgres.backends()).every((backend) => backend.state === "idle"),
  );
  await until("all sockets to be closed", () => openFiles(wide.pid) <= files + 2);
});

test("a client that leaves in the middle of what it is sent frees the server", async () => {
  // A server that streams to a client that is gone went on to the last row, or stayed for ever.
  const sql = "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 10000000)) TO STDOUT";
  for (const query of [sql, "SELECT repeat('x', 1000) FROM generate_series(1, 10000000)"]) {
    for (const [how, leave] of query === sql ? endings : endings.slice(2, 4)) {
      const client = await open(wide);
      client.send(f.Q(query));
      await until("some of it to come", () => client.unread > 65_536);
      client.pauseReading();
      leave(client);
      // Who neither reads nor closes is waited for, as PostgreSQL does.
      if (how === "FIN" || how === "Terminate") client.close();
      await until(
        `the server to be free, ${how}`,
        async () => (await postgres.backends()).every((backend) => backend.state === "idle"),
      );
      client.close();
    }
  }
});

test("a slow COPY keeps its server, and the others are served by the second one", async () => {
  // A pooler that gave every client a turn took the server from a COPY between two rows.
  await postgres.query("CREATE TABLE slow (i int)");
  const client = await open(wide);
  client.send(f.Q("COPY slow FROM STDIN"));
  assert.is(await client.repliesUntil("G"), "G");
  const others = [await open(wide), await open(wide), await open(wide)];
  for (const i of upTo(20)) {
    client.send(f.d(`${i}\n`));
    const answers = others.map((other) => ask(other, [f.Q(`SELECT ${i}`)]));
    for (const answer of answers) assert.is(await answer, `T D("${i}") C"SELECT 1" Z(I)`);
  }
  client.send(f.c());
  assert.is(await client.replies(), 'C"COPY 20" Z(I)');
  for (const other of [client, ...others]) await other.end();
});

test("a dump goes in through the pooler and comes out the same", async () => {
  // The most common COPY of all: pg_dump on one end and psql on the other.
  await postgres.query(
    "CREATE DATABASE dumped; CREATE DATABASE restored",
  ).catch(async () => {
    await postgres.query("CREATE DATABASE dumped");
    await postgres.query("CREATE DATABASE restored");
  });
  await postgres.query(
    "CREATE TABLE things AS SELECT i, md5(i::text) AS t FROM generate_series(1, 5000) i;" +
      "CREATE VIEW seen AS SELECT count(*) FROM things; CREATE INDEX ON things (i)",
    [],
    "dumped",
  );
  const at = ["-h", pooler.host, "-p", String(pooler.port), "-U", "postgres"];
  const dump = execFileSync("pg_dump", [...at, "dumped"], { maxBuffer: 1 << 28 });
  execFileSync("psql", [...at, "-q", "-v", "ON_ERROR_STOP=1", "restored"], {
    input: dump,
    stdio: ["pipe", "ignore", "inherit"],
  });
  const sum = "SELECT count(*)::int AS n, md5(string_agg(t, ',' ORDER BY i)) AS sum FROM things";
  assert.equal(
    await postgres.query(sum, [], "restored"),
    await postgres.query(sum, [], "dumped"),
  );
  assert.equal(await postgres.query("SELECT * FROM seen", [], "restored"), [{ count: "5000" }]);
});

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  await nothingHangs(pooler, postgres);
});

test.run();
