// Requests sent before the answers to earlier ones are read: every ReadyForQuery belongs to one request, and the
// server is given away only when nothing is owed. One server connection throughout, so that a mistake is seen.

import { concatBytes } from "../../../shared/wire/mod.ts";
import { assert, seededRandom, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { standingChecks } from "../../support/standing_checks.ts";
import {
  ask,
  closeAll,
  inParallel,
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

const test = suite("pipelines");
let postgres: Postgres;
let pooler: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair());
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

/** Someone else on the only server: asks for `'B'` again and again, and must get nothing else. */
class Neighbour {
  readonly #client: RawClient;
  #stopped = false;
  #rounds = 0;
  readonly #running: Promise<void>;

  private constructor(client: RawClient) {
    this.#client = client;
    this.#running = this.#run();
  }

  static async start(): Promise<Neighbour> {
    return new Neighbour(await open(pooler));
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      assert.is(await ask(this.#client, [f.Q("SELECT 'B'")]), 'T D("B") C"SELECT 1" Z(I)');
      this.#rounds++;
    }
  }

  async stop(): Promise<number> {
    this.#stopped = true;
    await this.#running;
    assert.is(this.#client.unread, 0);
    await this.#client.end();
    return this.#rounds;
  }
}

test("fifty queries in one write get fifty answers in order, and a neighbour only its own", async () => {
  // A pooler gave the server away at the first ReadyForQuery of a pipeline: the other answers went
  // to nobody, or to the client that had the server by then.
  // On a busy machine some of the code is compiled later than in the warm-up.
  const residentGrowthBytes = 16 * 2 ** 20;
  const checks = await standingChecks(pooler, postgres, login, { idleMs: 0, residentGrowthBytes });
  const neighbour = await Neighbour.start();
  const client = await open(pooler);
  for (let round = 0; round < 20; round++) {
    const numbers = upTo(50);
    const simple = await ask(client, numbers.map((i) => f.Q(`SELECT ${i}`)), 50);
    assert.is(simple, numbers.map((i) => `T D("${i}") C"SELECT 1" Z(I)`).join(" "));
    const groups = numbers.flatMap((i) => [f.P("", `SELECT ${i}`), f.B(), f.E(), f.S()]);
    const extended = await ask(client, groups, 50);
    assert.is(extended, numbers.map((i) => `1 2 D("${i}") C"SELECT 1" Z(I)`).join(" "));
    const named = numbers.flatMap((i) => [
      f.P(`s${i}`, `SELECT ${i % 7}`),
      f.B("", `s${i}`),
      f.E(),
      f.C("S", `s${i}`),
      f.S(),
    ]);
    assert.is(
      await ask(client, named, 50),
      numbers.map((i) => `1 2 D("${i % 7}") C"SELECT 1" 3 Z(I)`).join(" "),
    );
    assert.is(await ask(client, [f.Q("SELECT 'after'")]), 'T D("after") C"SELECT 1" Z(I)');
  }
  assert.ok(await neighbour.stop() > 0);
  await client.end();
  await checks.verify();
});

test("pipelines with errors and open transactions get PostgreSQL's answers", async () => {
  // An error ends one group of a pipeline, and only that; what was skipped is not answered. Poolers
  // that counted every message they had sent waited for the skipped ones for ever.
  const neighbour = await Neighbour.start();
  const twin = await Twin.login(pooler, postgres);
  const bad = [f.P("", "SELECT 1/(length($1)-1)", [25]), f.B("", "", ["x"]), f.D(), f.E()];
  const good = [f.P("", "SELECT $1::text"), f.B("", "", ["good"]), f.D(), f.E()];
  for (let round = 0; round < 5; round++) {
    await twin.same([...good, f.S(), ...bad, ...good, f.S(), ...good, f.S()], 3);
    await twin.same([...bad, f.C("S", "none"), f.C("P", "none"), f.H(), f.S(), f.S(), f.S()], 3);
    await twin.same([f.Q("SELECT 1/0"), f.Q("SELECT 2"), ...bad, f.S(), f.Q("SELECT 3")], 4);
    await twin.same([f.Q("BEGIN"), ...bad, f.S(), f.Q("SELECT 1"), f.Q("ROLLBACK"), f.Q("")], 5);
    await twin.same([f.Q("BEGIN"), ...good, f.S(), f.Q("COMMIT; SELECT 5; SELECT 6")], 3);
    await twin.same([f.P("p", "SELECT 1"), ...bad, f.P("q", "SELECT 2"), f.S()], 1);
    await twin.same([f.B("", "p"), f.E(), f.S(), f.B("", "q"), f.E(), f.S()], 2);
    await twin.same([f.C("S", "p"), f.C("S", "q"), f.S()]);
    await twin.same([
      f.P("", "SELECT generate_series(1, 5)"),
      f.B(),
      f.E("", 2),
      f.E("", 2),
      f.S(),
    ]);
    await twin.same([f.Q("BEGIN"), f.P("", "SELECT generate_series(1, 5)"), f.B("c"), f.S()], 2);
    await twin.same([f.E("c", 2), f.S(), f.E("c", 2), f.S(), f.E("c", 2), f.C("P", "c"), f.S()], 3);
    await twin.same([f.D("P", "c"), f.S(), f.Q("ROLLBACK")], 2);
  }
  await twin.end();
  await neighbour.stop();
});

test("a query behind an Execute that failed is skipped, and no ReadyForQuery is awaited for it", async () => {
  // A driver releases its savepoint by a simple query right behind an Execute, with no Sync between.
  // When the Execute fails the server skips the query; a proxy that had counted a ReadyForQuery for
  // it waited for ever and never read the client's Sync.
  for (const target of [postgres, pooler]) {
    const client = await open(target);
    await client.query("BEGIN");
    await client.query("SAVEPOINT p");
    const waiting = await open(target);
    const failing = "SELECT 1/(pg_backend_pid()-pg_backend_pid())";
    client.send(f.P("", failing), f.B(), f.E(), f.Q("RELEASE SAVEPOINT p"));
    assert.is(await client.repliesUntil("E"), "1 2 E(22012)");
    waiting.send(f.Q("SELECT 'waited'"));
    await client.readNothingFor(100);
    client.send(f.S());
    assert.is(await client.replies(), "Z(E)");
    assert.is(await ask(client, [f.Q("ROLLBACK TO SAVEPOINT p")]), 'C"ROLLBACK" Z(T)');
    client.send(f.P("", "SELECT 1"), f.B(), f.E(), f.Q("RELEASE SAVEPOINT p"));
    assert.is(await client.replies(), '1 2 D C"SELECT 1" C"RELEASE" Z(T)');
    assert.is(await ask(client, [f.Q("COMMIT")]), 'C"COMMIT" Z(I)');
    assert.is(await waiting.replies(1, { values: true }), 'T D("waited") C"SELECT 1" Z(I)');
    await waiting.end();
    await client.end();
  }
});

test("messages that poolers answer themselves, or forget, get PostgreSQL's answers", async () => {
  // Poolers that put off BEGIN wrote its answers by hand and left some out; the rare FunctionCall
  // was unknown to them, or was handled when there was no server.
  const groups: [string, Uint8Array[], number][] = [
    ["Describe of BEGIN", [f.P("b", "BEGIN"), f.D("S", "b"), f.S()], 1],
    ["Describe of SELECT", [f.P("z", "SELECT 1"), f.D("S", "z"), f.S()], 1],
    ["FunctionCall", [f.F(2026)], 1],
    ["FunctionCall of nothing", [f.F(0)], 1],
    ["FunctionCall with an argument", [f.F(1598, /* random */ []), f.F(401, ["x"])], 2],
    ["FunctionCall in a pipeline", [f.Q("SELECT 1"), f.F(2026), f.S(), f.F(0), f.Q("")], 5],
    ["Flush", [f.H(), f.H(), f.S()], 1],
    ["Close of what is not there", [f.C("S", "nope"), f.C("P", "nope"), f.S()], 1],
    ["an empty query", [f.Q(""), f.Q(";"), f.P("", ""), f.B(), f.D(), f.E(), f.S()], 3],
  ];
  for (const [, parts, count] of groups) {
    const twin = await Twin.login(pooler, postgres);
    await twin.same(parts, count);
    await twin.same([f.Q("BEGIN")]);
    await twin.same(parts.map((part) => part), count);
    await twin.same([f.Q("ROLLBACK")]);
    await twin.end();
  }
  // The same as the first that a client sends within a transaction.
  for (const [, parts, count] of groups) {
    const twin = await Twin.login(pooler, postgres);
    await twin.same([f.Q("BEGIN")]);
    await twin.same(parts, count);
    await twin.same([f.Q("ROLLBACK")]);
    await twin.end();
  }
  const twin = await Twin.login(pooler, postgres);
  await twin.same([f.P("b", "BEGIN"), f.D("S", "b"), f.S()]);
  assert.is(await twin.same([f.B("", "b"), f.D(), f.E(), f.S()]), '2 n C"BEGIN" Z(T)');
  await twin.same([f.F(2026), f.Q("SELECT now() = statement_timestamp()"), f.Q("COMMIT")], 3);
  await twin.same([f.Q("BEGIN"), f.F(2026), f.F(0), f.Q("SELECT 1"), f.Q("ROLLBACK")], 5);
  await twin.end();
});

test("a FunctionCall in a transaction keeps its server until the end of that", async () => {
  // A pooler that knew of queries and Syncs only gave the server away behind the rare third kind.
  const client = await open(pooler);
  const other = await open(pooler);
  for (const begin of [f.Q("BEGIN"), concatBytes(f.P("", "BEGIN"), f.B(), f.E(), f.S())]) {
    client.send(begin);
    assert.match(await client.replies(), /C"BEGIN" Z\(T\)$/);
    const pid = (await client.query("SELECT pg_backend_pid()"))[0]![0];
    other.send(f.Q("SELECT 'waited'"));
    client.send(f.F(2026));
    const [result, ready] = await client.messagesUntil("Z");
    assert.equal([...ready!.body], [0x54]);
    assert.is(new TextDecoder().decode(result!.body.subarray(4)), pid);
    await other.readNothingFor(50);
    assert.is(await ask(client, [f.Q("ROLLBACK")]), 'C"ROLLBACK" Z(I)');
    assert.is(await other.replies(1, { values: true }), 'T D("waited") C"SELECT 1" Z(I)');
  }
  // Outside a transaction it is one of its own, and the server is free behind it.
  client.send(f.F(2026));
  assert.is(await client.replies(), "V Z(I)");
  assert.is(await ask(other, [f.Q("SELECT 'free'")]), 'T D("free") C"SELECT 1" Z(I)');
  await client.end();
  await other.end();
});

test("a server stays while the next command is on its way, as Npgsql sends it", async () => {
  // Npgsql puts DISCARD ALL in front of the first command after it opened a connection, and sends
  // the next Parse before it reads the ReadyForQuery of the command before: a pooler that freed the
  // server there split one command over two servers.
  const client = await open(pooler);
  const parts = [f.P("", "SELECT $1::text"), f.B("", "", ["a"]), f.D(), f.E(), f.S()];
  assert.is(
    await ask(client, [f.Q("DISCARD ALL"), ...parts], 2),
    'C"DISCARD ALL" Z(I) 1 2 T D("a") C"SELECT 1" Z(I)',
  );
  for (const name of ["", "named"]) {
    const other = await open(pooler);
    client.send(f.P("", "SELECT $1::text"), f.B("", "", ["a"]), f.E(), f.S());
    client.send(f.P(name, "SELECT $1::text"), f.D("S", name), f.H());
    assert.is(await client.repliesUntil("T"), '1 2 D C"SELECT 1" Z(I) 1 t(1) T');
    other.send(f.Q("BEGIN"), f.Q("SELECT 1"));
    await other.readNothingFor(50);
    client.send(f.B("", name, ["b"]), f.E(), f.S());
    assert.is(await client.replies(1, { values: true }), '2 D("b") C"SELECT 1" Z(I)');
    assert.is(await other.replies(2), 'C"BEGIN" Z(T) T D C"SELECT 1" Z(T)');
    await other.end();
  }
  await client.end();
});

test("eight clients that send as Npgsql does, on two servers, get each its own", async () => {
  // The same in a crowd: of two commands in one write the second met another server, or another client's statement.
  const pair = await startPooler(postgres, { settings: { default_pool_size: 2 } });
  try {
    const seed = 8001;
    await inParallel(upTo(8), 8, async (number) => {
      const random = seededRandom(seed + number);
      const client = await open(pair);
      for (let round = 0; round < 60; round++) {
        const what = `seed ${seed}, client ${number}, round ${round}`;
        const value = `client ${number} round ${round}`;
        const name = random() < 0.5 ? "" : `n${round % 5}`;
        const use = (text: string) => [f.B("", name, [text]), f.D(), f.E(), f.S()];
        const row = (text: string) => `2 T D("${text}") C"SELECT 1" Z(I)`;
        const parse = f.P(name, "SELECT $1::text");
        switch (Math.floor(random() * 3)) {
          case 0:
            assert.is(
              await ask(client, [f.Q("DISCARD ALL"), parse, ...use(value)], 2),
              `C"DISCARD ALL" Z(I) 1 ${row(value)}`,
              what,
            );
            break;
          case 1:
            client.send(
              f.Q("DISCARD ALL"),
              parse,
              ...use("first"),
              f.P("", "SELECT $1::text, 2"),
              f.H(),
            );
            assert.is(
              transcript(await client.messagesUntil("1", 2)),
              `C"DISCARD ALL" Z(I) 1 ${row("first")} 1`,
              what,
            );
            assert.is(
              await ask(client, [f.B("", "", [value]), f.E(), f.S()]),
              `2 D("${value}","2") C"SELECT 1" Z(I)`,
              what,
            );
            break;
          case 2: {
            // A value longer than a buffer, cut anywhere, between two commands.
            const long = "v".repeat(8_000 + Math.floor(random() * 100_000));
            const bytes = concatBytes(
              f.Q("DISCARD ALL"),
              f.P(name, "SELECT length($1::text), $1 = repeat('v', length($1))"),
              f.B("", name, [long]),
              f.E(),
              f.S(),
              f.Q(`SELECT '${value}'`),
            );
            const cuts = upTo(3).map(() => 1 + Math.floor(random() * (bytes.length - 1)));
            await client.sendCut(bytes, cuts.sort((a, b) => a - b));
            assert.is(
              await client.replies(3, { values: true }),
              `C"DISCARD ALL" Z(I) 1 2 D("${long.length}","t") C"SELECT 1" Z(I) ` +
                `T D("${value}") C"SELECT 1" Z(I)`,
              what,
            );
          }
        }
      }
      assert.is(client.unread, 0);
      await client.end();
    });
  } finally {
    await pair.stop();
  }
});

test("DISCARD ALL in one write with named statements loses none of them", async () => {
  // The clean-up is answered after the pooler has already noted what the messages behind it prepare:
  // forgetting everything at that point forgot those too, and the server kept statements that the
  // pooler thought it did not have.
  const other = await open(pooler);
  const client = await open(pooler);
  const sql = "SELECT 'shared', $1::text";
  await ask(other, [f.P("o", sql), f.S()]);
  for (const clean of ["DISCARD ALL", "DEALLOCATE ALL", "discard all;", "/* c */ deallocate all"]) {
    for (let round = 0; round < 2; round++) {
      const use = [f.B("", "n", ["x"]), f.D("S", "n"), f.E(), f.S()];
      const command = clean.toUpperCase().includes("DISCARD") ? "DISCARD ALL" : "DEALLOCATE ALL";
      assert.is(
        await ask(client, [f.Q(clean), f.P("n", sql), ...use, f.P("m", "SELECT 2"), f.S()], 3),
        `C"${command}" Z(I) 1 2 t(1) T D("shared","x") C"SELECT 1" Z(I) 1 Z(I)`,
        `${clean}, round ${round}`,
      );
      assert.is(await ask(client, use), '2 t(1) T D("shared","x") C"SELECT 1" Z(I)');
      assert.is(await ask(client, [f.B("", "m"), f.E(), f.S()]), '2 D("2") C"SELECT 1" Z(I)');
      assert.is(
        await ask(other, [f.B("", "o", ["y"]), f.E(), f.S()]),
        '2 D("shared","y") C"SELECT 1" Z(I)',
      );
    }
  }
  await client.end();
  await other.end();
});

test("long messages between pipelined commands keep their place", async () => {
  // Npgsql's first batch is a long query with a short one behind it, and a parameter longer than a
  // buffer is split over several writes between two commands.
  const twin = await Twin.login(pooler, postgres);
  const joins = upTo(40).map((i) => `JOIN pg_catalog.pg_type t${i} ON t${i}.oid = t0.oid`);
  const sql = `SELECT count(*) FROM pg_catalog.pg_type t0 ${joins.slice(0, 6).join(" ")} /*${
    "x".repeat(10_000)
  }*/`;
  await twin.same([f.Q(sql), f.Q("SELECT version()")], 2);
  const value = "v".repeat(20_000);
  const parts = [
    f.P("", "SELECT md5($1::text)"),
    f.B("", "", [value]),
    f.E(),
    f.S(),
    f.P("k", "SELECT length($1::text)"),
    f.B("", "k", [value]),
    f.E(),
    f.C("S", "k"),
    f.S(),
  ];
  for (let round = 0; round < 10; round++) await twin.same(parts, 2);
  await twin.end();
});

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  await nothingHangs(pooler, postgres);
});

test.run();
