// The reset query between two sessions (server_reset_query), and between two transactions where that is asked for
// (server_reset_query_always): what it wipes, what happens when it fails, hangs, or is met by a late cancel.
// limit: 400 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { type Login, RawClient } from "../../support/raw_client.ts";
import { type Relay, startRelay } from "../../support/relay.ts";
import {
  ask,
  closeAll,
  connectString,
  inParallel,
  login,
  open,
  upTo,
} from "../protocol/support.ts";
import {
  backendOf,
  backendsWhere,
  cleanFor,
  leaveEverything,
  logsStatements,
  poolRow,
  residueOf,
  statementsDuring,
  waiting,
} from "./support.ts";

needs("postgresql");

const test = suite("reset query");
let postgres: Postgres;
let relay: Relay;
/** Session pooling with the default reset query. */
let plain: Pgweir;
/** Session pooling with a reset query that takes as long as somebody holds a lock. */
let slow: Pgweir;
let gate: RawClient;

const slowReset = "SELECT pg_advisory_xact_lock(6)";
const lockGate = () => gate.query("SELECT pg_advisory_lock(6)");
const unlockGate = () => gate.query("SELECT pg_advisory_unlock(6)");

test.before(async () => {
  postgres = await startPostgres(logsStatements);
  await postgres.query("CREATE ROLE other");
  relay = await startRelay(postgres);
  [plain, slow] = await Promise.all([start(null), start(slowReset)]);
  gate = await RawClient.login(postgres, login);
});

test.after.each(closeAll);

test.after(async () => {
  gate.close();
  await plain.stop();
  await slow.stop();
  await relay.stop();
  await postgres.stop("immediate");
});

/** A pooler with session pooling, one server a pool, and a reset query; null: the default one. */
function start(
  query: string | null,
  settings: Record<string, string | number> = {},
): Promise<Pgweir> {
  return startPgweir({
    ini: {
      databases: {
        held: connectString(relay, "dbname=postgres"),
        "*": connectString(postgres, "dbname=postgres"),
      },
      pgbouncer: {
        pool_mode: "session",
        default_pool_size: 1,
        ...(query === null ? {} : { server_reset_query: query }),
        ...settings,
      },
    },
  });
}

/** One of these for the time of `work`. */
async function withReset(
  query: string,
  work: (pooler: Pgweir) => Promise<void>,
  settings: Record<string, string | number> = {},
): Promise<void> {
  const pooler = await start(query, settings);
  try {
    await work(pooler);
    isWell(pooler);
  } finally {
    await pooler.stop();
  }
}

function isWell(pooler: Pgweir): void {
  assert.is(pooler.end, null);
  assert.not.match(pooler.log(), /\] (ERROR|FATAL) |at .*\.ts:\d+/);
}

/** A session that leaves everything behind; gives its backend. */
async function messySession(pooler: Pgweir, as: Login = login): Promise<number> {
  const client = await open(pooler, as);
  const backend = await backendOf(client);
  for (const sql of leaveEverything) await client.query(sql);
  await ask(client, [f.P("protocol", "SELECT 1"), f.P("", "SELECT 'unnamed'"), f.S()]);
  assert.not.match(await residueOf(client), /^\|0/);
  await client.end();
  return backend;
}

test("nothing of a session is left for the next one, on the same backend", async () => {
  const backend = await messySession(plain);
  const next = await open(plain);
  assert.is(await residueOf(next), cleanFor("postgres"));
  assert.is(await backendOf(next), backend);
  assert.equal(await next.query("SELECT count(*) FROM pg_prepared_statements"), [["0"]]);
  assert.is(await ask(next, [f.B("", "protocol"), f.S()]), "E(26000) Z(I)");
  assert.is(await ask(next, [f.B(), f.S()]), "E(26000) Z(I)");
  await postgres.query("NOTIFY left_behind, 'secret'");
  assert.is(await ask(next, [f.Q("SELECT 1")]), 'T D("1") C"SELECT 1" Z(I)');
  await next.readNothingFor(20);
  await next.end();
});

test("the reset runs once a session, when it has ended", async () => {
  const client = await open(plain);
  const backend = await backendOf(client);
  const seen = await statementsDuring(postgres, backend, async () => {
    await client.query("SELECT 1");
    await client.query("BEGIN; SELECT 2; COMMIT");
    await client.end();
    const next = await open(plain);
    await next.query("SELECT 3");
    await next.end();
    await (await open(plain)).query("SELECT 4");
  });
  const reset = "DISCARD ALL";
  const wanted = ["SELECT 1", "BEGIN; SELECT 2; COMMIT", reset, "SELECT 3", reset, "SELECT 4"];
  assert.equal(seen, wanted);
});

