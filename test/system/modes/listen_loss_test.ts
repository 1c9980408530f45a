// LISTEN in transaction mode when something is lacking: the connection that listens is lost, it can't be had, clients
// do not read what they are told, or leave before they are told that they listen.
// limit: 240 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { residentBytes } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import { Relay } from "../../support/relay.ts";
import {
  closeAll,
  nothingHangs,
  open,
  type PairOptions,
  startPooler,
  upTo,
} from "../protocol/support.ts";
import { heard, listenerRow, listening, toldBefore } from "./listening.ts";
import { departures, waiting } from "./support.ts";

needs("postgresql");

const test = suite("LISTEN, lacking");
const database = "postgres";
const login = { user: "postgres", database };
const lost = "WARNING 01000 notifications may have been lost";

let postgres: Postgres;
/** Two servers. */
let pooler: Pgweir;
/** Past the pooler. */
let direct: RawClient;

test.before(async () => {
  postgres = await startPostgres();
  await postgres.query("CREATE TABLE jobs (n int); CREATE ROLE limited LOGIN CONNECTION LIMIT 1");
  pooler = await startPooler(postgres, { settings: { default_pool_size: 2 } });
});

test.before.each(async () => {
  direct = await open(postgres, login);
});

test.after.each(closeAll);

test.after(async () => {
  await nothingHangs(pooler, postgres);
  await pooler.stop();
  await postgres.stop("immediate");
});

/** Runs `work` with a pooler of its own. */
async function withPooler(
  settings: Record<string, string | number>,
  work: (pooler: Pgweir) => Promise<void>,
  server: { host: string; port: number } = postgres,
  more: Pick<PairOptions, "database" | "users"> = {},
): Promise<void> {
  const userlist = { postgres: "", admin: "", limited: "", hasty: "" };
  const own = await startPooler(server, { settings, userlist, ...more });
  try {
    await work(own);
  } finally {
    closeAll();
    await own.stop();
    direct = await open(postgres, login);
  }
}

/** Ends the backend that listens. */
async function endListener(): Promise<void> {
  const listeners = "FROM pg_stat_activity WHERE application_name = 'pgweir listener'";
  // The process of the one before may be there for a while longer than its connection.
  await until("one that listens", async () => {
    return (await postgres.query(`SELECT pid ${listeners}`)).length === 1;
  });
  await postgres.query(`SELECT pg_terminate_backend(pid) ${listeners}`);
}

test("a connection that is lost listens again, and clients are told that they may have missed something", async () => {
  const idle = await listening(pooler, database, "jobs");
  const busy = await listening(pooler, database, "jobs", '"Other"');
  await busy.query("BEGIN");
  for (const round of upTo(3)) {
    // The second and third time at once, when it has hardly listened.
    await endListener();
    assert.equal(await toldBefore(idle, lost), []);
    await direct.query(`NOTIFY jobs, '${round}'`);
    assert.equal(await toldBefore(idle, `jobs: ${round}`), []);
  }
  assert.is(busy.unread, 0);
  await direct.query("NOTIFY \"Other\", 'x'");
  assert.equal(await heard(idle, direct), []);
  busy.send(f.Q("COMMIT"));
  const notes = await toldBefore(busy, "Z(I)");
  // Once, as long as it does not know.
  assert.equal(notes, ['C"COMMIT"', lost, "jobs: 1", "jobs: 2", "jobs: 3", "Other: x"]);
  // Who begins to listen afterwards has missed nothing.
  const late = await listening(pooler, database, "jobs");
  await direct.query("NOTIFY jobs, '4'");
  for (const client of [idle, busy, late]) assert.equal(await heard(client, direct), ["jobs: 4"]);
  assert.is((await listenerRow(pooler, database))["lost"], "3");
});

test("a client that begins to listen while the connection is down waits until it is up", async () => {
  await withPooler({ default_pool_size: 2, server_login_retry: 1 }, async (own) => {
    const idle = await listening(own, database, "jobs");
    const other = await open(own, login);
    await other.query("SELECT 1");
    // Only the listener's login is refused: the pool's server is there.
    await postgres.query("ALTER DATABASE postgres ALLOW_CONNECTIONS false", [], "template1");
    try {
      await postgres.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgweir listener' AND datname = 'postgres'",
        [],
        "template1",
      );
      await until(
        "a failure",
        async () => (await listenerRow(own, database))["state"] === "failing",
      );
      other.send(f.Q("LISTEN jobs"));
      assert.equal(await toldBefore(other, "Z(I)"), [
        'C"LISTEN"',
        'FATAL 55000 database "postgres" is not currently accepting connections'.replace(
          "FATAL",
          "ERROR",
        ),
      ]);
    } finally {
      await postgres.query("ALTER DATABASE postgres ALLOW_CONNECTIONS true", [], "template1");
    }
    assert.equal(await toldBefore(idle, lost), []);
    await other.query("LISTEN jobs");
    direct = await open(postgres, login);
    await direct.query("NOTIFY jobs, 'again'");
    assert.equal(await toldBefore(other, "jobs: again"), []);
    assert.equal(await toldBefore(idle, "jobs: again"), []);
  });
});

