// PgBouncer's ini grammar: what is an entry, where it stands, and what is reported about the rest.

import { assert, suite } from "../support/harness.ts";
import { readIni } from "../../shared/config/mod.ts";
import { filesOf, lines } from "./fixtures.ts";

const test = suite("ini");

function read(text: string, files: Readonly<Record<string, string>> = {}) {
  return readIni("a.ini", filesOf({ "a.ini": text, ...files }));
}

/** `section/key=value` of every entry. */
function entries(text: string, files: Readonly<Record<string, string>> = {}): string[] {
  const ini = read(text, files);
  assert.equal(lines(ini.problems), [], text);
  return ini.entries.map(({ section, key, value }) => `${section}/${key}=${value}`);
}

const grammar: readonly (readonly [string, readonly string[]])[] = [
  ["", []],
  ["\n\n  \n", []],
  ["[s]", []],
  ["[s]\nk=v", ["s/k=v"]],
  ["[s]\nk = v \t\n", ["s/k=v"]],
  ["  [s]  \n   k =   v", ["s/k=v"]],
  ["[s]\nk =", ["s/k="]],
  ["[s] k = v", ["s/k=v"]],
  ["[s] ; comment\nk = v", ["s/k=v"]],
  ["[s][t] k = v", ["t/k=v"]],
  ["[a b]\nk = v", ["a b/k=v"]],
  ["[s]\n; k = v\n# k = v\n  ;k=v\n", []],
  ["[s]\nk = v ; not # a comment", ["s/k=v ; not # a comment"]],
  ["[s]\nk = 'v' \"w\"", ["s/k='v' \"w\""]],
  ["[s]\nk = a=b=c", ["s/k=a=b=c"]],
  ["[s]\nk = [x]", ["s/k=[x]"]],
  ["[s]\na_B.9-* = v", ["s/a_B.9-*=v"]],
  ["[s]\n* = v", ["s/*=v"]],
  ['[s]\n"a ""b"" ä" = v', ['s/a "b" ä=v']],
  ["[s]\n'a b'=v", ["s/a b=v"]],
  ["\uFEFF[s]\r\nk = v\r\nl = w\r\n", ["s/k=v", "s/l=w"]],
  ["[s]\nk = \u00A0v", ["s/k=\u00A0v"]],
  ["[s]\nk = 1\nk = 2", ["s/k=1", "s/k=2"]],
];

test("readIni() returns the entries when the text is as PgBouncer reads it", () => {
  for (const [text, expected] of grammar) assert.equal(entries(text), expected, text);
});

const broken: readonly (readonly [string, readonly string[]])[] = [
  ["k = v", [`1: "k" stands before the first section`]],
  ["[s", [`1: section header has no "]"`]],
  ["[s]\n\nword", [`3: no "=" in the line: "key = value", a section or a comment is wanted`]],
  ["[s]\n= v", [`2: no key before "="`]],
  ['[s]\n"" = v', ["2: the key is empty"]],
  ["[s]\n'' = v", ["2: the key is empty"]],
  ["[s]\n%set x", ["2: unknown directive, %include is the only one"]],
  ["[s]\n%include", ["2: %include names no file"]],
  ["[s]\n%include \t ", ["2: %include names no file"]],
  ["[s]\nk\n= v", [
    `2: no "=" in the line: "key = value", a section or a comment is wanted`,
    `3: no key before "="`,
  ]],
  ["[s]\nk = a\0b", ["2: line holds a NUL character"]],
  ["[s]\nk = a\uFFFDb", ["2: line is not valid UTF-8"]],
  ["%include b.ini", [`1: read "b.ini": no such file`]],
  ["%include b\x1b[31m.ini", [String.raw`1: read "b\x1b[31m.ini": no such file`]],
  ["[s]\nä = v", [
    `2: the key has characters other than letters, digits, "_", ".", "-" and "*": put it in double quotes`,
  ]],
];

test("readIni() reports the line and goes on when a line cannot be read", () => {
  for (const [text, expected] of broken) {
    const ini = read(`${text}\n[t]\nafter = 1`);
    assert.equal(lines(ini.problems), expected, text);
    assert.equal(ini.entries.map(({ key }) => key), ["after"], text);
  }
});

