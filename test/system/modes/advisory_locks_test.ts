// Session-level advisory locks in transaction pooling: the server stays with the client for as long as it has one, in
// whatever way it took it and gives it back, and the lock is gone when the client is.

import { assert, suite, until } from "../../support/harness.ts";
import { ManagedProcess } from "../../support/managed_process.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { startRelay } from "../../support/relay.ts";
import { ask, closeAll, nothingHangs, open, startPair, startPooler } from "../protocol/support.ts";
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

const test = suite("advisory locks");
let postgres: Postgres;
/** One server connection. */
let pooler: Pgweir;
/** Two server connections. */
let two: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair());
  two = await startPooler(postgres, { settings: { default_pool_size: 2 } });
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await two.stop();
  await postgres.stop("immediate");
});

const cycle = (sql: string) => [f.P("", sql), f.B(), f.E(), f.S()];

test("an advisory lock keeps its server until it is unlocked", async () => {
  // It was unlocked on another server, which has no such lock, and stayed on the first one for hours.
  const client = await open(two);
  const other = await open(two);
  await client.query("SELECT pg_advisory_lock(999)");
  const backend = await backendOf(client);
  for (let round = 0; round < 5; round++) {
    await other.query("BEGIN");
    assert.is.not(await backendOf(other), backend);
    await other.query("COMMIT");
    assert.is(await backendOf(client), backend);
    assert.equal(await other.query("SELECT pg_try_advisory_lock(999)"), [["f"]]);
  }
  assert.equal(await client.query("SELECT pg_advisory_unlock(999)"), [["t"]]);
  assert.ok(await noLocks(postgres));
  await client.end();
  await other.end();
});

/** Takes session locks of key 7, in the ways there are, and gives them all back. */
const locks: [string, string[], string[]][] = [
  ["plain", ["SELECT pg_advisory_lock(7)"], ["SELECT pg_advisory_unlock(7)"]],
  ["tried", ["SELECT pg_try_advisory_lock(7)"], ["SELECT pg_advisory_unlock(7)"]],
  ["with two keys", ["SELECT pg_advisory_lock(0, 7)"], ["SELECT pg_advisory_unlock(0, 7)"]],
  ["shared", ["SELECT pg_advisory_lock_shared(7)"], ["SELECT pg_advisory_unlock_shared(7)"]],
  ["twice", ["SELECT pg_advisory_lock(7)", "SELECT pg_advisory_lock(7)"], [
    "SELECT pg_advisory_unlock(7)",
    "SELECT pg_advisory_unlock(7)",
  ]],
  ["two of them", ["SELECT pg_advisory_lock(7), pg_advisory_lock(8)"], [
    "SELECT pg_advisory_unlock(8)",
    "SELECT pg_advisory_unlock(7)",
  ]],
  ["unlocked all at once", ["SELECT pg_advisory_lock(7), pg_advisory_lock(8)"], [
    "SELECT pg_advisory_unlock_all()",
  ]],
  ["discarded", ["SELECT pg_advisory_lock(7)"], ["DISCARD ALL"]],
  ["in a transaction", ["BEGIN", "SELECT pg_advisory_lock(7)", "COMMIT"], [
    "SELECT pg_advisory_unlock(7)",
  ]],
  ["in a transaction that is rolled back", ["BEGIN", "SELECT pg_advisory_lock(7)", "ROLLBACK"], [
    "SELECT pg_advisory_unlock(7)",
  ]],
  ["in a transaction that fails", ["BEGIN", "SELECT pg_advisory_lock(7)", "SELECT 1/0", "COMMIT"], [
    "SELECT pg_advisory_unlock(8)",
    "SELECT pg_advisory_unlock(7)",
  ]],
  ["in a block of code", ["DO $$ BEGIN PERFORM pg_advisory_lock(7); END $$"], [
    "DO $$ BEGIN PERFORM pg_advisory_unlock(7); END $$",
  ]],
  ["by another spelling", ['select PG_CATALOG."pg_advisory_lock" ( 7 )'], [
    "SELECT pg_catalog . pg_advisory_unlock(7)",
  ]],
  ["among other statements", ["SELECT 1; SELECT pg_advisory_lock(7); SELECT 2"], [
    "SELECT 1; SELECT pg_advisory_unlock(7); SELECT 2",
  ]],
];

test("every way to take a lock keeps the server, and every way to give it back frees it", async () => {
  const problems: string[] = [];
  for (const form of ["simple", "extended"]) {
    for (const [what, take, give] of locks) {
      if (form === "extended" && take.some((sql) => /SELECT 1; /.test(sql))) continue;
      const client = await open(pooler);
      const run = (sql: string) => ask(client, form === "extended" ? cycle(sql) : [f.Q(sql)]);
      for (const sql of take) await run(sql);
      const other = await open(pooler);
      const backend = await backendOf(client);
      other.send(f.Q("SELECT pg_backend_pid()"));
      await waiting(pooler, 1);
      for (const sql of give.slice(0, -1)) {
        await run(sql);
        await run("SELECT 1");
      }
      if (other.unread > 0) problems.push(`${what}, ${form}: the server goes too early`);
      if (await noLocks(postgres)) problems.push(`${what}, ${form}: the lock is gone too early`);
      await run(give.at(-1)!);
      if (!await noLocks(postgres)) problems.push(`${what}, ${form}: the lock is not free`);
      const row = `T D("${backend}") C"SELECT 1" Z(I)`;
      const replies = await other.replies(1, { values: true })
        .catch((error) => String(error.message));
      if (replies !== row) problems.push(`${what}, ${form}: the other reads ${replies}`);
      else if (await residueOf(other) !== cleanFor("postgres")) {
        problems.push(`${what}, ${form}: something is left`);
      }
      other.close();
      await client.end();
      await waiting(pooler, 0);
    }
  }
  assert.equal(problems, []);
});

