// TLS towards PostgreSQL: every mode against servers with and without it, certificates of both sides, hostile answers
// to SSLRequest; and that sessions, cancels, listeners and replication connections all use it.
// limit: 480 s

import { createHash, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  authenticationSasl,
  authenticationSaslContinue,
  authenticationSaslFinal,
  concatBytes,
  deriveScramSecret,
  parameterStatus,
  queryMessage,
  readyForQuery,
  saltedPassword,
  ScramServerExchange,
  scramSha256,
  scramSha256Plus,
} from "../../../shared/wire/mod.ts";
import { CertificateAuthority } from "../../support/certificates.ts";
import {
  type FakeOptions,
  type FakePostgres,
  startFakePostgres,
} from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { atRest } from "../../support/processes.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";
import { startRelay } from "../../support/relay.ts";
import { authority, own } from "./support.ts";

needs("postgresql", "openssl");
const test = suite("system: TLS towards servers");

const elsewhere = authority.issue("elsewhere", ["elsewhere.example"]);
const plain = await startPostgres();
const secured = await startPostgres({
  tls: { ...own, caFile: authority.caFile },
  settings: { listen_addresses: "localhost" },
  hba: [
    "hostssl all certy 127.0.0.1/32 cert",
    "hostssl all,replication postgres 127.0.0.1/32 trust",
    "hostnossl all,replication postgres 127.0.0.1/32 reject",
  ],
});
const open = await startPostgres({ tls: own });
const misnamed = await startPostgres({ tls: elsewhere });
await secured.query("CREATE ROLE certy LOGIN");
test.after(async () => {
  for (const postgres of [plain, secured, open, misnamed]) await postgres.stop();
});

async function withPooler(
  server: { readonly port: number },
  settings: Readonly<Record<string, string>>,
  use: (pooler: Pgweir) => Promise<void>,
  host = "127.0.0.1",
): Promise<void> {
  const databases = { postgres: `host=${host} port=${server.port}` };
  const pgbouncer = { server_login_retry: "1", server_connect_timeout: "60", ...settings };
  const userlist = { postgres: "", certy: "", admin: "" };
  const pooler = await startPgweir({ ini: { databases, pgbouncer }, userlist });
  try {
    await use(pooler);
  } finally {
    await pooler.stop();
  }
}

/** Whether PostgreSQL says that the connection is encrypted, or the error. */
async function encrypted(pooler: Pgweir, user = "postgres"): Promise<string> {
  try {
    const client = await RawClient.login(pooler, { user, database: "postgres" });
    const sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    const [row] = await client.query(sql);
    await client.end();
    return String(row![0]);
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    return error.fields.message;
  }
}

/** For those who wait for a server that can't be had. */
const inVain = { query_wait_timeout: "3" };

/** Waits until a client is told why; on a busy machine it may have waited before there was a reason. */
async function isTold(pooler: Pgweir, wanted: RegExp, user?: string): Promise<void> {
  let told = "";
  const isSo = async () => wanted.test(told = await encrypted(pooler, user));
  await until("the reason", isSo).catch(() => {});
  assert.match(told, wanted);
}

const ca = authority.caFile;
const stranger = new CertificateAuthority("a stranger").caFile;
const rows: [
  server: Postgres,
  host: string,
  mode: string,
  caFile: string,
  wanted: string | RegExp,
][] = [
  [plain, "127.0.0.1", "disable", "", "f"],
  [plain, "127.0.0.1", "allow", "", "f"],
  [plain, "127.0.0.1", "prefer", "", "f"],
  [plain, "127.0.0.1", "require", "", /server refused SSL/],
  [plain, "127.0.0.1", "verify-full", ca, /server refused SSL/],
  [open, "127.0.0.1", "disable", "", "f"],
  [open, "127.0.0.1", "allow", "", "t"],
  [open, "127.0.0.1", "prefer", "", "t"],
  [open, "127.0.0.1", "require", "", "t"],
  [open, "127.0.0.1", "verify-ca", ca, "t"],
  [open, "127.0.0.1", "verify-full", ca, "t"],
  [secured, "localhost", "verify-full", ca, "t"],
  [secured, "127.0.0.1", "disable", "", /pg_hba.conf rejects connection .* no encryption/],
  [open, "127.0.0.1", "verify-ca", stranger, /TLS handshake failed: certificate verify failed/],
  [open, "127.0.0.1", "verify-ca", "", /TLS handshake failed: certificate verify failed/],
  [misnamed, "127.0.0.1", "prefer", "", "t"],
  [misnamed, "127.0.0.1", "verify-ca", ca, "t"],
  [misnamed, "127.0.0.1", "verify-full", ca, /failed \(IP address mismatch\)/],
];
const names = new Map([[plain, "plain"], [secured, "hostssl"], [open, "either"], [
  misnamed,
  "misnamed",
]]);
for (const [server, host, mode, caFile, wanted] of rows) {
  const with_ = caFile === "" ? "" : caFile === ca ? ", its authority" : ", another authority";
  const settings = { server_tls_sslmode: mode, server_tls_ca_file: caFile };
  const more = typeof wanted === "string" ? {} : inVain;
  test(`server_tls_sslmode = ${mode}${with_}, ${names.get(server)} server at ${host}`, () =>
    withPooler(server, { ...settings, ...more }, async (pooler) => {
      if (typeof wanted === "string") assert.is(await encrypted(pooler), wanted);
      else await isTold(pooler, wanted);
      const established = /^\S+ \S+ UTC \[\d+\] LOG S-\S+ \S+ SSL established: TLSv1\.3\/\S+$/m;
      if (wanted === "t") await until("the log", () => established.test(pooler.log()));
      else assert.not.match(pooler.log(), "SSL established");
    }, host));
}

