// Kinds of values: what each accepts, what it becomes, what it refuses, and that formatting parses back.

import { assert, suite } from "../support/harness.ts";
import type { Kind, Value } from "../../shared/config/mod.ts";
import { formatValue, parseValue } from "../../shared/config/mod.ts";

const test = suite("values");

const MODE: Kind = { oneOf: ["session", "transaction"] };

const good: readonly (readonly [Kind, string, Value])[] = [
  ["int", "0", 0],
  ["int", "00", 0],
  ["int", "-0", 0],
  ["int", "42", 42],
  ["int", "+42", 42],
  ["int", "0x1F", 31],
  ["int", "010", 8],
  ["int", "2147483647", 2147483647],
  ["count_or_auto", "auto", 0],
  ["count_or_auto", "Auto", 0],
  ["count_or_auto", "4", 4],
  ["bool", "0", false],
  ["bool", "1", true],
  ["bool", "2", true],
  ["bool", "on", true],
  ["bool", "No", false],
  ["seconds", "0", 0],
  ["seconds", "0.0", 0],
  ["seconds", "15", 15000],
  ["seconds", "1.5", 1500],
  ["seconds", ".25", 250],
  ["seconds", "2.", 2000],
  ["seconds", "1e2", 100000],
  ["seconds", "0.0001", 1],
  ["milliseconds", "250", 250],
  ["string", "", ""],
  ["string", "a = b ; c # d", "a = b ; c # d"],
  ["list", "", []],
  ["list", "a", ["a"]],
  ["list", " a , ,b,", ["a", "b"]],
  ["octal", "0", 0],
  ["octal", "0777", 511],
  ["octal", "01770", 1016],
  ["size", "4096", 4096],
  ["size", "4kB", 4096],
  ["size", "1M", 1048576],
  ["size", "1gb", 1073741824],
  ["ratio", "0.9", 0.9],
  ["ratio", "6", 6],
  [MODE, "transaction", "transaction"],
  [MODE, "TRANSACTION", "transaction"],
];

test("parseValue() returns the typed value when the text fits its kind", () => {
  for (const [kind, text, value] of good) {
    assert.equal(parseValue(kind, text), { value }, `${JSON.stringify(kind)} ${text}`);
  }
});

test("formatValue() returns text that parses to the same value", () => {
  for (const [kind, text, value] of good) {
    const again = parseValue(kind, formatValue(kind, value));
    assert.equal(again, { value }, `${JSON.stringify(kind)} ${text}`);
  }
});

const bad: readonly (readonly [Kind, string, string])[] = [
  ["int", "", "a whole number from 0 to 2147483647"],
  ["int", "abc", "a whole number from 0 to 2147483647"],
  ["int", "1 0", "a whole number from 0 to 2147483647"],
  ["int", "-1", "a whole number from 0 to 2147483647"],
  ["int", "1.5", "a whole number from 0 to 2147483647"],
  ["int", "08", "a whole number from 0 to 2147483647"],
  ["int", "2147483648", "a whole number from 0 to 2147483647"],
  ["int", "99999999999999999999999999", "a whole number from 0 to 2147483647"],
  ["count_or_auto", "0", "auto or a whole number from 1 to 2147483647"],
  ["bool", "maybe", "0 or 1"],
  ["bool", "", "0 or 1"],
  ["seconds", "5s", "a number of seconds, without a unit, from 0 to 1000000000000"],
  ["seconds", "-1", "a number of seconds, without a unit, from 0 to 1000000000000"],
  ["seconds", "inf", "a number of seconds, without a unit, from 0 to 1000000000000"],
  ["seconds", "nan", "a number of seconds, without a unit, from 0 to 1000000000000"],
  ["seconds", "1e300", "a number of seconds, without a unit, from 0 to 1000000000000"],
  ["seconds", ".", "a number of seconds, without a unit, from 0 to 1000000000000"],
  ["milliseconds", "1.5", "a whole number of milliseconds from 0 to 2147483647"],
  ["octal", "777", "an octal number with a leading 0, like 0770"],
  ["octal", "0888", "an octal number with a leading 0, like 0770"],
  ["octal", "077777", "an octal number with a leading 0, like 0770"],
  ["size", "4 kB", "a number of bytes (kB, MB, GB allowed) from 0 to 2147483647"],
  ["size", "2GB", "a number of bytes (kB, MB, GB allowed) from 0 to 2147483647"],
  ["size", "-1", "a number of bytes (kB, MB, GB allowed) from 0 to 2147483647"],
  ["ratio", "x", "a number from 0 to 2147483647"],
  [MODE, "tx", "one of session, transaction"],
  [MODE, "", "one of session, transaction"],
];

test("parseValue() says what was wanted when the text does not fit", () => {
  for (const [kind, text, wanted] of bad) {
    assert.equal(parseValue(kind, text), { wanted }, `${JSON.stringify(kind)} "${text}"`);
  }
});

test("parseValue() keeps the bounds of a setting when it has some", () => {
  assert.equal(parseValue("int", "65535", { min: 1, max: 65535 }), { value: 65535 });
  assert.equal(parseValue("int", "0", { min: 1, max: 9 }), {
    wanted: "a whole number from 1 to 9",
  });
  assert.equal(parseValue("seconds", "0.5", { min: 1 }), {
    wanted: "a number of seconds, without a unit, from 1 to 1000000000000",
  });
  assert.equal(parseValue("ratio", "1.1", { max: 1 }), { wanted: "a number from 0 to 1" });
});

test.run();
