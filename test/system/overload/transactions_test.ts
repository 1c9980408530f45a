// New transactions while a database is overloaded: how many are refused, what a client sees in each protocol and pool
// mode, and who is spared. The decisions are made up, the bus and PostgreSQL are real.
// limit: 480 s

import { notation } from "../../support/notation.ts";
import { concatBytes, parseErrorFields } from "../../../shared/wire/mod.ts";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { startEmbedded } from "../../bus/brokers.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { tempDir } from "../../support/temp.ts";
import { type Fleet, startFleet } from "../cancel/fleet.ts";
import { waiting } from "../modes/support.ts";
import { closeAll, isFair, Monitor, open, overload, shedCounts } from "./support.ts";

needs("postgresql");

const tests = suite("shed transactions");
let postgres: Postgres;
let fleet: Fleet;
let pooler: Pgweir;
let monitor: Monitor;

tests.before(async () => {
  postgres = await startPostgres();
  await postgres.query(
    "CREATE ROLE vip LOGIN; CREATE TABLE marks (i int); GRANT ALL ON marks TO vip",
  );
  const users = join(tempDir("shed"), "users.txt");
  writeFileSync(users, '"postgres" ""\n"vip" ""\n"admin" ""\n');
  const target = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
  fleet = await startFleet(startEmbedded, [1], {
    databases: {
      shop: target,
      calm: target,
      spared: `${target} shed=never`,
      statements: `${target} pool_mode=statement`,
      sessions: `${target} pool_mode=session`,
      "*": target,
    },
    users: { vip: "shed=never" },
    groups: {
      important: "shed=never",
      others: "",
      // The ratio of each decision here is 4.
      half: "max_os_cpu_wait_time_ratio_to_throw=8",
    },
    group_rules: {
      named: "application_name=important group=important",
      tagged: "tag=important group=important",
      half: "tag=half group=half",
      others: "database=shop group=others",
    },
    pgbouncer: { default_pool_size: 2, auth_file: users },
  });
  pooler = fleet.worker(1);
  monitor = await Monitor.join(fleet.broker);
});

tests.after.each(async () => {
  closeAll();
  await monitor.calm(pooler);
});

tests.after(async () => {
  await monitor.bus.close();
  await fleet.stop();
  await postgres.stop("immediate");
});

const shed = "E(53000)";

const cycle = (sql: string, name = "") => [f.P(name, sql), f.B("", name), f.E()];

async function ask(client: RawClient, parts: readonly Uint8Array[], count = 1): Promise<string> {
  client.send(...parts);
  return await client.replies(count);
}

/** How many of so many requests were refused; all others succeed. */
async function refusedOf(
  client: RawClient,
  attempts: number,
  parts: readonly Uint8Array[],
  good: string,
): Promise<number> {
  let refused = 0;
  for (let i = 0; i < attempts; i++) {
    const replies = await ask(client, parts);
    if (replies === `${shed} Z(I)`) refused++;
    else assert.is(replies, good);
  }
  return refused;
}

tests("of 1,000 transactions as many are refused as the probability says", async () => {
  const client = await open(pooler, "shop");
  const before = (await shedCounts(pooler, "shop")).transactions;
  await monitor.decide(pooler, "shop", { transactions: 0.3 });
  const simple = await refusedOf(client, 1000, [f.Q("SELECT 1")], 'T D C"SELECT 1" Z(I)');
  assert.ok(isFair(simple, 1000, 0.3), `${simple} simple ones`);
  const good = '1 2 D C"SELECT 1" Z(I)';
  const extended = await refusedOf(client, 1000, [...cycle("SELECT 1"), f.S()], good);
  assert.ok(isFair(extended, 1000, 0.3), `${extended} extended ones`);
  const { transactions } = await shedCounts(pooler, "shop");
  assert.is(transactions - before, simple + extended);
});

