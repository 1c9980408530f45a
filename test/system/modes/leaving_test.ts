// Clients that leave in the middle of something, in session and in transaction pooling: what they had not finished is
// undone, and their server goes clean to whoever waits, the same one where it can be cleaned, another where it can't.
// limit: 400 s

import { assert, seededRandom, suite, until } from "../../support/harness.ts";
import { ManagedProcess } from "../../support/managed_process.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import {
  ask,
  closeAll,
  inParallel,
  nothingHangs,
  open,
  startPooler,
  upTo,
} from "../protocol/support.ts";
import {
  backendOf,
  backendsWhere,
  cleanFor,
  departures,
  isKept,
  noLocks,
  residueOf,
  waiting,
} from "./support.ts";

needs("postgresql");

const test = suite("clients that leave in the middle");
const modes = ["session", "transaction"] as const;
type Mode = typeof modes[number];
let postgres: Postgres;
/** Each with one server connection. */
let poolers: Record<Mode, Pgweir>;

test.before(async () => {
  postgres = await startPostgres();
  await postgres.query("CREATE TABLE marks (who text)");
  const start = (mode: Mode) =>
    startPooler(postgres, { settings: { pool_mode: mode, default_pool_size: 1 } });
  poolers = { session: await start("session"), transaction: await start("transaction") };
});

test.after.each(closeAll);

test.after(async () => {
  for (const mode of modes) await poolers[mode].stop();
  await postgres.stop("immediate");
});

const insert = "INSERT INTO marks VALUES ('unfinished')";
const sleeping = () => backendsWhere(postgres, 1, "wait_event = 'PgSleep'");
const unread = () => backendsWhere(postgres, 1, "wait_event = 'ClientWrite'");
const big = "SELECT repeat('x', 1000) FROM generate_series(1, 100000)";

async function copyIn(client: RawClient, ...opening: Uint8Array[]): Promise<void> {
  client.send(...opening);
  await client.repliesUntil("G");
  for (let i = 0; i < 100; i++) client.send(f.d("unfinished\n"));
}

/** The insert, and a query that does not end, up to `end`. */
async function sleepInCycle(client: RawClient, end: Uint8Array): Promise<void> {
  const sleep = f.P("", "SELECT pg_sleep(300)");
  client.send(f.P("", insert), f.B(), f.E(), sleep, f.B(), f.E(), end);
  await sleeping();
}

/** What a client is in the middle of; whether its server can be made clean again. */
const moments: [string, boolean | null, (client: RawClient) => Promise<unknown>][] = [
  ["a transaction", true, async (client) => {
    await client.query("BEGIN");
    await client.query(insert);
  }],
  ["a failed transaction", true, async (client) => {
    await client.query("BEGIN");
    await client.query(insert);
    await ask(client, [f.Q("SELECT 1/0")]);
  }],
  ["a query", true, async (client) => {
    client.send(f.Q(`${insert}; SELECT pg_sleep(300)`));
    await sleeping();
  }],
  ["a query in a transaction", true, async (client) => {
    await client.query("BEGIN");
    await client.query(insert);
    client.send(f.Q("SELECT pg_sleep(300)"));
    await sleeping();
  }],
  ["a query in the extended protocol", true, (client) => sleepInCycle(client, f.S())],
  ["a query without its Sync", true, (client) => sleepInCycle(client, f.H())],
  ["an extended cycle", true, async (client) => {
    client.send(f.P("", insert), f.B(), f.E(), f.H());
    assert.is(await client.repliesUntil("C"), '1 2 C"INSERT 0 1"');
  }],
  ["a failed extended cycle", true, async (client) => {
    client.send(f.P("", insert), f.B(), f.E(), f.P("n", "SELEC 1"), f.B("", "n"), f.H());
    assert.is(await client.repliesUntil("E"), '1 2 C"INSERT 0 1" E(42601)');
  }],
  ["a portal with rows left", true, async (client) => {
    client.send(f.P("", "SELECT generate_series(1, 1000)"), f.B("p"), f.E("p", 5), f.H());
    assert.is(await client.repliesUntil("s"), "1 2 D D D D D s");
  }],
  ["requests not answered yet", true, async (client) => {
    client.send(
      f.Q("BEGIN"),
      f.Q(insert),
      f.Q("SELECT pg_sleep(300)"),
      f.Q("SELECT 1"),
      f.S(),
      f.S(),
    );
    await sleeping();
  }],
  ["a COPY FROM STDIN", true, (client) => copyIn(client, f.Q("COPY marks FROM STDIN"))],
  ["a COPY FROM STDIN in a transaction", true, async (client) => {
    await client.query("BEGIN");
    await copyIn(client, f.Q("COPY marks FROM STDIN"));
  }],
  [
    "a COPY FROM STDIN in the extended protocol",
    true,
    (client) => copyIn(client, f.P("", "COPY marks FROM STDIN"), f.B(), f.E(), f.S()),
  ],
  ["the middle of a CopyData", null, async (client) => {
    await copyIn(client, f.Q("COPY marks FROM STDIN"));
    client.send(f.d("unfinished\n".repeat(20_000)).subarray(0, 100_000));
  }],
  ["a COPY TO STDOUT", true, async (client) => {
    client.pauseReading();
    client.send(f.Q(`COPY (${big}) TO STDOUT`));
    await unread();
  }],
  ["a large result", true, async (client) => {
    client.pauseReading();
    client.send(f.Q("BEGIN"), f.Q(insert), f.Q(big));
    await unread();
  }],
  ["half a small message", true, async (client) => {
    await client.query("BEGIN");
    await client.query(insert);
    client.send(f.P("", "SELECT 1"), f.B(), f.E(), f.Q("COMMIT").subarray(0, 9));
  }],
  ["half a large message", null, async (client) => {
    await client.query("BEGIN");
    await client.query(insert);
    client.send(f.Q(`COMMIT -- ${"x".repeat(200_000)}`).subarray(0, 150_000));
  }],
];

