// Scripts of pgbench in both pool modes, one worker and four: 20 clients that check what they read in every protocol,
// libpq's pipelines, conflicts that pgbench retries, also within a pipeline. Afterwards each client's rows are there,
// once, and no others.
// limit: 400 s

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { assert, suite } from "../../support/harness.ts";
import { findProgram, needs } from "../../support/needs.ts";
import { tempDir } from "../../support/temp.ts";
import { CLIENTS, IN_SESSION, run as runProgram, type Side, startSides } from "./support.ts";

needs("postgresql");
const program = findProgram("pgbench") ?? "/usr/lib/postgresql/15/bin/pgbench";

const EACH = 10;

/** A client that reads what is not its own ends, and pgbench with it. */
const CHECK = `\\if :client <> :client_id OR :got <> :n
\\set failed 1 / 0
\\endif`;
// Parameters have no type of their own in the extended protocol.
const OWN = "'bench ' || :run::int || ' ' || :client_id::int";
const add = (row: string) =>
  `UPDATE counted SET n = n + 1 WHERE tag = 'bench ' || :run::int || ' ' || ${row}::int;`;

/** Each client writes one row in a transaction: its tag and 1, 2, 3 ... */
const WRITING = {
  "read their own rows": `\\set n random(1, 1000000)
SELECT :client_id AS client, :n AS got, 'text' AS text \\gset
${CHECK}
\\set k :k + 1
INSERT INTO mine VALUES (${OWN}, :k);
BEGIN;
SELECT :client_id AS client, count(*) AS got, :k AS n FROM mine WHERE tag = ${OWN} \\gset
${CHECK}
END;`,
  "pipeline": `\\set k :k + 1
\\set n :k
\\startpipeline
SELECT :client_id, :k;
INSERT INTO mine VALUES (${OWN}, :k);
BEGIN;
SELECT count(*) FROM numbers WHERE n < :k;
UPDATE mine SET n = n WHERE tag = ${OWN} AND n = :k;
COMMIT;
\\endpipeline
SELECT :client_id AS client, count(*) AS got FROM mine WHERE tag = ${OWN} \\gset
${CHECK}`,
};

/** Each transaction counts two rows up; what fails is tried again by pgbench. */
const COUNTING = {
  "serialization failures": `BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT n AS seen FROM counted WHERE tag = 'bench ' || :run::int || ' 0' \\gset
UPDATE counted SET n = :seen + 1 WHERE tag = 'bench ' || :run::int || ' 0';
${add("1")}
COMMIT;`,
  "deadlocks": `\\set a random(0, 1)
\\set b 1 - :a
BEGIN;
${add(":a")}
${add(":b")}
COMMIT;`,
  "failures within a pipeline": `\\startpipeline
BEGIN ISOLATION LEVEL REPEATABLE READ;
${add("0")}
${add("1")}
COMMIT;
\\endpipeline`,
};

const sides = await startSides();
const tests = suite("scripts of pgbench");
const dir = tempDir("pgbench");
let run = 0;

/** Runs a script with every client, each on a thread of its own; gives the number of the run. */
async function bench(
  side: Side,
  script: string,
  protocol: string,
  count = CLIENTS,
): Promise<number> {
  run++;
  await side.postgres.query(
    `INSERT INTO counted VALUES ('bench ${run} 0', 0), ('bench ${run} 1', 0)`,
  );
  const file = join(dir, `${run}.sql`);
  writeFileSync(file, `${script}\n`);
  const clients = String(count);
  const ran = await runProgram([
    ...[program, "-n", "-M", protocol, "-c", clients, "-j", clients, "-t", String(EACH)],
    ...["-f", file, "-D", `run=${run}`, "-D", "k=0", "--max-tries=10000"],
    ...["-h", side.host, "-p", String(side.port), "-U", "postgres", side.database],
  ]);
  const total = count * EACH;
  assert.is(ran.code, 0, ran.stderr.slice(-2_000));
  assert.match(ran.stdout, `transactions actually processed: ${total}/${total}`);
  assert.match(ran.stdout, "number of failed transactions: 0");
  return run;
}

for (const side of sides.all) {
  for (const mode of ["transaction", "session"]) {
    const target = mode === "session" ? { ...side, database: IN_SESSION } : side;
    const place = `in ${mode} mode, ${side.name}`;

    for (const [what, script] of Object.entries(WRITING)) {
      const protocols = what === "pipeline" ? [] : ["simple"];
      tests(`20 clients ${what}, ${place}`, async () => {
        for (const protocol of [...protocols, "extended", "prepared"]) {
          const number = await bench(target, script, protocol);
          const rows = await side.postgres.query(
            `SELECT count(DISTINCT tag)::int AS tags, count(*)::int AS rows, sum(n)::int AS sum
              FROM mine WHERE tag LIKE 'bench ${number} %'`,
          );
          const sum = CLIENTS * EACH * (EACH + 1) / 2;
          assert.equal(rows, [{ tags: CLIENTS, rows: CLIENTS * EACH, sum }]);
        }
      });
    }

    for (const [what, script] of Object.entries(COUNTING)) {
      tests(`${what} are tried again, ${place}`, async () => {
        // Each deadlock holds everybody up for as long as PostgreSQL takes to notice.
        const count = what === "deadlocks" ? 4 : CLIENTS;
        const number = await bench(target, script, "prepared", count);
        const rows = await side.postgres.query(
          `SELECT n FROM counted WHERE tag LIKE 'bench ${number} %'`,
        );
        assert.equal(rows, [{ n: count * EACH }, { n: count * EACH }]);
      });
    }
  }
}

sides.check(tests);
tests.run();
