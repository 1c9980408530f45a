// The kernel spreads connections without regard to load: all the work may be on one of the workers. Slots follow
// it, from wherever they were idle, as often as it moves.
// limit: 400 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import {
  assertNeverRefused,
  BackendWatch,
  clientsOf,
  note,
  patienceMs,
  startHost,
  startLimitedPostgres,
  Work,
} from "./support.ts";

needs("postgresql");

const limit = 8;
const postgres = await startLimitedPostgres({ app: limit });
const host = await startHost({ postgres, pgbouncer: { default_pool_size: limit } });
const watch = await BackendWatch.start(postgres, 5);
const clients = await clientsOf(host, 4, 12);
const [first, second, third, fourth] = [...clients.keys()] as [number, number, number, number];

const activeFor = (worker: number): number =>
  watch.count(({ state, query }) => state === "active" && query.includes(`worker ${worker} `));

/** The clients of one worker at work. */
class WorkerWork extends Work {
  readonly worker: number;

  constructor(worker: number) {
    super(clients.get(worker)!, `SELECT pg_sleep(0.05) /* worker ${worker} */`);
    this.worker = worker;
  }

  /** Waits until so many slots are in use by it; the milliseconds since it began. */
  async has(slots: number): Promise<number> {
    const what = `${slots} slots in use by one worker`;
    await until(what, () => activeFor(this.worker) >= slots, patienceMs, 1);
    return this.ms;
  }
}

/** All the work is on one worker until it has all slots; how long that took. */
async function allTo(worker: number): Promise<number> {
  const work = new WorkerWork(worker);
  const ms = await work.has(limit);
  await work.stop();
  return ms;
}

const tests = suite("work on one of four workers");

function holds(): void {
  assert.ok(watch.most <= limit, `${watch.most} backends, wanted ${limit} at most`);
  assertNeverRefused(postgres);
}

tests.after(async () => {
  for (const client of [...clients.values()].flat()) client.close();
  await watch.stop();
  await host.stop();
  await postgres.stop("immediate");
});

// A worker queued with a quarter of the servers while the others were idle.
tests("it gets all the slots, also those that are idle at another worker", async () => {
  note(`from none open: ${limit} slots in ${await allTo(first)} ms`);
  assert.is((await watch.fresh()).length, limit);
  note(`from ${limit} idle at another worker: in ${await allTo(second)} ms`);
  // Idle for longer than a lull in the work of a worker is.
  await until(
    "the idle ones to rest",
    () => watch.now.length === limit && watch.now.every(({ restsMs }) => restsMs > 1_500),
    patienceMs,
  );
  note(`from ${limit} that had rested: in ${await allTo(third)} ms`);
  note(`and on at once: in ${await allTo(first)} ms`);
  holds();
});

tests("it gets them when each of the others holds its share idle", async () => {
  const all = [first, second, third, fourth].map((worker) => new WorkerWork(worker));
  await until(
    "two slots for each",
    () => all.every(({ worker }) => activeFor(worker) === 2),
    patienceMs,
    1,
  );
  await Promise.all(all.map((work) => work.stop()));
  note(`from 2 idle at each of 4 workers: in ${await allTo(third)} ms`);
  holds();
});

tests("the slots follow when the work moves again and again", async () => {
  const took: number[] = [];
  let last: WorkerWork | null = null;
  for (const worker of [fourth, first, second, fourth, third, first]) {
    const work: WorkerWork = new WorkerWork(worker);
    // The old work ends as the new begins, and has servers in the middle of transactions.
    await last?.stop();
    took.push(await work.has(limit));
    last = work;
  }
  await last?.stop();
  note(`busy slots that moved to another worker: in ${took.join(", ")} ms`);
  holds();
});

tests("a worker that starts to work beside a busy one gets half", async () => {
  const old = new WorkerWork(first);
  await old.has(limit);
  const young = new WorkerWork(second);
  note(`half of the slots of a busy worker: in ${await young.has(limit / 2)} ms`);
  await old.has(limit / 2);
  await Promise.all([old.stop(), young.stop()]);
  holds();
});

tests.run();