test("without a reset query a session finds what the last one has left", async () => {
  await withReset("", async (pooler) => {
    const client = await open(pooler, { ...login, parameters: { TimeZone: "Asia/Tokyo" } });
    const backend = await backendOf(client);
    await client.query("CREATE TEMP TABLE kept AS SELECT 'kept'");
    await client.query("PREPARE kept AS SELECT 'kept'");
    await ask(client, [f.P("s", "SELECT 'kept'"), f.S()]);
    const seen = await statementsDuring(postgres, backend, async () => {
      await client.end();
      const next = await open(pooler);
      assert.equal(await next.query("SELECT * FROM kept"), [["kept"]]);
      assert.equal(await next.query("EXECUTE kept"), [["kept"]]);
      assert.is(await ask(next, [f.B("", "s"), f.E(), f.S()]), '2 D("kept") C"SELECT 1" Z(I)');
      // What PostgreSQL reports follows the client all the same.
      assert.equal(await next.query("SHOW TimeZone"), [["UTC"]]);
      await next.end();
    });
    assert.not.ok(seen.some((sql) => /DISCARD|RESET ALL|DEALLOCATE/.test(sql)), seen.join("\n"));
  });
});

test("a reset query of the operator's is run as it is written", async () => {
  // Several statements, and rows that nobody has asked for.
  const query = "RESET ALL; SELECT 'rows of the reset'; DEALLOCATE ALL";
  await withReset(query, async (pooler) => {
    const client = await open(pooler);
    const backend = await backendOf(client);
    await client.query("CREATE TEMP TABLE kept AS SELECT 'kept'");
    await client.query("SET statement_timeout = '59s'");
    await client.query("PREPARE gone AS SELECT 1");
    const seen = await statementsDuring(postgres, backend, async () => {
      await client.end();
      const next = await open(pooler);
      assert.is(await ask(next, [f.Q("SELECT * FROM kept")]), 'T D("kept") C"SELECT 1" Z(I)');
      assert.equal(await next.query("SHOW statement_timeout"), [["0"]]);
      assert.is(await ask(next, [f.Q("EXECUTE gone")]), "E(26000) Z(I)");
      await next.end();
    });
    assert.is(seen[0], query);
  });
});

test("settings of the next session hold after a reset that has touched them", async () => {
  // The reset takes back what the pooler had set for its client, too.
  const as = (zone: string) => ({ ...login, parameters: { TimeZone: zone } });
  for (const zone of ["Asia/Tokyo", "UTC", "Asia/Tokyo", "Europe/Rome"]) {
    const client = await open(plain, as(zone));
    assert.equal(await client.query("SHOW TimeZone"), [[zone]]);
    assert.is(client.settings.get("TimeZone"), zone);
    await client.query("SET TimeZone = 'America/Lima'");
    await client.end();
  }
});

const failing: [string, string][] = [
  ["fails", "SELECT 1/0"],
  ["is no SQL", "WIPE EVERYTHING"],
  ["fails after a part of it", "RESET ALL; SELECT 1/0; DISCARD ALL"],
  ["leaves a failed transaction open", "BEGIN; SELECT 1/0"],
  ["waits for data", "COPY pg_temp.kept FROM STDIN"],
  ["ends the backend", "SELECT pg_terminate_backend(pg_backend_pid())"],
];

test("a server whose reset fails is closed, and the next client gets another", async () => {
  // It went to the next client half-reset, or the slot was lost and the next client waited for ever.
  await Promise.all(failing.map(([what, query]) =>
    withReset(query, async (pooler) => {
      const client = await open(pooler);
      const backend = await backendOf(client);
      await client.query("CREATE TEMP TABLE kept (i int)");
      const next = await open(pooler);
      next.send(f.Q("SELECT pg_backend_pid()"));
      await waiting(pooler, 1);
      await client.end();
      const replies = await next.replies(1, { values: true });
      assert.match(replies, /^T D\("\d+"\) C"SELECT 1" Z\(I\)$/, `${what}: ${replies}`);
      assert.not.match(replies, new RegExp(`"${backend}"`), what);
      assert.is(await ask(next, [f.Q("SELECT * FROM kept")]), "E(42P01) Z(I)", what);
      await backendsWhere(postgres, 0, `pid = ${backend}`);
      await next.end();
    })
  ));
});

