// Servers that fail in ways a real PostgreSQL won't on demand: they refuse, hang, close at once, or say good-bye and
// stay. The worker asks again, soon but never in a storm, and tells clients what is so.
// load: waits

import {
  Backend,
  errorResponse,
  parseErrorFields,
  readyForQuery,
} from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { type FakeSession, startFakePostgres } from "../../support/fake_postgres.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";
import { freePort } from "../../support/temp.ts";

const fake = await startFakePostgres();
const deadPort = await freePort();
const host = `host=127.0.0.1 port=${fake.port} pool_size=20`;
const pooler = await startPgweir({
  ini: {
    databases: {
      farewell: host,
      one: `host=127.0.0.1 port=${fake.port} pool_size=1`,
      starting: host,
      closing: host,
      refusing: host,
      hanging: host,
      hinting: host,
      bystander: host,
      full: host,
      primed: `${host} connect_query='SELECT prime'`,
      dead: `host=127.0.0.1 port=${deadPort}`,
    },
    pgbouncer: { server_login_retry: 0.5, max_client_conn: 1000 },
  },
});
const user = "postgres";
const RESULT = 'T D C"SELECT 1" Z(I)';
const patient = { timeoutMs: 60_000 };
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
const fatal = (code: string, message: string) =>
  errorResponse({ severity: "FATAL", code, message });

/** How many connections there were, and how many at once; of one database, the others are let in. */
function watchLogins(
  onStartup: (session: FakeSession) => void | Promise<void>,
  database: string | null = null,
) {
  const seen = { attempts: 0, most: 0, now: 0 };
  fake.options = {
    onStartup: (session) => {
      if (database !== null && session.startup.database !== database) return session.acceptLogin();
      seen.attempts++;
      seen.now++;
      seen.most = Math.max(seen.most, seen.now);
      void session.closed.then(() => seen.now--);
      return onStartup(session);
    },
  };
  return seen;
}

/** Clients whose first query (and, in a pool that has no server yet, whose login) waits. */
function waitingClients(count: number, database: string): Promise<string>[] {
  return Array.from({ length: count }, async () => {
    const client = await RawClient.connect(pooler);
    client.startup({ user, database });
    client.send(f.Q("SELECT 1"));
    const login = await client.repliesUntil("Z", 1, patient);
    if (login.endsWith("closed")) return login;
    const got = await client.replies(1, patient);
    client.close();
    return got;
  });
}

const tests = suite("servers that fail");

tests.after(async () => {
  await pooler.stop();
  await fake.stop();
});

// PostgreSQL told an idle server to go; before the end of the connection came a client was given it, and got
// the good-bye as the answer to its query.
tests("an idle server that says good-bye is not used again", async () => {
  fake.options = {};
  const client = await RawClient.login(pooler, { user, database: "farewell" });
  assert.equal(await client.query("SELECT 1"), [["SELECT 1"]]);
  const session = fake.open[0]!;
  session.send(fatal("57P01", "terminating connection due to administrator command"));
  await until("the pooler to close it", () => session.isClosed);
  assert.equal(await client.query("SELECT 2"), [["SELECT 2"]]);
  assert.is(fake.open.length, 1);
  await client.end();
});

// It said good-bye right behind an answer: the client got both, and the next one a server that was gone.
tests(
  "a good-bye behind the end of a transaction is not passed on",
  async () => {
    let said = false;
    fake.options = {
      onMessage: (session, message) => {
        if (said) return session.answer(message);
        said = true;
        session.send(
          session.oneRow("mine"),
          readyForQuery("I"),
          fatal("57P01", "terminating connection due to administrator command"),
        );
        session.end();
      },
    };
    const [first, second] = await Promise.all(
      Array.from({ length: 2 }, () => RawClient.login(pooler, { user, database: "one" })),
    );
    first!.send(f.Q("SELECT 1"));
    second!.send(f.Q("SELECT 1"));
    assert.is(await first!.replies(1, patient), RESULT);
    assert.is(await second!.replies(1, patient), RESULT);
    await first!.readNothingFor(50);
    assert.is((await first!.query("SELECT 2")).length, 1);
    await first!.end();
    await second!.end();
  },
);

