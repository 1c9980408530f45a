// What each query text means, and who may ask for it: every command of the table, by every kind of
// user, in every spelling.

import { commandTable, showTable } from "../../../services/pooler/plane/console/commands.ts";
import { type Plan, planQuery } from "../../../services/pooler/plane/console/plan.ts";
import type { Refusal } from "../../../services/pooler/plane/refusals.ts";
import { assert, suite } from "../../support/harness.ts";
import { fakePlane, momentOf } from "./fake_plane.ts";

const tests = suite("console plan");

function isRefusal(plan: Plan | Refusal): plan is Refusal {
  return "code" in plan;
}

/** `TAG columns`, `TAG !effect`, `TAG "notice"`, or `code text`. */
function shown(text: string, admin = true): string {
  const plan = planQuery(text, admin);
  if (isRefusal(plan)) return `${plan.code} ${plan.message}`;
  const { tag, columns, effect, notice } = plan;
  const command = effect.kind === "command" ? ` ${Object.values(effect.command).join(" ")}` : "";
  return [
    tag ?? "(empty)",
    columns === null ? "" : ` ${columns.map(({ name }) => name).join(",")}`,
    notice === null ? "" : ` "${notice.message}"`,
    effect.kind === "none" ? "" : ` !${effect.kind}${command}`,
  ].join("");
}

function rowsOf(text: string): unknown[][] {
  const plan = planQuery(text, false);
  if (isRefusal(plan)) throw new Error(`${text}: ${plan.message}`);
  return [...plan.rows(momentOf(fakePlane()))].map((row) => [...row]);
}

tests("planQuery() reads commands in every spelling", () => {
  const state = "SHOW key,value";
  const rows: [string, string][] = [
    ["SHOW STATE", state],
    ["show state", state],
    ["ShOw StAtE;", state],
    ["  \n\tshow\n\tstate  ;;; ", state],
    ["SELECT state", state],
    ['show "state"', state],
    ['"show" STATE', state],
    ["/* a */ show -- b\n state /* ; */ ;", state],
    ["show state -- ; kill", state],
    ["", "(empty)"],
    [";", "(empty)"],
    [";;;;;;;;", "(empty)"],
    ["-- nothing", "(empty)"],
    ["SHOW", "08P01 invalid command 'SHOW', use SHOW HELP;"],
    ["SELECT", "08P01 invalid command 'SELECT', use SHOW HELP;"],
    ["SHOW NOPE", "08P01 invalid command 'SHOW NOPE', use SHOW HELP;"],
    [" NOPE ; ", "08P01 invalid command 'NOPE ;', use SHOW HELP;"],
    ["SHOW STATE x", "08P01 invalid command 'SHOW STATE x', use SHOW HELP;"],
    ["SHOW 'state'", "08P01 invalid command 'SHOW 'state'', use SHOW HELP;"],
    ["COPY x FROM STDIN", "08P01 invalid command 'COPY x FROM STDIN', use SHOW HELP;"],
    ["SHOW POOLS; SHOW STATS", "08P01 invalid command 'SHOW POOLS; SHOW STATS', use SHOW HELP;"],
    ["SHOW $1", "08P01 invalid command 'SHOW $1', use SHOW HELP;"],
    ["SELECT version()", "08P01 invalid command 'SELECT version()', use SHOW HELP;"],
    ["show __proto__", "08P01 invalid command 'show __proto__', use SHOW HELP;"],
    ["constructor", "08P01 invalid command 'constructor', use SHOW HELP;"],
    ["show /*", "08P01 invalid command 'show /*', use SHOW HELP;"],
    ["'; show state", "08P01 invalid command ''; show state', use SHOW HELP;"],
  ];
  for (const [text, wanted] of rows) assert.is(shown(text), wanted, text);
});