test("a reset that leaves a transaction open is rolled back", async () => {
  await withReset("BEGIN; LOCK TABLE pg_catalog.pg_am IN ACCESS SHARE MODE", async (pooler) => {
    const client = await open(pooler);
    await client.query("SELECT 1");
    await client.end();
    const next = await open(pooler);
    assert.is(await ask(next, [f.Q("SELECT 1")]), 'T D("1") C"SELECT 1" Z(I)');
    await next.end();
    await backendsWhere(postgres, 0, "state <> 'idle'");
  });
});

test("who waits for a long reset waits, and other pools don't", async () => {
  const client = await open(slow);
  const backend = await backendOf(client);
  await lockGate();
  await client.end();
  const next = await open(slow);
  next.send(f.Q("SELECT pg_backend_pid()"));
  await until(
    "the reset to run",
    async () => (await poolRow(slow, "postgres"))["sv_tested"] === "1",
  );
  const row = await poolRow(slow, "postgres");
  assert.equal([row["sv_active"], row["sv_idle"], row["cl_waiting"]], ["0", "0", "1"]);
  const servers = await slow.console("SHOW SERVERS");
  const states = servers.filter((s) => s["database"] === "postgres").map((s) => s["state"]);
  assert.equal(states, ["tested"]);
  const elsewhere = await open(slow, { ...login, database: "elsewhere" });
  assert.equal(await elsewhere.query("SELECT 1"), [["1"]]);
  assert.is(next.unread, 0);
  await unlockGate();
  assert.is(await ask(next, [], 1), `T D("${backend}") C"SELECT 1" Z(I)`);
  await next.end();
  await elsewhere.end();
});

test("a cancel for a client that has left does not hit the reset", async () => {
  const client = await open(slow);
  const backend = await backendOf(client);
  const { key } = client;
  await lockGate();
  await client.end();
  await until(
    "the reset to run",
    async () => (await poolRow(slow, "postgres"))["sv_tested"] === "1",
  );
  // Its key is nobody's by now; that of who waits for the server is not the server's yet.
  client.key = key;
  for (let i = 0; i < 5; i++) assert.is(await client.cancel(), "");
  const queued = await open(slow);
  queued.send(f.Q("SELECT 1"));
  await waiting(slow, 1);
  assert.is(await queued.cancel(), "");
  assert.is(await queued.replies(), "E(57014) Z(I)");
  await unlockGate();
  assert.is(await backendOf(queued), backend);
  await queued.end();
});

test("a cancel that PostgreSQL sees late spares the reset and the next session", async () => {
  // The query was over, its client gone and the reset running when the cancel came through: the
  // reset failed, or the next session's first query did.
  const as = { ...login, database: "held" };
  const holder = await open(postgres);
  await holder.query("SELECT pg_advisory_lock(1)");
  const client = await open(plain, as);
  const backend = await backendOf(client);
  let letThrough = () => {};
  relay.cancels.gate = new Promise((resolve) => letThrough = resolve);
  client.send(f.Q("SELECT pg_advisory_xact_lock(1)"));
  await backendsWhere(postgres, 1, "wait_event = 'advisory'");
  const cancel = client.cancel();
  await until(
    "the cancel to be under way",
    async () => (await poolRow(plain, "held"))["cl_active_cancel_req"] === "1",
  );
  await holder.query("SELECT pg_advisory_unlock(1)");
  assert.is(await client.replies(), 'T D C"SELECT 1" Z(I)');
  await client.query("CREATE TEMP TABLE kept (i int)");
  await client.end();
  const next = await open(plain, as);
  next.send(f.Q("SELECT pg_backend_pid() FROM pg_sleep(0.5)"));
  // It waits until nothing can hit it any more; it would run already if it did not.
  await until("it to be waiting, or running", async () => {
    if ((await poolRow(plain, "held"))["cl_waiting"] === "1") return true;
    return (await postgres.backends()).some((each) => each.wait_event === "PgSleep");
  });
  letThrough();
  assert.is(await next.replies(1, { values: true }), `T D("${backend}") C"SELECT 1" Z(I)`);
  assert.is(await ask(next, [f.Q("SELECT * FROM kept")]), "E(42P01) Z(I)");
  assert.is(await cancel, "");
  relay.cancels.gate = null;
  await next.end();
  await holder.end();
});