test("no TLS on a unix socket, whatever is required", () =>
  withPooler(
    open,
    { server_tls_sslmode: "require" },
    async (pooler) => assert.is(await encrypted(pooler), "f"),
    open.socketDir,
  ));

test("PostgreSQL is shown a certificate, and lets its user in by it", async () => {
  const certy = authority.issue("certy");
  const shown = { server_tls_cert_file: certy.certFile, server_tls_key_file: certy.keyFile };
  await withPooler(secured, { server_tls_sslmode: "require", ...shown }, async (pooler) => {
    assert.is(await encrypted(pooler, "certy"), "t");
  });
  await withPooler(secured, { server_tls_sslmode: "require", ...inVain }, async (pooler) => {
    await isTold(pooler, /certificate/, "certy");
  });
});

test("SHOW SERVERS tells version and cipher, and versions can be chosen", () =>
  withPooler(
    secured,
    { server_tls_protocols: "tlsv1.2", server_tls_ciphers: "ECDHE-ECDSA-AES256-GCM-SHA384" },
    async (pooler) => {
      assert.is(await encrypted(pooler), "t");
      const [row] = await pooler.console("SHOW SERVERS");
      assert.is(row!["tls"], "TLSv1.2/ECDHE-ECDSA-AES256-GCM-SHA384");
    },
  ));

test("16 MB go through both ways, cut into pieces on the way", () =>
  withPooler(secured, { server_tls_sslmode: "require" }, async (pooler) => {
    const client = await RawClient.login(pooler, { user: "postgres", database: "postgres" });
    const sent = "0123456789abcdef".repeat(1_000_000);
    const [row] = await client.query(`SELECT md5('${sent}'), repeat('fedcba98', 2000000)`, 30_000);
    assert.is(row![0], createHash("md5").update(sent).digest("hex"));
    assert.is(row![1], "fedcba98".repeat(2_000_000));
    await client.end();
  }));

// What a record holds beyond the message that was read is in nobody's socket any more, and wakes nobody.
test("messages in one record, and a record for each byte", async () => {
  let name = "";
  await withFake(
    {
      tls: own,
      onStartup: (session) => session.sendByteByByte(session.loginBytes()),
      onMessage: (session, message) => {
        if (message.type !== 0x51) return session.answer(message);
        const report = parameterStatus("application_name", name);
        session.send(session.oneRow("one"), report, readyForQuery("I"));
      },
    },
    { server_tls_sslmode: "require" },
    async (pooler) => {
      const client = await RawClient.login(pooler, { user: "postgres", database: "postgres" });
      for (let length = 1; length < 16_000; length += 401) {
        name = "n".repeat(length);
        assert.equal(await client.query("SELECT 1"), [["one"]]);
        assert.is(client.settings.get("application_name"), name);
      }
      await atRest(pooler.pid);
      await client.end();
    },
  );
});

test("a login and its answers that come three bytes at a time", async () => {
  const relay = await startRelay(secured);
  relay.sessions.pieceBytes = 3;
  await withPooler(relay, { server_tls_sslmode: "require" }, async (pooler) => {
    assert.is(await encrypted(pooler), "t");
  });
  await relay.stop();
});

test("replication connections and listeners are encrypted as well", () =>
  withPooler(secured, { server_tls_sslmode: "require" }, async (pooler) => {
    const parameters = { replication: "database" };
    const login = { user: "postgres", database: "postgres" };
    const replica = await RawClient.login(pooler, { ...login, parameters });
    const sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert.equal(await replica.query(sql), [["t"]]);
    const listening = await RawClient.login(pooler, login);
    await listening.query("LISTEN news");
    const seen = await secured.query(
      "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) " +
        "WHERE application_name = 'pgweir listener'",
    );
    assert.equal(seen, [{ ssl: true }]);
    await listening.end();
    await replica.end();
  }));

async function withFake(
  options: FakeOptions,
  settings: Readonly<Record<string, string>>,
  use: (pooler: Pgweir, fake: FakePostgres) => Promise<void>,
): Promise<void> {
  const fake = await startFakePostgres(options);
  try {
    await withPooler(fake, settings, (pooler) => use(pooler, fake));
  } finally {
    await fake.stop();
  }
}

