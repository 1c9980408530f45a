// TLS towards clients: every mode, every order of requests, direct TLS, hostile peers, client certificates, and the
// same relay underneath: large data both ways, messages cut anywhere, cancels.
// limit: 480 s

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import postgresJs from "postgres";
import {
  cancelRequest,
  concatBytes,
  gssRequest,
  queryMessage,
  sslRequest,
  startupPacket,
  syncMessage,
} from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { atRest, signal } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import { startRelay } from "../../support/relay.ts";
import {
  answerTo,
  authority,
  clientCertificate,
  clientTls,
  consoleOf,
  own,
  psql,
} from "./support.ts";

needs("postgresql", "openssl");
const test = suite("system: TLS towards clients");

const postgres = await startPostgres();
const databases = { postgres: `host=127.0.0.1 port=${postgres.port}` };
const poolers = new Map<string, Pgweir>();
for (const mode of ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]) {
  const ca: Record<string, string> = mode.startsWith("verify")
    ? { client_tls_ca_file: authority.caFile }
    : {};
  const tls = mode === "disable" ? {} : clientTls(mode, ca);
  poolers.set(mode, await startPgweir({ ini: { databases, pgbouncer: tls } }));
}
const pooler = poolers.get("require")!;
const alice = clientCertificate("postgres");
const anonymous = { ALPNProtocols: [], rejectUnauthorized: false };

test.after(async () => {
  for (const each of poolers.values()) await each.stop();
  await postgres.stop();
});

function target(of: Pgweir, options: string, host = "127.0.0.1"): string {
  return `host=${host} port=${of.port} user=postgres dbname=postgres ${options}`;
}

