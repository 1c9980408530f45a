// LISTEN and NOTIFY where a server is the client's for a transaction or a statement only: each client is told what was
// sent to the channels of its own database that it listens to, once and in order, while it has no transaction open;
// what was rolled back does not count, and nobody else is told anything.
// limit: 400 s

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import sqlOf from "postgres";
import { runtimeName } from "../../../shared/sys/mod.ts";
import { cancelKeyWorker, message } from "../../../shared/wire/mod.ts";
import { assert, seededRandom, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { ask, closeAll, connectString, nothingHangs, open, upTo } from "../protocol/support.ts";
import { heard, listenerRow, listening, told, toldBefore } from "./listening.ts";
import { backendsWhere, waiting } from "./support.ts";

needs("postgresql", "python3-psycopg");

const ROUNDS = 200;

const test = suite("LISTEN");
let postgres: Postgres;
/** Two servers in each pool; the database by_statement has pool_mode statement, by_session session. */
let pooler: Pgweir;
/** Past the pooler, to the databases d1 and d2. */
let direct: RawClient;
let direct2: RawClient;

test.before(async () => {
  postgres = await startPostgres();
  for (const name of ["d1", "d2"]) await postgres.query(`CREATE DATABASE ${name}`);
  await postgres.query("CREATE TABLE jobs (n int)", [], "d1");
  const d1 = connectString(postgres, "dbname=d1");
  pooler = await startPgweir({
    ini: {
      databases: {
        "*": connectString(postgres),
        by_statement: `${d1} pool_mode=statement`,
        by_session: `${d1} pool_mode=session`,
        narrow: `${d1} pool_size=1`,
      },
      pgbouncer: { max_client_conn: 1000, default_pool_size: 2, server_idle_timeout: 2 },
    },
  });
});

test.before.each(async () => {
  direct = await open(postgres, { user: "postgres", database: "d1" });
  direct2 = await open(postgres, { user: "postgres", database: "d2" });
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const inD1 = { user: "postgres", database: "d1" };
const cycle = (sql: string) => [f.P("", sql), f.B(), f.E(), f.S()];

/** Asserts that none of the servers that a database's clients share listens to anything. */
async function noServerListens(database: string): Promise<void> {
  const clients = await Promise.all(
    upTo(2).map(() => open(pooler, { user: "postgres", database })),
  );
  for (const client of clients) {
    client.send(f.Q("SELECT count(*), pg_sleep(0.05) FROM pg_listening_channels()"));
  }
  for (const client of clients) {
    assert.is(await client.replies(1, { values: true }), 'T D("0","") C"SELECT 1" Z(I)');
    await client.end();
  }
}

test("a client is told what is sent to its channels in its own database, and nobody else", async () => {
  // With channels known by their names alone, one tenant was told what was sent to another.
  const one = await listening(pooler, "d1", "jobs");
  const two = await listening(pooler, "d2", "jobs");
  const other = await open(pooler, inD1);
  await direct2.query("NOTIFY jobs, 'two'");
  await direct.query("NOTIFY jobs, 'one'");
  await direct.query("NOTIFY elsewhere, 'none'");
  assert.equal(await heard(one, direct), ["jobs: one"]);
  assert.equal(await heard(two, direct2), ["jobs: two"]);
  await one.query("UNLISTEN jobs");
  for (const each of [direct, direct2]) await each.query("NOTIFY jobs, 'again'");
  assert.equal(await heard(one, direct), []);
  assert.equal(await heard(two, direct2), ["jobs: again"]);
  assert.is(other.unread, 0);
  await noServerListens("d1");
  assert.is(other.unread, 0);
});

test("clients that begin to listen to a channel in the same moment are all told", async () => {
  // The first of two registrations was lost when the second came while the server was asked for the channel.
  const pair = [await listening(pooler, "d1"), await listening(pooler, "d1")];
  for (const round of upTo(ROUNDS)) {
    const channel = `round_${round % 7}`;
    for (const client of pair) client.send(f.Q(`LISTEN ${channel}`));
    for (const client of pair) assert.equal(await toldBefore(client, "Z(I)"), ['C"LISTEN"']);
    await direct.query(`NOTIFY ${channel}, '${round}'`);
    for (const client of pair) {
      assert.equal(await heard(client, direct), [`${channel}: ${round}`], `round ${round}`);
    }
    for (const client of pair) client.send(f.Q(`UNLISTEN ${channel}`));
    for (const client of pair) assert.equal(await toldBefore(client, "Z(I)"), ['C"UNLISTEN"']);
    await direct.query(`NOTIFY ${channel}, 'late'`);
  }
  for (const client of pair) assert.equal(await heard(client, direct), []);
});

test("a client that has listened when it looks misses nothing", async () => {
  // What it asks behind LISTEN in one write must not be answered before it is told what is sent meanwhile.
  const client = await listening(pooler, "d1");
  const problems: string[] = [];
  for (const round of upTo(60)) {
    await direct.query("DELETE FROM jobs");
    const texts = round % 2 === 0
      ? ["LISTEN fresh", "SELECT count(*) FROM jobs"]
      : ["BEGIN", "LISTEN fresh", "COMMIT", "SELECT count(*) FROM jobs"];
    const parts = round % 3 === 0 ? texts.flatMap(cycle) : texts.map((sql) => f.Q(sql));
    client.send(...parts);
    direct.send(f.Q("INSERT INTO jobs VALUES (1); NOTIFY fresh, 'inserted'"));
    let replies = "";
    for (const _ of texts) replies += ` ${(await client.messagesUntil("Z")).map(seen).join(" ")}`;
    await direct.replies();
    const notes = replies + (await heard(client, direct)).join(" ");
    if (!notes.includes("D(1)") && !notes.includes("inserted")) {
      problems.push(`round ${round}: ${notes}`);
    }
    await client.query("UNLISTEN fresh");
  }
  assert.equal(problems, []);
});

/** As `told`, with the only value of a row. */
function seen(message: { type: number; body: Uint8Array }): string {
  if (message.type !== 0x44) return told(message);
  return `D(${new TextDecoder().decode(message.body.subarray(6))})`;
}

test("LISTEN and UNLISTEN count when their transaction commits, however they are sent", async () => {
  const client = await listening(pooler, "d1");
  const changes: [string, Uint8Array[], string[]][] = [
    ["alone", [f.Q("LISTEN a")], ["a"]],
    ["once more", [f.Q("listen A")], ["a"]],
    ["in a block", [f.Q("BEGIN"), f.Q("LISTEN b"), f.Q("SELECT 1"), f.Q("COMMIT")], ["a", "b"]],
    ["rolled back", [f.Q("BEGIN"), f.Q("LISTEN c"), f.Q("ROLLBACK")], ["a", "b"]],
    ["UNLISTEN rolled back", [f.Q("BEGIN"), f.Q("UNLISTEN a"), f.Q("ROLLBACK")], ["a", "b"]],
    ["in a failed block", [
      ...[f.Q("BEGIN"), f.Q("UNLISTEN a; LISTEN c")],
      ...[f.Q("SELECT 1/0"), f.Q("COMMIT")],
    ], ["a", "b"]],
    [
      "to a savepoint",
      [f.Q("BEGIN; SAVEPOINT s; LISTEN c; ROLLBACK TO s; LISTEN d; COMMIT")],
      ["a", "b", "d"],
    ],
    ["with others in one text", [f.Q("SELECT 1; LISTEN c; UNLISTEN b; SELECT 2")], ["a", "c", "d"]],
    ["in a text that fails", [f.Q("LISTEN e; UNLISTEN c; SELECT 1/0")], ["a", "c", "d"]],
    ["in the extended protocol", cycle("LISTEN e"), ["a", "c", "d", "e"]],
    ["UNLISTEN there", cycle("/* c */ unlisten C"), ["a", "d", "e"]],
    ["prepared", [f.P("l", "LISTEN b"), f.P("u", "UNLISTEN d"), f.S()], ["a", "d", "e"]],
    ["executed", [f.B("", "l"), f.E(), f.B("", "u"), f.E(), f.S()], ["a", "b", "e"]],
    [
      "in a pipeline",
      [...cycle("LISTEN f"), ...cycle("UNLISTEN f"), ...cycle("SELECT 1"), ...cycle("LISTEN g")],
      ["a", "b", "e", "g"],
    ],
    [
      "in a pipeline that fails",
      [f.P("", "LISTEN h"), f.B(), f.E(), f.P("", "SELECT 1/0"), f.B(), f.E(), f.S()],
      ["a", "b", "e", "g"],
    ],
    [
      "a failure before it, in another transaction",
      [f.Q("UNLISTEN a; SELECT 1/0"), f.Q("UNLISTEN b")],
      ["a", "e", "g"],
    ],
    ["twice and gone", [f.Q("LISTEN x; UNLISTEN x"), f.Q("UNLISTEN e; LISTEN e")], ["a", "e", "g"]],
    [
      "UNLISTEN rolled back to a savepoint",
      [f.Q("BEGIN; SAVEPOINT s; UNLISTEN a; ROLLBACK TO s; COMMIT")],
      ["a", "e", "g"],
    ],
    [
      "in front of the savepoint",
      [
        f.Q("LISTEN y; LISTEN z"),
        f.Q("BEGIN; UNLISTEN y; SAVEPOINT s; UNLISTEN a; ROLLBACK TO s; COMMIT"),
      ],
      ["a", "e", "g", "z"],
    ],
    [
      "behind an error that a savepoint catches",
      [
        ...["BEGIN", "UNLISTEN z", "SAVEPOINT s", "UNLISTEN a", "SELECT 1/0", "ROLLBACK TO s"],
        "COMMIT",
      ].map((sql) => f.Q(sql)),
      ["a", "e", "g"],
    ],
    [
      "released, and rolled back with the one around it",
      [
        ...["BEGIN", "UNLISTEN g", 'SAVEPOINT "S"', "UNLISTEN a", "SAVEPOINT s", "UNLISTEN e"],
        ...["RELEASE s", 'ROLLBACK TO "S"', "LISTEN z", "COMMIT"],
      ].flatMap(cycle),
      ["a", "e", "z"],
    ],
    [
      "committed in front of what fails",
      [f.Q("BEGIN; UNLISTEN z; COMMIT; SELECT 1/0"), f.Q("LISTEN g")],
      ["a", "e", "g"],
    ],
    [
      "so in a pipeline",
      [
        ...["UNLISTEN e", "COMMIT", "SELECT 1/0"].flatMap((sql) => cycle(sql).slice(0, -1)),
        ...[f.S(), f.Q("LISTEN h")],
      ],
      ["a", "g", "h"],
    ],
    ["of everything", [f.Q("UNLISTEN *; LISTEN stop; LISTEN i")], ["i"]],
    ["DISCARD ALL", [f.Q("DISCARD ALL"), f.Q("LISTEN stop")], []],
  ];
  for (const [what, parts, wanted] of changes) {
    const ends = parts.filter((part) => part[0] === 0x51 || part[0] === 0x53).length;
    client.send(...parts);
    const replies = await client.replies(ends);
    assert.match(replies, /Z\(I\)$/, what);
    for (const channel of "abcdefghixyz") await direct.query(`NOTIFY ${channel}`);
    assert.equal(await heard(client, direct), wanted.map((channel) => `${channel}: `), what);
  }
  await noServerListens("d1");
});

const channels = ["a", "b", "c"];

/** A random transaction with savepoints, of a client that listens to all channels. */
function randomSavepoints(
  random: () => number,
  pick: <T>(from: readonly T[]) => T,
): { parts: Uint8Array[]; ends: number } {
  const texts = ["BEGIN"];
  const open: string[] = [];
  const rollback = () => texts.push(`${pick(["ROLLBACK TO", "rollback work to"])} ${pick(open)}`);
  for (const _ of upTo(4 + Math.floor(random() * 9))) {
    const dice = random();
    if (dice < 0.35) texts.push(`UNLISTEN ${pick(channels)}`);
    else if (dice < 0.45) texts.push(`LISTEN ${pick(channels)}`);
    else if (dice < 0.7 || open.length === 0) {
      // What is open is not followed exactly: a statement may well fail.
      const name = pick(["s", "t", '"S"']);
      open.push(name);
      texts.push(`SAVEPOINT ${name}`);
    } else if (dice < 0.8) texts.push(`RELEASE ${pick(["", "SAVEPOINT "])}${open.pop()}`);
    else if (dice < 0.93) rollback();
    else {
      texts.push("SELECT 1/0");
      rollback();
    }
  }
  texts.push(pick(["COMMIT", "COMMIT", "COMMIT", "COMMIT AND CHAIN", "ROLLBACK"]), "ROLLBACK");
  const all = f.Q("LISTEN a; LISTEN b; LISTEN c");
  switch (Math.floor(random() * 3)) {
    case 0:
      return { parts: [all, f.Q(texts.join(";")), f.Q("ROLLBACK")], ends: 3 };
    case 1:
      return { parts: [all, ...texts.map((sql) => f.Q(sql))], ends: 1 + texts.length };
    default:
      return { parts: [all, ...texts.flatMap(cycle)], ends: 1 + texts.length };
  }
}

/** A random transaction: its messages, and how many ReadyForQuery they are answered by. */
function randomTransaction(random: () => number): { parts: Uint8Array[]; ends: number } {
  const pick = <T>(from: readonly T[]) => from[Math.floor(random() * from.length)]!;
  // Who listens and notifies at once is not told, since nobody listened yet for it when it was sent.
  const texts = random() < 0.2
    ? ["NOTIFY a, 'own'", "SELECT pg_notify('b', 'own')"]
    : channels.flatMap((channel) => [`LISTEN ${channel}`, `UNLISTEN ${channel}`])
      .concat("UNLISTEN *", "SELECT 1", "SELECT 1", "SELECT 1/0");
  if (random() < 0.4) return randomSavepoints(random, pick);
  const some = upTo(1 + Math.floor(random() * 4)).map(() => pick(texts));
  const block = ["BEGIN", ...some, pick(["COMMIT", "COMMIT", "ROLLBACK"])];
  switch (Math.floor(random() * 5)) {
    case 0:
      return { parts: [f.Q(some.join(";"))], ends: 1 };
    case 1:
      return { parts: [f.Q(block.join(";")), f.Q("ROLLBACK")], ends: 2 };
    case 2:
      return { parts: block.map((sql) => f.Q(sql)), ends: block.length };
    case 3:
      return { parts: [...some.flatMap((sql) => cycle(sql).slice(0, 3)), f.S()], ends: 1 };
    default: {
      const cycles = random() < 0.5 ? some : block;
      return { parts: cycles.flatMap(cycle), ends: cycles.length };
    }
  }
}

test("whatever a client does, it is told what PostgreSQL itself would tell it", async () => {
  const seed = Date.now() % 1_000_000;
  const random = seededRandom(seed);
  const pair = [await listening(pooler, "d1"), await listening(postgres, "d1")] as const;
  for (const step of upTo(250)) {
    const { parts, ends } = randomTransaction(random);
    const again = f.Q("LISTEN stop");
    const replies: string[][] = [[], []];
    for (const [side, client] of pair.entries()) {
      client.send(...parts, again);
      const all = (await client.messagesUntil("Z", ends + 1)).map(told);
      replies[side]!.push(...all.filter((said) => !said.includes(": ")));
      replies[side]!.push(...all.filter((said) => said.includes(": ") && !said.startsWith("stop")));
    }
    for (const channel of channels) await direct.query(`NOTIFY ${channel}, '${step}'`);
    for (const [side, client] of pair.entries()) {
      replies[side]!.push(...await heard(client, direct));
    }
    const sent = parts.map((part) => JSON.stringify(new TextDecoder().decode(part))).join(" ");
    assert.equal(replies[0], replies[1], `seed ${seed}, step ${step}: ${sent}`);
  }
});

test("names of channels are PostgreSQL's", async () => {
  const names = [
    ['"Two Words"', "Two Words"],
    ['"a""b"', 'a"b'],
    ["UPPER", "upper"],
    ["größe", "größe"],
    ['"; UNLISTEN *; --"', "; UNLISTEN *; --"],
    [`"${"long".repeat(20)}"`, "long".repeat(20).slice(0, 63)],
    ['"*"', "*"],
    ['U&"\\0441"', "с"],
  ] as const;
  const client = await listening(pooler, "d1");
  for (const [name] of names) await client.query(`LISTEN ${name}`);
  for (const [, name] of names) await direct.query(`SELECT pg_notify($$${name}$$, 'x')`);
  assert.equal(await heard(client, direct), names.map(([, name]) => `${name}: x`));
  // PostgreSQL itself has no other word for "*" than for everything: it is left out here.
  for (const [name] of names) if (!/^(U&|"\*")/.test(name)) await client.query(`UNLISTEN ${name}`);
  for (const [, name] of names) await direct.query(`SELECT pg_notify($$${name}$$, 'x')`);
  assert.equal(await heard(client, direct), ["*: x", "с: x"]);
});

test("payloads of any length are passed on byte for byte", async () => {
  const client = await listening(pooler, "d1", "large");
  const payloads = ["", "'", "x".repeat(7999), "ü".repeat(3999), "\t\n\\"];
  for (const payload of payloads) await direct.query(`SELECT pg_notify('large', $p$${payload}$p$)`);
  const own = await open(postgres, inD1);
  await own.query("LISTEN large");
  await own.query(`SELECT pg_notify('large', '${"y".repeat(7999)}')`);
  assert.equal(
    await heard(client, direct),
    [...payloads, "y".repeat(7999)].map((payload) => `large: ${payload}`),
  );
});

test("a client in a transaction is told at its end, in order, before it can go on", async () => {
  const client = await listening(pooler, "d1", "jobs");
  const quiet = await listening(pooler, "d1", "jobs");
  await client.query("BEGIN");
  for (const n of upTo(3)) await direct.query(`NOTIFY jobs, '${n}'`);
  // They have arrived at the pooler.
  assert.is((await heard(quiet, direct)).length, 3);
  assert.is(await ask(client, [f.Q("SELECT 1")]), 'T D("1") C"SELECT 1" Z(T)');
  assert.is(client.unread, 0);
  client.send(f.Q("COMMIT"));
  assert.equal(await toldBefore(client, "Z(I)"), ['C"COMMIT"', "jobs: 1", "jobs: 2", "jobs: 3"]);
  // And in the middle of a statement.
  await direct.query("SELECT pg_advisory_lock(4)");
  client.send(f.Q("SELECT pg_advisory_xact_lock(4)"));
  await backendsWhere(postgres, 1, "wait_event = 'advisory'");
  await direct.query("NOTIFY jobs, '4'");
  assert.equal(await heard(quiet, direct), ["jobs: 4"]);
  await direct.query("SELECT pg_advisory_unlock(4)");
  assert.equal(await toldBefore(client, "Z(I)"), ["T", "D", 'C"SELECT 1"', "jobs: 4"]);
  // What it does not listen to any more at the end is not told.
  await client.query("BEGIN");
  await direct.query("NOTIFY jobs, '5'");
  assert.equal(await heard(quiet, direct), ["jobs: 5"]);
  await client.query("UNLISTEN jobs");
  client.send(f.Q("COMMIT"));
  assert.equal(await toldBefore(client, "Z(I)"), ['C"COMMIT"']);
});

test("a client that waits for a server is told when it has had its answer", async () => {
  const holder = await open(pooler, { user: "postgres", database: "narrow" });
  const client = await listening(pooler, "narrow", "jobs");
  const quiet = await listening(pooler, "narrow", "jobs");
  await holder.query("BEGIN");
  client.send(f.Q("SELECT 1"));
  await waiting(pooler, 1, "narrow");
  await direct.query("NOTIFY jobs, 'one'");
  assert.equal(await heard(quiet, direct), ["jobs: one"]);
  assert.is(client.unread, 0);
  await holder.query("COMMIT");
  assert.equal(await toldBefore(client, "Z(I)"), ["T", "D", 'C"SELECT 1"', "jobs: one"]);
  // Cancelled in the queue.
  await holder.query("BEGIN");
  client.send(f.Q("SELECT 1"));
  await waiting(pooler, 1, "narrow");
  await direct.query("NOTIFY jobs, 'two'");
  assert.equal(await heard(quiet, direct), ["jobs: two"]);
  await client.cancel();
  assert.equal(await toldBefore(client, "jobs: two"), [
    "ERROR 57014 canceling statement due to user request",
    "Z(I)",
  ]);
  await holder.query("COMMIT");
});

test("NOTIFY through the pooler is sent when its transaction commits", async () => {
  const client = await listening(pooler, "d1", "jobs");
  const sender = await open(pooler, inD1);
  for (const end of ["ROLLBACK", "COMMIT"]) {
    await sender.query("BEGIN");
    await sender.query(`NOTIFY jobs, 'before ${end}'`);
    await sender.query(`SELECT pg_notify('jobs', 'selected before ${end}')`);
    await sender.query(end);
  }
  await ask(sender, cycle("NOTIFY jobs, 'alone'"));
  assert.equal(await heard(client, direct), [
    "jobs: before COMMIT",
    "jobs: selected before COMMIT",
    "jobs: alone",
  ]);
  assert.is(sender.unread, 0);
  // By the listening client itself.
  client.send(f.Q("NOTIFY jobs, 'to myself'"));
  const notes = await toldBefore(client, "Z(I)");
  assert.equal([...notes, ...await heard(client, direct)], ['C"NOTIFY"', "jobs: to myself"]);
});

test("statement mode is no different, and session mode listens by itself", async () => {
  const client = await listening(pooler, "by_statement", "jobs");
  const session = await listening(pooler, "by_session", "jobs");
  await direct.query("NOTIFY jobs, 'one'");
  assert.equal(await heard(client, direct), ["jobs: one"]);
  assert.equal(await heard(session, direct), ["jobs: one"]);
  assert.equal(await session.query("SELECT pg_listening_channels()"), [["stop"], ["jobs"]]);
  assert.is(
    (await pooler.console("SHOW LISTENERS")).some((row) => row["database"] === "by_session"),
    false,
  );
  client.send(f.Q("UNLISTEN jobs; SELECT 1"));
  assert.equal(await toldBefore(client, "Z(I)"), ['C"UNLISTEN"', "T", "D", 'C"SELECT 1"']);
  await direct.query("NOTIFY jobs, 'two'");
  assert.equal(await heard(client, direct), []);
  client.send(f.Q("BEGIN"));
  assert.match(
    (await toldBefore(client, "closed")).join(" "),
    /FATAL 0A000 transaction blocks not allowed/,
  );
  await session.end();
});

test("each client is told in its own encoding", async () => {
  const plain = await listening(pooler, "d1", '"größe"');
  const latin = await open(pooler, { ...inD1, parameters: { client_encoding: "LATIN1" } });
  const bytes = (sql: string) => message(0x51, Uint8Array.from(`${sql}\0`, (c) => c.charCodeAt(0)));
  latin.send(bytes('LISTEN "größe"'));
  assert.is(await latin.replies(), 'C"LISTEN" Z(I)');
  await direct.query("NOTIFY größe, 'ü'");
  const note = await latin.message();
  assert.is(String.fromCharCode(...note!.body.subarray(4)), "größe\0ü\0");
  assert.equal(await heard(plain, direct), ["größe: ü"]);
  const rows = await pooler.console("SHOW LISTENERS");
  const encodings = rows.filter((row) => row["database"] === "d1").map((row) =>
    row["client_encoding"]
  );
  assert.equal(encodings.toSorted(), ["LATIN1", "UTF8"]);
});

test("a client that keeps its server for a lock is told between its transactions", async () => {
  const client = await listening(pooler, "d1", "jobs");
  await client.query("SELECT pg_advisory_lock(1)");
  await direct.query("NOTIFY jobs, 'one'");
  assert.equal(await heard(client, direct), ["jobs: one"]);
  assert.is(
    await ask(client, [f.Q("LISTEN more"), f.Q("BEGIN")], 2),
    'C"LISTEN" Z(I) C"BEGIN" Z(T)',
  );
  await direct.query("NOTIFY more, 'two'");
  client.send(f.Q("COMMIT"));
  assert.equal([...await toldBefore(client, "Z(I)"), ...await heard(client, direct)].toSorted(), [
    'C"COMMIT"',
    "more: two",
  ]);
  await client.query("SELECT pg_advisory_unlock(1); LISTEN third");
  for (const channel of ["jobs", "more", "third"]) await direct.query(`NOTIFY ${channel}`);
  assert.equal(await heard(client, direct), ["jobs: ", "more: ", "third: "]);
  const [row] = await postgres.query(
    "SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory'",
  );
  assert.is(row!["n"], 0);
  await noServerListens("d1");
});

test("what nobody listens to any more is given up, the connection as well", async () => {
  const client = await listening(pooler, "d2", "jobs", "more");
  const other = await listening(pooler, "d2", "jobs");
  assert.equal(pick(await listenerRow(pooler, "d2")), [
    "UTF8",
    "postgres",
    "listening",
    "3",
    "2",
    "0",
  ]);
  const name = "pgweir listener";
  const find = async () => {
    const rows = await postgres.query(
      "SELECT pid, query FROM pg_stat_activity WHERE application_name = $1 AND datname = 'd2'",
      [name],
    );
    return rows as { pid: number; query: string }[];
  };
  const pid = await until("one connection that listens", async () => {
    const found = await find();
    return found.length === 1 ? found[0]!.pid : null;
  });
  const shown = (await pooler.console("SHOW SERVERS")).find((row) =>
    row["application_name"] === name && row["database"] === "d2"
  )!;
  assert.equal([shown["type"], shown["state"], shown["remote_pid"]], ["S", "active", String(pid)]);
  await other.end();
  client.reset();
  await until(
    "channels to be given up",
    async () => (await find())[0]?.query.startsWith("UNLISTEN"),
  );
  await until("none to be left", async () => {
    return (await listenerRow(pooler, "d2"))["channels"] === "0";
  });
  await until("the connection to be closed", async () => (await find()).length === 0);
  assert.equal(pick(await listenerRow(pooler, "d2")), ["UTF8", null, "closed", "0", "0", "0"]);
  await until("its slot to be given back", async () => {
    const leases = await pooler.console("SHOW LEASES");
    const lease = leases.find((row) => row["kind"] === "direct" && row["database"] === "d2")!;
    return lease["held"] === "0" && lease["wanted"] === "0";
  });
  // And there again.
  const third = await listening(pooler, "d2", "jobs");
  await direct2.query("NOTIFY jobs, 'three'");
  assert.equal(await heard(third, direct2), ["jobs: three"]);
});

function pick(row: Record<string, string | null>): (string | null)[] {
  return ["client_encoding", "user", "state", "channels", "clients", "waiting"].map((name) =>
    row[name]!
  );
}

test("every worker listens for its own clients", async () => {
  const four = await startPgweir({
    ini: {
      databases: { "*": connectString(postgres) },
      pgbouncer: { max_client_conn: 100, default_pool_size: 2, server_idle_timeout: 2 },
      pgweir: { runtime: runtimeName },
    },
    workers: 4,
  });
  try {
    const clients: RawClient[] = [];
    const met = new Set<number>();
    for (let i = 0; i < 12 || (met.size < 4 && i < 100); i++) {
      const client = await listening(four, "d1", "jobs", `own_${i}`);
      clients.push(client);
      met.add(cancelKeyWorker(client.key!.processId, client.key!.secret));
    }
    assert.is(met.size, 4);
    const sender = await open(four, inD1);
    for (const i of clients.keys()) {
      await sender.query(`BEGIN; NOTIFY jobs, '${i}'; NOTIFY own_${i}, 'mine'; COMMIT`);
    }
    const jobs = [...clients.keys()].map((i) => `jobs: ${i}`);
    for (const [i, client] of clients.entries()) {
      const notes = await heard(client, direct);
      assert.equal(notes.filter((note) => note.startsWith("jobs")), jobs);
      assert.equal(notes.filter((note) => !note.startsWith("jobs")), [`own_${i}: mine`]);
    }
    const [row] = await postgres.query(
      "SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name = 'pgweir listener' AND datname = 'd1'",
    );
    // Those of the other pooler have ended, or soon will.
    assert.ok(Number(row!["n"]) >= 4);
  } finally {
    await four.stop();
  }
});

test("drivers listen by the means they have", async () => {
  const sql = sqlOf({ host: pooler.host, port: pooler.port, ...inD1, max: 2 });
  const got: string[] = [];
  try {
    await sql.listen("jobs", (payload) => void got.push(payload));
    await sql.notify("jobs", "by postgres.js");
    await until("a notification", () => got.length === 1);
    const script = `
import psycopg
with psycopg.connect(host="${pooler.host}", port=${pooler.port}, user="postgres", dbname="d1", autocommit=True) as conn:
    conn.execute("LISTEN jobs")
    with psycopg.connect(host="${pooler.host}", port=${pooler.port}, user="postgres", dbname="d1") as other:
        for n in range(3):
            other.execute("SELECT pg_notify('jobs', %s)", (str(n),))
            other.commit()
    notes = conn.notifies()
    print([next(notes).payload for n in range(3)])
`;
    const { stdout } = await promisify(execFile)("/usr/bin/python3", ["-c", script]);
    assert.is(stdout, "['0', '1', '2']\n");
    await until("all notifications", () => got.length === 4);
    assert.equal(got, ["by postgres.js", "0", "1", "2"]);
  } finally {
    await sql.end({ timeout: 5 });
  }
});

test("nothing is left of it", async () => {
  await noServerListens("d1");
  await nothingHangs(pooler, postgres);
});

test.run();
