// TLS in a fleet of workers: a host starts with it, new connections in a crowd come through, cancels find their
// worker, and nothing is left of those that went.
// limit: 240 s

import { copyFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { cancelRequest, queryMessage } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { type Certificate, CertificateAuthority } from "../../support/certificates.ts";
import { needs } from "../../support/needs.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { authority, clientTls, own } from "./support.ts";

needs("postgresql", "openssl");
const test = suite("system: TLS in a fleet");

const postgres = await startPostgres({ tls: own });
const databases = { postgres: `host=127.0.0.1 port=${postgres.port}` };
const pgbouncer = {
  ...clientTls("require"),
  server_tls_sslmode: "verify-full",
  server_tls_ca_file: authority.caFile,
  max_client_conn: 500,
  default_pool_size: 10,
};
const host = await startPgweir({ workers: 2, ini: { databases, pgbouncer } });
test.after(async () => {
  await host.stop();
  await postgres.stop();
});

const descriptors = () =>
  host.workerPids().map((pid) => readdirSync(`/proc/${pid}/fd`).length).reduce((a, b) => a + b);

async function visit(n: number): Promise<void> {
  const client = new pg.Client({
    host: "localhost",
    port: host.port,
    user: "postgres",
    database: "postgres",
    ssl: { ca: authority.pem },
  });
  await client.connect();
  assert.is((await client.query("SELECT $1::int AS n", [n])).rows[0].n, n);
  await client.end();
}

test("400 clients come and go, 40 at a time, and leave no descriptor behind", async () => {
  const crowd = async () => {
    for (let round = 0; round < 10; round++) {
      await Promise.all(Array.from({ length: 40 }, (_, i) => visit(round * 40 + i)));
    }
  };
  await Promise.all(Array.from({ length: 40 }, (_, i) => visit(i)));
  const before = descriptors();
  await crowd();
  await until("them to be gone", () => descriptors() <= before + 20);
});

test("cancels over TLS find the worker that has the client", async () => {
  for (let i = 0; i < 4; i++) {
    const client = await RawClient.connect(host);
    await client.startTls();
    await client.login({ user: "postgres", database: "postgres" });
    client.send(queryMessage("SELECT pg_sleep(300)"));
    const isActive = async () => (await postgres.backends()).some((one) => one.state === "active");
    await until("the query to run", isActive);
    const other = await RawClient.connect(host);
    await other.startTls();
    other.send(cancelRequest(client.key!.processId, client.key!.secret));
    assert.is(await other.repliesUntilClosed(), "closed");
    assert.match(await client.replies(), /E\(57014\) Z\(I\)$/);
    await client.end();
    await until("it to be over", async () => !(await isActive()));
  }
});

/** The names in the certificates that 12 connections are shown: each worker gets some of them. */
async function shownNames(port: number): Promise<string> {
  const names = await Promise.all(Array.from({ length: 12 }, async () => {
    const client = await RawClient.connect({ host: "127.0.0.1", port });
    let name = "";
    await client.startTls({
      rejectUnauthorized: false,
      checkServerIdentity: (_host, certificate) => void (name = String(certificate.subject.CN)),
      ca: authority.pem,
      servername: "localhost",
    });
    client.close();
    return name;
  }));
  return [...new Set(names)].join(", ");
}

// The workers were told of a RELOAD only when settings had changed, not what is in the files that they name.
test("RELOAD takes renewed files of the same names on every worker, for clients and for servers", async () => {
  const [certFile, keyFile, caFile] = ["live.crt", "live.key", "live_ca.crt"].map((name) =>
    join(authority.dir, name)
  ) as [string, string, string];
  const install = (certificate: Certificate) => {
    copyFileSync(certificate.certFile, certFile);
    copyFileSync(certificate.keyFile, keyFile);
  };
  install(own);
  copyFileSync(authority.caFile, caFile);
  const files = {
    client_tls_cert_file: certFile,
    client_tls_key_file: keyFile,
    server_tls_ca_file: caFile,
  };
  const renewed = await startPgweir({
    workers: 2,
    ini: { databases, pgbouncer: { ...pgbouncer, ...files, client_tls_sslmode: "prefer" } },
  });
  try {
    // A worker that is too busy to say in time that it goes by the new files is named in a notice.
    const reload = () =>
      until("all workers to go by it", async () => {
        const console = await RawClient.login({ path: renewed.socketPath }, {
          user: "admin",
          database: "pgbouncer",
        });
        console.send(queryMessage("RELOAD"));
        const replies = await console.replies();
        await console.end();
        return replies === 'C"RELOAD" Z(I)';
      });
    assert.is(await shownNames(renewed.port), "localhost");
    const login = { user: "postgres", database: "postgres" };
    const clients = await Promise.all(
      Array.from({ length: 12 }, () => RawClient.login(renewed, login)),
    );
    for (const client of clients) assert.equal(await client.query("SELECT 1"), [["1"]]);

    install(authority.issue("renewed", ["localhost"]));
    await reload();
    assert.is(await shownNames(renewed.port), "renewed");

    // An authority that is trusted no more.
    copyFileSync(new CertificateAuthority("other").caFile, caFile);
    await reload();
    for (const client of clients) {
      client.send(queryMessage("SELECT 1"));
      assert.is(await client.repliesUntilClosed(), "E(28000) closed");
    }
    await until("the log", () => renewed.log().includes("certificate verify failed"));
  } finally {
    await renewed.stop();
  }
});

test.run();
