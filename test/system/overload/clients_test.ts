// Drivers and tools while half of all transactions are refused: node-postgres that tries again, and pgbench, which tries
// again what could not be serialized, and nothing else. In the end all work is done, and done once.
// limit: 360 s

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { startEmbedded } from "../../bus/brokers.ts";
import { assert, suite } from "../../support/harness.ts";
import { findProgram, needs } from "../../support/needs.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { tempDir } from "../../support/temp.ts";
import { type Fleet, startFleet } from "../cancel/fleet.ts";
import { type Ran, run } from "../drivers/support.ts";
import { Monitor, shedCounts } from "./support.ts";

needs("postgresql");

const tests = suite("clients on overload");
const program = findProgram("pgbench") ?? "/usr/lib/postgresql/15/bin/pgbench";
const script = join(tempDir("pgbench"), "marks.sql");
let postgres: Postgres;
let fleet: Fleet;
let pooler: Pgweir;
let monitor: Monitor;

tests.before(async () => {
  postgres = await startPostgres();
  await postgres.query("CREATE TABLE marks (who text)");
  writeFileSync(
    script,
    "BEGIN;\nINSERT INTO marks VALUES ('bench');\nSELECT count(*) FROM marks;\nCOMMIT;\n",
  );
  fleet = await startFleet(startEmbedded, [1], {
    databases: { shop: `host=127.0.0.1 port=${postgres.port} dbname=postgres` },
    pgbouncer: { default_pool_size: 3 },
  });
  pooler = fleet.worker(1);
  monitor = await Monitor.join(fleet.broker);
});

tests.before.each(async () => {
  await monitor.decide(pooler, "shop", { transactions: 0.5 });
});

tests.after(async () => {
  await monitor.bus.close();
  await fleet.stop();
  await postgres.stop("immediate");
});

async function marksOf(who: string): Promise<number> {
  const [row] = await postgres.query("SELECT count(*) AS n FROM marks WHERE who = $1", [who]);
  return Number(row!["n"]);
}

function pgbench(...more: readonly string[]): Promise<Ran> {
  const target = ["-h", pooler.host, "-p", String(pooler.port), "-U", "postgres"];
  const load = ["-n", "-c", "4", "-j", "2", "-t", "50", "-f", script];
  return run([program, ...load, ...more, ...target, "shop"], { seconds: 120 });
}

/** As the operator's guide has it. */
async function transaction<T>(pool: pg.Pool, work: (pool: pg.Pool) => Promise<T>): Promise<T> {
  for (let n = 0;; n++) {
    try {
      return await work(pool);
    } catch (error) {
      if (!["53000", "57P03"].includes((error as { code?: string }).code ?? "")) throw error;
      if (n >= 40) throw error;
      await new Promise((done) => setTimeout(done, Math.random() * 2 ** Math.min(n, 4)));
    }
  }
}

tests("node-postgres that tries again does everything once", async () => {
  const { host, port } = pooler;
  const pool = new pg.Pool({ host, port, user: "postgres", database: "shop", max: 8 });
  try {
    const before = (await shedCounts(pooler, "shop")).transactions;
    await Promise.all([...Array(150).keys()].map((n) =>
      transaction(pool, async (each) => {
        if (n % 3 === 0) {
          const client = await each.connect();
          try {
            await client.query("BEGIN");
            await client.query("INSERT INTO marks VALUES ($1)", ["pg"]);
            await client.query("COMMIT");
          } finally {
            client.release();
          }
        } else {
          // A named statement, which is prepared again as often as its Parse is refused.
          const text = "INSERT INTO marks VALUES ($1)";
          await each.query(
            n % 3 === 1 ? { text, values: ["pg"] } : { name: "n", text, values: ["pg"] },
          );
        }
      })
    ));
    assert.is(await marksOf("pg"), 150);
    assert.ok((await shedCounts(pooler, "shop")).transactions > before);
  } finally {
    await pool.end();
  }
});

tests("pgbench gives up at the SQLSTATE 53000, and survives with 40001", async () => {
  const lost = await pgbench("--max-tries=100");
  assert.is(lost.code, 2);
  assert.match(lost.stderr, /server overloaded: the transaction was refused/);
  await pooler.console("SET overload_sqlstate = '40001'");
  for (const protocol of ["simple", "extended"]) {
    await postgres.query("TRUNCATE marks");
    const ran = await pgbench("--max-tries=100", "-M", protocol);
    assert.is(ran.code, 0, ran.stderr);
    assert.match(ran.stdout, "transactions actually processed: 200/200");
    assert.match(ran.stdout, "number of failed transactions: 0");
    assert.match(ran.stdout, /number of transactions retried: [1-9]/);
    assert.is(await marksOf("bench"), 200);
  }
});

tests.run();
