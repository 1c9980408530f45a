// All drivers at once on the same few servers, one worker and four: they have one another's statement names, fail,
// cancel and leave while the others count on their own rows. A while of it, then everything must be as before.
// limit: 400 s

import { join } from "node:path";
import pg from "pg";
import sqlOf from "postgres";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { below, codeOf, run, type Side, startSides, within } from "./support.ts";

needs("postgresql", "python3-psycopg");

const LAST_S = 150;

const sides = await startSides();
const tests = suite("drivers together");

interface Work {
  readonly side: Side;
  /** The programs have not ended yet. */
  readonly goesOn: () => boolean;
}

/** The names that psycopg, pgbench, JDBC, Npgsql, Rails, asyncpg and others give to statements. */
const names = below(5).flatMap((n) => [
  ...[`_pg3_${n}`, `P0_${n}`, `S_${n}`, `_p${n}`, `a${n}`, `__asyncpg_stmt_${n}__`, `s${n}`],
]);

async function nodePostgres({ side, goesOn }: Work, index: number): Promise<void> {
  const tag = `pg ${side.workers} ${index}`;
  while (goesOn()) {
    const client = new pg.Client({
      host: side.host,
      port: side.port,
      user: "postgres",
      database: side.database,
    });
    client.on("error", () => {});
    await client.connect();
    for (let round = 0; round < 3; round++) {
      for (const [n, name] of names.entries()) {
        const text = `SELECT '${tag}' AS tag, $1::int AS n, '${name}' AS name`;
        const { rows } = await client.query({ name, text, values: [n] });
        assert.equal(rows, [{ tag, n, name }]);
      }
      assert.is(await codeOf(client.query({ name: "fails", text: "SELECT 1 / 0" })), "22012");
      await client.query("BEGIN");
      await client.query("INSERT INTO mine VALUES ($1, $2)", [tag, round]);
      // It leaves in the middle of its last transaction.
      if (round < 2) await client.query("ROLLBACK");
    }
    await client.end();
  }
}

async function postgresJs({ side, goesOn }: Work): Promise<void> {
  const sql = sqlOf({
    host: side.host,
    port: side.port,
    user: "postgres",
    database: side.database,
    max: 6,
    max_lifetime: 2,
  });
  for (let n = 0; goesOn(); n++) {
    await Promise.all(
      below(12).map(async (at) => {
        const tag = `js ${side.workers} ${at}`;
        if (at === 7) {
          assert.is(await codeOf(sql`SELECT 1 / ${0}::int`), "22012");
          return;
        }
        const [row] = await sql`SELECT ${tag}::text AS tag, ${n}::int AS n`;
        assert.equal({ ...row }, { tag, n });
        const [other] = await sql.begin(async (sql) => {
          await sql`INSERT INTO mine VALUES (${tag}, ${n})`;
          return await sql`SELECT count(*)::int AS count FROM mine WHERE tag = ${tag}`;
        });
        assert.is(other?.["count"], n + 1);
      }),
    );
  }
  await sql.end({ timeout: 5 });
}

async function program(what: string, command: readonly string[]): Promise<void> {
  const ran = await run(command, { seconds: LAST_S + 30 });
  if (ran.code === 0 && !ran.stderr.includes("ERROR")) return;
  throw new Error(`${what}: exit code ${ran.code}\n${ran.stderr.slice(-2_000)}`);
}

for (const side of sides.all) {
  tests(`all drivers work at once, ${side.name}`, async () => {
    const target = ["-h", side.host, "-p", String(side.port), "-U", "postgres", "postgres"];
    await program("pgbench -i", ["pgbench", "-i", "-q", "-s", "1", ...target]);
    const client = join(import.meta.dirname!, "psycopg_client.py");
    const steps = ["transactions", "pipelines", "cancels", "deallocates"].map((step) =>
      program(step, [
        ...["/usr/bin/python3", client, step, side.host],
        ...[String(side.port), side.database, `mixed ${side.workers}`],
      ])
    );
    const benches = ["simple", "extended", "prepared"].map((protocol) =>
      program(protocol, ["pgbench", "-n", "-M", protocol, "-c4", "-j4", "-t60", ...target])
    );
    let running = true;
    const programs = Promise.all([...steps, ...benches]).finally(() => running = false);
    const work = { side, goesOn: () => running };
    const drivers = below(8).map((index) => nodePostgres(work, index));
    await within(
      "all drivers",
      Promise.all([programs, ...drivers, postgresJs(work)]),
      LAST_S + 60,
    );
    await until("queries to end", async () => {
      return (await side.postgres.backends()).every((b) => b.state !== "active");
    });
    const left = await side.postgres.query("SELECT count(*)::int FROM mine WHERE tag LIKE 'pg %'");
    assert.equal(left, [{ count: 0 }]);
  });
}

sides.check(tests);
tests.run();
