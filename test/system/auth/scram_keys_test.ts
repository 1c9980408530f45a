// No password is stored anywhere: the auth_file has the SCRAM secrets of pg_authid, and PostgreSQL takes nothing but
// SCRAM. What a client proves with is what the worker logs in with, as long as the server's secret is the same.
// limit: 240 s

import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";

needs("postgresql");

const PASSWORD = "n0where stored";
const postgres = await startPostgres({ auth: "scram-sha-256" });
const userlist: Record<string, string> = { admin: "right" };
for (const user of ["ann", "bob", "forced"]) {
  await postgres.query(`CREATE ROLE ${user} LOGIN PASSWORD '${PASSWORD}'`);
  const [row] = await postgres.query("SELECT rolpassword FROM pg_authid WHERE rolname = $1", [
    user,
  ]);
  userlist[user] = String(row!["rolpassword"]);
}
const server = `host=127.0.0.1 port=${postgres.port}`;
const start = (settings: Record<string, string | number>) =>
  startPgweir({
    ini: {
      databases: { postgres: server, forced: `${server} dbname=postgres user=forced` },
      pgbouncer: { server_login_retry: 0.2, ...settings },
    },
    userlist,
  });

const tests = suite("SCRAM keys of clients");

tests.after(() => postgres.stop("immediate"));

for (const auth of ["scram-sha-256", "md5", "plain"]) {
  tests(`clients of auth_type ${auth} open servers with what they have proved`, async () => {
    const pooler = await start({ auth_type: auth });
    const login = (user: string, password = PASSWORD, database = "postgres") =>
      RawClient.login(pooler, { user, database, password });
    const clients = await Promise.all(["ann", "ann", "ann", "bob"].map((user) => login(user)));
    for (const client of clients) await client.query("BEGIN");
    const names = await Promise.all(clients.map((client) => client.query("SELECT session_user")));
    assert.equal(names.flat(2), ["ann", "ann", "ann", "bob"]);
    // A server that is there is no proof for anybody else.
    let refused = "";
    await login("ann", "wrong").catch((error: ServerError) => refused = error.code);
    assert.is(refused, "28P01");
    // Nobody has proved to be the user that the database is for.
    await login("ann", PASSWORD, "forced").catch((error: ServerError) => refused = error.message);
    assert.match(refused, /wrong password type/);
    for (const client of clients) await client.end();
    await postgres.endBackends("ann");
    const again = await login("ann");
    assert.equal(await again.query("SELECT session_user"), [["ann"]]);
    await again.end();
    const { stdout } = await promisify(execFile)(
      "psql",
      [
        "-XAtc",
        "SELECT session_user",
        `host=127.0.0.1 port=${pooler.port} user=bob dbname=postgres`,
      ],
      { env: { ...process.env, PGPASSWORD: PASSWORD } },
    );
    assert.is(stdout, "bob\n");
    assert.not.match(pooler.log() + readFileSync(`${pooler.dir}/userlist.txt`, "utf8"), PASSWORD);
    assert.not.match(pooler.log(), /SCRAM-SHA-256\$/);
    await pooler.stop();
  });
}

// The same password has another salt once it is set again: the proof for the one is none for the other, and
// "password authentication failed" of a server sent everybody to look for a wrong password.
tests("a server whose secret was made anew is named as the reason", async () => {
  const pooler = await start({ auth_type: "scram-sha-256" });
  const attempt = async () => {
    try {
      const login = { user: "ann", database: "postgres", password: PASSWORD };
      await (await RawClient.login(pooler, login)).end();
      return "in";
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      return `${error.code} ${error.fields.message}`;
    }
  };
  await postgres.query(`ALTER ROLE ann PASSWORD '${PASSWORD}'`);
  assert.match(await attempt(), /^28P01 .*the server has another SCRAM secret than the one/);
  await postgres.query(`ALTER ROLE ann PASSWORD '${userlist["ann"]}'`);
  await until("the login", async () => await attempt() === "in");
  await pooler.stop();
});

// Of a user with a new password and an old one, whoever had the other was locked out until all had the same.
tests("with several secrets a password is changed without a gap", async () => {
  await postgres.query("CREATE ROLE rotating LOGIN PASSWORD 'new'");
  for (const auth of ["scram-sha-256", "md5", "plain"]) {
    const pooler = await startPgweir({
      ini: {
        databases: { postgres: server },
        pgbouncer: { auth_type: auth, auth_several_secrets: 1 },
      },
      userlist: `"rotating" "new"\n"rotating" "old"\n`,
    });
    for (const password of ["new", "old"]) {
      const login = { user: "rotating", database: "postgres", password };
      const client = await RawClient.login(pooler, login);
      assert.equal(await client.query("SELECT session_user"), [["rotating"]]);
      await client.end();
    }
    let refused = "";
    await RawClient.login(pooler, { user: "rotating", database: "postgres", password: "older" })
      .catch((error: ServerError) => refused = error.code);
    assert.is(refused, "28P01");
    await pooler.stop();
  }
});

tests.run();
