// Users that are in no auth_file, found by auth_query: with every kind of secret and every method, while they are
// made, changed, expired and dropped; the query as PgBouncer asks it, on a pool of auth_user.
// limit: 300 s

import { md5Secret } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";

needs("postgresql");

const postgres = await startPostgres({
  hba: [
    "host all by_md5 127.0.0.1/32 md5",
    "host all by_scram,rotated,late,asker 127.0.0.1/32 scram-sha-256",
  ],
});
const role = (name: string, password: string, encryption = "scram-sha-256") =>
  postgres.query(
    `SET password_encryption = '${encryption}'; CREATE ROLE ${name} LOGIN PASSWORD '${password}'`,
  );
await role("by_md5", "right", "md5");
await role("by_scram", "right");
await role("expired", "right");
await role("rotated", "right");
await role("no_login", "right");
await role("asker", "asks");
await role("in_both", "of the server");
await postgres.query(`CREATE ROLE without LOGIN;
  ALTER ROLE expired VALID UNTIL '2020-01-01';
  ALTER ROLE no_login NOLOGIN`);
await postgres.query("CREATE DATABASE shop");
await postgres.query("CREATE DATABASE users");
const lookup = (database: string) =>
  postgres.query(
    `CREATE FUNCTION lookup(INOUT name text, OUT secret text) LANGUAGE sql SECURITY DEFINER AS
       $$ SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END
          FROM pg_authid WHERE rolname = name AND rolcanlogin $$;
     CREATE SEQUENCE asked;
     CREATE FUNCTION slow_lookup(INOUT name text, OUT secret text) LANGUAGE sql SECURITY DEFINER AS
       $$ SELECT nextval('asked'), pg_sleep(0.2); SELECT * FROM lookup($1) $$;
     CREATE TABLE clear (name text, secret text); GRANT SELECT ON clear TO asker;
     INSERT INTO clear VALUES ('by_scram', 'right'), ('by_md5', 'right'), ('in_both', 'right')`,
    [],
    database,
  );
await lookup("users");
await lookup("shop");

const server = `host=127.0.0.1 port=${postgres.port}`;
const databases = {
  shop: server,
  users: server,
  clear: `${server} dbname=shop auth_query='SELECT name, secret FROM clear WHERE name = $1'`,
  elsewhere: `${server} dbname=shop auth_dbname=users`,
  one_column: `${server} dbname=shop auth_query='SELECT rolname FROM pg_roles WHERE rolname = $1'`,
  no_name: `${server} dbname=shop auth_query='SELECT NULL, $1'`,
  forbidden:
    `${server} dbname=shop auth_query='SELECT rolname, rolpassword FROM pg_authid WHERE rolname = $1'`,
  slow: `${server} dbname=shop auth_query='SELECT name, secret FROM slow_lookup($1)'`,
  copies: `${server} dbname=shop auth_query='COPY clear TO STDOUT'`,
  unbound: `${server} dbname=shop auth_query='SELECT 1, 2'`,
  lost: `${server} dbname=shop auth_dbname=nowhere`,
};
const userlist = { asker: "asks", in_both: "of the file", admin: "right" };
const poolers = new Map<string, Pgweir>();
for (const auth of ["md5", "scram-sha-256", "plain", "trust"]) {
  const pgbouncer = {
    auth_type: auth,
    auth_user: "asker",
    auth_query: "SELECT name, secret FROM lookup($1)",
    stats_users: "by_scram",
    server_login_retry: 0.2,
  };
  poolers.set(auth, await startPgweir({ ini: { databases, pgbouncer }, userlist }));
}

const tests = suite("auth_query");

tests.after(async () => {
  for (const pooler of poolers.values()) await pooler.stop();
  await postgres.stop("immediate");
});

/** Who PostgreSQL says it is, or the SQLSTATE. */
async function login(
  pooler: Pgweir,
  user: string,
  password: string,
  database = "shop",
): Promise<string> {
  try {
    const client = await RawClient.login(pooler, { user, database, password });
    const [row] = await client.query("SELECT session_user");
    await client.end();
    return String(row![0]);
  } catch (error) {
    if (error instanceof ServerError) return error.code;
    throw error;
  }
}

/**
 * Has a password expire soon and logs in before. A machine that stands still for as long gets more time: only a login
 * that was refused while the password was good is wrong.
 */
