// Queries that may not wait, on four workers: none is refused while fewer run in the mesh than its group may run,
// whichever worker has the slots, and one is when all of them are in use. What runs is counted in PostgreSQL: by looks at
// pg_stat_activity, and by locks that each query takes and that are as many as the limit.
// limit: 200 s

import { cancelKeyWorker } from "../../../shared/wire/mod.ts";
import { assert, seededRandom, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { GroupWatch, takesOneOf } from "./group_load.ts";
import { refusalOf } from "./support.ts";

needs("postgresql");

const WORKERS = 4;
/** How many a group may run, and how many of them run its queries one after the other. */
const limits = { a: 1, b: 2, c: 3, d: 4, queued: 2 };
type GroupName = keyof typeof limits;
const names = Object.keys(limits) as GroupName[];
const QUERIES = 40;
const ROUNDS = 12;
/** Who has waited for so long is refused because of that. */
const PENDING_MS = 5000;

const tests = suite("slots that are not in use");
const postgres = await startPostgres({ settings: { max_connections: "60" } });
await postgres.query("CREATE ROLE app LOGIN");
await postgres.query("CREATE DATABASE app OWNER app");
await postgres.query(takesOneOf, [], "app");
const watch = await GroupWatch.start(
  postgres,
  "SELECT substring(query from 'group=(\\w+)'), count(*) FROM pg_stat_activity " +
    "WHERE state = 'active' AND query LIKE '/* group=%' GROUP BY 1",
);

const howOf = (name: GroupName) =>
  name === "queued" ? "max_queued=1 queue_timeout=60" : "queueing=off";
const pooler = await startPgweir({
  workers: WORKERS,
  ini: {
    databases: { app: `host=127.0.0.1 port=${postgres.port} pool_size=30` },
    groups: Object.fromEntries(
      names.map((name) => [name, `max_concurrent_queries=${limits[name]} ${howOf(name)}`]),
    ),
    group_rules: Object.fromEntries(names.map((name) => [name, `tag=${name} group=${name}`])),
  },
  userlist: { app: "", admin: "" },
  readyTimeoutMs: 60_000,
});

const random = seededRandom(11);
/** Clients that do nothing, by worker. */
const idle = new Map<number, RawClient[]>();
const workerOf = ({ key }: RawClient) => cancelKeyWorker(key!.processId, key!.secret);

function giveBack(client: RawClient): void {
  const worker = workerOf(client);
  idle.set(worker, [...idle.get(worker) ?? [], client]);
}

/** One of a worker chosen at random, or of that worker. */
function take(worker = [...idle.keys()][Math.floor(random() * WORKERS)]!): RawClient {
  const client = idle.get(worker)!.pop();
  assert.ok(client !== undefined, `worker ${worker} has a client that is idle`);
  return client!;
}

// Enough on each worker for all that a test may want there: which one a client comes to is the kernel's choice.
const MOST = 1 + Object.values(limits).reduce((sum, limit) => sum + limit, 0);
while (idle.size < WORKERS || [...idle.values()].some(({ length }) => length < MOST)) {
  const batch = Array.from(
    { length: 16 },
    () => RawClient.login(pooler, { user: "app", database: "app" }),
  );
  for (const client of await Promise.all(batch)) giveBack(client);
}

tests.after(async () => {
  await pooler.stop();
  await watch.end();
  await postgres.stop("immediate");
});

const begin = (name: GroupName) => `/* group=${name} */ BEGIN`;
const text = (name: GroupName) =>
  `/* group=${name} */ SELECT take(${names.indexOf(name)}, ${limits[name]}), pg_sleep(0.01)`;

async function quick(name: GroupName): Promise<void> {
  const client = take();
  await client.query(text(name));
  giveBack(client);
}

async function oneAfterTheOther(name: GroupName, count: number): Promise<void> {
  for (let n = 0; n < count; n++) await quick(name);
}

// A worker was told that the mesh has no more, and refused, while others had slots that they did not use.
tests(
  "no query is refused while fewer run than may, on whatever worker each of them is",
  async () => {
    await Promise.all(
      names.flatMap((name) =>
        Array.from({ length: limits[name] }, () => oneAfterTheOther(name, QUERIES))
      ),
    );
    assert.ok(watch.looks > 0);
    for (const name of names) {
      assert.ok(watch.ever(name) <= limits[name], `${watch.ever(name)} of ${name}`);
    }
  },
);

function note(what: string, waits: number[]): void {
  waits.sort((one, other) => one - other);
  const [median, most] = [waits[waits.length >> 1]!, waits.at(-1)!];
  console.log(`# ${what} after ${median.toFixed(0)} ms in the median, ${most.toFixed(0)} at most`);
}

for (const name of ["a", "c"] as const) {
  tests(`all ${limits[name]} are in use: refused by each worker, until one has ended`, async () => {
    const running: RawClient[] = [];
    const waits: number[] = [];
    const moves: number[] = [];
    while (running.length < limits[name]) {
      const client = take();
      await client.query(begin(name));
      running.push(client);
    }
    for (let round = 0; round < ROUNDS; round++) {
      const others = [...idle.keys()].map((worker) => take(worker));
      await Promise.all(others.map(async (client) => {
        const since = performance.now();
        const refusal = await refusalOf(client.query(text(name)));
        waits.push(performance.now() - since);
        assert.is(refusal.code, "53000");
        giveBack(client);
      }));
      const ended = running.splice(Math.floor(random() * running.length), 1)[0]!;
      await ended.query("COMMIT");
      giveBack(ended);
      const next = take();
      const since = performance.now();
      await next.query(begin(name));
      moves.push(performance.now() - since);
      running.push(next);
    }
    for (const client of running) {
      await client.query("COMMIT");
      giveBack(client);
    }
    note("refused", waits);
    note("let in", moves);
    const most = Math.max(...waits);
    // Longer, and they were refused because of the time, not because others have said that they use all.
    assert.ok(most < PENDING_MS, `${most} ms`);
  });
}

tests(
  "max_queued: one waits while all are in use, the next is refused, and none when some are not",
  async () => {
    const name = "queued";
    const running = [take(), take()];
    for (const client of running) await client.query(begin(name));
    const waiting = take();
    const answer = waiting.query(text(name), 60_000);
    await until("one to wait", async () => {
      const row = (await pooler.console("SHOW GROUPS")).find((row) => row["name"] === name)!;
      return row["queued_queries"] === "1";
    });
    for (const worker of idle.keys()) {
      const client = take(worker);
      assert.is((await refusalOf(client.query(text(name)))).code, "53000");
      giveBack(client);
    }
    await running[0]!.query("COMMIT");
    await answer;
    await quick(name);
    await running[1]!.query("COMMIT");
    for (const client of [...running, waiting]) giveBack(client);
    await Promise.all([oneAfterTheOther(name, ROUNDS), oneAfterTheOther(name, ROUNDS)]);
    assert.ok(watch.ever(name) <= limits[name], `${watch.ever(name)}`);
  },
);

tests.run();
