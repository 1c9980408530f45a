// The bus is away for several leases while clients work: nobody notices. What workers hold they keep, what they
// lose they may open again up to their floors, and when the bus is back slots move again.
// limit: 400 s
// load: waits

import { assert, suite, until } from "../../support/harness.ts";
import { startNats } from "../../support/nats.ts";
import { needs } from "../../support/needs.ts";
import {
  assertNeverRefused,
  BackendWatch,
  clientsOf,
  inContact,
  Load,
  note,
  patienceMs,
  pause,
  startHost,
  startLimitedPostgres,
  Work,
} from "./support.ts";

needs("postgresql", "nats-server");

const limit = 8;
const isLong = process.env["PGWEIR_LONG"] === "1";
/** In seconds; the outage lasts for several of them. */
const lease = isLong ? 10 : 3;
const outageMs = isLong ? 60_000 : 12_000;

const nats = await startNats({ jetstream: true });
const postgres = await startLimitedPostgres({ app: limit });
const host = await startHost({
  postgres,
  nats,
  pgbouncer: { default_pool_size: limit },
  pgweir: { budget_lease: lease },
});
const watch = await BackendWatch.start(postgres);

const tests = suite("a bus that is away");

function holds(load: Load): void {
  assert.equal(load.errors, []);
  assert.ok(watch.most <= limit, `${watch.most} backends, wanted ${limit} at most`);
  assertNeverRefused(postgres);
}

const allInUse = () =>
  until("all slots to be in use", () => watch.active === limit, patienceMs, 10);

tests.after(async () => {
  await watch.stop();
  await host.stop();
  await nats.stop();
  await postgres.stop("immediate");
});

// Workers gave up what they held, or opened what others had, when they could not ask.
tests("work goes on through an outage, within the limit, and slots move after it", async () => {
  const load = new Load(host, { clients: 40, sleepMs: 20 });
  // Every worker has servers: one that has none when the bus goes has nothing to go on with.
  await load.everywhere(4, 20);
  await allInUse();
  // Slots that are on the move are no loss: they have stayed where they are for a while.
  const servers = () => watch.now.map(({ pid }) => pid).join();
  let last = "";
  let since = 0;
  await until(
    "slots to stay where they are",
    () => {
      if (servers() !== last) since = performance.now();
      last = servers();
      return watch.now.length === limit && performance.now() - since > 1_500;
    },
    patienceMs,
    10,
  );
  const before = load.transactions;
  await nats.stop();
  // What was granted just before has arrived.
  await load.more(100);
  await watch.fresh();
  const pids = new Set(watch.now.map(({ pid }) => pid));
  // One that was on its way after all may be lost with the bus.
  assert.ok(pids.size >= limit - 1, `${pids.size} servers`);
  await pause(outageMs);
  // No server was lost for want of a coordinator, and none added.
  assert.equal(new Set((await watch.fresh()).map(({ pid }) => pid)), pids);
  holds(load);
  note(`${load.transactions - before} transactions in ${outageMs} ms without the bus`);

  // Servers that are lost meanwhile come back as far as the floors go, at every worker.
  await load.stop();
  holds(load);
  await postgres.query(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'",
  );
  await until("the servers to end", () => watch.now.length === 0, patienceMs);
  await pause(2 * lease * 1000);
  const again = new Load(host, { clients: 40, sleepMs: 20 });
  await again.more(100);
  const floors = (await watch.fresh()).length;
  assert.ok(floors >= 1 && floors <= limit, `${floors} servers`);
  note(`${floors} servers open again without the bus`);

  await nats.start();
  await inContact(host, 4);
  await allInUse();
  await again.stop();
  holds(again);
  for (const [worker, clients] of await clientsOf(host, 4, 12)) {
    const work = new Work(clients);
    await allInUse();
    note(`all slots moved to worker ${worker} in ${work.ms} ms`);
    await work.stop();
    for (const client of clients) await client.end();
  }
  holds(again);
});

tests.run();
