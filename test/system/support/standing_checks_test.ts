// The standing checks, proved against Debian's PgBouncer: they pass on a healthy pooler and see what is wrong.
// load: waits

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgbouncer, startPgbouncer } from "../../support/pgbouncer.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { childrenOf, processInfo } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import { standingChecks } from "../../support/standing_checks.ts";

needs("pgbouncer");

const login = { user: "postgres", database: "postgres" };
const postgres: Postgres = await startPostgres();
const pooler: Pgbouncer = await startPgbouncer({
  ini: { databases: { postgres: `host=127.0.0.1 port=${postgres.port}` } },
});
const options = { idleMs: 100 };
/** Where something never comes to rest. */
const hasty = { ...options, settleMs: 400 };

async function complaints(checks: { verify(): Promise<void> }): Promise<string> {
  try {
    await checks.verify();
    return "";
  } catch (error) {
    return (error as Error).message;
  }
}

const tests = suite("standingChecks");

tests.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

tests("Pooler.console() gives rows by column name", async () => {
  const databases = await pooler.console("SHOW DATABASES");
  assert.is(databases.find((row) => row["name"] === "postgres")?.["port"], String(postgres.port));
  assert.equal(pooler.workerPids(), [pooler.pid]);
  const client = await RawClient.login({ path: pooler.socketPath }, login);
  assert.equal(await client.query("SELECT 1"), [["1"]]);
  await client.end();
});

tests("verify() is content with a healthy pooler", async () => {
  const checks = await standingChecks(pooler, postgres, login, options);
  const client = await RawClient.login(pooler, login);
  await client.query("BEGIN; SELECT 1; COMMIT");
  await client.end();
  assert.is(await complaints(checks), "");
});

tests("verify() sees a transaction left open, with its client", async () => {
  const checks = await standingChecks(pooler, postgres, login, hasty);
  const client = await RawClient.login(pooler, login);
  await client.query("BEGIN");
  const said = await complaints(checks);
  assert.match(said, /backends are stuck: \d+ idle in transaction/);
  assert.match(said, /console counts cl_active=\d+/);
  client.close();
});

tests("verify() sees files left open", async () => {
  const checks = await standingChecks(pooler, postgres, login, hasty);
  const clients = await Promise.all(
    Array.from({ length: 9 }, () => RawClient.login(pooler, login)),
  );
  assert.match(await complaints(checks), /has \d+ more open files/);
  for (const client of clients) client.close();
});

tests("verify() sees that the pooler has ended", async () => {
  const own = await startPgbouncer({
    ini: { databases: { postgres: `host=127.0.0.1 port=${postgres.port}` } },
  });
  const checks = await standingChecks(own, postgres, login, hasty);
  await own.kill();
  assert.match(await complaints(checks), /process \d+ of the pooler has ended/);
});

tests("Postgres.signal() freezes the whole server and lets it go on", async () => {
  const client = await RawClient.login(pooler, login);
  client.send(f.Q("SELECT pg_sleep(0.01)"));
  await client.replies();
  await client.end();
  const frozen = [postgres.pid, ...childrenOf(postgres.pid)];
  postgres.signal("SIGSTOP", "all");
  await until("all to stop", () => frozen.every((pid) => processInfo(pid)?.state === "T"));
  const waiting = await RawClient.login(pooler, login);
  waiting.send(f.Q("SELECT 1"));
  await waiting.readNothingFor(50);
  postgres.signal("SIGCONT", "all");
  assert.is(await waiting.replies(), 'T D C"SELECT 1" Z(I)');
  await waiting.end();
});

tests.run();
