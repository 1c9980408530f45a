// What node-postgres is asked to do through the pooler in every pool mode: every value a client reads is its own,
// every error arrives with its SQLSTATE, and nothing hangs. All clients use the same statement names. Not a test.

import pg from "pg";
import { assert, type Test, until } from "../../support/harness.ts";
import { conflicts } from "./conflicts.ts";
import { copyIn, copyOut } from "./pg_copy.ts";
import { below, CLIENTS, codeOf, type Side, within } from "./support.ts";

const bytes = new TextEncoder();

export const settings = (side: Side, more: pg.ClientConfig = {}): pg.ClientConfig => ({
  host: side.host,
  port: side.port,
  user: "postgres",
  database: side.database,
  ...more,
});

/** Runs `work` with so many connected clients at once, each with a tag of its own. */
export async function withClients(
  side: Side,
  what: string,
  work: (client: pg.Client, tag: string, index: number) => Promise<void>,
  more: pg.ClientConfig = {},
  count = CLIENTS,
): Promise<void> {
  const clients = below(count).map(() => new pg.Client(settings(side, more)));
  for (const client of clients) client.on("error", () => {});
  await within(`connect for ${what}`, Promise.all(clients.map((client) => client.connect())));
  try {
    await within(
      what,
      Promise.all(clients.map((client, index) => work(client, `${what} ${index}`, index))),
    );
  } finally {
    await within("end", Promise.all(clients.map((client) => client.end())));
  }
}

/** Cancels as the driver does; over when the server has closed that connection. */
async function cancelOnce(side: Side, client: pg.Client, query: pg.Query): Promise<void> {
  const canceller = new pg.Client(settings(side)) as pg.Client & {
    cancel(client: pg.Client, query: pg.Query): void;
  };
  const closed = new Promise((resolve) => canceller.connection.once("end", resolve));
  canceller.on("error", () => {});
  canceller.cancel(client, query);
  await closed;
}

const own = { name: "own", text: "SELECT tag, n FROM mine WHERE tag = $1 ORDER BY n" };