tests("planQuery() bounds words, arguments, values and what it repeats", () => {
  assert.is(shown("a".repeat(16)), "08P01 bad arguments");
  assert.is(shown("a".repeat(15)), `08P01 invalid command '${"a".repeat(15)}', use SHOW HELP;`);
  assert.is(shown(`SHOW ${"a".repeat(64)}`), "08P01 bad arguments");
  assert.match(shown(`SHOW ${"a".repeat(63)}`), "08P01 invalid command");
  // Bytes, not characters.
  assert.is(shown(`PAUSE "${"é".repeat(32)}"`), "08P01 bad arguments");
  assert.is(shown(`PAUSE "${"é".repeat(31)}"`), `PAUSE !command pause ${"é".repeat(31)}`);
  assert.is(shown(`SET ${"a".repeat(64)} = 1`), "08P01 bad arguments");
  assert.is(shown(`SET timezone = '${"a".repeat(256)}'`), "08P01 bad arguments");
  assert.is(shown(`SET timezone = '${"a".repeat(255)}'`), 'SET "SET ignored"');
  assert.is(shown('SET "" = 1'), "08P01 bad arguments");
  const long = `nope ${"x ".repeat(30_000)}`;
  assert.is(shown(long), `08P01 invalid command '${long.slice(0, 256)}...', use SHOW HELP;`);
});

tests("planQuery() answers what drivers ask for and set unasked", () => {
  for (
    const [name, value] of [
      ["client_encoding", "UTF-8"],
      ["default_transaction_isolation", "read committed"],
      ["standard_conforming_strings", "on"],
      ["datestyle", "ISO"],
      ["timezone", "GMT"],
      ["extra_float_digits", "2"],
    ] as const
  ) {
    assert.is(shown(`SHOW ${name.toUpperCase()}`, false), `SHOW ${name}`);
    assert.equal(rowsOf(`SHOW ${name}`), [[value]]);
    assert.is(shown(`SET ${name} TO 'x'`, false), 'SET "SET ignored"');
  }
  for (
    const text of [
      "SET client_encoding TO 'UTF8'",
      "set datestyle to ISO",
      "SET DateStyle = ISO, MDY;",
      "SET SESSION timezone TO 'UTC'",
      "set local timezone = UTC",
      "SET extra_float_digits = -3",
      "SET application_name = 'a; b'",
    ]
  ) assert.is(shown(text, false), 'SET "SET ignored"', text);
  for (const text of ["SET", "SET timezone", "SET timezone =", "SET timezone UTC", "SET = 1"]) {
    assert.match(shown(text), "08P01 invalid command", text);
  }
  assert.is(shown("SELECT 1", false), "SELECT 1 ?column?");
  assert.equal(rowsOf("select 1;"), [[1]]);
  assert.match(shown("SHOW 1", false), "08P01 invalid command");
  for (
    const [text, tag] of [
      ["BEGIN", "BEGIN"],
      ["begin isolation level serializable, read only", "BEGIN"],
      ["START TRANSACTION", "START TRANSACTION"],
      ["COMMIT", "COMMIT"],
      ["END", "COMMIT"],
      ["ROLLBACK", "ROLLBACK"],
      ["ABORT", "ROLLBACK"],
    ] as const
  ) {
    const word = text.split(" ")[0]!.toUpperCase();
    assert.is(shown(text, false), `${tag} "${word} ignored"`, text);
  }
  assert.is(shown("DISCARD ALL", false), "DISCARD ALL !forget");
  assert.is(shown("DEALLOCATE ALL", false), "DEALLOCATE ALL !forget");
  assert.match(shown("DEALLOCATE x", false), "08P01 invalid command");
});

