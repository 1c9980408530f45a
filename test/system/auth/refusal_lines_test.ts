// What the log says of logins that fail, towards clients and towards servers: the lines of PgBouncer 1.24, which
// alerts wait for, also where the client is told more.
// limit: 240 s

import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import {
  Backend,
  concatBytes,
  errorResponse,
  message,
  parseErrorFields,
  readyForQuery,
  scramSha256,
} from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { CertificateAuthority } from "../../support/certificates.ts";
import { type FakePostgres, startFakePostgres } from "../../support/fake_postgres.ts";
import { needs } from "../../support/needs.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";
import { tempDir } from "../../support/temp.ts";
import { authority, own } from "../tls/support.ts";

needs("openssl", "postgresql");

const files = tempDir("lines");
const stored = "SCRAM-SHA-256$4096:c2FsdHNhbHRzYWx0c2FsdA==" +
  "$5X7rbkQbwl0x8yC4dQ5W6hT2QkfcVHZ4cD7b2Gqj3hA=:5X7rbkQbwl0x8yC4dQ5W6hT2QkfcVHZ4cD7b2Gqj3hA=";
const noPassword = 'password authentication failed for user "ann"';
const unknownParameter = 'unrecognized configuration parameter "no_such"';

let strict: FakePostgres;
let sasl: FakePostgres;
let picky: FakePostgres;
let pooler: Pgweir;

const tests = suite("log lines of refused logins");

tests.before(async () => {
  strict = await startFakePostgres({
    onStartup: (session) => {
      session.send(errorResponse({ severity: "FATAL", code: "28P01", message: noPassword }));
      session.end();
    },
  });
  sasl = await startFakePostgres({
    onStartup: (session) => {
      const mechanisms = new TextEncoder().encode(`${scramSha256}\0\0`);
      const body = concatBytes(Uint8Array.of(0, 0, 0, 10), mechanisms);
      session.send(message(Backend.authentication, body));
    },
  });
  picky = await startFakePostgres({
    onMessage: (session, asked) => {
      const sql = new TextDecoder().decode(asked.body);
      if (!sql.includes("no_such")) return session.answer(asked);
      const failure = { severity: "ERROR", code: "42704", message: unknownParameter };
      session.send(errorResponse(failure), readyForQuery("I"));
    },
  });
  const at = ({ port }: FakePostgres) => `host=127.0.0.1 port=${port}`;
  writeFileSync(
    join(files, "hba"),
    `local  all     all peer map=none
hostssl mapped  all all cert map=cm
host    shown   all all cert
host    all     all all trust
`,
  );
  writeFileSync(join(files, "ident"), "none nobody-of-ours ann\ncm somebody ann\n");
  pooler = await startPgweir({
    ini: {
      databases: { strict: at(strict), sasl: at(sasl), picky: at(picky), mapped: "", shown: "" },
      pgbouncer: {
        auth_type: "hba",
        auth_hba_file: join(files, "hba"),
        auth_ident_file: join(files, "ident"),
        client_tls_sslmode: "allow",
        client_tls_ca_file: authority.caFile,
        client_tls_cert_file: own.certFile,
        client_tls_key_file: own.keyFile,
        server_tls_sslmode: "disable",
      },
    },
    userlist: { ann: "", bob: stored },
  });
});

tests.after(async () => {
  await pooler.stop();
  for (const server of [strict, sasl, picky]) await server.stop();
});

/** Waits for these lines, of those that `action` has caused; addresses and ages left out. */
async function logs(action: () => Promise<unknown>, ...wanted: readonly string[]): Promise<void> {
  const before = pooler.log().length;
  await action();
  const lines = () =>
    pooler.log().slice(before).replaceAll(/[CS]-0x\w+: /g, (label) => `${label[0]} `)
      .replaceAll(/@unix\(\d+\):\d+|@127\.0\.0\.1:\d+/g, "@IT").replaceAll(/ \(age=\d+s\)/g, "");
  for (const line of wanted) await until(line, () => lines().includes(`${line}\n`));
}

