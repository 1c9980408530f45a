// Names of servers: several addresses, dead ones among them, addresses that change, names that are unknown, and name
// servers that do not answer. A real worker with an /etc/hosts of its own, and servers at several addresses.
// limit: 480 s
// load: waits

import { BlackHole } from "../../support/black_hole.ts";
import { type FakePostgres, startFakePostgres } from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { f } from "../../support/notation.ts";
import { needsOwnNames, OwnNames } from "../../support/own_names.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { RawClient, type ServerError } from "../../support/raw_client.ts";

needsOwnNames();

// One port, several addresses: 127.0.0.2 to 127.0.0.4.
const two = await startFakePostgres({}, "127.0.0.2");
const { port } = two;
const three = await startFakePostgres({}, "127.0.0.3", port);
const names: Record<string, readonly string[]> = {
  localhost: ["127.0.0.1"],
  "both.test": ["127.0.0.2", "127.0.0.3"],
  "half.test": ["::1", "127.0.0.9", "127.0.0.3"],
  "hole.test": ["127.0.0.4", "127.0.0.3"],
  "moving.test": ["127.0.0.2"],
  "cancel.test": ["127.0.0.3", "127.0.0.2"],
};
const own = new OwnNames(names);
const at = (name: string) => `host=${name} port=${port} pool_size=4`;
const pooler = await startPgweir({
  ini: {
    databases: {
      both: at("both.test"),
      half: at("half.test"),
      hole: at("hole.test"),
      moving: at("moving.test"),
      cancel: at("cancel.test"),
      unknown: at("unknown.test"),
      silent: `${at("silent.test")} query_wait_timeout=120`,
      turns: at("127.0.0.2,127.0.0.3"),
      same: `${at("127.0.0.2,127.0.0.3")} load_balance_hosts=disable`,
      partly: at("127.0.0.9,127.0.0.3"),
      first: `${at("127.0.0.9,127.0.0.2,127.0.0.3")} load_balance_hosts=disable`,
      stuck: at("127.0.0.4,127.0.0.3"),
      single: `host=127.0.0.4,127.0.0.3 port=${port} pool_size=1`,
    },
    pgbouncer: {
      dns_max_ttl: 1,
      dns_nxdomain_ttl: 1,
      server_login_retry: 0.5,
      // Nothing here may wait for it.
      server_connect_timeout: 60,
    },
  },
  prefix: own.prefix,
});
const user = "postgres";
const RESULT = 'T D C"SELECT 1" Z(I)';
const patient = { timeoutMs: 90_000 };

/** Clients in a transaction each, so that each has a server of its own. */
async function inTransaction(count: number, database: string): Promise<RawClient[]> {
  const all: RawClient[] = [];
  for (let i = 0; i < count; i++) {
    const client = await RawClient.login(pooler, { user, database });
    client.send(f.Q("BEGIN"));
    assert.match(await client.replies(1, patient), /Z\(T\)$/);
    all.push(client);
  }
  return all;
}

async function endAll(all: readonly RawClient[]): Promise<void> {
  for (const client of all) {
    client.send(f.Q("COMMIT"));
    await client.replies(1, patient);
    await client.end();
  }
}

/** The addresses of the servers of a database, as the console shows them. */
async function addressesOf(database: string): Promise<string[]> {
  const rows = await pooler.console("SHOW SERVERS");
  return rows.filter((row) => row["database"] === database).map((row) => row["addr"]!).sort();
}

const sessionsOf = (server: FakePostgres, database: string) =>
  server.open.filter(({ startup }) => startup.database === database);

const tests = suite("names of servers");

tests.after(async () => {
  await pooler.stop();
  await two.stop();
  await three.stop();
});

