// namedStatements(): where a text deallocates and prepares statements.

import { assert, suite } from "../support/harness.ts";
import { deallocatesAll, namedStatements } from "../../shared/wire/mod.ts";

const test = suite("wire/sql_deallocate");

/** What is found within a larger buffer: names, + for PREPARE, and the texts up to them. */
function found(text: string): string[] {
  const before = "DEALLOCATE x; ";
  const bytes = new TextEncoder().encode(`${before}${text};DEALLOCATE y`);
  const to = bytes.length - ";DEALLOCATE y".length;
  return namedStatements(bytes, before.length, to).map((each) => {
    const name = each.deallocated === null ? "+" : new TextDecoder().decode(each.deallocated);
    return `${name}: ${new TextDecoder().decode(bytes.slice(each.from, each.to))}`;
  });
}

const rows: [text: string, wanted: string[]][] = [
  ["", []],
  ["SELECT 1", []],
  ["DEALLOCATE a", ["a: DEALLOCATE a"]],
  ["deallocate A_b$1", ["a_b$1: deallocate A_b$1"]],
  ['DEALLOCATE "A ""b"""', ['A "b": DEALLOCATE "A ""b"""']],
  ["DEALLOCATE PREPARE a", ["a: DEALLOCATE PREPARE a"]],
  ["DEALLOCATE prepare", ["prepare: DEALLOCATE prepare"]],
  ["DEALLOCATE PREPARE prepare", ["prepare: DEALLOCATE PREPARE prepare"]],
  ["/* x */ DEALLOCATE --\n é -- y", ["é: DEALLOCATE --\n é"]],
  ["DEALLOCATE ALL", []],
  ["DEALLOCATE PREPARE ALL", []],
  ['DEALLOCATE "all"', ['all: DEALLOCATE "all"']],
  ["DEALLOCATE", []],
  ["DEALLOCATE a b", []],
  ["DEALLOCATE 'a'", []],
  ["DEALLOCATE 1", []],
  ["DEALLOCATE a ; SELECT 1;; DEALLOCATE b", ["a: DEALLOCATE a", "b: DEALLOCATE b"]],
  ["SELECT '; DEALLOCATE a'", []],
  ["PREPARE p AS SELECT 1; DEALLOCATE p", ["+: PREPARE p", "p: DEALLOCATE p"]],
  ["PREPARE TRANSACTION 't'", []],
  [`DEALLOCATE ${"x".repeat(70)}`, [`${"x".repeat(63)}: DEALLOCATE ${"x".repeat(70)}`]],
];

for (const [text, wanted] of rows) {
  test(`namedStatements() of ${JSON.stringify(text.slice(0, 60))}`, () => {
    assert.equal(found(text), wanted);
  });
}

const all: [text: string, isAll: boolean][] = [
  ["DEALLOCATE ALL", true],
  ["deallocate prepare all", true],
  ["/* x */ DISCARD --\n ALL ; ;", true],
  ["DISCARD PLANS", false],
  ["DISCARD PREPARE ALL", false],
  ["DEALLOCATE", false],
  ["DEALLOCATE a", false],
  ['DEALLOCATE "all"', false],
  ["DEALLOCATE PREPARE", false],
  ["DEALLOCATE ALL; SELECT 1", false],
  ["SELECT 1; DEALLOCATE ALL", false],
  ["", false],
];

test("deallocatesAll() is true for what does that and nothing else", () => {
  for (const [text, isAll] of all) {
    const bytes = new TextEncoder().encode(`ALL${text}ALL`);
    assert.is(deallocatesAll(bytes, 3, bytes.length - 3), isAll, text);
  }
});

test.run();
