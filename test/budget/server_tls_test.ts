// The coordinator's look at PostgreSQL over TLS, by the settings of the workers.

import { createServer } from "node:net";
import type { TlsPlan } from "../../shared/config/mod.ts";
import { queryOnce } from "../../services/budget/query_client.ts";
import { CertificateAuthority } from "../support/certificates.ts";
import { assert, suite } from "../support/harness.ts";
import { needs } from "../support/needs.ts";
import { startPostgres } from "../support/postgres.ts";

needs("postgresql", "openssl");
const test = suite("budget: TLS to PostgreSQL");

const authority = new CertificateAuthority();
const own = authority.issue("db", ["localhost", "127.0.0.1"]);
const certy = authority.issue("certy");
const secured = await startPostgres({
  tls: { ...own, caFile: authority.caFile },
  hba: ["hostssl all certy 127.0.0.1/32 cert"],
});
const plain = await startPostgres();
await secured.query("CREATE ROLE certy LOGIN");
test.after(async () => {
  await secured.stop();
  await plain.stop();
});

const plan: TlsPlan = {
  role: "client",
  name: "server_tls",
  certFile: "",
  keyFile: "",
  caFile: "",
  peer: "unverified",
  checksHost: false,
  versions: ["tlsv1.2", "tlsv1.3"],
  ciphers: "",
  tls13Ciphers: "",
  groups: "",
  dh: "auto",
};
const verified: TlsPlan = { ...plan, caFile: authority.caFile, peer: "verified" };
const sql = "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

async function ask(
  port: number,
  tls: { plan: TlsPlan; required: boolean } | null,
  name?: string,
  user = "postgres",
): Promise<string> {
  const address = { host: "127.0.0.1", port, ...(name === undefined ? {} : { name }) };
  const login = { user, password: null, database: "postgres" };
  return await queryOnce(address, login, sql, 60_000, tls).then(
    ([row]) => String(row![0]),
    (error: Error) => error.message.replace(/^ask PostgreSQL at \S+: /, ""),
  );
}

test("queryOnce() uses TLS where the server has it, and insists where told", async () => {
  assert.is(await ask(secured.port, null), "false");
  assert.is(await ask(secured.port, { plan, required: false }), "true");
  assert.is(await ask(secured.port, { plan, required: true }), "true");
  assert.is(await ask(plain.port, { plan, required: false }), "false");
  assert.is(await ask(plain.port, { plan, required: true }), "server refused SSL");
});

test("queryOnce() checks the server's certificate, and shows its own", async () => {
  assert.is(await ask(secured.port, { plan: verified, required: true }, "elsewhere"), "true");
  const full = { plan: { ...verified, checksHost: true }, required: true };
  assert.is(await ask(secured.port, full), "true");
  assert.is(await ask(secured.port, full, "localhost"), "true");
  assert.match(await ask(secured.port, full, "elsewhere"), /^TLS: .*elsewhere/);
  const stranger = new CertificateAuthority("a stranger").caFile;
  const other = { plan: { ...verified, caFile: stranger }, required: true };
  const untrusted = await ask(secured.port, other);
  assert.match(untrusted, /^TLS: /, untrusted);
  const shown = { plan: { ...plan, ...certy }, required: true };
  assert.is(await ask(secured.port, shown, undefined, "certy"), "true");
  assert.match(await ask(secured.port, { plan, required: true }, undefined, "certy"), /28000/);
});

test("queryOnce() believes nothing that comes in clear", async () => {
  const answers = ["Sx", "NR\0\0\0\x08\0\0\0\0Z\0\0\0\x05I", "EEVIL", "X", "S"];
  for (const answer of answers) {
    const server = createServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", () => {
        socket.write(answer);
        socket.once("data", () => socket.destroy());
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as { port: number };
    const told = await ask(port, { plan, required: false });
    assert.match(told, /did not answer the SSL request|^TLS: |connection was closed/);
    assert.not(told.includes("EVIL"));
    await new Promise((resolve) => server.close(resolve));
  }
});

test.run();
