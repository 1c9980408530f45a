// test/support/pgweir.ts starts, asks, stops and crashes a real pgweir, alone and supervised.

import { assert, suite, until } from "../../support/harness.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { isAlive } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import { standingChecks } from "../../support/standing_checks.ts";

const login = { user: "postgres", database: "postgres" };
const postgres = await startPostgres();
/** On a busy machine some of the code is compiled later than in the warm-up. */
const limits = { idleMs: 200, residentGrowthBytes: 16 * 2 ** 20 };
const ini = { databases: { postgres: `host=127.0.0.1 port=${postgres.port}` } };

const tests = suite("startPgweir");

tests.after(() => postgres.stop("immediate"));

tests("startPgweir() starts one worker that serves and stops", async () => {
  const pgweir = await startPgweir({ ini });
  assert.equal(pgweir.workerPids(), [pgweir.pid]);
  const checks = await standingChecks(pgweir, postgres, login, limits);
  const client = await RawClient.login(pgweir, login);
  assert.equal(await client.query("SELECT 7"), [["7"]]);
  await client.end();
  await checks.verify();
  const databases = await pgweir.console("SHOW DATABASES");
  assert.ok(databases.some((row) => row["name"] === "postgres"));
  assert.equal(await pgweir.stop(), { code: 0, signal: null });
});

tests("startPgweir() starts a supervised host with all its workers", async () => {
  const pgweir = await startPgweir({ ini, workers: 2 });
  const workers = pgweir.workerPids();
  assert.is(workers.length, 2);
  assert.not(workers.includes(pgweir.pid));
  const checks = await standingChecks(pgweir, postgres, login, limits);
  await checks.verify();
  assert.is((await pgweir.stop()).code, 0);
  assert.not(workers.some(isAlive));
});

tests("Pgweir.crash() ends the supervisor and its workers at once", async () => {
  const pgweir = await startPgweir({ ini, workers: 2 });
  const workers = pgweir.workerPids();
  await pgweir.crash();
  assert.not([pgweir.pid, ...workers].some(isAlive));
});

tests("Pgweir.kill() ends the supervisor, and its workers notice", async () => {
  const pgweir = await startPgweir({ ini, workers: 2 });
  const workers = pgweir.workerPids();
  await pgweir.kill();
  await until("the workers to end", () => !workers.some(isAlive));
});

tests("startPgweir() fails at once with what the process said", async () => {
  let said = "";
  await startPgweir({ ini: { pgbouncer: { pool_mode: "nonsense" } } }).catch((e) =>
    said = e.message
  );
  assert.match(said, "the process has ended");
  assert.match(said, "pool_mode");
});

tests.run();
