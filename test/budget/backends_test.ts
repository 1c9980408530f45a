// What PostgreSQL shows: the query with every way to log in, and what is counted for a silent worker.

import { createServer } from "node:net";
import {
  type Answer,
  type Answers,
  BackendView,
  groupsOf,
  lookAtBackends,
  type ShownBackend,
} from "../../services/budget/backends.ts";
import { queryOnce } from "../../services/budget/query_client.ts";
import { type BudgetAuth, type Config, loadConfig } from "../../shared/config/mod.ts";
import { Resolver } from "../../shared/host/mod.ts";
import { directLeaf, poolLeaf, reserveLeaf } from "../../shared/ledger/mod.ts";
import { assert, suite, until } from "../support/harness.ts";
import { needs } from "../support/needs.ts";
import { startPostgres } from "../support/postgres.ts";
import { RawClient } from "../support/raw_client.ts";

needs("postgresql");

const postgres = await startPostgres();
const tests = suite("backends");
const resolver = new Resolver(undefined, 60_000);
tests.after(() => postgres.stop("immediate"));

function configOf(databases: string) {
  const { config } = loadConfig(
    "f.ini",
    () => `[databases]\n${databases}\n[pgbouncer]\npool_mode = transaction\n`,
  );
  if (config === null) throw new Error("the test's configuration has problems");
  return config;
}

const shop = poolLeaf("shop", "app");
const direct = directLeaf("shop", "app");
const leaseMs = 10_000;

function shown(pid: number, ageMs: number | null = 60_000, more = {}): ShownBackend {
  return { pid, database: "shop", user: "app", isWalSender: false, ageMs, ...more };
}

function count(
  answers: readonly Answer[],
  more: {
    leaves?: string[];
    pids?: number[];
    directs?: number[];
    namedAgoMs?: number;
    heardAgoMs?: number;
    others?: number[];
  } = {},
) {
  const config = configOf("shop = host=127.0.0.1");
  const others = new Set(more.others ?? []);
  const named = new Map([["shop/app", others], ["/app", others]]);
  const view = new BackendView(config, new Map([["shop", answers]]), named);
  const found = view.count({
    leaves: [...more.leaves ?? [shop], "clients", "pool:other/app", "direct:other/app", "nonsense"],
    pids: new Map([
      [shop, new Set(more.pids ?? [])],
      [direct, new Set(more.directs ?? [])],
    ]),
    namedAgoMs: more.namedAgoMs ?? 13_000,
    heardAgoMs: more.heardAgoMs ?? 12_000,
  }, leaseMs);
  return [...found].map(([leaf, { named, unnamed }]) => `${leaf} ${named}+${unnamed}`).join();
}

tests("BackendView.count() counts what the worker named and is still shown", () => {
  assert.is(
    count([[shown(1), shown(2), shown(9)]], { pids: [1, 2, 3], others: [9] }),
    `${shop} 2+0`,
  );
  const others = [shown(1, 60_000, { user: "x" }), shown(2, 60_000, { database: "x" })];
  assert.is(count([others], { pids: [1, 2] }), `${shop} 0+0`);
});

tests(
  "BackendView.count() adds backends nobody names that it may have opened after it spoke",
  () => {
    const rows: [number | null, number][] = [
      // Older than what it named: it would have named it.
      [20_000, 0],
      [14_000, 1],
      [5000, 1],
      [null, 1],
      // Opened after its lease was over, when it was bound to its floor.
      [0, 1],
    ];
    for (const [age, unnamed] of rows) {
      assert.is(count([[shown(1, age)]]), `${shop} 0+${unnamed}`, `age ${age}`);
    }
    assert.is(count([[shown(1, 5000)]], { heardAgoMs: 30_000, namedAgoMs: 31_000 }), `${shop} 0+0`);
    assert.is(count([[shown(1, 5000)]], { others: [1] }), `${shop} 0+0`);
    assert.is(count([[shown(1, 1e9)]], { namedAgoMs: Infinity }), `${shop} 0+1`);
  },
);

tests("BackendView.count() knows nothing when one of several servers does not answer", () => {
  assert.is(count([[shown(1)], new Error("down")], { pids: [1] }), "");
  assert.is(count([], { pids: [1] }), "");
  assert.is(count([[shown(1)], [shown(2)]], { pids: [1, 2] }), `${shop} 2+0`);
});

tests("BackendView.count() counts replication for direct connections, and for no pool", () => {
  const physical = (pid: number, ageMs = 5000, more = {}) =>
    shown(pid, ageMs, { database: null, isWalSender: true, ...more });
  const logical = (pid: number, ageMs = 5000) => shown(pid, ageMs, { isWalSender: true });
  const leaves = [shop, direct];
  assert.is(
    count([[shown(1), physical(2), logical(3), shown(4), physical(9)]], {
      leaves,
      pids: [1],
      directs: [2, 3, 4],
      others: [9],
    }),
    `${shop} 1+0,${direct} 3+0`,
  );
  // Nobody named them: opened just before it fell silent.
  assert.is(count([[physical(2), logical(3)]], { leaves }), `${shop} 0+0,${direct} 0+2`);
  assert.is(count([[shown(4, 5000)]], { leaves }), `${shop} 0+1,${direct} 0+1`);
  assert.is(count([[physical(2, 60_000)]], { leaves }), `${shop} 0+0,${direct} 0+0`);
  // Another user's, as of a standby that is none of the mesh.
  assert.is(
    count([[physical(2, 5000, { user: "x" })]], { leaves, directs: [2] }),
    `${shop} 0+0,${direct} 0+0`,
  );
});

