// Cancel keys of servers that are no plain PostgreSQL: none at all, two, one out of place, and another pooler's.
// limit: 240 s

import { backendKeyData, type Message } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { startFakePostgres } from "../../support/fake_postgres.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";

needs("postgresql");

const postgres = await startPostgres();
const fake = await startFakePostgres();
const inner = await startPgweir({
  ini: { databases: { postgres: `host=127.0.0.1 port=${postgres.port} pool_size=1` } },
});
const pooler = await startPgweir({
  ini: {
    databases: {
      keyless: `host=127.0.0.1 port=${fake.port} pool_size=1`,
      twice: `host=127.0.0.1 port=${fake.port} pool_size=1`,
      late: `host=127.0.0.1 port=${fake.port} pool_size=1`,
      chain: `host=127.0.0.1 port=${inner.port} dbname=postgres pool_size=1`,
    },
  },
});
const keyOf = (processId: number) => ({ processId, secret: Uint8Array.of(1, 2, 3, processId) });
const keyMessage = (processId: number) => backendKeyData(processId, keyOf(processId).secret);

const tests = suite("cancel keys of odd servers");

tests.after(async () => {
  await pooler.stop();
  await inner.stop();
  await fake.stop();
  await postgres.stop("immediate");
});

// Some servers send no BackendKeyData; a pooler that waited for it never finished the login.
tests("a server without a cancel key serves clients, whose cancels have no effect", async () => {
  fake.options = { key: null };
  const client = await RawClient.login(pooler, { user: "postgres", database: "keyless" });
  assert.is(client.key?.secret.length, 4);
  const held: Message[] = [];
  fake.options = { key: null, onMessage: (_session, message) => void held.push(message) };
  client.send(f.Q("SELECT 1"));
  const session = await until("the query to arrive", () => held.length === 1 ? fake.open[0] : null);
  assert.is(await client.cancel(), "");
  await client.readNothingFor(100);
  assert.is(fake.cancels.length, 0);
  session.answer(held[0]!);
  assert.is(await client.replies(), 'T D C"SELECT 1" Z(I)');
  await client.end();
});

// A server that sent its key twice in the login, or a new one later: cancels carried the old one, and the
// client's own driver was handed a key that the pooler knows nothing of.
tests("the last key a server sent is the one that counts", async () => {
  const counted = fake.cancels.length;
  fake.options = {
    key: keyOf(10),
    onStartup: (session) => {
      const login = session.loginBytes();
      // ReadyForQuery is the last message of the login: six bytes.
      session.send(login.subarray(0, -6), keyMessage(11), login.subarray(-6));
    },
  };
  const client = await RawClient.login(pooler, { user: "postgres", database: "twice" });
  const own = client.key!;
  await client.query("SELECT 1");
  const held: Message[] = [];
  fake.options = { onMessage: (_session, message) => void held.push(message) };
  client.send(f.Q("SELECT 2"));
  await until("the query to arrive", () => held.length === 1);
  assert.is(await client.cancel(), "");
  assert.equal(fake.cancels[counted], keyOf(11));
  const session = fake.open.at(-1)!;
  session.send(keyMessage(12));
  session.answer(held[0]!);
  assert.is(await client.replies(), 'T D C"SELECT 1" Z(I)');
  assert.equal(client.key, own);
  client.send(f.Q("SELECT 3"));
  await until("the query to arrive", () => held.length === 2);
  assert.is(await client.cancel(), "");
  assert.equal(fake.cancels[counted + 1], keyOf(12));
  session.answer(held[1]!);
  assert.is(await client.replies(), 'T D C"SELECT 1" Z(I)');
  await client.end();
});

// Behind the end of the login, in the same packet, the key was lost or taken for the first answer of the first
// client: its cancels did nothing, or its result began with a message it had not asked for.
tests("a key that comes right after the login's ReadyForQuery is taken", async () => {
  const counted = fake.cancels.length;
  fake.options = {
    key: null,
    onStartup: (session) => session.send(session.loginBytes(), keyMessage(20)),
  };
  const client = await RawClient.login(pooler, { user: "postgres", database: "late" });
  await client.query("SELECT 1");
  const held: Message[] = [];
  fake.options = { onMessage: (_session, message) => void held.push(message) };
  client.send(f.Q("SELECT 2"));
  await until("the query to arrive", () => held.length === 1);
  assert.is(await client.cancel(), "");
  assert.equal(fake.cancels[counted], keyOf(20));
  fake.open.at(-1)!.answer(held[0]!);
  assert.is(await client.replies(), 'T D C"SELECT 1" Z(I)');
  await client.end();
});

// A pooler in front of a pooler: each has keys of its own making, and a cancel died at the second one.
for (const minor of [0, 2]) {
  tests(`a cancel goes through two poolers, for a client that asks for 3.${minor}`, async () => {
    const client = await RawClient.login(pooler, { user: "postgres", database: "chain", minor });
    client.send(f.Q("SELECT pg_sleep(300)"));
    await until(
      "the query to run",
      async () => (await postgres.backends()).some((b) => b.wait_event === "PgSleep"),
    );
    assert.is(await client.cancel(), "");
    assert.is(await client.replies(), "T E(57014) Z(I)");
    assert.equal(await client.query("SELECT 1"), [["1"]]);
    await client.end();
  });
}

tests.run();
