// The limits of resource groups are those of all workers together: four workers, a group of 2 and one of 6 under a
// parent of 6, and clients of both on every worker. What PostgreSQL runs is looked at every 20 ms.
// limit: 400 s

import { cancelKeyWorker } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { signal } from "../../support/processes.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";
import { pause, runUntilTold, workerIdOf } from "../budget/support.ts";
import { GroupLoad, GroupWatch } from "./group_load.ts";

needs("postgresql");

/** In seconds. */
const lease = 3;

const tests = suite("resource groups of a fleet");
const postgres = await startPostgres({ settings: { max_connections: "60" } });
await postgres.query("CREATE ROLE app LOGIN SUPERUSER");
await postgres.query("CREATE DATABASE app OWNER app");
const watch = await GroupWatch.start(postgres);
const started: Pgweir[] = [];

async function start(
  groups: Record<string, string>,
  pgweir: Record<string, string | number> = {},
  workers = 4,
): Promise<Pgweir> {
  const pooler = await startPgweir({
    workers,
    ini: {
      databases: { app: `host=127.0.0.1 port=${postgres.port} pool_size=24` },
      pgweir,
      groups,
      group_rules: { a: "application_name=a group=a", b: "application_name=b group=b" },
    },
    userlist: { app: "", admin: "" },
    readyTimeoutMs: 60_000,
  });
  started.push(pooler);
  return pooler;
}

const loads: GroupLoad[] = [];

function load(pooler: Pgweir, group: string, clients: number): GroupLoad {
  const made = new GroupLoad(pooler, group, clients);
  loads.push(made);
  return made;
}

tests.after(async () => {
  // Of a test that has failed.
  for (const each of loads) void each.stop();
  for (const pooler of started) await pooler.stop();
  await watch.end();
  await postgres.stop("immediate");
});

tests(
  "limits hold over all workers, what one group does not use the other has, and a killed worker's slots come back",
  async () => {
    const pooler = await start({
      both: "max_concurrent_queries=6",
      a: "parent=both max_concurrent_queries=2 queue_timeout=0",
      b: "parent=both max_concurrent_queries=6 queue_timeout=0",
    });
    const b = load(pooler, "b", 24);
    let a = load(pooler, "a", 24);
    await watch.reached(2, "a");
    await watch.reached(6);
    await Promise.all([a.progress(100), b.progress(200)]);
    await a.stop();
    watch.forget();
    // With the other idle, one group uses all.
    await watch.reached(6, "b");
    a = load(pooler, "a", 24);
    await Promise.all([a.progress(20), b.progress(20)]);
    const [victim] = pooler.workerPids();
    signal(victim!, "SIGKILL");
    await until(
      "another worker",
      () => pooler.workerPids().length === 4 && !pooler.workerPids().includes(victim!),
      60_000,
    );
    watch.forget();
    await watch.reached(6);
    await watch.reached(2, "a");
    await Promise.all([a.progress(100), b.progress(200)]);
    await Promise.all([a.stop(), b.stop()]);
    console.log(`# ${watch.looks} looks, ${a.answered} and ${b.answered} answers`);
    assert.is(watch.ever(), 6);
    assert.is(watch.ever("a"), 2);
    // None but the clients of the killed worker had an error, and those were told that it is gone.
    const errors = [...a.errors, ...b.errors];
    assert.ok(errors.length <= 48, errors.join());
    await until(
      "the groups to be empty",
      async () =>
        (await pooler.console("SHOW GROUPS")).every((row) => row["running_queries"] === "0"),
    );
    await pooler.stop();
  },
);

// Each worker let as many wait as the file says.
tests("max_queued is a limit of all workers together", async () => {
  const pooler = await start({
    a: "max_concurrent_queries=1 max_queued=5 queue_timeout=0",
    b: "",
  });
  const login = () =>
    RawClient.login(pooler, {
      user: "app",
      database: "app",
      parameters: { application_name: "a" },
    });
  const all = await Promise.all(Array.from({ length: 30 }, login));
  const [first, ...others] = all as [RawClient, ...RawClient[]];
  await first.query("BEGIN");
  for (const round of [1, 2]) {
    const refused: string[] = [];
    let answered = 0;
    const asked = others.map((client) =>
      client.query("SELECT 1").then(
        () => answered++,
        (error) => refused.push(error instanceof ServerError ? error.code : String(error)),
      )
    );
    await until("all but five to be refused", () => refused.length >= others.length - 5);
    assert.is(answered, 0, `in round ${round}`);
    await first.query("COMMIT");
    await Promise.all(asked);
    assert.equal(new Set(refused), new Set(["53000"]));
    // Fewer, if places were on their way to a worker for too long.
    console.log(`# ${answered} of 5 waited`);
    assert.ok(answered > 0 && answered <= 5, `${answered} waited`);
    if (round === 1) await first.query("BEGIN");
  }
  for (const client of all) client.close();
  await pooler.stop();
});

