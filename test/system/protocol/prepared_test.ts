// Prepared statements of many clients on few server connections: each client sees its own names with its own texts,
// whatever others prepare, drop or evict, and what is kept for them is bounded and given back.
// limit: 360 s

import { Backend, parseErrorFields } from "../../../shared/wire/mod.ts";
import { assert, seededRandom, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { residentBytes } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
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
} from "./support.ts";

needs("postgresql");

const test = suite("prepared statements");
let postgres: Postgres;
/** One server connection. */
let pooler: Pgweir;
/** Two server connections that keep 20 statements each. */
let small: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair());
  small = await startPooler(postgres, {
    settings: { default_pool_size: 2, max_prepared_statements: 20 },
  });
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await small.stop();
  await postgres.stop("immediate");
});

test("a client that drops all its statements leaves those of others alone", async () => {
  // One client's DEALLOCATE ALL emptied the shared server while the pooler still believed that its
  // statements were there: everybody else got "prepared statement does not exist" from then on.
  const other = await open(pooler);
  const others = [f.P("x", "SELECT 1"), f.B("", "x"), f.E(), f.S()];
  assert.is(await ask(other, others), '1 2 D("1") C"SELECT 1" Z(I)');
  const spellings = [
    "DEALLOCATE ALL",
    "DISCARD ALL",
    "deallocate all",
    "Discard All;",
    "/* x */ DISCARD  ALL",
  ];
  for (const sql of spellings) {
    const twin = await Twin.login(pooler, postgres);
    await twin.same([f.P("s1", "SELECT 1"), f.S(), f.P("x", "SELECT 7"), f.S()], 2);
    await twin.same([f.Q(sql)]);
    await twin.same([f.B("", "s1"), f.E(), f.S()]);
    await twin.same([f.P("s1", "SELECT 2"), f.B("", "s1"), f.E(), f.S()]);
    await twin.same([f.Q("BEGIN"), f.Q(sql), f.Q("ROLLBACK")], 3);
    await twin.same([f.P("", sql), f.B(), f.E(), f.S()]);
    await twin.same([f.P("s1", "SELECT 3"), f.B("", "s1"), f.E(), f.S()]);
    assert.is(
      await ask(other, [f.B("", "x"), f.E(), f.S()]),
      '2 D("1") C"SELECT 1" Z(I)',
      sql,
    );
    await twin.end();
  }
  await other.end();
});

test("errors name a statement as its client does", async () => {
  // Applications showed and logged names of the pooler's, and drivers that look for their own in an error found none.
  const twin = await Twin.login(pooler, postgres);
  const other = await open(pooler);
  await ask(other, [f.P("theirs", "SELECT $1::int, $2::int"), f.S()]);
  await twin.same([f.P('my "é"', "SELECT $1::int, $2::int"), f.S()]);
  await twin.same([f.P("second", "SELECT $1::int, $2::int"), f.C("S", "second"), f.S()]);
  const errors = [twin.pooled, twin.direct].map(async (client) => {
    const texts: string[] = [];
    for (
      const parts of [
        [f.B("", 'my "é"', ["1"]), f.S()],
        [f.P("new", "SELECT $1::int"), f.B("", "new", []), f.S()],
        [f.P("new", "SELECT 1"), f.S()],
        [f.B("", "unknown"), f.S()],
        [f.Q("SELECT 'PGWEIR_1'::int")],
      ]
    ) {
      client.send(...parts);
      const messages = await client.messagesUntil("Z");
      const failed = messages.find((each) => each.type === Backend.errorResponse)!;
      const { code, message } = parseErrorFields(failed.body);
      texts.push(`${code} ${message}`);
    }
    return texts;
  });
  const [pooled, direct] = await Promise.all(errors);
  assert.equal(pooled, direct);
  assert.match(direct![0]!, /^08P01 .*"my "é"" requires 2/);
  await twin.end();
  await other.end();
});