tests("a refusal says why, with the limits, and what to do", async () => {
  const client = await open(pooler, "shop");
  await monitor.decide(pooler, "shop", { transactions: 1 });
  client.send(f.Q("SELECT 1"));
  const [message] = await client.messagesUntil("Z");
  const { severity, code, message: text, detail, hint } = parseErrorFields(message!.body);
  assert.is(
    `${severity} ${code} ${text}`,
    "ERROR 53000 server overloaded: the transaction was refused",
  );
  assert.is(
    detail,
    "The ratio of CPU wait to CPU work is 4.00: transactions are refused from 2 on, " +
      "all of them from 6 on, now with probability 1.00",
  );
  assert.match(hint ?? "", "try again after a pause");
});

tests("a transaction that runs is never refused, nor its end", async () => {
  const client = await open(pooler, "shop");
  const other = await open(pooler, "shop");
  assert.is(await ask(client, [f.Q("BEGIN")]), 'C"BEGIN" Z(T)');
  await monitor.decide(pooler, "shop", { transactions: 1 });
  for (let i = 0; i < 1000; i++) {
    const isSimple = i % 2 === 0;
    const replies = isSimple
      ? await ask(client, [f.Q("SELECT 1")])
      : await ask(client, [...cycle("SELECT 1", i % 4 === 1 ? "" : `s${i % 64}`), f.S()]);
    assert.match(replies, 'C"SELECT 1" Z(T)');
    if (!isSimple && i % 4 === 3) await ask(client, [f.C("S", `s${i % 64}`), f.S()]);
    if (i % 100 === 0) assert.is(await ask(other, [f.Q("SELECT 1")]), `${shed} Z(I)`);
  }
  // A failed one is ended as well.
  assert.is(await ask(client, [f.Q("SAVEPOINT a")]), 'C"SAVEPOINT" Z(T)');
  assert.is(await ask(client, [f.Q("SELECT 1/0")]), "E(22012) Z(E)");
  assert.is(await ask(client, [f.Q("ROLLBACK TO a")]), 'C"ROLLBACK" Z(T)');
  assert.is(await ask(client, [...cycle("COMMIT"), f.S()]), '1 2 C"COMMIT" Z(I)');
  assert.is(await ask(client, [f.Q("BEGIN")]), `${shed} Z(I)`);
});

tests("thousands of transactions of several statements are whole or not at all", async () => {
  await postgres.query("TRUNCATE marks");
  await monitor.decide(pooler, "shop", { transactions: 0.5 });
  let done = 0;
  await Promise.all([1, 2, 3, 4].map(async () => {
    const client = await open(pooler, "shop");
    for (let i = 0; i < 500; i++) {
      const begun = await ask(client, [f.Q("BEGIN")]);
      if (begun === `${shed} Z(I)`) continue;
      assert.is(begun, 'C"BEGIN" Z(T)');
      assert.is(await ask(client, [f.Q("INSERT INTO marks VALUES (1)")]), 'C"INSERT 0 1" Z(T)');
      const more = [f.P("", "INSERT INTO marks VALUES (2)"), f.B(), f.E(), f.S()];
      assert.is(await ask(client, more), '1 2 C"INSERT 0 1" Z(T)');
      assert.is(await ask(client, [f.Q("COMMIT")]), 'C"COMMIT" Z(I)');
      done++;
    }
  }));
  assert.ok(isFair(2000 - done, 2000, 0.5), `${done} were let through`);
  const [row] = await postgres.query("SELECT count(*) FROM marks");
  assert.is(Number(Object.values(row!)[0]), 2 * done);
});

tests("the end of a transaction that never began is answered as ever", async () => {
  const client = await open(pooler, "shop");
  await monitor.decide(pooler, "shop", { transactions: 1 });
  const ends = ["ROLLBACK", "commit;", " END TRANSACTION ; ", "abort work"];
  for (const sql of [...ends, "/* trace=1 */ COMMIT", "-- c\nROLLBACK", " ; commit"]) {
    assert.match(await ask(client, [f.Q(sql)]), /^N C"(ROLLBACK|COMMIT)" Z\(I\)$/, sql);
    assert.match(await ask(client, [...cycle(sql), f.S()]), /^1 2 N C"(ROLLBACK|COMMIT)" Z\(I\)$/);
  }
  // The second phase of a commit ends what holds locks.
  for (const sql of ["COMMIT PREPARED 'nobody'", "/* x */ rollback prepared 'nobody';"]) {
    assert.is(await ask(client, [f.Q(sql)]), "E(42704) Z(I)", sql);
    assert.is(await ask(client, [...cycle(sql), f.S()]), "1 2 E(42704) Z(I)", sql);
  }
  for (const sql of ["ROLLBACK; SELECT 1", "COMMITTED", "BEGIN"]) {
    assert.is(await ask(client, [f.Q(sql)]), `${shed} Z(I)`, sql);
  }
});

