// Statements that clients share without knowing: eviction in the middle of whatever a client does, changes of the
// tables they are about, and clean-ups by one of the clients. Every value is the client's own, or PostgreSQL's error.

import { assert, seededRandom, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import type { RawClient } from "../../support/raw_client.ts";
import {
  ask,
  closeAll,
  inParallel,
  nothingHangs,
  open,
  startPair,
  startPooler,
  Twin,
  upTo,
} from "./support.ts";

needs("postgresql");

const test = suite("shared statements");
const KEPT = 100;
let postgres: Postgres;
/** One server connection. */
let pooler: Pgweir;
/** Two server connections that keep 100 statements each. */
let pair: Pgweir;
/** One server connection that keeps two statements. */
let narrow: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair());
  pair = await startPooler(postgres, {
    settings: { default_pool_size: 2, max_prepared_statements: KEPT },
    userlist: { postgres: "", migrator: "" },
  });
  narrow = await startPooler(postgres, {
    settings: { default_pool_size: 1, max_prepared_statements: 2 },
  });
});

test.after.each(closeAll);

test.after(async () => {
  for (const each of [pooler, pair, narrow]) await each.stop();
  await postgres.stop("immediate");
});

/** Runs `work` once on each of the two servers of `pair`, which are held meanwhile. */
async function onBothServers(work: (client: RawClient) => Promise<void>): Promise<void> {
  const clients = [await open(pair), await open(pair)];
  for (const client of clients) await client.query("BEGIN");
  for (const client of clients) await work(client);
  for (const client of clients) await client.query("COMMIT");
  for (const client of clients) await client.end();
}

test("three hundred statements of eight clients on servers that keep a hundred", async () => {
  // Nearly every message makes a statement go and another come. An eviction that was not done on the server left
  // its plan there for ever; one that was done too early took a statement from a client that was about to use it.
  const seed = 6805;
  const count = 300;
  const text = (at: number) => `SELECT ${at}, $1::int, 'text ${at}'`;
  await inParallel(upTo(8), 8, async (number) => {
    const random = seededRandom(seed + number);
    const below = (limit: number) => Math.floor(random() * limit);
    const client = await open(pair);
    // The same names as the others have, with other meanings.
    const meaning = upTo(count).map((at) => (at + 37 * number) % count);
    await ask(client, [...meaning.map((at, name) => f.P(`s${name}`, text(at))), f.S()]);
    let next = 0;
    for (let round = 0; round < 60; round++) {
      const what = `seed ${seed}, client ${number}, round ${round}`;
      const names = upTo(1 + below(12)).map(() => next++ % count);
      const row = (name: number) => `D("${meaning[name]}","${number}","text ${meaning[name]}")`;
      const uses = names.flatMap((name) => [f.B("", `s${name}`, [`${number}`]), f.E()]);
      const used = names.map((name) => `2 ${row(name)} C"SELECT 1"`).join(" ");
      const wrong = names[0]!;
      switch (below(5)) {
        case 0:
          assert.is(await ask(client, [...uses, f.S()]), `${used} Z(I)`, what);
          break;
        case 1: {
          const described = names.flatMap((name) => [f.D("S", `s${name}`)]);
          assert.is(
            await ask(client, [...described, ...uses, f.S()]),
            `${names.map(() => "t(1) T").join(" ")} ${used} Z(I)`,
            what,
          );
          break;
        }
        case 2: {
          // What stands behind an error is skipped, with all that was evicted and prepared for it.
          const skipped = [f.B("", `s${wrong}`, ["x"]), f.E(), ...uses, f.S()];
          const replies = await ask(client, [...uses, ...skipped, ...uses, f.S()], 2);
          assert.is(replies, `${used} E(22P02) Z(I) ${used} Z(I)`, what);
          break;
        }
        case 3: {
          // A name gets another meaning.
          const to = below(count);
          const change = [f.C("S", `s${wrong}`), f.P(`s${wrong}`, text(to)), f.S()];
          assert.is(await ask(client, [...uses, ...change]), `${used} 3 1 Z(I)`, what);
          meaning[wrong] = to;
          assert.is(
            await ask(client, [f.B("", `s${wrong}`, [`${number}`]), f.E(), f.S()]),
            `2 ${row(wrong)} C"SELECT 1" Z(I)`,
            what,
          );
          break;
        }
        case 4: {
          // All portals first, all rows then: the statements of the first ones are gone by the time.
          const portals = names.map((name, at) => f.B(`p${at}`, `s${name}`, [`${number}`]));
          const rows = names.map((_, at) => f.E(`p${at}`));
          assert.is(
            await ask(client, [...portals, ...rows, f.S()]),
            `${names.map(() => "2").join(" ")} ${
              names.map((name) => `${row(name)} C"SELECT 1"`).join(" ")
            } Z(I)`,
            what,
          );
        }
      }
    }
    await client.end();
  });
  await onBothServers(async (client) => {
    const counted = await client.query("SELECT count(*) FROM pg_prepared_statements");
    assert.ok(Number(counted[0]![0]) <= KEPT, `${counted[0]![0]} statements`);
    // What the server has no name for any more must not lie about either; it has two of its own.
    const plans = await client.query(
      "SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'CachedPlanSource'",
    );
    assert.ok(Number(plans[0]![0]) <= KEPT + 10, `${plans[0]![0]} plans`);
  });
});

