// The configuration each contender gets.

import { assert, suite } from "../support/harness.ts";
import { poolsPreparedStatements, renderIni } from "./contenders.ts";
import { CONTENDERS } from "./options.ts";

const test = suite("bench contenders");

const place = { port: 7000, workers: 4, userFile: "/t/userlist.txt", consolePort: 7001 };

const certificate = { certFile: "/t/pooler.crt", keyFile: "/t/pooler.key" };

function ini(id: string, version: number[], tls = false, scramSecret: string | null = null) {
  const name = CONTENDERS.find((c) => c.id === id)!;
  const setting = {
    serverPort: 5000,
    poolSize: 20,
    maxClients: 400,
    maxSessions: 256,
    pgbouncer: { path: "/usr/sbin/pgbouncer", version },
    certificate: tls ? certificate : null,
    scramSecret,
  };
  return renderIni(name, setting, name.shape === "fleet" ? place : { ...place, workers: 1 });
}

test("renderIni() divides the pool of a PgBouncer fleet, and only of that", () => {
  assert.match(ini("pgbouncer", [1, 18]), "\ndefault_pool_size = 20\n");
  assert.match(ini("pgbouncer-fleet", [1, 18]), "\ndefault_pool_size = 5\n");
  assert.match(ini("pgweir-bun-fleet", [1, 18]), "\ndefault_pool_size = 20\n");
});

test("renderIni() names settings only where the product and its version know them", () => {
  assert.not.match(ini("pgbouncer", [1, 18]), "max_prepared_statements");
  assert.match(ini("pgbouncer", [1, 21]), "\nmax_prepared_statements = 200\n");
  assert.match(ini("pgbouncer", [1, 18]), "pool_mode=session pool_size=256");
  assert.not.match(ini("pgbouncer", [1, 21]), "pool_mode=session");
  assert.not.match(ini("pgweir-bun", [1, 18]), "pool_mode=session");
  assert.not.match(ini("pgbouncer", [1, 18]), "so_reuseport");
  assert.match(ini("pgbouncer-fleet", [1, 18]), "\nso_reuseport = 1\n");
  assert.match(ini("pgweir-deno-fleet", [1, 18]), "\nworkers = 4\nruntime = deno\n");
  assert.not.match(ini("pgbouncer-fleet", [1, 18]), "workers");
});

test("renderIni() has clients come by TLS if that is asked for, to each product", () => {
  for (const { id } of CONTENDERS) {
    assert.match(
      ini(id, [1, 18], true),
      "\nclient_tls_sslmode = require\nclient_tls_cert_file = /t/pooler.crt\nclient_tls_key_file = /t/pooler.key\n",
    );
    assert.not.match(ini(id, [1, 18]), "tls");
  }
});

test("renderIni() has clients prove who they are if there is a secret, and room for all at once", () => {
  for (const { id } of CONTENDERS) {
    assert.match(
      ini(id, [1, 21], false, "x"),
      "\nauth_type = scram-sha-256\nlisten_backlog = 4096\n",
    );
    assert.match(ini(id, [1, 21]), "\nauth_type = trust\nauth_file");
    assert.not.match(ini(id, [1, 21]), "listen_backlog");
  }
});

test("poolsPreparedStatements() is false only for PgBouncer before 1.21", () => {
  const [pgbouncer, pgweir] = ["pgbouncer", "pgweir-bun"].map((id) =>
    CONTENDERS.find((c) => c.id === id)!
  );
  const old = { path: "", version: [1, 18, 0] };
  assert.not.ok(poolsPreparedStatements(pgbouncer!, old));
  assert.ok(poolsPreparedStatements(pgbouncer!, { path: "", version: [1, 21, 0] }));
  assert.ok(poolsPreparedStatements(pgweir!, old));
});

test.run();
