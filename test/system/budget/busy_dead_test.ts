// A worker is killed while its backends are at work: PostgreSQL does not notice before they are done. With a login
// for the coordinator (budget_auth) their slots are given again only when the backends are gone.
// limit: 400 s
// load: waits

import { assert, suite, until } from "../../support/harness.ts";
import { startNats } from "../../support/nats.ts";
import { findProgram, needs } from "../../support/needs.ts";
import { signal } from "../../support/processes.ts";
import {
  assertNeverRefused,
  BackendWatch,
  clientsOf,
  Load,
  note,
  ownerOf,
  patienceMs,
  pause,
  runUntilTold,
  startHost,
  startLimitedPostgres,
  workerIdOf,
} from "./support.ts";

needs("postgresql");

const limit = 8;
const slow = "SELECT /* slow */";
/** In seconds. */
const lease = 3;

const tests = suite("a worker that dies while its backends work");

for (const bus of ["embedded bus", "nats-server"]) {
  // Twice the limit ran: the backends of the dead worker, and those of the workers that got its slots.
  const title = `its slots are given again when they are done, ${bus}`;
  if (bus === "nats-server" && findProgram("nats-server") === null) continue;
  tests(title, async () => {
    const nats = bus === "nats-server" ? await startNats({ jetstream: true }) : null;
    const postgres = await startLimitedPostgres({ app: limit });
    const host = await startHost({
      postgres,
      nats,
      pgbouncer: { default_pool_size: limit, max_db_connections: limit },
      pgweir: {
        budget_lease: lease,
        budget_auth: "user=postgres dbname=postgres",
      },
    });
    const watch = await BackendWatch.start(postgres);
    const clients = await clientsOf(host, 4, 5);
    const dying = host.workerPids()[0]!;
    const worker = workerIdOf(dying);
    const idle = [...clients.values()].flat().filter((client) => ownerOf(client) !== worker);
    for (const client of idle) client.close();
    const work = await runUntilTold(postgres, clients.get(worker)!, slow);
    const busy = () =>
      watch.now.filter(({ query, state }) => query.startsWith(slow) && state === "active");
    await until("them to run", () => busy().length === 5, patienceMs);
    const load = new Load(host, { clients: 60, sleepMs: 20 });
    load.loses(worker);
    await until("the rest to be in use", () => watch.active === limit, patienceMs);
    signal(dying, "SIGKILL");
    const began = performance.now();
    // Those who are left have what is left, as long as they run: for longer than what the dead worker has leased.
    await load.more(60);
    await pause(2_000 * lease);
    await watch.fresh();
    assert.is(busy().length, 5);
    work.end();
    await until("them to be done", () => busy().length === 0, patienceMs);
    note(
      `the backends of the dead worker ran for ${Math.round(performance.now() - began)} ms more`,
    );
    await until("all slots to be in use", () => watch.active === limit, patienceMs, 10);
    note(`all slots were in use ${Math.round(performance.now() - began)} ms after its death`);
    await load.stop();
    assert.equal(load.errors, []);
    assert.ok(watch.most <= limit, `${watch.most} backends, wanted ${limit} at most`);
    assertNeverRefused(postgres);
    await watch.stop();
    await host.stop();
    await nats?.stop();
    await postgres.stop("immediate");
  });
}

tests.run();
