// The reader of scripts in psql's format: where statements end, what belongs to which COPY, which commands of psql count.

import { assert, suite } from "../../support/harness.ts";
import { readScript } from "./psql_script.ts";

const test = suite("psql scripts");

const texts = (script: string) => readScript(script).map(({ sql }) => sql);

const rows: readonly (readonly [what: string, script: string, ...statements: string[]])[] = [
  ["statements", "SELECT 1; SELECT 2;\n", "SELECT 1;", "SELECT 2;"],
  ["one without an end", "SELECT 1", "SELECT 1"],
  ["nothing", " \n -- nothing\n"],
  ["an empty statement", ";", ";"],
  ["quotes", `SELECT ';', "a;b", 'it''s;';`, `SELECT ';', "a;b", 'it''s;';`],
  ["a backslash in quotes", "SELECT '\\'; SELECT 2;", "SELECT '\\';", "SELECT 2;"],
  ["a backslash in an escape string", "SELECT E'\\';';", "SELECT E'\\';';"],
  ["a name that ends in e", `SELECT e'x', typE';';`, `SELECT e'x', typE';';`],
  ["dollar quotes", "SELECT $$;$$, $a$;$$;$a$, $1;", "SELECT $$;$$, $a$;$$;$a$, $1;"],
  ["comments", "SELECT /* ; /* ; */ ; */ 1 -- ;\n;", "SELECT /* ; /* ; */ ; */ 1 -- ;\n;"],
  [
    "parentheses",
    "CREATE RULE r AS ON x DO (SELECT 1; SELECT 2);",
    "CREATE RULE r AS ON x DO (SELECT 1; SELECT 2);",
  ],
  [
    "a body of statements",
    "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE 1 WHEN 1 THEN 2 END; SELECT 3; END; BEGIN; END;",
    "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE 1 WHEN 1 THEN 2 END; SELECT 3; END;",
    "BEGIN;",
    "END;",
  ],
  ["statements in one string", "SELECT 1\\; SELECT 2;", "SELECT 1; SELECT 2;"],
  ["commands", "\\d t\nSELECT 1\\gset\n\\echo x;y\nSELECT 2 \\g\n", "SELECT 1", "SELECT 2 "],
  [
    "variables",
    "\\set a 5\n\\set b x 'y z'\nSELECT :a, :'b', :\"b\", :c, 1::a;",
    `SELECT 5, 'xy z', "xy z", :c, 1::a;`,
  ],
  [
    "strings whose backslashes escape",
    "SET standard_conforming_strings TO off; SELECT '\\';';",
    "SET standard_conforming_strings TO off;",
    "SELECT '\\';';",
  ],
];

for (const [what, script, ...statements] of rows) {
  test(`readScript() cuts where psql does: ${what}`, () => {
    assert.equal(texts(script), statements);
  });
}

test("readScript() gives a COPY the data that follows it", () => {
  const script = "COPY t FROM STDIN;\n1\ta;b\n2\t\\\\x\n\\.\nCOPY t FROM STDIN;\nSELECT 1;\n" +
    "COPY a FROM stdin\\; COPY b FROM stdin;\n1\n\\.\n2\n\\.\nCOPY t TO STDOUT;";
  assert.equal(readScript(script).map(({ copyData }) => copyData), [
    ["1\ta;b\n2\t\\\\x\n"],
    [],
    null,
    ["1\n", "2\n"],
    null,
  ]);
});

test("readScript() takes \\getenv from what it is given, and knows the line of a statement", () => {
  const script = "\\getenv dir SOURCE\n\n-- a comment\nCOPY t FROM :'dir';\n  SELECT\n 1;";
  const read = readScript(script, { environment: { SOURCE: "/a'b" } });
  assert.equal(read.map(({ line, sql }) => [line, sql.trim()]), [
    [4, "-- a comment\nCOPY t FROM '/a''b';"],
    [5, "SELECT\n 1;"],
  ]);
});

test.run();
