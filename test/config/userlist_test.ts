// auth_file: users and secrets, the kinds of secrets, line numbers, limits.

import { assert, suite } from "../support/harness.ts";
import { parseUserlist, secretKind, secretsOf } from "../../shared/config/mod.ts";
import { lines } from "./fixtures.ts";

const test = suite("userlist");

const MD5 = `md5${"0123456789abcdef".repeat(2)}`;
const KEY = `${"A".repeat(43)}=`;
const SCRAM = `SCRAM-SHA-256$4096:c2FsdHNhbHRzYWx0c2FsdA==$${KEY}:${KEY}`;

const kinds: readonly (readonly [string, string])[] = [
  ["", "none"],
  ["x", "plain"],
  [MD5, "md5"],
  [MD5.toUpperCase(), "plain"],
  [`md5${"0123456789ABCDEF".repeat(2)}`, "plain"],
  [MD5.slice(1), "plain"],
  [`${MD5}0`, "plain"],
  ["md5", "plain"],
  [SCRAM, "scram-sha-256"],
  [`${SCRAM}=`, "plain"],
  [SCRAM.replace("4096", "0"), "plain"],
  [SCRAM.replace("4096", ""), "plain"],
  [SCRAM.replace("SHA-256", "SHA-1"), "plain"],
  ["SCRAM-SHA-256$", "plain"],
];

test("secretKind() tells the kind by the secret's form", () => {
  for (const [secret, kind] of kinds) assert.is(secretKind(secret), kind, secret);
});

test("parseUserlist() returns users and secrets when lines are well-formed", () => {
  const text = [
    '"plain" "pass word"',
    "",
    "; comment",
    '  "md5"\t"' + MD5 + '"  ',
    `"scram" "${SCRAM}" "ignored" more ; words`,
    '"quo""te" "a""b"""',
    '"none" ""',
    '"a" "x""" "extra"',
    '"ü" "ß;#"',
  ].join("\r\n");
  const list = parseUserlist(text, "users.txt");
  assert.equal(list.problems, []);
  assert.equal(list.warnings, []);
  assert.equal([...list.users.values()], [
    { user: "plain", kind: "plain", secret: "pass word" },
    { user: "md5", kind: "md5", secret: MD5 },
    { user: "scram", kind: "scram-sha-256", secret: SCRAM },
    { user: 'quo"te', kind: "plain", secret: 'a"b"' },
    { user: "none", kind: "none", secret: "" },
    { user: "a", kind: "plain", secret: 'x"' },
    { user: "ü", kind: "plain", secret: "ß;#" },
  ]);
});

const broken: readonly (readonly [string, string])[] = [
  ["user hunter2", `line does not start with a quote: "user" "secret" is wanted`],
  ["# comment", `comments start with ";"`],
  ['"user', "the quote of the user is not closed"],
  ['"user""', "the quote of the user is not closed"],
  ['"user"', "no secret in quotes after the user"],
  ['"user" hunter2', "no secret in quotes after the user"],
  ['"user" ; "hunter2"', "no secret in quotes after the user"],
  ['"user" "hunter2', "the quote of the secret is not closed"],
  ['"user" "hunter2""', "the quote of the secret is not closed"],
  ['"" "hunter2"', "the user is empty"],
  ['"us\0er" "hunter2"', "line is not valid UTF-8, or holds a NUL character"],
  ['"user" "hunter2\uFFFD"', "line is not valid UTF-8, or holds a NUL character"],
];

test("parseUserlist() reports the line, without the secret, and goes on when a line is broken", () => {
  for (const [text, message] of broken) {
    const list = parseUserlist(`\n${text}\n"after" "x"\n`, "users.txt");
    assert.equal(list.problems, [{ file: "users.txt", line: 2, message }], text);
    assert.equal([...list.users.keys()], ["after"], text);
    assert.not.match(message, "hunter2");
  }
});

test("parseUserlist() accepts fields up to their limits and reports longer ones", () => {
  const text = (user: number, secret: number) => `"${"u".repeat(user)}" "${"s".repeat(secret)}"`;
  assert.equal(parseUserlist(text(128, 65531), "u").problems, []);
  assert.equal(lines(parseUserlist(text(129, 1), "u").problems), [
    "1: the user is longer than 128 bytes",
  ]);
  assert.equal(lines(parseUserlist(text(1, 65532), "u").problems), [
    "1: the secret is longer than 65531 bytes",
  ]);
  // Bytes, not characters, and what the doubled quotes stand for.
  assert.is(parseUserlist(`"${"ü".repeat(65)}" "x"`, "u").problems.length, 1);
  assert.equal(parseUserlist(`"${'""'.repeat(128)}" "x"`, "u").problems, []);
});

test("parseUserlist() lets the last line of a user win, with a warning", () => {
  const list = parseUserlist('"u" "1"\n"v" "2"\n"u" "3"\n', "users.txt");
  assert.is(list.users.get("u")?.secret, "3");
  assert.equal(lines(list.warnings), ['3: user "u" stood in line 1 already, this line wins']);
});

test("parseUserlist() keeps all lines of a user when several are to count", () => {
  const list = parseUserlist('"u" "1"\n"v" "2"\n"u" "3"\n"u" "4"\n', "users.txt", true);
  assert.equal(list.warnings, []);
  assert.equal(secretsOf(list.users.get("u")!).map(({ secret }) => secret), ["1", "3", "4"]);
  assert.equal(secretsOf(list.users.get("v")!).map(({ secret }) => secret), ["2"]);
  const many = parseUserlist('"u" "x"\n'.repeat(6), "users.txt", true);
  assert.equal(lines(many.problems), [
    '5: user "u" has more than 4 secrets',
    '6: user "u" has more than 4 secrets',
  ]);
});

test("parseUserlist() warns when a secret starts like a SCRAM secret but is none", () => {
  const list = parseUserlist('"u" "SCRAM-SHA-256$4096:hunter2"', "users.txt");
  assert.is(list.users.get("u")?.kind, "plain");
  assert.equal(lines(list.warnings), [
    '1: secret of "u" starts like a SCRAM secret but is none: taken as plain text',
  ]);
});

test.run();