tests("each request of a pipeline is refused on its own, and skipped up to its Sync", async () => {
  const client = await open(pooler, "shop");
  await monitor.decide(pooler, "shop", { transactions: 1 });
  const pipeline = [
    ...[...cycle("SELECT 1"), ...cycle("SELECT 2"), f.S()],
    f.Q("SELECT 3"),
    f.F(1598, []),
    ...[f.D("S", "nobody"), f.H(), f.E(), f.S()],
    // A Query that stands where messages are skipped is skipped, too.
    ...[f.B(), f.Q("SELECT 4"), f.S()],
    f.S(),
  ];
  const wanted = [shed, "Z(I)", shed, "Z(I)", shed, "Z(I)", shed, "Z(I)", shed, "Z(I)", "Z(I)"];
  assert.is(await ask(client, pipeline, 6), wanted.join(" "));
  // The same byte by byte.
  await client.sendByteByByte(concatBytes(...pipeline));
  assert.is(await client.replies(6), wanted.join(" "));
  await monitor.decide(pooler, "shop");
  assert.is(await ask(client, [...cycle("SELECT 1"), f.S()]), '1 2 D C"SELECT 1" Z(I)');
});

tests("in a pipeline with a fair chance every request is done whole or refused whole", async () => {
  const client = await open(pooler, "shop");
  await monitor.decide(pooler, "shop", { transactions: 0.5 });
  let refused = 0;
  for (let i = 0; i < 100; i++) {
    const parts = [...Array(8).keys()].flatMap((
      n,
    ) => [f.P("", `SELECT ${n}`), f.B(), f.E(), f.S()]);
    client.send(...parts);
    let next = 0;
    for (let n = 0; n < 8; n++) {
      const messages = await client.messagesUntil("Z");
      const replies = messages.map((each) => notation(each, { values: true })).join(" ");
      if (replies === `${shed} Z(I)`) refused++;
      else assert.match(replies, new RegExp(`^1 2 D\\S*${n}\\S* C"SELECT 1" Z\\(I\\)$`));
      next++;
    }
    assert.is(next, 8);
  }
  assert.ok(refused > 0 && refused < 800, `${refused} of 800`);
});

tests(
  "a large query and a large Parse that are refused are not read as something else",
  async () => {
    const client = await open(pooler, "shop");
    await monitor.decide(pooler, "shop", { transactions: 1 });
    const large = `SELECT 1 /* ${"x".repeat(300_000)} */`;
    assert.is(await ask(client, [f.Q(large), f.Q("SELECT 2")], 2), `${shed} Z(I) ${shed} Z(I)`);
    const parts = [...cycle(large, "large"), f.S(), f.Q("SELECT 2")];
    assert.is(await ask(client, parts, 2), `${shed} Z(I) ${shed} Z(I)`);
    await monitor.decide(pooler, "shop");
    assert.is(await ask(client, [f.Q("SELECT 1")]), 'T D C"SELECT 1" Z(I)');
  },
);

