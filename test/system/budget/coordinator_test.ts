// No coordinator is there when the first clients come: they wait for one, and are told for whom they waited when
// they have waited long enough. Where limits are divided there is no coordinator to wait for.
// limit: 400 s
// load: waits

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { freeze, signal } from "../../support/processes.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";
import { coordinatorOf, login, patienceMs, startHost } from "./support.ts";

needs("postgresql");

const postgres = await startPostgres();
await postgres.query("CREATE ROLE app LOGIN");

/** A host whose coordinator was frozen before any client came. */
async function withoutCoordinator(pgbouncer: Record<string, number>): Promise<[Pgweir, number]> {
  const host = await startHost({ postgres, workers: 2, pgbouncer });
  const coordinator = await coordinatorOf(host);
  await freeze(coordinator);
  return [host, coordinator];
}

const tests = suite("no coordinator");

tests.after(() => postgres.stop("immediate"));

// They were refused at once, with the error of a limit that was not reached.
tests("clients that come before a coordinator wait, and are served when it comes", async () => {
  const [host, coordinator] = await withoutCoordinator({ default_pool_size: 4 });
  const clients = await Promise.all(Array.from({ length: 20 }, () => RawClient.connect(host)));
  for (const client of clients) {
    client.startup({ user: "app", database: "app" });
    client.send(f.Q("SELECT 7"));
  }
  const logins = clients.map((client) => client.authenticate(login));
  assert.is(await Promise.race([...logins, clients[0]!.readNothingFor(2_000)]), undefined);
  assert.is((await postgres.backends()).length, 0);
  // One that was killed is replaced, and the one that follows must find its way in as well.
  signal(coordinator, "SIGKILL");
  await Promise.all(logins);
  for (const client of clients) {
    assert.is(await client.replies(1, { timeoutMs: patienceMs }), 'T D C"SELECT 1" Z(I)');
    await client.end();
  }
  await host.stop();
});

tests("who waits in vain is told that the coordinator is missing", async () => {
  const [host, coordinator] = await withoutCoordinator({ query_wait_timeout: 2 });
  const error = await RawClient.login(host, login).then(() => null, (error) => error);
  assert.instance(error, ServerError);
  assert.is((error as ServerError).code, "53300");
  assert.is((error as ServerError).fields.message, "query_wait_timeout");
  assert.match(String((error as ServerError).fields.hint), /coordinator/);
  signal(coordinator, "SIGCONT");
  await until(
    "service",
    () => RawClient.login(host, login).then((client) => client.end().then(() => true), () => false),
    patienceMs,
  );
  await host.stop();
});

tests.run();