test("readIni() never quotes a line it cannot read, which may hold a secret", () => {
  for (const text of ['"user" "hunter2"', "password hunter2", "a password = hunter2", "[hunter2"]) {
    const [problem] = read(`[s]\n${text}`).problems;
    assert.ok(problem, text);
    assert.not.match(problem.message, "hunter2");
  }
});

test("readIni() keeps file and line of every entry and section when files include others", () => {
  const ini = read("[s]\na = 1\n%include b.ini\nc = 3\n", { "b.ini": "\nb = 2\n[t]\n" });
  assert.equal(ini.problems, []);
  assert.equal(ini.entries, [
    { section: "s", key: "a", value: "1", file: "a.ini", line: 2 },
    { section: "s", key: "b", value: "2", file: "b.ini", line: 2 },
    // The section that the included file ends in goes on, as in PgBouncer.
    { section: "t", key: "c", value: "3", file: "a.ini", line: 4 },
  ]);
  assert.equal(ini.sections, [
    { name: "s", file: "a.ini", line: 1 },
    { name: "t", file: "b.ini", line: 3 },
  ]);
});

test("readIni() reports a problem of an included file under that file's name", () => {
  const [problem] = read("%include b.ini", { "b.ini": "[s]\nx" }).problems;
  assert.is(problem?.file, "b.ini");
  assert.is(problem?.line, 2);
});

test("readIni() reports a circle of includes and reads the rest", () => {
  const ini = read("[s]\n%include b.ini\nc = 3", { "b.ini": "b = 2\n%include a.ini\n" });
  assert.equal(lines(ini.problems), [
    `2: %include goes round in a circle: "a.ini" -> "b.ini" -> "a.ini"`,
  ]);
  assert.equal(ini.entries.map(({ key }) => key), ["b", "c"]);
});

test("readIni() reads ten levels of includes and reports the eleventh", () => {
  const files: Record<string, string> = {};
  for (let i = 1; i <= 11; i++) files[`${i}.ini`] = `k${i} = 1\n%include ${i + 1}.ini\n`;
  const ini = read("[s]\n%include 1.ini", files);
  assert.equal(lines(ini.problems), [`2: %include "11.ini": files are nested deeper than 10`]);
  assert.is(ini.entries.at(-1)?.key, "k10");
});

test("readIni() stops at a number of files when includes multiply", () => {
  const files: Record<string, string> = {};
  for (let i = 1; i <= 10; i++) files[`${i}.ini`] = `%include ${i + 1}.ini\n`.repeat(4);
  files["10.ini"] = "";
  const ini = read("[s]\n%include 1.ini", files);
  assert.equal(ini.problems.map(({ message }) => message.replace(/".*"/, "")), [
    "%include : more than 1000 files",
  ]);
});

test("readIni() reports a line that is too long and reads the next", () => {
  const long = `k = ${"x".repeat(256 * 1024)}`;
  const ini = read(`[s]\n${long}\nafter = 1`);
  assert.equal(lines(ini.problems), ["2: line is longer than 262144 characters"]);
  assert.equal(ini.entries.map(({ key }) => key), ["after"]);
  const nearly = `k = ${"x".repeat(256 * 1024 - 4)}`;
  assert.is(entries(`[s]\n${nearly}`)[0]?.length, nearly.length);
});

test("readIni() takes no quadratic time when a line is full of blanks or quotes", () => {
  const n = 256 * 1024 - 10;
  for (const text of [`k = a${" ".repeat(n)}b`, `"${'""'.repeat(n / 2)}`, `'${" ".repeat(n)}`]) {
    const ini = read(`[s]\n${text}`);
    assert.is(ini.entries.length + ini.problems.length, 1);
  }
});

test("readIni() reports the file when the main file cannot be read", () => {
  const ini = readIni("gone.ini", filesOf({}));
  assert.equal(ini.problems, [{
    file: "gone.ini",
    line: 0,
    message: `read "gone.ini": no such file`,
  }]);
});

test.run();
