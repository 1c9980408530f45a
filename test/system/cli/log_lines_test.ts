// The log beside that of PgBouncer for the same actions: what it writes about clients and servers is written in the
// same words, since people and programs watch for them. More may be written.
// limit: 240 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { startPgbouncer } from "../../support/pgbouncer.ts";
import { startPgweir } from "../../support/pgweir.ts";
import type { Pooler } from "../../support/pooler.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient, sendCancel } from "../../support/raw_client.ts";

needs("pgbouncer");

const test = suite("log lines");
const postgres = await startPostgres();
const server = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
const options = {
  ini: {
    databases: {
      postgres: `${server} pool_size=1`,
      down: "host=127.0.0.1 port=1",
      missing: `host=127.0.0.1 port=${postgres.port} dbname=nodb`,
    },
    pgbouncer: { auth_type: "md5", stats_period: 1 },
  },
  userlist: { postgres: "secret", admin: "secret", stranger: "secret" },
};
const theirs = await startPgbouncer(options);
const ours = await startPgweir(options);

test.after(async () => {
  for (const pooler of [theirs, ours]) await pooler.stop();
  await postgres.stop("immediate");
});

const login = { user: "postgres", password: "secret", database: "postgres" };

async function leaves(pooler: Pooler, changes: Partial<typeof login>): Promise<void> {
  const client = await RawClient.login(pooler, { ...login, ...changes }).catch(() => null);
  await client?.end();
}

/** Lines about clients and servers, without what differs from one connection to the next. */
function linesOf(log: string): string[] {
  return log.split("\n").filter((line) => / [CS]-0x[0-9a-f]+: /.test(line)).map((line) =>
    line.replace(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC \[\d+\] /, "")
      .replace(/-0x[0-9a-f]+:/, ":")
      // 1.18 does not say it.
      .replace(/ replication=(no|yes|database)$/, "")
      .replace(/@unix\(\d+\):\d+/, "@unix(PID):PORT")
      .replaceAll(/127\.0\.0\.1:\d+/g, "127.0.0.1:PORT")
      .replace(/age=\d+s\)$/, "age)")
  );
}

/** Runs it on one of them; what is logged until a line that matches `last`. */
async function logged(
  pooler: Pooler,
  action: (pooler: Pooler) => Promise<void>,
  last: RegExp,
): Promise<string[]> {
  const before = linesOf(pooler.log()).length;
  await action(pooler);
  const lines = () => linesOf(pooler.log()).slice(before);
  await until(`a line like ${last}`, () => lines().some((line) => last.test(line)));
  return lines();
}

/** Does something with a short query_wait_timeout: who is not to be refused may wait as long as it takes. */
async function hurried(
  pooler: Pooler,
  action: (pooler: Pooler) => Promise<string[]>,
): Promise<string[]> {
  const set = async (seconds: number) => {
    const logins = (text: string) =>
      linesOf(pooler.log()).filter((line) => line.includes("/admin@") && line.includes(text))
        .length;
    const before = logins(" closing because: ");
    const console = await RawClient.login(pooler, {
      ...login,
      user: "admin",
      database: "pgbouncer",
    });
    await console.query(`SET query_wait_timeout = ${seconds}`);
    await console.end();
    // What it has written of this is none of the action's lines.
    await until("the console's last line", () => logins(" closing because: ") > before);
  };
  await set(1);
  try {
    return await action(pooler);
  } finally {
    await set(120);
  }
}

const closed = /^LOG C: .* closing because: .* \(age\)$/;
const refused = /^WARNING C: .* pooler error: /;

