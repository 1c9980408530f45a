// Resource groups beside what else happens to those who wait in them, or run: commands of operators, COPY, LISTEN and
// replication clients, which are in no group. Each leaves nothing behind in any group, which is looked at after every
// test.
// limit: 180 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { GroupClients } from "./support.ts";

needs("postgresql");

const tests = suite("resource groups beside other things");
const postgres = await startPostgres({ settings: { wal_level: "logical" } });
await postgres.query("CREATE TABLE taken (line text)");
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres pool_size=20`;
const pooler = await startPgweir({
  ini: {
    databases: { shop: at, other: at },
    groups: { one: "max_concurrent_queries=1 queue_timeout=60" },
    group_rules: { one: "application_name=one group=one" },
  },
});
const all = new GroupClients(pooler);
const { client, shows } = all;

tests.after.each(() => all.leave());
tests.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

/** One whose transaction runs in the group, and the query of another one that waits for it. */
async function fullGroup(): Promise<
  { first: RawClient; second: RawClient; asked: Promise<unknown> }
> {
  const [first, second] = [await client("one"), await client("one")];
  await first.query("BEGIN");
  const asked = second.query("SELECT 2");
  asked.catch(() => {});
  await shows("one", "1 1");
  return { first, second, asked };
}

// What was let in of a paused database would keep its place from clients of others.
tests("PAUSE of a database for which some wait: others of the group get the place", async () => {
  const { first, asked } = await fullGroup();
  const elsewhere = await client("one", "other");
  const pause = pooler.console("PAUSE shop");
  await until("it to be paused", async () => {
    const row = (await pooler.console("SHOW DATABASES")).find(({ name }) => name === "shop")!;
    return row["paused"] === "1";
  });
  await first.query("COMMIT");
  await pause;
  assert.equal(await elsewhere.query("SELECT 1"), [["1"]]);
  await shows("one", "0 0");
  await pooler.console("RESUME shop");
  assert.equal(await asked, [["2"]]);
});

tests("RECONNECT and DISABLE leave those alone who wait", async () => {
  const { first, second, asked } = await fullGroup();
  const [[before]] = await first.query("SELECT pg_backend_pid()") as [[string]];
  await pooler.console("RECONNECT shop");
  await pooler.console("DISABLE shop");
  await shows("one", "1 1");
  await first.query("COMMIT");
  assert.equal(await asked, [["2"]]);
  assert.not.equal(await second.query("SELECT pg_backend_pid()"), [[before]]);
  await pooler.console("ENABLE shop");
});

tests(
  "SUSPEND: who waits for room is served first, and nobody is let in until RESUME",
  async () => {
    const [first, second] = [await client("one"), await client("one")];
    first.send(f.Q("SELECT pg_sleep(1)"));
    await shows("one", "1 0");
    second.send(f.Q("SELECT 2"));
    await shows("one", "1 1");
    const boss = await RawClient.login(pooler, { user: "admin", database: "pgbouncer" });
    try {
      await boss.query("SUSPEND");
      assert.match(await first.replies(), /Z\(I\)$/);
      first.send(f.Q("SELECT 3"));
      // What the second one runs is answered by now, or after RESUME.
      const row = (await boss.table("SHOW GROUPS")).find(({ name }) => name === "one")!;
      assert.is(row["queued_queries"], "0");
      await boss.query("RESUME");
      assert.match(await second.replies(), /C"SELECT 1" Z\(I\)$/);
      assert.match(await first.replies(), /C"SELECT 1" Z\(I\)$/);
    } finally {
      // Nobody new is let in otherwise.
      await boss.query("RESUME").catch(() => {});
      boss.close();
    }
  },
);

tests("a COPY is one of its group up to its end, however that comes", async () => {
  const [first, second] = [await client("one"), await client("one")];
  first.send(f.Q("COPY taken FROM STDIN"));
  assert.is(await first.repliesUntil("G"), "G");
  second.send(f.Q("COPY taken TO STDOUT"));
  await shows("one", "1 1");
  first.send(f.d("a\nb\n"), f.c());
  assert.is(await first.replies(), 'C"COPY 2" Z(I)');
  assert.match(await second.replies(), /^H d.* c C"COPY 2" Z\(I\)$/);
  await shows("one", "0 0");
  // Its client fails it, or leaves in the middle of it.
  first.send(f.Q("COPY taken FROM STDIN"));
  assert.is(await first.repliesUntil("G"), "G");
  second.send(f.Q("SELECT 1"));
  await shows("one", "1 1");
  first.send(f.f("no"));
  assert.is(await first.replies(), "E(57014) Z(I)");
  assert.match(await second.replies(), /C"SELECT 1" Z\(I\)$/);
  first.send(f.Q("COPY taken FROM STDIN"));
  assert.is(await first.repliesUntil("G"), "G");
  first.send(f.d("c\n"));
  second.send(f.Q("SELECT count(*) FROM taken"));
  await shows("one", "1 1");
  first.close();
  assert.match(await second.replies(), /^T D\("2"\)|^T D .*Z\(I\)$/);
});

tests("LISTEN is a query of its group, listening is none", async () => {
  const [listener, sender] = [await client("one"), await client("x")];
  await listener.query("LISTEN news");
  await shows("one", "0 0");
  const { first, asked } = await fullGroup();
  await sender.query("NOTIFY news, 'hello'");
  assert.match(await listener.repliesUntil("A"), /^A/);
  // A LISTEN waits for its turn as any other does; its connection is there already, or made beside the group.
  const late = await client("one", "other");
  const listens = late.query("LISTEN more");
  await shows("one", "1 2");
  await first.query("COMMIT");
  await asked;
  await listens;
  await shows("one", "0 0");
});

tests("a replication client is in no group", async () => {
  const { first, asked } = await fullGroup();
  const follower = await client("one", "shop", { replication: "database" });
  assert.equal((await follower.query("IDENTIFY_SYSTEM")).length, 1);
  await shows("one", "1 1");
  await first.query("COMMIT");
  await asked;
});

tests.run();
