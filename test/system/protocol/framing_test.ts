// Messages cut anywhere, messages of any size, and length words that lie, from clients and from servers.
// Real PostgreSQL where the answer matters, a scripted server where the cut or the lie is the server's.

import {
  cancelRequest,
  commandComplete,
  concatBytes,
  dataRow,
  errorResponse,
  Frontend,
  md5Response,
  md5Secret,
  parseAuthentication,
  passwordMessage,
  readyForQuery,
  rowDescription,
  saltedPassword,
  saslInitialResponse,
  saslResponse,
  ScramClientExchange,
  scramSha256,
  sslRequest,
  startupPacket,
  writeInt32,
} from "../../../shared/wire/mod.ts";
import { queryText, startFakePostgres } from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { badFrame, f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { residentBytes } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
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

const test = suite("framing");
let postgres: Postgres;
let pooler: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair({ settings: { default_pool_size: 4 } }));
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const startup = { user: "postgres", database: "postgres" };
const batch = concatBytes(
  f.P("s", "SELECT $1::int", [23]),
  f.B("", "s", ["7"]),
  f.D(),
  f.E(),
  f.C("S", "s"),
  f.S(),
  f.Q("SELECT 'x'"),
);
const batchReplies = '1 2 T D("7") C"SELECT 1" 3 Z(I) T D("x") C"SELECT 1" Z(I)';

// --- cuts by the client

test("a startup packet may arrive in any two pieces", async () => {
  // Poolers that took one read for one packet dropped logins whose packet TCP had cut, or waited for
  // ever for the rest of one that was there.
  const packet = startupPacket({ ...startup, application_name: "cut" });
  await inParallel(upTo(packet.length - 1), 16, async (cut) => {
    const client = await RawClient.connect(pooler);
    await client.sendCut(packet, [cut], 3);
    assert.match(await client.replies(), /^R( S)+ K Z\(I\)$/);
    assert.equal(await client.query("SHOW application_name"), [["cut"]]);
    await client.end();
  });
});

test("a startup packet and the first query may come in one write, or byte by byte", async () => {
  // What followed the startup packet in the same segment was dropped with the login's buffer, and
  // the client waited for the answer to a query nobody had seen.
  const bytes = concatBytes(startupPacket(startup), f.Q("SELECT 'first'"));
  const whole = await RawClient.connect(pooler);
  whole.send(bytes);
  assert.match(await whole.replies(2, { values: true }), / T D\("first"\) C"SELECT 1" Z\(I\)$/);
  const slow = await RawClient.connect(pooler);
  await slow.sendByteByByte(bytes);
  assert.match(await slow.replies(2, { values: true }), / T D\("first"\) C"SELECT 1" Z\(I\)$/);
  await whole.end();
  await slow.end();
});

test("a batch of messages may arrive in any two pieces", async () => {
  // A header cut after its first byte, or a body cut before its last, made poolers read a length
  // from bytes of the message before, or forward half a message to one server and half to another.
  await inParallel(upTo(batch.length - 1), 8, async (cut) => {
    const client = await open(pooler);
    await client.sendCut(batch, [cut], 3);
    assert.is(await client.replies(2, { values: true }), batchReplies, `cut at ${cut}`);
    await client.end();
  });
});

test("a batch of messages may arrive byte by byte, on many connections at once", async () => {
  // The same, with every cut at once and the servers changing hands between the pieces.
  await inParallel(upTo(12), 6, async () => {
    const client = await open(pooler);
    await client.sendByteByByte(batch);
    assert.is(await client.replies(2, { values: true }), batchReplies);
    await client.end();
  });
});