tests(
  "a Parse that was refused is not remembered, and statements from before are not lost",
  async () => {
    const client = await open(pooler, "shop");
    const run = (name: string) => [f.B("", name), f.E(), f.S()];
    assert.is(await ask(client, [f.P("before", "SELECT 1"), f.S()]), "1 Z(I)");
    await monitor.decide(pooler, "shop", { transactions: 1 });
    assert.is(await ask(client, [f.P("refused", "SELECT 2"), ...run("refused")]), `${shed} Z(I)`);
    assert.is(await ask(client, run("before")), `${shed} Z(I)`);
    // What was closed meanwhile is gone, although no server was to be had for it.
    assert.is(await ask(client, [f.P("gone", "SELECT 3"), f.S()]), `${shed} Z(I)`);
    await monitor.decide(pooler, "shop");
    assert.is(await ask(client, run("refused")), "E(26000) Z(I)");
    assert.is(
      await ask(client, [f.P("refused", "SELECT 2"), ...run("refused")]),
      '1 2 D C"SELECT 1" Z(I)',
    );
    assert.is(await ask(client, run("before")), '2 D C"SELECT 1" Z(I)');
    await monitor.decide(pooler, "shop", { transactions: 1 });
    assert.is(
      await ask(client, [f.C("S", "before"), f.C("P", "p"), f.C("S", "x"), f.S()]),
      "3 3 3 Z(I)",
    );
    assert.is(await ask(client, [f.C("S", "refused"), ...run("refused")]), `3 ${shed} Z(I)`);
    await monitor.decide(pooler, "shop");
    assert.is(await ask(client, run("before")), "E(26000) Z(I)");
    assert.is(
      await ask(client, [f.P("before", "SELECT 4"), ...run("before")]),
      '1 2 D C"SELECT 1" Z(I)',
    );
  },
);

tests(
  "statements that are evicted and made again around refusals are those they were",
  async () => {
    const clients = await Promise.all([1, 2, 3].map(() => open(pooler, "shop")));
    await monitor.decide(pooler, "shop", { transactions: 0.4 });
    await Promise.all(clients.map(async (client, who) => {
      const known = new Set<number>();
      for (let i = 0; i < 600; i++) {
        const n = (i * 7 + who) % 300;
        const parse = known.has(n) ? [] : [f.P(`s${n}`, `SELECT ${n}`)];
        client.send(...parse, f.B("", `s${n}`), f.E(), f.S());
        const replies = (await client.messagesUntil("Z"))
          .map((each) => notation(each, { values: true })).join(" ");
        if (replies === `${shed} Z(I)`) continue;
        const wanted = `${parse.length > 0 ? "1 " : ""}2 D\\S*\\b${n}\\b\\S* C"SELECT 1" Z\\(I\\)`;
        assert.match(replies, new RegExp(`^${wanted}$`));
        known.add(n);
      }
    }));
  },
);

tests("with pool_mode = statement each statement is one attempt", async () => {
  const client = await open(pooler, "statements");
  await monitor.decide(pooler, "statements", { transactions: 0.5 });
  const good = 'T D C"SELECT 1" Z(I)';
  const refused = await refusedOf(client, 1000, [f.Q("SELECT 1")], good);
  assert.ok(isFair(refused, 1000, 0.5), `${refused}`);
  await monitor.decide(pooler, "statements", { transactions: 1 });
  assert.is(await ask(client, [...cycle("SELECT 1"), f.S()]), `${shed} Z(I)`);
});

tests("in a session each statement outside of a transaction is one attempt", async () => {
  const client = await open(pooler, "sessions");
  await ask(client, [f.Q("SELECT 1"), f.P("s", "SELECT 5"), f.S()], 2);
  await monitor.decide(pooler, "sessions", { transactions: 0.5 });
  const refused = await refusedOf(client, 1000, [f.Q("SELECT 1")], 'T D C"SELECT 1" Z(I)');
  assert.ok(isFair(refused, 1000, 0.5), `${refused} simple ones`);
  const parts = [f.B("", "s"), f.E(), f.S()];
  const extended = await refusedOf(client, 1000, parts, '2 D C"SELECT 1" Z(I)');
  assert.ok(isFair(extended, 1000, 0.5), `${extended} extended ones`);
  await monitor.decide(pooler, "sessions", { transactions: 1 });
  const pipeline = [...cycle("SELECT 1", "t"), f.D("S", "t"), f.S(), f.F(1598), f.S()];
  assert.is(await ask(client, pipeline, 3), `${shed} Z(I) ${shed} Z(I) Z(I)`);
  await client.sendByteByByte(concatBytes(...pipeline));
  assert.is(await client.replies(3), `${shed} Z(I) ${shed} Z(I) Z(I)`);
  const large = `SELECT 1 /* ${"x".repeat(300_000)} */`;
  assert.is(await ask(client, [f.Q(large), f.Q("SELECT 2")], 2), `${shed} Z(I) ${shed} Z(I)`);
  assert.match(await ask(client, [f.Q("ROLLBACK")]), 'C"ROLLBACK" Z(I)');
  // What is skipped has no effect, and the session is still what it was.
  assert.is(await ask(client, [f.C("S", "s"), f.S()]), "3 Z(I)");
  await monitor.decide(pooler, "sessions");
  assert.is(await ask(client, [f.B("", "t"), f.S()]), "E(26000) Z(I)");
  assert.is(await ask(client, [f.Q("BEGIN")]), 'C"BEGIN" Z(T)');
  await monitor.decide(pooler, "sessions", { transactions: 1 });
  for (let i = 0; i < 200; i++) assert.match(await ask(client, [f.Q("SELECT 1")]), "Z(T)");
  assert.is(await ask(client, [f.Q("COMMIT")]), 'C"COMMIT" Z(I)');
});

