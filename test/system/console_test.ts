// The admin console of a real worker, as psql, drivers and a raw client see it: every result well-formed
// while clients come and go, counters exact when idle, drivers' habits answered, nobody let in or
// allowed to do more than the lists of users say.
// limit: 300 s

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import pg from "pg";
import postgresJs from "postgres";
import {
  Backend,
  concatBytes,
  message,
  parseDataRow,
  parseErrorFields,
  parseRowDescription,
  startupPacket,
} from "../../shared/wire/mod.ts";
import { assert, suite, until } from "../support/harness.ts";
import { needs } from "../support/needs.ts";
import { f, notation } from "../support/notation.ts";
import { type Pgweir, type PgweirOptions, startPgweir } from "../support/pgweir.ts";
import { type Postgres, startPostgres } from "../support/postgres.ts";
import { RawClient, ServerError } from "../support/raw_client.ts";

needs("postgresql");

const shows = [
  "ACTIVE_SOCKETS",
  "CLIENTS",
  "CONFIG",
  "DATABASES",
  "DNS_HOSTS",
  "DNS_ZONES",
  "HELP",
  "LISTS",
  "MEM",
  "PEERS",
  "PEER_POOLS",
  "POOLS",
  "SERVERS",
  "SOCKETS",
  "STATE",
  "STATS",
  "STATS_AVERAGES",
  "STATS_TOTALS",
  "TOTALS",
  "USERS",
  "VERSION",
  "WORKER",
];

const tests = suite("console of a worker");

let postgres: Postgres;
let pgweir: Pgweir;

const client = { user: "postgres", database: "postgres" };
const admin = { user: "admin", database: "pgbouncer" };
const stats = { user: "watcher", database: "pgbouncer" };

function start(
  settings: Readonly<Record<string, string | number>> = {},
  options: Partial<PgweirOptions> = {},
): Promise<Pgweir> {
  return startPgweir({
    ini: {
      databases: { postgres: `host=127.0.0.1 port=${postgres.port}` },
      pgbouncer: { stats_users: "watcher", ...settings },
    },
    userlist: { postgres: "", admin: "", watcher: "", other: "" },
    ...options,
  });
}

tests.before(async () => {
  postgres = await startPostgres();
  pgweir = await start({ max_client_conn: 500, stats_period: 1 });
});

tests.after(async () => {
  await pgweir.stop();
  await postgres.stop();
});

/** Reads the replies up to ReadyForQuery and checks that each row has what its description says. */
async function agreeing(console: RawClient, sql: string): Promise<number> {
  console.send(f.Q(sql));
  const replies = await console.messagesUntil("Z");
  let columns = -1;
  let rows = 0;
  for (const reply of replies) {
    if (reply.type === Backend.rowDescription) columns = parseRowDescription(reply.body)!.length;
    if (reply.type !== Backend.dataRow) continue;
    rows++;
    assert.is(parseDataRow(reply.body)?.length, columns, sql);
  }
  const shape = replies.filter(({ type }) => type !== Backend.dataRow)
    .map((reply) => notation(reply)).join(" ");
  assert.is(shape, sql === "SHOW HELP" ? 'N C"SHOW" Z(I)' : 'T C"SHOW" Z(I)', sql);
  return rows;
}

async function pool(console: RawClient): Promise<Record<string, string | null>> {
  const rows = await console.table("SHOW POOLS");
  return rows.find((row) => row["database"] === "postgres") ?? {};
}

tests("psql shows everything and complains of nothing", async () => {
  const run = promisify(execFile);
  const target = `postgres://admin@127.0.0.1:${pgweir.port}/pgbouncer`;
  const commands = shows.flatMap((name) => ["-c", `SHOW ${name}`]);
  const { stdout, stderr } = await run("psql", ["-X", "-q", target, ...commands]);
  assert.match(stdout, "pgweir 0.");
  assert.match(stderr, "Console usage");
  assert.not.match(stderr, /ERROR|WARNING:|message|lost sync/);
});

