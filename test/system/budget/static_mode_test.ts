// budget_mode = static: each worker has its part of every limit, whatever the others do, and nobody hands it out.
// limit: 240 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import {
  all,
  assertNeverRefused,
  BackendWatch,
  clientsOf,
  patienceMs,
  startHost,
  startLimitedPostgres,
  Work,
} from "./support.ts";

needs("postgresql");

const postgres = await startLimitedPostgres({ app: 8 });
const host = await startHost({
  postgres,
  pgbouncer: { default_pool_size: 8 },
  pgweir: { budget_mode: "static" },
});
const watch = await BackendWatch.start(postgres);

const tests = suite("static limits");

tests.after(async () => {
  await watch.stop();
  await host.stop();
  await postgres.stop("immediate");
});

tests("there is no coordinator", () => {
  assert.equal(host.servicePids("budget"), []);
});

tests("a worker has its part of the servers and no more, idle as the others may be", async () => {
  const clients = await clientsOf(host, 4, 6);
  for (const own of clients.values()) {
    const pids = new Set<string | null>();
    const round = async () => {
      for (const pid of await all(own, "SELECT pg_backend_pid(), pg_sleep(0.05)")) pids.add(pid);
    };
    // The second one may take longer to be opened than the first takes for all of them.
    await until("a worker to have its part", () => round().then(() => pids.size >= 2), patienceMs);
    await round();
    assert.is(pids.size, 2);
  }
  // Each still has its own.
  assert.is((await watch.fresh()).length, 8);
  const everybody = [...clients.values()].flat();
  const work = new Work(everybody);
  await until("all of them to be in use", () => watch.active === 8, patienceMs, 1);
  await work.stop();
  assert.ok(watch.most <= 8, `${watch.most} backends, wanted 8 at most`);
  assertNeverRefused(postgres);
  for (const client of everybody) await client.end();
});

tests.run();
