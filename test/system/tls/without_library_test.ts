// A host without OpenSSL: everything but TLS works, and asking for TLS is an error at the start that says what is
// missing. The library is hidden from the process, in a mount namespace of its own.

import { spawnSync } from "node:child_process";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { clientTls, own } from "./support.ts";

needs("postgresql", "openssl");

const script = "for file in /lib/*/libssl.so.3 /usr/lib/*/libssl.so.3 /usr/lib/libssl.so.3; do " +
  'if [ -e "$file" ]; then mount --bind /dev/null "$file"; fi; done; exec "$0" "$@"';
const prefix = ["unshare", "--mount", "sh", "-c", script];
if (spawnSync(prefix[0]!, [...prefix.slice(1), "true"], { stdio: "ignore" }).status !== 0) {
  console.log("SKIP mount namespaces not permitted");
  process.exit(0);
}

const test = suite("system: no OpenSSL");

const postgres = await startPostgres({ tls: own });
test.after(() => postgres.stop());
const databases = { postgres: `host=127.0.0.1 port=${postgres.port}` };

test("without it clients and servers are served in clear, and the log says so", async () => {
  const pooler = await startPgweir({ prefix, ini: { databases } });
  const client = await RawClient.login(pooler, { user: "postgres", database: "postgres" });
  const sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
  assert.equal(await client.query(sql), [["f"]]);
  await client.end();
  const missing = /no TLS towards servers: load OpenSSL: .*; TLS needs libssl\.so\.3/;
  await until("the log", () => missing.test(pooler.log()));
  await pooler.stop();
});

test("without it TLS that is asked for is an error", async () => {
  for (const pgbouncer of [clientTls("prefer"), { server_tls_sslmode: "require" }]) {
    try {
      await startPgweir({ prefix, ini: { databases, pgbouncer } });
      assert.unreachable("it started");
    } catch (error) {
      assert.match((error as Error).message, /load OpenSSL: .*; TLS needs libssl\.so\.3/);
    }
  }
});

test.run();
