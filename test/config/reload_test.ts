// What a running process takes of a configuration that was read again.

import {
  databaseKeys,
  reloaded,
  remainingDatabase,
  sameConnection,
} from "../../shared/config/mod.ts";
import { assert, suite } from "../support/harness.ts";
import { configOf, iniWith } from "./fixtures.ts";

const tests = suite("reloaded configuration");

tests("reloaded() takes what RELOAD may change and keeps what only a start does", () => {
  const running = configOf(iniWith("default_pool_size = 5\nlisten_port = 7000\nmesh = north"));
  const next = configOf(iniWith("default_pool_size = 9\nlisten_port = 7001\nmesh = south"));
  const { config, restart } = reloaded(running, next);
  assert.equal([...restart].sort(), ["listen_port", "mesh"]);
  assert.is(config.settings.defaultPoolSize, 9);
  assert.is(config.settings.listenPort, 7000);
  assert.is(config.settings.mesh, "north");
  // What processes announce tells whether they run by the same.
  assert.is.not(config.hash, next.hash);
  assert.is(
    config.hash,
    reloaded(configOf(iniWith("listen_port = 7000\nmesh = north")), next).config.hash,
  );
});

tests("reloaded() takes all of a file that changes nothing that needs a restart", () => {
  const next = configOf(
    iniWith("default_pool_size = 9", "shop = host=10.0.0.1\nmore = host=10.0.0.2"),
  );
  const { config, restart } = reloaded(configOf(iniWith()), next);
  assert.equal(restart, []);
  assert.is(config, next);
});

tests("reloaded() names a list only when it differs", () => {
  const running = configOf(iniWith("listen_addr = 127.0.0.1, ::1"));
  const restartOf = (text: string) => reloaded(running, configOf(iniWith(text))).restart;
  assert.equal(restartOf("listen_addr = 127.0.0.1,::1"), []);
  assert.equal(restartOf("listen_addr = 127.0.0.1"), ["listen_addr"]);
});

tests("remainingDatabase() is nothing where an entry is gone, whatever `*` says", () => {
  const own = "shop = host=10.0.0.1 dbname=inner";
  const other = "more = host=10.0.0.3";
  const any = "* = host=10.0.0.2";
  const rows: [running: string, next: string, host: string | null][] = [
    [own, own, "10.0.0.1"],
    [own, other, null],
    [own, any, null],
    [`${own}\n${any}`, any, null],
    [any, any, "10.0.0.2"],
    [any, `${own}\n${any}`, "10.0.0.1"],
    [any, other, null],
  ];
  for (const [running, next, host] of rows) {
    const [from, to] = [running, next].map((text) => configOf(iniWith("", text)));
    const database = remainingDatabase(from!, to!, "shop");
    assert.is(database?.hosts[0] ?? null, host, `${running} -> ${next}`);
  }
});

const base = "host=10.0.0.1 port=5432 dbname=d user=u password=p";

/** Whether a database with more in its entry is reached by other connections. */
function differs(more: string): boolean {
  const databaseOf = (entry: string) => {
    return configOf(iniWith("server_tls_sslmode = disable", `shop = ${entry}`)).databases.get(
      "shop",
    )!;
  };
  return !sameConnection(databaseOf(base), databaseOf(`${base} ${more}`));
}

tests(
  "sameConnection() differs by what a server connection is made of, and by nothing else",
  () => {
    assert.not.ok(differs(""));
    const values: Record<string, string> = {
      dbname: "e",
      host: "10.0.0.1,10.0.0.2",
      port: "5433",
      user: "v",
      auth_query: "'SELECT 1, 2'",
      auth_dbname: "a",
      connect_query: "'SELECT 1'",
      load_balance_hosts: "disable",
      client_encoding: "LATIN1",
      datestyle: "German",
      timezone: "UTC",
      application_name: "x",
      pool_size: "3",
      pool_mode: "session",
      server_lifetime: "5",
      query_wait_timeout: "7",
      max_db_connections: "9",
      password: "q",
    };
    const differing = Object.keys(values).filter((key) => {
      assert.ok(databaseKeys.some(({ name }) => name === key), key);
      return differs(`${key}=${values[key]}`);
    });
    assert.equal(differing, [
      "dbname",
      "host",
      "port",
      "user",
      "auth_query",
      "auth_dbname",
      "connect_query",
      "load_balance_hosts",
      "client_encoding",
      "datestyle",
      "timezone",
      "application_name",
    ]);
  },
);

tests.run();
