// settingNames(): which parameters a text sets and resets, in its order; and the same for the code of a DO.

import { assert, suite } from "../support/harness.ts";
import { settingNames, settingNamesInCode } from "../../shared/wire/mod.ts";

const test = suite("wire/sql_settings");

/**
 * What is found, in a buffer where more stands around the text: the parameters that are set, `-` those that are reset,
 * `-*` and `-**` of RESET ALL and DISCARD ALL, `()` those that a function sets, `.` a SET of nothing that lasts, `?`
 * one that is not read.
 */
function found(text: string): string {
  const before = "SET x.before = 1; E";
  const bytes = new TextEncoder().encode(`${before}${text};RESET after; SET y.after = 1`);
  const from = before.length;
  const { steps, isComplete } = settingNames(bytes, from, from + text.length);
  const spelled = steps.map(({ by, name, isReset }) => {
    const what = name ?? (by === "DISCARD ALL" ? "**" : "*");
    return `${isReset ? "-" : ""}${what || "."}${by === null ? "()" : ""}`;
  });
  return [...spelled, ...(isComplete ? [] : ["?"])].join(" ");
}

const rows: [text: string, names: string][] = [
  ["", ""],
  ["SELECT 1", ""],
  ["SET work_mem = 1", "work_mem"],
  ["set Work_Mem to '1MB'", "work_mem"],
  ['SET "Work_Mem" = 1', "work_mem"],
  ["SET SESSION work_mem = 1", "work_mem"],
  ["SET session.work_mem = 1", "session.work_mem"],
  ["SET LOCAL work_mem = 1", "."],
  ["SET local.x = 1", "local.x"],
  ["SET local = 1", "local"],
  ["/* a */ SET -- b\n app . tenant = 1", "app.tenant"],
  ['SET "App"."Ten""ant" = 1', 'app.ten"ant'],
  ["SET a.b.c TO DEFAULT", "-a.b.c"],
  ["SET work_mem = DEFAULT", "-work_mem"],
  ["SET work_mem TO 'default'", "work_mem"],
  ["SET TIME ZONE 'UTC'", "timezone"],
  ["SET TIME ZONE LOCAL", "-timezone"],
  ["SET SESSION TIME ZONE DEFAULT", "-timezone"],
  ["SET time.x = 1", "time.x"],
  ["SET NAMES 'utf8'", "client_encoding"],
  ["SET NAMES DEFAULT", "-client_encoding"],
  ["SET SCHEMA 's'", "search_path"],
  ["SET ROLE r", "role"],
  ["SET ROLE NONE", "role"],
  ["SET role = DEFAULT", "-role"],
  ["SET role TO DEFAULT", "-role"],
  ["SET SESSION AUTHORIZATION u", "session_authorization"],
  ["SET SESSION AUTHORIZATION DEFAULT", "-session_authorization"],
  ["SET session_authorization = 'u'", "session_authorization"],
  ["SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "."],
  ["SET TRANSACTION READ ONLY", "."],
  ["SET transaction_read_only = on", "transaction_read_only"],
  ["SET CONSTRAINTS ALL DEFERRED", ""],
  ['SET U&"w" = 1', ". ?"],
  ["SET", ". ?"],
  ["RESET work_mem", "-work_mem"],
  ["RESET app.tenant", "-app.tenant"],
  ["RESET TIME ZONE", "-timezone"],
  ["RESET SESSION AUTHORIZATION", "-session_authorization"],
  ["RESET ROLE", "-role"],
  ["RESET ALL", "-*"],
  ["DISCARD ALL", "-**"],
  ["DISCARD PLANS", ""],
  ["SET a = 1; RESET a", "a -a"],
  ["RESET a; SET a = 1", "-a a"],
  ["SET a = 1; RESET ALL; SET b = 1", "a -* b"],
  ["SELECT set_config('A.B', 'c', false)", "a.b()"],
  ["SELECT pg_catalog . set_config ( 'a', 'c', false), \"set_config\"('b', '', true)", "a() b()"],
  ["SELECT set_config('a'::text, 'b', false)", "a()"],
  ["SELECT set_config('a' || x, 'b', false)", ""],
  ["SELECT set_config($1, 'b', false)", ""],
  ["SELECT 'set_config(''a'', ''b'', false)'", ""],
  ["SELECT '; RESET a', $$; RESET b$$ /* ; RESET c */", ""],
  ["SELECT set_config('it''s', 'b', false)", "it's()"],
  ["SELECT set_config('a", ""],
  ["SELECT set_config(", ""],
  ["RESET", "-."],
];

for (const [text, names] of rows) {
  test(`settingNames() of ${JSON.stringify(text)}`, () => assert.is(found(text), names));
}

test("settingNames() reads nothing outside of its text, wherever that is cut", () => {
  for (const [text] of rows) {
    for (let length = 0; length <= text.length; length++) {
      const whole = new TextEncoder().encode(text);
      const cut = settingNames(whole, 0, length);
      assert.equal(cut, settingNames(whole.slice(0, length), 0, length), text.slice(0, length));
    }
  }
});

test("settingNamesInCode() finds parameters with a dot in code, be it too many", () => {
  const inCode = (text: string) => {
    const bytes = new TextEncoder().encode(text);
    return settingNamesInCode(bytes, 0, bytes.length);
  };
  assert.equal(inCode("DO $$ BEGIN SET app.a = 1; SET SESSION \"App\" . b TO '2'; END $$"), [
    "app.a",
    "app.b",
  ]);
  assert.equal(inCode("DO $$ BEGIN PERFORM set_config('app.a', x, false); END $$"), ["app.a"]);
  assert.equal(inCode("DO 'BEGIN PERFORM set_config(''app.a'', x, false); END'"), ["app.a"]);
  assert.equal(inCode("DO $$ BEGIN SET work_mem = 1; RESET app.a; END $$"), []);
});

test.run();