test("a restart of PostgreSQL is survived by clients that listen", async () => {
  await withPooler({ default_pool_size: 2, server_login_retry: 1 }, async (own) => {
    const clients = [
      await listening(own, database, "jobs"),
      await listening(own, database, "jobs"),
    ];
    await postgres.restart();
    direct = await open(postgres, login);
    for (const client of clients) assert.equal(await toldBefore(client, lost), []);
    await direct.query("NOTIFY jobs, 'after'");
    for (const client of clients) assert.equal(await heard(client, direct), ["jobs: after"]);
    assert.equal(await clients[0]!.query("SELECT 1"), [["1"]]);
  });
});

test("a client that does not read is disconnected, and others are told everything", async () => {
  const others = await Promise.all(upTo(3).map(() => listening(pooler, database, "flood")));
  const stuck = await listening(pooler, database, "flood");
  const bystander = await open(pooler, login);
  const before = residentBytes(pooler.pid);
  stuck.pauseReading();
  let sent = 0;
  const more = async (count: number, length: number) => {
    await direct.query(
      `SELECT count(pg_notify('flood', n || repeat('x', ${length}))) FROM generate_series(${
        sent + 1
      }, ${sent + count}) n`,
    );
    sent += count;
  };
  const heardAll: number[] = [];
  for (let round = 0; round < 12; round++) {
    await more(1000, 1200);
    for (const [i, other] of others.entries()) {
      const notes = await heard(other, direct);
      if (i === 0) heardAll.push(...notes.map((note) => parseInt(note.slice(7))));
      assert.is(notes.length, 1000);
    }
    assert.equal(await bystander.query("SELECT 1"), [["1"]]);
  }
  assert.equal(heardAll, upTo(sent));
  assert.ok(residentBytes(pooler.pid) - before < 64 * 2 ** 20);
  await until("the client to be disconnected", async () => {
    return Number((await listenerRow(pooler, database))["dropped"]) > 0;
  });
  assert.is((await listenerRow(pooler, database))["clients"], "3");
  const full = /pooler error: notification queue is full/;
  await until("the log to say so", () => full.test(pooler.log()));
});

test("a client that reads too late is told why it is disconnected", async () => {
  const client = await listening(pooler, database, "flood");
  const other = await listening(pooler, database, "flood");
  await client.query("BEGIN; INSERT INTO jobs VALUES (1)");
  await direct.query("SELECT count(pg_notify('flood', n::text)) FROM generate_series(1, 9999) n");
  // With the one that `heard` sends they are as many as may wait.
  assert.is((await heard(other, direct)).length, 9999);
  assert.is(client.unread, 0);
  await direct.query("NOTIFY flood, 'one more'");
  assert.equal(await heard(other, direct), ["flood: one more"]);
  assert.equal(await toldBefore(client, "closed"), [
    "FATAL 53400 notification queue is full",
    "closed",
  ]);
  assert.equal(await other.query("SELECT count(*) FROM jobs"), [["0"]]);
});

test("clients of a pool of one server can listen all at once", async () => {
  await withPooler({ default_pool_size: 1 }, async (own) => {
    const clients = await Promise.all(upTo(20).map(() => open(own, login)));
    for (const [i, client] of clients.entries()) client.send(f.Q(`LISTEN stop; LISTEN own_${i}`));
    for (const client of clients) {
      assert.equal(await toldBefore(client, "Z(I)"), ['C"LISTEN"', 'C"LISTEN"']);
    }
    for (const i of clients.keys()) await direct.query(`NOTIFY own_${i}, '${i}'`);
    for (const [i, client] of clients.entries()) {
      assert.equal(await heard(client, direct), [`own_${i}: ${i}`]);
    }
    const backends = await postgres.backends();
    assert.is(
      backends.filter((each) => each.application_name === "pgweir listener").length >= 1,
      true,
    );
  });
});

test("a limit that leaves no room for the connection is an error at once", async () => {
  for (const limit of ["max_db_connections", "max_user_connections"]) {
    await withPooler({ default_pool_size: 1, [limit]: 1 }, async (own) => {
      const client = await open(own, login);
      client.send(
        f.Q("BEGIN"),
        f.Q("INSERT INTO jobs VALUES (2); LISTEN jobs"),
        f.Q("COMMIT"),
        f.Q("SELECT 3"),
      );
      const replies = [];
      for (const end of ["Z(T)", "Z(T)", "Z(I)", "Z(I)"]) {
        replies.push(...await toldBefore(client, end));
      }
      assert.equal(replies, [
        ...['C"BEGIN"', 'C"INSERT 0 1"', 'C"LISTEN"', 'C"COMMIT"'],
        `ERROR 53300 no server connection for LISTEN (${limit})`,
        ...["T", "D", 'C"SELECT 1"'],
      ]);
      assert.equal(await client.query("DELETE FROM jobs RETURNING n"), [["2"]]);
      await direct.query("NOTIFY jobs");
      assert.equal(await client.query("SELECT count(*) FROM pg_listening_channels()"), [["0"]]);
      assert.is(client.unread, 0);
    });
  }
});

