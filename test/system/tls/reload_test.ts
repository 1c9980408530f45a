// TLS settings and files that change under a running worker: new connections have the new ones, those that are open
// go on, and what can't be used changes nothing. And `check`, which looks at the files as a start does.

import { spawnSync } from "node:child_process";
import { copyFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { runtimeCommand } from "../../../shared/sys/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { authority, clientCertificate, clientTls, own, psql } from "./support.ts";

needs("postgresql", "openssl");
const test = suite("system: RELOAD of TLS settings");

const postgres = await startPostgres({ tls: own });
test.after(() => postgres.stop());
const databases = { postgres: `host=127.0.0.1 port=${postgres.port}` };
const login = { user: "postgres", database: "postgres" };
const next = authority.issue("next", ["localhost"]);

/** Files that are replaced as a renewal would. */
const certFile = join(authority.dir, "live.crt");
const keyFile = join(authority.dir, "live.key");

function install(certificate: { certFile: string; keyFile: string }): void {
  copyFileSync(certificate.certFile, certFile);
  copyFileSync(certificate.keyFile, keyFile);
}

function ini(settings: Readonly<Record<string, string>>) {
  return { databases, pgbouncer: settings };
}

/** The notices that RELOAD gives. */
async function reload(port: number, more = ""): Promise<string> {
  const target = `host=127.0.0.1 port=${port} user=admin dbname=pgbouncer ${more}`;
  return (await psql(target, "RELOAD")).stderr.trim();
}

test("RELOAD takes renewed files for new connections, and keeps the old ones if they are no good", async () => {
  install(own);
  const tls = clientTls("prefer", {
    client_tls_cert_file: certFile,
    client_tls_key_file: keyFile,
  });
  const pooler = await startPgweir({ ini: ini(tls) });
  const target = (host: string) =>
    `host=${host} hostaddr=127.0.0.1 port=${pooler.port} user=postgres dbname=postgres ` +
    `sslmode=verify-ca sslrootcert=${authority.caFile}`;
  const shownName = async (): Promise<string> => {
    // verify-full says which name the certificate has, when it is not the one that was wanted.
    const ran = await psql(target("nobody").replace("verify-ca", "verify-full"), "SELECT 1");
    return /certificate for "(\w+)"/.exec(ran.stderr)?.[1] ?? ran.stderr;
  };
  assert.is(await shownName(), "localhost");
  const before = await RawClient.connect(pooler);
  await before.startTls();
  await before.login(login);

  install(next);
  assert.is(await reload(pooler.port), "");
  // Its subject is "next", its only name localhost.
  assert.is(await shownName(), "localhost");
  const served = await RawClient.connect(pooler);
  const names: string[] = [];
  await served.startTls({
    rejectUnauthorized: false,
    ca: authority.pem,
    servername: "localhost",
    checkServerIdentity: (_host, certificate) => {
      names.push(String(certificate.subject.CN));
      return undefined;
    },
  });
  assert.equal(names, ["next"]);
  served.close();
  assert.equal(await before.query("SELECT 'goes on'"), [["goes on"]]);

  writeFileSync(keyFile, "no key\n");
  assert.match(await reload(pooler.port), /TLS settings could not be applied, still using old/);
  await until(
    "the reason",
    () => /still using old configuration: client_tls_key_file/.test(pooler.log()),
  );
  assert.is((await psql(target("localhost"), "SELECT 2")).stdout, "2\n");
  install(own);

  // TLS off for those who come, and on again.
  pooler.rewrite(ini({}));
  assert.is(await reload(pooler.port), "");
  const refused = await psql(target("localhost"), "SELECT 3");
  assert.match(refused.stderr, "server does not support SSL");
  pooler.rewrite(ini({ ...tls, client_tls_sslmode: "require" }));
  assert.is(await reload(pooler.port), "");
  const plain = await psql(target("localhost").replace("verify-ca", "disable"), "SELECT 4");
  assert.match(plain.stderr, "SSL required");
  assert.is((await psql(target("localhost"), "SELECT 5")).stdout, "5\n");
  assert.equal(await before.query("SELECT 'still'"), [["still"]]);
  await before.end();
  await pooler.stop();
});

test("RELOAD replaces connections to servers when their TLS settings change, and only then", async () => {
  const pooler = await startPgweir({ ini: ini({ server_tls_sslmode: "disable" }) });
  const sql = "SELECT pg_backend_pid() || ' ' || ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
  const client = await RawClient.login(pooler, login);
  const ask = async () => String((await client.query(sql))[0]![0]).split(" ");
  const [first, isPlain] = await ask();
  assert.is(isPlain, "false");
  await reload(pooler.port);
  assert.equal(await ask(), [first, "false"]);
  pooler.rewrite(ini({ server_tls_sslmode: "require" }));
  await reload(pooler.port);
  const [second, isSecured] = await ask();
  assert.is(isSecured, "true");
  assert.not(second === first);
  await reload(pooler.port);
  assert.equal(await ask(), [second, "true"]);
  await client.end();
  await pooler.stop();
});

test("auth_type = cert lets in whom the certificate names, and nobody else", async () => {
  const alice = clientCertificate("postgres");
  const bob = clientCertificate("bob");
  const settings = clientTls("verify-full", {
    client_tls_ca_file: authority.caFile,
    auth_type: "cert",
  });
  const pooler = await startPgweir({ ini: ini(settings) });
  const come = (user: string, by: { certFile: string; keyFile: string }) =>
    psql(
      `host=127.0.0.1 port=${pooler.port} user=${user} dbname=postgres sslmode=require ` +
        `sslcert=${by.certFile} sslkey=${by.keyFile}`,
      "SELECT 'in'",
    );
  assert.is((await come("postgres", alice)).stdout, "in\n");
  assert.match((await come("postgres", bob)).stderr, /certificate authentication failed/);
  assert.match((await come("bob", bob)).stderr, /FATAL/);
  await pooler.stop();
});

test("check looks at the files", () => {
  const file = join(authority.dir, "check.ini");
  const check = (settings: Readonly<Record<string, string>>) => {
    const lines = Object.entries({ listen_addr: "127.0.0.1", auth_type: "any", ...settings })
      .map(([name, value]) => `${name} = ${value}\n`).join("");
    writeFileSync(file, `[databases]\na = host=127.0.0.1 user=b\n[pgbouncer]\n${lines}`);
    const [program = "", ...args] = runtimeCommand();
    const cli = resolve(import.meta.dirname!, "../../../services/cli.ts");
    const ran = spawnSync(program, [...args, cli, "check", file], { encoding: "utf8" });
    return [ran.status, ran.stdout] as const;
  };
  assert.is(check(clientTls("require"))[0], 0);
  const [code, text] = check(clientTls("require", { client_tls_key_file: "/nowhere" }));
  assert.is(code, 1);
  assert.match(text, /error: .*client_tls_key_file "\/nowhere": No such file/);
  const [otherCode, other] = check({ server_tls_sslmode: "verify-ca", server_tls_ca_file: "/no" });
  assert.is(otherCode, 1);
  assert.match(other, /error: .*server_tls_ca_file "\/no": No such file/);
});

test.run();