// A connection that was opened, named and cut off in one second was charged to the pool and, once more, to the
// direct connections of the same database and user.
tests("BackendView.count() counts no backend for one leaf that was named for another", () => {
  const answers = [[shown(1, 13_500), shown(2, 13_500)]];
  const leaves = [shop, direct];
  assert.is(count(answers, { leaves, pids: [1], directs: [2] }), `${shop} 1+0,${direct} 1+0`);
  // The reserve's are the pool's as soon as that has room: named for the one, charged to the other.
  const reserve = reserveLeaf("shop", "app");
  assert.is(count(answers, { leaves: [reserve], pids: [1, 2] }), `${reserve} 0+0`);
});

tests("groupsOf() is the same for two entries that lead to one database", () => {
  const config = configOf("a = dbname=x host=h\nb = dbname=x host=h\n* = host=h");
  assert.equal(groupsOf(config, poolLeaf("a", "u")), ["x/u"]);
  assert.equal(groupsOf(config, poolLeaf("b", "u")), ["x/u"]);
  assert.equal(groupsOf(config, poolLeaf("c", "u")), ["c/u"]);
  assert.equal(groupsOf(config, directLeaf("a", "u")), ["x/u", "/u"]);
  assert.equal(groupsOf(config, "clients"), []);
  assert.equal(groupsOf(configOf("a = host=h"), directLeaf("b", "u")), []);
});

/** One look and what it reported; another one where a server was not given its seconds to answer in. */
function look(
  config: Config,
  auth: BudgetAuth,
  databases: readonly string[],
  by = resolver,
): Promise<{ answers: Answers; errors: string[] }> {
  return until("a look in time", async () => {
    const errors: string[] = [];
    const answers = await lookAtBackends(config, auth, databases, by, ({ message }) => {
      errors.push(message);
    });
    return errors.some((message) => /no answer in/.test(message)) ? null : { answers, errors };
  });
}

tests(
  "lookAtBackends() finds the backends of a client by TCP, by name and by unix socket",
  async () => {
    const client = await RawClient.login(postgres, { user: "postgres", database: "postgres" });
    const [[pid]] = await client.query("SELECT pg_backend_pid()") as [[string]];
    const auth = { user: "postgres", password: null, dbname: null };
    for (const host of ["127.0.0.1", "localhost", postgres.socketDir]) {
      const config = configOf(`postgres = host=${host} port=${postgres.port}`);
      const { answers, errors } = await look(config, auth, ["postgres"]);
      const found = answers.get("postgres")!.filter((answer) => !(answer instanceof Error)).flat();
      const own = (found as ShownBackend[]).filter((backend) => backend.pid === Number(pid));
      assert.ok(own.length > 0, `${host}: ${errors}`);
      assert.equal([own[0]!.database, own[0]!.user], ["postgres", "postgres"]);
      assert.ok(own[0]!.ageMs! >= 0 && own[0]!.ageMs! < 60_000);
    }
    await client.end();
  },
);

tests("lookAtBackends() sees the backends of others with a login that has no rights", async () => {
  await postgres.query("CREATE ROLE plain LOGIN");
  const client = await RawClient.login(postgres, { user: "postgres", database: "postgres" });
  const [[pid]] = await client.query("SELECT pg_backend_pid()") as [[string]];
  const config = configOf(`postgres = host=127.0.0.1 port=${postgres.port}`);
  const auth = { user: "plain", password: null, dbname: "postgres" };
  const { answers, errors } = await look(config, auth, ["postgres"]);
  assert.equal(errors, []);
  const found = answers.get("postgres")![0] as ShownBackend[];
  const own = found.find((backend) => backend.pid === Number(pid))!;
  assert.equal([own.user, own.database, own.ageMs], ["postgres", "postgres", null]);
  await client.end();
});

tests(
  "lookAtBackends() sees replication of a database and of none, with rights and without",
  async () => {
    await postgres.query("CREATE ROLE replicator LOGIN REPLICATION");
    await postgres.query("CREATE ROLE nobody LOGIN");
    const login = { user: "replicator", database: "postgres" };
    const clients = await Promise.all(
      ["true", "database", "false"].map((replication) =>
        RawClient.login(postgres, { ...login, parameters: { replication } })
      ),
    );
    const config = configOf(`postgres = host=127.0.0.1 port=${postgres.port}`);
    const [physical, logical, plain] = clients.map(({ key }) => key!.processId);
    for (const user of ["postgres", "nobody"]) {
      const auth = { user, password: null, dbname: "postgres" };
      const { answers, errors } = await look(config, auth, ["postgres"]);
      assert.equal(errors, []);
      const found = answers.get("postgres")![0] as ShownBackend[];
      const of = (pid: number) => {
        const { database, user, isWalSender } = found.find((backend) => backend.pid === pid)!;
        return [database, user, isWalSender];
      };
      assert.equal(of(physical!), [null, "replicator", true], user);
      assert.equal(of(logical!), ["postgres", "replicator", true], user);
      assert.equal(of(plain!), ["postgres", "replicator", false], user);
      const others = found.filter(({ database }) => database === null);
      assert.equal(others.map(({ pid }) => pid), [physical], "and nothing else without a database");
    }
    for (const client of clients) await client.end();
  },
);

