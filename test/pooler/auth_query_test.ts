// auth_query without a server: where a user is looked up, and what is made of each answer.

import {
  AuthAnswer,
  authQueryMessages,
  authTarget,
  type Found,
} from "../../services/pooler/plane/auth_query.ts";
import {
  type Column,
  commandComplete,
  dataRow,
  emptyQueryResponse,
  errorResponse,
  latin1Text,
  message,
  MessageReader,
  noticeResponse,
  readyForQuery,
  rowDescription,
} from "../../shared/wire/mod.ts";
import { configOf, iniWith } from "../config/fixtures.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("auth_query");

const databases = `shop = host=h
own = host=h auth_user=other auth_query='SELECT own($1)' auth_dbname=users
users = host=u
lost = host=h auth_dbname=nowhere`;

/** `user@database sql` of where a user is looked up. */
function targetOf(settings: string, database: string, entries = databases): string | null {
  const target = authTarget(configOf(iniWith(settings, entries)), database);
  if (target === null) return null;
  return "problem" in target
    ? target.problem
    : `${target.user}@${target.database.name} ${target.sql}`;
}

test("authTarget() takes each setting from the entry of the database, else from the file's", () => {
  const asks = "auth_query = SELECT lookup($1)\n";
  const rows: [string, string, string | null][] = [
    ["", "shop", null],
    ["", "own", "other@users SELECT own($1)"],
    ["auth_user = a", "shop", "a@shop SELECT lookup($1)"],
    ["auth_user = a", "own", "other@users SELECT own($1)"],
    ["auth_user = a\nauth_dbname = users", "shop", "a@users SELECT lookup($1)"],
    ["auth_user = a", "lost", `authentication database "nowhere" is not configured`],
    // Of a database that does not exist only auth_dbname can know the users; the same with the console's.
    ["auth_user = a", "missing", null],
    ["auth_user = a", "pgbouncer", null],
    ["auth_user = a\nauth_dbname = users", "missing", "a@users SELECT lookup($1)"],
    ["auth_user = a\nauth_dbname = users", "pgbouncer", "a@users SELECT lookup($1)"],
  ];
  for (const [settings, database, expected] of rows) {
    assert.is(targetOf(asks + settings, database), expected, `${settings} ${database}`);
  }
  assert.is(
    targetOf(asks + "auth_user = a", "any", "* = host=h"),
    "a@any SELECT lookup($1)",
  );
  // PgBouncer's own query does not let in who may not log in any more.
  assert.match(
    String(targetOf("auth_user = a", "shop")),
    /rolvaliduntil < now\(\) THEN NULL .* rolcanlogin$/,
  );
});

test("authQueryMessages() binds the name, whatever is in it", () => {
  const name = `x' OR rolname='postgres'; --`;
  const reader = new MessageReader({ side: "frontend" });
  reader.push(authQueryMessages("SELECT f($1)", name));
  const messages: string[] = [];
  for (let next = reader.next(); next !== null; next = reader.next()) {
    messages.push(String.fromCharCode(next.type));
    if (next.type === 0x50) assert.is(latin1Text(next.body), "\0SELECT f($1)\0\0\0");
    if (next.type === 0x42) assert.ok(latin1Text(next.body).includes(name));
  }
  assert.is(messages.join(""), "PBDES");
});

const column = (name: string): Column => ({ name, typeOid: 25, typeSize: -1 });
const two = rowDescription([column("user"), column("secret")]);
const parsed = [message(0x31), message(0x32)];
const end = [commandComplete("SELECT 1"), readyForQuery("I")];
const md5 = `md5${"0".repeat(32)}`;

/** What an answer amounts to; "refused" = a message that may not come. */
function foundIn(...messages: Uint8Array[]): Found | "refused" {
  const reader = new MessageReader();
  for (const each of messages) reader.push(each);
  const answer = new AuthAnswer();
  for (let next = reader.next(); next !== null; next = reader.next()) {
    if (!answer.take(next.type, next.body)) return "refused";
  }
  return answer.found;
}

const failed = (reason: string): Found => ({ kind: "failed", reason });

test("AuthAnswer finds the user of the first row, or says what is wrong", () => {
  const nobody: Found = { kind: "nobody" };
  const rows: [string, Uint8Array[], Found | "refused"][] = [
    ["no row", [two, ...end], nobody],
    ["a secret", [two, dataRow(["ann", md5]), ...end], {
      kind: "user",
      secret: { user: "ann", kind: "md5", secret: md5 },
    }],
    ["two rows", [two, dataRow(["ann", "a"]), dataRow(["ann", "b"]), ...end], {
      kind: "user",
      secret: { user: "ann", kind: "plain", secret: "a" },
    }],
    ["an empty secret", [two, dataRow(["ann", ""]), ...end], {
      kind: "user",
      secret: { user: "ann", kind: "none", secret: "" },
    }],
    ["no secret", [two, dataRow(["ann", null]), ...end], nobody],
    ["nothing, from a function with OUT parameters", [two, dataRow([null, null]), ...end], nobody],
    ["no secret, then one", [two, dataRow(["ann", null]), dataRow(["ann", "b"]), ...end], nobody],
    [
      "no name",
      [two, dataRow([null, "x"]), ...end],
      failed("auth_query response contained null user name"),
    ],
    [
      "one column",
      [rowDescription([column("user")]), dataRow(["ann"]), ...end],
      failed("expected 2 columns from auth_query, not 1"),
    ],
    [
      "three columns and no row",
      [rowDescription([column("a"), column("b"), column("c")]), ...end],
      failed("expected 2 columns from auth_query, not 3"),
    ],
    [
      "no rows at all",
      [message(0x6e), ...end],
      failed("expected 2 columns from auth_query, not 0"),
    ],
    [
      "an empty query",
      [message(0x6e), emptyQueryResponse(), readyForQuery("I")],
      failed("expected 2 columns from auth_query, not 0"),
    ],
    [
      "an error",
      [
        errorResponse({ severity: "ERROR", code: "42501", message: "permission denied" }),
        readyForQuery("I"),
      ],
      failed("error response from auth_query: permission denied (42501)"),
    ],
    [
      "an error after a row",
      [
        two,
        dataRow(["ann", "a"]),
        errorResponse({ severity: "ERROR", code: "22012", message: "division by zero" }),
        readyForQuery("I"),
      ],
      failed("error response from auth_query: division by zero (22012)"),
    ],
    ["a damaged row", [two, message(0x44, Uint8Array.of(0, 2, 0, 0, 0, 9))], "refused"],
    ["COPY", [message(0x48, Uint8Array.of(0, 0, 0))], "refused"],
    ["what the connection sees to", [
      noticeResponse({ severity: "NOTICE", code: "00000", message: "x" }),
    ], "refused"],
  ];
  for (const [what, messages, expected] of rows) {
    assert.equal(foundIn(...parsed, ...messages), expected, what);
  }
  const bad = message(0x44, Uint8Array.of(0, 2, 0, 0, 0, 1, 0xff, 0, 0, 0, 1, 0x61));
  assert.equal(foundIn(two, bad, ...end), failed("auth_query response is not valid UTF-8"));
});

test.run();