test("long names are taken, or refused alike however they come", async () => {
  // Whether a Bind with a name of 32 to 64 KiB was broken or not was a matter of the pieces in which it came.
  const pieces = async (client: RawClient, parts: Uint8Array[], size: number) => {
    const whole = Buffer.concat(parts);
    const count = Math.ceil(whole.length / size);
    await client.sendCut(whole, Array.from({ length: count }, (_, at) => at * size));
  };
  for (const size of [8000, 33_000, 1 << 20]) {
    const client = await open(pooler);
    for (const length of [63, 64, 9_000, 16_384]) {
      const name = "n".repeat(length);
      await pieces(client, [f.P(name, "SELECT 1"), f.B("", name), f.E(), f.S()], size);
      assert.is(await client.replies(), '1 2 D C"SELECT 1" Z(I)', `${length} in ${size}`);
      // PostgreSQL takes no longer messages of these types.
      if (length > 9_000) continue;
      await pieces(client, [f.D("S", name), f.C("S", name), f.S()], size);
      assert.is(await client.replies(), "t(0) T 3 Z(I)", `${length} in ${size}`);
    }
    for (const length of [16_385, 30_000, 40_000, 70_000, 200_000]) {
      await pieces(client, [f.P("n".repeat(length), "SELECT 1"), f.S()], size);
      assert.is(await client.replies(), "E(54000) Z(I)", `${length} in ${size}`);
    }
    await pieces(client, [f.B("", "n".repeat(30_000)), f.S()], size);
    assert.is(await client.replies(), "E(26000) Z(I)");
    await client.end();
    for (const length of [33_000, 40_000, 60_000, 70_000]) {
      for (const parts of [[f.B("", "n".repeat(length))], [f.B("p".repeat(length), "")]]) {
        const ended = await open(pooler);
        await pieces(ended, [...parts, f.S()], size).catch(() => {});
        assert.is(await ended.repliesUntilClosed(), "E(54000) closed", `${length} in ${size}`);
      }
    }
  }
});