tests("a session that is left in the middle of what is skipped does no harm", async () => {
  const [before] = await postgres.query("SELECT count(*) FROM marks");
  const client = await open(pooler, "sessions");
  await ask(client, [f.Q("SELECT 1")]);
  await monitor.decide(pooler, "sessions", { transactions: 1 });
  client.send(...cycle("INSERT INTO marks VALUES (9)"));
  assert.is(await client.repliesUntil("E"), shed);
  await client.end();
  await monitor.decide(pooler, "sessions");
  const next = await open(pooler, "sessions");
  assert.is(await ask(next, [f.Q("SELECT 1")]), 'T D C"SELECT 1" Z(I)');
  assert.equal(await postgres.query("SELECT count(*) FROM marks"), [before]);
});

tests("who holds an advisory lock keeps its server, and can let go of it", async () => {
  const client = await open(pooler, "shop");
  await client.query("SELECT pg_advisory_lock(1)");
  await monitor.decide(pooler, "shop", { transactions: 1 });
  assert.equal(await client.query("SELECT pg_advisory_unlock(1)"), [["t"]]);
  assert.is(await ask(client, [f.Q("SELECT 1")]), `${shed} Z(I)`);
});

tests(
  "in a session as well, by a text that is prepared, too; without a lock it is as others",
  async () => {
    const [before, within] = [await open(pooler, "sessions"), await open(pooler, "sessions")];
    const good = 'T D C"SELECT 1" Z(I)';
    for (const client of [before, within]) await ask(client, [f.Q("SELECT 1")]);
    await before.query("SELECT pg_advisory_lock(7)");
    await ask(before, [f.P("unlock", "SELECT pg_advisory_unlock(7)"), f.S()]);
    await within.query("BEGIN");
    await monitor.decide(pooler, "sessions", { transactions: 1 });
    await within.query("SELECT pg_advisory_lock(8)");
    await within.query("COMMIT");
    for (let i = 0; i < 20; i++) {
      assert.is(await ask(before, [f.Q("SELECT 1")]), good);
      assert.is(await ask(before, [...cycle("SELECT 1"), f.S()]), '1 2 D C"SELECT 1" Z(I)');
      assert.is(await ask(within, [f.Q("SELECT 1")]), good);
    }
    assert.is(await ask(before, [f.B("", "unlock"), f.E(), f.S()]), '2 D C"SELECT 1" Z(I)');
    assert.is(await ask(before, [f.Q("SELECT 1")]), `${shed} Z(I)`);
    assert.equal(await within.query("SELECT pg_advisory_unlock(8)"), [["t"]]);
    assert.is(await ask(within, [f.Q("SELECT 1")]), `${shed} Z(I)`);
    // What was taken and given back while nothing was refused is found out by the first that would be.
    await monitor.decide(pooler, "sessions");
    await within.query("SELECT pg_advisory_lock(9)");
    await within.query("SELECT pg_advisory_unlock(9)");
    await monitor.decide(pooler, "sessions", { transactions: 1 });
    assert.is(await ask(within, [f.Q("SELECT 1")]), good);
    assert.is(await ask(within, [f.Q("SELECT 1")]), `${shed} Z(I)`);
  },
);