test("a cancel is encrypted as its session is", () =>
  withFake(
    { tls: own, onMessage: (session, message) => hangs(session, message) },
    { server_tls_sslmode: "require" },
    async (pooler, fake) => {
      const client = await RawClient.login(pooler, { user: "postgres", database: "postgres" });
      client.send(queryMessage("SELECT hang"));
      const isHeard = () => fake.sessions.some((one) => one.messages.length > 0);
      await until("the query", isHeard);
      await client.cancel();
      await until("the cancel", () => fake.cancels.length > 0);
      assert.is(fake.encryptedCancels, fake.cancels.length);
      assert.ok(fake.sessions.every((session) => session.encrypted));
      client.close();
    },
  ));

type OnMessage = NonNullable<FakeOptions["onMessage"]>;

const hangs: OnMessage = (session, message) => {
  const isQuery = new TextDecoder().decode(message.body).includes("hang");
  if (!isQuery) session.answer(message);
};

// What comes in clear before the handshake may be anybody's: no text of it reaches a client, no login is made of it.
const secretText = "EEVIL: come here";
const answers: [what: string, answer: string][] = [
  ["S and an error behind it", `S${secretText}`],
  ["S and a login behind it", "SR\0\0\0\x08\0\0\0\0Z\0\0\0\x05I"],
  ["N and a login behind it", "NR\0\0\0\x08\0\0\0\0Z\0\0\0\x05I"],
  ["an error", secretText],
  ["another byte", "X"],
  ["S and then no handshake", "S"],
];
for (const [what, tlsAnswer] of answers) {
  for (const mode of ["prefer", "require"]) {
    test(`the answer to SSLRequest is ${what}, server_tls_sslmode = ${mode}`, () =>
      withFake(
        { tlsAnswer },
        { server_tls_sslmode: mode, server_connect_timeout: "1" },
        async (pooler, fake) => {
          const client = await RawClient.connect(pooler);
          client.startup({ user: "postgres", database: "postgres" });
          const said = /closing because: (.*SSL request|connect timeout|TLS handshake failed)/;
          await until("the login to fail", () => said.test(pooler.log()));
          client.close();
          assert.not(pooler.log().includes("EVIL"));
          assert.equal(fake.sessions, []);
        },
      ));
  }
}

test("a server that has no TLS is refused before it hears of anybody", () =>
  withFake({}, { server_tls_sslmode: "require", ...inVain }, async (pooler, fake) => {
    await isTold(pooler, /server refused SSL/);
    assert.equal(fake.sessions, []);
  }));

test("SCRAM is bound to the TLS connection where the server offers it, and says so where not", async () => {
  const der = new X509Certificate(readFileSync(own.certFile)).raw;
  const channelBinding = new Uint8Array(createHash("sha256").update(der).digest());
  const salt = new Uint8Array(16).fill(7);
  const secret = deriveScramSecret(await saltedPassword("secret", salt, 4096), salt, 4096);
  for (const offered of [[scramSha256Plus, scramSha256], [scramSha256]]) {
    const isPlus = offered.length === 2;
    let exchange: ScramServerExchange | null = null;
    let flags = "";
    const options: FakeOptions = {
      tls: own,
      onStartup: (session) => session.send(authenticationSasl(offered)),
      onMessage: async (session, message) => {
        if (message.type !== 0x70) return session.answer(message);
        const text = new TextDecoder("latin1").decode(message.body);
        if (exchange === null) {
          const mechanism = text.slice(0, text.indexOf("\0"));
          const first = message.body.slice(mechanism.length + 5);
          flags = new TextDecoder().decode(first).split(",")[0]!;
          exchange = new ScramServerExchange(secret, {
            mechanism,
            channelBinding: isPlus ? channelBinding : null,
          });
          const result = exchange.first(first);
          assert.ok(result.ok, JSON.stringify(result));
          if (result.ok) session.send(authenticationSaslContinue(result.reply));
          return;
        }
        const result = exchange.final(message.body);
        assert.ok(result.ok, JSON.stringify(result));
        if (!result.ok) return;
        // All the rest in one record, or in as many as it has bytes.
        const rest = concatBytes(authenticationSaslFinal(result.reply), session.loginBytes());
        if (isPlus) session.send(rest);
        else await session.sendByteByByte(rest);
      },
    };
    const fake = await startFakePostgres(options);
    const databases = { postgres: `host=127.0.0.1 port=${fake.port} user=u password=secret` };
    const pgbouncer = { server_tls_sslmode: "require" };
    const pooler = await startPgweir({ ini: { databases, pgbouncer } });
    const client = await RawClient.login(pooler, { user: "postgres", database: "postgres" });
    assert.equal(await client.query("SELECT 1"), [["SELECT 1"]]);
    assert.is(flags, isPlus ? "p=tls-server-end-point" : "y");
    await client.end();
    await pooler.stop();
    await fake.stop();
  }
});

test.run();
