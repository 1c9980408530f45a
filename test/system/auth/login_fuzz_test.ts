// Logins that go wrong in every way over real connections, to a worker with TLS, access rules and SCRAM: hellos that
// are cut, requests said twice, garbage at each step, packets that are too large, clients that are slow, stay silent or
// break off. Each is seeded. Nobody gets in, nothing is left open, memory does not grow, no secret is logged, and
// somebody else is served all the time.
// limit: 900 s
//
//   PGWEIR_FUZZ_LOGINS=20000 bun test/system/auth/login_fuzz_test.ts     instead of some hundreds; prints figures
//   PGWEIR_SEED starts elsewhere

import { createServer } from "node:net";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import {
  Backend,
  cancelRequest,
  concatBytes,
  gssRequest,
  message,
  parseAuthentication,
  passwordMessage,
  saltedPassword,
  saslInitialResponse,
  saslResponse,
  ScramClientExchange,
  scramSha256,
  sslRequest,
  startupPacket,
  writeInt32,
} from "../../../shared/wire/mod.ts";
import { Dice } from "../../support/fuzz.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { openFiles, residentBytes } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import { authority, clientCertificate, clientTls } from "../tls/support.ts";

needs("postgresql", "openssl");

const quickLogins = 600;
const logins = Number(process.env["PGWEIR_FUZZ_LOGINS"] ?? quickLogins);
const seed = Number(process.env["PGWEIR_SEED"] ?? 1);
const atOnce = 16;
/** Of these a few may stay to the end of their time. */
const stayers = 0.01;
const growthMaxBytes = 40 * 1024 * 1024;
const password = "the right one 4711";

const tests = suite("malformed logins");
const postgres = await startPostgres();
const hba = join(authority.dir, "hba.conf");
writeFileSync(
  hba,
  `hostssl certs    all all cert map=people
host    clear    all all password
host    hashed   all all md5
host    rejected all all reject
host    all      all all scram-sha-256
`,
);
const ident = join(authority.dir, "ident.conf");
writeFileSync(ident, "people alice app\n");
const server = `host=127.0.0.1 port=${postgres.port} dbname=postgres user=postgres`;
const databases = ["shop", "certs", "clear", "hashed", "rejected"] as const;
const pooler = await startPgweir({
  ini: {
    databases: Object.fromEntries(databases.map((name) => [name, server])),
    pgbouncer: {
      ...clientTls("allow", { client_tls_ca_file: authority.caFile }),
      auth_type: "hba",
      auth_hba_file: hba,
      auth_ident_file: ident,
      max_client_conn: 500,
      scram_iterations: 64,
      admin_users: "app",
    },
  },
  userlist: { app: password, postgres: "" },
});
const { certFile, keyFile } = clientCertificate("mallory");
const stranger = { cert: readFileSync(certFile), key: readFileSync(keyFile) };
const login = { user: "app", database: "shop", password };

tests.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

/** The first flight of a TLS client. */
async function recordHello(): Promise<Uint8Array> {
  let hello: Uint8Array | null = null;
  const listener = createServer((socket) =>
    socket.on("error", () => {}).once("data", (bytes: Uint8Array) => {
      hello = new Uint8Array(bytes);
      socket.destroy();
    })
  );
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const { port } = listener.address() as { port: number };
  const client = await RawClient.connect({ host: "127.0.0.1", port });
  await client.directTls().catch(() => {});
  client.close();
  listener.close();
  return await until("a hello", () => hello);
}
const hello = await recordHello();

const users = ["app", "nobody", "postgres", "", "x".repeat(200), "a\nb", "\u202e"];

function anyStartup(dice: Dice): Uint8Array {
  const user = dice.chance(0.7) ? "app" : dice.pick(users);
  const database = dice.pick([...databases, "shop", "shop", "nowhere", "pgbouncer"]);
  const more: [string, string][] = dice.chance(0.2)
    ? [["options", dice.pick(["-c work_mem=1", "--", "\\"])], ["replication", "x"]]
    : [];
  return startupPacket([["user", user], ["database", database], ...more], dice.below(4));
}