// Hundreds of clients waited for a server that was starting up, and the pooler knocked for each of them.
tests("a server that is starting up is asked by one connection at a time", async () => {
  const seen = watchLogins((session) => {
    session.send(fatal("57P03", "the database system is starting up"));
    session.end();
  });
  const others = fake.open.length;
  const waiting = waitingClients(100, "starting");
  // As many as the pool may have, since nobody knew; from then on it is known.
  await until("the first attempts to fail", () => seen.attempts >= 16 && seen.now === 0);
  seen.most = 0;
  const before = seen.attempts;
  await until("a few attempts", () => seen.attempts >= before + 3);
  assert.is(seen.most, 1);
  assert.ok(seen.attempts < before + 8, `${seen.attempts - before} attempts`);
  fake.options = {};
  for (const got of await Promise.all(waiting)) assert.is(got, RESULT);
  // With the first login the pool grows at once.
  const opened = () => fake.open.length - others;
  await until("the pool to have grown", () => opened() > 10);
  assert.ok(opened() <= 20, `${opened()} connections`);
});

// A proxy without a database behind it takes every connection and closes it: no error to wait for, so the pooler
// connected again at once, thousands of times a second.
tests("a server that closes every connection at once is asked now and then", async () => {
  const seen = watchLogins((session) => session.end());
  const waiting = waitingClients(50, "closing");
  // Each is made twice: with protocol 3.2, and, since it was closed without a word, with 3.0.
  await until("the first attempts to fail", () => seen.attempts >= 32 && seen.now === 0);
  seen.most = 0;
  const before = seen.attempts;
  const started = performance.now();
  await until("a few attempts", () => seen.attempts >= before + 4);
  await pause(1_000);
  const seconds = (performance.now() - started) / 1000;
  assert.is(seen.most, 1);
  // The pause doubles from 50 ms up to the retry interval, half a second here.
  const attempts = seen.attempts - before;
  assert.ok(attempts <= 6 + seconds / 0.25, `${attempts} attempts in ${seconds} s`);
  fake.options = {};
  for (const got of await Promise.all(waiting)) assert.is(got, RESULT);
});

// The server refused the login for good. Clients waited for their queue timeout to learn it, or each of them
// made another attempt, or nobody ever did again once the cause was mended.
tests("a refused login is told at once, remembered for a while, and tried again", async () => {
  const seen = watchLogins((session) => {
    session.send(fatal("28P01", 'password authentication failed for user "postgres"'));
    session.end();
  });
  const first = await Promise.all(waitingClients(20, "refusing"));
  for (const got of first) assert.is(got, "E(28P01) closed");
  assert.ok(seen.attempts <= 30, `${seen.attempts} attempts`);
  let told: ServerError | null = null;
  await until(
    "the error to be remembered",
    async () => {
      const client = RawClient.login(pooler, { user, database: "refusing" });
      told = await client.then(() => null, (error) => error);
      return told!.fields.message.includes("server_login_retry");
    },
    60_000,
    0,
  );
  assert.match(told!.fields.message, /^server login has been failing, cached error: password auth/);
  const before = seen.attempts;
  const began = performance.now();
  for (let i = 0; i < 50; i++) {
    await RawClient.login(pooler, { user, database: "refusing" }).catch(() => {});
  }
  // One every quarter of a second at most, however long the fifty take.
  const most = 5 + (performance.now() - began) / 250;
  assert.ok(seen.attempts <= before + most, `${seen.attempts - before} more attempts`);
  fake.options = {};
  await until(
    "the login to be tried again",
    async () => {
      const [got] = await Promise.all(waitingClients(1, "refusing"));
      return got === RESULT;
    },
    60_000,
    100,
  );
});