async function loginBeforeItExpires(
  pooler: Pgweir,
  user: string,
  password: string,
): Promise<RawClient> {
  for (let seconds = 3;; seconds *= 2) {
    await postgres.query(
      `DO $$ BEGIN EXECUTE format('ALTER ROLE ${user} VALID UNTIL %L', now() + '${seconds} s'); END $$`,
    );
    try {
      return await RawClient.login(pooler, { user, database: "shop", password });
    } catch (error) {
      const [row] = await postgres.query(
        "SELECT rolvaliduntil < now() AS expired FROM pg_roles WHERE rolname = $1",
        [user],
      );
      if (row!["expired"] !== true || seconds > 60) throw error;
    }
  }
}

async function pools(pooler: Pgweir): Promise<Record<string, string | null>[]> {
  const admin = { user: "admin", database: "pgbouncer", password: "right" };
  const client = await RawClient.login(pooler, admin);
  const rows = await client.table("SHOW POOLS");
  await client.end();
  return rows;
}

for (const [auth, pooler] of poolers) {
  tests(`auth_type ${auth} takes the users that auth_query finds`, async () => {
    const isTrust = auth === "trust";
    for (const user of ["by_md5", "by_scram"]) {
      const possible = auth !== "scram-sha-256" || user !== "by_md5";
      // Without a proof there are no SCRAM keys for PostgreSQL.
      const expected = isTrust && user === "by_scram" ? "28P01" : possible ? user : "28P01";
      assert.is(await login(pooler, user, "right"), expected, user);
      assert.is(await login(pooler, user, "wrong"), isTrust ? expected : "28P01", user);
      // A server of this user's is there by now: it does not stand for the password.
      assert.is(await login(pooler, user, ""), isTrust ? expected : "28P01", user);
      assert.is(await login(pooler, user, "right"), expected, user);
    }
    for (const user of ["expired", "no_login", "without", "stranger", "by_scram\tx"]) {
      assert.is(await login(pooler, user, "right"), isTrust ? "28000" : "28P01", user);
    }
  });

  tests(`auth_type ${auth} takes clear passwords that auth_query finds`, async () => {
    for (const user of ["by_md5", "by_scram"]) {
      assert.is(await login(pooler, user, "right", "clear"), user);
      assert.is(await login(pooler, user, "wrong", "clear"), auth === "trust" ? user : "28P01");
    }
  });

  tests(`auth_type ${auth} takes who is in both places by the auth_file`, async () => {
    if (auth === "trust") return;
    assert.is(await login(pooler, "in_both", "of the file"), "in_both");
    assert.is(await login(pooler, "in_both", "of the server"), "28P01");
    assert.is(await login(pooler, "in_both", "right", "clear"), "28P01");
  });

  // The old secret went on to be good where it was remembered.
  tests(`auth_type ${auth} sees at once what becomes of a user`, async () => {
    if (auth === "trust") return;
    const sql = (text: string) => postgres.query(text);
    const name = `late_${auth.replaceAll("-", "_")}`;
    const kind = auth === "md5" ? "md5" : "scram-sha-256";
    assert.is(await login(pooler, name, "one"), "28P01");
    await role(name, "one", kind);
    assert.is(await login(pooler, name, "one"), name);
    await sql(`SET password_encryption = '${kind}'; ALTER ROLE ${name} PASSWORD 'two'`);
    assert.is(await login(pooler, name, "one"), "28P01");
    assert.is(await login(pooler, name, "two"), name);
    // A warm connection of its is no login.
    const warm = await RawClient.login(pooler, { user: name, database: "shop", password: "two" });
    await sql(`ALTER ROLE ${name} VALID UNTIL '2020-01-01'`);
    assert.is(await login(pooler, name, "two"), "28P01");
    assert.equal(await warm.query("SELECT session_user"), [[name]]);
    await warm.end();
    await sql(`ALTER ROLE ${name} VALID UNTIL 'infinity'`);
    assert.is(await login(pooler, name, "two"), name);
    // Nobody tells the pooler when the time is over, and a warm connection does not keep the door open.
    const last = await loginBeforeItExpires(pooler, name, "two");
    await until("the password to expire", async () => await login(pooler, name, "two") === "28P01");
    assert.equal(await last.query("SELECT session_user"), [[name]]);
    await last.end();
    await sql(`ALTER ROLE ${name} VALID UNTIL 'infinity'`);
    assert.is(await login(pooler, name, "two"), name);
    await sql(`ALTER ROLE ${name} NOLOGIN`);
    assert.is(await login(pooler, name, "two"), "28P01");
    await sql(`ALTER ROLE ${name} LOGIN PASSWORD NULL`);
    assert.is(await login(pooler, name, "two"), "28P01");
    await sql(`DROP ROLE ${name}`);
    assert.is(await login(pooler, name, "two"), "28P01");
  });

  tests(`auth_type ${auth} binds the name of the user`, async () => {
    for (
      const name of [
        `x' OR rolname = 'by_scram' --`,
        `'; DROP TABLE clear; --`,
        `by_scram" --`,
        "$1",
        "%s%n",
        "\x1b[2J",
        "né",
      ]
    ) {
      const unknown = auth === "trust" ? "28000" : "28P01";
      assert.is(await login(pooler, name, "right"), unknown, name);
      assert.is(await login(pooler, name, "right", "clear"), unknown, name);
    }
    assert.equal(await postgres.query("SELECT count(*)::int AS n FROM clear", [], "shop"), [
      { n: 3 },
    ]);
  });
}