function withLength(bytes: Uint8Array, at: number, length: number): Uint8Array {
  const copy = bytes.slice();
  if (copy.length >= at + 4) writeInt32(copy, at, length);
  return copy;
}

const lengths = [-1, 0, 4, 7, 8, 9, 10_004, 10_005, 16_384, 70_000, 0x40000000, 0x7fffffff];

/** What a client may say first; none of it is a login. */
function opening(dice: Dice): Uint8Array {
  switch (dice.below(8)) {
    case 0:
      return dice.bytes(3000);
    case 1:
      return hello.slice(0, dice.below(hello.length));
    case 2:
      return dice.mutateBytes(hello);
    case 3:
      return withLength(anyStartup(dice), 0, dice.pick(lengths));
    case 4:
      return dice.mutateBytes(anyStartup(dice));
    case 5:
      return dice.mutateBytes(dice.pick([sslRequest(), gssRequest()]));
    case 6:
      return cancelRequest(dice.below(1 << 30), dice.bytes(40));
    default:
      return concatBytes(dice.pick([sslRequest(), gssRequest()]), anyStartup(dice));
  }
}

function anyPassword(dice: Dice): Uint8Array {
  switch (dice.below(5)) {
    case 0:
      return passwordMessage(dice.pick(["wrong", "x".repeat(5000), "x".repeat(20_000)]));
    case 1:
      return dice.mutateBytes(saslInitialResponse(scramSha256, dice.bytes(60)));
    case 2:
      return withLength(passwordMessage("wrong"), 1, dice.pick(lengths));
    case 3:
      return message(dice.pick([0x70, 0x51, 0x58, 0x53, 0]), dice.bytes(300));
    default:
      return dice.bytes(200);
  }
}

async function send(client: RawClient, dice: Dice, bytes: Uint8Array): Promise<void> {
  if (dice.chance(0.9) || bytes.length === 0) return client.send(bytes);
  // In pieces, which come late.
  const cuts = [1, 2, 3].map(() => dice.below(bytes.length)).sort((a, b) => a - b);
  await client.sendCut(bytes, cuts, 3);
}

/** An exchange with the wrong password, of which a part may be damaged. */
async function scram(client: RawClient, dice: Dice): Promise<void> {
  const exchange = new ScramClientExchange({
    channelBinding: dice.pick(["none", "not offered", dice.bytes(40)]),
  });
  const target = dice.below(3);
  const spoil = (step: number, bytes: Uint8Array) =>
    step === target ? dice.mutateBytes(bytes) : bytes;
  const mechanism = dice.chance(0.8) ? exchange.mechanism : dice.pick([scramSha256, "", "X"]);
  await send(client, dice, spoil(0, saslInitialResponse(mechanism, exchange.first())));
  const asked = await client.message();
  if (asked?.type !== Backend.authentication) return;
  const authentication = parseAuthentication(asked.body);
  if (authentication.kind !== "saslContinue") return;
  const challenge = exchange.continue(authentication.data);
  if (challenge.kind === "problem") return;
  const { salt, iterations } = challenge;
  const proof = exchange.proof(await saltedPassword("wrong", salt, iterations));
  await send(client, dice, spoil(1, saslResponse(proof)));
  if (dice.chance(0.2)) await send(client, dice, spoil(2, saslResponse(proof)));
}

/** One login, up to wherever it gets. */
async function goWrong(client: RawClient, dice: Dice): Promise<void> {
  if (dice.chance(0.4)) return await send(client, dice, opening(dice));
  for (let requests = dice.below(4); requests > 0; requests--) {
    const isTls = dice.chance(0.5);
    client.send(isTls ? sslRequest() : gssRequest());
    const answer = await client.byte();
    if (answer === "S") {
      if (dice.chance(0.6)) return await send(client, dice, opening(dice));
      const shown = dice.chance(0.5) ? stranger : {};
      await client.directTls({ rejectUnauthorized: false, ...shown });
    } else if (answer !== "N") return;
  }
  await send(client, dice, anyStartup(dice));
  if (dice.chance(0.1)) return;
  const asked = await client.message();
  if (asked?.type !== Backend.authentication) return;
  const isSasl = parseAuthentication(asked.body).kind === "sasl";
  if (isSasl && dice.chance(0.7)) await scram(client, dice);
  else await send(client, dice, anyPassword(dice));
}

