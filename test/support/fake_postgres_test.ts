// The scripted server and the raw client against each other and against a real driver.

import pg from "pg";
import { assert, suite, until } from "./harness.ts";
import { type FakePostgres, queryText, startFakePostgres } from "./fake_postgres.ts";
import { f } from "./notation.ts";
import { RawClient, sendCancel, ServerError } from "./raw_client.ts";
import {
  authenticationOk,
  commandComplete,
  concatBytes,
  errorResponse,
  Frontend,
  readyForQuery,
  sslRequest,
  startupPacket,
} from "../../shared/wire/mod.ts";

const tests = suite<{ server: FakePostgres }>("fake PostgreSQL and raw client");

tests.before.each(async (context) => {
  context.server = await startFakePostgres();
});
tests.after.each((context) => context.server.stop());

const login = { user: "u", database: "d" };

tests("FakePostgres takes a driver's login and queries", async ({ server }) => {
  const client = new pg.Client({ host: server.host, port: server.port, ...login });
  await client.connect();
  assert.equal((await client.query("SELECT 7")).rows, [{ value: "SELECT 7" }]);
  assert.equal((await client.query("SELECT $1", ["x"])).rows, [{ value: "executed" }]);
  await client.end();
  assert.is(server.sessions.length, 1);
  assert.is(server.sessions[0]!.startup.database, "d");
  await server.sessions[0]!.closed;
});

tests("RawClient.replies() writes replies in the short notation", async ({ server }) => {
  const client = await RawClient.login(server, login);
  assert.is(client.settings.get("TimeZone"), "UTC");
  assert.is(client.key?.secret.length, 4);
  client.send(f.Q("BEGIN"), f.Q("SELECT 1"), f.Q("COMMIT"), f.Q(""));
  assert.is(
    await client.replies(4),
    'C"BEGIN" Z(T) T D C"SELECT 1" Z(T) C"COMMIT" Z(I) I Z(I)',
  );
  client.send(f.P("s", "SELECT 1"), f.D("S", "s"), f.B("", "s"), f.E(), f.C("S", "s"), f.S());
  assert.is(
    await client.replies(1, { values: true }),
    '1 t(0) T 2 D("executed") C"SELECT 1" 3 Z(I)',
  );
  assert.equal(await client.query("x"), [["x"]]);
  assert.equal(await client.table("x"), [{ value: "x" }]);
  await client.end();
  assert.is(client.closeReason, "");
});

tests("RawClient sends the same bytes whole, cut and byte by byte", async ({ server }) => {
  const client = await RawClient.connect(server);
  const startup = startupPacket({ user: "u" });
  await client.sendCut(startup, [3, 4, 9]);
  assert.match(await client.replies(), /^R( S)+ K Z\(I\)$/);
  await client.sendByteByByte(concatBytes(f.Q("a"), f.Q("b")));
  await client.replies(2);
  assert.equal(server.sessions[0]!.messages.map(queryText), ["a", "b"]);
  client.close();
});

tests("RawClient reports refusals, errors and closed connections", async ({ server }) => {
  const refusal = errorResponse({ severity: "FATAL", code: "28P01", message: "no" });
  server.options = {
    onStartup: (session) => {
      session.send(refusal);
      session.end();
    },
  };
  const client = await RawClient.connect(server);
  client.startup(login);
  assert.is(await client.replies(), "E(28P01) closed");
  try {
    await RawClient.login(server, login);
    assert.unreachable("a refused login");
  } catch (error) {
    assert.instance(error, ServerError);
    assert.is((error as ServerError).code, "28P01");
  }
});

tests("RawClient.replies() tells what came before a time-out", async ({ server }) => {
  server.options = { onMessage: (session) => session.send(commandComplete("BEGIN")) };
  const client = await RawClient.login(server, login);
  client.send(f.Q("BEGIN"));
  await until("the first reply", () => client.unread > 0);
  try {
    await client.replies(1, { timeoutMs: 100 });
    assert.unreachable("a reply that never came");
  } catch (error) {
    assert.match((error as Error).message, /up to Z: .* after "C"BEGIN""/);
  }
  client.close();
});

tests("RawClient.readNothingFor() sees a byte and an end", async ({ server }) => {
  const client = await RawClient.login(server, login);
  await client.readNothingFor(20);
  server.sessions[0]!.send(readyForQuery("I"));
  let seen = "";
  await client.readNothingFor(60_000).catch((error) => seen = error.message);
  assert.match(seen, "6 bytes came");
  assert.is(await client.replies(), "Z(I)");
  server.sessions[0]!.end();
  await client.readNothingFor(60_000).catch((error) => seen = error.message);
  assert.match(seen, "was closed");
});

tests("RawClient can half-close and reset, and sees a reset", async ({ server }) => {
  const ended: string[] = [];
  server.options = {
    onMessage: async (session, message) => {
      await until("the client to half-close", () => ended.length > 0);
      session.answer(message);
    },
  };
  const half = await RawClient.login(server, login);
  half.send(f.Q("x"));
  half.halfClose();
  ended.push("half");
  assert.is(await half.replies(), 'T D C"SELECT 1" Z(I)');
  const broken = await RawClient.login(server, login);
  broken.reset();
  await server.sessions[1]!.closed;
  const victim = await RawClient.login(server, login);
  server.sessions[2]!.reset();
  assert.is(await victim.closed, "ECONNRESET");
});

tests("FakePostgres records cancels and closes them without a byte", async ({ server }) => {
  const client = await RawClient.login(server, login);
  assert.is(await client.cancel(), "");
  assert.equal(server.cancels, [client.key]);
  assert.is(await sendCancel(server, 77, new Uint8Array(32)), "");
  assert.is(server.cancels[1]!.secret.length, 32);
  client.close();
});

tests("FakePostgres answers requests for encryption as told", async ({ server }) => {
  const client = await RawClient.connect(server);
  client.send(sslRequest());
  assert.is(await client.byte(), "N");
  client.send(startupPacket({ user: "u" }));
  await client.replies();
  client.close();
});

tests("FakePostgres sends what a script says, in pieces, late or never", async ({ server }) => {
  let answer = () => {};
  const told = new Promise<void>((resolve) => answer = resolve);
  server.options = {
    key: null,
    onStartup: (session) => session.sendByteByByte(session.loginBytes()),
    onMessage: async (session, message) => {
      await told;
      if (message.type === Frontend.query) await session.sendCut(session.oneRow("late"), [1, 7]);
      session.send(authenticationOk());
    },
  };
  const client = await RawClient.login(server, login);
  assert.is(client.key, null);
  client.send(f.Q("x"));
  await client.readNothingFor(30);
  answer();
  assert.is(await client.repliesUntil("R", 1, { values: true }), 'T D("late") C"SELECT 1" R');
  client.close();
});

tests.run();