// --- transaction pooling

const always = { pool_mode: "transaction", server_reset_query_always: 1 };

test("in transaction pooling no reset runs unless it is asked for", async () => {
  await withReset("DISCARD ALL", async (pooler) => {
    const client = await open(pooler);
    const backend = await backendOf(client);
    const seen = await statementsDuring(postgres, backend, async () => {
      await client.query("SELECT 1");
      await client.query("BEGIN");
      await client.query("COMMIT");
    });
    assert.equal(seen, ["SELECT 1", "BEGIN", "COMMIT"]);
    await client.end();
  }, { pool_mode: "transaction" });
});

test("server_reset_query_always resets after each transaction", async () => {
  await withReset("DISCARD ALL", async (pooler) => {
    const client = await open(pooler, { ...login, parameters: { application_name: "own" } });
    const backend = await backendOf(client);
    const seen = await statementsDuring(postgres, backend, async () => {
      await client.query("SET statement_timeout = '59s'");
      await client.query("BEGIN");
      await client.query("CREATE TEMP TABLE t (i int)");
      await client.query("SELECT 1");
      await client.query("COMMIT");
      // Parameters are the client's own, whatever becomes of the server's session.
      assert.equal(await client.query("SHOW statement_timeout"), [["59s"]]);
      assert.equal(await client.query("SHOW application_name"), [["own"]]);
      assert.is(await ask(client, [f.Q("SELECT * FROM t")]), "E(42P01) Z(I)");
    });
    // Five transactions; the reset of the one before may be late, and the last one still on its way.
    if (seen[0] === "DISCARD ALL") seen.shift();
    if (seen.at(-1) === "DISCARD ALL") seen.pop();
    const resets = seen.filter((sql) => sql === "DISCARD ALL").length;
    assert.is(resets, 4, seen.join("\n"));
    const inside = seen.slice(seen.indexOf("BEGIN"), seen.indexOf("COMMIT"));
    assert.equal(inside, ["BEGIN", "CREATE TEMP TABLE t (i int)", "SELECT 1"]);
    await client.end();
  }, always);
});

for (const query of ["DISCARD ALL", "DEALLOCATE ALL", "RESET ALL"]) {
  test(`prepared statements outlast a ${query} after each transaction`, async () => {
    // The reset drops what the pooler has prepared on the server; a pooler that did not notice
    // answered "prepared statement does not exist" from then on.
    await withReset(query, async (pooler) => {
      await inParallel(upTo(8), 8, async (number) => {
        const client = await open(pooler);
        assert.is(
          await ask(client, [
            f.P("own", `SELECT ${number}, $1::text`),
            f.P("shared", "SELECT 'shared', $1::text"),
            f.S(),
          ]),
          "1 1 Z(I)",
        );
        for (const round of upTo(query === "DISCARD ALL" ? 200 : 50)) {
          const name = round % 2 === 0 ? "own" : "shared";
          const first = round % 2 === 0 ? String(number) : "shared";
          const value = `${number}.${round}`;
          const row = `2 D("${first}","${value}") C"SELECT 1"`;
          const execute = [f.B("", name, [value]), f.E()];
          if (round % 5 === 0) {
            // Two cycles in one write, and a block.
            assert.is(
              await ask(client, [...execute, f.S(), ...execute, f.S()], 2),
              `${row} Z(I) ${row} Z(I)`,
            );
            await client.query("BEGIN");
            assert.is(await ask(client, [...execute, f.S()]), `${row} Z(T)`);
            await client.query("COMMIT");
          } else assert.is(await ask(client, [...execute, f.S()]), `${row} Z(I)`);
        }
        await client.end();
      });
    }, { ...always, default_pool_size: 2 });
  });
}

test("after a reset that fails in transaction pooling the server is closed", async () => {
  await withReset("SELECT 1/0", async (pooler) => {
    const client = await RawClient.login(pooler, login);
    const backends = new Set<number>();
    for (let round = 0; round < 5; round++) backends.add(await backendOf(client));
    assert.is(backends.size, 5);
    await client.end();
  }, always);
});

test("the poolers and their servers are well after all this", async () => {
  await backendsWhere(postgres, 0, "state <> 'idle'");
  isWell(plain);
  isWell(slow);
});

test.run();
