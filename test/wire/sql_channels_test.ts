// channelSteps() and notifiedChannels(): a table of texts and what they do with channels and savepoints, whatever stands
// around them in a buffer.

import { channelSteps, notifiedChannels } from "../../shared/wire/mod.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("wire/sql_channels");

const encoder = new TextEncoder();

const around: [before: string, after: string][] = [
  ["", ""],
  ["'", "'"],
  ["SELECT 1; ", "; UNLISTEN x"],
  ["E", "b; SAVEPOINT x"],
  ["ROLLBACK ", '"; RELEASE x'],
];

/** Steps are "kind name", or a name where all are of this kind. */
function check(rows: readonly [text: string, steps: string[]][], kind = ""): void {
  for (const [text, steps] of rows) {
    for (const [before, after] of around) {
      const body = encoder.encode(text);
      const bytes = new Uint8Array([...encoder.encode(before), ...body, ...encoder.encode(after)]);
      const found = channelSteps(bytes, before.length, before.length + body.length);
      const wanted = steps.map((step) => kind === "" ? step : `${kind} ${step}`);
      const told = JSON.stringify([before, text, after]);
      assert.equal(found.map((step) => `${step.kind} ${step.name}`), wanted, told);
    }
  }
}

test("channelSteps() returns the channels of UNLISTEN as PostgreSQL knows them", () => {
  check([
    ["", []],
    [";", []],
    ["SELECT 1", []],
    ["LISTEN a", []],
    ["UNLISTEN a", ["a"]],
    ["UNLISTEN *", ["*"]],
    ["unlisten*", ["*"]],
    ["UNLISTEN Orders_2", ["orders_2"]],
    ['UNLISTEN "Orders"', ["Orders"]],
    ['UNLISTEN"a ""b"" c"', ['a "b" c']],
    ['UNLISTEN """"', ['"']],
    ['UNLISTEN "; UNLISTEN b"', ["; UNLISTEN b"]],
    ["UNLISTEN a; SELECT 1; UNLISTEN b ; unlisten a", ["a", "b", "a"]],
    ["/* c */ UNLISTEN -- d\n /* e */ a -- f", ["a"]],
    ["SELECT '; UNLISTEN a'; UNLISTEN b", ["b"]],
    ["SELECT $$; UNLISTEN a$$; UNLISTEN b", ["b"]],
    ["SELECT E'\\'; UNLISTEN a'; UNLISTEN b", ["b"]],
    ["SELECT 1 /* ; UNLISTEN a */; UNLISTEN b", ["b"]],
    ["UNLISTEN \u00c9A", ["\u00c9a"]],
    ["UNLISTEN a$1", ["a$1"]],
    ["unlistened a", []],
    [`UNLISTEN ${"A".repeat(70)}`, ["a".repeat(63)]],
    [`UNLISTEN "${"x".repeat(62)}\u00e9\u00e9"`, ["x".repeat(62)]],
    [`UNLISTEN "${"x".repeat(61)}\u00e9\u00e9"`, ["x".repeat(61) + "\u00e9"]],
  ], "unlisten");
});

test("channelSteps() returns no name where there is none that it can read", () => {
  const texts = ["", ";", " 1", " $1", " ''", ' ""', ' U&"\\0061"'];
  check(texts.map((text) => [`UNLISTEN${text}`, [""]]), "unlisten");
  check(texts.map((text) => [`RELEASE${text}`, [""]]), "release");
});

test("channelSteps() returns what is done with savepoints, in order", () => {
  check([
    ["SAVEPOINT a", ["savepoint a"]],
    ['savepoint "A"', ["savepoint A"]],
    ["RELEASE a", ["release a"]],
    ["RELEASE SAVEPOINT a", ["release a"]],
    ["RELEASE SAVEPOINT", ["release savepoint"]],
    ["RELEASE/**/Savepoint ;", ["release savepoint"]],
    ["RELEASE SAVEPOINT savepoint", ["release savepoint"]],
    ['RELEASE "savepoint"', ["release savepoint"]],
    ["ROLLBACK TO a", ["rollback a"]],
    ["ROLLBACK WORK TO a", ["rollback a"]],
    ["ROLLBACK TRANSACTION TO SAVEPOINT a", ["rollback a"]],
    ["rollback -- to\n to savepoint", ["rollback savepoint"]],
    ["ROLLBACK", []],
    ["ROLLBACK WORK", []],
    ["ROLLBACK TRANSACTION AND NO CHAIN", []],
    ["ROLLBACK PREPARED 'to'", []],
    ["ABORT", []],
    ["COMMIT", []],
    ["released a; savepoints; rollbacks to a", []],
    [
      "BEGIN; SAVEPOINT s; UNLISTEN a; ROLLBACK TO s; RELEASE s; COMMIT",
      ["savepoint s", "unlisten a", "rollback s", "release s"],
    ],
    ["; ;SAVEPOINT a;;", ["savepoint a"]],
  ]);
});

test("notifiedChannels() returns the channels of NOTIFY", () => {
  const rows: [text: string, names: string[]][] = [
    ["NOTIFY a", ["a"]],
    ["notify Jobs, 'payload'; SELECT 1; NOTIFY \"Jobs\"", ["jobs", "Jobs"]],
    ['NOTIFY U&"a"', [""]],
    ["SELECT pg_notify('a', 'b'); LISTEN c; SELECT '; NOTIFY d'", []],
  ];
  for (const [text, names] of rows) {
    const bytes = encoder.encode(text);
    assert.equal(notifiedChannels(bytes, 0, bytes.length), names, text);
  }
});

test.run();