tests("planQuery() plans the commands that all workers carry out", () => {
  const rows: [string, string][] = [
    ["SHUTDOWN", "SHUTDOWN !command shutdown now"],
    ["shutdown wait_for_clients;", "SHUTDOWN !command shutdown clients"],
    ["SHUTDOWN WAIT_FOR_SERVERS", "SHUTDOWN !command shutdown servers"],
    ["RELOAD", "RELOAD !command reload"],
    ["pause", "PAUSE !command pause "],
    ["PAUSE shop;", "PAUSE !command pause shop"],
    ['RESUME "My Shop"', "RESUME !command resume My Shop"],
    ["DISABLE shop", "DISABLE !command disable shop"],
    ["DISABLE", "DISABLE !command disable "],
    ["enable shop", "ENABLE !command enable shop"],
    ["RECONNECT", "RECONNECT !command reconnect "],
    ["KILL shop", "KILL !command kill shop"],
    ["KILL", "KILL !command kill "],
    ["SUSPEND", "SUSPEND !command suspend"],
    ["WAIT_CLOSE shop", "WAIT_CLOSE !command wait_close shop"],
    ["KILL_CLIENT 17", "KILL_CLIENT !command kill_client 17"],
    ["SET default_pool_size = 5", "SET default_pool_size=5 !command set default_pool_size 5"],
    [
      "SET Server_Reset_Query TO 'DISCARD ALL'",
      "SET server_reset_query=DISCARD ALL !command set server_reset_query DISCARD ALL",
    ],
    ["SET stats_users = 'a, b'", "SET stats_users=a, b !command set stats_users a, b"],
    ["SET budget_auth = 'user=a'", "SET budget_auth !command set budget_auth user=a"],
  ];
  for (const [text, wanted] of rows) assert.is(shown(text), wanted, text);
  for (const text of ["KILL_CLIENT", "KILL_CLIENT 0", "KILL_CLIENT x1", "KILL_CLIENT -1"]) {
    assert.match(shown(text), /^08P01 invalid/, text);
  }
  for (
    const text of [
      "SHUTDOWN NOW",
      "PAUSE a b",
      "RELOAD x",
      "SUSPEND shop",
      "WAIT_CLOSE a, b",
      "KILL_CLIENT 1 2",
    ]
  ) {
    assert.match(shown(text), "08P01 invalid command", text);
  }
  assert.is(shown(`PAUSE ${"a".repeat(64)}`), "08P01 bad arguments");
});

// A console command once lacked the check its neighbours had: a read-only user of the statistics
// could disconnect anybody. So every row of the tables is tried, and a new row must be named here.

const adminOnly = [
  "DISABLE",
  "ENABLE",
  "KILL",
  "KILL_CLIENT",
  "PAUSE",
  "RECONNECT",
  "RELOAD",
  "RESUME",
  "SET",
  "SHUTDOWN",
  "SUSPEND",
  "WAIT_CLOSE",
];
const forEverybody = [
  "ABORT",
  "BEGIN",
  "COMMIT",
  "DEALLOCATE",
  "DISCARD",
  "END",
  "ROLLBACK",
  "SELECT",
  "SHOW",
  "START",
];

tests("the command table knows every command, and who may give it", () => {
  const of = (access: string) => {
    return [...commandTable].filter(([, row]) => row.access === access)
      .map(([word]) => word.toUpperCase()).sort();
  };
  assert.equal(of("admin"), adminOnly);
  assert.equal(of("stats"), forEverybody);
  const admins = [...showTable].filter(([, { access }]) => access === "admin").map(([name]) =>
    name
  );
  assert.equal(admins, ["fds"]);
});

tests("planQuery() refuses a statistics user everything that is for admins", () => {
  const commands = [...adminOnly, "SHOW FDS", "SELECT fds", "SET verbose = 1"];
  for (const command of commands) {
    for (
      const text of [
        command,
        command.toLowerCase(),
        `${command};`,
        `${command} shop`,
        `${command} 'bogus' $ ( x`,
        `${command} ${"a".repeat(300)}`,
        `/* x */ ${command.replaceAll(" ", "/**/ ")} -- y`,
        `SHOW POOLS; ${command}`,
        `; ${command}; SHOW POOLS`,
        `nope; ${command}`,
      ]
    ) assert.is(shown(text, false), "42501 admin access needed", text);
    assert.is.not(shown(command, true), "42501 admin access needed", command);
  }
});

tests("planQuery() lets a statistics user see every other SHOW", () => {
  for (const [name, { access }] of showTable) {
    if (access === "admin") continue;
    const plan = planQuery(`SHOW ${name}`, false);
    assert.not.ok(isRefusal(plan), name);
  }
});

tests("planQuery() tells an admin plainly what this version lacks", () => {
  assert.is(
    shown("SHOW FDS"),
    "0A000 SHOW FDS is not available: connections are not handed over to another process",
  );
});

tests("SHOW HELP names every command", () => {
  const plan = planQuery("SHOW HELP", false) as Plan;
  assert.is(plan.columns, null);
  assert.is(plan.notice?.message, "Console usage");
  for (const name of [...adminOnly, ...[...showTable.keys()].map((word) => word.toUpperCase())]) {
    assert.match(plan.notice?.detail ?? "", new RegExp(`\\b${name}\\b`), name);
  }
});

tests.run();
