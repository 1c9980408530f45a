// What clients can make a worker keep: results that nobody reads, rows larger than any buffer, answers to requests
// that come faster than they are read. It stops reading the source instead, whichever that is.
// limit: 300 s

import { connect, type Socket } from "node:net";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { concatBytes, startupPacket } from "../../../shared/wire/mod.ts";
import { growthOf, MIB } from "./bulk_client.ts";

needs("postgresql");

const postgres = await startPostgres({ settings: { max_connections: "60" } });
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
// The kernel's buffers are bounded, or the larger part of a result fits in them: they grow to 33 MB and more.
const pooler = await startPgweir({
  ini: {
    databases: { many: `${at} pool_size=30`, one: `${at} pool_size=1`, two: `${at} pool_size=2` },
    pgbouncer: { tcp_socket_buffer: 262144 },
  },
});
const user = "postgres";
const RESULT = 'T D C"SELECT 1" Z(I)';
const patient = { timeoutMs: 60_000 };

/**
 * Runs something and checks how much the worker grew, at its largest. An engine takes some more for its garbage now and
 * then, but what is kept of what clients do is kept every time: one of three times must be flat.
 */
async function growing(mostBytes: number, work: () => Promise<void>): Promise<void> {
  const grown: string[] = [];
  while (grown.length < 3) {
    const mib = await growthOf(pooler.pid, work);
    if (mib <= mostBytes / MIB) return;
    grown.push(mib.toFixed(1));
  }
  throw new Error(`grew by ${grown.join(", ")} MiB`);
}

/** A client that only counts what it receives: rows here are larger than a test wants to keep. */
class CountingClient {
  received = 0;
  tail = new Uint8Array(0);
  readonly socket: Socket;

  constructor(database: string) {
    this.socket = connect({ host: pooler.host, port: pooler.port });
    this.socket.on("error", () => {});
    this.socket.on("data", (bytes: Uint8Array) => {
      this.received += bytes.length;
      this.tail = concatBytes(this.tail, bytes.subarray(-16)).slice(-16);
    });
    this.socket.write(startupPacket({ user, database }));
  }

  /** Whether the last message received whole is ReadyForQuery. */
  get ready(): boolean {
    const [type, ...rest] = this.tail.subarray(-6);
    return type === 0x5a && rest.join() === "0,0,0,5,73";
  }
}

const tests = suite("what a worker keeps");

tests.before(async () => {
  // The first bytes that wait anywhere make the buffers they wait in; that much is meant to stay.
  const clients = await Promise.all(
    Array.from({ length: 30 }, () => RawClient.login(pooler, { user, database: "many" })),
  );
  for (const client of clients) client.send(f.Q("SELECT repeat('x', 2000000) FROM pg_sleep(0.2)"));
  for (const client of clients) assert.is(await client.replies(1, patient), RESULT);
  for (const client of clients) await client.end();
});

tests.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

// The pooler went on reading from the fast server for a client that did not read, and grew by the result; or
// it waited for that client, and everybody else with it.
tests("results that nobody reads stay on the server, and others are served", async () => {
  const rows = 12_000;
  await growing(20 * MIB, async () => {
    const readers = await Promise.all(
      Array.from({ length: 20 }, () => RawClient.login(pooler, { user, database: "many" })),
    );
    const other = await RawClient.login(pooler, { user, database: "many" });
    for (const reader of readers) {
      reader.pauseReading();
      reader.send(f.Q(`SELECT repeat('x', 1000) FROM generate_series(1, ${rows})`));
    }
    await until(
      "all servers to be stuck",
      async () =>
        (await postgres.backends()).filter((b) => b.wait_event === "ClientWrite").length === 20,
      60_000,
    );
    for (let i = 0; i < 50; i++) assert.equal(await other.query("SELECT 1"), [["1"]]);
    for (const reader of readers) {
      reader.resumeReading();
      const messages = await reader.messagesUntil("Z", 1, 60_000);
      // T, the rows, C, Z; every row whole and its own.
      assert.is(messages.length, rows + 3);
      assert.ok(messages.slice(1, -2).every((m) => m.body.length === 1006 && m.body[6] === 0x78));
      await reader.end();
    }
    await other.end();
  });
});

// A row was collected whole before any of it was passed on.
tests("a row of 100 MiB passes through without being kept", async () => {
  await growing(16 * MIB, async () => {
    const client = new CountingClient("many");
    await until("the login", () => client.ready);
    const greeting = client.received;
    client.tail = new Uint8Array(0);
    client.socket.write(f.Q("SELECT repeat('x', 104857600)"));
    await until("the row", () => client.ready && client.received > greeting + 100 * MIB, 60_000);
    const header = 5 + 2 + 4;
    assert.ok(client.received >= greeting + 100 * MIB + header);
    client.socket.destroy();
  });
  const other = await RawClient.login(pooler, { user, database: "many" });
  assert.equal(await other.query("SELECT 1"), [["1"]]);
  await other.end();
});

// A large statement was collected before any of it was sent, once in the buffer and once more in the queue.
tests("a statement of 50 MiB passes through without being kept", async () => {
  await growing(24 * MIB, async () => {
    const client = new CountingClient("one");
    await until("the login", () => client.ready);
    const greeting = client.received;
    client.tail = new Uint8Array(0);
    client.socket.write(f.Q(`SELECT length('${"x".repeat(50 * MIB)}')`));
    await until("the answer", () => client.ready && client.received > greeting, 60_000);
    client.socket.destroy();
  });
});

// A client asked and asked and never read. Each transaction left its last bytes with the pooler, and the next
// one was begun all the same.
tests("a client that asks without reading is not read either", async () => {
  const client = await RawClient.login(pooler, { user, database: "two" });
  const other = await RawClient.login(pooler, { user, database: "two" });
  const transactions = async () => {
    const rows = await pooler.console("SHOW STATS_TOTALS");
    return Number(rows.find((row) => row["database"] === "two")!["xact_count"]);
  };
  client.pauseReading();
  // Small enough to come in one piece, and one at a time: none is under way when the last one is stuck.
  let count = 0;
  await until("the pooler to stop reading", async () => {
    const before = await transactions();
    for (let i = 0; i < 50; i++, count++) {
      client.send(f.Q("SELECT repeat('x', 7000)"));
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    return count > 200 && await transactions() === before;
  }, 60_000);
  assert.ok(count < 2_000, `${count} transactions`);
  assert.equal(await other.query("SELECT 1"), [["1"]]);
  client.resumeReading();
  const got = await client.replies(count, patient);
  assert.is(got, Array.from({ length: count }, () => RESULT).join(" "));
  for (const each of [client, other]) await each.end();
});

// What the pooler answers itself was sent without looking whether it is taken: an endless row of Syncs.
tests("answers of the pooler's own wait for their reader too", async () => {
  const syncs = concatBytes(...Array.from({ length: 10_000 }, () => f.S()));
  const writes = 1_000;
  await growing(24 * MIB, async () => {
    const client = await RawClient.login(pooler, { user, database: "one" });
    client.pauseReading();
    for (let i = 0; i < writes; i++) {
      client.send(syncs);
      if (i % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    client.close();
  });
});

tests.run();
