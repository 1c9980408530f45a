// Statement pooling: the server goes back after each message; what ends within its message works, whatever its form. A
// transaction that outlives its message is refused with its end as the answer, and leaves nothing on the server.

import { Backend, parseErrorFields } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import type { RawClient } from "../../support/raw_client.ts";
import {
  ask,
  closeAll,
  inParallel,
  nothingHangs,
  open,
  startPair,
  startPooler,
  Twin,
  upTo,
} from "../protocol/support.ts";
import {
  backendOf,
  backendsWhere,
  departures,
  isKept,
  logsStatements,
  poolRow,
  statementsDuring,
  waiting,
} from "./support.ts";

needs("postgresql");

const test = suite("statement pooling");
let postgres: Postgres;
/** One server connection. */
let pooler: Pgweir;

test.before(async () => {
  const settings = { pool_mode: "statement" };
  ({ postgres, pooler } = await startPair({ settings, postgres: logsStatements }));
  await postgres.query("CREATE TABLE marks (who text); CREATE ROLE other");
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const cycle = (sql: string, values: string[] = []) => [
  f.P("", sql),
  f.B("", "", values),
  f.D(),
  f.E(),
];

test("what ends within its message is answered as PostgreSQL does", async () => {
  const twin = await Twin.login(pooler, postgres);
  const steps: [Uint8Array[], number][] = [
    [[f.Q("SELECT 1")], 1],
    [[f.Q("SELECT 1; SELECT 2")], 1],
    [[f.Q("BEGIN; SELECT 1; COMMIT")], 1],
    [[f.Q("BEGIN; SELECT 1; ROLLBACK; SELECT 2")], 1],
    [[f.Q("SELECT 1; SELECT 1/0; SELECT 2")], 1],
    [[f.Q("SELEC 1")], 1],
    [[f.Q("")], 1],
    [[f.Q("COMMIT")], 1],
    [[f.Q("SET LOCAL work_mem = '5MB'")], 1],
    [[f.Q("SET TimeZone = 'Asia/Tokyo'"), f.Q("SHOW TimeZone")], 2],
    [[f.Q("SHOW TimeZone")], 1],
    [[f.Q("RESET TimeZone")], 1],
    [[f.Q("DO $$ BEGIN RAISE NOTICE 'n'; END $$")], 1],
    [[...cycle("SELECT 1"), f.S()], 1],
    [[...cycle("SELECT 1"), ...cycle("SELECT 2"), f.S()], 1],
    [[...cycle("SELECT 1"), f.S(), ...cycle("SELECT 1/0"), f.S(), ...cycle("SELECT 2"), f.S()], 3],
    [[...cycle("BEGIN"), ...cycle("SELECT 1"), ...cycle("COMMIT"), f.S()], 1],
    [
      [f.P("", "SELECT generate_series(1, 5)"), f.B(), f.E("", 2), f.E("", 2), f.E("", 2), f.S()],
      1,
    ],
    [[f.S()], 1],
    [[f.F(177, ["1", "2"])], 1],
    [[f.F(0, [])], 1],
    [[f.Q("COPY (SELECT 1) TO STDOUT")], 1],
    [[f.Q("COPY marks FROM STDIN"), f.d("copied\n"), f.c()], 1],
    [[f.Q("COPY marks FROM STDIN"), f.d("copied\n"), f.f("no")], 1],
    [[f.Q("COPY marks FROM STDIN"), f.d("two\tcolumns\n"), f.c(), f.Q("SELECT 1")], 2],
    [[f.Q("VACUUM marks")], 1],
  ];
  for (const [at, [parts, count]] of steps.entries()) {
    try {
      await twin.same(parts, count);
    } catch (error) {
      const { message, details } = error as { message: string; details?: string };
      throw new Error(`step ${at}: ${message} ${details}`);
    }
  }
  await twin.end();
  await postgres.query("TRUNCATE marks");
});

/** A query that leaves a transaction open, and what may precede the refusal. */
const blocks: [string, Uint8Array[]][] = [
  ["BEGIN", [f.Q("BEGIN")]],
  ["begin after a statement", [f.Q("SELECT 1; BEGIN; INSERT INTO marks VALUES ('open')")]],
  ["START TRANSACTION READ ONLY", [f.Q("start transaction read only")]],
  ["a comment first", [f.Q("/* x */ BEGIN; INSERT INTO marks VALUES ('open')")]],
  ["a failed block", [f.Q("BEGIN; INSERT INTO marks VALUES ('open'); SELECT 1/0")]],
  ["a chain", [f.Q("BEGIN; COMMIT AND CHAIN")]],
  ["a BEGIN in the extended protocol", [...cycle("BEGIN"), f.S()]],
  ["a BEGIN in a longer cycle", [
    ...cycle("BEGIN"),
    ...cycle("INSERT INTO marks VALUES ('open')"),
    f.S(),
  ]],
  ["a named BEGIN", [f.P("b", "BEGIN"), f.B("", "b"), f.E(), f.S()]],
  ["a block that more is sent for", [
    f.Q("BEGIN"),
    f.Q("INSERT INTO marks VALUES ('open')"),
    f.Q("SELECT 1"),
  ]],
];

async function refused(client: RawClient, what: string): Promise<void> {
  const messages = await client.messagesUntil(null);
  const error = messages.findLast((m) => m.type === Backend.errorResponse);
  const { severity, code, message } = parseErrorFields(error!.body);
  assert.equal([severity, code, message], [
    "FATAL",
    "0A000",
    "transaction blocks not allowed in statement pooling mode",
  ], what);
  assert.is(messages.at(-1), error, what);
  const statuses = messages.filter((m) => m.type === Backend.readyForQuery).map((m) => m.body[0]);
  assert.not.ok(statuses.some((status) => status !== 0x49), what);
}

test("a transaction that outlives its message is refused, and nothing of it stays", async () => {
  // The block stayed open on the shared server: the next client's statements were part of it.
  const other = await open(pooler);
  for (const [what, parts] of blocks) {
    const kept = await isKept(async () => {
      const backend = await backendOf(other);
      const client = await open(pooler);
      client.send(...parts);
      await refused(client, what);
      assert.is(
        await ask(other, [f.Q("SELECT count(*) FROM marks")]),
        'T D("0") C"SELECT 1" Z(I)',
        what,
      );
      const isSame = await backendOf(other) === backend;
      await backendsWhere(postgres, 0, "state <> 'idle'");
      return isSame;
    });
    assert.ok(kept, `${what}: another server`);
  }
  await other.end();
});

/** A pipeline whose block would end within it. */
const wholeBlocks: [string, Uint8Array[]][] = [
  ["queries", [f.Q("BEGIN"), f.Q("INSERT INTO marks VALUES ('kept')"), f.Q("COMMIT")]],
  ["queries behind others", [
    f.Q("SELECT 1"),
    f.Q("SELECT 2; START TRANSACTION"),
    f.Q("INSERT INTO marks VALUES ('kept')"),
    f.Q("END"),
    f.Q("INSERT INTO marks VALUES ('behind')"),
  ]],
  [
    "cycles",
    ["BEGIN", "INSERT INTO marks VALUES ('kept')", "COMMIT"].flatMap((sql) => [
      ...cycle(sql),
      f.S(),
    ]),
  ],
  ["named", [
    f.P("b", "BEGIN"),
    f.P("c", "COMMIT"),
    f.S(),
    f.B("", "b"),
    f.E(),
    f.S(),
    f.Q("INSERT INTO marks VALUES ('kept')"),
    f.B("", "c"),
    f.E(),
    f.S(),
  ]],
  ["a block with what it does", [
    f.Q("BEGIN; INSERT INTO marks VALUES ('kept')"),
    f.Q("COMMIT; INSERT INTO marks VALUES ('behind')"),
  ]],
  ["a backslash", [f.Q("BEGIN; SELECT E'\\\\'"), f.Q("INSERT INTO marks VALUES ('kept'); COMMIT")]],
];

test("nothing of a pipeline is done from a refused block on", async () => {
  // The client was told that its BEGIN was refused, and what it had sent behind it, with the COMMIT, was done.
  const other = await open(pooler);
  for (const [what, parts] of wholeBlocks) {
    for (const _ of upTo(5)) {
      const client = await open(pooler);
      client.send(...parts);
      await refused(client, what);
      assert.equal(await other.query("SELECT who FROM marks"), [], what);
    }
  }
  await other.end();
});

test("who waits behind a refused block is served at once", async () => {
  const clients = await Promise.all(upTo(10).map(() => open(pooler)));
  const bad = await open(pooler);
  const gate = await open(postgres);
  await gate.query("SELECT pg_advisory_lock(1)");
  bad.send(f.Q("SELECT pg_advisory_xact_lock(1); BEGIN; INSERT INTO marks VALUES ('open')"));
  await backendsWhere(postgres, 1, "wait_event = 'advisory'");
  for (const client of clients) client.send(f.Q("SELECT count(*) FROM marks"));
  await waiting(pooler, clients.length);
  await gate.query("SELECT pg_advisory_unlock(1)");
  await refused(bad, "with clients that wait");
  for (const client of clients) {
    assert.is(await client.replies(1, { values: true }), 'T D("0") C"SELECT 1" Z(I)');
    await client.end();
  }
});

test("a cycle keeps its server until its Sync, however late that comes", async () => {
  const client = await open(pooler);
  const other = await open(pooler);
  client.send(f.P("", "INSERT INTO marks VALUES ('late')"), f.B(), f.E(), f.H());
  assert.is(await client.repliesUntil("C"), '1 2 C"INSERT 0 1"');
  other.send(f.Q("SELECT count(*) FROM marks"));
  await until(
    "the other to wait",
    async () => (await poolRow(pooler, "postgres"))["cl_waiting"] === "1",
  );
  await other.readNothingFor(50);
  assert.is(await ask(client, [f.S()]), "Z(I)");
  assert.is(await other.replies(1, { values: true }), 'T D("1") C"SELECT 1" Z(I)');
  await postgres.query("TRUNCATE marks");
  await client.end();
  await other.end();
});

test("the server goes back after each statement", async () => {
  const clients = await Promise.all(upTo(4).map(() => open(pooler)));
  const backends = new Set<number>();
  for (let round = 0; round < 10; round++) {
    for (const client of clients) backends.add(await backendOf(client));
  }
  assert.is(backends.size, 1);
  const row = await poolRow(pooler, "postgres");
  assert.equal([row["sv_active"], row["sv_idle"], row["pool_mode"]], ["0", "1", "statement"]);
  for (const client of clients) await client.end();
});

test("nothing is added to statements that leave nothing behind", async () => {
  const client = await open(pooler);
  const backend = await backendOf(client);
  const sql = ["SELECT 1", "BEGIN; SELECT 2; COMMIT", "SELECT 3; SELECT 4", "SELECT 1/0"];
  const seen = await statementsDuring(postgres, backend, async () => {
    for (const each of sql) await ask(client, [f.Q(each)]);
    await ask(client, [...cycle("SELECT 5"), f.S()]);
  });
  assert.equal(seen, [...sql, "SELECT 5"]);
  await client.end();
});

test("many requests in one write are answered one by one", async () => {
  const other = await open(pooler);
  let over = false;
  const bystander = (async () => {
    while (!over) assert.is(await ask(other, [f.Q("SELECT 'B'")]), 'T D("B") C"SELECT 1" Z(I)');
  })();
  const client = await open(pooler);
  try {
    const values = (each: (i: number) => string) => upTo(50).map(each).join(" ");
    for (let round = 0; round < 40; round++) {
      assert.is(
        await ask(client, upTo(50).map((i) => f.Q(`SELECT ${i}`)), 50),
        values((i) => `T D("${i}") C"SELECT 1" Z(I)`),
      );
      assert.is(
        await ask(
          client,
          upTo(50).flatMap((i) => [f.P("", `SELECT ${i}`), f.B(), f.E(), f.S()]),
          50,
        ),
        values((i) => `1 2 D("${i}") C"SELECT 1" Z(I)`),
      );
      assert.is(await ask(client, [f.Q("SELECT 'after'")]), 'T D("after") C"SELECT 1" Z(I)');
    }
  } finally {
    over = true;
    await bystander;
  }
  await client.end();
  await other.end();
});

test("parameters last, other state ends with its statement, and none is anybody else's", async () => {
  const client = await open(pooler);
  const other = await open(pooler);
  const states: [string, string, string, string?][] = [
    ["SET statement_timeout = '59s'", "SHOW statement_timeout", 'T D("0") C"SHOW" Z(I)', "59s"],
    [
      "SELECT set_config('work_mem', '5MB', false)",
      "SHOW work_mem",
      'T D("4MB") C"SHOW" Z(I)',
      "5MB",
    ],
    ["SET ROLE other", "SELECT current_user", 'T D("postgres") C"SELECT 1" Z(I)', "other"],
    ["RESET ROLE", "SELECT current_user", 'T D("postgres") C"SELECT 1" Z(I)'],
    ["CREATE TEMP TABLE t AS SELECT 1", "SELECT * FROM t", "E(42P01) Z(I)"],
    ["PREPARE p AS SELECT 1", "EXECUTE p", "E(26000) Z(I)"],
    ["DECLARE c CURSOR WITH HOLD FOR SELECT 1", "FETCH c", "E(34000) Z(I)"],
    ["SET TimeZone = 'Asia/Tokyo'", "SHOW statement_timeout", 'T D("0") C"SHOW" Z(I)', "59s"],
  ];
  for (const [sql, look, wanted, own] of states) {
    assert.match(await ask(client, [f.Q(sql)]), / Z\(I\)$/);
    assert.is(await ask(other, [f.Q(look)]), wanted, sql);
    const ownAnswer = own === undefined ? wanted : wanted.replace(/"[^"]*"/, `"${own}"`);
    assert.is(await ask(client, [f.Q(look)]), ownAnswer, sql);
  }
  assert.is(await ask(other, [f.Q("SHOW TimeZone")]), 'T D("UTC") C"SHOW" Z(I)');
  assert.is(await ask(client, [f.Q("SHOW TimeZone")]), 'T D("Asia/Tokyo") C"SHOW" Z(I)');
  await client.end();
  await other.end();
});

test("prepared statements last from one statement to the next", async () => {
  const shared = await startPooler(postgres, {
    settings: { pool_mode: "statement", default_pool_size: 2, max_prepared_statements: 5 },
  });
  try {
    await inParallel(upTo(8), 8, async (number) => {
      const client = await open(shared);
      const names = ["a", "b", "c"];
      for (const name of names) {
        assert.is(
          await ask(client, [f.P(name, `SELECT '${name}', ${number}, $1::text`), f.S()]),
          "1 Z(I)",
        );
      }
      for (const round of upTo(60)) {
        const name = names[round % 3]!;
        const one = [f.B("", name, [String(round)]), f.E(), f.S()];
        const row = `2 D("${name}","${number}","${round}") C"SELECT 1" Z(I)`;
        assert.is(await ask(client, one), row);
        if (round % 7 === 0) assert.is(await ask(client, [...one, ...one], 2), `${row} ${row}`);
      }
      assert.is(await ask(client, [f.C("S", "a"), f.S()]), "3 Z(I)");
      assert.is(await ask(client, [f.B("", "a", ["1"]), f.S()]), "E(26000) Z(I)");
      await client.end();
    });
    await nothingHangs(shared, postgres);
  } finally {
    closeAll();
    await shared.stop();
  }
});

test("a client that leaves in the middle leaves nothing behind", async () => {
  for (const [way, leave] of departures) {
    const middles: [string, (client: RawClient) => Promise<unknown>][] = [
      ["a cycle", async (client) => {
        client.send(f.P("", "INSERT INTO marks VALUES ('open')"), f.B(), f.E(), f.H());
        await client.repliesUntil("C");
      }],
      ["a block", async (client) => {
        client.send(...cycle("BEGIN"), ...cycle("INSERT INTO marks VALUES ('open')"), f.H());
        await client.repliesUntil("C", 2);
      }],
      ["a copy", async (client) => {
        client.send(f.Q("COPY marks FROM STDIN"));
        await client.repliesUntil("G");
        client.send(f.d("open\n"));
      }],
    ];
    for (const [what, prepare] of middles) {
      const kept = await isKept(async () => {
        const client = await open(pooler);
        const backend = await backendOf(client);
        await prepare(client);
        leave(client);
        const next = await open(pooler);
        assert.equal(await next.query("SELECT who FROM marks"), [], `${way} in ${what}`);
        const isSame = await backendOf(next) === backend;
        await next.end();
        return isSame;
      });
      assert.ok(kept, `${way} in ${what}: another server`);
    }
  }
});

test("the pooler and its servers are well after all this", async () => {
  await nothingHangs(pooler, postgres);
});

test.run();
