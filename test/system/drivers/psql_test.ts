// psql through the pooler in both pool modes, one worker and four: scripts with \copy in and out, errors, several
// statements in one query, transactions, descriptions, Ctrl-C. Many run at once, each with rows of its own.
// limit: 400 s

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { signal } from "../../support/processes.ts";
import { tempDir } from "../../support/temp.ts";
import {
  below,
  IN_SESSION,
  type Ran,
  run,
  type RunOptions,
  type Side,
  startSides,
} from "./support.ts";

needs("postgresql");

const AT_ONCE = 4;

const version = Number(/\d+/.exec((await run(["psql", "--version"])).stdout)?.[0]);
const sides = await startSides();
const tests = suite("psql");
const dir = tempDir("psql");

type Target = Pick<Side, "host" | "port" | "database">;

function psql(side: Target, args: readonly string[], options: RunOptions = {}): Promise<Ran> {
  const target = `host=${side.host} port=${side.port} user=postgres dbname=${side.database}`;
  return run(["psql", "-X", "-A", "-t", "-q", ...args, target], options);
}

/** Runs a script and asserts that it ends well; gives its lines. */
async function script(side: Side, input: string): Promise<string[]> {
  const ran = await psql(side, ["-v", "ON_ERROR_STOP=1"], { input });
  assert.equal([ran.code, ran.stderr], [0, ""]);
  return ran.stdout.trimEnd().split("\n");
}

/** Runs `work` several times at once, each with a tag of its own. */
async function atOnce(side: Side, what: string, work: (tag: string) => Promise<void>) {
  await Promise.all(
    below(AT_ONCE).map((at) => work(`${what}-${side.database}-${side.workers}-${at}`)),
  );
}

const inBothModes = sides.all.flatMap((side) => [
  { ...side, name: `in transaction mode, ${side.name}` },
  { ...side, name: `in session mode, ${side.name}`, database: IN_SESSION },
]);

