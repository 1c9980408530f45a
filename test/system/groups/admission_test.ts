// Resource groups in one worker: who is let in, who waits, and how each way in which a wait or what was let in can end
// gives its place back. A transaction that is open is what runs, so that hardly anything here depends on time.
// limit: 240 s

import { concatBytes } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import type { RawClient } from "../../support/raw_client.ts";
import { GroupClients, refusalOf } from "./support.ts";

needs("postgresql");

const tests = suite("admission by resource groups");
const postgres = await startPostgres();
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;

const groups: Record<string, string> = {
  all: "max_concurrent_queries=3",
  one: "parent=all max_concurrent_queries=1 queue_timeout=60",
  many: "parent=all queue_timeout=60",
  strict: "max_concurrent_queries=1 queueing=off",
  narrow: "max_concurrent_queries=1 max_queued=1 queue_timeout=60",
  hasty: "max_concurrent_queries=1 queue_timeout=0.3",
  loose: "",
};
const rules = {
  tagged: "tag=one group=one",
  one: "application_name=one group=one",
  many: "application_name=~^many group=many",
  strict: "application_name=strict group=strict",
  narrow: "application_name=narrow group=narrow",
  hasty: "application_name=hasty group=hasty",
  session: "database=session group=one",
};
const ini = (changed: Record<string, string> = groups) => ({
  databases: {
    shop: `${at} pool_size=20`,
    other: `${at} pool_size=20`,
    session: `${at} pool_mode=session`,
    statement: `${at} pool_mode=statement`,
    single: `${at} pool_size=1`,
  },
  groups: changed,
  group_rules: rules,
});
const pooler = await startPgweir({ ini: ini() });

tests.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const all = new GroupClients(pooler);
const { client, seen, shows } = all;

tests.after.each(() => all.leave());

tests(
  "a transaction waits for the one before it in its group, and is let in when that ends",
  async () => {
    const [first, second, elsewhere] = [
      await client("one"),
      await client("one"),
      await client("x"),
    ];
    await first.query("BEGIN");
    const waiting = second.query("BEGIN");
    await shows("one", "1 1");
    assert.is(await seen("all"), "1 1");
    assert.equal(await elsewhere.query("SELECT 1"), [["1"]]);
    await first.query("COMMIT");
    await waiting;
    await shows("one", "1 0");
    await second.query("ROLLBACK");
    await shows("one", "0 0");
  },
);

tests("who waits is let in, in the order they came, also in the extended protocol", async () => {
  const first = await client("one");
  await first.query("BEGIN");
  const order: number[] = [];
  const all = [];
  for (let n = 1; n <= 4; n++) {
    const next = await client("one");
    next.send(f.P("", "SELECT 1"), f.B(), f.E(), f.S());
    all.push(
      next.replies().then((replies) => order.push(n) && assert.match(replies, /1 2 D .*Z\(I\)/)),
    );
    await shows("one", `1 ${n}`);
  }
  await first.query("COMMIT");
  await Promise.all(all);
  assert.equal(order, [1, 2, 3, 4]);
});

tests("a parent's limit is shared by its groups", async () => {
  const held = await Promise.all(["one", "many1", "many2"].map((name) => client(name)));
  for (const each of held) await each.query("BEGIN");
  assert.is(await seen("all"), "3 0");
  const more = await client("many3");
  const waiting = more.query("SELECT 1");
  await shows("all", "3 1");
  await held[0]!.query("COMMIT");
  assert.equal(await waiting, [["1"]]);
  await shows("all", "2 0");
});

tests("a refusal names the group and the limit, and the client goes on", async () => {
  const [first, second] = [await client("strict"), await client("strict")];
  await first.query("BEGIN");
  const { fields } = await refusalOf(second.query("SELECT 1"));
  assert.is(fields.code, "53000");
  assert.is(fields.severity, "ERROR");
  assert.match(fields.message, 'no room in resource group "strict"');
  assert.match(fields.detail, '"strict" (max_concurrent_queries = 1)');
  assert.match(fields.detail, '"strict" (queueing = off)');
  assert.ok(fields.hint !== "");
  second.send(f.P("", "SELECT 1"), f.B(), f.E(), f.S(), f.P("", "SELECT 2"), f.B(), f.E(), f.S());
  assert.is(await second.replies(2), "E(53000) Z(I) E(53000) Z(I)");
  const refused = async () => {
    const rows = await pooler.console("SHOW GROUPS");
    return rows.find(({ name }) => name === "strict")!["refused"];
  };
  const before = await refused();
  // Drivers end what never began, and take an error there for a broken connection: nothing is refused.
  for (const text of ["ROLLBACK", "COMMIT", "ROLLBACK"]) await second.query(text);
  assert.is(await refused(), before);
  await first.query("COMMIT");
  assert.equal(await second.query("SELECT 1"), [["1"]]);
});

