// Which accounts a leaf is charged to, by a configuration file.

import {
  clientsDbLeaf,
  clientsLeaf,
  clientsUserLeaf,
  directLeaf,
  leafRules,
  poolLeaf,
  reserveLeaf,
} from "../../shared/ledger/mod.ts";
import type { Config } from "../../shared/config/mod.ts";
import { loadConfig } from "../../shared/config/mod.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("ledger/accounts");

/** The settings of the limits are put in by hand: what the file may say is another folder's matter. */
function configOf(text: string, settings: Partial<Config["settings"]> = {}): Config {
  const { config } = loadConfig("main.ini", () => text);
  assert.ok(config, "the file loads");
  return { ...config!, settings: { ...config!.settings, ...settings } };
}

const plain = configOf(
  "[databases]\nshop = host=db pool_size=7\n* = host=db\n[users]\nbig = pool_size=40\n" +
    "[pgbouncer]\ndefault_pool_size = 20\nmax_client_conn = 100\npool_mode = transaction\n",
);

/** The accounts of a leaf: "name cap", joined. */
function accountsOf(config: Config, leaf: string, part?: { index: number; count: number }): string {
  const rule = leafRules(config, part)(leaf);
  if (rule === null) return "none";
  if (rule.accounts.length === 0) return "no limit";
  return rule.accounts.map(({ name, cap }) => `${name} ${cap}`).join(", ");
}

const rows: readonly [string, Config, string, string][] = [
  ["a pool of a database with a size", plain, poolLeaf("shop", "u"), "pool:shop/u 7"],
  ["a pool of a user with a size", plain, poolLeaf("shop", "big"), "pool:shop/big 40"],
  ["a pool of the fallback", plain, poolLeaf("x/y", "u"), "pool:x%2Fy/u 20"],
  ["all clients", plain, clientsLeaf, "clients 100"],
  ["clients of a database without a limit", plain, clientsDbLeaf("shop"), "no limit"],
  ["clients of a user without a limit", plain, clientsUserLeaf("u"), "no limit"],
  [
    "clients where none may be",
    { ...plain, settings: { ...plain.settings, maxClientConn: 0 } },
    clientsLeaf,
    "none",
  ],
  ["the console", plain, poolLeaf("pgbouncer", "u"), "none"],
  ["direct connections without a limit", plain, directLeaf("shop", "u"), "no limit"],
  ["direct connections of the console", plain, directLeaf("pgbouncer", "u"), "none"],
  ["a malformed key", plain, "pool:shop", "none"],
  [
    "a database that there is not",
    configOf("[databases]\nshop = host=db\n[pgbouncer]\npool_mode = transaction\n"),
    poolLeaf("x", "u"),
    "none",
  ],
  [
    "a pool of a database that is no more, of a user with a limit",
    { ...plain, fallbackDatabase: null, settings: { ...plain.settings, maxUserConnections: 25 } },
    poolLeaf("x", "u"),
    "pool:x/u 0, user:u 25",
  ],
  [
    "a pool under the limits of its database and its user",
    { ...plain, settings: { ...plain.settings, maxDbConnections: 30, maxUserConnections: 25 } },
    poolLeaf("a b", "u/v"),
    "pool:a%20b/u%2Fv 20, db:a%20b 30, user:u%2Fv 25",
  ],
  ["a reserve where there is none", plain, reserveLeaf("shop", "u"), "reserve:shop/u 0"],
  [
    "a reserve under the limits of its database and its user",
    {
      ...plain,
      settings: {
        ...plain.settings,
        reservePoolSize: 5,
        maxDbConnections: 30,
        maxUserConnections: 25,
      },
    },
    reserveLeaf("a b", "u/v"),
    "reserve:a%20b/u%2Fv 5, db:a%20b 30, user:u%2Fv 25",
  ],
  [
    "a reserve of the user's own size before the database's",
    configOf(
      "[databases]\nshop = host=db reserve_pool_size=3\n[users]\nu = reserve_pool_size=7\n" +
        "[pgbouncer]\nreserve_pool_size = 1\n",
    ),
    reserveLeaf("shop", "u"),
    "reserve:shop/u 7",
  ],
  [
    "a reserve of the database's own size before the setting",
    configOf(
      "[databases]\nshop = host=db reserve_pool_size=3\n[pgbouncer]\nreserve_pool_size = 1\n",
    ),
    reserveLeaf("shop", "u"),
    "reserve:shop/u 3",
  ],
  [
    "direct connections under the limits of their database and their user",
    { ...plain, settings: { ...plain.settings, maxDbConnections: 30, maxUserConnections: 25 } },
    directLeaf("a b", "u/v"),
    "db:a%20b 30, user:u%2Fv 25",
  ],
  [
    "direct connections to a database that is no more, of a user with a limit",
    { ...plain, fallbackDatabase: null, settings: { ...plain.settings, maxUserConnections: 25 } },
    directLeaf("x", "u"),
    "direct:x/u 0, user:u 25",
  ],
  [
    "direct connections to a database that is no more",
    { ...plain, fallbackDatabase: null },
    directLeaf("x", "u"),
    "none",
  ],
  [
    "clients of a database that is no more",
    {
      ...plain,
      fallbackDatabase: null,
      settings: { ...plain.settings, maxDbClientConnections: 9 },
    },
    clientsDbLeaf("x"),
    "none",
  ],
  [
    "clients under limits",
    { ...plain, settings: { ...plain.settings, maxDbClientConnections: 9 } },
    clientsDbLeaf("shop"),
    "clients/db:shop 9",
  ],
  [
    "clients of a user under limits",
    { ...plain, settings: { ...plain.settings, maxUserClientConnections: 8 } },
    clientsUserLeaf("u"),
    "clients/user:u 8",
  ],
];

