// Cancels for queries that begin at this moment: the client has just been given a server that is being brought to
// its parameters. Some drivers send one cancel only, and wait for ever for what it did not reach.
// limit: 240 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { closeAll, nothingHangs, open, startPair } from "../protocol/support.ts";

needs("postgresql");

const test = suite("cancels of queries that just begin");
let postgres: Postgres;
let pooler: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair({ settings: { default_pool_size: 2 } }));
});
test.after.each(closeAll);
test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

test("each of them reaches its query, in the queue, on the way and on the server", async () => {
  for (let round = 0; round < 25; round++) {
    const clients = [];
    for (let i = 0; i < 8; i++) {
      const parameters = { application_name: `round ${round} client ${i}` };
      clients.push(await open(pooler, { user: "postgres", database: "postgres", parameters }));
    }
    for (const client of clients) client.send(f.Q("SELECT pg_sleep(60)"));
    await until(
      "all to be there",
      async () => {
        const rows = await pooler.console("SHOW POOLS");
        return rows.some((row) => row["cl_waiting"] === "6");
      },
      30_000,
      0,
    );
    await Promise.all(clients.map((client) => client.cancel()));
    for (const client of clients) assert.match(await client.replies(), /E\(57014\) Z\(I\)$/);
    // What comes next is not hit by a cancel that was meant for what was before.
    for (const client of clients) assert.equal(await client.query("SELECT 1"), [["1"]]);
    for (const client of clients) await client.end();
  }
});

test("the pooler and its servers are well after all this", async () => {
  await nothingHangs(pooler, postgres);
});

test.run();
