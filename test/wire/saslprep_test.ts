// SASLprep as PostgreSQL does it. Written against pg_saslprep() of PostgreSQL 18, with which it agrees
// for every code point alone, behind "x", between two alefs and before two combining marks.

import { assert, suite } from "../support/harness.ts";
import { preparePassword, saslprep } from "../../shared/wire/mod.ts";
import { ascii } from "./samples.ts";

const test = suite("wire/saslprep");

const rows: [what: string, password: string, prepared: string][] = [
  ["ASCII", "hola que tal", "hola que tal"],
  ["the empty password", "", ""],
  ["a soft hyphen (mapped to nothing)", "I\u00adX", "IX"],
  ["a Roman numeral (NFKC)", "\u2168", "IX"],
  ["an ordinal indicator (NFKC)", "\u00aa", "a"],
  ["a no-break space", "pass\u00a0word", "pass word"],
  ["an ideographic space", "\u3000\u00e9", " \u00e9"],
  ["a zero-width space, which PostgreSQL makes a space", "a\u200bb", "a b"],
  ["a byte order mark", "\ufeffpass", "pass"],
  ["a decomposed letter", "e\u0301", "\u00e9"],
  ["full width", "\uff21\uff11", "A1"],
  ["Hangul Jamo", "\u1112\u1161\u11ab", "\ud55c"],
  ["an ASCII control character", "a\u0007b", "a\u0007b"],
  ["a control character beside what would be mapped", "I\u00adX\u0007", "I\u00adX\u0007"],
  ["a C1 control character", "I\u00adX\u0085", "I\u00adX\u0085"],
  ["nothing but what is mapped to nothing", "\u00ad\u200c", "\u00ad\u200c"],
  ["private use", "\u2168\ue000", "\u2168\ue000"],
  ["not assigned in Unicode 3.2", "\u2168\u{1f600}", "\u2168\u{1f600}"],
  ["a non-character", "\u2168\ufffe", "\u2168\ufffe"],
  ["a deprecated tone mark, looked for before normalisation", "\u2168\u0340", "\u2168\u0340"],
  ["Hebrew alone", "\u05d0\u00ad\u05d1", "\u05d0\u05d1"],
  ["Arabic around digits", "\u0627\uff11\u0628", "\u06271\u0628"],
  ["right-to-left with Latin", "\u05d0\u2168\u05d0", "\u05d0\u2168\u05d0"],
  ["right-to-left that ends in a digit", "\u0627\uff11", "\u0627\uff11"],
  ["right-to-left that begins with a digit", "\uff11\u0627", "\uff11\u0627"],
  ["beyond the first plane", "\u{20000}\u2168", "\u{20000}IX"],
];

for (const [what, password, prepared] of rows) {
  test(`saslprep() does as PostgreSQL with ${what}`, () => {
    assert.is(saslprep(password), prepared);
    assert.equal(preparePassword(password), new TextEncoder().encode(prepared));
    assert.equal(preparePassword(new TextEncoder().encode(password)), preparePassword(password));
  });
}

test("preparePassword() takes bytes that are not UTF-8 as they are", () => {
  for (const text of ["\xff\xfe", "I\xadX", "\xc3", "\xed\xa0\x80"]) {
    assert.equal(preparePassword(ascii(text)), ascii(text));
  }
});

test("preparePassword() keeps all of a password of 65,535 bytes", () => {
  const long = "\u00e9".repeat(32_767);
  assert.is(preparePassword(long + "a").length, 65_535);
  assert.is.not(saslprep(long + "a"), saslprep(long + "b"));
});

test.run();