test("a statement that must go for another one still does what was asked of it", async () => {
  // With room for two statements a group of three evicts the first before it has been executed.
  const texts = ["SELECT 'one', $1::text", "SELECT 'two', $1::text", "SELECT 'three', $1::text"];
  const twin = await Twin.login(narrow, postgres);
  const parse = texts.map((sql, at) => f.P(`s${at}`, sql));
  const bind = texts.map((_, at) => f.B(`p${at}`, `s${at}`, ["x"]));
  const execute = texts.map((_, at) => f.E(`p${at}`));
  const describe = texts.map((_, at) => f.D("S", `s${at}`));
  const portal = texts.map((_, at) => f.D("P", `p${at}`));
  await twin.same([...parse, ...bind, ...portal, ...execute, f.S()]);
  await twin.same([...bind, ...describe, ...execute, f.S()]);
  await twin.same([f.Q("BEGIN"), ...bind, f.S(), ...portal, f.S(), ...execute, f.S()], 4);
  await twin.same([...describe, f.S(), f.Q("COMMIT"), ...describe, f.S()], 3);
  // A result that is read in pages, while others come and go between the pages.
  const series = "SELECT i, $1::text FROM generate_series(1, 7) i";
  await twin.same([f.Q("BEGIN"), f.P("series", series), f.B("c", "series", ["y"]), f.S()], 2);
  for (let page = 0; page < 3; page++) {
    await twin.same([f.E("c", 3), ...bind, ...execute, f.S(), f.Q(`SELECT ${page}`)], 2);
    await twin.same([...portal.map((_, at) => f.C("P", `p${at}`)), f.D("P", "c"), f.S()]);
  }
  await twin.same([f.C("S", "series"), f.D("P", "c"), f.S(), f.Q("COMMIT")], 2);
  await twin.end();
});

test("a table's change behind a shared statement is seen inside a transaction as well", async () => {
  // Everybody who prepared the text anew was handed the statement from before the change, and lost the transaction
  // in which it was used.
  await postgres.query("CREATE TABLE changing (a int); INSERT INTO changing VALUES (1)");
  const sql = "SELECT * FROM changing";
  await onBothServers(async (client) => {
    assert.is(
      await ask(client, [f.P("s", sql), f.B("", "s"), f.E(), f.S()]),
      '1 2 D("1") C"SELECT 1" Z(T)',
    );
  });
  const old = [await open(pair), await open(pair)];
  for (const client of old) await ask(client, [f.P("s", sql), f.S()]);
  await postgres.query("ALTER TABLE changing ADD b int DEFAULT 5");
  let failures = 0;
  for (let round = 0; round < 20; round++) {
    const client = await open(pair);
    await client.query("BEGIN");
    const described = await ask(client, [f.P("c", sql), f.D("S", "c"), f.S()]);
    const executed = await ask(client, [f.B("", "c"), f.D(), f.E(), f.S()]);
    if (described === "1 t(0) E(0A000) Z(E)" && executed === "E(25P02) Z(E)") failures++;
    else {
      assert.is(described, "1 t(0) T Z(T)");
      assert.is(executed, '2 T D("1","5") C"SELECT 1" Z(T)');
    }
    await client.query("ROLLBACK");
    await client.end();
  }
  // The one from whose error the pooler learns of the change.
  assert.ok(failures <= 1, `${failures} of 20 clients got the old statement`);
  for (const client of old) {
    await client.query("BEGIN");
    const own = await ask(client, [f.B("", "s"), f.E(), f.S()]);
    assert.ok(own === "E(0A000) Z(E)" || own === '2 D("1","5") C"SELECT 1" Z(T)', own);
    await client.query("ROLLBACK");
    await client.query("BEGIN");
    assert.is(
      await ask(client, [f.P("s2", sql), f.B("", "s2"), f.E(), f.S()]),
      '1 2 D("1","5") C"SELECT 1" Z(T)',
    );
    await client.query("COMMIT");
    await client.end();
  }
});

