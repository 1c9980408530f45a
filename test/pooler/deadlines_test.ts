// Which limit on time a client has passed, by its user's own limits and by what goes on: as tables.

import {
  isOver,
  LimitTable,
  overdueWork,
  type Work,
} from "../../services/pooler/plane/deadlines.ts";
import { configOf, iniWith } from "../config/fixtures.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("deadlines");

function tableOf(settings: string, users: string): LimitTable {
  return new LimitTable(configOf(`${iniWith(settings)}[users]\n${users}\n`));
}

test("a user's own limit replaces the setting, also by none, and changes nothing for others", () => {
  const rows: readonly [string, string, string, string, readonly number[]][] = [
    // settings, users, the user, its query, transaction, idle transaction and client idle limits
    ["none set", "", "", "u", [0, 0, 0, 0]],
    ["all set", "query_timeout=1.5\ntransaction_timeout=2", "", "u", [1500, 2000, 0, 0]],
    ["a fraction", "client_idle_timeout=0.25", "", "u", [0, 0, 0, 250]],
    ["an own one", "query_timeout=1", "u = query_timeout=2.5", "u", [2500, 0, 0, 0]],
    ["switched off", "query_timeout=1\nclient_idle_timeout=1", "u = query_timeout=0", "u", [
      0,
      0,
      0,
      1000,
    ]],
    ["another's", "", "u = client_idle_timeout=1 idle_transaction_timeout=3", "v", [0, 0, 0, 0]],
    ["its own only", "", "u = client_idle_timeout=1 idle_transaction_timeout=3", "u", [
      0,
      0,
      3000,
      1000,
    ]],
    ["other keys", "transaction_timeout=4", "u = pool_size=3", "u", [0, 4000, 0, 0]],
  ];
  for (const [what, settings, users, user, wanted] of rows) {
    const limits = tableOf(settings, users).of(user);
    const is = [
      limits.queryMs,
      limits.transactionMs,
      limits.idleTransactionMs,
      limits.clientIdleMs,
    ];
    assert.equal(is, wanted, what);
  }
});

test("what nobody has a limit for is known", () => {
  const rows: readonly [string, string, boolean, number][] = [
    ["", "", false, Infinity],
    ["client_idle_timeout=5", "", false, 5000],
    ["client_idle_timeout=5", "u = client_idle_timeout=0", false, 5000],
    ["", "u = client_idle_timeout=0.5\nv = client_idle_timeout=3", false, 500],
    ["query_timeout=5", "", true, Infinity],
    ["", "u = transaction_timeout=1", true, Infinity],
    ["", "u = idle_transaction_timeout=1", true, Infinity],
  ];
  for (const [settings, users, limitsWork, shortestIdleMs] of rows) {
    const table = tableOf(settings, users);
    assert.is(table.limitsWork, limitsWork, `${settings} ${users}`);
    assert.is(table.shortestIdleMs, shortestIdleMs, `${settings} ${users}`);
  }
});

// query_timeout counted the time between two queries of a transaction, and idle_transaction_timeout that of a
// query that ran.
test("overdueWork() judges by what goes on", () => {
  const limits = { queryMs: 100, transactionMs: 1000, idleTransactionMs: 50, clientIdleMs: 1 };
  const now = 10_000;
  const working = { running: true, open: true };
  const resting = { running: false, open: true };
  const none = { running: false, open: false };
  const rows: readonly [string, Partial<Work>, string | undefined][] = [
    ["a young query", { ...working, requestAt: now - 99 }, undefined],
    ["an old query", { ...working, requestAt: now - 100 }, "57014"],
    ["an old query outside", { running: true, open: false, requestAt: now - 100 }, "57014"],
    ["long after a query", { ...resting, requestAt: now - 5000, idleSince: now - 49 }, undefined],
    ["at rest in a transaction", { ...resting, idleSince: now - 50 }, "25P03"],
    ["at work after a long rest", { ...working, idleSince: now - 500 }, undefined],
    ["short queries for long", { ...working, transactionAt: now - 1000 }, "25P04"],
    ["short rests for long", { ...resting, transactionAt: now - 1000 }, "25P04"],
    ["a single long one", { running: true, open: false, transactionAt: now - 1000 }, "25P04"],
    ["a session at rest", { ...none, requestAt: 0, transactionAt: 0, idleSince: 0 }, undefined],
    [
      "the query before the rest",
      { ...working, requestAt: 0, transactionAt: 0, idleSince: 0 },
      "57014",
    ],
    ["the rest before the whole", { ...resting, transactionAt: 0, idleSince: 0 }, "25P03"],
  ];
  const recent: Work = { ...none, requestAt: now, transactionAt: now, idleSince: now };
  const off = { queryMs: 0, transactionMs: 0, idleTransactionMs: 0, clientIdleMs: 0 };
  for (const [what, work, code] of rows) {
    assert.is(overdueWork(limits, { ...recent, ...work }, now)?.code, code, what);
    assert.is(overdueWork(off, { ...recent, ...work }, now), null, what);
  }
});

test("isOver() is true from the limit on, and never without one", () => {
  const rows: readonly [number, number, number, boolean][] = [
    [100, 0, 99, false],
    [100, 0, 100, true],
    [0, 0, 1e9, false],
    [100, 50, 20, false],
  ];
  for (const [limit, since, now, wanted] of rows) {
    assert.is(isOver(limit, since, now), wanted, `${limit} ${since} ${now}`);
  }
});

test.run();
