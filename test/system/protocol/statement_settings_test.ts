// Clients with the same texts and different settings: what a literal, a name or an encoded text means is decided when
// a statement is parsed, so a statement may be shared only by clients for whom it means the same.

import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import {
  ask,
  closeAll,
  login,
  nothingHangs,
  open,
  startPair,
  startPooler,
  Twin,
} from "./support.ts";

needs("postgresql");

const test = suite("statements and settings");
let postgres: Postgres;
/** One server connection. */
let pooler: Pgweir;
/** Two server connections that keep two statements each. */
let narrow: Pgweir;

test.before(async () => {
  // A warning comes with a Parse, and of several clients with one text only the first one's is parsed.
  const quiet = { escape_string_warning: "off" };
  ({ postgres, pooler } = await startPair({ postgres: { settings: quiet } }));
  narrow = await startPooler(postgres, {
    settings: { default_pool_size: 2, max_prepared_statements: 2 },
  });
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await narrow.stop();
  await postgres.stop("immediate");
});

/** A setting, two values of it, and a text that means something else under each. */
const meanings: [string, string, string, string][] = [
  ["DateStyle", "ISO, MDY", "ISO, DMY", "SELECT extract(month from '01/02/2020'::date)::text"],
  ["TimeZone", "UTC", "Asia/Tokyo", "SELECT extract(epoch from '2020-01-01'::timestamptz)::text"],
  [
    "IntervalStyle",
    "postgres",
    "sql_standard",
    "SELECT extract(epoch from '-1 2:03:04'::interval)::text",
  ],
  ["standard_conforming_strings", "on", "off", String.raw`SELECT length('a\\b')::text`],
  ["client_encoding", "UTF8", "LATIN1", "SELECT length('\u00e9')::text"],
];

for (const [name, ...rest] of meanings) {
  const values = rest.slice(0, 2);
  const sql = rest[2]!;
  test(`a text is understood under the ${name} of the client that sent it`, async () => {
    // The second client was given the statement of the first: a day for a month, without an error.
    for (const target of [pooler, narrow]) {
      const twins: Twin[] = [];
      for (const value of values) {
        twins.push(await Twin.login(target, postgres, { ...login, parameters: { [name]: value } }));
      }
      for (const twin of twins) await twin.same([f.P("s", sql), f.S()]);
      const answers = new Set<string>();
      for (let round = 0; round < 4; round++) {
        for (const twin of twins) {
          answers.add(await twin.same([f.B("", "s"), f.E(), f.S()]));
          // Others, so that the statement has to go and come back where there is room for few.
          const others = [1, 2].map((i) => f.P("", `SELECT ${i}`));
          await ask(twin.pooled, [...others, f.P(`o${round}`, `SELECT ${round}`), f.S()]);
        }
      }
      assert.is(answers.size, 2);
      for (const twin of twins) await twin.end();
    }
  });
}

test("a statement keeps the meaning it had when it was prepared", async () => {
  // A change of settings behind the Parse is no reason to parse anew, nor to hand the statement to those who
  // have these settings from the beginning.
  const sql = "SELECT extract(month from '01/02/2020'::date)::text, 'kept'";
  const twin = await Twin.login(pooler, postgres);
  await twin.same([f.P("s", sql), f.B("", "s"), f.E(), f.S()]);
  await twin.same([f.Q("SET DateStyle = 'ISO, DMY'")]);
  await twin.same([f.B("", "s"), f.E(), f.S()]);
  await twin.same([f.P("t", sql), f.B("", "t"), f.E(), f.S()]);
  const other = await open(pooler, { ...login, parameters: { DateStyle: "ISO, DMY" } });
  assert.is(
    await ask(other, [f.P("s", sql), f.B("", "s"), f.E(), f.S()]),
    '1 2 D("2","kept") C"SELECT 1" Z(I)',
  );
  const third = await open(pooler, { ...login, parameters: { DateStyle: "ISO, MDY" } });
  assert.is(
    await ask(third, [f.P("s", sql), f.B("", "s"), f.E(), f.S()]),
    '1 2 D("1","kept") C"SELECT 1" Z(I)',
  );
  await other.end();
  await third.end();
  await twin.end();
});

test("a name means the table of the client's own search path, of whatever types", async () => {
  // Same columns with other types: the client that came second got "cached plan must not change result type" for
  // every use, for ever.
  const recent = await startPair({
    settings: { track_extra_parameters: "IntervalStyle,search_path" },
    postgres: { version: "18" },
  });
  try {
    await recent.postgres.query(
      "CREATE SCHEMA s1; CREATE SCHEMA s2; CREATE TABLE s1.t AS SELECT 1 AS i;" +
        "CREATE TABLE s2.t AS SELECT 'two' AS i",
    );
    const twins = await Promise.all(
      ["s1", "s2"].map((path) =>
        Twin.login(recent.pooler, recent.postgres, { ...login, parameters: { search_path: path } })
      ),
    );
    for (let round = 0; round < 3; round++) {
      for (const twin of twins) {
        const name = `x${round}`;
        await twin.same([f.P(name, "SELECT * FROM t"), f.D("S", name), f.S()]);
        await twin.same([f.B("", name), f.D(), f.E(), f.S()]);
        await twin.same([f.B("", "x0"), f.E(), f.S()]);
      }
    }
    for (const twin of twins) await twin.end();
  } finally {
    await recent.pooler.stop();
    await recent.postgres.stop("immediate");
  }
});

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  await nothingHangs(pooler, postgres);
});

test.run();
