// Which pool mode a client has: its user's, else its database's, else the global one; of a database with a forced user
// the mode of who logged in. And clients of all modes in turn on one server, which of its idle servers a pool takes
// next, and what the console says of it all.

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import type { ConsoleRow } from "../../support/pooler.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import type { RawClient } from "../../support/raw_client.ts";
import {
  ask,
  closeAll,
  connectString,
  nothingHangs,
  open,
  startPooler,
  upTo,
} from "../protocol/support.ts";
import {
  backendOf,
  cleanFor,
  isKept,
  leaveEverything,
  poolRow,
  residueOf,
  waiting,
} from "./support.ts";

needs("postgresql");

const test = suite("pool modes");
let postgres: Postgres;
let pooler: Pgweir;

test.before(async () => {
  postgres = await startPostgres();
  await postgres.query(
    "CREATE ROLE other; CREATE ROLE sam SUPERUSER LOGIN; CREATE ROLE tess SUPERUSER LOGIN; " +
      "CREATE ROLE stan SUPERUSER LOGIN; CREATE ROLE nora SUPERUSER LOGIN",
  );
  const server = connectString(postgres, "dbname=postgres");
  pooler = await startPgweir({
    ini: {
      databases: {
        plain: server,
        per_session: `${server} pool_mode=session`,
        per_statement: `${server} pool_mode=statement`,
        forced: `${server} user=postgres`,
        forced_session: `${server} user=nora pool_mode=session`,
      },
      users: {
        sam: "pool_mode=session",
        tess: "pool_mode=transaction",
        stan: "pool_mode=statement",
      },
      pgbouncer: { pool_mode: "transaction", default_pool_size: 1 },
    },
    userlist: { admin: "", postgres: "", sam: "", tess: "", stan: "", nora: "" },
  });
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const as = (user: string, database: string) => open(pooler, { user, database });

/** Finds a client's mode out by what it may do, and when its server is given back. */
async function modeOf(user: string, database: string): Promise<string> {
  const client = await as(user, database);
  client.send(f.Q("BEGIN"));
  if (await client.replies() !== 'C"BEGIN" Z(T)') return "statement";
  await client.query("COMMIT");
  const servers = await pooler.console("SHOW SERVERS");
  const states = servers.filter((s) => s["database"] === database).map((s) => s["state"]);
  await client.end();
  return states.includes("active") ? "session" : "transaction";
}

test("the user's mode wins over the database's, and that over the global one", async () => {
  const wanted: [string, string, string][] = [
    ["nora", "plain", "transaction"],
    ["sam", "plain", "session"],
    ["stan", "plain", "statement"],
    ["nora", "per_session", "session"],
    ["tess", "per_session", "transaction"],
    ["stan", "per_session", "statement"],
    ["nora", "per_statement", "statement"],
    ["sam", "per_statement", "session"],
    ["tess", "per_statement", "transaction"],
    // Whom the servers log in as does not matter.
    ["nora", "forced", "transaction"],
    ["sam", "forced", "session"],
    ["stan", "forced", "statement"],
    ["nora", "forced_session", "session"],
    ["tess", "forced_session", "transaction"],
  ];
  for (const [user, database, mode] of wanted) {
    assert.is(await modeOf(user, database), mode, `${user} on ${database}`);
  }
});

test("the console shows the modes", async () => {
  for (const [user, database] of [["nora", "plain"], ["sam", "plain"], ["nora", "per_session"]]) {
    await (await as(user!, database!)).query("SELECT 1");
  }
  const shown = async (user: string, database: string) =>
    (await poolRow(pooler, database, user))["pool_mode"];
  assert.is(await shown("nora", "plain"), "transaction");
  assert.is(await shown("sam", "plain"), "session");
  assert.is(await shown("nora", "per_session"), "session");
  const named = (rows: ConsoleRow[], name: string) =>
    rows.find((row) => row["name"] === name)!["pool_mode"];
  const databases = await pooler.console("SHOW DATABASES");
  assert.is(named(databases, "plain"), null);
  assert.is(named(databases, "per_statement"), "statement");
  const users = await pooler.console("SHOW USERS");
  assert.is(named(users, "nora"), null);
  assert.is(named(users, "stan"), "statement");
  const config = await pooler.console("SHOW CONFIG");
  const setting = config.find((row) => row["key"] === "pool_mode")!;
  assert.equal([setting["value"], setting["changeable"]], ["transaction", "yes"]);
});

test("clients of every mode take turns on one server", async () => {
  // A pool that had one mode for all treated some of its clients by the wrong one.
  const sam = await as("sam", "forced");
  const backend = await backendOf(sam);
  const [tess, stan] = [await as("tess", "forced"), await as("stan", "forced")];
  for (let round = 0; round < 10; round++) {
    const session = round === 0 ? sam : await as("sam", "forced");
    for (const sql of leaveEverything) await session.query(sql);
    await session.query("BEGIN; SELECT 1; COMMIT");
    tess.send(f.Q("BEGIN"));
    await waiting(pooler, 1, "forced");
    stan.send(f.Q("SELECT pg_backend_pid()"));
    await waiting(pooler, 2, "forced");
    await session.end();
    // In the order in which they came.
    assert.is(await tess.replies(), 'C"BEGIN" Z(T)');
    const own = cleanFor("postgres").replace("4MB", round === 0 ? "4MB" : "6MB");
    assert.is(await residueOf(tess), own);
    await tess.query("SET LOCAL statement_timeout = '58s'");
    await stan.readNothingFor(5);
    await tess.query("SET work_mem = '6MB'");
    await tess.query("COMMIT");
    assert.is(await stan.replies(1, { values: true }), `T D("${backend}") C"SELECT 1" Z(I)`);
    assert.is(await residueOf(stan), cleanFor("postgres"));
    assert.is(await residueOf(tess), cleanFor("postgres").replace("4MB", "6MB"));
    assert.is(await backendOf(tess), backend);
  }
  const kept = await isKept(async () => {
    const before = await backendOf(tess);
    const bad = await as("stan", "forced");
    bad.send(f.Q("BEGIN"));
    assert.match(await bad.repliesUntilClosed(), /E\(0A000\) closed$/);
    return await backendOf(tess) === before;
  });
  assert.ok(kept, "another server");
});

test("prepared statements of clients of every mode don't get in each other's way", async () => {
  // In session pooling names pass through; in the others they are the pooler's. The same server sees both.
  const [tess, stan] = [await as("tess", "forced"), await as("stan", "forced")];
  const parse = (client: RawClient, text: string) =>
    ask(client, [f.P("s", `SELECT '${text}', $1::text`), f.S()]);
  const run = (client: RawClient, value: string) =>
    ask(client, [f.B("", "s", [value]), f.E(), f.S()]);
  assert.is(await parse(tess, "tess"), "1 Z(I)");
  assert.is(await parse(stan, "stan"), "1 Z(I)");
  for (const round of upTo(10)) {
    assert.is(await run(tess, `${round}`), `2 D("tess","${round}") C"SELECT 1" Z(I)`);
    assert.is(await run(stan, `${round}`), `2 D("stan","${round}") C"SELECT 1" Z(I)`);
    const sam = await as("sam", "forced");
    assert.is(await parse(sam, "sam"), "1 Z(I)");
    assert.is(await run(sam, `${round}`), `2 D("sam","${round}") C"SELECT 1" Z(I)`);
    const mine = await sam.query("SELECT count(*) FROM pg_prepared_statements WHERE name = 's'");
    assert.equal(mine, [["1"]]);
    if (round % 2 === 0) await sam.query("DEALLOCATE ALL");
    await sam.end();
  }
});

test("idle servers are taken in turn, or the last one first", async () => {
  for (const inTurn of [1, 0]) {
    const three = await startPooler(postgres, {
      settings: { default_pool_size: 3, server_round_robin: inTurn },
    });
    try {
      const clients = await Promise.all(upTo(3).map(() => open(three)));
      await Promise.all(clients.map((client) => client.query("BEGIN")));
      await Promise.all(clients.map((client) => client.query("COMMIT")));
      const used: number[] = [];
      for (let i = 0; i < 12; i++) used.push(await backendOf(clients[0]!));
      const first = used.slice(0, 3);
      assert.is(new Set(first).size, inTurn === 1 ? 3 : 1);
      for (const [at, backend] of used.entries()) assert.is(backend, first[at % 3]);
      await until(
        "the servers to be idle",
        async () => (await poolRow(three, "postgres"))["sv_idle"] === "3",
      );
    } finally {
      closeAll();
      await three.stop();
    }
  }
});

test("the pooler and its servers are well after all this", async () => {
  await nothingHangs(pooler, postgres);
});

test.run();