test("a lock that is not got keeps no server", async () => {
  const holder = await open(postgres);
  await holder.query("SELECT pg_advisory_lock(7)");
  const client = await open(pooler);
  const other = await open(pooler);
  for (let round = 0; round < 3; round++) {
    assert.equal(await client.query("SELECT pg_try_advisory_lock(7)"), [["f"]]);
    assert.equal(await other.query("SELECT 1"), [["1"]]);
    assert.match(
      await ask(client, [f.Q("SELECT pg_advisory_lock(8), 1/0 ")]),
      /E\(22012\) Z\(I\)$/,
    );
    await client.query("SELECT pg_advisory_unlock_all()");
    assert.equal(await other.query("SELECT 1"), [["1"]]);
  }
  await client.end();
  await other.end();
  await holder.end();
});

test("a statement that takes a lock may be prepared long before", async () => {
  // The text is seen when the statement is prepared; the lock is taken when it runs, on a server
  // that may be another one.
  const client = await open(two);
  const other = await open(two);
  const prepared = [
    f.P("lock", "SELECT pg_advisory_lock($1)"),
    f.P("unlock", "SELECT pg_advisory_unlock($1)"),
    f.P("set", "SELECT set_config($1, $2, $3)"),
    f.S(),
  ];
  assert.is(await ask(client, prepared), "1 1 1 Z(I)");
  for (let round = 0; round < 6; round++) {
    await other.query("BEGIN");
    await ask(client, [f.B("", "lock", ["55"]), f.E(), f.S()]);
    const backend = await backendOf(client);
    await other.query("COMMIT");
    for (let i = 0; i < 4; i++) {
      assert.is(await backendOf(client), backend);
      assert.is.not(await backendOf(other), backend);
    }
    assert.is(
      await ask(client, [f.B("", "unlock", ["55"]), f.E(), f.S()]),
      '2 D("t") C"SELECT 1" Z(I)',
    );
    assert.ok(await noLocks(postgres));
    for (const local of ["false", "true"]) {
      await ask(client, [f.B("", "set", ["work_mem", "5MB", local]), f.E(), f.S()]);
      for (let i = 0; i < 2; i++) {
        assert.equal(await other.query("SHOW work_mem"), [["4MB"]]);
        assert.equal(await client.query("SHOW work_mem"), [["5MB"]]);
      }
    }
  }
  await client.end();
  await other.end();
});

test("the lock of a client that leaves is free at once, on a clean server", async () => {
  for (const [way, leave] of departures) {
    for (const moment of ["between transactions", "in a transaction", "in a query"]) {
      if (way === "with Terminate" && moment === "in a query") continue;
      const kept = await isKept(async () => {
        const client = await open(pooler);
        await client.query("SELECT pg_advisory_lock(7)");
        const backend = await backendOf(client);
        if (moment === "in a transaction") await client.query("BEGIN; SET work_mem = '5MB'");
        if (moment === "in a query") {
          client.send(f.Q("SELECT pg_sleep(300)"));
          await backendsWhere(postgres, 1, "wait_event = 'PgSleep'");
        }
        const other = await open(pooler);
        other.send(f.Q("SELECT pg_backend_pid()"));
        await waiting(pooler, 1);
        leave(client);
        const replies = await other.replies(1, { values: true });
        const isSame = replies === `T D("${backend}") C"SELECT 1" Z(I)`;
        if (isSame) assert.ok(await noLocks(postgres), `${way} ${moment}`);
        else assert.match(replies, /^T D\("\d+"\) C"SELECT 1" Z\(I\)$/, `${way} ${moment}`);
        assert.is(await residueOf(other), cleanFor("postgres"));
        client.close();
        await other.end();
        return isSame;
      });
      assert.ok(kept, `${way} ${moment}: another server`);
    }
  }
});

test("the lock of a client that is killed is free, though its query had minutes to go", async () => {
  const psql = await ManagedProcess.launch({
    command: [
      ...["psql", "-X", "-h", two.host, "-p", String(two.port), "-U", "postgres", "-d", "postgres"],
      ...["-c", "SELECT pg_advisory_lock(999)", "-c", "SELECT pg_sleep(300)"],
    ],
  });
  await backendsWhere(postgres, 1, "wait_event = 'PgSleep'");
  assert.not.ok(await noLocks(postgres));
  process.kill(psql.pid, "SIGKILL");
  await psql.ended();
  await until("the lock to be free", () => noLocks(postgres));
});

test("a client that leaves while it is found out what it holds leaves no lock", async () => {
  // Its lock was in doubt when it left, and nobody's when the answer came.
  const relay = await startRelay(postgres);
  const far = await startPooler(relay, { settings: { default_pool_size: 1 } });
  try {
    for (const [way, leave] of departures) {
      for (const sql of ["SELECT pg_advisory_lock(7)", "SELECT 1; SELECT pg_advisory_unlock(8)"]) {
        const client = await open(far);
        await client.query("SELECT 1");
        relay.sessions.delayMs = 30;
        await client.query(sql);
        leave(client);
        relay.sessions.delayMs = 0;
        const next = await open(far);
        assert.is(await residueOf(next), cleanFor("postgres"), `${way}: ${sql}`);
        // On this server; one that did not come clean in time is gone a moment later.
        await until(`no lock to be left, ${way}: ${sql}`, () => noLocks(postgres));
        client.close();
        await next.end();
      }
    }
    await nothingHangs(far, postgres);
  } finally {
    closeAll();
    await far.stop();
    await relay.stop();
  }
});

test("the poolers and their servers are well after all this", async () => {
  for (const each of [pooler, two]) await nothingHangs(each, postgres);
});

test.run();
