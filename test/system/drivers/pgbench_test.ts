// pgbench through the pooler, one worker and four: it creates its tables, runs TPC-B and its read-only script with
// 1 to 256 clients in each protocol, and pipelines. No transaction may fail, and afterwards the books must balance.
// limit: 400 s

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { assert, suite } from "../../support/harness.ts";
import { findProgram, needs } from "../../support/needs.ts";
import { tempDir } from "../../support/temp.ts";
import { type Ran, run, type Side, startSides } from "./support.ts";

needs("postgresql");
const program = findProgram("pgbench") ?? "/usr/lib/postgresql/15/bin/pgbench";

/** Clients, and transactions of each. */
const LOADS = [[1, 100], [8, 40], [64, 8], [256, 2]] as const;
const PROTOCOLS = ["simple", "extended", "prepared"] as const;

const PIPELINE = `\\set aid random(1, 100000)
\\set delta random(-5000, 5000)
\\startpipeline
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = 1;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 1, :aid, :delta, now());
COMMIT;
SELECT 1;
\\endpipeline
`;

const sides = await startSides({ settings: { default_pool_size: 4 } });
const tests = suite("pgbench");
const dir = tempDir("pgbench");

async function pgbench(side: Side, args: readonly string[]): Promise<Ran> {
  const target = ["-h", side.host, "-p", String(side.port), "-U", "postgres"];
  const command = [program, ...args, ...target, `bench${side.workers}`];
  const ran = await run(command, { seconds: 120 });
  if (ran.code !== 0 || /error|abort/i.test(ran.stderr)) {
    throw new Error(`${command.join(" ")}: exit code ${ran.code}\n${ran.stderr.slice(-2_000)}`);
  }
  return ran;
}

/** Runs and checks that every transaction was processed. */
async function bench(side: Side, clients: number, each: number, args: readonly string[]) {
  // A thread for each client: pgbench prepares statements in one call that blocks the thread, and its other
  // clients may hold the servers which that call waits for.
  const load = ["-c", String(clients), "-j", String(clients), "-t", String(each), "-n"];
  const { stdout } = await pgbench(side, [...load, ...args]);
  const total = clients * each;
  assert.match(stdout, `transactions actually processed: ${total}/${total}`);
  assert.match(stdout, "number of failed transactions: 0");
}

for (const side of sides.all) {
  const database = `bench${side.workers}`;
  let deltas = 0;

  tests(`pgbench -i makes its tables, ${side.name}`, async () => {
    await sides.postgres.query(`CREATE DATABASE ${database}`);
    await pgbench(side, ["-i", "-s", "1", "-q"]);
    await pgbench(side, ["-c", "1", "-t", "1", "-S"]);
  });

  for (const [clients, each] of LOADS) {
    tests(`${clients} clients in every protocol, ${side.name}`, async () => {
      for (const protocol of PROTOCOLS) {
        await bench(side, clients, each, ["-M", protocol]);
        deltas += clients * each;
        await bench(side, clients, 4 * each, ["-M", protocol, "-S"]);
      }
    });
  }

  tests(`a connection for each transaction, ${side.name}`, async () => {
    await bench(side, 8, 10, ["-M", "prepared", "-C"]);
    deltas += 80;
  });

  tests(`pipelines, ${side.name}`, async () => {
    const file = join(dir, "pipeline.sql");
    writeFileSync(file, PIPELINE);
    for (const protocol of ["extended", "prepared"]) {
      await bench(side, 16, 15, ["-M", protocol, "-f", file]);
      deltas += 16 * 15;
    }
  });

  tests(`the books balance, ${side.name}`, async () => {
    const [sums] = await sides.postgres.query(
      `SELECT (SELECT sum(abalance) FROM pgbench_accounts)::int AS accounts,
        (SELECT sum(tbalance) FROM pgbench_tellers)::int AS tellers,
        (SELECT sum(bbalance) FROM pgbench_branches)::int AS branches,
        (SELECT sum(delta) FROM pgbench_history)::int AS deltas,
        (SELECT count(*) FROM pgbench_history)::int AS count`,
      [],
      database,
    );
    const sum = sums!["accounts"];
    assert.is(typeof sum, "number");
    assert.equal(sums, { accounts: sum, tellers: sum, branches: sum, deltas: sum, count: deltas });
  });
}

sides.check(tests);
tests.run();
