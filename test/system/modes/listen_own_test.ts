// Notifications that a client sends to itself, in transaction and statement pooling: as from PostgreSQL they come before
// the ReadyForQuery of the command that commits them, so that a program which looks right behind it finds them. It
// waits for them only where it listens itself, and not for ever.
// limit: 120 s

import { execFile } from "node:child_process";
import process from "node:process";
import { promisify } from "node:util";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import type { RawClient } from "../../support/raw_client.ts";
import { closeAll, connectString, nothingHangs, open, upTo } from "../protocol/support.ts";
import { heard, listening, told, toldBefore } from "./listening.ts";

needs("postgresql", "python3-psycopg");

const test = suite("LISTEN, own notifications");
let postgres: Postgres;
/** One server in each pool. */
let pooler: Pgweir;
/** Past the pooler. */
let direct: RawClient;

test.before(async () => {
  postgres = await startPostgres();
  for (const name of ["d1", "d2"]) await postgres.query(`CREATE DATABASE ${name}`);
  const d1 = connectString(postgres, "dbname=d1");
  pooler = await startPgweir({
    ini: {
      databases: { "*": connectString(postgres), by_statement: `${d1} pool_mode=statement` },
      pgbouncer: { max_client_conn: 100, default_pool_size: 1, max_prepared_statements: 10 },
    },
  });
});

test.before.each(async () => {
  direct = await open(postgres, { user: "postgres", database: "d1" });
});

test.after.each(closeAll);

test.after(async () => {
  await nothingHangs(pooler, postgres);
  await pooler.stop();
  await postgres.stop("immediate");
});

const queries = (...texts: string[]) => texts.map((sql) => f.Q(sql));
const cycle = (sql: string) => [f.P("", sql), f.B(), f.E(), f.S()];

/** What a client is told in answer to these messages, sent one request after the other. */
async function answers(client: RawClient, parts: readonly Uint8Array[]): Promise<string[]> {
  const all: string[] = [];
  let batch: Uint8Array[] = [];
  for (const part of parts) {
    batch.push(part);
    if (part[0] !== 0x51 && part[0] !== 0x53) continue;
    client.send(...batch);
    batch = [];
    all.push(...(await client.messagesUntil("Z")).map(told));
  }
  return all;
}

/** On a machine that is busy the listener may have been too late: with new clients once more. */
async function inTime(work: () => Promise<void>): Promise<void> {
  for (const _ of upTo(2)) {
    try {
      return await work();
    } catch {
      closeAll();
      direct = await open(postgres, { user: "postgres", database: "d1" });
    }
  }
  await work();
}

/** What has to be answered as by PostgreSQL itself, note for note. */
const rows: [what: string, parts: Uint8Array[]][] = [
  ["alone", queries("NOTIFY jobs, 'one'", "NOTIFY jobs")],
  ["in other words", queries("/* c */ notify Jobs, 'x'", "NOTIFY \"jobs\", 'y'")],
  ["in the extended protocol", cycle("NOTIFY jobs, 'extended'")],
  ["prepared", [f.P("n", "NOTIFY jobs, 'prepared'"), f.S(), f.B("", "n"), f.E(), f.S()]],
  ["by pg_notify()", queries("SELECT pg_notify('jobs', 'called')")],
  ["by pg_notify() there", cycle("SELECT pg_catalog.pg_notify('jobs', 'called')")],
  ["by a block of code", queries("DO $$BEGIN PERFORM pg_notify('jobs', 'code'); END$$")],
  ["in a transaction", queries("BEGIN", "NOTIFY jobs, 'in a block'", "SELECT 1", "COMMIT")],
  ["in one text", queries("BEGIN; NOTIFY jobs, 'text'; COMMIT; SELECT 2")],
  ["several", queries("NOTIFY jobs, '1'; NOTIFY more, '2'; NOTIFY jobs, '1'; NOTIFY jobs, '3'")],
  ["rolled back", queries("BEGIN", "NOTIFY jobs", "ROLLBACK", "SELECT 1")],
  ["in a text that fails", queries("NOTIFY jobs, 'no'; SELECT 1/0", "SELECT 1")],
  [
    "behind a savepoint",
    queries(
      "BEGIN; NOTIFY jobs, 'kept'; SAVEPOINT s; NOTIFY jobs, 'dropped'; ROLLBACK TO s",
      "COMMIT",
    ),
  ],
  ["where it does not listen", queries("NOTIFY elsewhere", "SELECT pg_notify('elsewhere', '')")],
  ["in a chain", queries("BEGIN; NOTIFY jobs, 'chained'; COMMIT AND CHAIN", "COMMIT")],
  ["with a setting", queries("SET application_name = 'a'; NOTIFY jobs, 'set'", "RESET ALL")],
  ["with a setting that is not reported", queries("SET work_mem = '5MB'; NOTIFY jobs, 'set'")],
  ["when it listens to more", queries("BEGIN; LISTEN third; NOTIFY jobs, 'now'; COMMIT")],
  ["when it listens no more", queries("BEGIN; NOTIFY jobs; NOTIFY more; UNLISTEN more; COMMIT")],
];