/** Registers the tests of one side; `rounds` scales those that repeat themselves. */
export function pgSteps(tests: Test, side: Side, rounds: number): void {
  tests(`named statements of the same names keep their meaning, ${side.name}`, async () => {
    await withClients(side, `named/${side.workers}`, async (client, tag, index) => {
      for (let n = 0; n < rounds; n++) {
        const said = await client.query({
          name: "s1",
          text: `SELECT '${tag}' AS tag, $1::int AS n`,
          values: [n],
        });
        assert.equal(said.rows, [{ tag, n }]);
        await client.query({
          name: "s2",
          text: "INSERT INTO mine VALUES ($1, $2)",
          values: [tag, n],
        });
        const rows = await client.query({ ...own, values: [tag] });
        assert.equal(rows.rows, below(n + 1).map((each) => ({ tag, n: each })));
        const half = { name: "s3", text: `SELECT ${index} + 10 / $1::int AS half` };
        assert.is(await codeOf(client.query({ ...half, values: [0] })), "22012");
        assert.equal((await client.query({ ...half, values: [2] })).rows, [{ half: index + 5 }]);
      }
    });
  });

  tests(`more statements than a server keeps, ${side.name}`, async () => {
    await withClients(side, `many/${side.workers}`, async (client, tag) => {
      for (let n = 0; n < 3 * rounds; n++) {
        const text = `SELECT '${tag}' AS tag, $1::int AS n, ${n % 30} AS statement`;
        const { rows } = await client.query({ name: `s${n % 30}`, text, values: [n] });
        assert.equal(rows, [{ tag, n, statement: n % 30 }]);
      }
    });
  });

  tests(`statements that fail to prepare can be prepared later, ${side.name}`, async () => {
    await withClients(side, `late/${side.workers}`, async (client, tag, index) => {
      const table = `late_${side.workers}_${index}`;
      const query = { name: "late", text: `SELECT tag FROM ${table}` };
      assert.is(await codeOf(client.query(query)), "42P01");
      assert.is(await codeOf(client.query(query)), "42P01");
      await client.query(`CREATE TABLE ${table} AS SELECT '${tag}'::text AS tag`);
      assert.equal((await client.query(query)).rows, [{ tag }]);
      assert.is(await codeOf(client.query({ name: "bad", text: "SELEC 1" })), "42601");
    });
  });

  tests(
    `pipelined queries get their own answers, failing ones between them, ${side.name}`,
    async () => {
      await withClients(side, `pipeline/${side.workers}`, async (client, tag) => {
        for (let round = 0; round < 4; round++) {
          await Promise.all(
            below(60).map(async (n) => {
              if (n % 10 === 3) {
                const query = { name: "fails", text: "SELECT 1 / $1::int", values: [0] };
                assert.is(await codeOf(client.query(query)), "22012");
              } else if (n % 10 === 7) {
                assert.is(await codeOf(client.query("SELECT nothing")), "42703");
              } else {
                const name = n % 2 === 0 ? { name: `p${n % 20}` } : {};
                const text = `SELECT '${tag}' AS tag, $1::int AS n, ${n % 20} AS statement`;
                const { rows } = await client.query({ ...name, text, values: [n] });
                assert.equal(rows, [{ tag, n, statement: n % 20 }]);
              }
            }),
          );
        }
      }, { pipeline: true });
    },
  );

  tests(`a pool of 20 with transactions and savepoints, ${side.name}`, async () => {
    const pool = new pg.Pool({ ...settings(side), max: CLIENTS });
    pool.on("error", () => {});
    const transfer = async (at: number) => {
      const tag = `pool/${side.workers} ${at}`;
      const client = await pool.connect();
      try {
        await client.query("BEGIN");
        await client.query({ name: "s2", text: "INSERT INTO mine VALUES ($1, 1)", values: [tag] });
        await client.query("SAVEPOINT a");
        assert.is(
          await codeOf(client.query("INSERT INTO mine VALUES ($1, 1)", [tag])),
          "23505",
        );
        assert.is(await codeOf(client.query("SELECT 1")), "25P02");
        await client.query("ROLLBACK TO SAVEPOINT a");
        await client.query("SAVEPOINT b");
        await client.query("INSERT INTO mine VALUES ($1, 2)", [tag]);
        await client.query("RELEASE SAVEPOINT b");
        assert.is((await client.query({ ...own, values: [tag] })).rows.length, 2);
        await client.query(at % 2 === 0 ? "COMMIT" : "ROLLBACK");
      } finally {
        client.release();
      }
      const { rows } = await pool.query("SELECT n FROM mine WHERE tag = $1 ORDER BY n", [tag]);
      assert.equal(rows, at % 2 === 0 ? [{ n: 1 }, { n: 2 }] : []);
    };
    await within("transactions", Promise.all(below(150).map(transfer)));
    await within("end of the pool", pool.end());
  });

  tests(`a result is read in pages, ${side.name}`, async () => {
    await withClients(side, `pages/${side.workers}`, async (client, tag) => {
      const text = "SELECT $1::text AS tag, n FROM numbers ORDER BY n";
      // One page after the other from a portal, with a Flush where others have a Sync.
      const config = { text, values: [tag], rows: 70 } as pg.QueryConfig;
      const { rows } = await client.query(config);
      assert.is(rows.length, 1000);
      assert.ok(rows.every((row, at) => row.tag === tag && row.n === at + 1));
    });
  });

  tests(`cursors of the same name are read in transactions, ${side.name}`, async () => {
    await withClients(side, `cursor/${side.workers}`, async (client, tag) => {
      const fetch = async (what: string) => {
        const { rows } = await client.query(`FETCH ${what} FROM same_for_all`);
        assert.ok(rows.every((row) => row.tag === tag));
        return rows.map((row) => row.n);
      };
      for (let round = 0; round < 3; round++) {
        await client.query("BEGIN");
        await client.query({
          name: "declare",
          text: "DECLARE same_for_all SCROLL CURSOR FOR SELECT $1::text AS tag, n FROM numbers",
          values: [tag],
        });
        assert.equal(await fetch("70"), below(70).map((n) => n + 1));
        await client.query("MOVE ABSOLUTE 500 IN same_for_all");
        assert.equal(await fetch("BACKWARD 2"), [499, 498]);
        assert.equal(await fetch("LAST"), [1000]);
        await client.query("COMMIT");
        assert.is(await codeOf(client.query("FETCH 1 FROM same_for_all")), "34000");
      }
    });
  });

  tests(
    `deadlocks and serialization failures arrive, and a retry passes, ${side.name}`,
    async () => {
      const pool = new pg.Pool({ ...settings(side), max: CLIENTS });
      pool.on("error", () => {});
      const clients = await within(
        "connect",
        Promise.all(below(CLIENTS).map(() => pool.connect())),
      );
      const asks = clients.map((client) => async (sql: string, values: unknown[] = []) => {
        const named = values.length === 0 ? {} : { name: sql, values };
        return (await client.query({ text: sql, ...named })).rows;
      });
      try {
        await within("conflicts", conflicts(side, `pg conflict/${side.workers}`, asks));
      } finally {
        for (const client of clients) client.release();
        await within("end of the pool", pool.end());
      }
    },
  );

  tests(`copies go in and out, and fail where they must, ${side.name}`, async () => {
    await withClients(side, `copy/${side.workers}`, async (client, tag, index) => {
      const chunks = below(20).map((chunk) =>
        bytes.encode(
          below(200).map((n) => `${tag}\t${chunk * 200 + n}\t${"x".repeat(n % 50)}\n`).join(""),
        )
      );
      assert.is(await copyIn(client, "COPY copied FROM STDIN", chunks), "COPY 4000");
      const broken = [chunks[0]!, bytes.encode(`${tag}\tno number\tx\n`), chunks[1]!];
      assert.is(await codeOf(copyIn(client, "COPY copied FROM STDIN", broken)), "22P02");
      const given = copyIn(client, "COPY copied FROM STDIN", chunks.slice(0, 2), "no more of it");
      assert.is(await codeOf(given), "57014");
      // A statement that is no COPY after all, and a COPY of a table that is not there.
      assert.is(await codeOf(copyIn(client, "COPY nothing FROM STDIN", chunks)), "42P01");
      const out = await copyOut(
        client,
        `COPY (SELECT n FROM copied WHERE tag = '${tag}' ORDER BY n) TO STDOUT`,
      );
      assert.ok(out === below(4000).map((n) => `${n}\n`).join(""));
      const half = `COPY (SELECT 1 / (50 - n), n FROM numbers) TO STDOUT`;
      assert.is(await codeOf(copyOut(client, half)), "22012");
      assert.equal((await client.query(`SELECT ${index} AS n`)).rows, [{ n: index }]);
    });
  });

  tests(`large statements, values and results arrive whole, ${side.name}`, async () => {
    await withClients(
      side,
      `large/${side.workers}`,
      async (client, tag, index) => {
        for (const size of [30_000, 70_000, 300_000, 3_000_000]) {
          const value = `${tag} `.repeat(Math.ceil(size / tag.length)).slice(0, size);
          const named = { name: `l${size}`, text: "SELECT $1::text AS value", values: [value] };
          assert.ok((await client.query(named)).rows[0].value === value);
          assert.ok((await client.query(named)).rows[0].value === value);
          const text = `SELECT '${value}' AS value, $1::int AS n`;
          const { rows } = await client.query({ name: `t${size}`, text, values: [index] });
          assert.ok(rows[0].value === value && rows[0].n === index);
        }
        const many = await client.query(
          "SELECT $1 || n AS value FROM generate_series(1, 30000) n",
          [tag],
        );
        assert.ok(many.rows.every((row, at) => row.value === `${tag}${at + 1}`));
      },
      {},
      6,
    );
  });

  tests(`settings that PostgreSQL reports follow the client, ${side.name}`, async () => {
    await withClients(side, `settings/${side.workers}`, async (client, tag, index) => {
      const zone = index % 2 === 0 ? "Asia/Tokyo" : "America/Lima";
      await client.query(`SET TimeZone TO '${zone}'`);
      await client.query({
        name: "name",
        text: "SELECT set_config('application_name', $1, false)",
        values: [tag],
      });
      for (let n = 0; n < rounds; n++) {
        const { rows } = await client.query(
          "SELECT current_setting('TimeZone') AS zone, current_setting('application_name') AS name",
        );
        assert.equal(rows, [{ zone, name: tag }]);
        if (n === 0) continue;
        await client.query("BEGIN");
        await client.query("SET LOCAL TimeZone TO 'UTC'");
        assert.is((await client.query("SHOW TimeZone")).rows[0].TimeZone, "UTC");
        await client.query(n % 2 === 0 ? "COMMIT" : "ROLLBACK");
      }
    });
  });

  tests(`settings given at login hold for the client that gave them, ${side.name}`, async () => {
    const clients = below(CLIENTS).map((index) =>
      new pg.Client({
        ...settings(side),
        statement_timeout: 60_001 + index,
        options: index % 2 === 0 ? `-c search_path=schema_${index}` : `-c geqo_seed=0.${index}`,
      })
    );
    for (const client of clients) client.on("error", () => {});
    const work = async (client: pg.Client, index: number) => {
      await client.connect();
      const own = index % 2 === 0 ? "search_path" : "geqo_seed";
      for (let n = 0; n < rounds; n++) {
        const { rows } = await client.query(
          "SELECT current_setting('statement_timeout') AS timeout, current_setting($1) AS own",
          [own],
        );
        const value = index % 2 === 0 ? `schema_${index}` : String(Number(`0.${index}`));
        assert.equal(rows, [{ timeout: `${60_001 + index}ms`, own: value }]);
      }
    };
    try {
      await within("queries", Promise.all(clients.map(work)));
    } finally {
      await within("end", Promise.all(clients.map((client) => client.end())));
    }
  });

  tests(`a cancel ends the query it is for and no other, ${side.name}`, async () => {
    await withClients(side, `cancel/${side.workers}`, async (client, tag, index) => {
      for (let round = 0; round < 4; round++) {
        if (index % 2 === 0) {
          const { rows } = await client.query("SELECT pg_sleep(0.03), $1 AS tag", [tag]);
          assert.is(rows[0].tag, tag);
          continue;
        }
        const query = new pg.Query("SELECT pg_sleep(300)");
        let code = "";
        query.on("error", (error) => code = (error as Error & { code: string }).code);
        query.on("end", () => code = "no error");
        client.query(query);
        // One that overtakes its query has no effect, as without a pooler.
        while (code === "") await cancelOnce(side, client, query);
        assert.is(code, "57014");
        assert.equal((await client.query("SELECT $1 AS tag", [tag])).rows, [{ tag }]);
      }
    });
  });

  tests(`timeouts of the driver and of the server leave the pool whole, ${side.name}`, async () => {
    const pool = new pg.Pool({ ...settings(side), max: 6 });
    pool.on("error", () => {});
    const timed = async (at: number) => {
      if (at % 3 === 0) {
        const query = { text: "SELECT pg_sleep(300)", query_timeout: 300 };
        assert.is(await codeOf(pool.query(query as pg.QueryConfig)), "Query read timeout");
      } else if (at % 3 === 1) {
        const client = await pool.connect();
        await client.query("BEGIN");
        await client.query("SET LOCAL statement_timeout = 50");
        assert.is(await codeOf(client.query("SELECT pg_sleep(300)")), "57014");
        await client.query("ROLLBACK");
        client.release();
      } else {
        assert.equal((await pool.query("SELECT $1::int AS at", [at])).rows, [{ at }]);
      }
    };
    await within("queries with timeouts", Promise.all(below(18).map(timed)));
    await within("end of the pool", pool.end());
    await until("the timed out queries to end", async () => {
      return (await side.postgres.backends()).every((b) => b.state !== "active");
    });
  });

  tests(`clients that leave in a transaction leave nothing behind, ${side.name}`, async () => {
    await withClients(side, `leave/${side.workers}`, async (client, tag, index) => {
      await client.query("BEGIN");
      await client.query("INSERT INTO mine VALUES ($1, 1)", [tag]);
      const { stream } = client.connection as unknown as { stream: { destroy(): void } };
      if (index % 2 === 0) stream.destroy();
      else await client.end();
    });
    const left = await side.postgres.query(
      `SELECT tag FROM mine WHERE tag LIKE 'leave/${side.workers} %'`,
    );
    assert.equal(left, []);
  });
}