// What PostgreSQL had said was cut down to its text: clients did not see what it advised, or got no advice at all.
tests(
  "clients get PostgreSQL's own code, text and hint, and clients of other pools nothing",
  async () => {
    const says = { severity: "FATAL", code: "42501", message: "not on Sundays" } as const;
    watchLogins((session) => {
      session.send(errorResponse({ ...says, hint: "Come back on Monday" }));
      session.end();
    }, "hinting");
    const refused = async () => {
      const client = await RawClient.connect(pooler);
      client.startup({ user, database: "hinting" });
      const answer = await client.messagesUntil(null);
      client.close();
      return parseErrorFields(answer.find(({ type }) => type === Backend.errorResponse)!.body);
    };
    const bystanders = waitingClients(5, "bystander");
    for (const { code, message, hint } of await Promise.all(Array.from({ length: 5 }, refused))) {
      assert.is(code, "42501");
      assert.match(message, /not on Sundays/);
      assert.is(hint, "Come back on Monday");
    }
    for (const got of await Promise.all(bystanders)) assert.is(got, RESULT);
    for (const got of await Promise.all(waitingClients(5, "bystander"))) assert.is(got, RESULT);
  },
);

// PostgreSQL had no slot left: clients were refused at once, though one came free a moment later.
tests(
  "clients wait for a server that is full, as long as their queue timeout lets them",
  async () => {
    const full = fatal("53300", "sorry, too many clients already");
    watchLogins((session) => {
      session.send(full);
      session.end();
    }, "full");
    await pooler.console("SET query_wait_timeout = 1");
    const client = await RawClient.connect(pooler);
    client.startup({ user, database: "full" });
    const answer = await client.messagesUntil(null);
    client.close();
    const error = parseErrorFields(answer.find(({ type }) => type === Backend.errorResponse)!.body);
    assert.is(error.code, "53300");
    assert.is(error.message, "query_wait_timeout");
    assert.match(error.hint, /too many clients already/);
    await pooler.console("SET query_wait_timeout = 120");
    const waiting = waitingClients(10, "full");
    fake.options = {};
    for (const got of await Promise.all(waiting)) assert.is(got, RESULT);
  },
);

// connect_query failed on every new connection: the pooler opened the next one at once, hundreds of times a second,
// and clients waited for their queue timeout.
tests("a connect_query that fails is a failed login", async () => {
  let attempts = 0;
  const began = performance.now();
  fake.options = {
    onMessage: (session, message) => {
      if (session.startup.database !== "primed") return session.answer(message);
      attempts++;
      const code = "42703";
      const refusal = errorResponse({ severity: "ERROR", code, message: "no column prime" });
      session.send(refusal, readyForQuery("I"));
    },
  };
  for (const got of await Promise.all(waitingClients(5, "primed"))) {
    assert.is(got, "E(42703) closed");
  }
  await until("the log to say so", () => pooler.log().includes("failed: no column prime"));
  await pause(1_000);
  const most = 8 + (performance.now() - began) / 250;
  assert.ok(attempts <= most, `${attempts} attempts, wanted at most ${most}`);
  fake.options = {};
  await until(
    "the query to succeed",
    async () => (await Promise.all(waitingClients(1, "primed")))[0] === RESULT,
    60_000,
    100,
  );
});

// A server took connections and said nothing: each stayed for ever, with the client that waited for it.
tests("a server that hangs in its login is given up and tried again", async () => {
  const seen = watchLogins(() => new Promise<void>(() => {}));
  await pooler.console("SET server_connect_timeout = 1");
  const waiting = waitingClients(3, "hanging");
  await until("a second attempt", () => seen.attempts > 3, 60_000);
  await pooler.console("SET server_connect_timeout = 15");
  fake.options = {};
  for (const got of await Promise.all(waiting)) assert.is(got, RESULT);
  await until("the hanging ones to be closed", () => seen.now === 0);
});

// Nobody listened at the address in the file: clients waited for their whole queue timeout, and learned nothing.
tests("a server that nobody listens for is tried, and its clients are told", async () => {
  const refusal = await until("a client to be refused", async () => {
    const client = await RawClient.connect(pooler);
    client.startup({ user, database: "dead" });
    // Until the retry interval is over clients wait in the queue.
    const answer = await client.messagesUntil(null, 1, 1_000).catch(() => []);
    client.close();
    return answer.find((message) => message.type === Backend.errorResponse);
  }, 90_000);
  const { code, message } = parseErrorFields(refusal.body);
  assert.is(code, "08001");
  assert.match(message, /^server login has been failing, cached error: connect failed/);
});

tests.run();
