// What ends a login before, in or after the proof leaves nothing behind: no client is counted, no look-up waits, and as
// many clients as are allowed get in afterwards.
// limit: 240 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";
import { freePort, tempDir } from "../../support/temp.ts";

needs("postgresql");

const LIMIT = 20;
const postgres = await startPostgres();
await postgres.query("CREATE ROLE asker SUPERUSER LOGIN; CREATE ROLE app LOGIN PASSWORD 'right'");
const hba = join(tempDir("hba"), "hba.conf");
writeFileSync(
  hba,
  `host shop,dead,pgbouncer all          all scram-sha-256
host clear    all          all password
host rejected all          all reject
`,
);
const server = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
const pooler = await startPgweir({
  ini: {
    databases: {
      shop: server,
      clear: server,
      rejected: server,
      none: server,
      // Here alone: elsewhere a look-up may have to wait for a server, however long that takes.
      dead: `host=127.0.0.1 port=${await freePort()} query_wait_timeout=1`,
      broken: `${server} auth_query='SELECT 1'`,
    },
    pgbouncer: {
      auth_type: "hba",
      auth_hba_file: hba,
      auth_user: "asker",
      max_client_conn: LIMIT,
      max_user_client_connections: LIMIT,
      max_db_client_connections: LIMIT,
      server_login_retry: 0.2,
    },
  },
  userlist: { asker: "", admin: "right" },
});

const tests = suite("failed logins");

tests.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const fails = (user: string, database: string, password: string, code: RegExp) => async () => {
  let got = "in";
  await RawClient.login(pooler, { user, database, password })
    .catch((error) => got = error instanceof ServerError ? error.code : String(error));
  assert.match(got, code);
};

/** Leaves after the first message of the pooler, or at once. */
const leaves = (database: string, after: number) => async () => {
  const client = await RawClient.connect(pooler);
  client.startup({ user: "app", database });
  for (let i = 0; i < after; i++) await client.message();
  client.close();
  await client.closed;
};

const WAYS: Readonly<Record<string, () => Promise<void>>> = {
  "a wrong password": fails("app", "shop", "wrong", /^28P01$/),
  "a wrong clear password": fails("app", "clear", "wrong", /^28P01$/),
  "an unknown user": fails("stranger", "shop", "right", /^28P01$/),
  "an unknown database": fails("app", "nowhere", "right", /^28000$/),
  "a rule that rejects": fails("app", "rejected", "right", /^28000$/),
  "no rule": fails("app", "none", "right", /^28000$/),
  "a server that is down": // Whoever comes when a new attempt is due waits for it.
    fails("app", "dead", "right", /^(08006|53300)$/),
  "a look-up that is left": leaves("shop", 0),
  "a proof that is not given": leaves("shop", 1),
  "a clear password that is not given": leaves("clear", 1),
};

for (const [what, attempt] of Object.entries(WAYS)) {
  tests(`many logins that end by ${what}`, async () => {
    if (what.includes("down")) {
      // Until it has been down for long enough, logins wait.
      await until("the error at once", async () => {
        try {
          await attempt();
          return true;
        } catch {
          return false;
        }
      });
    }
    for (let round = 0; round < 10; round++) {
      await Promise.all(Array.from({ length: 10 }, attempt));
    }
    const clients: RawClient[] = [];
    const login = { user: "app", database: "shop", password: "right" };
    await until("all that are allowed to be in", async () => {
      try {
        clients.push(await RawClient.login(pooler, login));
      } catch (error) {
        // Those that have just left may be counted yet.
        assert.is((error as ServerError).code, "53300");
      }
      return clients.length === LIMIT;
    });
    let refused = "";
    await RawClient.login(pooler, login).catch((error: ServerError) => refused = error.code);
    assert.is(refused, "53300");
    for (const client of clients) await client.end();
  });
}

tests("no look-up is left", async () => {
  const admin = { user: "admin", database: "pgbouncer", password: "right" };
  const client = await RawClient.login(pooler, admin);
  await until("the look-ups to be over", async () => {
    const rows = (await client.table("SHOW POOLS")).filter((row) => row["user"] === "asker");
    assert.ok(rows.length > 0);
    return rows.every((row) =>
      [row["cl_active"], row["cl_waiting"], row["sv_active"]].every((count) => count === "0")
    );
  });
  await client.end();
});

tests.run();