tests("other databases, spared ones and spared users are let through", async () => {
  for (const database of ["shop", "spared"]) {
    await monitor.decide(pooler, database, { transactions: 1, connections: 1 });
  }
  const spared = [["calm", "postgres"], ["spared", "postgres"], ["shop", "vip"]] as const;
  for (const [database, user] of spared) {
    const client = await open(pooler, database, user);
    for (let i = 0; i < 200; i++) {
      assert.is(await ask(client, [f.Q("SELECT 1")]), 'T D C"SELECT 1" Z(I)');
    }
  }
  const row = (await overload(pooler)).find((each) => each["database"] === "spared")!;
  assert.equal([row["throw_probability"], row["shed_transactions"]], ["0", "0"]);
});

tests(
  "what is in a group that is spared is let through, by its rules and by what runs",
  async () => {
    const client = await open(pooler, "shop");
    await monitor.decide(pooler, "shop", { transactions: 1, connections: 1 });
    const good = 'T D C"SELECT 1" Z(I)';
    for (let i = 0; i < 50; i++) {
      assert.is(await ask(client, [f.Q("SELECT 1")]), `${shed} Z(I)`);
      assert.is(await ask(client, [f.Q("/* group=important */ SELECT 1")]), good);
    }
    const important = await RawClient.login(pooler, {
      user: "postgres",
      database: "shop",
      parameters: { application_name: "important" },
    });
    for (let i = 0; i < 100; i++) assert.is(await ask(important, [f.Q("SELECT 1")]), good);
    await important.end();
  },
);

tests("by bounds of its own a group is refused something when nobody else is", async () => {
  const client = await open(pooler, "shop");
  await monitor.decide(pooler, "shop");
  const before = await shedCounts(pooler, "shop");
  const good = 'T D C"SELECT 1" Z(I)';
  const tagged = [f.Q("/* group=half */ SELECT 1")];
  const refused = await refusedOf(client, 600, tagged, good);
  assert.ok(refused > 200 && refused < 400, `${refused} of 600`);
  assert.is(await refusedOf(client, 200, [f.Q("SELECT 1")], good), 0);
  const row = (await overload(pooler)).find((each) => each["group_name"] === "half")!;
  assert.equal([row["max_to_throw"], row["throw_probability"]], ["8", "0.5"]);
  assert.is(Number(row["shed_transactions"]), refused);
  assert.is((await shedCounts(pooler, "shop")).transactions - before.transactions, refused);
  // Not within a transaction, whatever its texts are tagged with.
  assert.is(await ask(client, [f.Q("BEGIN")]), 'C"BEGIN" Z(T)');
  for (let i = 0; i < 200; i++) assert.is(await ask(client, tagged), 'T D C"SELECT 1" Z(T)');
  assert.is(await ask(client, [f.Q("COMMIT")]), 'C"COMMIT" Z(I)');
});

tests("a client that waits for a server is not refused any more", async () => {
  const holders = await Promise.all([1, 2].map(() => open(pooler, "shop")));
  for (const holder of holders) await holder.query("BEGIN");
  const waiter = await open(pooler, "shop");
  waiter.send(f.Q("SELECT 1"));
  await waiting(pooler, 1, "shop");
  await monitor.decide(pooler, "shop", { transactions: 1 });
  for (const holder of holders) await holder.query("COMMIT");
  assert.is(await waiter.replies(), 'T D C"SELECT 1" Z(I)');
  assert.is(await ask(waiter, [f.Q("SELECT 1")]), `${shed} Z(I)`);
});

// What is let in on its own while everything else is refused.
const spared = "/* group=important */ ";
const insert = `${spared}INSERT INTO marks VALUES (7)`;
const ended = (tag: string) => new RegExp(`^(1 2 )?N C"${tag}" Z\\(I\\)$`);

async function marks(): Promise<number> {
  const [row] = await postgres.query("SELECT count(*) FROM marks WHERE i = 7");
  return Number(Object.values(row!)[0]);
}

async function loseBegin(client: RawClient, begin: readonly Uint8Array[] = [f.Q("BEGIN")]) {
  assert.is(await ask(client, begin), `${shed} Z(I)`);
}