/** What a client is told that shows a certificate of this name, or none, or has no TLS (null). */
async function refusal(
  parameters: { user: string; database: string; no_such?: string },
  name: string | null = null,
): Promise<string> {
  const client = await RawClient.connect(pooler);
  try {
    if (name !== null) {
      const { certFile, keyFile } = name === ""
        ? { certFile: "", keyFile: "" }
        : authority.issue(name);
      const shown = name === "" ? {} : { cert: readFileSync(certFile), key: readFileSync(keyFile) };
      await client.startTls({ rejectUnauthorized: false, ...shown });
    }
    const { user, database, ...others } = parameters;
    await client.login({ user, database, parameters: others });
    return "";
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    return error.fields.message;
  } finally {
    client.close();
  }
}

const ann = (database: string) => ({ user: "ann", database });

tests("certificates and their names", async () => {
  const rows = [
    ["mapped", "ann", "ident map: cm does not have a match"],
    ["shown", "other", "TLS certificate name mismatch"],
    ["shown", "", "TLS client certificate required"],
    ["shown", null, "TLS connection required"],
  ] as const;
  for (const [database, name, line] of rows) {
    await logs(
      async () => {
        assert.is(await refusal(ann(database), name), "certificate authentication failed");
      },
      `ERROR C ${database}/ann@IT ${line}`,
      `LOG C ${database}/ann@IT closing because: certificate authentication failed`,
    );
  }
});

tests("a system user that the map does not have", async () => {
  await logs(
    () => RawClient.login({ path: pooler.socketPath }, ann("strict")).catch(() => {}),
    "ERROR C strict/ann@IT ident map none cannot be matched",
    "LOG C strict/ann@IT closing because: unix socket login rejected",
  );
});

tests("a server's own words are why its connection is closed", async () => {
  await logs(
    async () => assert.is(await refusal(ann("strict")), noPassword),
    `WARNING S strict/ann@IT server login failed: FATAL ${noPassword}`,
    `LOG S strict/ann@IT closing because: ${noPassword}`,
  );
});

tests("a SCRAM secret alone proves nothing to a server", async () => {
  const told = "server login failed: wrong password type";
  await logs(
    async () => assert.is(await refusal({ user: "bob", database: "sasl" }), told),
    "ERROR S sasl/bob@IT cannot do SCRAM authentication: password is SCRAM secret but client " +
      "authentication did not provide SCRAM keys",
    "LOG S sasl/bob@IT closing because: failed to answer authreq",
    `LOG C sasl/bob@IT closing because: ${told}`,
  );
});

tests("a startup parameter that PostgreSQL does not know", async () => {
  await logs(
    async () => assert.is(await refusal({ ...ann("picky"), no_such: "1" }), unknownParameter),
    "LOG C picky/ann@IT closing because: unsupported startup parameter: no_such",
    "WARNING C picky/ann@IT pooler error: unsupported startup parameter: no_such",
  );
});

tests("what is no startup packet", async () => {
  const rows = [
    [[0, 0, 0, 4, 0, 0, 0, 0], /^invalid length of startup packet: 4, /],
    [[0, 1, 0x11, 0x70, 0, 3, 0, 0], /^invalid length of startup packet: 70000, /],
    [[0, 0, 0, 8, 0, 9, 0, 0], /^unsupported frontend protocol 9\.0: /],
  ] as const;
  for (const [bytes, told] of rows) {
    const header = bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");
    await logs(
      async () => {
        const client = await RawClient.connect(pooler);
        client.send(Uint8Array.from(bytes));
        assert.match(parseErrorFields((await client.message())!.body).message, told);
        client.close();
      },
      `LOG C (nodb)/(nouser)@IT closing because: bad packet header: '${header}'`,
      `WARNING C (nodb)/(nouser)@IT pooler error: bad packet header: '${header}'`,
    );
  }
});

tests("a client that does not take our certificate has an address", async () => {
  const other = new CertificateAuthority();
  const address = `host=127.0.0.1 port=${pooler.port} user=ann dbname=strict sslmode=verify-ca ` +
    `sslrootcert=${other.caFile}`;
  await logs(
    () =>
      promisify(execFile)("psql", ["-X", address], { env: { ...process.env, HOME: "/" } })
        .catch(() => {}),
    "WARNING C (nodb)/(nouser)@IT TLS handshake error: handshake failed: tlsv1 alert unknown ca",
    "LOG C (nodb)/(nouser)@IT closing because: TLS handshake failed: tlsv1 alert unknown ca",
  );
});

tests.run();
