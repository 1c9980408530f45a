// What postgres.js is asked to do through the pooler in every pool mode: it prepares and pipelines everything by
// default. Every value is checked to be the caller's own, every error to be the one that was provoked. Not a test.

import { pipeline } from "node:stream/promises";
import { Readable, type Writable } from "node:stream";
import sqlOf from "postgres";
import { assert, type Test, until } from "../../support/harness.ts";
import { conflicts } from "./conflicts.ts";
import { below, CLIENTS, codeOf, type Side, within } from "./support.ts";

type Sql = sqlOf.Sql;

interface CopyQuery {
  writable(): Promise<Writable>;
}

async function write(query: CopyQuery, chunks: readonly string[]): Promise<void> {
  await pipeline(Readable.from(chunks), await query.writable());
}

/** What a copy fails with; the stream stays open, since the driver tells no error to one that was ended. */
async function failureOf(query: CopyQuery, chunks: readonly string[]): Promise<string> {
  const stream = await query.writable();
  const failed = new Promise<never>((_, reject) => stream.once("error", reject));
  for (const chunk of chunks) stream.write(chunk);
  return await codeOf(failed);
}

/** Runs `work` with drivers that have twenty connections together, all at once, and ends them. */
export async function withDrivers(
  side: Side,
  what: string,
  work: (sql: Sql, tag: string) => Promise<void>,
  more: sqlOf.Options<Record<string, never>> = {},
  count = 2,
): Promise<void> {
  const drivers = below(count).map(() =>
    sqlOf({
      host: side.host,
      port: side.port,
      user: "postgres",
      database: side.database,
      max: CLIENTS / count,
      onnotice: () => {},
      ...more,
    })
  );
  try {
    const all = drivers.map((sql, index) => work(sql, `${what}/${side.workers}/${index}`));
    await within(what, Promise.all(all));
  } finally {
    await within("end", Promise.all(drivers.map((sql) => sql.end({ timeout: 5 }))));
  }
}