/** Of a connection that is closed. */
async function hasLoggedIn(client: RawClient): Promise<boolean> {
  try {
    for (;;) {
      const message = await client.message();
      if (message === null) return false;
      if (message.type === Backend.readyForQuery) return true;
    }
  } catch {
    // An answer in clear to a half TLS hello, or one that was cut.
    return false;
  }
}

async function attempt(number: number): Promise<void> {
  const dice = new Dice(Math.imul(seed, 0x9e3779b1) + number);
  const client = await RawClient.connect(pooler);
  try {
    // What fails here fails at this end: writes and handshakes after the pooler has closed.
    await goWrong(client, dice).catch(() => {});
    // Who stays waits for the pooler, which does not wait for ever.
    const leave = dice.chance(stayers) ? 3 : dice.below(3);
    if (leave === 0) return client.reset();
    if (leave === 1) return client.close();
    if (leave === 2) client.halfClose();
    await until("the connection to be closed", () => client.closeReason !== null, 30_000);
    assert.not(await hasLoggedIn(client), "it got in");
  } finally {
    client.close();
  }
}

/** Runs attempts from one number to another. */
async function attempts(from: number, to: number): Promise<void> {
  let next = from;
  await Promise.all(Array.from({ length: atOnce }, async () => {
    while (next < to) {
      const number = next++;
      try {
        await attempt(number);
      } catch (error) {
        throw new Error(`PGWEIR_SEED=${seed}, login ${number}: ${(error as Error).stack}`);
      }
    }
  }));
}

tests(`${logins} logins go wrong, and nobody else notices`, async () => {
  const bystander = await RawClient.connect(pooler);
  await bystander.startTls();
  await bystander.login(login);
  let isOver = false;
  let answers = 0;
  let longestMs = 0;
  const serving = (async () => {
    while (!isOver) {
      const begun = performance.now();
      assert.equal(await bystander.query("SELECT 'well'"), [["well"]]);
      longestMs = Math.max(longestMs, performance.now() - begun);
      answers++;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  })();
  // It is told when it is awaited.
  serving.catch(() => {});
  const begun = performance.now();
  const isQuiet = async () => {
    const rows = await bystanders.table("SHOW LISTS");
    return rows.find((row) => row["list"] === "used_clients")?.["items"] === "2";
  };
  const bystanders = await RawClient.login(pooler, { ...login, database: "pgbouncer" });
  // From here on: who logs in as it should is not to be hurried.
  await bystanders.query("SET client_login_timeout = 3");
  // Code is compiled and heaps find their size.
  const warm = Math.floor(logins / 4);
  await attempts(0, warm);
  await until("the first to be gone", isQuiet, 30_000);
  const before = { files: openFiles(pooler.pid), resident: residentBytes(pooler.pid) };
  await attempts(warm, logins);
  await until("all to be gone", isQuiet, 30_000);
  const seconds = (performance.now() - begun) / 1000;
  await until("files to be closed", () => openFiles(pooler.pid) <= before.files + 2);
  const grown = () => residentBytes(pooler.pid) - before.resident;
  await until("garbage to be collected", () => grown() < growthMaxBytes).catch(() => {
    throw new Error(`the worker has grown by ${grown()} bytes`);
  });
  isOver = true;
  await serving;
  await bystanders.query("SET client_login_timeout = 60");
  const fresh = await RawClient.login(pooler, login);
  assert.equal(await fresh.query("SELECT 1"), [["1"]]);
  for (const client of [fresh, bystander, bystanders]) await client.end();
  assert.is(pooler.end, null);
  for (const secret of [password, "SCRAM-SHA-256$"]) assert.not(pooler.log().includes(secret));
  assert.ok(answers >= Math.min(20, seconds), `${answers} answers in ${seconds} s`);
  if (logins === quickLogins) return;
  console.log(
    `${logins} logins in ${seconds.toFixed(1)} s; ${answers} answers to somebody else meanwhile, ` +
      `the longest after ${longestMs.toFixed(0)} ms; +${(grown() / 2 ** 20).toFixed(1)} MiB`,
  );
});

tests.run();
