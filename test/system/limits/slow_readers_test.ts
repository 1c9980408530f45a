// Clients that take their results slowly, late or never: what they do not take stays on the server, whatever its size,
// and costs the worker one receive each; the others are served, and no byte of one client reaches another.

import { type ChildProcess, spawn } from "node:child_process";
import { resolve } from "node:path";
import { runtimeCommand } from "../../../shared/sys/mod.ts";
import { atExit } from "../../support/at_exit.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { openFiles, signal } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import { besides, BulkClient, growthOf, MIB } from "./bulk_client.ts";

needs("postgresql");

const READERS = 50;
const postgres = await startPostgres({ settings: { max_connections: "80" } });
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
// The kernel's buffers are bounded, or the larger part of a result fits in them: they grow to 33 MB and more.
const pooler = await startPgweir({
  ini: {
    databases: { many: `${at} pool_size=${READERS + 1}`, one: `${at} pool_size=1` },
    pgbouncer: { tcp_socket_buffer: 262144 },
  },
});
const many = { user: "postgres", database: "many" };
const one = { user: "postgres", database: "one" };

/** Waits until so many servers cannot get rid of their results. */
async function stuck(count: number, what: string): Promise<void> {
  let events: (string | null)[] = [];
  try {
    await until(
      what,
      async () => {
        events = (await postgres.backends()).map((each) => each.wait_event);
        return events.filter((event) => event === "ClientWrite").length === count;
      },
      60_000,
      50,
    );
  } catch (error) {
    throw new Error(`${(error as Error).message}: they wait for ${events.join()}`);
  }
}

const tests = suite("slow readers");

tests.before(async () => {
  // Opens the servers, makes the buffers in which bytes wait, and has the code compiled.
  const clients = await Promise.all(
    Array.from({ length: READERS }, () => BulkClient.login(pooler, many)),
  );
  for (const client of clients) client.send(f.Q("SELECT repeat('x', 1000000) FROM pg_sleep(0.3)"));
  for (const client of clients) await client.replies();
  for (const client of clients) client.close();
  await besides(pooler, many, () => new Promise((resolve) => setTimeout(resolve, 500)));
});

tests.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

// The pooler read on for clients that did not: it grew by all their results, or waited for one of them with
// everybody else. When they had left, their servers went on to the last row.
tests("fifty results without end that nobody takes cost one buffer each", async () => {
  const files = openFiles(pooler.pid);
  // In the select list, where no row is made before the one before it was taken.
  const sql = "SELECT repeat('x', 1000), generate_series(1, 100000000)";
  const [program = "", ...args] = runtimeCommand("bun");
  const script = resolve(import.meta.dirname!, "readers_process.ts");
  const readers = [pooler.host, `${pooler.port}`, "many", `${READERS}`, sql];
  let child: ChildProcess | null = null;
  const forget = atExit(() => {
    if (child !== null && child.exitCode === null) signal(child.pid!, "SIGKILL");
  });
  const grown = await growthOf(pooler.pid, () =>
    besides(pooler, many, async () => {
      child = spawn(program, [...args, script, ...readers], { stdio: ["pipe", "pipe", "inherit"] });
      let taken = 0;
      child.stdout!.on("data", (bytes: Uint8Array) => {
        taken += new TextDecoder().decode(bytes).split("taken").length - 1;
      });
      await stuck(READERS, "all servers to be stuck");
      // A little is taken now and then, as over a slow line.
      for (let round = 1; round <= 3; round++) {
        child.stdin!.write("take\n");
        await until("each to take some", () => taken === round);
        await stuck(READERS, "all servers to be stuck again");
      }
    }));
  // 64 KiB each is 3; the rest is the engine's, for its garbage.
  assert.ok(grown < READERS / 2, `grew by ${grown.toFixed(1)} MiB`);
  signal(child!.pid!, "SIGKILL");
  await until(
    "the servers to be free",
    async () => (await postgres.backends()).every((backend) => backend.state === "idle"),
  );
  await until("descriptors to be free", () => openFiles(pooler.pid) <= files + 2);
  forget();
});

// What had been cut off for a while came back with a gap, or with the rows of another client in it.
tests("results that are taken late are whole and each its own", async () => {
  // More than all the buffers of the kernel on the way.
  const rows = 12_000;
  const readers = await Promise.all(
    Array.from({ length: 4 }, () => BulkClient.login(pooler, many)),
  );
  for (const reader of readers) reader.pause();
  for (const [i, reader] of readers.entries()) {
    reader.send(
      f.Q(`SELECT ${i}, repeat('x', ${1000 + i}) FROM generate_series(1, ${rows})`),
      f.Q(`SELECT 'end of ${i}'`),
    );
  }
  await stuck(readers.length, "all servers to be stuck");
  for (const [i, reader] of readers.entries()) {
    reader.resume();
    const row = `D[${2 + 4 + 1 + 4 + 1000 + i}] `;
    const end = `T D("end of ${i}") C"SELECT 1" Z(I)`;
    assert.is(await reader.replies(2), `T ${row.repeat(rows)}C"SELECT ${rows}" Z(I) ${end}`);
    reader.close();
  }
});

