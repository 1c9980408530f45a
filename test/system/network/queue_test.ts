// The queue for a server: first come, first served, whoever had the server before, and whatever happens to the
// client whose turn it is. One worker, one server connection, real PostgreSQL.

import { assert, seededRandom, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";

needs("postgresql");

const postgres = await startPostgres();
const pooler = await startPgweir({
  ini: {
    databases: { postgres: `host=127.0.0.1 port=${postgres.port} pool_size=1` },
    pgbouncer: { query_wait_timeout: 60, max_client_conn: 1000 },
  },
});
const login = { user: "postgres", database: "postgres" };
const RESULT = 'T D C"SELECT 1" Z(I)';
const patient = { timeoutMs: 30_000 };

const clients = (count: number) =>
  Promise.all(Array.from({ length: count }, () => RawClient.login(pooler, login)));
const endAll = (all: readonly RawClient[]) => Promise.all(all.map((client) => client.end()));
const waiting = (count: number) =>
  until(`${count} clients to wait`, async () => {
    const pools = await pooler.console("SHOW POOLS");
    return pools.some((row) => row["database"] === "postgres" && row["cl_waiting"] === `${count}`);
  });

const tests = suite("the queue for a server");

tests.before.each(async () => {
  const [client] = await clients(1);
  await client!.query("SELECT 1");
  await client!.end();
});

tests.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

// A released server was grabbed by whoever asked next, mostly the client that had it before: of two clients
// in tight loops one starved.
tests("two clients in tight loops get the server in turn", async () => {
  const two = await clients(2);
  const counts = [0, 0];
  let over = false;
  const loops = Promise.all(two.map(async (client, who) => {
    for (; !over; counts[who]!++) {
      client.send(f.Q("SELECT 1"));
      assert.is(await client.replies(1, patient), RESULT);
    }
  }));
  await until("both to be served often", () => Math.min(...counts) >= 200, 60_000);
  over = true;
  await loops;
  const [a, b] = counts as [number, number];
  assert.ok(Math.abs(a - b) <= 0.1 * Math.max(a, b), `${a} and ${b}`);
  await endAll(two);
});

// Waiters were woken newest first, or all at once and the fastest won: the oldest waited until its timeout.
tests("clients are served in the order they came", async () => {
  const holder = (await clients(1))[0]!;
  const queued = await clients(30);
  await holder.query("BEGIN");
  await postgres.query("DROP TABLE IF EXISTS served");
  await postgres.query("CREATE TABLE served (at serial, who int)");
  for (const [who, client] of queued.entries()) {
    client.send(f.Q(`INSERT INTO served (who) VALUES (${who})`));
    await waiting(who + 1);
  }
  await holder.query("COMMIT");
  for (const client of queued) assert.is(await client.replies(1, patient), 'C"INSERT 0 1" Z(I)');
  const order = (await postgres.query("SELECT who FROM served ORDER BY at")).map((row) =>
    row["who"]
  );
  assert.equal(order, queued.map((_, who) => who));
  await endAll([holder, ...queued]);
});

// While a hundred clients loop, nobody's wait may be longer than everybody else's turn, twice.
tests("nobody waits longer than a round of all others", async () => {
  const all = await clients(60);
  const served = new Array<number>(all.length).fill(0);
  let gap = 0;
  let over = false;
  const loops = all.map(async (client, who) => {
    while (!over) {
      client.send(f.Q("SELECT pg_sleep(0.001)"));
      assert.is(await client.replies(1, patient), RESULT);
      served[who]!++;
      gap = Math.max(gap, Math.max(...served) - Math.min(...served));
    }
  });
  await until("every client to be served twenty times", () => Math.min(...served) >= 20, 60_000);
  over = true;
  await Promise.all(loops);
  // Twice; and some answers may be read here later than others.
  assert.ok(gap <= 4, `one client was served ${gap} times more than another`);
  await endAll(all);
});

// The client whose turn it was had just left, was cancelled, or was reset: its wake-up was lost, and the
// queue slept although the server was free.
tests("the turn of a client that leaves passes to the next", async () => {
  const seed = 20_251_201;
  const random = seededRandom(seed);
  const stayer = (await clients(1))[0]!;
  const holder = (await clients(1))[0]!;
  for (let round = 0; round < 60; round++) {
    const leavers = await clients(2);
    holder.send(f.Q("SELECT pg_sleep(0.004)"));
    for (const leaver of leavers) leaver.send(f.Q("SELECT 'left'"));
    stayer.send(f.Q("SELECT 1"));
    await new Promise((resolve) => setTimeout(resolve, random() * 8));
    const [first, second] = leavers;
    if (round % 3 === 0) first!.reset();
    else if (round % 3 === 1) first!.halfClose();
    else void first!.cancel();
    second!.close();
    assert.is(await holder.replies(1, patient), RESULT, `seed ${seed}`);
    assert.is(await stayer.replies(1, patient), RESULT, `seed ${seed}`);
    first!.close();
  }
  await endAll([stayer, holder]);
});

// A server ended in the instant it was given to a waiter. The waiter's turn was lost, and the waiters behind it
// slept on; or it got the words that were meant for the client before it.
tests("a server that ends as it is handed over passes the turn to a new one", async () => {
  const all = await clients(4);
  for (let round = 0; round < 5; round++) {
    all[0]!.send(f.Q("SELECT pg_backend_pid() FROM pg_sleep(0.02)"));
    for (const client of all.slice(1)) client.send(f.Q("SELECT 1"));
    await all[0]!.replies(1, patient);
    await postgres.query(
      `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
       WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`,
    );
    for (const client of all.slice(1)) {
      // Who had the server in that instant may lose it; nobody may hang.
      const got = await client.replies(1, patient);
      assert.match(got, /^T D C"SELECT 1" Z\(I\)$|^(T )?E\(57P01\) closed$/, got);
    }
    const left = all.filter((client) => client.closeReason === null);
    all.splice(0, all.length, ...left, ...await clients(4 - left.length));
    assert.equal(await all[0]!.query("SELECT 2"), [["2"]]);
  }
  await endAll(all);
});

// A client that always had a request outstanding was never parted from its server: the others starved.
tests("a pipeline that never runs dry lets others have their turn", async () => {
  const [pipelining, single] = await clients(2);
  let over = false;
  let outstanding = 0;
  const flood = (async () => {
    for (; !over || outstanding > 0; outstanding--) {
      while (!over && outstanding < 10) {
        pipelining!.send(f.Q("SELECT 1 FROM pg_sleep(0.003)"));
        outstanding++;
      }
      assert.is(await pipelining!.replies(1, patient), RESULT);
    }
  })();
  for (let i = 0; i < 10; i++) {
    single!.send(f.Q("SELECT 1"));
    assert.is(await single!.replies(1, patient), RESULT);
  }
  over = true;
  await flood;
  await endAll([pipelining!, single!]);
});

// What makes a client wait for its turn must not make it wait for itself: these need more input to end.
tests("a client with more to send keeps its server while others wait", async () => {
  const [busy, single] = await clients(2);
  await postgres.query("DROP TABLE IF EXISTS copied");
  await postgres.query("CREATE TABLE copied (x text)");
  const unfinished: [Uint8Array[], Uint8Array[], string][] = [
    [[f.Q("COPY copied FROM STDIN")], [f.d("a\n"), f.c()], 'G C"COPY 1" Z(I)'],
    [
      [f.P("", "COPY copied FROM STDIN"), f.B(), f.E(), f.S()],
      [f.d("a\n"), f.c(), f.S()],
      '1 2 G C"COPY 1" Z(I)',
    ],
    [[f.Q("BEGIN")], [f.Q("COMMIT")], 'C"BEGIN" Z(T) C"COMMIT" Z(I)'],
    [[f.P("", "SELECT 1"), f.H()], [f.B(), f.E(), f.S()], '1 2 D C"SELECT 1" Z(I)'],
    [[f.Q("SELECT 1"), f.P("", "SELECT 1"), f.H()], [f.S()], 'T D C"SELECT 1" Z(I) 1 Z(I)'],
    [
      [f.Q("SELECT 1"), f.Q("SELECT 2").subarray(0, 9)],
      [f.Q("SELECT 2").subarray(9)],
      'T D C"SELECT 1" Z(I) T D C"SELECT 1" Z(I)',
    ],
  ];
  const gate = await RawClient.login(postgres, { user: "postgres" });
  for (const [first, rest, wanted] of unfinished) {
    await gate.query("SELECT pg_advisory_lock(7)");
    busy!.send(f.Q("SELECT 1 FROM pg_advisory_xact_lock_shared(7)"));
    await until(
      "it to have the server",
      async () => (await postgres.backends()).some((b) => b.wait_event === "advisory"),
    );
    single!.send(f.Q("SELECT 1"));
    await waiting(1);
    busy!.send(...first);
    await new Promise((resolve) => setTimeout(resolve, 50));
    busy!.send(...rest);
    await gate.query("SELECT pg_advisory_unlock(7)");
    const cycles = wanted.split("Z(").length;
    assert.is(await busy!.replies(cycles, patient), `${RESULT} ${wanted}`);
    assert.is(await single!.replies(1, patient), RESULT);
  }
  await gate.end();
  await endAll([busy!, single!]);
});

tests.run();
