// Tables that are changed through one worker of a fleet: what clients of the other workers prepare from then on is
// prepared anew there as well.

import { cancelKeyWorker } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import type { Login, RawClient } from "../../support/raw_client.ts";
import { closeAll, open } from "./support.ts";

needs("postgresql");

const postgres = await startPostgres();
const pgweir = await startPgweir({
  workers: 2,
  ini: {
    databases: { app: `host=127.0.0.1 port=${postgres.port} dbname=postgres` },
    pgbouncer: { default_pool_size: 6 },
  },
  userlist: { postgres: "", admin: "" },
});

const tests = suite("changed tables");

const app: Login = { user: "postgres", database: "app" };
const admin: Login = { user: "admin", database: "pgbouncer" };
const workerOf = (client: RawClient) => cancelKeyWorker(client.key!.processId, client.key!.secret);

tests.after.each(closeAll);

tests.after(async () => {
  await pgweir.stop();
  await postgres.stop("immediate");
});

/** A client of this worker; of any but that one. */
async function openOn(login: Login, isWanted: (worker: number) => boolean): Promise<RawClient> {
  return await until("a client on the worker", async () => {
    const client = await open(pgweir, login);
    if (isWanted(workerOf(client))) return client;
    client.close();
    return null;
  }, 30_000);
}

async function prepared(client: RawClient, sql: string): Promise<string> {
  client.send(f.P("s", sql), f.B("", "s"), f.E(), f.S());
  return await client.replies();
}

/** `T`: a table, `V`: a view of each test's own. */
const changes = [
  ["ALTER TABLE", "T", "ALTER TABLE T ADD COLUMN more int"],
  ["ALTER TABLE in a transaction", "T", "BEGIN; ALTER TABLE T ALTER COLUMN id TYPE text; COMMIT"],
  ["DROP and CREATE", "T", "DROP TABLE T; CREATE TABLE T AS SELECT 1 AS a, 2 AS b"],
  ["CREATE OR REPLACE VIEW", "V", "CREATE OR REPLACE VIEW V AS SELECT 1 AS one, 2 AS two"],
] as const;

// Whoever prepared `SELECT *` behind an ALTER TABLE of another worker was given what a server had, and "cached plan
// must not change result type" for it.
for (const [at, [what, from, change]] of changes.entries()) {
  tests(`${what} through another worker: who prepares then has no error`, async () => {
    const named = (sql: string) => sql.replace(/\b[TV]\b/g, (kind) => `${kind}${at}`);
    await postgres.query(named("CREATE TABLE T AS SELECT 1 AS id"));
    await postgres.query(named("CREATE VIEW V AS SELECT 1 AS one"));
    const sql = named(`SELECT * FROM ${from}`);
    const changer = await openOn(app, () => true);
    const isOther = (worker: number) => worker !== workerOf(changer);
    const boss = await openOn(admin, (worker) => !isOther(worker));
    const before = await openOn(app, isOther);
    assert.is(await prepared(before, sql), '1 2 D C"SELECT 1" Z(I)');
    changer.send(f.Q(named(change)));
    assert.match(await changer.replies(), /Z\(I\)$/);
    // It takes the same way as what was said before it, and behind that. Who is too busy to answer is named in a notice.
    await until("all workers to answer", async () => {
      boss.send(f.Q("ENABLE app"));
      return await boss.replies() === 'C"ENABLE" Z(I)';
    });
    for (let i = 0; i < 5; i++) {
      const client = await openOn(app, isOther);
      assert.is(await prepared(client, sql), '1 2 D C"SELECT 1" Z(I)', `client ${i}`);
    }
  });
}

tests.run();