// One row that is larger than all buffers together cannot be kept until it is complete.
tests("a row of 200 MiB that is taken late waits on the server", async () => {
  const size = 200 * MIB;
  const client = await BulkClient.login(pooler, many);
  client.pause();
  const grown = await growthOf(pooler.pid, () =>
    besides(pooler, many, async () => {
      client.send(f.Q(`SELECT repeat(repeat('x', ${MIB}), ${size / MIB})`));
      await stuck(1, "the server to be stuck");
      client.resume();
      assert.is(await client.replies(), `T D[${size + 6}] C"SELECT 1" Z(I)`);
    }));
  assert.ok(grown < 32, `grew by ${grown.toFixed(1)} MiB`);
  client.close();
});

/** Reads the answers to `count` queries for their number and a text of so many letters. */
async function readNumbered(client: RawClient, count: number, letters: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    const [, row, ...rest] = await client.messagesUntil("Z", 1, 30_000);
    const text = new TextDecoder().decode(row!.body.subarray(6, 6 + `${i}`.length));
    assert.is(text, `${i}`);
    assert.is(row!.body.length, 2 + 4 + text.length + 4 + letters);
    assert.ok(row!.body.subarray(-letters).every((byte) => byte === 0x78));
    assert.is(rest.length, 2);
  }
  assert.is(client.unread, 0);
}

/** Asks without reading, one query at a time, until an answer is stuck; gives the number of queries. */
async function askUntilStuck(client: RawClient): Promise<number> {
  client.pauseReading();
  const answered = async () => {
    const rows = await pooler.console("SHOW STATS_TOTALS");
    return Number(rows.find((row) => row["database"] === "one")!["xact_count"]);
  };
  const first = await answered();
  let sent = 0;
  await until("an answer that is not taken", async () => {
    for (let i = 0; i < 50; i++, sent++) {
      client.send(f.Q(`SELECT ${sent}, repeat('x', 7000)`));
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    const before = await answered();
    await new Promise((resolve) => setTimeout(resolve, 50));
    return before - first < sent && await answered() === before;
  }, 60_000);
  return sent;
}

// The server had done its part and was given to the next client while bytes of the first still waited in the
// pooler: they met in one stream; or the next client waited for the first one to read.
tests("a server is free when it has answered, though its answer was not taken yet", async () => {
  let served = 0;
  for (let attempt = 0; attempt < 10 && served === 0; attempt++) {
    const client = await RawClient.login(pooler, one);
    const other = await RawClient.login(pooler, one);
    const sent = await askUntilStuck(client);
    // Where two queries have come in one piece, the first answer is stuck in front of the second, which the server
    // still has: then it is not free.
    other.send(f.Q("SELECT 'other'"));
    await until("the other to be served", () => other.unread > 0, 4_000).catch(() => {});
    served = other.unread;
    client.resumeReading();
    await readNumbered(client, sent, 7000);
    assert.is(await other.replies(1, { values: true }), 'T D("other") C"SELECT 1" Z(I)');
    for (const each of [client, other]) await each.end();
  }
  assert.ok(served > 0, "never served");
});

// Here the rest of an answer is still on its way from the server, which has long finished: the next client has to wait
// for it, and must get nothing of it.
tests("who waits for a server whose answers are taken late gets its own", async () => {
  const [client, ...others] = await Promise.all(
    Array.from({ length: 4 }, () => RawClient.login(pooler, one)),
  );
  for (let round = 0; round < 2; round++) {
    client!.pauseReading();
    const count = 600;
    client!.send(
      ...Array.from({ length: count }, (_, i) => f.Q(`SELECT ${i}, repeat('x', 40000)`)),
    );
    for (const [i, other] of others.entries()) other.send(f.Q(`SELECT 'other ${i}'`));
    await stuck(1, "the server to be stuck");
    client!.resumeReading();
    await readNumbered(client!, count, 40_000);
    for (const [i, other] of others.entries()) {
      assert.is(
        await other.replies(1, { values: true }),
        `T D("other ${i}") C"SELECT 1" Z(I)`,
      );
    }
  }
  for (const each of [client!, ...others]) await each.end();
});

tests.run();