/** The last line of each, and whether clients are to wait for a server in vain. */
const actions: readonly (readonly [
  string,
  (pooler: Pooler) => Promise<void>,
  RegExp,
  hurried?: boolean,
])[] = [
  ["a client and its server", async (pooler) => {
    const client = await RawClient.login(pooler, login);
    await client.query("SELECT 1");
    await client.end();
  }, closed],
  ["a client that leaves without a word", async (pooler) => {
    (await RawClient.login(pooler, login)).close();
  }, closed],
  ["a client of the unix socket", async (pooler) => {
    await (await RawClient.login({ path: pooler.socketPath }, login)).end();
  }, closed],
  ["a wrong password", (pooler) => leaves(pooler, { password: "no" }), refused],
  ["a database that is not there", (pooler) => leaves(pooler, { database: "nope" }), refused],
  ["the console", (pooler) => leaves(pooler, { user: "admin", database: "pgbouncer" }), closed],
  ["the console, not allowed", (pooler) => {
    return leaves(pooler, { user: "stranger", database: "pgbouncer" });
  }, refused],
  ["a command that the console does not know", async (pooler) => {
    const client = await RawClient.login(pooler, {
      ...login,
      user: "admin",
      database: "pgbouncer",
    });
    await client.query("NONSENSE").catch(() => {});
    await client.end();
  }, closed],
  [
    "a client that waits too long",
    async (pooler) => {
      const first = await RawClient.login(pooler, login);
      await first.query("BEGIN");
      const second = await RawClient.login(pooler, login);
      await second.query("SELECT 1").catch(() => {});
      second.close();
      await first.query("COMMIT");
      await first.end();
    },
    /client close request/,
    true,
  ],
  [
    "a server that cannot be reached",
    (pooler) => leaves(pooler, { database: "down" }),
    refused,
    true,
  ],
];

for (const [what, action, last, isHurried] of actions) {
  test(what, async () => {
    const lines = (pooler: Pooler) => logged(pooler, action, last);
    const of = (pooler: Pooler) => isHurried ? hurried(pooler, lines) : lines(pooler);
    const wanted = await of(theirs);
    const got = await of(ours);
    assert.ok(wanted.length > 0);
    // Each as often as there; a server that fails may be tried more often.
    for (const line of new Set(wanted)) {
      const count = (lines: readonly string[]) => lines.filter((other) => other === line).length;
      const report = `${line}\nis not among\n${got.join("\n")}`;
      assert.ok(count(got) >= count(wanted), report);
      if (line.includes(" C: ")) assert.is(count(got), count(wanted), report);
    }
  });
}

test("a server that says no", async () => {
  const database = "missing";
  const wanted = await logged(theirs, (pooler) => leaves(pooler, { database }), refused);
  const got = await logged(ours, (pooler) => leaves(pooler, { database }), refused);
  for (const line of wanted) {
    // PgBouncer connects first and is told then; here it is no server before its login. Newer than 1.18 it closes it
    // for what PostgreSQL has said.
    const isOther = /new connection to server| S: .* closing because: login failed /.test(line);
    if (!isOther) assert.ok(got.includes(line), line);
  }
  const why = 'closing because: database "nodb" does not exist (age)';
  assert.ok(got.includes(`LOG S: missing/postgres@127.0.0.1:PORT ${why}`), got.join("\n"));
  // There it has no label.
  const said = 'server login failed: FATAL database "nodb" does not exist';
  assert.ok(theirs.log().includes(`WARNING ${said}`));
  assert.ok(got.includes(`WARNING S: missing/postgres@127.0.0.1:PORT ${said}`), got.join("\n"));
});

test("a user that nobody knows", async () => {
  const texts = (lines: readonly string[]) => lines.map((line) => line.replace(/ \S+@\S+/, ""));
  const wanted = texts(await logged(theirs, (pooler) => leaves(pooler, { user: "who" }), refused));
  const got = texts(await logged(ours, (pooler) => leaves(pooler, { user: "who" }), refused));
  assert.equal([...got].sort(), [...wanted].sort());
});

test("a health check that connects and leaves is no line", async () => {
  const before = [theirs, ours].map((pooler) => linesOf(pooler.log()).length);
  for (const pooler of [theirs, ours]) {
    (await RawClient.connect(pooler)).close();
    await leaves(pooler, {});
  }
  for (const [index, pooler] of [theirs, ours].entries()) {
    const lines = () => linesOf(pooler.log()).slice(before[index]);
    await until("the login after it", () => lines().some((line) => closed.test(line)));
    assert.is(lines().filter((line) => line.includes("(nouser)")).length, 0, lines().join("\n"));
  }
});

