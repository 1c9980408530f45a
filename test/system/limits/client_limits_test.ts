// How many clients are let in, and that every way a connection can end gives its place back: a missed one is a place
// lost for ever. Places are counted by filling all of them.
// limit: 400 s

import {
  cancelKeyWorker,
  cancelRequest,
  sslRequest,
  startupPacket,
} from "../../../shared/wire/mod.ts";
import { startFakePostgres } from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { type Login, RawClient, sendCancel, ServerError } from "../../support/raw_client.ts";
import { freePort } from "../../support/temp.ts";

needs("postgresql");

const postgres = await startPostgres();
const hanging = await startFakePostgres({ onStartup: () => new Promise<void>(() => {}) });
const mute = await startFakePostgres();
const at = `host=127.0.0.1 port=${postgres.port}`;
const login: Login = { user: "postgres", database: "postgres", password: "right" };

const admin: Login = { user: "admin", database: "pgbouncer", password: "admin" };

const tests = suite("client limits");
const started: Pgweir[] = [];

async function start(settings: Record<string, string | number>, workers?: number): Promise<Pgweir> {
  const pooler = await startPgweir({
    ini: {
      databases: {
        postgres: `${at} pool_size=20`,
        hanging: `host=127.0.0.1 port=${hanging.port} pool_size=4`,
        down: `host=127.0.0.1 port=${await freePort()}`,
        mute: `host=127.0.0.1 port=${mute.port} pool_size=4`,
      },
      pgbouncer: { auth_type: "scram-sha-256", ...settings },
    },
    userlist: { postgres: "right", nobody: "right", admin: "admin" },
    ...(workers === undefined ? {} : { workers }),
    readyTimeoutMs: 60_000,
  });
  started.push(pooler);
  return pooler;
}

const workerOf = ({ key }: RawClient) => cancelKeyWorker(key!.processId, key!.secret);

async function refusal(attempt: Promise<RawClient>): Promise<string> {
  try {
    (await attempt).close();
    return "";
  } catch (error) {
    return error instanceof ServerError ? error.code : (error as Error).message;
  }
}

tests.after(async () => {
  for (const pooler of started) await pooler.stop();
  await hanging.stop();
  await mute.stop();
  await postgres.stop("immediate");
});

// The limit was checked after the login, or with the code of a broken protocol that no driver retries; a place
// that came free was given only after a while.
tests(
  "as many clients as max_client_conn get in, and a place that comes free is given at once",
  async () => {
    const pooler = await start({ max_client_conn: 10 });
    const clients = await Promise.all(
      Array.from({ length: 10 }, () => RawClient.login(pooler, login)),
    );
    for (let round = 0; round < 3; round++) {
      const surplus = await RawClient.connect(pooler);
      surplus.startup({ user: "postgres", database: "postgres" });
      const [error] = await surplus.messagesUntil("E");
      assert.match(new TextDecoder().decode(error!.body), /FATAL\0.*C53300\0.*\(max_client_conn\)/);
      assert.is(await surplus.repliesUntilClosed(), "closed");
      // The console is for who wants to know why.
      assert.is((await console(pooler)).length, 1);
      await clients.pop()!.end();
      clients.push(await RawClient.login(pooler, login));
    }
    for (const client of clients) assert.equal(await client.query("SELECT 1"), [["1"]]);
    for (const client of clients) await client.end();
  },
);

async function console(pooler: Pgweir): Promise<unknown[]> {
  const client = await RawClient.login(pooler, admin);
  const rows = await client.query("SHOW VERSION");
  await client.end();
  return rows;
}