test("the connection takes the place of a server that is not in use", async () => {
  await withPooler({ default_pool_size: 4, max_db_connections: 3 }, async (own) => {
    const clients = await Promise.all(upTo(6).map(() => open(own, login)));
    await Promise.all(clients.map((client) => client.query("SELECT pg_sleep(0.05)")));
    for (const client of clients) client.send(f.Q("LISTEN stop"));
    for (const client of clients) assert.equal(await toldBefore(client, "Z(I)"), ['C"LISTEN"']);
    await Promise.all(clients.map((client) => heard(client, direct)));
    await Promise.all(clients.map((client) => client.query("SELECT pg_sleep(0.05)")));
    const rows = (await own.console("SHOW SERVERS")).filter((row) => row["type"] === "S");
    assert.ok(rows.length <= 3, `${rows.length} connections`);
  });
});

test("a client waits for the connection as for a server, and can be cancelled or leave", async () => {
  const settings = { default_pool_size: 2, max_db_connections: 2 };
  // Of one pool, whoever logs in.
  const more = { database: "user=postgres", users: { hasty: "query_wait_timeout=1" } };
  await withPooler(
    settings,
    async (own) => {
      const [holder, next, client, hasty] = [
        await open(own, login),
        await open(own, login),
        await open(own, login),
        await open(own, { user: "hasty", database }),
      ];
      const waits = async (wanted: number) => {
        await until("a client to wait for its LISTEN", async () => {
          return Number((await listenerRow(own, database))["waiting"]) === wanted;
        });
      };
      /** Both servers are in use when the client's transaction has ended. */
      const listen = async (listener: RawClient) => {
        await listener.query("BEGIN; LISTEN a");
        next.send(f.Q("BEGIN"));
        await waiting(own, 1);
        listener.send(f.Q("COMMIT"));
        assert.is(await next.replies(), 'C"BEGIN" Z(T)');
      };
      await holder.query("BEGIN");
      // Now there are both, and who can't wait for long need not.
      await client.query("SELECT 1");
      await listen(hasty);
      assert.equal(await toldBefore(hasty, "Z(I)"), [
        'C"COMMIT"',
        "ERROR 53300 query_wait_timeout",
      ]);
      await next.query("COMMIT");
      await listen(client);
      await waits(1);
      await client.cancel();
      assert.equal(await toldBefore(client, "Z(I)"), [
        'C"COMMIT"',
        "ERROR 57014 canceling statement due to user request",
      ]);
      await next.query("COMMIT");
      await listen(client);
      await waits(1);
      client.reset();
      await waits(0);
      for (const each of [holder, next]) await each.query("COMMIT");
      await holder.query("LISTEN stop");
      assert.equal(await heard(holder, direct), []);
    },
    postgres,
    more,
  );
});

test("a login that PostgreSQL refuses is told in its words", async () => {
  await withPooler({ default_pool_size: 1 }, async (own) => {
    const limited = await open(own, { user: "limited", database });
    await limited.query("SELECT 1");
    // It is told when its wait is over: long enough for a login to have failed.
    await own.console("SET query_wait_timeout = 3");
    limited.send(f.Q("LISTEN a"));
    assert.equal(await toldBefore(limited, "Z(I)"), [
      'C"LISTEN"',
      'ERROR 53300 too many connections for role "limited"',
    ]);
    assert.equal(await limited.query("SELECT 1"), [["1"]]);
    await postgres.query("ALTER ROLE limited NOLOGIN");
    limited.send(f.Q("LISTEN a"));
    assert.equal(await toldBefore(limited, "Z(I)"), [
      'C"LISTEN"',
      'ERROR 28000 role "limited" is not permitted to log in',
    ]);
    await own.console("SET query_wait_timeout = 60");
    await postgres.query("ALTER ROLE limited LOGIN");
    // With the login of another that listens, it can.
    const other = await listening(own, database);
    await limited.query("LISTEN stop");
    for (const client of [other, limited]) assert.equal(await heard(client, direct), []);
  }, postgres);
});

test("a client that leaves before it is told that it listens leaves nothing behind", async () => {
  const relay = new Relay(postgres);
  await relay.listen();
  try {
    await withPooler({ default_pool_size: 1 }, async (own) => {
      const other = await open(own, login);
      await other.query("SELECT 1");
      for (const [how, leave] of departures) {
        relay.sessions.delayMs = 100;
        const client = await open(own, login);
        client.send(f.Q("LISTEN jobs"));
        // Its server is being asked what has come of it.
        assert.is(await client.repliesUntil("C"), 'C"LISTEN"');
        leave(client);
        await client.closed;
        relay.sessions.delayMs = 0;
        assert.equal(
          await other.query("SELECT count(*) FROM pg_listening_channels()"),
          [["0"]],
          how,
        );
        await other.query("LISTEN stop");
        assert.is((await listenerRow(own, database))["channels"], "1", how);
        await direct.query("NOTIFY jobs, 'x'");
        assert.equal(await heard(other, direct), [], how);
      }
    }, relay);
  } finally {
    await relay.stop();
  }
});

test.run();