tests("a driver gets results by either protocol, also in binary", async () => {
  for (const binary of [false, true]) {
    // The driver's types do not know this option of its.
    const config = { ...stats, host: pgweir.host, port: pgweir.port, binary };
    const driver = new pg.Client(config);
    await driver.connect();
    for (const name of shows) {
      if (name === "HELP") continue;
      const simple = await driver.query(`SHOW ${name}`);
      const extended = await driver.query({ text: `SHOW ${name}`, values: [] });
      assert.equal(
        extended.fields.map((field) => field.name),
        simple.fields.map((field) => field.name),
      );
    }
    const one = await driver.query({ text: "SELECT 1", values: [] });
    assert.equal(one.rows, [{ "?column?": 1 }]);
    const [worker] = (await driver.query({ text: "SHOW WORKER", values: [] })).rows;
    assert.is(worker.pid, pgweir.pid);
    assert.is(worker.count, 1);
    // A named statement is prepared once and used again.
    const named = { name: "state", text: "SHOW STATE", values: [] };
    assert.equal((await driver.query(named)).rows, (await driver.query(named)).rows);
    await driver.query("BEGIN");
    const refused = await driver.query({ text: "KILL", values: [] }).catch((error) => error);
    assert.is(refused.code, "42501");
    await driver.query("ROLLBACK");
    assert.is((await driver.query("SHOW VERSION")).rowCount, null);
    await driver.end();
  }
});

tests("a driver that describes statements before it runs them gets results, too", async () => {
  const { host, port } = pgweir;
  const sql = postgresJs({ ...stats, host, port, max: 1, fetch_types: false });
  assert.is((await sql`SHOW STATE`).length, 3);
  const code = await sql`nope`.then(() => "none", (error) => error.code);
  assert.is(code, "08P01");
  assert.is((await sql`SHOW STATE`).length, 3);
  assert.is((await sql.unsafe("SHOW LISTS")).length, 14);
  await sql.end();
});

// Monitoring drivers use Parse and Bind, or open with BEGIN, SET or an empty query: consoles have hung
// up on them, left them without ReadyForQuery, or died of a degenerate command.
tests("whatever comes, it is answered in step and the connection stays usable", async () => {
  const console = await RawClient.login(pgweir, admin);
  assert.is(console.settings.get("server_version"), "0.1.0/bouncer");
  assert.is(console.settings.get("client_encoding"), "UTF8");
  assert.is(console.key?.secret.length, 4);
  const bytes = (text: string) => new TextEncoder().encode(text);
  const exchanges: [Uint8Array, RegExp][] = [
    [
      concatBytes(f.P("", "SHOW POOLS"), f.B(), f.D("P"), f.E(), f.S()),
      /^1 2 T (D )+C"SHOW" Z\(I\)$/,
    ],
    [f.Q("SHOW VERSION"), /^T D C"SHOW" Z\(I\)$/],
    [f.Q("BEGIN"), /^N C"BEGIN" Z\(I\)$/],
    [f.Q("SET client_encoding TO 'UTF8'"), /^N C"SET" Z\(I\)$/],
    [f.Q("SET datestyle TO ISO"), /^N C"SET" Z\(I\)$/],
    [f.Q("SELECT 1"), /^T D C"SELECT 1" Z\(I\)$/],
    [f.Q(""), /^I Z\(I\)$/],
    [f.Q(";"), /^I Z\(I\)$/],
    [f.Q(";;;;;;;;"), /^I Z\(I\)$/],
    [f.Q("SHOW"), /^E\(08P01\) Z\(I\)$/],
    [f.Q("SHOW NOPE"), /^E\(08P01\) Z\(I\)$/],
    [f.Q("/* a */ show pools -- b\n;"), /^T (D )+C"SHOW" Z\(I\)$/],
    [f.Q("SHOW POOLS; SHOW STATS"), /^E\(08P01\) Z\(I\)$/],
    [f.Q(" ".repeat(1024 * 1024)), /^E\(08P01\) Z\(I\)$/],
    [message(0x51, bytes("SHOW POOLS")), /^E\(08P01\) Z\(I\)$/],
    [message(0x51, bytes("SHOW\0POOLS\0")), /^E\(08P01\) Z\(I\)$/],
    [f.F(2026), /^E\(0A000\) Z\(I\)$/],
    [concatBytes(f.d("x"), f.S()), /^Z\(I\)$/],
    [f.Q("COPY x FROM STDIN"), /^E\(08P01\) Z\(I\)$/],
    [concatBytes(f.P("", "SHOW $1"), f.B("", "", ["x"]), f.E(), f.S()), /^E\(08P01\) Z\(I\)$/],
    [concatBytes(f.P("", "RELOAD"), f.B(), f.E(), f.S()), /^1 2 C"RELOAD" Z\(I\)$/],
    [f.Q("SHOW FDS"), /^E\(0A000\) Z\(I\)$/],
  ];
  for (const [sent, wanted] of exchanges) {
    console.send(sent);
    assert.match(await console.replies(), wanted);
    assert.is((await console.query("SHOW STATE")).length, 3);
  }
  await console.sendByteByByte(f.Q("SHOW STATE"));
  assert.is(await console.replies(), 'T D D D C"SHOW" Z(I)');
  assert.is(console.unread, 0);
  await console.end();
});

