// LISTEN and NOTIFY of every driver, in both pool modes, one worker and four: each listener gets exactly what was
// sent to its channels, in order, once, whether it was sent through the pooler or past it. The drivers listen at the
// same time, and in transaction mode they share two servers.
// limit: 400 s

import pg from "pg";
import sqlOf from "postgres";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { python } from "./python_steps.ts";
import { below, IN_SESSION, type Side, startSides, within } from "./support.ts";

needs("python3-psycopg");

const NOTES = 8;

const sides = await startSides();
const tests = suite("listen");

/** What a listener got: channel and payload. */
type Note = readonly [string, string];

interface Listener {
  readonly got: Note[];
  listen(channel: string): Promise<void>;
  unlisten(channel: string): Promise<void>;
  notify(channel: string, payload: string): Promise<void>;
  /** Sends in a transaction that is committed or rolled back. */
  notifyIn(end: "COMMIT" | "ROLLBACK", channel: string, payload: string): Promise<void>;
  /** A query whose answer is checked. */
  query(n: number): Promise<void>;
  end(): Promise<void>;
}

async function nodePostgres(side: Side): Promise<Listener> {
  const { host, port, database } = side;
  const client = new pg.Client({ host, port, database, user: "postgres" });
  const got: Note[] = [];
  client.on("error", () => {});
  client.on("notification", (note) => got.push([note.channel, note.payload ?? ""]));
  await client.connect();
  const notify = async (channel: string, payload: string) => {
    await client.query({
      name: "notify",
      text: "SELECT pg_notify($1, $2)",
      values: [channel, payload],
    });
  };
  return {
    got,
    async listen(channel) {
      await client.query(`LISTEN ${pg.escapeIdentifier(channel)}`);
    },
    async unlisten(channel) {
      await client.query(`UNLISTEN ${pg.escapeIdentifier(channel)}`);
    },
    notify,
    async notifyIn(end, channel, payload) {
      await client.query("BEGIN");
      await notify(channel, payload);
      await client.query(end);
    },
    async query(n) {
      assert.equal((await client.query("SELECT $1::int AS n", [n])).rows, [{ n }]);
    },
    end: () => client.end(),
  };
}

/** It listens on a connection of its own and does everything else on another. */
function postgresJs(side: Side): Listener {
  const { host, port, database } = side;
  const sql = sqlOf({ host, port, database, user: "postgres", max: 1, fetch_types: false });
  const got: Note[] = [];
  const listening = new Map<string, { unlisten(): Promise<void> }>();
  return {
    got,
    async listen(channel) {
      listening.set(channel, await sql.listen(channel, (payload) => got.push([channel, payload])));
    },
    async unlisten(channel) {
      await listening.get(channel)!.unlisten();
    },
    async notify(channel, payload) {
      await sql.notify(channel, payload);
    },
    async notifyIn(end, channel, payload) {
      const undone = new Error("undone");
      await sql.begin(async (sql) => {
        await sql`SELECT pg_notify(${channel}, ${payload})`;
        if (end === "ROLLBACK") throw undone;
      }).catch((error) => {
        if (error !== undone) throw error;
      });
    },
    async query(n) {
      assert.is((await sql`SELECT ${n}::int AS n`)[0]?.["n"], n);
    },
    end: () => sql.end({ timeout: 5 }),
  };
}

const payloads = (got: readonly Note[], channel: string) =>
  got.filter((note) => note[0] === channel).map((note) => note[1]);