// PgBouncer's way with several addresses of one name.
tests("connections are spread over the addresses of a name", async () => {
  const all = await inTransaction(4, "both");
  assert.equal(await addressesOf("both"), ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"]);
  assert.is(sessionsOf(two, "both").length, 2);
  await endAll(all);
});

// One address was picked at random: with a dead one among them logins failed now and then.
tests("addresses that refuse are passed over", async () => {
  const all = await inTransaction(4, "half");
  assert.equal(await addressesOf("half"), Array(4).fill("127.0.0.3"));
  await endAll(all);
  assert.not.match(pooler.log(), /half\/postgres: connection to server failed/);
});

tests(
  "an address that swallows everything costs a moment, and is the last one from then on",
  async () => {
    const hole = await BlackHole.dig("127.0.0.4", port);
    try {
      const all = await inTransaction(4, "hole");
      assert.equal(await addressesOf("hole"), Array(4).fill("127.0.0.3"));
      await endAll(all);
    } finally {
      hole.fill();
    }
  },
);

// The database moved: the pooler went on with its connections to the old place for their whole lifetime.
tests("when an address changes, idle servers end, busy ones when they come free", async () => {
  const busy = await inTransaction(2, "moving");
  const [idle] = await inTransaction(1, "moving");
  await endAll([idle!]);
  assert.equal(await addressesOf("moving"), Array(3).fill("127.0.0.2"));
  own.set({ ...names, "moving.test": ["127.0.0.3"] });
  await until(
    "the idle server to end",
    async () => (await addressesOf("moving")).length === 2,
  );
  const marks = (await pooler.console("SHOW SERVERS"))
    .filter((row) => row["database"] === "moving").map((row) => row["close_needed"]);
  assert.equal(marks, ["1", "1"]);
  const hosts = new Map((await pooler.console("SHOW DNS_HOSTS"))
    .map((row) => [row["hostname"], row["addrs"]]));
  assert.is(hosts.get("moving.test"), "127.0.0.3");
  assert.is(hosts.get("127.0.0.2"), undefined);
  // The transactions are not disturbed, and new ones begin at the new place.
  const [fresh] = await inTransaction(1, "moving");
  assert.is(sessionsOf(three, "moving").length, 1);
  for (const client of busy) {
    client.send(f.Q("SELECT 1"));
    assert.is(await client.replies(1, patient), 'T D C"SELECT 1" Z(T)');
  }
  await endAll([...busy, fresh!]);
  await until("the others to end", () => sessionsOf(two, "moving").length === 0);
  own.set(names);
});

tests("an unknown name is an error that says so, until it is known", async () => {
  const told = await until("a client to be refused", async () => {
    const client = await RawClient.connect(pooler);
    client.startup({ user, database: "unknown" });
    const got = await client.messagesUntil(null, 1, 1_000).catch(() => []);
    client.close();
    return got.length > 0 && pooler.log().includes("DNS lookup failed");
  }, 90_000);
  assert.ok(told);
  const error = await until(
    "the error to be told",
    () =>
      RawClient.login(pooler, { user, database: "unknown" })
        .then(() => null, (error) => error as ServerError),
    90_000,
  );
  assert.is(error.fields.code, "08001");
  assert.match(error.fields.message, /server DNS lookup failed: (the name servers do|timeout)/);
  own.set({ ...names, "unknown.test": ["127.0.0.3"] });
  await until(
    "the name to be found",
    () =>
      RawClient.login(pooler, { user, database: "unknown" }).then((c) => c.end(), () => null)
        .then((end) => end !== null),
    90_000,
    50,
  );
  own.set(names);
});

// The name server took the question and did not answer: nothing else may notice.
tests("a name server that hangs is waited for by those who need it, not by others", async () => {
  const server = await own.silentServer();
  try {
    const waiting = await RawClient.connect(pooler);
    waiting.startup({ user, database: "silent" });
    waiting.send(f.Q("SELECT 1"));
    const before = pooler.log().length;
    await until("the name server to be asked", () => server.questions > 0);
    const other = await RawClient.login(pooler, { user, database: "both" });
    for (let i = 0; i < 200; i++) assert.is((await other.query("SELECT 1")).length, 1);
    assert.is(waiting.unread, 0, "the others were served while it hung");
    // Names of other databases are looked up now and then, too.
    await until("it alone to be looked up", async () => {
      const lists = await pooler.console("SHOW LISTS");
      return lists.some(({ list, items }) => list === "dns_pending" && items === "1");
    });
    await until(
      "it to be given up",
      () => pooler.log().slice(before).includes("server DNS lookup failed: timeout"),
      90_000,
    );
    own.set({ ...names, "silent.test": ["127.0.0.2"] });
    await waiting.repliesUntil("Z", 1, patient);
    assert.is(await waiting.replies(1, patient), RESULT);
    await waiting.end();
    await other.end();
  } finally {
    server.close();
    own.set(names);
  }
});

// A cancel that went to another address of the name than its connection would cancel somebody else's query there:
// process ids repeat from host to host.
tests("a cancel goes to the address of the connection that it cancels", async () => {
  const all = await inTransaction(2, "cancel");
  const before = [two.cancels.length, three.cancels.length];
  const onMessage = () => {};
  two.options = { onMessage };
  three.options = { onMessage };
  const servers = await pooler.console("SHOW SERVERS");
  for (const [index, client] of all.entries()) {
    client.send(f.Q("SELECT pg_sleep(100)"));
    const sessions = [two, three].map((server) => sessionsOf(server, "cancel")[0]!);
    const place = await until(
      "it to run",
      () =>
        sessions.findIndex(({ messages }) => messages.length > 1 && messages.at(-1)!.body[7]) + 1,
    );
    assert.ok(place > 0 && servers.length > 0 && index < 2);
    await client.cancel();
  }
  await until(
    "each to get its cancel",
    () => two.cancels.length > before[0]! && three.cancels.length > before[1]!,
  );
  for (const server of [two, three]) {
    const [session] = sessionsOf(server, "cancel");
    assert.is(server.cancels.at(-1)!.processId, session!.key!.processId);
    assert.equal(server.cancels.at(-1)!.secret, session!.key!.secret);
    server.options = {};
  }
  for (const client of all) client.close();
});

// --- lists of hosts

tests("the hosts of a list are used in turn", async () => {
  const all = await inTransaction(4, "turns");
  assert.equal(await addressesOf("turns"), ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"]);
  await endAll(all);
});

tests("load_balance_hosts=disable stays with a host until a connection to it fails", async () => {
  const all = await inTransaction(3, "same");
  assert.equal(await addressesOf("same"), Array(3).fill("127.0.0.2"));
  await endAll(all);
  two.options = { onStartup: (session) => session.reset() };
  for (const session of sessionsOf(two, "same")) session.reset();
  const moved = await inTransaction(3, "same");
  assert.equal(await addressesOf("same"), Array(3).fill("127.0.0.3"));
  two.options = {};
  const fourth = await inTransaction(1, "same");
  assert.equal(await addressesOf("same"), Array(4).fill("127.0.0.3"));
  await endAll([...moved, ...fourth]);
});

tests("hosts of a list that refuse are left out, and clients notice nothing", async () => {
  for (const [database, place] of [["partly", "127.0.0.3"], ["first", "127.0.0.2"]] as const) {
    const all = await inTransaction(4, database);
    assert.equal(await addressesOf(database), Array(4).fill(place));
    await endAll(all);
  }
});

// A host of the list was switched off: each second connection hung in it until server_connect_timeout, and with it
// the client it was for.
tests("a host of a list that swallows everything holds nobody up for long", async () => {
  const hole = await BlackHole.dig("127.0.0.4", port);
  try {
    for (const database of ["stuck", "single"]) {
      const first = await RawClient.connect(pooler);
      first.startup({ user, database });
      await first.repliesUntil("Z", 1, patient);
      const all = await Promise.all(
        Array.from({ length: 8 }, () => RawClient.login(pooler, { user, database })),
      );
      for (const client of [first, ...all]) client.send(f.Q("SELECT 1"));
      for (const client of [first, ...all]) assert.is(await client.replies(1, patient), RESULT);
      for (const client of [first, ...all]) await client.end();
    }
  } finally {
    hole.fill();
  }
});

tests.run();
