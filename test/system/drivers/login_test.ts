// Logins with psql, node-postgres and postgres.js: every auth_type in front of every method of PostgreSQL, from
// passwords and from stored secrets, and the same refusal of a wrong password everywhere.
// limit: 400 s

import pg from "pg";
import sqlOf from "postgres";
import { runtimeName } from "../../../shared/sys/mod.ts";
import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { codeOf, run, within } from "./support.ts";

needs("postgresql");

/** Roles by how PostgreSQL asks for the password; two have no more than a stored secret in the userlist. */
const METHODS = {
  by_md5: "md5",
  by_scram: "scram-sha-256",
  by_password: "password",
  by_trust: "trust",
  from_hash: "md5",
  from_secret: "scram-sha-256",
} as const;
type User = keyof typeof METHODS;

const withPassword: User[] = ["by_md5", "by_scram", "by_password", "by_trust"];
/** Who can log in: a stored secret must suffice to check the client and to prove oneself to PostgreSQL. */
const ALLOWED: Record<string, User[]> = {
  any: withPassword,
  trust: [...withPassword, "from_hash"],
  plain: [...withPassword, "from_hash"],
  md5: [...withPassword, "from_hash", "from_secret"],
  "scram-sha-256": [...withPassword, "from_secret"],
};

const passwordOf = (user: User) => `it's ${user} "ß"`;
const users = Object.keys(METHODS) as User[];

const postgres = await startPostgres({
  hba: Object.entries(METHODS).map(([user, method]) => `host all ${user} 127.0.0.1/32 ${method}`),
});
for (const user of users) {
  const encryption = METHODS[user] === "md5" ? "md5" : "scram-sha-256";
  const password = passwordOf(user).replaceAll("'", "''");
  await postgres.query(
    `SET password_encryption = '${encryption}'; CREATE ROLE ${user} LOGIN PASSWORD '${password}'`,
  );
}
const secrets = new Map(
  (await postgres.query("SELECT rolname, rolpassword FROM pg_authid WHERE rolpassword IS NOT NULL"))
    .map((row) => [row["rolname"], row["rolpassword"]] as [string, string]),
);

function startWith(auth: string, workers: number): Promise<Pgweir> {
  const target = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
  // Nobody is asked who he is with auth_type=any, so the entry must say as whom to log in.
  const entries = withPassword.map((user) => {
    const password = passwordOf(user).replaceAll("'", "''");
    return [`as_${user}`, `${target} user=${user} password='${password}'`];
  });
  const userlist = Object.fromEntries(users.map((user) => {
    const secret = user.startsWith("from_") ? secrets.get(user)! : passwordOf(user);
    return [user, secret];
  }));
  return startPgweir({
    ini: {
      databases: auth === "any" ? Object.fromEntries(entries) : { "*": target },
      pgbouncer: { auth_type: auth, default_pool_size: 2 * workers },
      pgweir: { runtime: runtimeName },
    },
    userlist,
    ...(workers === 1 ? {} : { workers }),
  });
}

interface Target {
  readonly pooler: Pgweir;
  readonly user: string;
  readonly database: string;
  readonly password: string;
}

const sql = "SELECT current_user AS name";

/** Logs in with each driver; the name PostgreSQL knows it by, or the SQLSTATE of the refusal. */
const drivers: Record<string, (target: Target) => Promise<string>> = {
  async psql({ pooler, user, database, password }) {
    const target = `host=${pooler.host} port=${pooler.port} user=${user} dbname=${database}`;
    // psql does not show the SQLSTATE of a refused login.
    const args = ["psql", "-X", "-A", "-t", "-w", "-c", sql, target];
    const ran = await run(args, {
      environment: { PGPASSWORD: password, PGCLIENTENCODING: "UTF8" },
    });
    if (ran.code === 0) return ran.stdout.trim();
    return /FATAL: {2}(password|SASL) authentication failed/.test(ran.stderr)
      ? "28P01"
      : ran.stderr;
  },
  async pg({ pooler, ...login }) {
    const client = new pg.Client({ host: pooler.host, port: pooler.port, ...login });
    client.on("error", () => {});
    try {
      await client.connect();
      return (await client.query(sql)).rows[0].name;
    } catch (error) {
      return codeOf(Promise.reject(error));
    } finally {
      await client.end();
    }
  },
  async postgres({ pooler, ...login }) {
    const driver = sqlOf({ host: pooler.host, port: pooler.port, max: 1, ...login });
    try {
      return (await driver.unsafe(sql))[0]?.["name"];
    } catch (error) {
      return codeOf(Promise.reject(error));
    } finally {
      await driver.end({ timeout: 5 });
    }
  },
};

const tests = suite("logins of drivers");

for (
  const [auth, workers] of [
    ["any", 1],
    ["trust", 1],
    ["plain", 1],
    ["md5", 1],
    ["scram-sha-256", 1],
    ["scram-sha-256", 4],
  ] as const
) {
  const name = `auth_type ${auth}, ${workers} ${workers === 1 ? "worker" : "workers"}`;
  tests(`every driver logs in as every user, ${name}`, async () => {
    const pooler = await startWith(auth, workers);
    for (const [driver, logIn] of Object.entries(drivers)) {
      for (const user of ALLOWED[auth]!) {
        const target = auth === "any"
          ? { pooler, user: "somebody", database: `as_${user}`, password: "" }
          : { pooler, user, database: "postgres", password: passwordOf(user) };
        // As many times as it takes to meet every worker.
        for (let time = 0; time < workers; time++) {
          assert.is(await within(`${driver} as ${user}`, logIn(target)), user, driver);
        }
        if (auth === "any" || auth === "trust") continue;
        const wrong = { ...target, password: passwordOf(user) + " " };
        assert.is(await within(`${driver} as ${user}`, logIn(wrong)), "28P01", driver);
      }
      if (auth === "any" || auth === "trust") continue;
      const stranger = { pooler, user: "stranger", database: "postgres", password: "x" };
      assert.is(await within(`${driver} as stranger`, logIn(stranger)), "28P01", driver);
    }
    assert.not.match(pooler.log(), "it's by_");
    assert.is((await pooler.stop()).code, 0);
  });
}

tests.after(() => postgres.stop("immediate"));
tests.run();