const scram = poolers.get("scram-sha-256")!;

// A password was changed while servers with the old one's keys were there: new servers need the new keys.
tests("a changed password is used for the next server connection", async () => {
  await role("moved", "one");
  await postgres.setAuth({ hba: ["host all all 127.0.0.1/32 scram-sha-256"] });
  assert.is(await login(scram, "moved", "one"), "moved");
  await postgres.query("ALTER ROLE moved PASSWORD 'two'");
  await postgres.endBackends("moved");
  assert.is(await login(scram, "moved", "one"), "28P01");
  assert.is(await login(scram, "moved", "two"), "moved");
});

// What a client that logs in as auth_user sets for itself stayed on the server, and the query that came next meant
// another function.
tests("auth_query is under what an operator has decided for its database", async () => {
  const admin = await RawClient.login(scram, {
    user: "admin",
    database: "pgbouncer",
    password: "right",
  });
  const attempt = async (database: string) => {
    try {
      const login = { user: "by_scram", database, password: "right" };
      await (await RawClient.login(scram, login)).end();
      return "in";
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      return `${error.code} ${error.fields.message}`;
    }
  };
  await admin.query("DISABLE users");
  assert.is(await attempt("elsewhere"), '57P03 authentication database "users" is disabled');
  assert.is(await attempt("users"), '57P03 database "users" is disabled');
  // Only who has proved to be somebody hears of it.
  assert.is(await login(scram, "by_scram", "wrong", "users"), "28P01");
  await admin.query("ENABLE users");
  assert.is(await attempt("elsewhere"), "in");
  await admin.query("PAUSE users");
  let ended = "";
  const waiting = attempt("elsewhere").then((end) => ended = end);
  await until("the look-up to wait", async () => {
    const rows = await admin.table("SHOW POOLS");
    const pool = rows.find((row) => row["database"] === "users" && row["user"] === "asker");
    return pool?.["cl_waiting"] === "1";
  });
  assert.is(ended, "");
  await admin.query("RESUME users");
  await waiting;
  assert.is(ended, "in");
  await admin.end();
});

tests("auth_query means what it says, whatever clients of auth_user have set", async () => {
  await postgres.query(
    `CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO PUBLIC;
     CREATE FUNCTION evil.lookup(INOUT name text, OUT secret text) LANGUAGE sql AS
       $$ SELECT name, 'evil' $$`,
    [],
    "shop",
  );
  const parameters = { search_path: "evil, public", client_encoding: "LATIN1" };
  for (let i = 0; i < 3; i++) {
    const asker = await RawClient.login(scram, {
      user: "asker",
      database: "shop",
      password: "asks",
      parameters,
    });
    assert.equal(await asker.query("SELECT secret FROM lookup('x')"), [["evil"]]);
    assert.is(await login(scram, "by_scram", "evil"), "28P01");
    assert.is(await login(scram, "by_scram", "right"), "by_scram");
    assert.is(await login(scram, "postgres", "evil"), "28P01");
    assert.is(await login(scram, "né", "evil"), "28P01");
    // And what it has asked for is there again for itself.
    assert.equal(await asker.query("SELECT secret FROM lookup('x')"), [["evil"]]);
    assert.equal(await asker.query("SHOW client_encoding"), [["LATIN1"]]);
    await asker.end();
  }
  assert.is((await pools(scram)).find((pool) => pool["user"] === "asker")?.["sv_idle"], "1");
});

