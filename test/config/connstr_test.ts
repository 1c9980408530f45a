// Connection strings: pairs, quoting, and what is refused.

import { assert, suite } from "../support/harness.ts";
import { parseConnectionString } from "../../shared/config/mod.ts";

const test = suite("connstr");

const good: readonly (readonly [string, readonly string[]])[] = [
  ["", []],
  ["   \t", []],
  ["host=a", ["host|a"]],
  [" host=a  port=5432 ", ["host|a", "port|5432"]],
  ["host = a port\t=\t5432", ["host|a", "port|5432"]],
  ["host=a\tport=5", ["host|a", "port|5"]],
  ["password='with spaces' host=a", ["password|with spaces", "host|a"]],
  ["password='it''s' host=a", ["password|it's", "host|a"]],
  ["password=''''", ["password|'"]],
  ["password=' '", ["password| "]],
  ['password="x" host=a', ['password|"x"', "host|a"]],
  ["password=a=b=c", ["password|a=b=c"]],
  ["password=a'b", ["password|a'b"]],
  ["password=päß", ["password|päß"]],
  ["connect_query='set x = ''y''; select 1'", ["connect_query|set x = 'y'; select 1"]],
  ["port=1 port=2", ["port|1", "port|2"]],
  // As in PgBouncer and libpq, a blank after "=" does not make the value empty.
  ["host= port=5", ["host|port=5"]],
];

test("parseConnectionString() returns the pairs in order when the text is well-formed", () => {
  for (const [text, expected] of good) {
    const parsed = parseConnectionString(text);
    assert.ok("pairs" in parsed, text);
    assert.equal(parsed.pairs.map(({ key, value }) => `${key}|${value}`), expected, text);
  }
});

const bad: readonly (readonly [string, string])[] = [
  ["host", `no "=" after the key at column 1`],
  ["host=a port", `no "=" after the key at column 8`],
  ["host=a ; comment", `no "=" after the key at column 8`],
  ["=a", "no key at column 1"],
  ["host=a =b", "no key at column 8"],
  ["'host'=a", "no key at column 1"],
  ["ho'st=a", `no "=" after the key at column 1`],
  ["host=", `"host" has no value`],
  ["host=a port=  ", `"port" has no value`],
  ["password=''", `the value of "password" is empty`],
  ["password='", `the quote of "password" is not closed`],
  ["password='hunter2", `the quote of "password" is not closed`],
  ["password='hunter2''", `the quote of "password" is not closed`],
  ["password='hunter2'port=5", `no blank after the closing quote of "password"`],
];

test("parseConnectionString() says what is wrong, and no value, when the text is not", () => {
  for (const [text, failure] of bad) {
    assert.equal(parseConnectionString(text), { failure }, text);
    assert.not.match(failure, "hunter2");
  }
});

test("parseConnectionString() takes no quadratic time when a value is long", () => {
  const quotes = "''".repeat(100_000);
  assert.ok("failure" in parseConnectionString(`password='${quotes}`));
  const parsed = parseConnectionString(`password='${quotes}'`);
  assert.is("pairs" in parsed && parsed.pairs[0]?.value.length, 100_000);
});

test.run();