test("names follow PostgreSQL's rules", async () => {
  // Poolers that give statements names of their own took a second Parse of a live name, or refused
  // one after a failed Parse, or closed a statement when a portal of that name was closed.
  const cases: [string, Uint8Array[][]][] = [
    ["a name that is taken", [
      [f.P("x", "SELECT 1"), f.S()],
      [f.P("x", "SELECT 2"), f.S()],
      [f.B("", "x"), f.E(), f.S()],
    ]],
    ["a name that is taken, in one group", [
      [f.P("x", "SELECT 1"), f.P("x", "SELECT 2"), f.B("", "x"), f.E(), f.S()],
      [f.B("", "x"), f.E(), f.S()],
    ]],
    ["the unnamed one twice", [[f.P("", "SELECT 1"), f.P("", "SELECT 2"), f.B(), f.E(), f.S()]]],
    ["a Parse that failed", [
      [f.P("y", "SELEC 1"), f.S()],
      [f.P("y", "SELECT 3"), f.B("", "y"), f.E(), f.S()],
    ]],
    ["a Parse that failed, with others around it", [
      [f.P("a", "SELECT 1"), f.P("b", "SELEC 1"), f.P("c", "SELECT 2"), f.S()],
      [f.B("", "a"), f.E(), f.S()],
      [f.B("", "b"), f.E(), f.S()],
      [f.B("", "c"), f.E(), f.S()],
      [f.P("b", "SELECT 4"), f.P("c", "SELECT 5"), f.B("", "c"), f.E(), f.S()],
    ]],
    ["Close of the unknown", [[f.C("S", "nope"), f.C("P", "nope"), f.S()]]],
    ["a portal and a statement of one name", [
      [f.P("n", "SELECT 1"), f.B("n", "n"), f.C("P", "n"), f.B("", "n"), f.E(), f.S()],
      [f.B("n", "n"), f.C("S", "n"), f.E("n"), f.S()],
      [f.B("", "n"), f.S()],
    ]],
    ["the unknown", [[f.D("S", "nope"), f.S()], [f.B("", "nope"), f.S()], [f.D("P", "no"), f.S()]]],
    ["a closed one", [
      [f.P("k", "SELECT 1"), f.C("S", "k"), f.B("", "k"), f.S()],
      [f.P("k", "SELECT 2"), f.B("", "k"), f.E(), f.C("S", "k"), f.S()],
      [f.D("S", "k"), f.S()],
    ]],
    ["a Close that is skipped after an error", [
      [f.P("k", "SELECT 1"), f.S()],
      [f.B("", "nope"), f.C("S", "k"), f.P("j", "SELECT 2"), f.S()],
      [f.B("", "k"), f.E(), f.S()],
      [f.B("", "j"), f.E(), f.S()],
    ]],
    ["Describe in every place", [
      [
        f.P("k", "SELECT $1::int, $2::text"),
        f.D("S", "k"),
        f.B("p", "k", ["1", null]),
        f.D("P", "p"),
        f.S(),
      ],
      [f.D("S", "k"), f.D("S", "k"), f.S()],
    ]],
    ["an aborted transaction", [
      [f.P("k", "SELECT 1"), f.S()],
      [f.Q("BEGIN"), f.Q("SELECT 1/0")],
      [f.B("", "k"), f.E(), f.S()],
      [f.D("S", "nope"), f.S()],
      [f.P("l", "SELECT 2"), f.S()],
      [f.C("S", "k"), f.S()],
      [f.Q("ROLLBACK"), f.B("", "k"), f.S(), f.B("", "l"), f.S()],
    ]],
    ["names with a prefix of the pooler's own", [
      [f.P("PGWEIR_1", "SELECT 'mine'"), f.B("", "PGWEIR_1"), f.E(), f.S()],
      [f.B("", "PGWEIR_2"), f.S()],
      [f.D("S", "PGWEIR_2"), f.S()],
      [f.C("S", "PGWEIR_2"), f.S()],
      [f.B("", "PGWEIR_1"), f.E(), f.S()],
    ]],
    // Only alone and unprepared DEALLOCATE was known to mean a name of the pooler's.
    ["DEALLOCATE among other statements", [
      [...["a", "b", "c", "D"].map((name) => f.P(name, "SELECT 1")), f.S()],
      [f.Q('DEALLOCATE a; deallocate/**/PREPARE "b" ; SELECT 1')],
      [f.B("", "a"), f.S(), f.B("", "b"), f.S(), f.B("", "c"), f.E(), f.S()],
      [f.Q("SELECT 1; DEALLOCATE c; DEALLOCATE c")],
      [f.B("", "c"), f.S()],
      [f.Q('SELECT \';DEALLOCATE "D"\', $$;DEALLOCATE "D"$$; DEALLOCATE d')],
      [f.B("", "D"), f.E(), f.S()],
      [f.Q('DEALLOCATE "D"; SELECT 1/0')],
      [f.B("", "D"), f.S()],
      [f.P("a", "SELECT 2"), f.P("b", "SELECT 2"), f.S()],
      [
        f.Q(
          "PREPARE own AS SELECT 1; DEALLOCATE a; PREPARE more AS SELECT 2; EXECUTE own; DEALLOCATE own; DEALLOCATE more; DEALLOCATE b",
        ),
      ],
      [f.B("", "a"), f.S(), f.B("", "b"), f.S()],
      [f.P("a", "SELECT 3"), f.S()],
      [f.Q("BEGIN"), f.Q("SELECT 1/0")],
      [f.Q("DEALLOCATE a; SELECT 1")],
      [f.Q("ROLLBACK; DEALLOCATE a; SELECT 1")],
      [f.B("", "a"), f.S()],
      [f.P("a", "SELECT 4"), f.S()],
      [f.Q("SELECT 1/0; DEALLOCATE a")],
      [f.B("", "a"), f.E(), f.S()],
      [f.Q("DEALLOCATE a; DEALLOCATE ALL"), f.Q("DEALLOCATE PREPARE"), f.Q("DEALLOCATE")],
      [f.B("", "a"), f.S()],
    ]],
    ["DEALLOCATE that is prepared itself", [
      [f.P("a", "SELECT 1"), f.P("drop", "DEALLOCATE a"), f.S()],
      [f.D("S", "drop"), f.S(), f.B("", "a"), f.E(), f.S()],
      [f.B("", "drop"), f.D("P", ""), f.E(), f.S()],
      [f.B("", "a"), f.S()],
      [f.B("", "drop"), f.E(), f.S()],
      [f.P("a", "SELECT 2"), f.B("", "drop"), f.E(), f.B("", "a"), f.E(), f.S()],
      [f.P("a", "SELECT 3"), f.B("", "drop"), f.E(), f.S()],
      [f.B("", "a"), f.S()],
      [f.P("self", "DEALLOCATE self"), f.B("", "self"), f.E(), f.S(), f.B("", "self"), f.S()],
    ]],
    ["odd names", [
      [
        f.P("s 1", "SELECT 1"),
        f.P("Ä\u{1f600}", "SELECT 2"),
        f.P("x".repeat(60), "SELECT 3"),
        f.S(),
      ],
      [f.B("", "Ä\u{1f600}"), f.E(), f.B("", "s 1"), f.E(), f.B("", "x".repeat(60)), f.E(), f.S()],
    ]],
  ];
  // Statements of others, so that most texts are on the server already.
  const other = await open(pooler);
  await ask(other, [...[1, 2, 3, 4, 5].map((i) => f.P(`o${i}`, `SELECT ${i}`)), f.S()]);
  for (const [what, steps] of cases) {
    for (let round = 0; round < 2; round++) {
      const twin = await Twin.login(pooler, postgres);
      for (const step of steps) {
        const count = step.filter((part) => part[0] === 0x53 || part[0] === 0x51).length;
        try {
          await twin.same(step, count);
        } catch (error) {
          throw new Error(
            `${what}, step ${steps.indexOf(step)}: ${(error as Error).message} ${
              (error as { details?: string }).details ?? ""
            }`,
          );
        }
      }
      await twin.end();
    }
  }
  await other.end();
});

