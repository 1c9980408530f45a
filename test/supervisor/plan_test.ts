// What `pgweir up` makes of its command line, its environment and a configuration.

import { assert, suite } from "../support/harness.ts";
import { type Config, loadConfig } from "../../shared/config/mod.ts";
import {
  parseArguments,
  type UpCommand,
  type Upstream,
} from "../../services/supervisor/arguments.ts";
import {
  bannerOf,
  listenAddresses,
  type Login,
  smallLimits,
  upstreamLogin,
  workerCount,
} from "../../services/supervisor/plan.ts";

const plan = suite("plan");
const upstream = { host: "h", port: 1, database: "d", user: null, password: null, sslmode: null };

const logins: [string, Partial<Upstream>, Record<string, string>, Login | string][] = [
  ["all in the address", { user: "a", password: "b" }, {}, { user: "a", password: "b" }],
  ["all in the environment", {}, { PGUSER: "a", PGPASSWORD: "b" }, { user: "a", password: "b" }],
  ["the address wins", { user: "a" }, { PGUSER: "x", PGPASSWORD: "b" }, {
    user: "a",
    password: "b",
  }],
  ["nothing", {}, {}, "no user and no password"],
  ["no password", { user: "a" }, { PGPASSWORD: "" }, "no password"],
  ["no user", {}, { PGPASSWORD: "b" }, "no user"],
];

for (const [name, part, environment, expected] of logins) {
  plan(`upstreamLogin(): ${name}`, () => {
    const login = () => upstreamLogin({ ...upstream, ...part }, environment);
    if (typeof expected !== "string") return assert.equal(login(), expected);
    assert.throws(login, new RegExp(`^--upstream: ${expected} for "h:1", wanted postgres://`));
  });
}

function configOf(more: string, databases = "shop = host=x\nother = host=y"): Config {
  const loaded = loadConfig(
    "x.ini",
    (path) =>
      path === "x.ini"
        ? `[databases]\n${databases}\n[pgbouncer]\npool_mode = transaction\nauth_file = u\n${more}\n`
        : '"ben" "s"\n"zoe" "t"\n',
  );
  assert.equal(loaded.problems, []);
  return loaded.config!;
}

const upCommand = { ...parseArguments(["up"]) } as UpCommand;

plan("listenAddresses() has TCP first, then the unix socket", () => {
  assert.equal(
    listenAddresses(configOf("listen_addr = a, ::1\nlisten_port = 7\nunix_socket_dir = /r")),
    [
      { host: "a", port: 7 },
      { host: "::1", port: 7 },
      { host: "/r", port: 7 },
    ],
  );
  assert.equal(listenAddresses(configOf("listen_addr = a\nunix_socket_dir =")).length, 1);
});

plan("workerCount(): the option, else the file, else the cores", () => {
  assert.is(workerCount(upCommand, configOf(""), 6), 6);
  assert.is(workerCount(upCommand, configOf("workers = 3"), 6), 3);
  assert.is(workerCount({ ...upCommand, workers: 2 }, configOf("workers = 3"), 6), 2);
});

plan("bannerOf() names what a file has, and no password of it", () => {
  const own = bannerOf(configOf("admin_users = ann, cid"), [], 2, "bun 1", null);
  assert.equal([own.database, own.user, own.consoleUser, own.password], [
    "shop",
    "ben",
    "ann",
    null,
  ]);
  const bare = bannerOf(configOf("", "* = host=x"), [], 2, "bun 1", null);
  assert.equal([bare.database, bare.consoleUser], ["DATABASE", null]);
  assert.is(
    bannerOf(configOf(""), [], 2, "bun 1", { user: "demo", password: "demo" }).password,
    "demo",
  );
});

// A pool of one became a pool of two on two cores, and nothing said so.
plan("smallLimits() names every limit that is less than the number of workers", () => {
  const text = `[databases]
a = host=h pool_size=3
b = host=h pool_size=4
[users]
u = pool_size=1
[pgbouncer]
pool_mode = transaction
auth_type = trust
default_pool_size = 2
max_client_conn = 4
`;
  const { config } = loadConfig("x.ini", () => text);
  const names = smallLimits(config as Config, 4).map((line) => line.split(" is less")[0]);
  assert.equal(names, [
    "default_pool_size = 2",
    'pool_size of database "a" = 3',
    'pool_size of user "u" = 1',
  ]);
  assert.equal(smallLimits(config as Config, 1), []);
});

plan.run();