tests("who finds the queue full is refused, who was before it is not", async () => {
  const [first, second, third] = await Promise.all([1, 2, 3].map(() => client("narrow")));
  await first!.query("BEGIN");
  const waiting = second!.query("SELECT 1");
  await shows("narrow", "1 1");
  const { fields } = await refusalOf(third!.query("SELECT 1"));
  assert.is(fields.code, "53000");
  assert.match(fields.detail, '"narrow" (max_queued = 1)');
  await first!.query("COMMIT");
  assert.equal(await waiting, [["1"]]);
  // Many at once before the budget has granted anything more than what is in use.
  await Promise.all([first, second, third].map((each) => each!.query("SELECT 1").catch(() => {})));
});

tests("a wait that is too long is an error of its own", async () => {
  const [first, second] = [await client("hasty"), await client("hasty")];
  await first.query("BEGIN");
  const { fields } = await refusalOf(second.query("SELECT 1"));
  assert.is(fields.code, "57014");
  assert.match(fields.message, 'queue_timeout of resource group "hasty"');
  assert.match(fields.detail, '"hasty" (max_concurrent_queries = 1)');
  await first.query("COMMIT");
  assert.equal(await second.query("SELECT 1"), [["1"]]);
});

tests("a cancel takes a client out of the queue of its group", async () => {
  const [first, second, third] = await Promise.all([1, 2, 3].map(() => client("one")));
  await first!.query("BEGIN");
  const waiting = refusalOf(second!.query("SELECT 1"));
  await shows("one", "1 1");
  const next = third!.query("SELECT 3");
  await shows("one", "1 2");
  await second!.cancel();
  assert.is((await waiting).code, "57014");
  await shows("one", "1 1");
  await first!.query("COMMIT");
  assert.equal(await next, [["3"]]);
  assert.equal(await second!.query("SELECT 2"), [["2"]]);
});

tests(
  "a client that leaves while it waits, or while its query runs, leaves nothing behind",
  async () => {
    const [first, second, third] = await Promise.all([1, 2, 3].map(() => client("one")));
    first!.send(f.Q("SELECT pg_sleep(60)"));
    await shows("one", "1 0");
    second!.send(f.Q("SELECT 1"));
    await shows("one", "1 1");
    second!.close();
    await shows("one", "1 0");
    const waiting = third!.query("SELECT 3");
    first!.close();
    assert.equal(await waiting, [["3"]]);
  },
);

tests("a lost server gives its place back", async () => {
  const [first, second] = [await client("one"), await client("one")];
  await first.query("BEGIN");
  const [[pid]] = await first.query("SELECT pg_backend_pid()") as [[string]];
  const waiting = second.query("SELECT 2");
  await shows("one", "1 1");
  await postgres.query(`SELECT pg_terminate_backend(${pid})`);
  assert.equal(await waiting, [["2"]]);
});

tests("the group follows application_name as the client has it now", async () => {
  const [first, second] = [await client("one"), await client("x")];
  await first.query("BEGIN");
  await second.query("SET application_name = 'one'");
  const waiting = refusalOf(second.query("SELECT 1"));
  await shows("one", "1 1");
  await second.cancel();
  assert.is((await waiting).code, "57014");
  const third = await client("one");
  const other = third.query("SET application_name = 'y'");
  await shows("one", "1 1");
  await first.query("COMMIT");
  await other;
  await first.query("BEGIN");
  assert.equal(await third.query("SELECT 1"), [["1"]]);
});

tests(
  "a tag chooses the group of one transaction, by whatever message its text comes",
  async () => {
    const [first, second] = [await client("one"), await client("x")];
    second.send(f.P("s", "/* group=one */ SELECT 7"), f.S());
    assert.is(await second.replies(), "1 Z(I)");
    await first.query("BEGIN");
    assert.equal(await second.query("SELECT 1"), [["1"]]);
    const messages = [
      f.Q("/* group=one */ SELECT 7"),
      concatBytes(f.P("", "/* group=one */ SELECT 7"), f.B(), f.E(), f.S()),
      concatBytes(f.B("", "s"), f.E(), f.S()),
    ];
    for (const message of messages) {
      second.send(message);
      await shows("one", "1 1");
      await second.cancel();
      assert.match(await second.replies(), /E\(57014\) Z\(I\)/);
      await shows("one", "1 0");
      assert.equal(await second.query("/* group=none */ SELECT 1"), [["1"]]);
    }
  },
);