// Places were lost one by one, by logins that failed half-way; after some hours nobody got in although nobody
// was there.
tests("no way to end gives less than the whole place back", async () => {
  const most = 48;
  const pooler = await start({ max_client_conn: most, query_wait_timeout: 60 }, 4);
  const raw = async (...parts: Uint8Array[]) => {
    const client = await RawClient.connect(pooler);
    client.send(...parts);
    return client;
  };
  const startup = (database = "postgres", user = "postgres") => startupPacket({ user, database });
  /** Until the server has answered, so that the connection ends in that state. */
  const answered = async (...parts: Uint8Array[]) => {
    const client = await raw(...parts);
    await client.message();
    return client;
  };
  const refused = (changes: Partial<Login>, code: string) => async () => {
    assert.is(await refusal(RawClient.login(pooler, { ...login, ...changes })), code);
  };
  const endings: Record<string, () => Promise<unknown>> = {
    "wrong password": refused({ password: "wrong" }, "28P01"),
    "unknown user": refused({ user: "stranger" }, "28P01"),
    "unknown database": refused({ database: "nowhere" }, "3D000"),
    "unknown to the server": refused({ user: "nobody" }, "28000"),
    "closed after the startup packet": async () => (await raw(startup())).close(),
    "reset after the startup packet": async () => (await raw(startup())).reset(),
    "half a startup packet": async () => (await raw(startup().subarray(0, 11))).close(),
    "closed in the middle of SCRAM": async () => (await answered(startup())).close(),
    "reset in the middle of SCRAM": async () => (await answered(startup())).reset(),
    "half-closed in the middle of SCRAM": async () => {
      const client = await answered(startup());
      client.halfClose();
      await client.closed;
    },
    "good-bye instead of a password": async () => {
      const client = await answered(startup());
      client.send(f.X());
      await client.closed;
    },
    "good-bye behind the startup packet": async () => await (await raw(startup(), f.X())).closed,
    "a query instead of a password": async () => {
      const client = await answered(startup());
      client.send(f.Q("SELECT 1"));
      await client.closed;
    },
    "a second startup packet": async () => await (await raw(startup(), startup())).closed,
    "SSLRequest only": async () => {
      const client = await raw(sslRequest());
      assert.is(await client.byte(), "N");
      client.close();
    },
    "a cancel of nothing": () => sendCancel(pooler, 7 << 16, Uint8Array.of(1, 2, 3, 4)),
    "a cancel, closed at once": async () =>
      (await raw(cancelRequest(7 << 16, Uint8Array.of(1, 2, 3, 4)))).close(),
    "nothing at all": async () => (await raw()).close(),
    "closed in mid-query": async () => {
      const client = await RawClient.login(pooler, login);
      client.send(f.Q("SELECT pg_sleep(10)"));
      client.close();
    },
    "reset in a transaction": async () => {
      const client = await RawClient.login(pooler, login);
      await client.query("BEGIN");
      client.reset();
    },
    "good-bye": async () => await (await RawClient.login(pooler, login)).end(),
    "a damaged message": async () => {
      const client = await RawClient.login(pooler, login);
      client.send(Uint8Array.of(0x51, 0, 0, 0, 1));
      await client.closed;
    },
  };
  for (const [what, end] of Object.entries(endings)) {
    for (let round = 0; round < 20; round++) {
      try {
        await Promise.all(Array.from({ length: 10 }, end));
      } catch (error) {
        throw new Error(`${what}: ${(error as Error).message}`);
      }
    }
  }
  // Those that an operator ends. A worker lists its own clients only.
  const consoles = new Map<number, RawClient>();
  while (consoles.size < 4) {
    const shell = await RawClient.login(pooler, admin);
    const worker = workerOf(shell);
    if (consoles.has(worker)) await shell.end();
    else consoles.set(worker, shell);
  }
  for (let round = 0; round < 40; round++) {
    const client = await RawClient.login(pooler, login);
    const shell = consoles.get(workerOf(client))!;
    const rows = await shell.table("SHOW CLIENTS");
    const { id } = rows.find((row) => row["port"] === String(client.localPort))!;
    await shell.query(`KILL_CLIENT ${id}`);
    await client.closed;
  }
  for (const shell of consoles.values()) await shell.end();
  // Those that wait for a server that hangs: they leave at some moment of their login, or in the queue.
  for (let round = 0; round < 8; round++) {
    const queued = await Promise.all(
      Array.from({ length: 8 }, async () => {
        const client = await RawClient.connect(pooler);
        void client.login({ ...login, database: "hanging" }).catch(() => {});
        return client;
      }),
    );
    await until("the server to be asked", () => hanging.sessions.length > 0);
    await new Promise((resolve) => setTimeout(resolve, 10 * round));
    for (const [i, client] of queued.entries()) i % 2 === 0 ? client.close() : client.reset();
  }

  // Nobody holds a place now: as many get in as the limit says, on whichever worker they land.
  const inside: RawClient[] = [];
  await until(
    "all places to be taken",
    async () => {
      try {
        inside.push(await RawClient.login(pooler, login));
      } catch (error) {
        assert.is((error as ServerError).code, "53300");
      }
      return inside.length === most;
    },
    60_000,
    0,
  ).catch((error) => {
    throw new Error(`${error.message}; ${inside.length} got in, wanted ${most}`);
  });
  for (let i = 0; i < 20; i++) assert.is(await refusal(RawClient.login(pooler, login)), "53300");
  for (const client of inside) {
    assert.equal(await client.query("SELECT 1"), [["1"]]);
    client.close();
  }
});

