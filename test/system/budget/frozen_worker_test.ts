// A worker that holds all slots is frozen, and others have clients waiting: what it holds stays its own whoever
// leads meanwhile, what PostgreSQL shows that it has lost goes to the others, and when it wakes it knows its place.
// limit: 400 s
// load: waits

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import { freeze, isAlive, signal } from "../../support/processes.ts";
import type { RawClient } from "../../support/raw_client.ts";
import {
  all,
  assertNeverRefused,
  BackendWatch,
  clientsOf,
  coordinatorOf,
  inContact,
  note,
  patienceMs,
  pause,
  startHost,
  startLimitedPostgres,
  Work,
  workerIdOf,
} from "./support.ts";

needs("postgresql");

const limit = 8;
/** In seconds. */
const lease = 2;

const postgres = await startLimitedPostgres({ app: limit });
const watch = await BackendWatch.start(postgres);

interface Stage {
  readonly host: Pgweir;
  /** The process that holds all slots, and its clients. */
  readonly pid: number;
  readonly holders: readonly RawClient[];
  /** Clients of another worker. */
  readonly others: readonly RawClient[];
}

/** Two workers, of which one holds all slots idle. */
async function start(
  pgbouncer: Record<string, number>,
  pgweir: Record<string, string>,
): Promise<Stage> {
  watch.reset();
  const host = await startHost({
    postgres,
    workers: 2,
    pgbouncer: { default_pool_size: limit, ...pgbouncer },
    pgweir: { budget_lease: lease, ...pgweir },
  });
  const clients = await clientsOf(host, 2, limit);
  const pid = host.workerPids()[0]!;
  const worker = workerIdOf(pid);
  const holders = clients.get(worker)!;
  const [others] = [...clients].filter(([id]) => id !== worker).map(([, list]) => list);
  await until("it to hold all slots", async () => {
    // So long that the last of them begins before the first ends, also on a busy machine.
    const pids = await all(holders, "SELECT pg_backend_pid(), pg_sleep(0.4)");
    return new Set(pids).size === limit;
  }, patienceMs);
  return { host, pid, holders, others: others! };
}

/** Both workers have work in the end, and all slots are in use. */
async function finish({ host, holders, others }: Stage, work: Work): Promise<void> {
  const again = new Work(holders, "SELECT pg_sleep(0.02) /* holder */");
  await until(
    "both to have servers, and all to be in use",
    () => {
      const own = watch.count(({ state, query }) => state === "active" && query.includes("holder"));
      return own > 0 && own < limit && watch.active === limit;
    },
    patienceMs,
    5,
  );
  await again.stop();
  await work.stop();
  assert.ok(watch.most <= limit, `${watch.most} backends, wanted ${limit} at most`);
  assertNeverRefused(postgres);
  note(`${watch.samples} looks, ${watch.most} backends at most`);
  for (const client of [...holders, ...others]) client.close();
  await host.stop();
}

const tests = suite("a frozen worker that holds all slots");

tests.after(async () => {
  await watch.stop();
  await postgres.stop("immediate");
});

// A new leader that had not heard of it took its slots for free.
tests("a new leader leaves it what it holds", async () => {
  const stage = await start({}, {});
  const { host, pid } = stage;
  await freeze(pid);
  const coordinator = await coordinatorOf(host);
  signal(coordinator, "SIGKILL");
  await until("its end", () => !isAlive(coordinator), patienceMs);
  const work = new Work(stage.others);
  // From here on the new leader grants, to the others as well.
  await until(
    "the new leader to see that it is silent",
    () =>
      /LOG budget coordinator leads.*LOG budget coordinator leads.*workers are silent/s.test(
        host.log(),
      ),
    patienceMs,
  );
  await pause(2 * lease * 1000);
  const shown = await watch.fresh();
  assert.is(shown.length, limit);
  assert.is(watch.active, 0);
  signal(pid, "SIGCONT");
  await finish(stage, work);
});

// It woke with the slots in mind that it had before, which others had by then.
tests("what it has lost goes to the others, and it does not take it back", async () => {
  const auth = { budget_auth: "user=postgres dbname=postgres" };
  const stage = await start({ server_idle_timeout: 1 }, auth);
  const { host, pid, holders } = stage;
  await until("its servers to be closed", () => watch.now.length === 0, patienceMs);
  await inContact(host, 2);
  await freeze(pid);
  // Its clients ask for all of them as soon as it wakes.
  const asking = new Work(holders, "SELECT pg_sleep(0.05)");
  const work = new Work(stage.others);
  // All but its floor, which is half of them where there are two workers.
  const toOthers = limit / 2;
  await until("the others to have them", () => watch.active === toOthers, patienceMs, 5);
  note(`${toOthers} of its slots went to the others after ${work.ms} ms`);
  signal(pid, "SIGCONT");
  await asking.stop();
  await finish(stage, work);
});

tests.run();
