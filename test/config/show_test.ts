// SHOW CONFIG rows, the printed reference, and the report of `pgweir check`.

import { assert, suite } from "../support/harness.ts";
import {
  databaseKeys,
  groupKeys,
  renderReference,
  reportLines,
  settingsTable,
  showConfigRows,
  userKeys,
} from "../../shared/config/mod.ts";
import { configOf, iniWith, load, MAIN } from "./fixtures.ts";

const test = suite("show");

test("showConfigRows() has one row per setting, in the order of names", () => {
  const rows = showConfigRows(configOf(iniWith()));
  const names = rows.map(({ key }) => key);
  assert.is(names.length, settingsTable.length);
  assert.equal(names, [...names].sort());
});

const shown: readonly (readonly [string, string, string, string, "yes" | "no"])[] = [
  ["listen_addr =  a ,b", "listen_addr", "a, b", "", "no"],
  ["query_wait_timeout = 1.50", "query_wait_timeout", "1.5", "120", "yes"],
  ["tcp_user_timeout = 250", "tcp_user_timeout", "250", "0", "yes"],
  ["unix_socket_mode = 0700", "unix_socket_mode", "0700", "0777", "no"],
  ["log_stats = off", "log_stats", "0", "1", "yes"],
  ["max_packet_size = 1MB", "max_packet_size", "1048576", "2147483647", "yes"],
  ["auth_type = TRUST", "auth_type", "trust", "md5", "yes"],
  ["", "pool_mode", "transaction", "session", "yes"],
  ["", "workers", "auto", "auto", "no"],
  ["workers = 4", "workers", "4", "auto", "no"],
  ["", "budget_mode", "leased", "leased", "no"],
  ["budget_mode = static", "budget_mode", "static", "leased", "no"],
  ["", "conffile", MAIN, "", "yes"],
  ["", "bus_url", "", "", "no"],
  ["bus_url = nats://u:hunter2@h", "bus_url", "********", "", "no"],
  ["budget_auth = user=u password=hunter2", "budget_auth", "********", "", "yes"],
];

test("showConfigRows() shows values as they would be written, secrets masked", () => {
  for (const [line, key, value, byDefault, changeable] of shown) {
    const row = showConfigRows(configOf(iniWith(line))).find((row) => row.key === key);
    assert.equal(row, { key, value, default: byDefault, changeable }, line);
  }
});

test("renderReference() has a row for every setting and key, in well-formed tables", () => {
  const lines = renderReference().split("\n");
  for (const { name } of [...settingsTable, ...databaseKeys, ...userKeys, ...groupKeys]) {
    assert.ok(lines.some((line) => line.startsWith(`| \`${name}\` |`)), name);
  }
  const rows = lines.filter((line) => line.startsWith("| `"));
  const keys = databaseKeys.length + userKeys.length + groupKeys.length;
  assert.is(rows.length, settingsTable.length + keys);
  let columns = 0;
  for (const line of lines) {
    if (!line.startsWith("|")) {
      columns = 0;
      continue;
    }
    const cells = line.replaceAll("\\|", "").split("|").length;
    if (columns !== 0) assert.is(cells, columns, line);
    columns = cells;
  }
});

test("reportLines() has every problem and warning, and a sum", () => {
  const check = (text: string) => reportLines(MAIN, load(text, { u: '"u" "x"' }));
  assert.equal(check(iniWith("auth_file = u\njob_name = p")), [
    'warning: main.ini:6: job_name = "p" has no effect: it names a Windows service in PgBouncer',
    "main.ini: ok, 1 database, 1 user in auth_file, 0 errors, 1 warning",
  ]);
  assert.equal(check(iniWith("auth_file = u", "a = host=h\n* = host=h\nb = host=h")), [
    "main.ini: ok, 2 databases and the fallback, 1 user in auth_file, 0 errors, 0 warnings",
  ]);
  assert.equal(check(iniWith("auth_file = u\nlisten_port = x\nfoo = 1")), [
    'error: main.ini:6: listen_port: "x" is not a whole number from 1 to 65535',
    "error: main.ini:7: unknown parameter: pgbouncer/foo",
    "main.ini: 2 errors, 0 warnings",
  ]);
});

test.run();
