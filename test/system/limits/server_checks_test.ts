// Idle servers are tested before they are used: server_check_delay, server_check_query. Whatever has become of a
// server while nobody looked, the client that would have got it sees nothing but its own answers.
// load: waits
// limit: 240 s

import { Frontend } from "../../../shared/wire/mod.ts";
import { type FakeSession, queryText, startFakePostgres } from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { backendOf, logsStatements, poolRow, statementsDuring } from "../modes/support.ts";

needs("postgresql");

const postgres = await startPostgres(logsStatements);
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
const login = { user: "postgres", database: "db" };
const patient = { timeoutMs: 40_000 };
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

const tests = suite("server checks");

tests.after(async () => {
  await postgres.stop("immediate");
});

async function withPooler(
  pgbouncer: Record<string, string | number>,
  work: (client: RawClient, pooler: Awaited<ReturnType<typeof startPgweir>>) => Promise<void>,
  // No room for another server: a test that takes long has one opened.
  database = `${at} pool_size=1`,
): Promise<void> {
  const pooler = await startPgweir({ ini: { databases: { db: database }, pgbouncer } });
  try {
    const client = await RawClient.login(pooler, login);
    await work(client, pooler);
    await client.end();
  } finally {
    await pooler.stop();
  }
}

tests(
  "a server that was idle for server_check_delay is tested, one that was not is not",
  async () => {
    const check = "SELECT 'tested'";
    const delay = 1.5;
    await withPooler(
      { server_check_delay: delay, server_check_query: check },
      async (client, pooler) => {
        const backend = await backendOf(client);
        const row = await until("a machine that is quick enough", async () => {
          await until("it to be due", async () => (await poolRow(pooler, "db"))["sv_used"] === "1");
          assert.is((await poolRow(pooler, "db"))["sv_idle"], "0");
          let took = 0;
          let used: string | null = "";
          const asked = await statementsDuring(postgres, backend, async () => {
            const began = performance.now();
            for (const i of [1, 2, 3]) await client.query(`SELECT ${i}`);
            used = (await poolRow(pooler, "db"))["sv_used"]!;
            took = performance.now() - began;
          });
          assert.equal(asked.slice(0, 2), [check, "SELECT 1"]);
          // Whatever was idle in all that time was so for less than the delay.
          return took < delay * 1000 ? { asked, used } : null;
        });
        assert.equal(row.asked, [check, "SELECT 1", "SELECT 2", "SELECT 3"]);
        assert.is(row.used, "0");
      },
    );
  },
);

tests("with server_check_delay = 0 each use is tested, with an empty query none", async () => {
  const check = "SELECT 'tested'";
  await withPooler({ server_check_delay: 0, server_check_query: check }, async (client) => {
    const backend = await backendOf(client);
    const asked = await statementsDuring(postgres, backend, async () => {
      for (const i of [1, 2, 3]) await client.query(`SELECT ${i}`);
    });
    assert.equal(asked, [check, "SELECT 1", check, "SELECT 2", check, "SELECT 3"]);
  });
  await withPooler({ server_check_delay: 0, server_check_query: "" }, async (client) => {
    const backend = await backendOf(client);
    const asked = await statementsDuring(postgres, backend, () => client.query("SELECT 1"));
    assert.equal(asked, ["SELECT 1"]);
  });
});

// The client got the error of a query that was not its own.
tests("a server that fails its test is replaced, and the client sees nothing of it", async () => {
  const settings = { server_check_delay: 0.3, server_check_query: "SELECT 1/0" };
  for (const mode of ["transaction", "session"]) {
    for (const robin of [0, 1]) {
      const all = { ...settings, server_round_robin: robin, pool_mode: mode };
      await withPooler(all, async (_, pooler) => {
        const client = await RawClient.login(pooler, login);
        const first = await backendOf(client);
        await client.end();
        await pause(500);
        const other = await RawClient.login(pooler, login);
        other.send(f.Q("SELECT 'own'"));
        assert.is(await other.replies(1, patient), 'T D C"SELECT 1" Z(I)');
        assert.is.not(await backendOf(other), first);
        const failed = /test query failed: division by zero/;
        await until("the log to say so", () => failed.test(pooler.log()));
        await other.end();
      });
    }
  }
});

// Idle connections whose peer is silently gone were handed out one after the other, each for as long as TCP
// takes to give up.
tests(
  "silently dead servers are noticed, and passed over at once where there is room",
  async () => {
    const rows: readonly { dead: number; room: number }[] = [
      { dead: 1, room: 4 },
      { dead: 3, room: 4 },
      { dead: 3, room: 3 },
    ];
    await Promise.all(rows.map(async ({ dead, room }) => {
      const mute = new Set<FakeSession>();
      let queries = 0;
      const fake = await startFakePostgres({
        onMessage: (session, asked) => {
          if (mute.has(session)) return;
          if (asked.type === Frontend.query && queryText(asked) === "SELECT 'own'") queries++;
          // They are busy together, so that there are as many.
          if (asked.type === Frontend.query && queryText(asked) === "SELECT 'warm'") {
            warming.push(session);
            if (warming.length === dead) { for (const each of warming) each.answer(asked); }
            return;
          }
          session.answer(asked);
        },
      });
      const warming: FakeSession[] = [];
      await withPooler(
        // None is tested before there are as many as are meant.
        { server_check_delay: 600 },
        async (client, pooler) => {
          const clients = await Promise.all(
            Array.from({ length: dead }, () => RawClient.login(pooler, login)),
          );
          for (const each of clients) each.send(f.Q("SELECT 'warm'"));
          for (const each of clients) await each.replies(1, patient);
          for (const session of warming) mute.add(session);
          await pooler.console("SET server_check_delay = 0.5");
          await pause(700);
          client.send(f.Q("SELECT 'own'"));
          assert.is(await client.replies(1, patient), 'T D C"SELECT 1" Z(I)');
          assert.is(queries, 1);
          for (const each of clients) each.close();
          await until("all dead ones to be closed", () => {
            return (pooler.log().match(/test query failed: timeout/g) ?? []).length >= dead;
          });
          // Where there is room, another one was opened long before the first was given up.
          const [early] = pooler.log().split("test query failed: timeout");
          const opened = early!.split("new connection to server").length - 1;
          if (room > dead) assert.ok(opened > dead, `${opened} connections, ${dead} of them dead`);
        },
        `host=127.0.0.1 port=${fake.port} pool_size=${room}`,
      );
      await fake.stop();
    }));
  },
);

tests.run();