test("a client is told what it has notified itself before that is answered", async () => {
  // It came behind the answer, so PQnotifies() right behind PQexec() found nothing.
  for (const [what, parts] of rows) {
    await inTime(async () => {
      // Each hears only itself.
      const pair = [await listening(pooler, "d1"), await listening(postgres, "d2")] as const;
      for (const client of pair) await client.query("LISTEN jobs; LISTEN more");
      const [found, wanted] = [await answers(pair[0], parts), await answers(pair[1], parts)];
      // Where parameters are reported is not the matter.
      const isOther = (said: string) => said !== "S";
      assert.equal(found.filter(isOther), wanted.filter(isOther), what);
      assert.equal(await heard(pair[0], direct), []);
      for (const client of pair) await client.end();
    });
  }
  await inTime(async () => {
    const client = await listening(pooler, "d1", "jobs");
    for (const n of upTo(50)) {
      const told = await answers(client, queries(`NOTIFY jobs, '${n}'`));
      assert.equal(told, ['C"NOTIFY"', `jobs: ${n}`, "Z(I)"]);
    }
  });
});

test("what others have sent before comes with it, in order", async () => {
  await inTime(async () => {
    const client = await listening(pooler, "d1", "jobs");
    await client.query("BEGIN; SELECT 1");
    for (const n of upTo(3)) await direct.query(`NOTIFY jobs, '${n}'`);
    assert.equal(await answers(client, queries("NOTIFY jobs, 'own'", "COMMIT")), [
      ...['C"NOTIFY"', "Z(T)", 'C"COMMIT"', "jobs: 1", "jobs: 2", "jobs: 3", "jobs: own", "Z(I)"],
    ]);
  });
});

test("requests that are sent at once are told by the end of the last", async () => {
  await inTime(async () => {
    const client = await listening(pooler, "d1", "jobs");
    client.send(...queries("NOTIFY jobs, 'a'", "SELECT 1", "NOTIFY jobs, 'b'"));
    const all = (await client.messagesUntil("Z", 3)).map(told);
    assert.equal(all.filter((said) => said.startsWith("jobs")), ["jobs: a", "jobs: b"]);
    assert.is(all.filter((said) => said === "Z(I)").length, 3);
  });
});

test("statement mode is no different", async () => {
  await inTime(async () => {
    const client = await listening(pooler, "by_statement", "jobs");
    for (const parts of [queries("NOTIFY jobs, 'x'"), cycle("SELECT pg_notify('jobs', 'x')")]) {
      const all = await answers(client, parts);
      assert.equal(all.slice(-2), ["jobs: x", "Z(I)"]);
    }
  });
});

test("a client is told more than may wait for it, if it reads", async () => {
  const client = await listening(pooler, "d1", "jobs");
  client.send(f.Q("SELECT count(pg_notify('jobs', n::text)) FROM generate_series(1, 12000) n"));
  const notes = (await client.messagesUntil("Z", 1, 60_000)).map(told);
  notes.push(...await heard(client, direct));
  assert.equal(
    notes.filter((note) => note.startsWith("jobs")),
    upTo(12_000).map((n) => `jobs: ${n}`),
  );
});

test("a listener that does not answer keeps nobody waiting", async () => {
  const client = await listening(pooler, "d1", "jobs");
  const other = await open(pooler, { user: "postgres", database: "d1" });
  const [row] = await postgres.query(
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgweir listener' AND datname = 'd1'",
  );
  const pid = Number(row!["pid"]);
  process.kill(pid, "SIGSTOP");
  try {
    client.send(f.Q("NOTIFY jobs, 'one'"));
    assert.equal(await other.query("SELECT 1"), [["1"]]);
    assert.equal(await toldBefore(client, "Z(I)"), ['C"NOTIFY"']);
    for (const _ of upTo(20)) {
      client.send(f.Q("NOTIFY jobs, 'more'"));
      assert.equal(await toldBefore(client, "Z(I)"), ['C"NOTIFY"']);
    }
  } finally {
    process.kill(pid, "SIGCONT");
  }
  const notes = await heard(client, direct);
  assert.equal(notes, ["jobs: one", ...upTo(20).map(() => "jobs: more")]);
  await until("the listener to be trusted again", async () => {
    client.send(f.Q("NOTIFY jobs, 'again'"));
    const isBefore = (await toldBefore(client, "Z(I)")).includes("jobs: again");
    if (!isBefore) await heard(client, direct);
    return isBefore;
  });
});

test("a client may leave, or lose the listener, while it waits", async () => {
  const clients = await Promise.all(upTo(6).map(() => listening(pooler, "d1", "jobs")));
  const find =
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgweir listener' AND datname = 'd1'";
  const pid = Number((await postgres.query(find))[0]!["pid"]);
  process.kill(pid, "SIGSTOP");
  try {
    for (const client of clients) client.send(f.Q("NOTIFY jobs, 'x'"));
    for (const client of clients.splice(0, 3)) client.reset();
    await postgres.query(`SELECT pg_terminate_backend(${pid})`);
  } finally {
    process.kill(pid, "SIGCONT");
  }
  for (const client of clients) {
    const all = await toldBefore(client, "Z(I)");
    assert.is(all[0], 'C"NOTIFY"');
    assert.equal(await client.query("SELECT 1"), [["1"]]);
  }
});

test("programs that look right behind their command find what they have notified", async () => {
  const run = async ({ host, port }: { host: string; port: number }) => {
    const script = `
import psycopg
conn = psycopg.connect(host="${host}", port=${port}, user="postgres", dbname="d1", autocommit=True).pgconn
conn.exec_(b"LISTEN jobs")
for text in [b"NOTIFY jobs, 'a'", b"SELECT pg_notify('jobs', 'b')", b"BEGIN; NOTIFY jobs, 'c'", b"COMMIT"]:
    conn.exec_(text)
    note = conn.notifies()
    print(note and note.extra.decode())
`;
    return (await promisify(execFile)("/usr/bin/python3", ["-c", script])).stdout;
  };
  await inTime(async () => assert.is(await run(pooler), "a\nb\nNone\nc\n"));
  assert.is(await run(postgres), "a\nb\nNone\nc\n");
});

test.run();