for (const side of inBothModes) {
  tests(`scripts with transactions and several statements in one query, ${side.name}`, async () => {
    await atOnce(side, "script", async (tag) => {
      const lines = await script(
        side,
        `SELECT '${tag}';
        BEGIN; INSERT INTO mine VALUES ('${tag}', 1); SAVEPOINT a;
        INSERT INTO mine VALUES ('${tag}', 2); ROLLBACK TO a; COMMIT;
        BEGIN; INSERT INTO mine VALUES ('${tag}', 3); ROLLBACK;
        SELECT 1 \\; SELECT 2 \\; INSERT INTO mine VALUES ('${tag}', 4) \\; SELECT '${tag}';
        SELECT tag, n FROM mine WHERE tag = '${tag}' ORDER BY n;
        DO $$ BEGIN PERFORM 1; END $$;
        \\set FETCH_COUNT 7
        SELECT n FROM generate_series(1, 20) n;
        SELECT 'SELECT ' || n FROM generate_series(1, 3) n \\gexec
        SET TimeZone = 'Asia/Tokyo';
        SHOW TimeZone;`,
      );
      const numbers = below(20).map((n) => String(n + 1));
      assert.equal(lines, [
        tag,
        ...["1", "2", tag],
        ...[`${tag}|1`, `${tag}|4`],
        ...numbers,
        ...["1", "2", "3"],
        "Asia/Tokyo",
      ]);
    });
  });

  tests(`errors come with their SQLSTATE, and the script goes on, ${side.name}`, async () => {
    await atOnce(side, "error", async (tag) => {
      const input = `SELECT 1/0;
        SELECT '${tag}';
        SELEC 1;
        SELECT 1 \\; SELECT nothing \\; SELECT 2;
        BEGIN;
        INSERT INTO mine VALUES ('${tag}', 1);
        SELECT 1/0;
        SELECT 'ignored';
        COMMIT;
        SELECT count(*) FROM mine WHERE tag = '${tag}';`;
      const ran = await psql(side, ["-v", "VERBOSITY=sqlstate"], { input });
      assert.equal([ran.code, ran.stdout.trim().split("\n")], [0, [tag, "1", "0"]]);
      assert.equal(ran.stderr.match(/(?<=ERROR: {2})\w+/g), [
        "22012",
        "42601",
        "42703",
        "22012",
        "25P02",
      ]);
    });
  });

  tests(`\\copy goes in and out, and fails on a malformed row, ${side.name}`, async () => {
    await atOnce(side, "copy", async (tag) => {
      const path = join(dir, tag);
      const rows = below(3000).map((n) => `${tag}\t${n}\t${"z".repeat(n % 120)}`);
      writeFileSync(`${path}.in`, rows.join("\n") + "\n");
      writeFileSync(`${path}.bad`, [...rows.slice(0, 99), `${tag}\tno number`, ""].join("\n"));
      await script(side, `\\copy copied FROM '${path}.in'\n`);
      const bad = await psql(side, ["-c", `\\copy copied FROM '${path}.bad'`]);
      assert.is(bad.code, 1);
      assert.match(bad.stderr, "invalid input syntax for type integer");
      const lines = await script(
        side,
        `BEGIN;
        COPY copied FROM STDIN;
${rows[7]}
${rows[8]}
\\.
        SELECT count(*) FROM copied WHERE tag = '${tag}';
        ROLLBACK;
        \\copy (SELECT * FROM copied WHERE tag = '${tag}' ORDER BY n) TO '${path}.out'
        COPY (SELECT tag, n FROM copied WHERE tag = '${tag}' AND n < 2 ORDER BY n) TO STDOUT;
        SELECT count(*) FROM copied WHERE tag = '${tag}';`,
      );
      assert.equal(lines, ["3002", `${tag}\t0`, `${tag}\t1`, "3000"]);
      assert.ok(readFileSync(`${path}.out`, "utf8") === readFileSync(`${path}.in`, "utf8"));
    });
  });

  tests(`what is described is what is there, ${side.name}`, async () => {
    const direct = { host: side.postgres.host, port: side.postgres.port };
    const input = [
      "d",
      "d+ mine",
      "dt",
      "di",
      "df lo_*",
      "dn+",
      "du",
      "l",
      "dT int4",
      "dx",
      "sf abs(int4)",
    ]
      .map((command) => `\\${command}\n`).join("");
    const [pooled, wanted] = await Promise.all([
      psql(side, ["-E"], { input }),
      psql({ ...direct, database: "postgres" }, ["-E"], { input }),
    ]);
    assert.equal([pooled.code, pooled.stderr], [0, ""]);
    assert.ok(wanted.stdout.includes("mine_pkey"));
    assert.ok(pooled.stdout === wanted.stdout);
  });

  tests(`a script in one transaction is done or undone, ${side.name}`, async () => {
    await atOnce(side, "single", async (tag) => {
      const insert = (n: number) => ["-c", `INSERT INTO mine VALUES ('${tag}', ${n})`];
      const good = await psql(side, ["-1", ...insert(1), ...insert(2)]);
      assert.is(good.code, 0, good.stderr);
      const input =
        `INSERT INTO mine VALUES ('${tag}', 3);\nINSERT INTO mine VALUES ('${tag}', 1);`;
      const bad = await psql(side, ["-1", "-v", "ON_ERROR_STOP=1", "-f", "-"], { input });
      assert.is(bad.code, 3);
      assert.match(bad.stderr, "duplicate key");
      assert.equal(await script(side, `SELECT n FROM mine WHERE tag = '${tag}';`), ["1", "2"]);
    });
  });

  tests(`\\watch repeats a query until it fails, ${side.name}`, async () => {
    const sequence = `steps_${side.database}_${side.workers}`;
    const input = `CREATE SEQUENCE ${sequence};
      SELECT 6 / (4 - nextval('${sequence}')) AS watched \\watch 0.05
      SELECT 'behind';`;
    const ran = await psql(side, ["-v", "VERBOSITY=sqlstate"], { input });
    assert.equal(ran.stdout.match(/^(\d|behind)$/gm), ["2", "3", "6", "behind"]);
    assert.is(ran.stderr.trim(), "ERROR:  22012");
  });

  tests(`Ctrl-C cancels what runs, and what waits for a server, ${side.name}`, async () => {
    await atOnce(side, "cancel", async (tag) => {
      const started = join(dir, `${tag}.started`);
      let over = false;
      const interrupt = async (pid: number) => {
        await until("psql to start", () => {
          try {
            return readFileSync(started, "utf8").includes("now");
          } catch {
            return false;
          }
        }, 30_000);
        // One that comes before the query has begun does nothing.
        const again = setInterval(() => over ? clearInterval(again) : signal(pid, "SIGINT"), 200);
      };
      const args = ["-v", "VERBOSITY=verbose", "-c", `\\o ${started}`, "-c", "\\qecho now"];
      const ran = await psql(side, [...args, "-c", "\\o", "-c", "SELECT pg_sleep(300)"], {
        running: interrupt,
      }).finally(() => over = true);
      assert.match(ran.stderr, "57014: canceling statement due to user request");
      assert.equal(await script(side, `SELECT '${tag}';`), [tag]);
    });
    await until("the sleeping queries to end", async () => {
      return (await side.postgres.backends()).every((b) => b.state !== "active");
    });
  });

  if (version >= 16) {
    tests(`\\bind sends parameters, ${side.name}`, async () => {
      await atOnce(side, "bind", async (tag) => {
        const lines = await script(
          side,
          `SELECT $1, $2::int + 1 \\bind ${tag} 41 \\g
          SELECT 1 / $1::int \\bind 1 \\g`,
        );
        assert.equal(lines, [`${tag}|42`, "1"]);
      });
    });
  }
}

if (version < 16) console.log(`SKIP \\bind: psql ${version} does not have it`);
sides.check(tests);
tests.run();