test("a statement that could not be parsed can be parsed later", async () => {
  // The failed text stayed in the pooler's table, and was answered as if it were on the server.
  const client = await open(pooler);
  const parts = [f.P("m", "SELECT * FROM not_yet"), f.S()];
  assert.is(await ask(client, parts), "E(42P01) Z(I)");
  await postgres.query("CREATE TABLE not_yet (i int)");
  assert.is(await ask(client, parts), "1 Z(I)");
  assert.is(await ask(client, [f.B("", "m"), f.D(), f.E(), f.S()]), '2 T C"SELECT 0" Z(I)');
  await client.end();
});

test("the unnamed statement is never somebody else's", async () => {
  // Drivers parse the unnamed statement, wait, then bind it: on a shared server it may be another
  // client's by then, whose text then ran with this client's parameters.
  await postgres.query("CREATE TABLE kept AS SELECT i AS k FROM generate_series(1, 100) i");
  const first = await open(pooler);
  const second = await open(pooler);
  await ask(first, [f.P("", "SELECT 'A', $1::text"), f.D("S", ""), f.S()]);
  await ask(second, [f.P("", "SELECT 'B', $1::text"), f.S()]);
  assert.is(await ask(first, [f.B("", "", ["x"]), f.E(), f.S()]), "E(26000) Z(I)");
  assert.is(await ask(first, [f.D("S", ""), f.S()]), "E(26000) Z(I)");
  assert.is(
    await ask(second, [f.B("", "", ["y"]), f.E(), f.S()]),
    '2 D("B","y") C"SELECT 1" Z(I)',
  );
  await second.end();
  await first.end();

  const seed = 20261129;
  const random = seededRandom(seed);
  const texts = [
    ["SELECT", (tag: string) => `SELECT '${tag}', $1::text`, ["1"]],
    ["two parameters", (tag: string) => `SELECT '${tag}', $1::text || $2::text`, ["1", "2"]],
    ["DELETE", (_tag: string) => "DELETE FROM kept WHERE k = $1::int RETURNING 'deleted', k", [
      "1",
    ]],
  ] as const;
  let replayed = 0;
  await inParallel(upTo(8), 8, async (number) => {
    const client = await open(small);
    for (let round = 0; round < 60; round++) {
      const deletes = number === 8;
      const [, text, values] = texts[deletes ? 2 : Math.floor(random() * 2)]!;
      const answer = await ask(client, [f.P("", text(`client ${number}`)), f.D("S", ""), f.S()]);
      assert.match(answer, /^1 t\(\d\) T Z\(I\)$/);
      // This one never executes, so that nothing of the table may be gone in the end.
      if (deletes) continue;
      const result = await ask(client, [f.B("", "", values), f.E(), f.S()]);
      if (result === "E(26000) Z(I)") continue;
      replayed++;
      assert.is(
        result,
        `2 D("client ${number}","${values.join("")}") C"SELECT 1" Z(I)`,
        `seed ${seed}`,
      );
    }
    await client.end();
  });
  assert.ok(replayed > 0);
  assert.equal(await postgres.query("SELECT count(*)::int AS n FROM kept"), [{ n: 100 }]);
});