tests("a client whose pipeline never runs dry lets others of its group have a turn", async () => {
  const [busy, other] = [await client("one"), await client("one")];
  busy.send(f.Q("SELECT pg_sleep(0.02)"));
  const more = setInterval(() => busy.send(f.Q("SELECT pg_sleep(0.02)")), 10);
  try {
    await shows("one", "1 0");
    assert.equal(await other.query("SELECT 1"), [["1"]]);
  } finally {
    clearInterval(more);
  }
});

tests(
  "a session keeps its place until its client leaves, a statement as long as it runs",
  async () => {
    const session = await client("x", "session");
    assert.is(await seen("one"), "0 0", "a login is no query");
    await session.query("SELECT 1");
    assert.is(await seen("one"), "1 0");
    const statement = await client("one", "statement");
    const waiting = statement.query("SELECT 2");
    await shows("one", "1 1");
    await session.end();
    assert.equal(await waiting, [["2"]]);
    await shows("one", "0 0");
  },
);

tests(
  "a group that is full keeps nobody of it from the console, and a login needs no room",
  async () => {
    const first = await client("one");
    await first.query("BEGIN");
    const second = await client("one");
    assert.is(await seen("one"), "1 0");
    const rows = await pooler.console("SHOW CLIENTS");
    assert.ok(rows.some((row) => row["application_name"] === "one"));
    await second.end();
  },
);

tests("who waits for a server of a paused database takes no room from others", async () => {
  const paused = await Promise.all([1, 2, 3, 4].map(() => client("many", "other")));
  await paused[0]!.query("SELECT 1");
  await pooler.console("PAUSE other");
  const waiting = paused.map((each) => each.query("SELECT 1"));
  const rows = async () => await pooler.console("SHOW POOLS");
  await until(
    "all to wait",
    async () =>
      (await rows()).some((row) => row["database"] === "other" && row["cl_waiting"] === "4"),
  );
  await shows("many", "0 0");
  const free = await client("many");
  assert.equal(await free.query("SELECT 1"), [["1"]]);
  await pooler.console("RESUME other");
  assert.equal(await Promise.all(waiting), [[["1"]], [["1"]], [["1"]], [["1"]]]);
  // More than its group has room for, let in one after the other.
  await shows("many", "0 0");
});

tests("those who were let in and wait for a server give their place back to a pause", async () => {
  const holder = await client("x", "single");
  await holder.query("BEGIN");
  const held = await client("one", "single");
  const waiting = held.query("SELECT 1");
  await shows("one", "1 0");
  const pause = pooler.console("PAUSE single");
  await until("the place to be free", async () => await seen("one") === "0 0");
  await holder.query("COMMIT");
  await pause;
  await pooler.console("RESUME single");
  assert.equal(await waiting, [["1"]]);
});

tests("KILL, query_timeout and query_wait_timeout take clients out of the queue", async () => {
  const first = await client("one");
  await first.query("BEGIN");
  const rows = [["query_timeout", "57014", 0], ["query_wait_timeout", "53300", 120]] as const;
  for (const [setting, code, usual] of rows) {
    const second = await client("one");
    const waiting = refusalOf(second.query("SELECT 1"));
    await shows("one", "1 1");
    await pooler.console(`SET ${setting} = 0.2`);
    const { fields } = await waiting;
    assert.is(fields.code, code);
    assert.is(fields.message, setting);
    assert.match(fields.hint, `resource group in time: raise the group's limits, or ${setting}`);
    await pooler.console(`SET ${setting} = ${usual}`);
  }
  const third = await client("one");
  const killed = refusalOf(third.query("SELECT 1"));
  await shows("one", "1 1");
  await pooler.console("KILL shop");
  assert.is((await killed).code, "57P01");
  await pooler.console("RESUME shop");
  await shows("one", "0 0");
});

tests("a reload changes max_queued, and sends nobody away who waits", async () => {
  const [first, second, third, fourth] = await Promise.all(
    [1, 2, 3, 4].map(() => client("narrow")),
  ) as [RawClient, RawClient, RawClient, RawClient];
  const narrow = async (more: string) => {
    pooler.rewrite(ini({ ...groups, narrow: `max_concurrent_queries=1 queue_timeout=60 ${more}` }));
    await pooler.console("RELOAD");
  };
  await first.query("BEGIN");
  const waiting = [second.query("SELECT 2")];
  await shows("narrow", "1 1");
  await narrow("max_queued=2");
  waiting.push(third.query("SELECT 3"));
  await shows("narrow", "1 2");
  await narrow("max_queued=1");
  assert.is((await refusalOf(fourth.query("SELECT 4"))).code, "53000");
  await shows("narrow", "1 2");
  await narrow("");
  waiting.push(fourth.query("SELECT 4"));
  await shows("narrow", "1 3");
  await first.query("COMMIT");
  assert.equal(await Promise.all(waiting), [[["2"]], [["3"]], [["4"]]]);
  pooler.rewrite(ini());
  await pooler.console("RELOAD");
});