test("a cancel request and an SSL request may arrive in any two pieces", async () => {
  // Requests that come before a login have no type byte: a reader that wanted five bytes for a
  // header never answered an SSLRequest that had been cut after the fourth.
  await inParallel(upTo(7), 7, async (cut) => {
    const client = await RawClient.connect(pooler);
    await client.sendCut(sslRequest(), [cut], 3);
    assert.is(await client.byte(), "N");
    await client.login(login);
    await client.end();
  });
  await inParallel(upTo(15), 4, async (cut) => {
    const client = await open(pooler);
    const sql = `SELECT pg_sleep(60), ${cut}`;
    client.send(f.Q(sql));
    await until(
      "the query to run",
      async () => (await postgres.backends()).some((b) => b.state === "active" && b.query === sql),
    );
    const other = await RawClient.connect(pooler);
    await other.sendCut(cancelRequest(client.key!.processId, client.key!.secret), [cut], 3);
    assert.is(await other.closed, "");
    assert.is(await client.replies(), "T E(57014) Z(I)");
    await client.end();
  });
});

test("password messages may arrive in any two pieces", async () => {
  // A password message that was not whole at the first read was taken for a wrong password.
  const users = { plain: "secret" };
  await postgres.query("CREATE ROLE plain LOGIN");
  const run = async (
    authType: string,
    exchange: (client: RawClient, cut: number) => Promise<number>,
  ) => {
    const settings = { auth_type: authType, scram_iterations: 1 };
    const guarded = await startPooler(postgres, { settings, userlist: users });
    const attempt = async (cut: number): Promise<number> => {
      const client = await RawClient.connect(guarded);
      client.startup({ user: "plain", database: "postgres" });
      const length = await exchange(client, cut);
      assert.match(await client.replies(), /^R( R)?( S)+ K Z\(I\)$/, `${authType} cut at ${cut}`);
      await client.end();
      return length;
    };
    const length = await attempt(1);
    await inParallel(upTo(length - 1), 8, async (cut) => {
      await attempt(cut);
    });
    await guarded.stop();
  };
  const asked = async (client: RawClient) => parseAuthentication((await client.message())!.body);
  await run("md5", async (client, cut) => {
    const request = await asked(client);
    assert.is(request.kind, "md5");
    if (request.kind !== "md5") return 0;
    const answer = passwordMessage(md5Response(md5Secret("plain", "secret"), request.salt));
    await client.sendCut(answer, [cut], 3);
    return answer.length;
  });
  await run("scram-sha-256", async (client, cut) => {
    assert.is((await asked(client)).kind, "sasl");
    const scram = new ScramClientExchange();
    const first = saslInitialResponse(scramSha256, scram.first());
    await client.sendCut(first, [Math.min(cut, first.length - 1)], 3);
    const request = await asked(client);
    if (request.kind !== "saslContinue") throw new Error(request.kind);
    const challenge = scram.continue(request.data);
    if (challenge.kind === "problem") throw new Error(challenge.message);
    const salted = await saltedPassword("secret", challenge.salt, challenge.iterations);
    const last = saslResponse(scram.proof(salted));
    await client.sendCut(last, [cut], 3);
    return last.length;
  });
});

// --- sizes

test("a Parse of any size gives the answer PostgreSQL gives", async () => {
  // A message that was just as long as a buffer, or one byte longer, was sent twice, lost its end,
  // or was waited for by a reader whose buffer was full already.
  const twin = await Twin.login(pooler, postgres);
  const sizes = [4096, 16_384, 32_768, 65_536, 98_304, 131_072].flatMap((n) => [n - 1, n, n + 1]);
  for (const name of ["", "sized"]) {
    for (const size of [...sizes, 262_145, 1 << 20]) {
      const overhead = f.P(name, "SELECT ''").length;
      const sql = `SELECT '${"x".repeat(size - overhead)}'`;
      assert.is(f.P(name, sql).length, size);
      const parts = [f.H(), f.P(name, sql), f.B("", name), f.E(), f.C("S", name), f.S()];
      await twin.same(parts);
      await twin.same([f.Q(sql), f.P(name, sql), f.C("S", name), f.S(), f.Q("SELECT 1")], 3);
    }
  }
  await twin.end();
});