tests("a first command may come together with the startup packet", async () => {
  const console = await RawClient.connect(pgweir);
  console.send(startupPacket(admin), f.Q("SHOW STATE"), f.Q("SHOW PEERS"), f.X());
  assert.match(
    await console.repliesUntilClosed(),
    /^R (S )+K Z\(I\) T D D D C"SHOW" Z\(I\) T C"SHOW" Z\(I\) closed$/,
  );
});

tests("a console that breaks the protocol is told so and closed", async () => {
  const console = await RawClient.login(pgweir, admin);
  console.send(f.Q("SHOW STATE"), new Uint8Array([0x7a, 0, 0, 0, 4]));
  assert.is(await console.repliesUntilClosed(), 'T D D D C"SHOW" Z(I) E(08P01) closed');
});

tests("counters are exact when all is idle", async () => {
  const console = await RawClient.login(pgweir, admin);
  const before = (await console.table("SHOW STATS")).find((row) => row["database"] === "postgres");
  const clients: RawClient[] = [];
  for (let i = 0; i < 5; i++) clients.push(await RawClient.login(pgweir, client));
  for (const each of clients) {
    await each.query("SELECT 1");
    await each.query("BEGIN");
    await each.query("SELECT 2");
    await each.query("COMMIT");
    each.send(f.P("s", "SELECT $1::int"), f.B("", "s", ["1"]), f.E(), f.S());
    await each.replies();
  }
  const idle = await pool(console);
  assert.is(idle["cl_active"], "5");
  assert.is(idle["cl_waiting"], "0");
  assert.is(idle["sv_active"], "0");
  assert.is(idle["maxwait"], "0");
  assert.is(idle["maxwait_us"], "0");
  const servers = await console.table("SHOW SERVERS");
  assert.ok(servers.every((row) => row["state"] === "idle"));
  assert.is(String(servers.length), idle["sv_idle"]);
  const backends = (await postgres.backends()).map((backend) => String(backend.pid)).sort();
  assert.equal(servers.map((row) => row["remote_pid"]).sort(), backends);

  const after = (await console.table("SHOW STATS")).find((row) => row["database"] === "postgres");
  const grown = (name: string) => Number(after?.[name]) - Number(before?.[name] ?? 0);
  assert.is(grown("total_query_count"), 25);
  assert.is(grown("total_xact_count"), 15);
  assert.is(grown("total_server_assignment_count"), 15);
  assert.is(grown("total_client_parse_count"), 5);
  assert.is(grown("total_bind_count"), 5);
  assert.is(grown("total_client_login_count"), 5);

  await clients[0]!.query("BEGIN");
  const shown = await console.table("SHOW CLIENTS");
  const ofClients = shown.filter((row) => row["database"] === "postgres");
  assert.equal(ofClients.map((row) => row["state"]).sort(), [
    "active",
    ...new Array(4).fill("idle"),
  ]);
  const active = ofClients.find((row) => row["state"] === "active")!;
  assert.is(active["port"], String(clients[0]!.localPort));
  const linked = (await console.table("SHOW SERVERS")).find((row) => row["state"] === "active")!;
  assert.is(active["link"], linked["ptr"]);
  assert.is(linked["link"], active["ptr"]);
  assert.is((await pool(console))["sv_active"], "1");

  for (const each of clients) each.close();
  await until("clients to be gone", async () => (await pool(console))["cl_active"] === "0");
  await until("servers to be idle", async () => (await pool(console))["sv_active"] === "0");
  const database = (await console.table("SHOW DATABASES"))[0]!;
  assert.is(database["current_client_connections"], "0");
  await console.end();
});

