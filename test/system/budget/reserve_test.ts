// The reserve of a pool is one for the whole fleet: used when clients have waited, by whichever worker, and never
// more than its size, whatever dies.
// load: waits
// limit: 400 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { isAlive, signal } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import {
  assertNeverRefused,
  BackendWatch,
  Load,
  login,
  note,
  patienceMs,
  startHost,
  startLimitedPostgres,
  workerIdOf,
} from "./support.ts";

needs("postgresql");

const size = 4;
const reserve = 2;
const all = size + reserve;
const workers = 3;
const postgres = await startLimitedPostgres({ app: all });
const host = await startHost({
  postgres,
  workers,
  pgbouncer: {
    default_pool_size: size,
    reserve_pool_size: reserve,
    reserve_pool_timeout: 1,
    query_wait_notify: 0,
  },
  pgweir: { budget_lease: 3 },
});
const watch = await BackendWatch.start(postgres);

const tests = suite("the reserve of a fleet");

tests.after(async () => {
  await watch.stop();
  await host.stop();
  await postgres.stop("immediate");
});

tests("all of it is used for clients that have waited, and given back", async () => {
  const clients = await Promise.all(
    Array.from({ length: 12 }, () => RawClient.login(host, login)),
  );
  const began = performance.now();
  const pids = new Set<string>();
  const first: number[] = [];
  const open = clients.map(async (client) => {
    await client.query("BEGIN", 60_000);
    first.push(performance.now() - began);
    pids.add((await client.query("SELECT pg_backend_pid()"))[0]![0]!);
    if (first.length >= all) return;
    // The others wait for as long as it takes to use the reserve.
    await until("the reserve to be used", () => first.length >= all, patienceMs);
  });
  await until("the pool and the reserve to be used", () => pids.size === all, patienceMs);
  note(`servers after ${first.map((ms) => Math.round(ms)).join(", ")} ms`);
  for (const ms of first.slice(size)) assert.ok(ms >= 990, `${ms} ms`);
  await watch.fresh();
  assert.is(watch.now.length, all);
  for (const client of clients) client.close();
  await Promise.allSettled(open);
  await until("the reserve to be given back", () => watch.now.length <= size, patienceMs);
  assert.ok(watch.most <= all, `${watch.most} backends, wanted ${all} at most`);
  assertNeverRefused(postgres);
});

tests("a worker that is killed with a part of it is no loss, and no gain", async () => {
  const load = new Load(host, { clients: 60, sleepMs: 400 });
  const inUse = () => until("all to be in use", () => watch.active === all, patienceMs, 10);
  await inUse();
  for (let round = 0; round < 2; round++) {
    const pid = host.workerPids()[round]!;
    load.loses(workerIdOf(pid));
    signal(pid, "SIGKILL");
    await until("its end", () => !isAlive(pid), patienceMs);
    await until("a successor", () => host.workerPids().length === workers, patienceMs);
    await load.more(40);
    await inUse();
  }
  await load.stop();
  assert.equal(load.errors, []);
  assert.ok(watch.most <= all, `${watch.most} backends, wanted ${all} at most`);
  assertNeverRefused(postgres);
  note(`${watch.samples} looks, ${watch.most} backends at most, ${load.transactions} transactions`);
});

tests.run();
