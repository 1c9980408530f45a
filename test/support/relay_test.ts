// The relay between a raw client and a scripted server.

import { startFakePostgres } from "./fake_postgres.ts";
import { assert, suite, until } from "./harness.ts";
import { f } from "./notation.ts";
import { RawClient } from "./raw_client.ts";
import { startRelay } from "./relay.ts";

const tests = suite("relay");
const server = await startFakePostgres();
const relay = await startRelay(server);
const login = { user: "u" };

tests.before.each(() => {
  Object.assign(relay.sessions, { delayMs: 0, pieceBytes: 0, blackHole: false });
  Object.assign(relay.cancels, { delayMs: 0, pieceBytes: 0, blackHole: false });
});
tests.after(async () => {
  await relay.stop();
  await server.stop();
});

tests("Relay passes sessions and cancels on and tells them apart", async () => {
  const client = await RawClient.login(relay, login);
  assert.equal(await client.query("x"), [["x"]]);
  assert.is(await client.cancel(), "");
  assert.equal(relay.links.map((link) => link.kind), ["session", "cancel"]);
  assert.equal(server.cancels.at(-1), client.key);
  assert.ok(relay.links[0]!.bytesFromClient > 0 && relay.links[0]!.bytesFromServer > 0);
  await client.end();
  await until("the links to end", () => relay.open.length === 0);
});

tests("Relay passes large traffic in small pieces unchanged", async () => {
  relay.sessions.pieceBytes = 7_001;
  const client = await RawClient.login(relay, login);
  const large = "x".repeat(300_000);
  assert.equal(await client.query(large), [[large]]);
  client.close();
});

tests("Relay holds traffic back without changing its order", async () => {
  const client = await RawClient.login(relay, login);
  relay.sessions.delayMs = 60;
  const started = performance.now();
  client.send(f.Q("a"));
  client.send(f.Q("b"));
  assert.is(
    await client.replies(2, { values: true }),
    'T D("a") C"SELECT 1" Z(I) T D("b") C"SELECT 1" Z(I)',
  );
  assert.ok(performance.now() - started >= 115);
  client.close();
});

tests("Relay holds only cancels back when told so", async () => {
  relay.cancels.delayMs = 80;
  const client = await RawClient.login(relay, login);
  const elapsedSince = (moment: number) => performance.now() - moment;
  // A busy machine may take longer for the query than the cancel is held back, which shows nothing.
  for (let isShown = false; !isShown;) {
    const before = server.cancels.length;
    const started = performance.now();
    const cancelled = client.cancel();
    assert.equal(await client.query("x"), [["x"]]);
    isShown = elapsedSince(started) < 75;
    if (isShown) assert.is(server.cancels.length, before);
    assert.is(await cancelled, "");
    assert.ok(elapsedSince(started) >= 75);
    assert.is(server.cancels.length, before + 1);
  }
  client.close();
});

tests("Relay swallows traffic and new connections as a black hole", async () => {
  const client = await RawClient.login(relay, login);
  relay.sessions.blackHole = true;
  const sessions = server.sessions.length;
  client.send(f.Q("x"));
  const late = await RawClient.connect(relay);
  late.startup(login);
  await Promise.all([client.readNothingFor(40), late.readNothingFor(40)]);
  assert.is(server.sessions.length, sessions);
  client.close();
  late.close();
});

tests("Relay.cut() ends links by RST and by FIN, on both sides", async () => {
  const first = await RawClient.login(relay, login);
  relay.cut("reset");
  assert.is(await first.closed, "ECONNRESET");
  await server.sessions.at(-1)!.closed;
  const second = await RawClient.login(relay, login);
  relay.cut("fin");
  assert.is(await second.closed, "");
  await server.sessions.at(-1)!.closed;
});

tests("Relay passes a half-closed connection and an end on", async () => {
  const client = await RawClient.login(relay, login);
  client.send(f.Q("x"));
  client.halfClose();
  assert.is(await client.replies(), 'T D C"SELECT 1" Z(I)');
  assert.is(await client.closed, "");
});

tests("Relay.refuse() refuses new connections until it listens again", async () => {
  const port = relay.port;
  relay.refuse();
  let code = "";
  await RawClient.connect(relay).catch((error) => code = error.code);
  assert.is(code, "ECONNREFUSED");
  await relay.listen();
  assert.is(relay.port, port);
  await (await RawClient.login(relay, login)).end();
});

tests("Relay breaks the client's connection when its target is not there", async () => {
  relay.target = { path: "/nonexistent/socket" };
  const client = await RawClient.connect(relay);
  client.startup(login);
  await client.closed;
  relay.target = server;
});

tests.run();
