// The files `pgweir up` writes, read back by the readers they are meant for.

import { assert, suite } from "../support/harness.ts";
import { loadConfig } from "../../shared/config/mod.ts";
import {
  type GeneratedConfig,
  generatedIni,
  generatedUserlist,
} from "../../services/supervisor/generated_config.ts";

const test = suite("generated_config");

const demo: GeneratedConfig = {
  server: { host: "127.0.0.1", port: 41234, database: "demo", sslmode: "disable" },
  user: "demo",
  listenPort: 6432,
  authFile: "/here/.pgweir/userlist.txt",
  workers: null,
  runtime: "bun",
};

function load(config: GeneratedConfig, password: string) {
  const loaded = loadConfig("x.ini", (path) => {
    return path === "x.ini" ? generatedIni(config) : generatedUserlist(config.user, password);
  });
  assert.equal(loaded.problems, []);
  assert.equal(loaded.warnings, []);
  return loaded.config!;
}

test("generatedIni() means what it says", () => {
  const { settings, databases, userlist } = load(demo, "demo");
  assert.equal(databases.get("demo")?.hosts, ["127.0.0.1"]);
  assert.is(databases.get("demo")?.port, 41234);
  assert.equal(settings.listenAddr, ["127.0.0.1"]);
  assert.is(settings.listenPort, 6432);
  assert.is(settings.unixSocketDir, "");
  assert.is(settings.poolMode, "transaction");
  assert.is(settings.authType, "scram-sha-256");
  assert.equal(settings.adminUsers, ["demo"]);
  assert.is(settings.serverTlsSslmode, "disable");
  assert.equal([settings.workers, settings.runtime], [0, "bun"]);
  assert.equal(userlist.get("demo"), { user: "demo", kind: "plain", secret: "demo" });
});

test("generatedIni() leaves the sslmode to its default when none is given", () => {
  const config = { ...demo, workers: 3, server: { ...demo.server, sslmode: null } };
  const { settings } = load(config, "demo");
  assert.equal([settings.serverTlsSslmode, settings.workers], ["prefer", 3]);
});

const oddNames = ["a b", `quo"te`, `apo'stro''phe`, "semi;colon", "#hash", "ünï", "a=b", "[x]"];

for (const name of oddNames) {
  test(`generatedIni() and generatedUserlist() carry ${name} through`, () => {
    const config = load(
      { ...demo, user: name, server: { ...demo.server, database: name } },
      `pass ${name}`,
    );
    assert.is(config.databases.get(name)?.dbname, name);
    assert.is(config.userlist.get(name)?.secret, `pass ${name}`);
    assert.equal(config.settings.adminUsers, [name]);
  });
}

test("generatedIni() names no admin that a list can't hold", () => {
  assert.equal(load({ ...demo, user: "a,b" }, "x").settings.adminUsers, []);
});

test.run();