/** Registers the tests of one side. */
export function postgresJsSteps(tests: Test, side: Side): void {
  tests(`prepared queries get their own rows, ${side.name}`, async () => {
    await withDrivers(side, "prepared", async (sql, tag) => {
      await Promise.all(
        below(400).map(async (n) => {
          const own = `${tag}/${n % 20}`;
          const [row] = await sql`SELECT ${own}::text AS tag, ${n}::int AS n`;
          assert.equal({ ...row }, { tag: own, n });
          await sql`INSERT INTO mine VALUES (${own}, ${n})`;
          // Texts of their own: more statements than a server keeps.
          const [other] = await sql.unsafe(`SELECT $1::int AS n, ${n % 25} AS statement`, [n], {
            prepare: true,
          });
          assert.equal({ ...other }, { n, statement: n % 25 });
        }),
      );
      for (const own of below(20).map((at) => `${tag}/${at}`)) {
        const rows = await sql`SELECT tag, n FROM mine WHERE tag = ${own}`;
        assert.is(rows.length, 20);
        assert.ok(rows.every((row) => row["tag"] === own));
      }
    });
  });

  tests(`one connection pipelines, with errors between good queries, ${side.name}`, async () => {
    await withDrivers(side, "pipeline", async (sql, tag) => {
      for (let round = 0; round < 5; round++) {
        await Promise.all(
          below(80).map(async (n) => {
            if (n % 16 === 5) {
              assert.is(await codeOf(sql`SELECT 1 / ${0}::int`), "22012");
            } else if (n % 16 === 9) {
              assert.is(await codeOf(sql.unsafe(`SELEC ${n}`)), "42601");
            } else if (n % 16 === 13) {
              assert.is(await codeOf(sql`SELECT ${n}::int FROM not_there`), "42P01");
            } else {
              const [row] = await sql`SELECT ${tag}::text AS tag, ${n}::int AS n`;
              assert.equal({ ...row }, { tag, n });
            }
          }),
        );
      }
    }, { max: 1 });
  });

  tests(`transactions, nested and with savepoints, ${side.name}`, async () => {
    await withDrivers(side, "begin", async (sql, tag) => {
      await Promise.all(
        below(60).map(async (at) => {
          const own = `${tag}/${at}`;
          const failed = sql.begin(async (sql) => {
            await sql`INSERT INTO mine VALUES (${own}, 1)`;
            await sql.savepoint(async (sql) => {
              await sql`INSERT INTO mine VALUES (${own}, 2)`;
              const inner = sql.savepoint("inner_one", async (sql) => {
                await sql`INSERT INTO mine VALUES (${own}, 3)`;
                await sql`INSERT INTO mine VALUES (${own}, 1)`;
              });
              assert.is(await codeOf(inner), "23505");
            });
            // Pipelined within the transaction.
            const seen = await Promise.all(
              below(3).map((n) =>
                sql`SELECT n + ${n} AS n FROM mine WHERE tag = ${own} ORDER BY n`
              ),
            );
            assert.equal(seen.map((rows) => rows.map((r) => r["n"])), [[1, 2], [2, 3], [3, 4]]);
            if (at % 3 === 0) throw new Error("changed my mind");
          });
          assert.is(await codeOf(failed), at % 3 === 0 ? "changed my mind" : "no error");
          const rows = await sql`SELECT n FROM mine WHERE tag = ${own} ORDER BY n`;
          assert.equal(rows.map((row) => row["n"]), at % 3 === 0 ? [] : [1, 2]);
        }),
      );
      const aborted = sql.begin((sql) => [sql`SELECT 1`, sql`SELECT 1 / 0`, sql`SELECT 2`]);
      assert.is(await codeOf(aborted), "22012");
    });
  });

  tests(
    `deadlocks and serialization failures arrive, and a retry passes, ${side.name}`,
    async () => {
      await withDrivers(
        side,
        "conflict",
        async (sql, tag) => {
          const reserved = await Promise.all(below(CLIENTS).map(() => sql.reserve()));
          const asks = reserved.map(
            (one) => async (text: string, values: (string | number)[] = []) => [
              ...await one.unsafe(text, values, { prepare: true }),
            ],
          );
          await conflicts(side, `js ${tag}`, asks).finally(() => {
            for (const one of reserved) one.release();
          });
        },
        {},
        1,
      );
    },
  );

  tests(`timeouts of the server end a statement, and no other, ${side.name}`, async () => {
    await withDrivers(side, "timeout", async (sql, tag) => {
      await Promise.all(
        below(12).map(async (at) => {
          const own = `${tag}/${at}`;
          if (at % 3 !== 0) {
            const [row] = await sql`SELECT pg_sleep(0.15), ${own}::text AS tag`;
            assert.is(row?.["tag"], own);
            return;
          }
          const rescued = sql.begin(async (sql) => {
            await sql`SET LOCAL statement_timeout = 1000`;
            const late = sql.savepoint((sql) => sql`SELECT pg_sleep(300), ${own}::text`);
            assert.is(await codeOf(late), "57014");
            await sql`SET LOCAL statement_timeout = 0`;
            await sql`INSERT INTO mine VALUES (${own}, 1)`;
          });
          assert.is(await codeOf(rescued), "no error");
          const [left] = await sql`SELECT n, current_setting('statement_timeout') AS timeout
            FROM mine WHERE tag = ${own}`;
          assert.equal({ ...left }, { n: 1, timeout: "0" });
        }),
      );
    });
  });

  tests(`settings given at login hold for the driver that gave them, ${side.name}`, async () => {
    const drivers = below(4).map((index) => {
      const connection = { search_path: `schema_${index}`, statement_timeout: 60_001 + index };
      const { host, port, database } = side;
      return sqlOf({ host, port, database, user: "postgres", max: 5, connection });
    });
    const work = async (sql: Sql, index: number) => {
      await Promise.all(
        below(60).map(async () => {
          const [row] = await sql`SELECT current_setting('search_path') AS path,
          current_setting('statement_timeout') AS timeout`;
          assert.equal({ ...row }, { path: `schema_${index}`, timeout: `${60_001 + index}ms` });
        }),
      );
    };
    try {
      await within("queries", Promise.all(drivers.map(work)));
    } finally {
      await within("end", Promise.all(drivers.map((sql) => sql.end({ timeout: 5 }))));
    }
  });

  tests(`cursors read to the end and stop on the way, ${side.name}`, async () => {
    await withDrivers(side, "cursor", async (sql, tag) => {
      await Promise.all(
        below(20).map(async (at) => {
          let count = 0;
          const query = sql`SELECT ${tag}::text AS tag, n + ${at} AS n FROM numbers ORDER BY n`;
          for await (const rows of query.cursor(90)) {
            for (const row of rows) assert.equal({ ...row }, { tag, n: ++count + at });
            if (at % 4 === 3 && count > 300) break;
          }
          assert.is(count, at % 4 === 3 ? 360 : 1000);
          if (at % 4 === 1) {
            const half = sql`SELECT 1 / (500 - n) FROM numbers ORDER BY n`.cursor(100, () => {});
            assert.is(await codeOf(half), "22012");
          }
          const each: number[] = [];
          await sql`SELECT n FROM numbers WHERE n <= ${at}`.forEach((row) => each.push(row["n"]));
          assert.is(each.length, at);
        }),
      );
    });
  });

  tests(`copies are written and read as streams, ${side.name}`, async () => {
    const lines = (tag: string) => below(3000).map((n) => `${tag}\t${n}\t${"y".repeat(n % 90)}\n`);
    await withDrivers(side, "copy", async (sql, tag) => {
      await Promise.all(
        below(8).map(async (at) => {
          const own = `${tag}/${at}`;
          await write(sql`COPY copied FROM STDIN`, lines(own));
          const malformed = lines(own);
          malformed[50] = `${own}\tno number\ty\n`;
          assert.is(await failureOf(sql`COPY copied FROM STDIN`, malformed), "22P02");
          const inTransaction = sql.begin(async (sql) => {
            await sql`INSERT INTO mine VALUES (${own}, 1)`;
            assert.is(await failureOf(sql`COPY copied FROM STDIN`, malformed), "22P02");
            await sql`SELECT 1`;
          });
          assert.is(await codeOf(inTransaction), "25P02");
          assert.is((await sql`SELECT FROM mine WHERE tag = ${own}`).length, 0);
          const read = await sql`COPY (SELECT n FROM copied WHERE tag = '${sql.unsafe(own)}'
          ORDER BY n) TO STDOUT`.readable();
          let text = "";
          for await (const chunk of read) text += chunk;
          assert.ok(text === below(3000).map((n) => `${n}\n`).join(""));
          assert.is(
            await codeOf((async () => await sql`COPY nothing TO STDOUT`.readable())()),
            "42P01",
          );
        }),
      );
    });
  });

  tests(`a cancelled query fails with 57014 and no other does, ${side.name}`, async () => {
    await withDrivers(side, "cancel", async (sql, tag) => {
      await Promise.all(
        below(24).map(async (at) => {
          if (at % 3 !== 0) {
            const [row] = await sql`SELECT pg_sleep(0.02), ${tag + at}::text AS tag`;
            assert.is(row?.["tag"], tag + at);
            return;
          }
          const query = sql`SELECT pg_sleep(300), ${at}::int`;
          let code = "";
          const ended = codeOf(query.execute()).then((c) => code = c);
          while (code === "") {
            query.cancel();
            await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 50))]);
          }
          assert.ok(["57014", "query cancelled"].includes(code), code);
        }),
      );
    });
  });

  tests(`reserved connections, simple queries, large values, ${side.name}`, async () => {
    await withDrivers(side, "other", async (sql, tag) => {
      await Promise.all(
        below(10).map(async (at) => {
          const reserved = await sql.reserve();
          await reserved`BEGIN`;
          await reserved`INSERT INTO mine VALUES (${tag}, ${at})`;
          const [row] = await reserved`SELECT n FROM mine WHERE tag = ${tag} AND n = ${at}`;
          assert.is(row?.["n"], at);
          await reserved`ROLLBACK`;
          reserved.release();
          const results = await sql.unsafe(`SELECT 1 AS n; SELECT ${at} AS n; SELECT 3 AS n`);
          assert.equal([...results].map((rows) => rows[0].n), [1, at, 3]);
          const value = `${tag}${at} `.repeat(30_000);
          const [large] = await sql`SELECT ${value}::text AS value, ${[1, at]}::int[] AS list`;
          assert.ok(large?.["value"] === value && large["list"][1] === at);
          const described = await sql`SELECT ${at}::int8 AS a, n FROM numbers`.describe();
          assert.equal(described.columns.map((column) => column.name), ["a", "n"]);
        }),
      );
      assert.is((await sql`SELECT FROM mine WHERE tag = ${tag}`).length, 0);
    });
  });

  tests(`a driver that is ended at once leaves nothing running, ${side.name}`, async () => {
    await withDrivers(side, "end", async (sql) => {
      // Two run and are done, as PostgreSQL does what it was asked before the good-bye; the others never run.
      const queries = below(10).map(() => codeOf(sql`SELECT pg_sleep(1)`));
      await until("a query to run", async () => {
        return (await side.postgres.backends()).some((b) => b.state === "active");
      });
      await sql.end({ timeout: 0 });
      assert.ok((await Promise.all(queries)).every((code) => code === "CONNECTION_DESTROYED"));
      // Nobody would catch the end of a query for the types.
    }, { fetch_types: false });
    await until("the sleeping queries to end", async () => {
      return (await side.postgres.backends()).every((b) => b.state !== "active");
    });
  });
}