test("the start says where it listens, the end of a period its statistics", async () => {
  for (const pooler of [theirs, ours]) {
    const { port, socketPath } = pooler;
    assert.match(pooler.log(), new RegExp(`\\] LOG listening on 127\\.0\\.0\\.1:${port}\n`));
    assert.ok(pooler.log().includes(`] LOG listening on unix:${socketPath}\n`), pooler.log());
    assert.match(pooler.log(), /\] LOG process up: (PgBouncer|pgweir) \d+\.\d+\.\d+, /);
    // Three numbers are newer than 1.18.
    const newer = "(\\d+ client parses/s, \\d+ server parses/s, \\d+ binds/s, )?";
    const stats = new RegExp(
      `\\] LOG stats: \\d+ xacts/s, \\d+ queries/s, ${newer}in \\d+ B/s, out \\d+ B/s, ` +
        "xact \\d+ us, query \\d+ us, wait \\d+ us\n",
    );
    await until("the statistics", () => stats.test(pooler.log()));
  }
});

// What 1.18 has other words for, or none: in those of 1.24, which programs such as fail2ban look for.
const auto = await startPgweir({
  ini: {
    databases: {
      kept: server,
      gone: server,
      "*": `host=127.0.0.1 port=${postgres.port} dbname=postgres`,
    },
    pgbouncer: {
      auth_type: "scram-sha-256",
      autodb_idle_timeout: 1,
      pool_mode: "transaction",
      stats_users: "watcher",
    },
  },
  userlist: { postgres: "secret", admin: "secret", watcher: "secret" },
});

test.after(async () => void await auto.stop());

async function says(line: RegExp | string): Promise<void> {
  const has = () => typeof line === "string" ? auto.log().includes(line) : line.test(auto.log());
  await until(`the line ${line}`, has);
}

test("a wrong SCRAM password, of whoever", async () => {
  await leaves(auto, { password: "no", database: "kept" });
  await says(
    / ERROR C-0x[0-9a-f]+: kept\/postgres@127\.0\.0\.1:\d+ password authentication failed\n/,
  );
  await says(/ pooler error: SASL authentication failed\n/);
  await leaves(auto, { user: "who", database: "kept" });
  await says(/ ERROR C-0x[0-9a-f]+: \S+\/who@127\.0\.0\.1:\d+ password authentication failed\n/);
});

test("databases that come from the * entry, and go", async () => {
  await leaves(auto, { password: "no", database: "any" });
  await leaves(auto, { database: "any" });
  await says(" LOG registered new auto-database: any\n");
  const why = "as it does not exist anymore or inactive auto-database";
  await says(` WARNING dropping database 'any' ${why}\n`);
  assert.is(auto.log().split("registered new").length, 2, auto.log());
  auto.rewrite({
    databases: { kept: server },
    pgbouncer: { auth_type: "scram-sha-256", pool_mode: "transaction", stats_users: "watcher" },
  });
  const console = await RawClient.login(auto, { ...login, user: "admin", database: "pgbouncer" });
  await console.query("RELOAD");
  await says(` WARNING dropping database 'gone' ${why}\n`);
  assert.not.match(auto.log(), "dropping database 'kept'");
  await console.end();
});

test("the console to somebody who is not its admin", async () => {
  const user = "watcher";
  const console = await RawClient.login(auto, { ...login, user, database: "pgbouncer" });
  await console.query("PAUSE").catch(() => {});
  await says("] ERROR admin access needed\n");
  await says(/: pgbouncer\/watcher@\S+ pooler error: admin access needed\n/);
  assert.is(await console.cancel(), "");
  await says(/\(nouser\)@\S+ closing because: cancel request for console client \(age=/);
  await console.end();
});

test("cancel requests", async () => {
  const client = await RawClient.login(auto, { ...login, database: "kept" });
  assert.is(await client.cancel(), "");
  await says(
    / C-\S+: \(nodb\)\/\(nouser\)@\S+ closing because: cancel request for idle client \(age=/,
  );
  const sleep = client.query("SELECT pg_sleep(60)").then(() => "done", String);
  await until("the query", async () => {
    const active = "state = 'active' AND query LIKE 'SELECT pg_sleep%'";
    return (await postgres.query(`SELECT FROM pg_stat_activity WHERE ${active}`)).length > 0;
  });
  await client.cancel();
  assert.match(await sleep, /57014|canceling statement/);
  await says(
    / C-\S+: kept\/\(nouser\)@\S+ closing because: successfully sent cancel request \(age=/,
  );
  await client.end();
  const stranger = { processId: 12_345, secret: new Uint8Array(4) };
  await sendCancel(auto, stranger.processId, stranger.secret);
  await says(/: \(nodb\)\/\(nouser\)@\S+ closing because: failed cancel request(: .*)? \(age=/);
});

test.run();