for (const [what, config, leaf, accounts] of rows) {
  test(`leafRules() charges ${what} to ${accounts}`, () => {
    assert.is(accountsOf(config, leaf), accounts);
  });
}

test("leafRules() prefers the limits of the entries to those for all", () => {
  const shop = { ...plain.databases.get("shop")!, maxDbConnections: 3, maxDbClientConnections: 0 };
  const big = { ...plain.users.get("big")!, maxUserConnections: 0, maxUserClientConnections: 5 };
  const config: Config = {
    ...plain,
    databases: new Map([["shop", shop]]),
    users: new Map([["big", big]]),
    settings: {
      ...plain.settings,
      maxDbConnections: 30,
      maxUserConnections: 30,
      maxDbClientConnections: 30,
      maxUserClientConnections: 30,
    },
  };
  assert.is(accountsOf(config, poolLeaf("shop", "big")), "pool:shop/big 40, db:shop 3");
  assert.is(accountsOf(config, directLeaf("shop", "big")), "db:shop 3");
  assert.is(accountsOf(config, clientsDbLeaf("shop")), "no limit");
  assert.is(accountsOf(config, clientsUserLeaf("big")), "clients/user:big 5");
});

test("leafRules() takes nothing away but the servers of pools", () => {
  assert.is(leafRules(plain)(clientsLeaf)!.sticky, true);
  assert.is(leafRules(plain)(clientsUserLeaf("u"))!.sticky, true);
  assert.is(leafRules(plain)(directLeaf("shop", "u"))!.sticky, true);
  assert.is(leafRules(plain)(poolLeaf("shop", "u"))!.sticky, false);
});

for (const count of [1, 2, 3, 7]) {
  test(`leafRules() divides limits by ${count} so that the parts add up`, () => {
    const parts = Array.from(
      { length: count },
      (_, index) => leafRules(plain, { index, count })(poolLeaf("shop", "u"))!.accounts[0]!.cap,
    );
    assert.is(parts.reduce((sum, part) => sum + part), 7);
    assert.ok(Math.max(...parts) - Math.min(...parts) <= 1);
  });
}

test("leafRules() divides the limits of direct connections as those of pools", () => {
  const { settings } = plain;
  const config = {
    ...plain,
    settings: { ...settings, maxDbConnections: 7, maxUserConnections: 2 },
  };
  const parts = [0, 1, 2].map((index) =>
    accountsOf(config, directLeaf("shop", "u"), { index, count: 3 })
  );
  assert.equal(parts, ["db:shop 3, user:u 1", "db:shop 2, user:u 1", "db:shop 2, user:u 1"]);
  assert.is(accountsOf(plain, directLeaf("shop", "u"), { index: 0, count: 3 }), "no limit");
});

test("leafRules() leaves nobody without anything when a limit is smaller than the fleet", () => {
  const part = { index: 9, count: 10 };
  assert.is(accountsOf(plain, poolLeaf("shop", "u"), part), "pool:shop/u 1");
});

test.run();
