// Two thousand clients come at once, with SCRAM, to a worker whose pools have no servers yet: all are served, in about
// the order they came, PostgreSQL is not overrun, and who was connected before is served meanwhile: somebody at the
// console, whom the data plane itself answers, since the PostgreSQL of this test is as busy as its clients.
// limit: 600 s

import { join } from "node:path";
import { runtimeCommand } from "../../../shared/sys/mod.ts";
import { startFakePostgres } from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { ManagedProcess } from "../../support/managed_process.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { RawClient } from "../../support/raw_client.ts";

const clientCount = 2000;
const databaseCount = 40;
const atOnce = 8;
const password = "a storm is coming";

const seen = { now: 0, most: 0, logins: 0 };
const fake = await startFakePostgres({
  onStartup: async (session) => {
    seen.logins++;
    seen.most = Math.max(seen.most, ++seen.now);
    // As long as a real one takes.
    await new Promise((resolve) => setTimeout(resolve, 10));
    seen.now--;
    session.acceptLogin();
  },
});
const databases = Object.fromEntries(
  Array.from({ length: databaseCount }, (_, i) => [
    `db${i}`,
    `host=127.0.0.1 port=${fake.port} pool_size=3 user=postgres`,
  ]),
);
const pooler = await startPgweir({
  ini: {
    databases,
    pgbouncer: {
      auth_type: "scram-sha-256",
      max_client_conn: 3000,
      scram_iterations: 100,
      client_login_timeout: 300,
      query_wait_timeout: 300,
      admin_users: "storm",
    },
    pgweir: { max_server_logins: atOnce },
  },
  userlist: { storm: password, postgres: "" },
});

const tests = suite("login storms");

tests.after(async () => {
  await pooler.stop();
  await fake.stop();
});

tests("two thousand clients at once", async () => {
  const login = (i: number) => ({
    user: "storm",
    database: `db${i % databaseCount}`,
    password,
    timeoutMs: 240_000,
  });
  const early = await ManagedProcess.launch({
    command: [
      ...runtimeCommand(),
      join(import.meta.dirname!, "steady_client.ts"),
      ...[String(pooler.port), "storm", password],
    ],
  });
  await early.ready("its first answer", () => early.stdout().length > 0);
  // Connected first, so that all of them begin to log in in one moment, in a known order.
  const clients: RawClient[] = [];
  for (let i = 0; i < clientCount; i++) clients.push(await RawClient.connect(pooler));
  const finished: number[] = [];
  const storm = Promise.all(clients.map(async (client, i) => {
    await client.login(login(i));
    finished.push(i);
    client.send(f.Q("SELECT 1"));
    assert.is(await client.replies(1, { timeoutMs: 240_000 }), 'T D C"SELECT 1" Z(I)');
  }));
  const before = early.stdout().length;
  const began = performance.now();
  await storm;
  const seconds = (performance.now() - began) / 1000;
  const answers = early.stdout().length - before;
  assert.is(finished.length, clientCount);
  assert.ok(seen.most <= atOnce, `${seen.most} logins at once`);
  assert.ok(seen.logins >= databaseCount && seen.logins <= databaseCount * 3, `${seen.logins}`);
  // One that had to wait until the storm is over would have none; a slow machine has fewer a second, and longer for it.
  assert.ok(answers >= 50, `${answers} answers in the ${seconds.toFixed(1)} s meanwhile`);
  // Their numbers in the order in which they were heard; what their own process makes of it is its affair.
  const heard = [...pooler.log().matchAll(/C-(\w+): \w+\/storm@\S+ login attempt/g)]
    .map((line) => parseInt(line[1]!, line[1]!.startsWith("0x") ? 16 : 10));
  const sorted = [...heard].sort((one, other) => one - other);
  const displaced = heard.map((id, i) => Math.abs(sorted.indexOf(id) - i));
  assert.ok(heard.length > clientCount, `${heard.length} login attempts`);
  assert.ok(Math.max(...displaced) < 200, `out of order by ${Math.max(...displaced)}`);
  for (const client of clients) client.close();
  await early.stop("SIGKILL");
  const console = await RawClient.login(pooler, { user: "storm", database: "pgbouncer", password });
  await until("all to be gone", async () => {
    const rows = await console.table("SHOW LISTS");
    return rows.find((row) => row["list"] === "used_clients")?.["items"] === "1";
  });
  await console.end();
});

tests.run();