for (const database of ["shop", "sessions"]) {
  tests(`what follows a BEGIN that was refused is refused as well (${database})`, async () => {
    await postgres.query("TRUNCATE marks");
    const client = await open(pooler, database);
    await ask(client, [f.Q("SELECT 1"), f.P("before", insert), f.S()], 2);
    await monitor.decide(pooler, database, { transactions: 1 });
    const parsed = [f.P("", insert), f.B(), f.E(), f.S()];
    const begins = [
      [f.Q("BEGIN")],
      [f.Q("/* a */; -- b\n start transaction read write")],
      [f.Q("BEGIN; SELECT 1")],
      [...cycle("BEGIN"), f.S()],
      [...cycle("BEGIN"), ...cycle(insert), f.S()],
    ];
    for (const begin of begins) {
      await loseBegin(client, begin);
      for (let i = 0; i < 2; i++) {
        assert.is(await ask(client, [f.Q(insert)]), `${shed} Z(I)`);
        assert.is(await ask(client, parsed), `${shed} Z(I)`);
        assert.is(await ask(client, [f.B("", "before"), f.E(), f.S()]), `${shed} Z(I)`);
        assert.is(await ask(client, [f.Q(`${spared}PREPARE TRANSACTION 'a'`)]), `${shed} Z(I)`);
        assert.is(await ask(client, [f.S()]), "Z(I)");
      }
      assert.match(await ask(client, [f.Q("ROLLBACK")]), ended("ROLLBACK"));
      assert.is(await ask(client, [f.Q(`${spared}SELECT 1`)]), 'T D C"SELECT 1" Z(I)');
    }
    assert.is(await marks(), 0);
    // In one piece, as what may come behind a BEGIN before its answer is read.
    const pieces = [f.Q("BEGIN"), f.S(), ...parsed, f.Q(insert), f.C("S", "before"), ...parsed];
    const wanted = `${shed} Z(I) Z(I) ${shed} Z(I) ${shed} Z(I)`;
    const isKept = database === "sessions";
    const closed = isKept ? `${shed} Z(I)` : `3 ${shed} Z(I)`;
    assert.is(await ask(client, pieces, 5), `${wanted} ${closed}`);
    assert.match(await ask(client, [...cycle("COMMIT"), f.S()]), ended("COMMIT"));
    assert.is(await marks(), 0);
    // Nothing of it is left.
    assert.is(await ask(client, [f.Q(insert)]), 'C"INSERT 0 1" Z(I)');
    assert.is(await marks(), 1);
  });

  tests(`pipelines with a fair chance are whole or not at all (${database})`, async () => {
    await postgres.query("TRUNCATE marks");
    const client = await open(pooler, database);
    await ask(client, [f.Q("SELECT 1")]);
    await monitor.decide(pooler, database, { transactions: 0.5 });
    const write = [f.P("", "INSERT INTO marks VALUES (7)"), f.B(), f.E(), f.S()];
    const pipelines = [
      [f.Q("BEGIN"), ...write, ...write, f.Q("COMMIT")],
      [...cycle("BEGIN"), f.S(), ...write, ...write, ...cycle("COMMIT"), f.S()],
    ];
    let done = 0;
    for (let i = 0; i < 200; i++) {
      const replies = await ask(client, pipelines[i % 2]!, 4);
      if (!replies.startsWith(shed)) done++;
      else assert.match(replies, /^(E\(53000\) Z\(I\) ){3}(1 2 )?N C"COMMIT" Z\(I\)$/);
    }
    assert.ok(isFair(200 - done, 200, 0.5), `${done} were let through`);
    assert.is(await marks(), 2 * done);
    // One write, and its answer is not waited for.
    let kept = 0;
    for (let i = 0; i < 100; i++) {
      const replies = await ask(client, [f.Q("BEGIN"), ...write, f.Q("ROLLBACK")], 3);
      if (!replies.startsWith(shed)) kept++;
    }
    assert.ok(kept > 0 && kept < 100, `${kept} of 100`);
    assert.is(await marks(), 2 * done);
  });
}

