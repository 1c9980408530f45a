// Timeouts and limits that are changed while clients are in the middle of what they are about: the new ones hold for
// what goes on already, and end nothing that is within them.
// load: waits

import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { backendsWhere, waiting } from "../modes/support.ts";

needs("postgresql");

const postgres = await startPostgres();
for (const role of ["short", "warm"]) await postgres.query(`CREATE ROLE ${role} LOGIN`);
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
const patient = { timeoutMs: 30_000 };
const RESULT = 'T D C"SELECT 1" Z(I)';
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
type Settings = Record<string, string | number>;

const tests = suite("timeouts, changed");

tests.after(async () => {
  await postgres.stop("immediate");
});

const iniOf = (pgbouncer: Settings, users: Record<string, string> = {}, database = "") => ({
  databases: { db: `${at} ${database}` },
  users,
  pgbouncer: { default_pool_size: 3, ...pgbouncer },
});

function start(...settings: Parameters<typeof iniOf>): Promise<Pgweir> {
  return startPgweir({
    ini: iniOf(...settings),
    userlist: { postgres: "", short: "", warm: "", admin: "" },
  });
}

async function reload(pooler: Pgweir, ...settings: Parameters<typeof iniOf>): Promise<void> {
  pooler.rewrite(iniOf(...settings));
  await pooler.console("RELOAD");
}

const login = (pooler: Pgweir, user = "postgres") =>
  RawClient.login(pooler, { user, database: "db" });

async function isEnded(client: RawClient, code: string): Promise<void> {
  assert.match(await client.repliesUntilClosed(patient), new RegExp(`E\\(${code}\\) closed$`));
}

/**
 * One client that does nothing, one idle in a transaction, one at work, one in a transaction at work, one that waits.
 * `seconds`: what the work takes.
 */
async function inTheMiddle(pooler: Pgweir, seconds: number) {
  const [idle, resting, working, busy, waits] = await Promise.all(
    Array.from({ length: 5 }, () => login(pooler)),
  ) as [RawClient, RawClient, RawClient, RawClient, RawClient];
  await resting.query("BEGIN");
  await busy.query("BEGIN");
  working.send(f.Q(`SELECT pg_sleep(${seconds})`));
  busy.send(f.Q(`SELECT pg_sleep(${seconds})`));
  waits.send(f.Q("SELECT 1"));
  await waiting(pooler, 1, "db");
  await pause(500);
  return { idle, resting, working, busy, waits };
}

tests("limits that are new end what has passed them", async () => {
  const pooler = await start({});
  const { idle, resting, working, busy, waits } = await inTheMiddle(pooler, 300);
  await reload(pooler, { client_idle_timeout: 0.4, idle_transaction_timeout: 0.4 });
  await isEnded(idle, "57P05");
  await isEnded(resting, "25P03");
  // It has the server of the one that rested.
  assert.is(await waits.replies(1, patient), RESULT);
  await reload(pooler, { query_timeout: 0.4, transaction_timeout: 0.4 });
  await isEnded(working, "57014");
  await isEnded(busy, "57014");
  await backendsWhere(postgres, 0, "state <> 'idle'", 30_000);
  for (const client of [idle, resting, working, busy, waits]) client.close();
  await pooler.stop();
});

tests(
  "limits that are wider, or gone, end nobody any more; nor do new ones that are not reached",
  async () => {
    // All has to be under way, and the file read, before they are reached; and the work must go on after that.
    const tightS = 6;
    const tight = {
      client_idle_timeout: tightS,
      idle_transaction_timeout: tightS,
      query_timeout: tightS,
      transaction_timeout: tightS,
      query_wait_timeout: tightS,
    };
    const wide = Object.fromEntries(Object.keys(tight).map((name) => [name, 120]));
    await Promise.all([wide, {}].map(async (later) => {
      const pooler = await start(tight);
      const { idle, resting, working, busy, waits } = await inTheMiddle(pooler, tightS + 1.5);
      await reload(pooler, later);
      assert.is(await working.replies(1, patient), RESULT);
      assert.is(await waits.replies(1, patient), RESULT);
      assert.is(await busy.replies(1, patient), 'T D C"SELECT 1" Z(T)');
      await busy.query("COMMIT");
      await resting.query("COMMIT");
      await idle.query("SELECT 1");
      for (const client of [idle, resting, working, busy, waits]) await client.end();
      await pooler.stop();
    }));
  },
);

tests("a user's own limits come and go as well", async () => {
  const pooler = await start({});
  const [short, other] = [await login(pooler, "short"), await login(pooler)];
  await pause(500);
  await reload(pooler, {}, { short: "client_idle_timeout=0.4" });
  await isEnded(short, "57P05");
  await reload(pooler, {}, { short: "client_idle_timeout=4" });
  const again = await login(pooler, "short");
  await reload(pooler, { client_idle_timeout: 120 }, { short: "client_idle_timeout=0" });
  await pause(5_000);
  for (const client of [again, other]) {
    await client.query("SELECT 1");
    await client.end();
  }
  await pooler.stop();
});

tests("notices, the minimum and the reserve follow the file", async () => {
  const pooler = await start({ query_wait_notify: 60 }, {}, "pool_size=1");
  const holder = await login(pooler);
  const waits = await login(pooler);
  await holder.query("BEGIN");
  waits.send(f.Q("BEGIN"));
  await waiting(pooler, 1, "db");
  await pause(500);
  assert.is(waits.unread, 0);
  const words = "mind the step";
  const more = { query_wait_notify: 0.3, login_notify_message: words, reserve_pool_timeout: 0.3 };
  await reload(pooler, more, {}, "pool_size=1");
  assert.is(await waits.repliesUntil("N", 1, patient), "N");
  await reload(pooler, more, {}, "pool_size=1 reserve_pool_size=1");
  assert.is(await waits.replies(1, patient), 'C"BEGIN" Z(T)');
  const greeted = await RawClient.connect(pooler);
  greeted.startup({ user: "postgres", database: "db" });
  const notices = (await greeted.messagesUntil("Z")).filter(({ type }) => type === 0x4e);
  assert.match(new TextDecoder().decode(notices[0]?.body), new RegExp(words));
  await reload(pooler, more, {}, "pool_size=3 min_pool_size=3 reserve_pool_size=0");
  const warm = await login(pooler, "warm");
  await backendsWhere(postgres, 3, "usename = 'warm'", 30_000);
  for (const client of [holder, waits, greeted, warm]) client.close();
  await pooler.stop();
});

tests.run();
