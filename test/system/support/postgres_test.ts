// test/support/postgres.ts does what it promises, with each version of PostgreSQL that is here.

import { existsSync } from "node:fs";
import pg from "pg";
import { assert, suite, until } from "../../support/harness.ts";
import { postgresFolders } from "../../support/needs.ts";
import { type PostgresVersion, startPostgres } from "../../support/postgres.ts";
import { isAlive } from "../../support/processes.ts";

async function fails(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    return (error as { code?: string }).code ?? String(error);
  }
  return "no error";
}

const postgresTests = suite("startPostgres");

for (const version of ["15", "18"] as const satisfies readonly PostgresVersion[]) {
  if (!postgresFolders().has(version)) continue;

  postgresTests(`startPostgres() serves ${version} over TCP and a unix socket`, async () => {
    const server = await startPostgres({ version, settings: { max_connections: "17" } });
    const rows = await server.query(
      "SELECT current_setting('server_version') AS v, current_setting('max_connections') AS m, $1::text AS p",
      ["x"],
    );
    assert.match(String(rows[0]!["v"]), new RegExp(`^${version}\\.`));
    assert.is(rows[0]!["m"], "17");
    assert.is(rows[0]!["p"], "x");
    assert.ok(existsSync(`${server.socketDir}/.s.PGSQL.${server.port}`));
    const client = new pg.Client({ host: server.host, port: server.port, user: "postgres" });
    await client.connect();
    const backends = await server.backends();
    assert.is(backends.length, 1);
    assert.is(backends[0]!.state, "idle");
    await client.end();
    await until("the backend to end", async () => (await server.backends()).length === 0);
    const pid = server.pid;
    await server.stop();
    assert.not(isAlive(pid));
    assert.match(server.log(), "database system is shut down");
  });

  for (const auth of ["md5", "scram-sha-256", "password"] as const) {
    postgresTests(`startPostgres() asks for a password by ${auth} on ${version}`, async () => {
      const server = await startPostgres({ version, auth, superuserPassword: "it's" });
      const login = async (password: string) => {
        const client = new pg.Client({
          host: server.host,
          port: server.port,
          user: "postgres",
          password,
        });
        client.on("error", () => {});
        await client.connect();
        await client.end();
      };
      await login("it's");
      assert.is(await fails(login("wrong")), "28P01");
      await server.stop("immediate");
    });
  }
}

postgresTests(
  "Postgres survives a restart and a crash with its data, and can be frozen",
  async () => {
    const server = await startPostgres();
    await server.query("CREATE TABLE t AS SELECT 7 AS n");
    await server.restart();
    assert.equal(await server.query("SELECT n FROM t"), [{ n: 7 }]);
    await server.query("CHECKPOINT");
    await server.crash();
    assert.is(await fails(server.query("SELECT 1")), "ECONNREFUSED");
    await server.start();
    assert.equal(await server.query("SELECT n FROM t"), [{ n: 7 }]);
    server.signal("SIGSTOP", "all");
    await server.stop("immediate");
  },
);

postgresTests("Postgres.configure() and setAuth() apply at once", async () => {
  const server = await startPostgres();
  await server.configure({ work_mem: "7MB" });
  assert.equal(await server.query("SHOW work_mem"), [{ work_mem: "7MB" }]);
  await server.setAuth({ hba: ["host all nobody_else 127.0.0.1/32 reject"], auth: "trust" });
  const login = async (user: string) => {
    const client = new pg.Client({
      host: server.host,
      port: server.port,
      user,
      database: "postgres",
    });
    client.on("error", () => {});
    await client.connect();
    await client.end();
  };
  assert.is(await fails(login("nobody_else")), "28000");
  await login("postgres");
  await server.stop("immediate");
});

postgresTests.run();