tests("the wait of a queued client shows up while it waits and afterwards", async () => {
  const own = await start({ default_pool_size: 1 });
  const console = await RawClient.login(own, admin);
  const holder = await RawClient.login(own, client);
  const waiter = await RawClient.login(own, client);
  await holder.query("BEGIN");
  const [before] = await console.table("SHOW STATS_TOTALS");
  const began = performance.now();
  waiter.send(f.Q("SELECT 1"));
  await until("the client to wait", async () => {
    const row = await pool(console);
    return row["cl_waiting"] === "1" &&
      Number(row["maxwait"]) * 1e6 + Number(row["maxwait_us"]) > 300_000;
  });
  const waiting = (await console.table("SHOW CLIENTS")).find((row) => row["state"] === "waiting")!;
  assert.ok(Number(waiting["wait"]) * 1e6 + Number(waiting["wait_us"]) > 300_000);
  await holder.query("COMMIT");
  assert.is(await waiter.replies(), 'T D C"SELECT 1" Z(I)');
  const waitedUs = (performance.now() - began) * 1000;
  const [after] = await console.table("SHOW STATS_TOTALS");
  const counted = Number(after!["wait_time"]) - Number(before!["wait_time"]);
  assert.ok(counted > 300_000 && counted <= waitedUs, `${counted} of ${waitedUs} us`);
  assert.is((await pool(console))["cl_waiting"], "0");
  await own.stop();
});

// Lists of clients were once walked while the clients left.
tests("every result is well-formed while 200 clients come and go", async () => {
  let busy = true;
  const churn = Array.from({ length: 20 }, async (_, lane) => {
    for (let round = 0; round < 10; round++) {
      const each = await RawClient.login(pgweir, client);
      await each.query("SELECT 1");
      if ((lane + round) % 3 === 0) each.reset();
      else if ((lane + round) % 3 === 1) each.close();
      else await each.end();
    }
  });
  const watch = async () => {
    const console = await RawClient.login(pgweir, stats);
    let rounds = 0;
    while (busy || rounds === 0) {
      for (const name of shows) await agreeing(console, `SHOW ${name}`);
      rounds++;
    }
    await console.end();
  };
  const watchers = [watch(), watch()];
  await Promise.all(churn);
  busy = false;
  await Promise.all(watchers);
  const console = await RawClient.login(pgweir, admin);
  await until("clients to be gone", async () => (await pool(console))["cl_active"] === "0");
  assert.is((await console.table("SHOW CLIENTS")).length, 1);
  await console.end();
  assert.is(pgweir.end, null);
});

tests(
  "a console that does not read is sent no more than it takes, and holds up nobody",
  async () => {
    const clients = await Promise.all(
      Array.from({ length: 100 }, () => RawClient.login(pgweir, client)),
    );
    const lazy = await RawClient.login(pgweir, admin);
    assert.is(await agreeing(lazy, "SHOW CLIENTS"), 101);
    lazy.pauseReading();
    // More than the kernel's buffers hold: 1,500 results of 20 KB.
    const rounds = 1_500;
    for (let i = 0; i < rounds; i++) lazy.send(f.Q("SHOW CLIENTS"));
    const console = await RawClient.login(pgweir, admin);
    await until("output to wait", async () => {
      const rows = await console.table("SHOW ACTIVE_SOCKETS");
      return rows.some((row) =>
        row["port"] === String(lazy.localPort) && row["send_avail"] !== "0"
      );
    });
    await clients[0]!.query("SELECT 1");
    const pending = (await console.table("SHOW ACTIVE_SOCKETS"))
      .find((row) => row["port"] === String(lazy.localPort))!;
    assert.ok(Number(pending["send_avail"]) < 128 * 1024, `${pending["send_avail"]} bytes wait`);
    lazy.resumeReading();
    const replies = await lazy.messagesUntil("Z", rounds, 90_000);
    assert.is(replies.filter(({ type }) => type === Backend.readyForQuery).length, rounds);

    // One that leaves in the middle of its results.
    lazy.pauseReading();
    for (let i = 0; i < rounds; i++) lazy.send(f.Q("SHOW CLIENTS"));
    lazy.reset();
    await until("the console to be gone", async () => {
      return (await console.table("SHOW CLIENTS"))
        .filter((row) => row["database"] === "pgbouncer").length === 1;
    });
    for (const each of clients) each.close();
    await console.end();
    assert.is(pgweir.end, null);
  },
);