tests("a reload changes limits, groups and rules under those who wait", async () => {
  const [first, second, third] = await Promise.all([1, 2, 3].map(() => client("one")));
  await first!.query("BEGIN");
  const waiting = second!.query("BEGIN");
  await shows("one", "1 1");
  pooler.rewrite(ini({ ...groups, one: "parent=all max_concurrent_queries=2 queue_timeout=60" }));
  await pooler.console("RELOAD");
  await waiting;
  // It shrinks: both run on, and nobody else is let in before both have ended.
  pooler.rewrite(ini());
  await pooler.console("RELOAD");
  assert.is(await seen("one"), "2 0");
  const last = third!.query("SELECT 3");
  await shows("one", "2 1");
  await first!.query("COMMIT");
  await shows("one", "1 1");
  // It vanishes, and its rules lead elsewhere: who waits goes where it belongs now.
  const { one: _, ...left } = groups;
  const without = ini(left);
  pooler.rewrite({ ...without, group_rules: { rest: "application_name=one group=loose" } });
  await pooler.console("RELOAD");
  assert.equal(await last, [["3"]]);
  await second!.query("COMMIT");
  // None at all.
  pooler.rewrite({ databases: ini().databases });
  await pooler.console("RELOAD");
  assert.equal(await third!.query("SELECT 3"), [["3"]]);
  assert.equal(await pooler.console("SHOW GROUPS"), []);
  pooler.rewrite(ini());
  await pooler.console("RELOAD");
  assert.equal(await third!.query("SELECT 3"), [["3"]]);
  await shows("one", "0 0");
});

tests("what follows a BEGIN that was refused is refused as well", async () => {
  await postgres.query("CREATE TABLE marks (i int)");
  const [first, second] = [await client("strict"), await client("strict")];
  const insert = "INSERT INTO marks VALUES (1)";
  // Let in on its own, since there is room in its group.
  const elsewhere = `/* group=one */ ${insert}`;
  const cycle = (sql: string) => [f.P("", sql), f.B(), f.E(), f.S()];
  const refused = "E(53000) Z(I)";
  const ask = async (parts: readonly Uint8Array[], count = 1) => {
    second.send(...parts);
    return await second.replies(count);
  };
  for (const begin of [[f.Q("BEGIN")], cycle("/* a */ START TRANSACTION")]) {
    await first.query("BEGIN");
    const pipeline = [...begin, ...cycle(elsewhere), f.Q(elsewhere), f.Q("ROLLBACK")];
    const replies = await ask(pipeline, 4);
    assert.is(replies, `${refused} ${refused} ${refused} N C"ROLLBACK" Z(I)`);
    assert.is(await ask(begin), refused);
    // There is room now.
    await first.query("COMMIT");
    assert.is(await ask([f.Q(insert)]), refused);
    assert.is(await ask(cycle(insert)), refused);
    const { fields } = await refusalOf(second.query(elsewhere));
    assert.match(fields.message, "behind a BEGIN that was refused");
    assert.match(fields.detail, 'no room in resource group "strict"');
    assert.match(await ask([f.Q("COMMIT")]), 'C"COMMIT" Z(I)');
    assert.equal(await postgres.query("SELECT * FROM marks"), []);
    await second.query("BEGIN");
    await second.query(insert);
    await second.query("ROLLBACK");
    await second.query("SELECT 1");
  }
});

tests("the same behind a BEGIN that has waited in vain, or was cancelled", async () => {
  const [first, second] = [await client("hasty"), await client("hasty")];
  await first.query("BEGIN");
  const elsewhere = f.Q("/* group=one */ SELECT 1");
  second.send(f.Q("BEGIN"), elsewhere);
  assert.is(await second.replies(2), "E(57014) Z(I) E(57014) Z(I)");
  await first.query("COMMIT");
  await second.query("ROLLBACK");
  await second.query("SELECT 1");
  const [third, fourth] = [await client("one"), await client("one")];
  await third.query("BEGIN");
  fourth.send(f.Q("BEGIN"), f.Q("SELECT 1"));
  await shows("one", "1 1");
  await fourth.cancel();
  assert.is(await fourth.replies(2), "E(57014) Z(I) E(57014) Z(I)");
  await third.query("COMMIT");
  await fourth.query("BEGIN");
  await fourth.query("ROLLBACK");
});

tests.run();
