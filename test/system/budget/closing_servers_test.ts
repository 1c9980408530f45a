// A server connection that was closed here and not yet by PostgreSQL still is one of those that PostgreSQL allows:
// its slot is given again only when PostgreSQL has closed. Shown with a server that takes its time to close.
// load: waits
// limit: 240 s

import { Frontend, type Message } from "../../../shared/wire/mod.ts";
import { type FakeSession, queryText, startFakePostgres } from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { f } from "../../support/notation.ts";
import { RawClient } from "../../support/raw_client.ts";
import { patienceMs, pause, startHost } from "./support.ts";

const slowMs = 600;

const tests = suite("servers that close slowly");

const isEndless = (message: Message) =>
  message.type === Frontend.query && queryText(message) === "endless";

/** A server that closes its end late, and is asked whether a session began before the last had ended. */
async function startSlow() {
  const ended = new Set<FakeSession>();
  const overlaps: string[] = [];
  const server = await startFakePostgres({
    lingers: true,
    onStartup: (session) => {
      const open = server.sessions.filter((other) => other !== session && !ended.has(other));
      if (open.length > 0) overlaps.push(`${open.length} open as another began`);
      session.acceptLogin();
    },
    onMessage: async (session, message) => {
      // A query that goes on, whoever asks for less.
      if (session.messages.some(isEndless)) return;
      if (message.type !== Frontend.terminate) return session.answer(message);
      await pause(slowMs);
      ended.add(session);
      session.end();
    },
  });
  return { server, ended, overlaps };
}

for (const workers of [1, 2]) {
  tests(`the slot of an idle server that makes room, ${workers} workers`, async () => {
    const { server, ended, overlaps } = await startSlow();
    const host = await startHost({
      postgres: server,
      workers,
      users: ["ann", "bob"],
      pgbouncer: { default_pool_size: 4, max_db_connections: 1 },
    });
    const clients = await Promise.all(
      ["ann", "bob", "ann", "bob"].map((user) => RawClient.connect(host).then((c) => [user, c])),
    ) as [string, RawClient][];
    for (const [user, client] of clients) {
      await client.login({ user, database: "app" });
      assert.equal(await client.query("one"), [["one"]]);
    }
    assert.equal(overlaps, []);
    assert.ok(ended.size >= 3, `${ended.size} sessions ended, wanted 3`);
    for (const [, client] of clients) client.close();
    await host.stop();
    await server.stop();
  });
}

tests("the slot of a server whose client left in the middle of a query", async () => {
  const { server, ended, overlaps } = await startSlow();
  const host = await startHost({
    postgres: server,
    workers: 2,
    pgbouncer: { default_pool_size: 1 },
  });
  const login = { user: "app", database: "app" };
  const leaver = await RawClient.login(host, login);
  leaver.send(f.Q("endless"));
  await until(
    "it to run",
    () => server.sessions.some(({ messages }) => messages.length > 0),
    patienceMs,
  );
  leaver.close();
  // The server neither answers nor closes until it is told to: nobody else may have its slot.
  const next = await RawClient.connect(host);
  // A worker that knows how the server greets lets it in, but no query gets through.
  next.startup({ user: "app", database: "app" });
  next.send(f.Q("two"));
  await pause(2 * slowMs);
  assert.is(server.sessions.length, 1);
  assert.ok(server.sessions[0]!.messages.every((m) => m.type !== Frontend.query || isEndless(m)));
  ended.add(server.sessions[0]!);
  server.sessions[0]!.end();
  await next.authenticate(login);
  assert.is(await next.replies(1, { timeoutMs: patienceMs }), 'T D C"SELECT 1" Z(I)');
  assert.equal(overlaps, []);
  next.close();
  await host.stop();
  await server.stop();
});

tests.run();