tests("statistics are logged each stats_period, and averages are of the last one", async () => {
  await until("a line", () => /LOG stats: \d+ xacts\/s, \d+ queries\/s, /.test(pgweir.log()));
  const each = await RawClient.login(pgweir, client);
  const console = await RawClient.login(pgweir, admin);
  await until("an average", async () => {
    await each.query("SELECT 1");
    const rows = await console.table("SHOW STATS_AVERAGES");
    const row = rows.find(({ database }) => database === "postgres");
    return Number(row?.["query_count"]) > 0 && Number(row?.["query_time"]) > 0;
  });
  await each.end();
  await console.end();
});

tests("the console lets in only who is listed, and only with the right password", async () => {
  await postgres.query("ALTER ROLE postgres PASSWORD 'pw'");
  for (const authType of ["plain", "md5", "scram-sha-256"]) {
    const own = await start({ auth_type: authType }, {
      userlist: { postgres: "pw", admin: "right", watcher: "look", other: "o" },
    });
    const code = async (login: { user: string; password: string }) => {
      try {
        const console = await RawClient.login(own, { ...login, database: "pgbouncer" });
        await console.end();
        return "in";
      } catch (error) {
        return (error as ServerError).code;
      }
    };
    assert.is(await code({ user: "admin", password: "right" }), "in");
    assert.is(await code({ user: "admin", password: "wrong" }), "28P01");
    assert.is(await code({ user: "admin", password: "look" }), "28P01");
    assert.is(await code({ user: "watcher", password: "look" }), "in");
    assert.is(await code({ user: "watcher", password: "" }), "28P01");
    assert.is(await code({ user: "other", password: "o" }), "42501");
    assert.is(await code({ user: "nobody", password: "x" }), "28P01");
    await own.stop();
  }
});

tests("a statistics user sees everything but FDS, and changes nothing", async () => {
  const console = await RawClient.login(pgweir, stats);
  for (const name of shows) await agreeing(console, `SHOW ${name}`);
  const commands = [
    "SHOW FDS",
    "SET verbose = 1",
    "RELOAD",
    "PAUSE",
    "PAUSE postgres",
    "RESUME",
    "DISABLE postgres",
    "ENABLE postgres",
    "RECONNECT",
    "KILL",
    "KILL postgres",
    "KILL_CLIENT 1",
    "SUSPEND",
    "WAIT_CLOSE",
    "SHUTDOWN",
    "SHUTDOWN WAIT_FOR_CLIENTS",
  ];
  for (const command of commands) {
    console.send(
      f.Q(command),
      f.Q(`/* */${command.toLowerCase()} ;`),
      f.Q(`SHOW STATE; ${command}`),
      f.P("", command),
      f.B(),
      f.E(),
      f.S(),
    );
    const wanted = new Array(4).fill("E(42501) Z(I)").join(" ");
    assert.is(await console.replies(4), wanted, command);
  }
  const logged = /: pgbouncer\/watcher@\S+ pooler error: admin access needed$/m;
  await until("the log", () => logged.test(pgweir.log()));
  assert.match(pgweir.log(), /\] ERROR admin access needed$/m);
  await console.end();
  assert.is(pgweir.end, null);
});

tests("a cancel request with a console's key ends nothing", async () => {
  const console = await RawClient.login(pgweir, admin);
  const idle = async () => Number((await console.table("SHOW WORKER"))[0]!["cancels_idle"]);
  const before = await idle();
  assert.is(await console.cancel(), "");
  assert.is(await idle(), before + 1);
  await console.end();
});

tests("SHUTDOWN answers, says good-bye to all clients and ends the worker", async () => {
  for (const command of ["SHUTDOWN", "SHUTDOWN WAIT_FOR_SERVERS"]) {
    const own = await start();
    const idle = await RawClient.login(own, client);
    const console = await RawClient.login(own, admin);
    console.send(f.Q(command));
    assert.is(await console.repliesUntilClosed(), 'C"SHUTDOWN" Z(I) E(57P01) closed');
    assert.is(await idle.repliesUntilClosed(), "E(57P01) closed");
    await until("the worker to end", () => own.end);
    assert.equal(own.end, { code: 0, signal: null });
    assert.ok(own.log().includes(`${command} command issued`), own.log());
  }
});

tests("errors repeat nothing but the command, and have the severity of an error", async () => {
  const console = await RawClient.login(pgweir, stats);
  console.send(f.Q("SHOW 'x"));
  const [reply] = await console.messagesUntil("Z");
  const fields = parseErrorFields(reply!.body);
  assert.is(fields.severity, "ERROR");
  assert.is(fields.message, "invalid command 'SHOW 'x', use SHOW HELP;");
  await console.end();
});

tests.run();