test("a Bind of any size gives the answer PostgreSQL gives", async () => {
  // The statement's name in a Bind is replaced while the rest of the message is still on its way;
  // a wrong length word showed only for messages that did not fit one buffer.
  const twin = await Twin.login(pooler, postgres);
  await twin.same([f.P("named", "SELECT length($1::text), md5($2::text)"), f.S()]);
  for (const size of [30_000, 32_700, 32_768, 65_400, 65_536, 98_304, 131_072, 1 << 20]) {
    for (const more of [0, 1, 2]) {
      const values = ["x".repeat(size + more), "y".repeat(more)];
      await twin.same([f.B("", "named", values), f.E(), f.S(), f.Q("SELECT 'next'")], 2);
    }
  }
  await twin.end();
});

test("a statement that is too large is refused, and so is a name that is", async () => {
  // What cannot be kept must end in a clear error: poolers waited for room that never came.
  const big = await open(pooler);
  big.send(f.P("big", `SELECT '${"x".repeat(64 << 20)}'`), f.S());
  assert.is(await big.repliesUntilClosed({ timeoutMs: 30_000 }), "E(54000) closed");
  const unnamed = await open(pooler);
  unnamed.send(f.P("", `SELECT length('${"x".repeat(64 << 20)}')`), f.B(), f.E(), f.S());
  assert.is(
    await unnamed.replies(1, { values: true, timeoutMs: 60_000 }),
    `1 2 D("${64 << 20}") C"SELECT 1" Z(I)`,
  );
  await unnamed.end();
  const name = "n".repeat(70_000);
  const named = await open(pooler);
  named.send(f.P(name, "SELECT 1"), f.S());
  assert.is(await named.replies(), "E(54000) Z(I)");
  named.send(f.B("", name), f.E(), f.S());
  assert.is(await named.repliesUntilClosed(), "E(54000) closed");
});

// --- cuts by the server

test("a server's login and answers may arrive in any two pieces", async () => {
  // The same cuts on the other side: a login message or a ReadyForQuery that came in two reads was
  // taken for a broken server.
  let cut = 1;
  const row = concatBytes(
    rowDescription([{ name: "v", typeOid: 25, typeSize: -1 }]),
    dataRow(["value"]),
    commandComplete("SELECT 1"),
    readyForQuery("I"),
  );
  const failure = concatBytes(
    errorResponse({ severity: "ERROR", code: "22012", message: "division by zero" }),
    readyForQuery("I"),
  );
  const fake = await startFakePostgres({
    onStartup: (session) => session.sendCut(session.loginBytes(), [cut], 1),
    onMessage: async (session, message) => {
      if (message.type !== Frontend.query) return session.end();
      const bytes = queryText(message) === "row" ? row : failure;
      await session.sendCut(bytes, [1 + (cut % (bytes.length - 1))], 1);
    },
  });
  const front = await startPooler(fake, { settings: { default_pool_size: 1 } });
  const client = await open(front);
  const loginLength = fake.sessions[0]!.loginBytes().length;
  for (; cut < loginLength; cut++) {
    client.send(f.Q("row"), f.Q("failure"), f.Q("row"));
    assert.is(
      await client.replies(3, { values: true }),
      'T D("value") C"SELECT 1" Z(I) E(22012) Z(I) T D("value") C"SELECT 1" Z(I)',
      `cut at ${cut}`,
    );
    const session = fake.open[0]!;
    session.end();
    await session.closed;
  }
  await client.end();
  await front.stop();
  await fake.stop();
});

// --- length words that lie