tests("what is refused behind a BEGIN says so, and is not counted", async () => {
  const client = await open(pooler, "shop");
  const before = (await shedCounts(pooler, "shop")).transactions;
  await monitor.decide(pooler, "shop", { transactions: 1 });
  await loseBegin(client);
  client.send(f.Q(insert));
  const { code, message, detail, hint } = parseErrorFields(
    (await client.messagesUntil("Z"))[0]!.body,
  );
  assert.is(
    `${code} ${message}`,
    "53000 the request was refused: it is behind a BEGIN that was refused",
  );
  assert.is(
    detail,
    "The BEGIN was refused with: server overloaded: the transaction was refused",
  );
  assert.match(hint ?? "", "send ROLLBACK");
  assert.is((await shedCounts(pooler, "shop")).transactions - before, 1);
});

tests("behind a BEGIN that was refused the next one is judged anew", async () => {
  await postgres.query("TRUNCATE marks");
  const client = await open(pooler, "shop");
  assert.is(
    await ask(client, [f.P("begin", `${spared}BEGIN`), f.P("lost", "BEGIN"), f.S()]),
    "1 1 Z(I)",
  );
  await monitor.decide(pooler, "shop", { transactions: 1 });
  for (const begin of [[f.Q(`${spared}BEGIN`)], [f.B("", "begin"), f.E(), f.S()]]) {
    await loseBegin(client, [f.B("", "lost"), f.E(), f.S()]);
    assert.is(await ask(client, [f.Q(insert)]), `${shed} Z(I)`);
    await loseBegin(client);
    assert.match(await ask(client, begin), /^(2 )?C"BEGIN" Z\(T\)$/);
    assert.is(await ask(client, [f.Q("INSERT INTO marks VALUES (7)")]), 'C"INSERT 0 1" Z(T)');
    assert.is(await ask(client, [f.Q("COMMIT")]), 'C"COMMIT" Z(I)');
  }
  assert.is(await marks(), 2);
  // A text that ends its transaction itself has nothing behind it.
  await loseBegin(client, [f.Q("BEGIN; SELECT 1; COMMIT")]);
  assert.is(await ask(client, [f.Q(insert)]), 'C"INSERT 0 1" Z(I)');
  assert.is(await ask(client, [f.Q("SELECT 1")]), `${shed} Z(I)`);
  assert.is(await ask(client, [f.Q(insert)]), 'C"INSERT 0 1" Z(I)');
});

tests("who does nothing about a BEGIN that was refused is not refused for ever", async () => {
  const client = await open(pooler, "shop");
  await monitor.decide(pooler, "shop", { transactions: 1 });
  const sentAt = performance.now();
  await loseBegin(client);
  // Overload is over, and it is refused all the same.
  await monitor.decide(pooler, "shop");
  let replies = "";
  await until("it to be let in", async () => {
    replies = await ask(client, [f.Q("SELECT 1")]);
    return replies !== `${shed} Z(I)`;
  });
  assert.is(replies, 'T D C"SELECT 1" Z(I)');
  const heldMs = performance.now() - sentAt;
  // The clock of the worker's loop may be a little behind.
  assert.ok(heldMs > 4500, `${heldMs} ms`);
});

// The last one: its rows stay in SHOW OVERLOAD.
tests(
  "what is decided of the `*` entry is for all who come in by it, and for no others",
  async () => {
    const [one, other, named] = [
      await open(pooler, "some"),
      await open(pooler, "any"),
      await open(pooler, "calm"),
    ];
    // One has a pool already, the other none.
    assert.is(await ask(one, [f.Q("SELECT 1")]), 'T D C"SELECT 1" Z(I)');
    await monitor.decide(pooler, "*", { transactions: 1 });
    assert.is(await ask(one, [f.Q("SELECT 1")]), `${shed} Z(I)`);
    assert.is(await ask(other, [f.Q("SELECT 1")]), `${shed} Z(I)`);
    assert.is(await ask(named, [f.Q("SELECT 1")]), 'T D C"SELECT 1" Z(I)');
    assert.is((await shedCounts(pooler, "*")).transactions, 2);
    await monitor.decide(pooler, "*", { connections: 1 });
    const answer = await open(pooler, "third").then(
      () => "let in",
      ({ message }) => String(message),
    );
    assert.match(answer, /server overloaded/);
    assert.equal(await shedCounts(pooler, "*"), { transactions: 2, connections: 1 });
  },
);

tests.run();