/** A connection that fails in its handshake may fail at either end first. */
const unproved = /certificate required|closed the connection|reset by peer|Broken pipe/;
const shown = `sslcert=${alice.certFile} sslkey=${alice.keyFile}`;
const rows: [mode: string, client: string, refused: RegExp | null][] = [
  ["disable", "sslmode=disable", null],
  ["disable", "sslmode=prefer", null],
  ["disable", "sslmode=require", /server does not support SSL, but SSL was required/],
  ["allow", "sslmode=disable", null],
  ["allow", "sslmode=require", null],
  ["prefer", "sslmode=disable", null],
  ["prefer", "sslmode=prefer", null],
  ["prefer", `sslmode=verify-full sslrootcert=${authority.caFile}`, null],
  ["require", "sslmode=disable", /FATAL: {2}SSL required/],
  ["require", "sslmode=require", null],
  ["require", `sslmode=require ${shown}`, null],
  ["require", `sslmode=verify-full sslrootcert=${own.certFile}`, /certificate verify failed/],
  ["verify-ca", "sslmode=disable", /SSL required/],
  ["verify-ca", `sslmode=require ${shown}`, null],
  ["verify-ca", "sslmode=require", unproved],
  ["verify-full", `sslmode=require ${shown}`, null],
  ["verify-full", "sslmode=require", unproved],
];
for (const [mode, client, refused] of rows) {
  const short = client.replace(/\/\S*\//g, "");
  test(`client_tls_sslmode = ${mode}, psql with ${short}: ${refused ?? "works"}`, async () => {
    const ran = await psql(target(poolers.get(mode)!, client), "SELECT 'in'");
    if (refused === null) assert.equal([ran.code, ran.stdout, ran.stderr], [0, "in\n", ""]);
    else assert.match(ran.stderr, refused);
  });
}

test("psql with sslmode=verify-full wants the certificate to be one for the host it names", async () => {
  const full = `sslmode=verify-full sslrootcert=${authority.caFile}`;
  assert.is((await psql(target(pooler, full, "localhost"), "SELECT 1")).stdout, "1\n");
  const attempt = /login attempt: db=postgres user=postgres tls=TLSv1\.3\/\S+ replication=no\n/;
  await until("the log", () => attempt.test(pooler.log()));
  const other = await psql(`${target(pooler, full, "elsewhere")} hostaddr=127.0.0.1`, "SELECT 1");
  assert.match(other.stderr, 'certificate for "localhost"');
});

test("no TLS on the unix socket, and none is required there", async () => {
  const client = await RawClient.connect({ path: pooler.socketPath });
  client.send(sslRequest());
  assert.is(await client.byte(), "N");
  assert.is(await answerTo(client, "SELECT 'plain'"), "plain");
  await client.end();
  const direct = await RawClient.connect({ path: pooler.socketPath });
  direct.send(Uint8Array.of(0x16, 3, 1, 0, 5));
  assert.is(await direct.repliesUntilClosed(), "closed");
});

test("GSSENCRequest, SSLRequest and startup in every order", async () => {
  const ask = async (client: RawClient, request: Uint8Array) => {
    await client.sendByteByByte(request);
    return await client.byte();
  };
  // GSS, TLS, startup.
  const first = await RawClient.connect(pooler);
  assert.is(await ask(first, gssRequest()), "N");
  await first.startTls();
  assert.is(await answerTo(first, "SELECT 'a'"), "a");
  await first.end();
  // TLS, GSS inside, startup.
  const second = await RawClient.connect(pooler);
  await second.startTls();
  assert.is(await ask(second, gssRequest()), "N");
  assert.is(await answerTo(second, "SELECT 'b'"), "b");
  await second.end();
  // Twice the same.
  for (const request of [sslRequest(), gssRequest()]) {
    const client = await RawClient.connect(poolers.get("prefer")!);
    await client.startTls();
    client.send(request);
    if (request[7] === gssRequest()[7]) {
      assert.is(await client.byte(), "N");
      client.send(request);
    }
    assert.match(await client.repliesUntilClosed(), /^E\(0A000\)/);
  }
  // Direct TLS, then asking for what is there.
  const direct = await RawClient.connect(pooler);
  await direct.directTls();
  assert.is(await ask(direct, sslRequest()), "N");
  assert.is(await answerTo(direct, "SELECT 'd'"), "d");
  await direct.end();
});

// CVE-2021-23214 and its like: what stands behind the request in clear is not to be taken for what comes encrypted.
test("bytes behind SSLRequest or GSSENCRequest in the same segment are refused", async () => {
  const startup = startupPacket({ user: "postgres", database: "postgres" });
  const injected = queryMessage("CREATE TABLE owned ()");
  for (const request of [sslRequest(), gssRequest()]) {
    for (const more of [startup, concatBytes(startup, injected), Uint8Array.of(0x16)]) {
      const client = await RawClient.connect(pooler);
      client.send(concatBytes(request, more));
      const replies = await client.repliesUntilClosed();
      assert.match(replies, /^E\(08P01\)/, replies);
    }
  }
  // One clear byte, then a handshake.
  const late = await RawClient.connect(pooler);
  late.send(Uint8Array.of(0));
  await rejects("clear byte", late.directTls());
  assert.equal(await postgres.query("SELECT 1 FROM pg_class WHERE relname = 'owned'"), []);
});

async function rejects(what: string, step: Promise<unknown>): Promise<void> {
  try {
    await step;
  } catch {
    return;
  }
  assert.unreachable(`${what}: went through`);
}

test("direct TLS with the protocol postgresql", async () => {
  for (const ALPNProtocols of [["postgresql"], ["http/1.1", "postgresql"]]) {
    const client = await RawClient.connect(pooler);
    await client.directTls({ ALPNProtocols, rejectUnauthorized: false });
    assert.is(await answerTo(client, "SELECT 'direct'"), "direct");
    await client.end();
  }
  for (const ALPNProtocols of [[], ["http/1.1"]]) {
    const client = await RawClient.connect(pooler);
    const login = async () => {
      await client.directTls({ ALPNProtocols, rejectUnauthorized: false });
      await answerTo(client, "SELECT 1");
    };
    await rejects(`ALPN ${ALPNProtocols}`, login());
    client.close();
  }
  // By SSLRequest the protocol need not be named, but a wrong one is refused.
  const plain = await RawClient.connect(pooler);
  await plain.startTls(anonymous);
  assert.is(await answerTo(plain, "SELECT 'old'"), "old");
  await plain.end();
  const wrong = await RawClient.connect(pooler);
  await rejects("http", wrong.startTls({ ALPNProtocols: ["http/1.1"], rejectUnauthorized: false }));
  wrong.close();
});

/** OpenSSL's own client, which begins with a handshake; plain bytes go in and come out. */
function openSslClient() {
  return spawn("openssl", [
    ...["s_client", "-connect", `127.0.0.1:${pooler.port}`, "-alpn", "postgresql", "-quiet"],
    ...["-CAfile", authority.caFile, "-verify_return_error"],
  ]);
}

test("direct TLS by OpenSSL's own client", async () => {
  const child = openSslClient();
  let answer = "";
  child.stdout.on("data", (bytes: Uint8Array) => answer += Buffer.from(bytes).toString("latin1"));
  child.stdin.write(startupPacket({ user: "postgres", database: "postgres" }));
  await until("the greeting", () => answer.includes("Z\0\0\0\x05I"));
  child.stdin.write(queryMessage("SELECT 'by openssl'"));
  await until("the row", () => answer.includes("by openssl"));
  signal(child.pid!, "SIGKILL");
});

/** Like openSslClient(), but it takes commands: a line that begins with K updates keys, with R renegotiates. */
function commandedClient(...more: string[]) {
  return spawn("openssl", [
    ...["s_client", "-connect", `127.0.0.1:${pooler.port}`, "-alpn", "postgresql"],
    ...["-CAfile", authority.caFile, ...more],
  ]);
}

test("a client may ask for new keys, in the middle of what it sends", async () => {
  const child = commandedClient("-tls1_3");
  let answer = "";
  for (const output of [child.stdout, child.stderr]) {
    output.on("data", (bytes: Uint8Array) => answer += Buffer.from(bytes).toString("latin1"));
  }
  child.stdin.write(startupPacket({ user: "postgres", database: "postgres" }));
  await until("the greeting", () => answer.includes("Z\0\0\0\x05I"));
  for (const text of ["first", "second", "third"]) {
    child.stdin.write("K\n");
    await until("new keys", () => answer.includes("KEYUPDATE"));
    answer = "";
    const query = [f.P("", `SELECT '${text} key'`), f.B(), f.D("P", ""), f.E(), f.S()];
    child.stdin.write(concatBytes(...query));
    await until("the row", () => answer.includes(`${text} key`));
  }
  signal(child.pid!, "SIGKILL");
});

test("a client can't renegotiate, and nobody else notices", async () => {
  const child = commandedClient("-tls1_2");
  let said = "";
  for (const output of [child.stdout, child.stderr]) {
    output.on("data", (bytes: Uint8Array) => said += Buffer.from(bytes).toString("latin1"));
  }
  child.stdin.write(startupPacket({ user: "postgres", database: "postgres" }));
  await until("the greeting", () => said.includes("Z\0\0\0\x05I"));
  child.stdin.write("R\n");
  await until("the refusal", () => /no renegotiation|alert/.test(said));
  signal(child.pid!, "SIGKILL");
  assert.is((await psql(target(pooler, "sslmode=require"), "SELECT 6")).stdout, "6\n");
});

test("direct TLS, one byte at a time", async () => {
  const relay = await startRelay(poolers.get("prefer")!);
  relay.sessions.pieceBytes = 1;
  const client = await RawClient.connect(relay);
  await client.directTls();
  assert.is(await answerTo(client, "SELECT 'bytes'"), "bytes");
  await client.end();
  await relay.stop();
});

test("direct TLS where there is no TLS is closed at once", async () => {
  const client = await RawClient.connect(poolers.get("disable")!);
  client.send(Uint8Array.of(0x16, 3, 1, 0xff, 0xff));
  // Not only when its login has taken too long, which is a minute.
  assert.is(await client.repliesUntilClosed(), "closed");
});

test("a handshake that does not go on ends with client_login_timeout", async () => {
  const pgbouncer = clientTls("require", { client_login_timeout: "2" });
  const strict = await startPgweir({ ini: { databases, pgbouncer } });
  /** A connection that has come so far in time: on a busy machine that may take another one. */
  const comesTo = (step: (client: RawClient) => Promise<unknown>) =>
    until("a connection to come so far", async () => {
      const client = await RawClient.connect(strict);
      const did = await step(client).catch(() => false);
      if (did !== false) return client;
      client.close();
      return null;
    });
  const silent = await comesTo(async (client) => {
    client.send(sslRequest());
    return await client.byte() === "S";
  });
  const half = await RawClient.connect(strict);
  half.send(Uint8Array.of(0x16));
  const late = await comesTo((client) => client.startTls());
  // None of it waits as long as it may by default, which is a minute.
  await until("the ends of both", () => silent.closeReason !== null && half.closeReason !== null);
  // It is told, encrypted.
  assert.match(await late.repliesUntilClosed(), /^E\(08006\)/);
  await strict.stop();
});

test("garbage instead of a handshake, and peers that leave in it, harm nobody", async () => {
  const before = (await consoleOf(pooler, "SHOW CLIENTS")).length;
  for (let i = 0; i < 60; i++) {
    const client = await RawClient.connect(pooler);
    client.send(sslRequest());
    assert.is(await client.byte(), "S");
    if (i % 3 === 0) client.send(new TextEncoder().encode("GET / HTTP/1.1\r\n\r\n"));
    else if (i % 3 === 1) client.send(Uint8Array.of(0x16, 3, 1, 2, 0, 1, 0, 1));
    if (i % 2 === 0) client.close();
    else client.reset();
  }
  await until(
    "them to be gone",
    async () => (await consoleOf(pooler, "SHOW CLIENTS")).length <= before,
  );
  assert.is((await psql(target(pooler, "sslmode=require"), "SELECT 2")).stdout, "2\n");
  await until("the log", () => /TLS handshake failed: /.test(pooler.log()));
});

test("SHOW CLIENTS tells version and cipher", async () => {
  const client = await RawClient.connect(pooler);
  await client.startTls();
  await client.login({ user: "postgres", database: "postgres" });
  const row = await until("it to be the only one", async () => {
    const rows = await consoleOf(pooler, "SHOW CLIENTS");
    const [first, ...others] = rows.filter((one) => one["user"] === "postgres");
    return others.length === 0 ? first : null;
  });
  assert.match(row["tls"]!, /^TLSv1\.3\/TLS_[A-Z0-9_]+$/);
  assert.is(row["database"], "postgres");
  await client.end();
});

test("a cancel comes over TLS, by SSLRequest or directly, and in clear", async () => {
  for (const how of ["startTls", "directTls", "clear"] as const) {
    const client = await RawClient.connect(pooler);
    await client.startTls();
    await client.login({ user: "postgres", database: "postgres" });
    client.send(queryMessage("SELECT pg_sleep(300)"));
    await until(
      "the query to run",
      async () => (await postgres.backends()).some((one) => one.state === "active"),
    );
    const other = await RawClient.connect(pooler);
    if (how !== "clear") await other[how]();
    other.send(cancelRequest(client.key!.processId, client.key!.secret));
    assert.is(await other.repliesUntilClosed(), "closed");
    const replies = await client.replies();
    assert.match(replies, /E\(57014\) Z\(I\)$/, `${how}: ${replies}`);
    await client.end();
  }
});

/** A file of `bytes` bytes of text, the same each time. */
function bigFile(bytes: number): string {
  const path = join(authority.dir, `big-${bytes}`);
  let text = "";
  for (let i = 0; text.length < bytes; i++) text += `${i}\t${"abcdefghij".repeat((i * 7) % 40)}\n`;
  writeFileSync(path, text);
  return path;
}

const digest = (path: string) => createHash("sha256").update(readFileSync(path)).digest("hex");

test("COPY carries 16 MB both ways, unchanged", async () => {
  const file = bigFile(16_000_000);
  const sql = `\\copy carried FROM '${file}'`;
  const back = `${file}.back`;
  await postgres.query("CREATE TABLE carried (n int, t text)");
  assert.equal((await psql(target(pooler, "sslmode=require"), sql)).stderr, "");
  const out = `\\copy (SELECT * FROM carried ORDER BY n) TO '${back}'`;
  assert.equal((await psql(target(pooler, "sslmode=require"), out)).stderr, "");
  assert.is(digest(back), digest(file));
});

// A record may end anywhere, and what is left of it is in nobody's socket any more.
test("a record that ends in the middle of a message wakes nobody twice, and is not forgotten", async () => {
  const client = await RawClient.connect(pooler);
  await client.startTls();
  await client.login({ user: "postgres", database: "postgres" });
  for (let length = 1; length <= 16_384; length += 331) {
    const padded = `SELECT '${"x".repeat(length)}'`;
    client.send(
      concatBytes(
        queryMessage("SELECT 1"),
        f.P("s", padded),
        f.B("", "s"),
        f.E(),
        f.C("S", "s"),
        syncMessage(),
      ),
    );
    const replies = await client.replies(2);
    assert.match(replies, /^T D C.* Z\(I\) 1 2 D C.* 3 Z\(I\)$/, `${length}: ${replies}`);
  }
  await atRest(pooler.pid);
  await client.end();
});

test("a login and what follows it in one record, and in as many as it has bytes", async () => {
  const login = startupPacket({ user: "postgres", database: "postgres" });
  const both = concatBytes(login, queryMessage("SELECT 1"));
  for (const send of ["send", "sendByteByByte"] as const) {
    const client = await RawClient.connect(pooler);
    await client.startTls();
    await client[send](both);
    assert.match(await client.replies(2), /^R( S)+ K Z\(I\) T D C"SELECT 1" Z\(I\)$/);
    await atRest(pooler.pid);
    await client.end();
  }
});

test("who does not read holds its server back, and gets everything in the end", async () => {
  const client = openSslClient();
  client.stdin.write(startupPacket({ user: "postgres", database: "postgres" }));
  let received = 0;
  let last = "";
  client.stdout.on("data", (bytes: Uint8Array) => {
    received += bytes.length;
    last = (last + Buffer.from(bytes).toString("latin1")).slice(-6);
  });
  await until("the greeting", () => last === "Z\0\0\0\x05I");
  received = 0;
  last = "";
  client.stdout.pause();
  client.stdin.write(queryMessage("SELECT repeat('x', 1000) FROM generate_series(1, 60000)"));
  const isHeld = async () =>
    (await postgres.backends()).some((one) => one.wait_event === "ClientWrite");
  await until("the server to wait", isHeld);
  const other = await psql(target(pooler, "sslmode=require"), "SELECT 3");
  assert.is(other.stdout, "3\n");
  const [shown] = (await consoleOf(pooler, "SHOW SOCKETS")).filter((one) =>
    one["user"] === "postgres" && one["type"] === "C"
  );
  assert.ok(Number(shown!["send_avail"]) < 200_000, JSON.stringify(shown));
  client.stdout.resume();
  await until("the end", () => last === "Z\0\0\0\x05I", 30_000);
  assert.ok(received > 60_000 * 1011);
  signal(client.pid!, "SIGKILL");
});

test("the drivers pg and postgres come in encrypted", async () => {
  const ca = authority.pem;
  const client = new pg.Client({
    host: "localhost",
    port: pooler.port,
    user: "postgres",
    database: "postgres",
    ssl: { ca },
  });
  await client.connect();
  assert.is((await client.query("SELECT $1::int + 1 AS n", [1])).rows[0].n, 2);
  await client.end();
  const sql = postgresJs({
    host: "localhost",
    port: pooler.port,
    user: "postgres",
    database: "postgres",
    ssl: { ca },
    max: 3,
  });
  const all = await Promise.all([1, 2, 3, 4].map((n) => sql`SELECT ${n}::int AS n`));
  assert.equal(all.map(([row]) => row!["n"]), [1, 2, 3, 4]);
  await sql.end();
});

test("settings for versions and ciphers take effect", async () => {
  const pgbouncer = clientTls("require", {
    client_tls_protocols: "tlsv1.2",
    client_tls_ciphers: "ECDHE-ECDSA-AES128-GCM-SHA256",
    client_tls_ecdhcurve: "secp384r1",
  });
  const narrow = await startPgweir({ ini: { databases, pgbouncer } });
  const client = await RawClient.connect(narrow);
  await client.startTls();
  await client.login({ user: "postgres", database: "postgres" });
  const [row] = (await consoleOf(narrow, "SHOW CLIENTS")).filter((one) =>
    one["user"] === "postgres"
  );
  assert.is(row!["tls"], "TLSv1.2/ECDHE-ECDSA-AES128-GCM-SHA256");
  await client.end();
  const newest = await RawClient.connect(narrow);
  await rejects("TLS 1.3", newest.startTls({ ...anonymous, minVersion: "TLSv1.3" }));
  newest.close();
  await narrow.stop();
});

test("what is wrong with the files is said at the start, with the setting", async () => {
  const garbage = join(authority.dir, "no.pem");
  writeFileSync(garbage, "nothing\n");
  const faulty: [Record<string, string>, RegExp][] = [
    [{ client_tls_key_file: "/nowhere.key" }, /client_tls_key_file "\/nowhere.key": No such file/],
    [{ client_tls_cert_file: garbage }, /client_tls_cert_file ".*no.pem": no start line/],
    [{ client_tls_key_file: alice.keyFile }, /client_tls_key_file ".*": key values mismatch/],
    [{ client_tls_ciphers: "nonsense" }, /client_tls_ciphers "nonsense": no cipher match/],
    [{ client_tls_key_file: "" }, /client_tls_key_file and client_tls_cert_file must be set/],
    [{ client_tls_protocols: "tlsv2" }, /client_tls_protocols names no TLS versions/],
    [{ client_tls_sslmode: "verify-ca" }, /requires client_tls_ca_file/],
  ];
  for (const [more, wanted] of faulty) {
    const pgbouncer = { ...clientTls("require"), ...more };
    try {
      await startPgweir({ ini: { databases, pgbouncer } });
      assert.unreachable(`${JSON.stringify(more)}: it started`);
    } catch (error) {
      assert.match((error as Error).message, wanted);
    }
  }
});

test.run();