test("texts are shared by all that they are, not by how they look", async () => {
  // A cache with the text alone as its key gave one client the parameter types of another.
  const declared: [string, readonly number[]][] = [["a", [23]], ["b", [25]], ["c", []], ["d", [
    20,
  ]]];
  const twins: Twin[] = [];
  for (const [name, types] of declared) {
    const twin = await Twin.login(pooler, postgres);
    twins.push(twin);
    await twin.same([f.P(name, "SELECT $1", types), f.D("S", name), f.S()]);
  }
  for (const [at, [name]] of declared.entries()) {
    const twin = twins[at]!;
    const raw = async (client: RawClient) => {
      client.send(f.D("S", name), f.B("", name, ["7"]), f.D(), f.E(), f.S());
      return (await client.messagesUntil("Z")).map((m) => `${m.type} ${m.body}`);
    };
    assert.equal(await raw(twin.pooled), await raw(twin.direct), name);
  }
  for (const twin of twins) await twin.end();

  const client = await open(small);
  const prefix = "x".repeat(4096);
  const numbers = upTo(40);
  await ask(client, [
    ...numbers.map((i) => f.P(`long${i}`, `SELECT '${prefix}' <> '', ${i}`)),
    f.P("plain", "SELECT 1 AS one"),
    f.P("space", "SELECT 1 AS one "),
    f.P("comment", "SELECT 1 AS one -- 2"),
    f.S(),
  ]);
  for (const i of numbers) {
    assert.is(
      await ask(client, [f.B("", `long${i}`), f.E(), f.S()]),
      `2 D("t","${i}") C"SELECT 1" Z(I)`,
    );
  }
  await client.end();
});

test("a search path that follows the client decides which tables its statements mean", async () => {
  // The statement that one client prepared under its search path was run for a client with another.
  const recent = await startPair({
    settings: { track_extra_parameters: "IntervalStyle,search_path" },
    postgres: { version: "18" },
  });
  await recent.postgres.query(
    "CREATE SCHEMA s1; CREATE SCHEMA s2; CREATE TABLE s1.t AS SELECT 'one' AS v, 1 AS k;" +
      "CREATE TABLE s2.t AS SELECT 'two' AS v, 2 AS k; CREATE TABLE s1.u AS SELECT 1 AS v;" +
      "CREATE TABLE s2.u AS SELECT 'text' AS v",
  );
  const openWith = (path: string) =>
    RawClient.login(recent.pooler, { ...login, parameters: { search_path: path } });
  const clients = [await openWith("s1"), await openWith("s2")] as const;
  for (let round = 0; round < 3; round++) {
    for (const [at, client] of clients.entries()) {
      const name = `x${round}`;
      assert.is(
        await ask(client, [f.P(name, "SELECT * FROM t"), f.B("", name), f.E(), f.S()]),
        `1 2 D("${["one", "two"][at]}","${at + 1}") C"SELECT 1" Z(I)`,
      );
      // Where the types differ, an error is PostgreSQL's way to say that the statement was another.
      const other = await ask(client, [
        f.P(`u${name}`, "SELECT * FROM u"),
        f.B("", `u${name}`),
        f.E(),
        f.S(),
      ]);
      if (!other.includes("E(0A000)")) {
        assert.is(other, `1 2 D("${["1", "text"][at]}") C"SELECT 1" Z(I)`);
      }
    }
  }
  for (const client of clients) await client.end();
  await recent.pooler.stop();
  await recent.postgres.stop("immediate");
});

test("a statement prepared after a change of its table is not the one from before it", async () => {
  // The server's statement is shared by all clients with the same text: after a migration everybody
  // who prepared it anew was handed the old one, and got "cached plan must not change result type"
  // until the server connection was closed.
  await postgres.query("CREATE TABLE changing (a int); INSERT INTO changing VALUES (1)");
  const sql = "SELECT * FROM changing";
  const old = [await open(small), await open(small)];
  for (const client of old) {
    assert.is(
      await ask(client, [f.P("s", sql), f.B("", "s"), f.E(), f.S()]),
      '1 2 D("1") C"SELECT 1" Z(I)',
    );
  }
  await postgres.query("ALTER TABLE changing ADD b int DEFAULT 5");
  let failures = 0;
  for (let round = 0; round < 10; round++) {
    const client = await open(small);
    const described = await ask(client, [f.P("c", sql), f.D("S", "c"), f.S()]);
    const executed = await ask(client, [f.B("", "c"), f.D(), f.E(), f.S()]);
    if (described.includes("E(0A000)") || executed.includes("E(0A000)")) failures++;
    else {
      assert.is(described, "1 t(0) T Z(I)");
      assert.is(executed, '2 T D("1","5") C"SELECT 1" Z(I)');
    }
    await client.end();
  }
  assert.ok(failures <= 1, `${failures} of 10 clients got the old statement`);
  for (const client of old) {
    const own = await ask(client, [f.B("", "s"), f.E(), f.S()]);
    assert.ok(own === "E(0A000) Z(I)" || own === '2 D("1","5") C"SELECT 1" Z(I)', own);
    assert.is(
      await ask(client, [f.P("s2", sql), f.B("", "s2"), f.E(), f.S()]),
      '1 2 D("1","5") C"SELECT 1" Z(I)',
    );
    await client.end();
  }
});

