// A cancel meets the query it was meant for or nothing: not the next client's query, not the pooler's own
// statements, and it leaves no byte behind. One worker, real PostgreSQL, a relay that holds cancels back.
// load: waits
// limit: 300 s

import { assert, seededRandom, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { startRelay } from "../../support/relay.ts";

needs("postgresql");

const user = "postgres";
const postgres = await startPostgres();
const relay = await startRelay(postgres);
const through = `host=127.0.0.1 port=${relay.port} dbname=postgres pool_size=1`;
const straight = `host=127.0.0.1 port=${postgres.port} dbname=postgres pool_size=1`;
const pooler = await startPgweir({
  ini: {
    databases: { held: through, racing: straight, idle: straight, settings: straight },
    // No cancel is given up here, however long the machine stands still.
    pgbouncer: { cancel_wait_timeout: 60 },
  },
});

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
const RESULT = 'T D C"SELECT 1" Z(I)';
const CANCELLED = "T E(57014) Z(I)";

/** Fulfilled when a backend runs a statement with this text. */
function running(text: string): Promise<unknown> {
  return until(
    `PostgreSQL to run "${text}"`,
    async () =>
      (await postgres.backends()).some((b) => b.state === "active" && b.query.includes(text)),
  );
}

const tests = suite("a late cancel");

tests.after(async () => {
  await pooler.stop();
  await relay.stop();
  await postgres.stop("immediate");
});

// A pooler forwarded the cancel on a new connection; when PostgreSQL had accepted that, the query was
// over and the next client's query was running on the server: it was the one that got 57014.
tests("a cancel that PostgreSQL sees late spares the next client's query", async () => {
  const first = await RawClient.login(pooler, { user, database: "held" });
  const second = await RawClient.login(pooler, { user, database: "held" });
  let pass = () => {};
  relay.cancels.gate = new Promise((resolve) => pass = resolve);
  const holder = await RawClient.login(postgres, { user });
  await holder.query("SELECT pg_advisory_lock(1)");
  first.send(f.Q("SELECT pg_advisory_xact_lock(1)"));
  await running("SELECT pg_advisory_xact_lock(1)");
  const cancel = first.cancel();
  await until(
    "the cancel to be under way",
    async () =>
      (await pooler.console("SHOW POOLS")).some((row) => row["cl_active_cancel_req"] === "1"),
  );
  second.send(f.Q("SELECT pg_sleep(2)"));
  await holder.query("SELECT pg_advisory_unlock(1)");
  assert.is(await first.replies(), RESULT);
  // Time for the second one's query to begin, if nobody minds.
  await second.readNothingFor(500);
  pass();
  assert.is(await second.replies(), RESULT);
  assert.is(await cancel, "");
  assert.is(relay.links.filter((link) => link.kind === "cancel").length, 1);
  relay.cancels.gate = null;
  await holder.end();
  await first.end();
  await second.end();
});

// The same without any delay but the scheduler's: cancels sent around the end of short queries, with
// other clients taking the only server in turn. One in a few hundred hit somebody else.
tests("cancels that race the end of their query never hit another client", async () => {
  const seed = 20_251_129;
  const random = seededRandom(seed);
  const others = await Promise.all(
    Array.from({ length: 4 }, () => RawClient.login(pooler, { user, database: "racing" })),
  );
  const client = await RawClient.login(pooler, { user, database: "racing" });
  let over = false;
  let answered = 0;
  const loops = others.map(async (other) => {
    while (!over) {
      other.send(f.Q("SELECT pg_sleep(0.002)"));
      const got = await other.replies(1, { timeoutMs: 30_000 });
      assert.is(got, RESULT, `a bystander got ${got} (seed ${seed})`);
      answered++;
    }
  });
  const outcomes = new Map<string, number>();
  const hasBoth = () => outcomes.has(RESULT) && outcomes.has(CANCELLED);
  // Where all takes longer, a cancel has to come later to meet its query: not in the queue before.
  let latestMs = 24;
  try {
    for (let round = 0; round < 150 || (round < 600 && !hasBoth()); round++) {
      if (round >= 150 && round % 50 === 0) latestMs = Math.min(2 * latestMs, 400);
      client.send(f.Q("SELECT pg_sleep(0.008)"));
      await pause(random() * latestMs);
      const cancel = client.cancel();
      const got = await client.replies(1, { timeoutMs: 30_000 });
      outcomes.set(got, (outcomes.get(got) ?? 0) + 1);
      assert.is(await cancel, "");
    }
  } finally {
    over = true;
    await Promise.all(loops);
  }
  for (const got of outcomes.keys()) {
    // Cancelled on the server before or after the row, or in the pooler's queue.
    const cancelled = [CANCELLED, "T D E(57014) Z(I)", "E(57014) Z(I)"];
    assert.ok([RESULT, ...cancelled].includes(got), `${got} (seed ${seed})`);
  }
  assert.ok(answered > 0);
  assert.ok(hasBoth(), [...outcomes.keys()].join());
  for (const each of [client, ...others]) await each.end();
});

// Clients with settings of their own: the pooler's SET comes before the query. A cancel that hit the SET
// failed the next client's login, or ran its query with the settings of the one before.
tests("cancels never hit the pooler's own SET", async () => {
  const seed = 20_251_130;
  const random = seededRandom(seed);
  const clients = await Promise.all(["one", "two", "three"].map((name) =>
    RawClient.login(pooler, {
      user,
      database: "settings",
      parameters: { application_name: name },
    })
  ));
  let over = false;
  const names = ["two", "three"];
  const loops = clients.slice(1).map(async (client, at) => {
    while (!over) {
      client.send(f.Q("SELECT current_setting('application_name')"));
      const got = await client.replies(1, { values: true, timeoutMs: 30_000 });
      assert.is(got, `T D("${names[at]}") C"SELECT 1" Z(I)`, `seed ${seed}`);
    }
  });
  const client = clients[0]!;
  try {
    for (let round = 0; round < 200; round++) {
      client.send(f.Q("SELECT current_setting('application_name') FROM pg_sleep(0.001)"));
      await pause(random() * 4);
      const cancel = client.cancel();
      const got = await client.replies(1, { values: true, timeoutMs: 30_000 });
      // PostgreSQL may be done with the row and not with the statement.
      const cancelled = ["", "T ", 'T D("one") '].map((before) => `${before}E(57014) Z(I)`);
      assert.ok(
        ['T D("one") C"SELECT 1" Z(I)', ...cancelled].includes(got),
        `${got} (seed ${seed})`,
      );
      assert.is(await cancel, "");
    }
  } finally {
    over = true;
    await Promise.all(loops);
  }
  for (const each of clients) await each.end();
});

// A pooler acknowledged a pointless cancel with an extra ReadyForQuery: from then on the driver read each
// answer one query late.
tests("cancels for an idle client leave no byte on its connection", async () => {
  const client = await RawClient.login(pooler, { user, database: "idle" });
  const other = await RawClient.login(pooler, { user, database: "racing" });
  other.send(f.Q("SELECT pg_sleep(1)"));
  assert.equal(await client.query("SELECT 1"), [["1"]]);
  const closings = await Promise.all(Array.from({ length: 20 }, () => client.cancel()));
  assert.equal([...new Set(closings)], [""]);
  await client.readNothingFor(200);
  assert.equal(await client.query("SELECT 2"), [["2"]]);

  await client.query("BEGIN");
  const inTransaction = await Promise.all(Array.from({ length: 20 }, () => client.cancel()));
  assert.equal([...new Set(inTransaction)], [""]);
  await client.readNothingFor(200);
  client.send(f.Q("SELECT 3"));
  assert.is(await client.replies(1, { values: true }), 'T D("3") C"SELECT 1" Z(T)');
  await client.query("COMMIT");
  assert.is(await other.replies(), RESULT);
  await client.end();
  await other.end();
});

// The console has no server to cancel anything on: a cancel for it looked for one and took the process down,
// or was answered on the console's connection.
tests("cancels for the admin console are closed and nothing else", async () => {
  const client = await RawClient.login(pooler, { user: "admin", database: "pgbouncer" });
  await client.table("SHOW VERSION");
  if (client.key !== null) {
    const closings = await Promise.all(Array.from({ length: 20 }, () => client.cancel()));
    assert.equal([...new Set(closings)], [""]);
    await client.readNothingFor(100);
  }
  assert.is((await client.table("SHOW VERSION")).length, 1);
  await client.end();
});

tests.run();