tests("lookAtBackends() reports a server that is not there and a name that is none", async () => {
  const config = configOf("a = host=127.0.0.1 port=1\nb = host=no.such.host.invalid");
  const auth = { user: "u", password: "hidden", dbname: null };
  // Where there is no name server, the system's look-up says that, after a while.
  const unknown = new Resolver(() =>
    Promise.reject(Object.assign(new Error("unknown"), { code: "ENOTFOUND" }))
  );
  const { answers, errors } = await look(config, auth, ["a", "b", "c"], unknown);
  assert.ok(answers.get("a")![0] instanceof Error);
  assert.is(answers.has("b"), false);
  assert.equal(errors.sort().map((text) => text.replace(/: E[A-Z_]+$/, "")), [
    "ask PostgreSQL at 127.0.0.1:1",
    'resolve "no.such.host.invalid": no such name',
  ]);
});

// A look-up of a name hung with its name server, and no look at PostgreSQL was made any more, for good: a coordinator
// makes one at a time.
tests("lookAtBackends() ends although the look-up of a name does not", async () => {
  const config = configOf(`a = host=hangs port=1\nb = host=127.0.0.1 port=${postgres.port}`);
  const auth = { user: "postgres", password: null, dbname: "postgres" };
  const hanging = new Resolver(() => new Promise(() => {}), 20);
  const { answers, errors } = await look(config, auth, ["a", "b"], hanging);
  assert.equal(errors, ['resolve "hangs": timeout']);
  assert.equal([...answers.keys()], ["b"]);
});

tests("queryOnce() logs in by password, md5 and SCRAM, and says why it could not", async () => {
  const address = { host: "127.0.0.1", port: postgres.port };
  await postgres.query("SET password_encryption = md5; CREATE ROLE m LOGIN PASSWORD 'it''s m'");
  await postgres.query("CREATE ROLE s LOGIN PASSWORD 'it''s s'");
  await postgres.setAuth({
    hba: [
      "host all m 127.0.0.1/32 md5",
      "host postgres s 127.0.0.1/32 scram-sha-256",
      "host template1 s 127.0.0.1/32 password",
    ],
  });
  const ask = (user: string, password: string | null, database = "postgres") =>
    queryOnce(address, { user, password, database }, "SELECT current_user, NULL", 60_000);
  assert.equal(await ask("m", "it's m"), [["m", null]]);
  assert.equal(await ask("s", "it's s"), [["s", null]]);
  assert.equal(await ask("s", "it's s", "template1"), [["s", null]]);
  const failures: [string, string | null, string][] = [
    ["m", "wrong", "28P01 password authentication failed"],
    ["s", "wrong", "28P01 password authentication failed"],
    ["s", null, "server asks for a password, and budget_auth has none"],
  ];
  for (const [user, password, reason] of failures) {
    const error = await ask(user, password).then(() => null, (error: Error) => error);
    assert.ok(error?.message.startsWith(`ask PostgreSQL at 127.0.0.1:${postgres.port}: ${reason}`));
    assert.not(error!.message.includes("wrong"));
  }
  const error = await queryOnce(
    address,
    { user: "postgres", password: null, database: "postgres" },
    "SELECT nonsense",
    60_000,
  ).then(() => null, (error: Error) => error);
  assert.match(error!.message, /42703/);
});

tests("queryOnce() gives a server that says nothing its time, and no more", async () => {
  const open = new Set<{ destroy(): void }>();
  const server = createServer((socket) => {
    // Read on, to notice the end of one that is accepted when the time is over.
    socket.on("error", () => {}).resume();
    open.add(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  const login = { user: "u", password: null, database: "d" };
  const error = await queryOnce({ host: "127.0.0.1", port }, login, "SELECT 1", 100)
    .then(() => null, (error: Error) => error);
  assert.is(error?.message, `ask PostgreSQL at 127.0.0.1:${port}: no answer in 100 ms`);
  for (const socket of open) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
});

tests("queryOnce() fails when the server hangs up or answers nonsense", async () => {
  for (const answer of ["", "HTTP/1.1 400 Bad Request\r\n\r\n"]) {
    const server = createServer((socket) => {
      socket.on("error", () => {});
      socket.resume();
      socket.end(answer);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as { port: number };
    const login = { user: "u", password: null, database: "d" };
    const error = await queryOnce({ host: "127.0.0.1", port }, login, "SELECT 1", 60_000)
      .then(() => null, (error: Error) => error);
    assert.ok(error !== null);
    await new Promise((resolve) => server.close(resolve));
  }
});

tests.run();