test("evicted statements come back, and the server never holds more than it may", async () => {
  // With more texts in use than a server may hold, statements come and go with every request: an
  // eviction that was not undone after an error, or not done on the server, shows here.
  const texts = upTo(60).map((i) => `SELECT ${i}, $1::int`);
  const seed = 68;
  const random = seededRandom(seed);
  await inParallel(upTo(4), 4, async (number) => {
    const client = await open(small);
    await ask(client, [...texts.map((sql, at) => f.P(`s${at}`, sql)), f.S()]);
    for (let round = 0; round < 60; round++) {
      const picks = upTo(1 + Math.floor(random() * 8)).map(() => Math.floor(random() * 60));
      const fails = random() < 0.2;
      const parts = picks.flatMap((at) => [f.B("", `s${at}`, [`${number}`]), f.E()]);
      const expected = picks.map((at) => `2 D("${at + 1}","${number}") C"SELECT 1"`).join(" ");
      if (fails) {
        // The server skips what comes behind the error, with all that was injected there.
        const skipped = [f.B("", "s1", ["x"]), ...parts.slice(0, 6), f.S()];
        const replies = await ask(client, [...parts, ...skipped]);
        assert.is(replies, `${expected} E(22P02) Z(I)`, `seed ${seed}`);
      } else assert.is(await ask(client, [...parts, f.S()]), `${expected} Z(I)`, `seed ${seed}`);
    }
    const rows = await client.query("SELECT count(*)::int FROM pg_prepared_statements");
    assert.ok(Number(rows[0]![0]) <= 20, `${rows[0]![0]} statements on the server`);
    await client.end();
  });
});

test("statements that are never closed cost memory only while their client is there", async () => {
  // Texts with literals in them never repeat: tables that only grew ended in an out-of-memory kill.
  const padding = "x".repeat(24 * 1024);
  let texts = 0;
  const round = async (kind: "kept" | "closed" | "unnamed") => {
    await inParallel(upTo(4), 4, async () => {
      const client = await open(small);
      for (let at = 0; at < 250; at += 10) {
        const parts = upTo(10).flatMap((i) => {
          const name = kind === "unnamed" ? "" : `s${at + i}`;
          const parse = f.P(name, `SELECT ${texts++}, '${padding}'`);
          return kind === "closed" ? [parse, f.C("S", name)] : [parse];
        });
        const answers = kind === "closed" ? "1 3 " : "1 ";
        assert.is(await ask(client, [...parts, f.S()]), `${answers.repeat(10)}Z(I)`);
      }
      await client.end();
    });
  };
  const kinds = ["kept", "closed", "unnamed"] as const;
  for (const kind of kinds) await round(kind);
  const before = residentBytes(small.pid);
  for (let i = 0; i < 5; i++) for (const kind of kinds) await round(kind);
  // 360 MiB of texts have passed, each of which would be kept twice; garbage may lie about a while.
  await until(
    "memory to be given back",
    () => residentBytes(small.pid) - before < 300 << 20,
    30_000,
    100,
  );
});

test("PREPARE in SQL holds no server back", async () => {
  // A pooler that marked a server busy at PREPARE, and knew no way to unmark it, never gave it back.
  const client = await open(pooler);
  assert.is(await ask(client, [f.Q("PREPARE q AS SELECT 'A'")]), 'C"PREPARE" Z(I)');
  await ask(client, [f.Q("BEGIN"), f.Q("PREPARE z AS SELECT 1"), f.Q("COMMIT")], 3);
  const other = await open(pooler);
  assert.is(await ask(other, [f.Q("SELECT 'C'")]), 'T D("C") C"SELECT 1" Z(I)');
  await ask(other, [f.Q("DEALLOCATE ALL")]);
  await other.end();
  await client.end();
});

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  await nothingHangs(pooler, postgres);
});

test.run();