// The slot of the group above was asked for when that of the group below was there, and the query refused before.
tests(
  "below a parent, an idle mesh refuses no worker's first query, however short its queue is",
  async () => {
    const pooler = await start(
      {
        both: "max_concurrent_queries=8",
        a: "parent=both max_concurrent_queries=4 max_queued=100 queue_timeout=30",
        b: "parent=both max_concurrent_queries=4 queueing=off",
      },
      {},
      2,
    );
    const asked = new Map<number, Set<string>>();
    while ([...asked.values()].filter(({ size }) => size === 2).length < 2) {
      for (const application_name of ["a", "b"]) {
        const client = await RawClient.login(pooler, {
          user: "app",
          database: "app",
          parameters: { application_name },
        });
        const worker = cancelKeyWorker(client.key!.processId, client.key!.secret);
        await client.query("SELECT 1");
        asked.set(worker, (asked.get(worker) ?? new Set()).add(application_name));
        client.close();
      }
    }
    await pooler.stop();
  },
);

tests("budget_mode = static gives each worker its part", async () => {
  watch.forget();
  const pooler = await start({
    both: "max_concurrent_queries=8",
    a: "parent=both max_concurrent_queries=4 queue_timeout=0",
    b: "parent=both queue_timeout=0",
  }, { budget_mode: "static" });
  const both = [load(pooler, "a", 12), load(pooler, "b", 12)];
  await Promise.all(both.map((each) => each.everywhere(4)));
  await watch.reached(8);
  await watch.reached(4, "a");
  await Promise.all(both.map((each) => each.progress(100)));
  await Promise.all(both.map((each) => each.stop()));
  assert.is(watch.most(), 8);
  assert.is(watch.most("a"), 4);
  assert.equal(both.flatMap(({ errors }) => errors), []);
});

// The group's slots were given again while what the killed worker had begun went on.
tests(
  "what a killed worker has begun counts as long as PostgreSQL runs it, with budget_auth",
  async () => {
    const pooler = await start(
      { a: "max_concurrent_queries=4 queue_timeout=0", b: "" },
      { budget_auth: "user=postgres dbname=postgres", budget_lease: lease },
      2,
    );
    const byWorker = new Map<number, RawClient[]>();
    let slow: RawClient[] = [];
    while (slow.length < 3) {
      const client = await RawClient.login(pooler, {
        user: "app",
        database: "app",
        parameters: { application_name: "a" },
      });
      const worker = cancelKeyWorker(client.key!.processId, client.key!.secret);
      slow = [...byWorker.get(worker) ?? [], client];
      byWorker.set(worker, slow);
    }
    const others = [...byWorker.values()].filter((clients) => clients !== slow).flat();
    for (const client of others) client.close();
    watch.restart();
    const work = await runUntilTold(postgres, slow, "/* run a */ SELECT", "app");
    await watch.reached(3, "a");
    const worker = cancelKeyWorker(slow[0]!.key!.processId, slow[0]!.key!.secret);
    const pid = pooler.workerPids().find((each) => workerIdOf(each) === worker);
    signal(pid!, "SIGKILL");
    const left = load(pooler, "a", 16);
    await left.progress(20);
    // For longer than what the dead worker has leased.
    await pause(2_000 * lease);
    assert.is(watch.ever("a"), 4);
    work.end();
    // All again once those have ended.
    await until("those to have ended", async () => {
      const rows = await postgres.backends();
      return !rows.some(({ query, state }) => state === "active" && query.includes("4711"));
    });
    watch.forget();
    await watch.reached(4, "a");
    await left.progress(60);
    await left.stop();
    assert.is(watch.ever("a"), 4);
  },
);

tests.run();
