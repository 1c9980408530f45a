// beginsBlock(), endsBlock(), leavesBlock(): what a text does to the transaction block it is sent in.

import { assert, suite } from "../support/harness.ts";
import { beginsBlock, endsBlock, leavesBlock } from "../../shared/wire/mod.ts";

const test = suite("wire/sql_transactions");

/** Within a larger buffer: "begins", "ends", "leaves one". */
function found(text: string): string {
  const bytes = new TextEncoder().encode(`BEGIN;${text};COMMIT`);
  const from = "BEGIN;".length;
  const to = bytes.length - ";COMMIT".length;
  const words: string[] = [];
  if (beginsBlock(bytes, from, to)) words.push("begins");
  if (endsBlock(bytes, from, to)) words.push("ends");
  if (leavesBlock(bytes, from, to)) words.push("leaves one");
  return words.join(", ");
}

const rows: [text: string, wanted: string][] = [
  ["", ""],
  [" ; -- BEGIN", ""],
  ["SELECT 1", ""],
  // Begins.
  ["BEGIN", "begins, leaves one"],
  ["begin work isolation level serializable read only;", "begins, leaves one"],
  ["Start /* a */ Transaction", "begins, leaves one"],
  ["START", ""],
  ["START_REPLICATION SLOT s LOGICAL 0/0", ""],
  ["BEGINNING", ""],
  ["/* a /* b */ COMMIT */ -- c\n ; ;\tBEGIN", "begins, leaves one"],
  ["BEGIN; INSERT INTO t VALUES (1)", "begins, leaves one"],
  ["BEGIN; INSERT INTO t VALUES (1); COMMIT", "begins"],
  ["BEGIN; SELECT 1; ROLLBACK WORK ; -- done", "begins"],
  ["BEGIN; SAVEPOINT a; ROLLBACK TO a", "begins, leaves one"],
  ["BEGIN; SELECT '; COMMIT'", "begins, leaves one"],
  ["BEGIN; SELECT 1 -- ; COMMIT", "begins, leaves one"],
  ["BEGIN; COMMIT AND CHAIN", "begins, leaves one"],
  ["BEGIN; COMMIT; BEGIN", "begins, leaves one"],
  ["BEGIN; CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END", "begins, leaves one"],
  ["ROLLBACK; BEGIN", "leaves one"],
  ["SELECT 1; BEGIN", "leaves one"],
  // Ends.
  ["COMMIT", "ends"],
  [" end TRANSACTION ; ", "ends"],
  ["abort work", "ends"],
  ["/* trace=1 */ COMMIT", "ends"],
  ["-- c\nROLLBACK", "ends"],
  [" ; commit -- d", "ends"],
  ["ROLLBACK AND NO CHAIN;;", "ends"],
  ["COMMIT WORK AND CHAIN", ""],
  ["ROLLBACK TO a", ""],
  ["ROLLBACK; SELECT 1", ""],
  ["COMMITTED", ""],
  ["COMMIT x", ""],
  ["COMMIT PREPARED 'a;''b' ;", "ends"],
  ["/* x */ rollback prepared 'a'", "ends"],
  ["COMMIT PREPARED", ""],
  ["COMMIT PREPARED 'a'; SELECT 1", ""],
  ["ABORT PREPARED 'a'", ""],
  ["PREPARE TRANSACTION 'a'", ""],
];

for (const [text, wanted] of rows) {
  test(`${JSON.stringify(text)}: ${wanted}`, () => assert.is(found(text), wanted));
}

test.run();
