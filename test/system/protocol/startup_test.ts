// The first bytes of a connection: negotiation in every order, packets that are none, names of any length, and
// logins that lie about their lengths. Whatever comes, the answer is an error or a close, and nobody else notices.

import {
  cancelRequest,
  concatBytes,
  gssRequest,
  message,
  sslRequest,
  startupPacket,
  writeInt16,
  writeInt32,
} from "../../../shared/wire/mod.ts";
import { assert, seededRandom, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { badFrame, f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { openFiles, residentBytes } from "../../support/processes.ts";
import { RawClient, type Target } from "../../support/raw_client.ts";
import { standingChecks } from "../../support/standing_checks.ts";
import {
  closeAll,
  inParallel,
  login,
  nothingHangs,
  open,
  startPair,
  startPooler,
  Twin,
  upTo,
} from "./support.ts";

needs("postgresql");

const test = suite("startup");
let postgres: Postgres;
let pooler: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair());
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const utf8 = new TextEncoder();
const startup = startupPacket({ user: "postgres", database: "postgres" });

/** An initial packet with any code and body. */
function packet(code: number, body: Uint8Array | string, length?: number): Uint8Array {
  const bytes = typeof body === "string" ? utf8.encode(body) : body;
  const head = new Uint8Array(8);
  writeInt32(head, 0, length ?? 8 + bytes.length);
  writeInt32(head, 4, code);
  return concatBytes(head, bytes);
}

const version3 = 3 << 16;

/** What a server says to these bytes, up to ReadyForQuery or the end of the connection. */
async function firstReplies(target: Target, bytes: Uint8Array): Promise<string> {
  const client = await RawClient.connect(target);
  client.send(bytes);
  const replies = await client.replies();
  client.close();
  // N: a notice that a long name was cut.
  return replies.replace(/( N)?( S)+ K Z\(I\)$/, " ready");
}

test("negotiation requests are answered once each, in either order", async () => {
  // libpq asks for GSS encryption before it asks for TLS. A pooler that knew only SSLRequest took the
  // other for a protocol version, or answered one request and refused the second.
  for (const order of [[gssRequest, sslRequest], [sslRequest, gssRequest], [gssRequest]]) {
    for (const slow of [false, true]) {
      const client = await RawClient.connect(pooler);
      const send = (bytes: Uint8Array) => slow ? client.sendByteByByte(bytes) : client.send(bytes);
      for (const request of order) {
        await send(request());
        assert.is(await client.byte(), "N");
      }
      await send(startup);
      assert.match(await client.replies(), /^R( S)+ K Z\(I\)$/);
      await client.end();
    }
  }
  for (const request of [gssRequest, sslRequest]) {
    const client = await RawClient.connect(pooler);
    client.send(request());
    assert.is(await client.byte(), "N");
    client.send(request());
    assert.is(await client.repliesUntilClosed(), "E(0A000) closed");
  }
});

test("a cancel request works after negotiation was refused", async () => {
  // A driver that asks for TLS before it cancels had its cancel request taken for a startup packet.
  for (const request of [gssRequest, sslRequest]) {
    const client = await open(pooler);
    client.send(f.Q("SELECT pg_sleep(60)"));
    await until(
      "the query to run",
      async () => (await postgres.backends()).some((backend) => backend.state === "active"),
    );
    const other = await RawClient.connect(pooler);
    other.send(request());
    assert.is(await other.byte(), "N");
    other.send(cancelRequest(client.key!.processId, client.key!.secret));
    assert.is(await other.closed, "");
    assert.is(await client.replies(), "T E(57014) Z(I)");
    await client.end();
  }
});

test("bytes behind a negotiation request are never taken for part of a session", async () => {
  // Whoever sits between client and pooler can add bytes behind the SSLRequest; processed after the
  // handshake they looked as if the client had sent them under encryption.
  const injected = concatBytes(startup, f.Q("CREATE TABLE injected ()"));
  for (const request of [gssRequest, sslRequest]) {
    for (const rest of [startup, injected, Uint8Array.of(0), Uint8Array.of(0x16, 3, 1)]) {
      const client = await RawClient.connect(pooler);
      client.send(request(), rest);
      assert.is(await client.repliesUntilClosed(), "E(08P01) closed");
    }
  }
  // A TLS handshake where there is no TLS, at once or behind one byte.
  for (
    const bytes of [Uint8Array.of(0x16, 3, 1, 0, 200, 1), Uint8Array.of(0, 0x16, 3, 1, 0, 200)]
  ) {
    const client = await RawClient.connect(pooler);
    client.send(bytes);
    assert.match(await client.repliesUntilClosed(), /^(E\(08P01\) )?closed$/);
  }
  assert.equal(await postgres.query("SELECT FROM pg_class WHERE relname = 'injected'"), []);
});

test("startup packets of every shape get PostgreSQL's answer", async () => {
  // Missing terminators, odd numbers of strings and bytes behind the end led to reads past the
  // packet, and to logins with half of it.
  const filled = (length: number) => {
    const head = "user\0postgres\0application_name\0";
    return packet(version3, head + "x".repeat(length - 8 - head.length - 2) + "\0\0");
  };
  const same: [string, Uint8Array][] = [
    ["no final zero", packet(version3, "user\0postgres\0")],
    ["nothing at all", packet(version3, "")],
    ["only the terminator", packet(version3, "\0")],
    ["an early terminator", packet(version3, "\0user\0postgres\0\0")],
    ["bytes behind the terminator", packet(version3, "user\0postgres\0\0\0")],
    ["a key without a value", packet(version3, "user\0postgres\0database\0")],
    ["a key and the end", packet(version3, "user\0postgres\0database")],
    ["an empty key", packet(version3, "user\0postgres\0\0database\0\0")],
    ["no user", packet(version3, "database\0postgres\0\0")],
    ["an empty user", packet(version3, "user\0\0database\0postgres\0\0")],
    ["no database", packet(version3, "user\0postgres\0\0")],
    ["an empty database", packet(version3, "user\0postgres\0database\0\0\0")],
    ["two users", packet(version3, "user\0nobody\0user\0postgres\0\0")],
    ["two databases", packet(version3, "user\0postgres\0database\0no\0database\0postgres\0\0")],
    ["protocol 4", packet(4 << 16, "user\0postgres\0\0")],
    ["protocol 0", packet(0, "")],
    ["the largest packet", filled(10_004)],
  ];
  for (const [what, bytes] of same) {
    assert.is(await firstReplies(pooler, bytes), await firstReplies(postgres, bytes), what);
  }
  const own: [string, Uint8Array, string][] = [
    ["a packet too large", filled(10_005), "E(08P01) closed"],
    ["a startup packet of 1 MB", filled(1_000_000), "E(08P01) closed"],
    [
      "a value that is not UTF-8",
      packet(
        version3,
        concatBytes(
          utf8.encode("user\0postgres\0application_name\0"),
          Uint8Array.of(0xc3, 0x28, 0, 0),
        ),
      ),
      "E(08P01) closed",
    ],
    [
      "a key that is not UTF-8",
      packet(
        version3,
        concatBytes(utf8.encode("user\0postgres\0"), Uint8Array.of(0xff, 0, 0x31, 0, 0)),
      ),
      "E(08P01) closed",
    ],
    [
      "an unknown parameter",
      packet(version3, "user\0postgres\0nonsense\0v\0\0"),
      "E(42704) closed",
    ],
    [
      "a name that is none",
      packet(version3, "user\0postgres\0no sense\0v\0\0"),
      "E(22023) closed",
    ],
    [
      "400 parameters",
      packet(version3, `user\0postgres\0${upTo(400).map((i) => `p${i}\0v\0`).join("")}\0`),
      "E(22023) closed",
    ],
    ["protocol 2", packet(2 << 16, "user\0postgres\0\0"), "E(0A000) closed"],
    ["an HTTP request", utf8.encode("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "E(08P01) closed"],
    ["an SSH banner", utf8.encode("SSH-2.0-OpenSSH_9.2\r\n"), "E(08P01) closed"],
    ["a query", f.Q("SELECT 1"), "E(08P01) closed"],
    [
      "a control character",
      packet(version3, "user\0postgres\0application_name\0a\x01\x1b[2J\0\0"),
      "R ready",
    ],
  ];
  for (const [what, bytes, expected] of own) {
    assert.is(await firstReplies(pooler, bytes), expected, what);
  }
});

test("crowds of strangers leave no trace", async () => {
  // Port scanners and broken clients come by the thousand: each cost a descriptor or some memory
  // that was never given back.
  const checks = await standingChecks(pooler, postgres, login, { residentGrowthBytes: 64 << 20 });
  const files = openFiles(pooler.pid);
  const seed = 62;
  const random = seededRandom(seed);
  const noise = (length: number) => Uint8Array.from({ length }, () => Math.floor(random() * 256));
  await inParallel(upTo(600), 40, async (number) => {
    const client = await RawClient.connect(pooler);
    const kind = number % 6;
    if (kind === 0) client.send(noise(1 + Math.floor(random() * 4096)));
    else if (kind === 1) client.send(startup, noise(200));
    else if (kind === 2) client.send(startup.subarray(0, Math.floor(random() * startup.length)));
    else if (kind === 3) client.send(sslRequest());
    else if (kind === 4) client.send(cancelRequest(number, noise(4)));
    if (number % 2 === 0) client.halfClose();
    else if (number % 3 === 0) client.reset();
    else client.close();
    await Promise.race([client.closed, new Promise((resolve) => setTimeout(resolve, 500))]);
    client.close();
  });
  await until("all sockets to be closed", () => openFiles(pooler.pid) <= files + 2);
  await checks.verify();
});

test("long names are taken whole or refused, and no two become one", async () => {
  // Names went into buffers of a fixed size: a longer one ended the process, or was cut until it was
  // another user's name and had that user's password and servers.
  const base = "u".repeat(63);
  const users: Record<string, string> = {
    [base]: "first",
    [`${base}x`]: "second",
    [`${base}y`]: "third",
    [`${"w".repeat(127)}1`]: "fourth",
    [`${"w".repeat(127)}2`]: "fifth",
  };
  await postgres.query(`CREATE ROLE ${base} LOGIN; CREATE ROLE ${"w".repeat(63)} LOGIN`);
  const settings = { auth_type: "scram-sha-256", scram_iterations: 1 };
  const guarded = await startPooler(postgres, { settings, userlist: users });
  const attempt = async (user: string, password: string, database = "postgres") => {
    const client = await RawClient.connect(guarded);
    try {
      await client.login({ user, password, database });
      const rows = await client.query("SELECT session_user");
      return rows[0]![0]!;
    } catch (error) {
      return (error as { code?: string }).code ?? String(error);
    } finally {
      client.close();
    }
  };
  for (const [user, password] of Object.entries(users)) {
    // PostgreSQL itself takes the first 63 bytes for the role.
    assert.is(await attempt(user, password), user.slice(0, 63));
    for (const other of Object.values(users)) {
      if (other !== password) assert.is(await attempt(user, other), "28P01");
    }
  }
  for (const length of [129, 200, 1000, 9000]) {
    assert.is(await attempt("u".repeat(length), "first"), "08P01");
    assert.is(await attempt(base, "first", "d".repeat(length)), "08P01");
  }
  assert.is(await attempt(base, "first", "d".repeat(63)), "3D000");
  assert.is(await attempt(base, "first", "d".repeat(64)), "08P01");
  const hostile = [
    "with space",
    'with"quote',
    "with'quote; DROP TABLE x; --",
    "two\nlines",
    "%s%n%d",
    "\x1b[2J\x07",
    "é".repeat(31) + "xé",
    "UPPER",
    "pgbouncer",
    "*",
    "\u202eright to left",
  ];
  for (const name of hostile) {
    assert.is(await attempt(name, "first"), "28P01", name);
    assert.match(await attempt(base, "first", name), /^(3D000|42501|08P01)$/, name);
  }
  const before = residentBytes(guarded.pid);
  await inParallel(upTo(1500), 10, async (number) => {
    assert.is(await attempt(`stranger ${number} ${"n".repeat(100)}`, "first"), "28P01");
  });
  const grown = residentBytes(guarded.pid) - before;
  assert.ok(grown < 64 << 20, `the pooler grew by ${grown >> 20} MiB`);
  for (const line of guarded.log().trimEnd().split("\n")) {
    // deno-lint-ignore no-control-regex
    assert.ok(/^\d{4}-\d\d-\d\d [^\x00-\x1f\x7f]*$/.test(line), JSON.stringify(line));
  }
  await guarded.stop();
});

test("SASL messages that lie about their lengths end in an error", async () => {
  // The check of the response's length overflowed for a huge one, and an unauthenticated peer made
  // the process read far outside its buffer.
  const settings = { auth_type: "scram-sha-256", scram_iterations: 1 };
  const guarded = await startPooler(postgres, { settings, userlist: { postgres: "secret" } });
  const first = utf8.encode("n,,n=,r=rOprNGfwEbeRWgbNEkqO");
  const initial = (mechanism: string, length: number, data = first) => {
    const size = new Uint8Array(4);
    writeInt32(size, 0, length);
    return message(0x70, utf8.encode(mechanism), size, data);
  };
  const scram = "SCRAM-SHA-256\0";
  const bad: [string, Uint8Array][] = [
    ...[-1, -2, 0, 0x7fffffff, 0x80000000, 0xfffffff0, first.length + 1, first.length - 1].map(
      (length): [string, Uint8Array] => [`response length ${length}`, initial(scram, length)],
    ),
    ["no response", initial(scram, -1, new Uint8Array(0))],
    ["an empty response", initial(scram, 0, new Uint8Array(0))],
    ["no zero behind the mechanism", message(0x70, utf8.encode("SCRAM-SHA-256"))],
    ["a mechanism of 10,000 bytes", initial(`${"M".repeat(10_000)}\0`, first.length)],
    ["an empty mechanism", initial("\0", first.length)],
    ["another mechanism", initial("SCRAM-SHA-512\0", first.length)],
    ["channel binding without TLS", initial("SCRAM-SHA-256-PLUS\0", first.length)],
    ["an empty message", badFrame("p", 4)],
    ["one byte", badFrame("p", 5, Uint8Array.of(0))],
    ["64 KiB", badFrame("p", 65_536, new Uint8Array(65_532))],
    ["a frame of no length", badFrame("p", 0)],
    ["a frame of 2 GiB", badFrame("p", 0x7fffffff, first)],
    ["a query instead", f.Q("SELECT 1")],
    ["a clear-text password", message(0x70, utf8.encode("secret\0"))],
  ];
  const attempt = async (bytes: readonly Uint8Array[]) => {
    const client = await RawClient.connect(guarded);
    client.send(startup);
    assert.is(await client.repliesUntil("R"), "R");
    for (const part of bytes) {
      if (part !== bytes[0]) assert.is(await client.repliesUntil("R"), "R");
      client.send(part);
    }
    return await client.repliesUntilClosed();
  };
  for (let round = 0; round < 5; round++) {
    await inParallel(bad, 4, async ([what, bytes]) => {
      assert.match(await attempt([bytes]), /^E\((08P01|28P01)\) closed$/, what);
    });
    await inParallel(bad, 4, async ([what, bytes]) => {
      const replies = await attempt([initial(scram, first.length), bytes]);
      assert.match(replies, /^E\((08P01|28P01)\) closed$/, `second message: ${what}`);
    });
  }
  const client = await RawClient.login(guarded, { ...login, password: "secret" });
  assert.equal(await client.query("SELECT 1"), [["1"]]);
  await client.end();
  await guarded.stop();
});

test("messages that lie about the lengths within them get PostgreSQL's answer", async () => {
  // A count or a length inside a Bind, a Parse or a FunctionCall that is not true made proxies that
  // looked inside read past the message, or lose step with the server that refused it.
  const int16 = (...values: number[]) => {
    const bytes = new Uint8Array(2 * values.length);
    values.forEach((value, at) => writeInt16(bytes, 2 * at, value));
    return bytes;
  };
  const int32 = (value: number) => {
    const bytes = new Uint8Array(4);
    writeInt32(bytes, 0, value);
    return bytes;
  };
  const text = (value: string) => utf8.encode(value);
  const twin = await Twin.login(pooler, postgres);
  await twin.same([f.P("n", "SELECT $1::text"), f.P("", "SELECT $1::text"), f.S()]);
  for (const name of ["\0", "n\0"]) {
    const bind = (...parts: Uint8Array[]) => message(0x42, text("\0"), text(name), ...parts);
    for (
      const [what, body] of [
        ["nothing", new Uint8Array(0)],
        ["65,535 parameters", int16(0, -1)],
        ["32,767 formats", int16(32_767)],
        ["a parameter of length -2", concatBytes(int16(0, 1), int32(-2), int16(0))],
        ["a parameter of 2 GiB", concatBytes(int16(0, 1), int32(0x7fffffff), int16(0))],
        ["formats for two", concatBytes(int16(2, 0, 0, 1), int32(1), text("x"), int16(0))],
        ["results for three", concatBytes(int16(0, 1), int32(1), text("x"), int16(3, 0, 0, 0))],
        [
          "more behind the end",
          concatBytes(int16(0, 1), int32(1), text("x"), int16(0), text("more")),
        ],
        ["format 7", concatBytes(int16(1, 7, 1), int32(1), text("x"), int16(0))],
        ["what is right", concatBytes(int16(0, 1), int32(1), text("x"), int16(0))],
      ] as [string, Uint8Array][]
    ) {
      const replies = await twin.same([bind(body), f.E(), f.S(), f.Q("SELECT 1")], 2).catch(
        (error) => error,
      );
      if (replies instanceof Error) throw new Error(`${what}: ${replies.message}`);
    }
  }
  for (const name of ["\0", "other\0"]) {
    const parse = (...parts: Uint8Array[]) => message(0x50, text(name), ...parts);
    await twin.same([parse(text("SELECT 1\0"), int16(32_767)), f.S()]);
    await twin.same([
      parse(text("SELECT 1\0"), int16(1), int32(0)),
      f.S(),
      f.C("S", "other"),
      f.S(),
    ], 2);
    await twin.same([parse(text("SELECT 1\0"), int16(0), text("more")), f.S(), f.Q("SELECT 1")], 2);
  }
  const call = (...parts: Uint8Array[]) => message(0x46, int32(2026), ...parts);
  await twin.same([call(), f.Q("SELECT 1")], 2);
  await twin.same([call(int16(0, 1), int32(-2), int16(0)), f.Q("SELECT 1")], 2);
  await twin.same([call(int16(0, 1), int32(0x7fffffff), int16(0)), f.Q("SELECT 1")], 2);
  await twin.same([call(int16(0, 200)), f.Q("SELECT 1")], 2);
  await twin.same([message(0x51, text("no zero at the end")), f.Q("SELECT 1")], 2);
  await twin.same([message(0x51, text("SELECT 1\0SELECT 2\0")), f.Q("SELECT 3")], 2);
  await twin.same([message(0x45, text("\0")), f.S()]);
  await twin.same([message(0x44, text("X\0")), f.S(), message(0x43, text("X\0")), f.S()], 2);
  await twin.end();
  // What the pooler must read to know the names in it, it refuses itself.
  for (
    const bytes of [
      message(0x42),
      message(0x42, text("\0n")),
      message(0x44),
      message(0x43, text("S")),
    ]
  ) {
    const client = await open(pooler);
    client.send(bytes, f.S());
    assert.is(await client.repliesUntilClosed(), "E(08P01) closed");
  }
});

test("who does not log in is disconnected in time, and costs the others nothing", async () => {
  // Connections that never said a word were kept for ever, each with its buffers.
  const settings = { client_login_timeout: 3, auth_type: "md5", max_client_conn: 5 };
  const strict = await startPooler(postgres, { settings, userlist: { postgres: "secret" } });
  const started = performance.now();
  const partial = [
    new Uint8Array(0),
    startup.subarray(0, 3),
    startup.subarray(0, 20),
    sslRequest(),
    startup,
    concatBytes(startup, Uint8Array.of(0x70, 0, 0)),
  ];
  const clients = await Promise.all(partial.map(async (bytes) => {
    const client = await RawClient.connect(strict);
    if (bytes.length > 0) client.send(bytes);
    return client;
  }));
  for (const client of clients) {
    if (partial[clients.indexOf(client)]!.length === 8) assert.is(await client.byte(), "N");
    assert.match(await client.repliesUntilClosed(), /^(R )?E\(08006\) closed$/);
  }
  assert.ok(performance.now() - started > 2_000);
  // On a busy machine a login may itself be too late.
  const as = { ...login, password: "secret" };
  const client = await until("a login", () => RawClient.login(strict, as).catch(() => null));
  // After its login a client may take as long as it likes over a message.
  client.send(f.Q("SELECT 1").subarray(0, 3));
  await client.readNothingFor(4_000);
  client.send(f.Q("SELECT 1").subarray(3));
  assert.is(await client.replies(), 'T D C"SELECT 1" Z(I)');
  await client.end();
  await strict.stop();
});

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  await nothingHangs(pooler, postgres);
});

test.run();
