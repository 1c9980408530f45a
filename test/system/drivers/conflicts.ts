// Transactions that stand in each other's way: a deadlock and a serialization failure that must come, and many that
// may. What fails is repeated until it passes, and in the end exactly what was committed has been counted. Not a test.

import { assert } from "../../support/harness.ts";
import { below, codeOf, type Side } from "./support.ts";

/** Runs a statement on one connection of a driver. */
export type Ask = (sql: string, values?: (string | number)[]) => Promise<Record<string, unknown>[]>;

const ROUNDS = 3;
const COUNTS = 4;

const read = "SELECT n FROM counted WHERE tag = $1";
const write = "UPDATE counted SET n = $2 WHERE tag = $1";
const add = "UPDATE counted SET n = n + 1 WHERE tag = $1";

/** Each locks a row and then wants the other's: one of them fails, and passes when it tries again. */
async function deadlock(first: Ask, second: Ask, rows: readonly [string, string]): Promise<void> {
  const pair = [first, second] as const;
  await Promise.all(pair.map((ask) => ask("BEGIN")));
  await Promise.all(pair.map((ask, at) => ask(add, [rows[at]!])));
  const codes = await Promise.all(
    pair.map(async (ask, at) => {
      const code = await codeOf(ask(add, [rows[1 - at]!]));
      await ask(code === "no error" ? "COMMIT" : "ROLLBACK");
      return code;
    }),
  );
  assert.equal(codes.toSorted(), ["40P01", "no error"]);
  const loser = pair[codes.indexOf("40P01")]!;
  await loser("BEGIN");
  for (const row of rows) await loser(add, [row]);
  await loser("COMMIT");
}

/** Both read a number and write it back one higher: who comes second must not. */
async function writeSkew(first: Ask, second: Ask, row: string): Promise<void> {
  const seen = [];
  for (const ask of [first, second]) {
    await ask("BEGIN ISOLATION LEVEL SERIALIZABLE");
    seen.push(await ask(read, [row]));
  }
  const next = Number(seen[0]![0]!["n"]) + 1;
  await first(write, [row, next]);
  await first("COMMIT");
  assert.equal(seen[1], seen[0]);
  assert.is(await codeOf(second(write, [row, next])), "40001");
  assert.is(await codeOf(second(read, [row])), "25P02");
  await second("ROLLBACK");
}

async function countUp(ask: Ask, row: string): Promise<void> {
  for (let count = 0; count < COUNTS;) {
    try {
      await ask("BEGIN ISOLATION LEVEL SERIALIZABLE");
      const [seen] = await ask(read, [row]);
      await ask(write, [row, Number(seen!["n"]) + 1]);
      await ask("COMMIT");
      count++;
    } catch (error) {
      assert.is((error as { code?: string }).code, "40001");
      await ask("ROLLBACK");
    }
  }
}

/** The first two collide while the others count up one number together; `tag` is new to the database. */
export async function conflicts(side: Side, tag: string, asks: readonly Ask[]): Promise<void> {
  const [first, second, ...others] = asks as [Ask, Ask, ...Ask[]];
  const [a, b, skewed, together] = ["a", "b", "c", "d"].map((row) => `${tag} ${row}`) as [
    string,
    string,
    string,
    string,
  ];
  await side.postgres.query("INSERT INTO counted SELECT unnest($1::text[]), 0", [
    [a, b, skewed, together],
  ]);
  const collide = async () => {
    for (const _ of below(ROUNDS)) {
      await deadlock(first, second, [a, b]);
      await writeSkew(first, second, skewed);
    }
  };
  await Promise.all([collide(), ...others.map((ask) => countUp(ask, together))]);
  const rows = await side.postgres.query(
    "SELECT n FROM counted WHERE tag = ANY ($1) ORDER BY tag",
    [[a, b, skewed, together]],
  );
  const counts = rows.map((row) => row["n"]);
  assert.equal(counts, [2 * ROUNDS, 2 * ROUNDS, ROUNDS, COUNTS * others.length]);
}