// A client that stops half-way in its login kept its place for ever.
tests("a login that takes longer than client_login_timeout is ended", async () => {
  const pooler = await start({ max_client_conn: 5, cancel_wait_timeout: 3 });
  const startup = startupPacket({ user: "postgres", database: "postgres" });
  const quick = await RawClient.login(pooler, login);
  const slow = await Promise.all(
    [new Uint8Array(0), startup.subarray(0, 3), startup.subarray(0, 20), startup].map(
      async (bytes) => {
        const client = await RawClient.connect(pooler);
        client.send(bytes);
        return client;
      },
    ),
  );
  assert.is((await slow[3]!.messagesUntil("R")).length, 1);
  // Not before: those who log in as they should are not to be hurried.
  const shell = await RawClient.login(pooler, admin);
  await shell.query("SET client_login_timeout = 1");
  for (const client of slow) {
    assert.is(await client.repliesUntilClosed({ timeoutMs: 30_000 }), "E(08006) closed");
  }
  assert.equal(await quick.query("SELECT 1"), [["1"]]);
  await shell.query("SET client_login_timeout = 60");
  await shell.end();
  const places = await Promise.all(Array.from({ length: 4 }, () => RawClient.login(pooler, login)));
  for (const client of [quick, ...places]) await client.end();
});

// They were told that they were slow themselves.
tests("a login that waits in vain for its server is told that this is down", async () => {
  const pooler = await start({ server_login_retry: 600 });
  const late = RawClient.login(pooler, { ...login, database: "down", timeoutMs: 60_000 })
    .then(() => null, (error: ServerError) => error);
  const shell = await RawClient.login(pooler, admin);
  await until("the server to be tried", () => /connection to server failed/.test(pooler.log()));
  await shell.query("SET client_login_timeout = 1");
  const error = await late;
  assert.is(`${error?.code} ${error?.fields.message}`, "57P03 client_login_timeout (server down)");
  assert.match(error!.fields.hint!, /connect failed/);
  await shell.end();
});

// A cancel whose server is slow to answer is no login: it was told that its login took too long.
tests("a cancel under way is not ended by client_login_timeout", async () => {
  const pooler = await start({ cancel_wait_timeout: 3 });
  const shell = await RawClient.login(pooler, admin);
  mute.options = {
    onMessage: (session, message) => message.type === 0x51 ? undefined : session.answer(message),
    onCancel: () => new Promise<void>(() => {}),
  };
  const client = await RawClient.login(pooler, { ...login, database: "mute" });
  client.send(f.Q("SELECT 1"));
  await until("the query to arrive", () => (mute.open[0]?.messages.length ?? 0) > 0);
  await shell.query("SET client_login_timeout = 1");
  assert.is(await client.cancel(), "");
  client.close();
  await shell.end();
});

tests.run();