tests("auth_query runs in auth_dbname, on a pool of auth_user", async () => {
  assert.is(await login(scram, "by_scram", "right", "elsewhere"), "by_scram");
  const rows = await pools(scram);
  const of = (database: string, user: string) =>
    rows.find((row) => row["database"] === database && row["user"] === user);
  assert.is(of("users", "asker")?.["sv_idle"], "1");
  assert.is(of("shop", "asker")?.["sv_idle"], "1");
  assert.is(of("shop", "asker")?.["cl_active"], "0");
  assert.is(of("elsewhere", "asker"), undefined);
  const backends = await postgres.backends();
  assert.ok(backends.some((each) => each.usename === "asker" && each.datname === "users"));
});

// Each login had a query of its own, and a storm of them all connections of auth_user.
tests("logins of one user at once share their queries", async () => {
  const clients = await Promise.all(
    Array.from(
      { length: 60 },
      () => RawClient.login(scram, { user: "by_scram", database: "slow", password: "right" }),
    ),
  );
  const [asked] = await postgres.query("SELECT last_value::int AS n FROM asked", [], "shop");
  // Those that come while one is asked share the next one: how many that are depends on how fast they come.
  assert.ok(Number(asked!["n"]) < 30, `${asked!["n"]} queries`);
  assert.is(
    (await pools(scram)).find((pool) => pool["database"] === "slow" && pool["user"] === "asker")
      ?.["sv_idle"],
    "1",
  );
  for (const client of clients) await client.end();
});

tests("who has proved to be somebody may use the console, if auth_dbname is set", async () => {
  assert.is(await login(scram, "by_scram", "right", "pgbouncer"), "28P01");
  const pooler = await startPgweir({
    ini: {
      databases: { users: server },
      pgbouncer: {
        auth_type: "scram-sha-256",
        auth_user: "asker",
        auth_dbname: "users",
        auth_query: "SELECT name, secret FROM lookup($1)",
        stats_users: "by_scram",
      },
    },
    userlist: { asker: "asks" },
  });
  const client = await RawClient.login(pooler, {
    user: "by_scram",
    database: "pgbouncer",
    password: "right",
  });
  assert.ok((await client.table("SHOW POOLS")).length > 0);
  await client.end();
  assert.is(await login(pooler, "by_scram", "wrong", "pgbouncer"), "28P01");
  assert.is(await login(pooler, "by_md5", "right", "pgbouncer"), "28P01");
  assert.is(await login(pooler, "rotated", "right", "pgbouncer"), "42501");
  // After the proof.
  assert.is(await login(pooler, "rotated", "right", "nowhere"), "3D000");
  assert.is(await login(pooler, "rotated", "wrong", "nowhere"), "28P01");
  await pooler.stop();
});

tests("an auth_query that does not do its work is an error of the configuration", async () => {
  const said: Record<string, string> = {
    one_column: "expected 2 columns from auth_query, not 1",
    no_name: "auth_query response contained null user name",
    forbidden: "error response from auth_query: permission denied for table pg_authid (42501)",
    copies: "error response from auth_query: bind message supplies 1 parameters",
    unbound: "error response from auth_query: bind message supplies 1 parameters",
    lost: 'authentication database "nowhere" is not configured',
  };
  for (const [database, reason] of Object.entries(said)) {
    let message = "";
    await RawClient.login(scram, { user: "by_scram", database, password: "right" })
      .catch((error) => message = `${error.code} ${error.fields?.message}`);
    assert.is(message, "28000 bouncer config error", database);
    await until(`"${reason}" in the log`, () => scram.log().includes(reason));
  }
  assert.is(await login(scram, "by_scram", "right"), "by_scram");
  assert.not.match(
    scram.log(),
    new RegExp(`SCRAM-SHA-256\\$|right|${md5Secret("by_md5", "right")}`),
  );
});

tests.run();