test("a table's change past the pooler costs an error for each server, and not its statements", async () => {
  // A client that had prepared its statement after the change, and was handed the one from before it, got the error for
  // every use, for ever.
  const sql = "SELECT * FROM moving";
  for (const [round, describes] of [false, true, false].entries()) {
    await postgres.query(
      "DROP TABLE IF EXISTS moving; CREATE TABLE moving (a int); INSERT INTO moving VALUES (1)",
    );
    const text = `${sql} -- ${round}`;
    await onBothServers(async (client) => {
      assert.is(
        await ask(client, [f.P("s", text), f.B("", "s"), f.E(), f.S()]),
        '1 2 D("1") C"SELECT 1" Z(T)',
      );
    });
    await postgres.query("ALTER TABLE moving ADD b int DEFAULT 5");
    const clients: RawClient[] = [];
    // All have prepared it before anybody learns of the change.
    for (const _ of upTo(6)) {
      const client = await open(pair);
      assert.is(await ask(client, [f.P("n", text), f.S()]), "1 Z(I)");
      clients.push(client);
    }
    let errors = 0;
    for (let use = 0; use < 8; use++) {
      for (const client of clients) {
        const isDescribe = describes && use % 2 === 0;
        const parts = isDescribe ? [f.D("S", "n"), f.S()] : [f.B("", "n"), f.D(), f.E(), f.S()];
        const replies = await ask(client, parts);
        if (replies === `${isDescribe ? "t(0) " : ""}E(0A000) Z(I)`) errors++;
        else {
          const rows = isDescribe ? "t(0) T Z(I)" : '2 T D("1","5") C"SELECT 1" Z(I)';
          assert.is(replies, rows);
        }
      }
    }
    assert.ok(errors >= 1 && errors <= 2, `${errors} errors`);
    for (const client of clients) await client.end();
  }
});

test("a table's change by another user of the pooler costs nobody anything", async () => {
  await postgres.query(
    "CREATE ROLE migrator SUPERUSER LOGIN; CREATE TABLE grown (a int); INSERT INTO grown VALUES (1)",
  );
  const sql = "SELECT * FROM grown";
  await onBothServers(async (client) => {
    await ask(client, [f.P("s", sql), f.B("", "s"), f.E(), f.S()]);
  });
  const migrator = await open(pair, { user: "migrator", database: "postgres" });
  await migrator.query("ALTER TABLE grown ADD b int DEFAULT 5");
  for (const _ of upTo(6)) {
    const client = await open(pair);
    assert.is(
      await ask(client, [f.P("n", sql), f.B("", "n"), f.E(), f.S()]),
      '1 2 D("1","5") C"SELECT 1" Z(I)',
    );
    await client.end();
  }
  await migrator.end();
});

test("a client that discards all loses its settings, its tables and its statements", async () => {
  // A pooler that answered the clean-up itself, or sent only half of it, left the rest for the next use.
  const other = await open(pooler);
  await ask(other, [f.P("x", "SELECT 'kept'"), f.S()]);
  const twin = await Twin.login(pooler, postgres);
  for (const sql of ["DISCARD ALL", "discard all;", "-- all of it\nDISCARD ALL"]) {
    await twin.same([
      f.Q("SET DateStyle = 'SQL, DMY'; SET application_name = 'changed'"),
      f.P("s1", "SELECT 1"),
      f.S(),
    ], 2);
    await twin.same([
      f.Q("CREATE TEMP TABLE mine (i int)"),
      f.Q(sql),
      f.Q("SELECT * FROM pg_temp.mine"),
      f.Q("SELECT current_setting('DateStyle'), current_setting('application_name')"),
    ], 4);
    await twin.same([f.B("", "s1"), f.E(), f.S(), f.P("s1", "SELECT 2"), f.S()], 2);
    await twin.same([f.C("S", "s1"), f.S()]);
    assert.is(
      await ask(other, [f.B("", "x"), f.E(), f.S()]),
      '2 D("kept") C"SELECT 1" Z(I)',
      sql,
    );
  }
  await twin.end();
  await other.end();
});

test("the unnamed statement of another client is never executed, whatever it would do", async () => {
  // Parse here, execute in the next transaction: on a shared server the text may be somebody else's by then. A
  // statement that deletes was run with the parameters of a client that had asked for a row.
  await postgres.query("CREATE TABLE kept AS SELECT i AS k FROM generate_series(1, 1000) i");
  const seed = 1308;
  let own = 0;
  await inParallel(upTo(8), 8, async (number) => {
    const random = seededRandom(seed + number);
    const client = await open(pair);
    for (let round = 0; round < 125; round++) {
      const deletes = number % 2 === 0;
      const two = random() < 0.5;
      const sql = deletes
        ? `DELETE FROM kept WHERE k = $1::int${two ? " AND k = $2::int" : ""} RETURNING 'deleted'`
        : `SELECT 'client ${number}', $1::text${two ? ", $2::text" : ""}`;
      assert.is(await ask(client, [f.P("", sql), f.S()]), "1 Z(I)");
      if (deletes) continue;
      const values = two ? ["1", "2"] : ["1"];
      const replies = await ask(client, [f.B("", "", values), f.E(), f.S()]);
      if (replies === "E(26000) Z(I)") continue;
      own++;
      const row = [`client ${number}`, ...values].map((value) => `"${value}"`).join(",");
      assert.is(replies, `2 D(${row}) C"SELECT 1" Z(I)`, `seed ${seed}`);
    }
    await client.end();
  });
  assert.ok(own > 0);
  assert.equal(await postgres.query("SELECT count(*)::int AS n FROM kept"), [{ n: 1000 }]);
});

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  for (const each of [pooler, pair, narrow]) await nothingHangs(each, postgres);
});

test.run();
