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
  database = `${at} pool_size=2`,
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
    await withPooler(
      { server_check_delay: 0.6, server_check_query: check },
      async (client, pooler) => {
        const backend = await backendOf(client);
        const asked = await statementsDuring(postgres, backend, async () => {
          await client.query("SELECT 1");
          await client.query("SELECT 2");
          await pause(800);
          assert.is((await poolRow(pooler, "db"))["sv_used"], "1");
          assert.is((await poolRow(pooler, "db"))["sv_idle"], "0");
          await client.query("SELECT 3");
          await client.query("SELECT 4");
        });
        assert.equal(asked, ["SELECT 1", "SELECT 2", check, "SELECT 3", "SELECT 4"]);
        assert.is((await poolRow(pooler, "db"))["sv_used"], "0");
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
        assert.match(pooler.log(), /test query failed: division by zero/);
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
    const rows: readonly { dead: number; room: number; longestMs: number }[] = [
      { dead: 1, room: 4, longestMs: 4_000 },
      { dead: 3, room: 4, longestMs: 4_000 },
      { dead: 3, room: 3, longestMs: 30_000 },
    ];
    await Promise.all(rows.map(async ({ dead, room, longestMs }) => {
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
        { server_check_delay: 0.5, query_wait_notify: 0 },
        async (client, pooler) => {
          const clients = await Promise.all(
            Array.from({ length: dead }, () => RawClient.login(pooler, login)),
          );
          for (const each of clients) each.send(f.Q("SELECT 'warm'"));
          for (const each of clients) await each.replies(1, patient);
          for (const session of warming) mute.add(session);
          await pause(700);
          const began = performance.now();
          client.send(f.Q("SELECT 'own'"));
          assert.is(await client.replies(1, patient), 'T D C"SELECT 1" Z(I)');
          const took = performance.now() - began;
          assert.ok(took < longestMs, `${dead} dead of ${room}: ${took} ms`);
          assert.is(queries, 1);
          for (const each of clients) each.close();
          await until("all dead ones to be closed", () => {
            return (pooler.log().match(/test query failed: timeout/g) ?? []).length >= dead;
          }, 30_000);
        },
        `host=127.0.0.1 port=${fake.port} pool_size=${room}`,
      );
      await fake.stop();
    }));
  },
);

tests.run();