test("a client's length word that cannot be true ends its connection and nobody else's", async () => {
  // A negative length widened to an unsigned one made poolers reserve gigabytes or crash; a length
  // below 4 made them read the same byte for ever.
  const bystander = await open(pooler);
  await bystander.query("SELECT 1");
  const before = residentBytes(pooler.pid);
  const junk = new Uint8Array(64).fill(0x41);
  const lies = [-2147483648, -1, 0, 3, 0x40000000, 0x7fffffff, 0xffffffff];
  const frames = ["Q", "P", "B", "d", "S", "p", "X", "\0"].flatMap((type) =>
    lies.map((length) => badFrame(type, length, junk))
  );
  frames.push(badFrame("S", 20_000, new Uint8Array(19_996)), badFrame("z", 8, junk));
  await inParallel(frames, 8, async (frame) => {
    for (const where of ["idle", "in a transaction"]) {
      const client = await open(pooler);
      if (where !== "idle") await client.query("BEGIN");
      client.send(frame);
      const replies = await client.repliesUntilClosed();
      assert.is(replies, "E(08P01) closed", `${frame.subarray(0, 5)} ${where}`);
    }
  });
  await inParallel(upTo(200), 20, async () => {
    const client = await open(pooler);
    client.send(badFrame("Q", 0x40000000, junk));
    await client.closed;
  });
  assert.equal(await bystander.query("SELECT 'well'"), [["well"]]);
  await bystander.end();
  const grown = residentBytes(pooler.pid) - before;
  assert.ok(grown < 64 << 20, `the pooler grew by ${grown} bytes`);
  const states = (await postgres.backends()).map((b) => b.state);
  assert.ok(!states.some((state) => state.startsWith("idle in")), states.join());
});

test("an initial packet's length word that cannot be true ends the connection", async () => {
  // Before a login anybody may send anything: 2 GiB announced is not 2 GiB kept.
  const rest = new Uint8Array(10_000).fill(0x41);
  const before = residentBytes(pooler.pid);
  const clients: RawClient[] = [];
  for (const length of [-2147483648, -1, 0, 3, 4, 7, 10_005, 1 << 20, 0x7fffffff]) {
    const head = new Uint8Array(4);
    writeInt32(head, 0, length);
    const client = await RawClient.connect(pooler);
    client.send(head, rest);
    assert.is(await client.repliesUntilClosed(), "E(08P01) closed", `length ${length}`);
  }
  // One that is just possible is waited for, and costs what has come of it.
  const head = new Uint8Array(4);
  writeInt32(head, 0, 10_004);
  for (let i = 0; i < 200; i++) {
    const client = await RawClient.connect(pooler);
    client.send(head, rest.subarray(0, 100));
    clients.push(client);
  }
  await (await open(pooler)).end();
  for (const client of clients) client.close();
  const grown = residentBytes(pooler.pid) - before;
  assert.ok(grown < 32 << 20, `the pooler grew by ${grown} bytes`);
});

test("a server's length word that cannot be true ends its connection with an error", async () => {
  // The client of such a server was left waiting, or the server went back to the pool with its
  // stream out of step and answered the next client with the rest of an old result.
  // PostgreSQL can send a row whose length is a GiB and one.
  const lies = [-2147483648, -1, 0, 3, 0x40000002, 0x7fffffff, 0xffffffff];
  const frames = ["D", "S", "E", "Z"].flatMap((type) =>
    lies.map((length) => badFrame(type, length, new Uint8Array(64).fill(0x41)))
  );
  // Lengths that no message of these types has.
  frames.push(badFrame("1", 8, new Uint8Array(4)), badFrame("Z", 6, new Uint8Array(2)));
  frames.push(badFrame("C", 0x3fffffff, new Uint8Array(64)), badFrame("?", 4));
  let at = 0;
  const fake = await startFakePostgres({
    onMessage: (session, message) => {
      if (message.type !== Frontend.query) session.answer(message);
      else if (queryText(message) === "lie") session.send(frames[at]!);
      else session.answer(message);
    },
  });
  const front = await startPooler(fake, { settings: { default_pool_size: 1 } });
  for (; at < frames.length; at++) {
    const client = await open(front);
    client.send(f.Q("good"));
    assert.is(await client.replies(), 'T D C"SELECT 1" Z(I)');
    const session = fake.open[0]!;
    client.send(f.Q("lie"));
    const what = `frame ${at}: ${frames[at]!.subarray(0, 5)}`;
    assert.is(await client.repliesUntilClosed(), "E(08006) closed", what);
    await until(`the server to be closed, ${what}`, () => session.isClosed);
  }
  await front.stop();
  await fake.stop();
});

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  await nothingHangs(pooler, postgres);
});

test.run();