async function everyoneGetsItsOwn(side: Side, tag: string): Promise<void> {
  const listeners = [
    ...await Promise.all(below(6).map(() => nodePostgres(side))),
    ...below(4).map(() => postgresJs(side)),
  ];
  const count = listeners.length;
  // In capitals and with a quote: the name must come back as it was written.
  const own = (at: number) => `${tag}: "Own" ${at % count}`;
  const common = `${tag}: common`;
  const direct = (channel: string, payload: string) =>
    side.postgres.query("SELECT pg_notify($1, $2)", [channel, payload]);
  /** Notifications arrive in the order of their transactions: nothing sent before this one is still to come. */
  const stop = async (payload: string) => {
    await direct(common, payload);
    await until(`"${payload}" to arrive`, () => {
      return listeners.every(({ got }) => got.at(-1)?.[1] === payload);
    });
  };
  try {
    await Promise.all(listeners.map(async (listener, at) => {
      await listener.listen(own(at));
      await listener.listen(common);
      await listener.query(at);
    }));
    await Promise.all(listeners.map(async (listener, at) => {
      for (let n = 0; n < NOTES; n++) {
        await listener.notify(own(at + 1), `pooled ${at}: ${n}`);
        await listener.query(n);
        await direct(own(at), `direct ${n}`);
      }
      await listener.notifyIn("COMMIT", own(at + 1), `committed ${at}`);
      await listener.notifyIn("ROLLBACK", own(at + 1), `undone ${at}`);
      await listener.notify(common, String(at));
      // To oneself, and to nobody.
      await listener.notify(own(at), `self ${at}`);
      await listener.notify(`${tag}: nobody`, String(at));
    }));
    await stop("first stop");
    for (const [at, { got }] of listeners.entries()) {
      const before = (at + count - 1) % count;
      const mine = payloads(got, own(at));
      const of = (sender: string) => mine.filter((payload) => payload.startsWith(sender));
      const sent = below(NOTES).map((n) => `pooled ${before}: ${n}`);
      assert.equal(of("direct"), below(NOTES).map((n) => `direct ${n}`));
      assert.equal(of("pooled"), sent);
      assert.equal(of("committed"), [`committed ${before}`]);
      assert.equal(of("self"), [`self ${at}`]);
      assert.is(mine.length, 2 * NOTES + 2);
      const shared = payloads(got, common);
      assert.equal(shared.toSorted(), [...below(count).map(String), "first stop"].toSorted());
      assert.is(got.length, mine.length + shared.length);
    }

    await Promise.all(listeners.map((listener, at) => listener.unlisten(own(at))));
    for (const [at, listener] of listeners.entries()) {
      listener.got.length = 0;
      await listener.notify(own(at + 1), "too late");
      await direct(own(at), "too late");
    }
    await stop("second stop");
    for (const { got } of listeners) assert.equal(got, [[common, "second stop"]]);

    // Who has unlistened can listen again.
    await listeners[0]!.listen(own(0));
    await direct(own(0), "again");
    await stop("third stop");
    assert.equal(listeners[0]!.got.slice(-2), [[own(0), "again"], [common, "third stop"]]);
  } finally {
    await within("end", Promise.all(listeners.map((listener) => listener.end())));
  }
}

async function nothingInTransactions(side: Side, tag: string): Promise<void> {
  const listener = await nodePostgres(side);
  const { host, port, database } = side;
  const busy = new pg.Client({ host, port, database, user: "postgres" });
  const got: string[] = [];
  busy.on("notification", (note) => got.push(note.payload ?? ""));
  await busy.connect();
  try {
    await listener.listen(tag);
    // A LISTEN counts from the commit of its transaction, and not at all when that is rolled back.
    await busy.query("BEGIN");
    await busy.query(`LISTEN "${tag} undone"`);
    await busy.query("ROLLBACK");
    await busy.query("BEGIN");
    await busy.query(`LISTEN "${tag}"`);
    await side.postgres.query("SELECT pg_notify($1, 'before')", [tag]);
    await until("the notification to be sent", () => listener.got.length === 1);
    await busy.query("COMMIT");
    await busy.query("BEGIN");
    for (const payload of ["one", "two"]) {
      await side.postgres.query("SELECT pg_notify($1, $2)", [tag, payload]);
      await side.postgres.query("SELECT pg_notify($1, $2)", [`${tag} undone`, payload]);
    }
    await until("the notifications to be sent", () => listener.got.length === 3);
    assert.is((await busy.query("SELECT 1 AS n")).rows[0].n, 1);
    assert.equal(got, []);
    await busy.query("COMMIT");
    await until("the notifications", () => got.length === 2);
    assert.equal(got, ["one", "two"]);
  } finally {
    await busy.end();
    await listener.end();
  }
}

/** Asserts that no server that the clients share listens to anything. */
async function noServerListens(side: Side): Promise<void> {
  const { host, port, database } = side;
  const pool = new pg.Pool({ host, port, database, user: "postgres", max: 4 });
  const counts = await Promise.all(
    below(12).map(() =>
      pool.query("SELECT count(*)::int AS n, pg_sleep(0.01) FROM pg_listening_channels()")
    ),
  );
  assert.ok(counts.every(({ rows }) => rows[0].n === 0));
  await pool.end();
}

for (const each of sides.all) {
  for (const mode of ["transaction", "session"]) {
    const side = mode === "session" ? { ...each, database: IN_SESSION } : each;

    tests(`every listener gets its own, in ${mode} mode, ${side.name}`, async () => {
      const tag = `${mode} ${side.workers}`;
      const [, ran] = await Promise.all([
        within("listeners", everyoneGetsItsOwn(side, tag)),
        // In session mode there are not servers for all of them at once.
        mode === "transaction" ? python("psycopg", side, "listens", `py ${tag}`) : null,
      ]);
      if (ran !== null) assert.equal([ran.code, ran.stdout.trim()], [0, "done"], ran.stderr);
      await noServerListens(side);
    });

    tests(`no notification comes within a transaction, in ${mode} mode, ${side.name}`, async () => {
      await nothingInTransactions(side, `within ${mode} ${side.workers}`);
      await noServerListens(side);
    });
  }
}

sides.check(tests);
tests.run();
