// min_pool_size in a fleet: each worker keeps its part for clients it has, within all limits; and what is kept for
// nobody is the first that others get, who then keep it.
// load: waits
// limit: 400 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { RawClient } from "../../support/raw_client.ts";
import {
  all,
  assertNeverRefused,
  BackendWatch,
  clientsOf,
  patienceMs,
  pause,
  startHost,
  startLimitedPostgres,
} from "./support.ts";

needs("postgresql");

const limit = 4;
const workers = 2;
const users = ["ann", "bob"];
const postgres = await startLimitedPostgres(Object.fromEntries(users.map((user) => [user, limit])));
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
const host = await startHost({
  postgres,
  users,
  workers,
  databases: { app: `${at} min_pool_size=3`, shop: at },
  pgbouncer: { default_pool_size: limit, max_db_connections: 0, max_user_connections: limit },
});
const watch = await BackendWatch.start(postgres, 5);
const of = (user: string) => watch.count(({ usename }) => usename === user);

const tests = suite("min_pool_size of a fleet");

tests.after(async () => {
  await watch.stop();
  await host.stop();
  await postgres.stop("immediate");
});

tests(
  "workers keep their parts, give them up to who needs them, and don't take them back",
  async () => {
    const who = { user: "ann", database: "app" };
    const byWorker = await clientsOf(host, workers, 1, who);
    // Two for each, rounded up.
    await until("the minimum to be there", () => of("ann") === 4, patienceMs);
    // Another database's clients of the same user need all that this user may have.
    const shop = await Promise.all(
      Array.from({ length: limit }, () => RawClient.login(host, { user: "ann", database: "shop" })),
    );
    const pids = await all(shop, "BEGIN; SELECT pg_backend_pid()");
    assert.is(new Set(pids).size, limit);
    await pause(2_000);
    await watch.fresh();
    assert.equal(
      watch.now.filter(({ usename }) => usename === "ann").map(({ pid }) => String(pid)).sort(),
      pids.map(String).sort(),
    );
    // Clients that wait get what comes free, not the minimum.
    const first = [...byWorker.values()][0]![0]!;
    const answer = first.query("SELECT 'served'", patienceMs);
    await shop[0]!.query("COMMIT");
    assert.equal(await answer, [["served"]]);
    await all(shop.slice(1), "COMMIT; SELECT 1");
    for (const client of [...byWorker.values()].flat()) client.close();
    for (const client of shop) client.close();
    assert.ok(watch.most <= limit, `${watch.most} backends, wanted ${limit} at most`);
    assertNeverRefused(postgres);
  },
);

tests.run();