for (const mode of modes) {
  test(`${mode} pooling: what a client had not finished is undone, and the next is served`, async () => {
    // The transaction of a client that had gone stayed open with its locks, or was handed to the next
    // client, or its server was thrown away and opened again each time a client gave up.
    const pooler = poolers[mode];
    const problems: string[] = [];
    for (const [way, leave] of departures) {
      for (const [moment, cleanable, prepare] of moments) {
        // What stands before a Terminate is done to its end, as PostgreSQL does it, where it is not rolled back anyhow.
        const mayLast = /query|not answered/.test(moment) && moment !== "a query in a transaction";
        if (way === "with Terminate" && mayLast) continue;
        const what = `${way} in ${moment}`;
        const kept = await isKept(async () => {
          const client = await open(pooler);
          const backend = await backendOf(client);
          await prepare(client);
          const next = await open(pooler);
          next.send(f.Q("SELECT pg_backend_pid()"));
          await waiting(pooler, 1);
          leave(client);
          const replies = await next.replies(1, { values: true })
            .catch((error) => String(error.message));
          const served = /^T D\("(\d+)"\) C"SELECT 1" Z\(I\)$/.exec(replies);
          if (served === null) problems.push(`${what}: the next client reads "${replies}"`);
          else {
            const marks = await next.query("SELECT * FROM marks");
            if (marks.length > 0) problems.push(`${what}: ${marks.length} rows are there`);
            const residue = await residueOf(next);
            if (residue !== cleanFor("postgres")) problems.push(`${what}: left is ${residue}`);
          }
          client.close();
          await next.end();
          await backendsWhere(postgres, 0, "state <> 'idle'");
          await postgres.query("TRUNCATE marks");
          return !cleanable || served === null || Number(served[1]) === backend;
        });
        if (!kept) problems.push(`${what}: the next client has another server`);
      }
    }
    assert.equal(problems, []);
  });

  test(`${mode} pooling: what stands before a good-bye is done, what is open is not`, async () => {
    const pooler = poolers[mode];
    const kept = await isKept(async () => {
      const first = await open(pooler);
      const backend = await backendOf(first);
      first.send(
        f.Q("INSERT INTO marks SELECT 'done' FROM pg_sleep(0.2)"),
        f.Q("BEGIN"),
        f.Q(insert),
        f.X(),
      );
      await first.closed;
      const next = await open(pooler);
      assert.equal(await next.query("SELECT who FROM marks"), [["done"]]);
      const isSame = await backendOf(next) === backend;
      await next.query("TRUNCATE marks");
      await next.end();
      return isSame;
    });
    assert.ok(kept, "another server");
  });

  // A driver that closes in a transaction says good-bye as well, and its server was taken until its query was over.
  test(`${mode} pooling: what can only be rolled back ends with a good-bye`, async () => {
    const pooler = poolers[mode];
    const cycle = (...parts: [string, string][]) => [
      ...parts.flatMap(([name, text]) => [f.P(name, text), f.B("", name), f.E()]),
      f.S(),
    ];
    const sleep = "SELECT pg_sleep(300)";
    const rows: [string, Uint8Array[]][] = [
      ["a cycle", cycle(["", sleep])],
      ["a named statement", cycle(["sleep", sleep])],
      ["a query behind a savepoint", [f.Q("SAVEPOINT a; ROLLBACK TO a"), f.Q(sleep)]],
      ["more behind it", [f.Q(sleep), f.Q(insert), ...cycle(["", insert])]],
    ];
    for (const [what, messages] of rows) {
      const client = await open(pooler);
      await client.query("BEGIN");
      await client.query(insert);
      client.send(...messages);
      await sleeping();
      client.send(f.X());
      await backendsWhere(postgres, 0, "state <> 'idle'");
      const next = await open(pooler);
      assert.equal(await next.query("SELECT who FROM marks"), [], what);
      await next.end();
    }
  });

  test(`${mode} pooling: what may be committed is done behind a good-bye`, async () => {
    const pooler = poolers[mode];
    const slow = "INSERT INTO marks SELECT 'done' FROM pg_sleep(0.3)";
    const commit = [f.P("", "COMMIT"), f.B(), f.E()];
    const rows: [string, Uint8Array[]][] = [
      ["COMMIT", [f.Q(slow), f.Q("COMMIT")]],
      ["END in one text", [f.Q(`${slow}; END`)]],
      ["COMMIT AND CHAIN", [f.Q(`${slow}; COMMIT AND CHAIN`)]],
      ["a new transaction", [f.Q(`ROLLBACK; ${slow}`)]],
      ["COMMIT in a cycle", [f.Q(slow), ...commit, f.S()]],
      ["COMMIT in the same cycle", [f.P("", slow), f.B(), f.E(), ...commit, f.S()]],
      ["COMMIT by its name", [f.Q(slow), f.B("", "commit"), f.E(), f.S()]],
      ["a portal bound before", [f.Q(slow), f.E("before"), f.S()]],
      ["a large text", [f.Q(`${slow} -- ${"x".repeat(200_000)}\n; COMMIT`)]],
    ];
    for (const [what, messages] of rows) {
      const client = await open(pooler);
      assert.is(await ask(client, [f.P("commit", "COMMIT"), f.S()]), "1 Z(I)");
      await client.query("BEGIN");
      if (what === "a portal bound before") {
        assert.is(await ask(client, [f.B("before", "commit"), f.S()]), "2 Z(T)");
      }
      client.send(...messages, f.X());
      await client.closed;
      const next = await open(pooler);
      assert.equal(await next.query("SELECT who FROM marks"), [["done"]], what);
      await next.query("TRUNCATE marks");
      await next.end();
    }
  });

  test(`${mode} pooling: a crowd that vanishes leaves nothing, and its servers`, async () => {
    const pooler = await startPooler(postgres, {
      settings: { pool_mode: mode, default_pool_size: 5 },
    });
    try {
      const backends = new Set<number>();
      const kept = await isKept(async () => {
        backends.clear();
        for (let round = 0; round < 4; round++) {
          const crowd = await Promise.all(upTo(5).map(() => open(pooler)));
          await Promise.all(crowd.map(async (client) => {
            await client.query("BEGIN");
            backends.add(await backendOf(client));
            await client.query("LOCK TABLE marks IN ROW EXCLUSIVE MODE");
            client.send(f.Q("SELECT pg_sleep(300)"));
          }));
          await backendsWhere(postgres, 5, "wait_event = 'PgSleep'");
          for (const client of crowd) client.reset();
          const late = await open(pooler);
          await late.query("BEGIN; LOCK TABLE marks IN ACCESS EXCLUSIVE MODE; COMMIT");
          await late.end();
        }
        return backends.size === 5;
      });
      assert.ok(kept, `${backends.size} servers for 5 clients at a time`);
      await nothingHangs(pooler, postgres);
    } finally {
      closeAll();
      await pooler.stop();
    }
  });

  test(`${mode} pooling: the cancel for a client that has gone never hits the next one`, async () => {
    // Its query was over by itself when the cancel came, and the next client's query was running.
    const pooler = poolers[mode];
    const seed = 20_251_130;
    const random = seededRandom(seed);
    for (let round = 0; round < 60; round++) {
      const client = await open(pooler);
      client.send(f.Q("SELECT pg_sleep(0.006)"));
      const next = await open(pooler);
      const queries = upTo(6).map((i) => f.Q(`SELECT ${i} FROM pg_sleep(0.002)`));
      await new Promise((resolve) => setTimeout(resolve, random() * 14));
      client.reset();
      next.send(...queries);
      const wanted = upTo(6).map((i) => `T D("${i}") C"SELECT 1" Z(I)`).join(" ");
      assert.is(await next.replies(6, { values: true }), wanted, `seed ${seed}, round ${round}`);
      await next.end();
    }
  });

  test(`${mode} pooling: the locks of a client that is killed are free at once`, async () => {
    const pooler = poolers[mode];
    const psql = await ManagedProcess.launch({
      command: [
        ...["psql", "-X", "-h", pooler.host, "-p", String(pooler.port), "-U", "postgres", "-d"],
        ...["postgres", "-c", "SELECT pg_advisory_lock(999)", "-c", "SELECT pg_sleep(300)"],
      ],
    });
    await sleeping();
    process.kill(psql.pid, "SIGKILL");
    await psql.ended();
    await until("the lock to be free", () => noLocks(postgres));
    await backendsWhere(postgres, 0, "state <> 'idle'");
  });
}

test("servers are used again after hundreds of clients that left in a transaction", async () => {
  const pooler = poolers.transaction;
  const kept = await isKept(async () => {
    const first = await open(pooler);
    const backend = await backendOf(first);
    await first.end();
    await inParallel(upTo(150), 8, async (i) => {
      const client = await open(pooler);
      await client.query("BEGIN");
      await client.query(insert);
      departures[i % 3]![1](client);
    });
    const last = await open(pooler);
    const isSame = await backendOf(last) === backend;
    assert.equal(await last.query("SELECT * FROM marks"), []);
    await last.end();
    return isSame;
  });
  assert.ok(kept, "another server");
});

test("the poolers and their servers are well after all this", async () => {
  for (const mode of modes) await nothingHangs(poolers[mode], postgres);
});

test.run();
