// SCRAM-SHA-256-PLUS: logins that are tied to the TLS connection, of clients and to PostgreSQL, and those that try
// to get around it.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  Backend,
  parseAuthentication,
  saltedPassword,
  saslInitialResponse,
  saslResponse,
  ScramClientExchange,
  type ScramClientOptions,
  scramSha256,
} from "../../../shared/wire/mod.ts";
import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { run } from "../drivers/support.ts";
import { authority, clientTls, own } from "./support.ts";

needs("postgresql", "openssl");
const test = suite("system: SCRAM with channel binding");

const PASSWORD = "bound secret";
const postgres = await startPostgres({
  auth: "scram-sha-256",
  superuserPassword: PASSWORD,
  tls: own,
});
const [stored] = await postgres.query(
  "SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'",
);
const databases = { postgres: `host=127.0.0.1 port=${postgres.port}` };
const scram = { auth_type: "scram-sha-256", server_tls_sslmode: "require" };
// The stored secret only: servers are opened with the keys that a client has proved to have.
const userlist = { postgres: String(stored!["rolpassword"]), admin: "admin" };
const pooler = await startPgweir({
  ini: { databases, pgbouncer: { ...scram, ...clientTls("prefer") } },
  userlist,
});
const rsa = authority.issueRsa("rsa", ["127.0.0.1"], "sha384");
const other = await startPgweir({
  ini: {
    databases,
    pgbouncer: {
      ...scram,
      ...clientTls("prefer"),
      client_tls_cert_file: rsa.certFile,
      client_tls_key_file: rsa.keyFile,
    },
  },
  userlist,
});
test.after(async () => {
  await pooler.stop();
  await other.stop();
  await postgres.stop();
});

function psql(port: number, options: string) {
  const target = `host=127.0.0.1 port=${port} user=postgres dbname=postgres ${options}`;
  const environment = { HOME: "/nonexistent", PGPASSWORD: PASSWORD };
  return run(["psql", "-X", "-A", "-t", "-q", "-c", "SELECT 'in'", target], { environment });
}

test("psql with channel_binding=require, with certificates of SHA-256 and SHA-384", async () => {
  for (const { port } of [pooler, other]) {
    const ran = await psql(port, "sslmode=require channel_binding=require");
    assert.equal([ran.stdout, ran.stderr], ["in\n", ""]);
  }
});

test("psql without channel binding, with and without TLS", async () => {
  for (const options of ["sslmode=require channel_binding=disable", "sslmode=disable"]) {
    assert.is((await psql(pooler.port, options)).stdout, "in\n");
  }
  const refused = await psql(pooler.port, "sslmode=disable channel_binding=require");
  assert.match(refused.stderr, /channel binding/);
});

/** Logs in by hand; the mechanisms that were offered, and how it ended: "in" or the SQLSTATE. */
async function login(
  secure: boolean,
  options: ScramClientOptions,
  mechanism?: string,
): Promise<[string[], string]> {
  const client = await RawClient.connect(pooler);
  if (secure) await client.startTls();
  client.startup({ user: "postgres", database: "postgres" });
  const exchange = new ScramClientExchange(options);
  let offered: string[] = [];
  for (;;) {
    const message = await client.message();
    if (message?.type === Backend.errorResponse) {
      const text = Buffer.from(message.body).toString("latin1");
      client.close();
      return [offered, /\0C(.....)/.exec(text)![1]!];
    }
    if (message?.type !== Backend.authentication) {
      client.close();
      return [offered, "in"];
    }
    const asked = parseAuthentication(message.body);
    if (asked.kind === "sasl") {
      offered = asked.mechanisms;
      client.send(saslInitialResponse(mechanism ?? exchange.mechanism, exchange.first()));
    } else if (asked.kind === "saslContinue") {
      const challenge = exchange.continue(asked.data);
      if (challenge.kind !== "challenge") throw new Error(challenge.message);
      const { salt, iterations } = challenge;
      client.send(saslResponse(exchange.proof(await saltedPassword(PASSWORD, salt, iterations))));
    }
  }
}

test("binding is offered under TLS only, and who was kept from it is refused", async () => {
  const der = execFileSync("openssl", ["x509", "-in", own.certFile, "-outform", "DER"]);
  const right = new Uint8Array(createHash("sha256").update(der).digest());
  const wrong = right.map((byte) => byte ^ 1);
  const both = ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"];
  const rows: [boolean, ScramClientOptions, string | undefined, string[], string][] = [
    [true, { channelBinding: right }, undefined, both, "in"],
    [true, { channelBinding: "none" }, undefined, both, "in"],
    // Somebody has taken PLUS out of what the client saw.
    [true, { channelBinding: "not offered" }, undefined, both, "28000"],
    // The client speaks to somebody who passes it on.
    [true, { channelBinding: wrong }, undefined, both, "28000"],
    [true, { channelBinding: right }, scramSha256, both, "08P01"],
    [true, { channelBinding: "none" }, "SCRAM-SHA-256-PLUS", both, "08P01"],
    [false, { channelBinding: "none" }, undefined, [scramSha256], "in"],
    [false, { channelBinding: "not offered" }, undefined, [scramSha256], "in"],
    [false, { channelBinding: right }, undefined, [scramSha256], "28P01"],
  ];
  for (const [secure, options, mechanism, offered, wanted] of rows) {
    const what = JSON.stringify([secure, options, mechanism]);
    assert.equal(await login(secure, options, mechanism), [offered, wanted], what);
  }
});

test("PostgreSQL was logged in to with keys that a client has proved, bound as well", async () => {
  const [row] = await pooler.console("SHOW SERVERS").catch(() => [null]);
  assert.is(row, null, "the console wants a password as everybody");
  const backends = await postgres.query(
    "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) " +
      "WHERE usename = 'postgres' AND client_addr IS NOT NULL",
  );
  assert.ok(backends.length > 0);
  assert.ok(backends.every(({ ssl }) => ssl === true));
});

test.run();
