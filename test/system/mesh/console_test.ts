// The console of a mesh, over a cluster of nats-servers: what is given on one host's concerns the workers of all; a
// host that is cut off is named, and goes on; RELOAD is the own host's affair.
// limit: 480 s

import { Backend, parseErrorFields } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needsHosts } from "../../support/hosts.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { RawClient, type ServerError } from "../../support/raw_client.ts";
import { makeMesh, type MeshHost, PresenceWatch } from "./mesh.ts";

needs("postgresql", "nats-server", "iproute2");
needsHosts();

const mesh = await makeMesh({
  // The third has a nats-server only, for a majority.
  names: ["north", "south", "west"],
  poolers: 2,
  database: "pool_size=20",
});
const { hosts, network, postgres } = mesh;
const [north, south] = hosts as [MeshHost, MeshHost];
const bus = await mesh.bus();
const presence = new PresenceWatch(bus);
const patience = { timeoutMs: 60_000 };

const tests = suite("the console of a mesh");

const opened: RawClient[] = [];

async function login(host: MeshHost, user = "postgres", database = "postgres") {
  const client = await RawClient.login(host.clients, { user, database });
  opened.push(client);
  return client;
}

const boss = (host: MeshHost) => login(host, "admin", "pgbouncer");

/** What the console says beside the tag: its notices and errors. */
async function given(console: RawClient, command: string): Promise<string[]> {
  console.send(f.Q(command));
  const messages = await console.messagesUntil("Z", 1, patience.timeoutMs);
  return messages.flatMap(({ type, body }) => {
    if (type !== Backend.noticeResponse && type !== Backend.errorResponse) return [];
    const { severity, message } = parseErrorFields(body);
    return [`${severity} ${message}`];
  });
}

async function state(console: RawClient): Promise<string> {
  const rows = await console.table("SHOW STATE");
  return rows.filter(({ value }) => value === "yes").map(({ key }) => key).join();
}

const backends = async () => (await postgres.backends()).length;

tests.before(async () => {
  await mesh.start();
  // They know of each other from what they say of themselves, once a second: when all are up and have said it again,
  // all have heard all.
  for (let words = 0; words < 3; words++) {
    presence.workers.clear();
    await until("a word of all workers", () => presence.ready().length === 4, 60_000);
  }
});

tests.after.each(() => {
  for (const client of opened.splice(0)) client.close();
});

tests.after(async () => {
  presence.end();
  await bus.close();
  await mesh.stop();
});

tests("PAUSE and SUSPEND on one host stop all, RESUME on another goes on", async () => {
  const clients = [await login(north), await login(north), await login(south), await login(south)];
  for (const client of clients) await client.query("SELECT 1");
  const [here, there] = [await boss(north), await boss(south)];
  for (const [command, wanted] of [["PAUSE", "paused"], ["SUSPEND", "suspended"]] as const) {
    assert.equal(await given(here, command), []);
    assert.equal([await state(here), await state(there)], [wanted, wanted]);
    // The processes of PostgreSQL end a moment after their connections.
    if (command === "PAUSE") await until("all to be gone", async () => await backends() === 0);
    for (const client of clients) client.send(f.Q("SELECT 2"));
    assert.equal(clients.map(({ unread }) => unread), [0, 0, 0, 0]);
    assert.equal(await given(there, command), ["ERROR already suspended/paused"]);
    assert.equal(await given(there, "RESUME"), []);
    for (const client of clients) {
      assert.is(await client.replies(1, patience), 'T D C"SELECT 1" Z(I)');
    }
    assert.equal([await state(here), await state(there)], ["active", "active"]);
  }
});

tests(
  "a transaction on one host holds up PAUSE on another; leaving that console ends it",
  async () => {
    const busy = await login(south);
    await busy.query("BEGIN");
    const [here, there] = [await boss(north), await boss(south)];
    here.send(f.Q("PAUSE"));
    await until("the pause", async () => await state(there) === "paused");
    assert.is(here.unread, 0);
    here.close();
    await until("its end", async () => await state(there) === "active");
    const again = await boss(north);
    again.send(f.Q("PAUSE"));
    await until("the pause", async () => await state(there) === "paused");
    await busy.query("COMMIT");
    assert.is(await again.replies(1, patience), 'C"PAUSE" Z(I)');
    assert.equal(await given(there, "RESUME"), []);
  },
);

tests(
  "DISABLE, KILL, KILL_CLIENT and RECONNECT concern clients and servers of all hosts",
  async () => {
    const [here, there] = [await boss(north), await boss(south)];
    assert.equal(await given(here, "DISABLE postgres"), []);
    for (const host of hosts) {
      const error = await host.login().then(() => null, (error: ServerError) => error);
      assert.is(error?.code, "57P03", host.name);
    }
    assert.equal(await given(there, "ENABLE postgres"), []);
    const [one, other] = [await login(north), await login(south)];
    const pids = async () =>
      await Promise.all([one, other].map(async (client) => {
        const [row] = await client.query("SELECT pg_backend_pid()");
        return Number(row![0]);
      }));
    const before = await pids();
    assert.equal(await given(here, "RECONNECT"), []);
    for (const pid of await pids()) assert.not.ok(before.includes(pid));
    // An id that only the other host knows.
    let id: string | null | undefined;
    await until("the client's worker", async () => {
      const rows = await (await boss(south)).table("SHOW CLIENTS");
      id = rows.find((row) => Number(row["port"]) === other.localPort)?.["id"];
      return id !== undefined;
    });
    assert.equal(await given(here, `KILL_CLIENT ${id}`), []);
    assert.is(await other.repliesUntilClosed(), "E(57P01) closed");
    assert.equal(await given(here, `KILL_CLIENT ${id}`), ["ERROR client not found"]);
    const last = await login(south);
    assert.equal(await given(here, "KILL"), []);
    for (const client of [one, last]) {
      assert.is(
        await client.repliesUntilClosed(),
        "E(57P01) closed",
      );
    }
    assert.equal(await given(there, "RESUME"), []);
  },
);

tests("RELOAD and SET: the file is the own host's, a SET is for all", async () => {
  const [here, there] = [await boss(north), await boss(south)];
  const value = async (console: RawClient, name: string) =>
    (await console.table("SHOW CONFIG")).find(({ key }) => key === name)!["value"];
  assert.equal(await given(here, "SET query_wait_timeout = 77"), []);
  assert.equal(
    [await value(here, "query_wait_timeout"), await value(there, "query_wait_timeout")],
    [
      "77",
      "77",
    ],
  );
  assert.equal(await given(here, "RELOAD"), []);
  assert.equal(
    [await value(here, "query_wait_timeout"), await value(there, "query_wait_timeout")],
    [
      "120",
      "77",
    ],
  );
  assert.equal(await given(there, "RELOAD"), []);
});

tests(
  "a host that is cut off is named, serves on, and is reached again when it is back",
  async () => {
    const [here, there] = [await boss(north), await boss(south)];
    const far = await login(south);
    for (const other of network.hosts) {
      if (other !== south.host) {
        network.cutBetween(south.host, other);
      }
    }
    const named = (text: string) =>
      /^NOTICE no answer from: worker \d+ of south, worker \d+ of south$/.test(text);
    // Whoever of the own host was connected to the nats-server there finds another one first.
    await until(
      "that host alone to be named",
      async () => {
        const said = await given(here, "RECONNECT");
        return said.length === 1 && named(said[0]!);
      },
      120_000,
      100,
    );
    const said = await given(here, "PAUSE");
    assert.ok(said.length === 1 && named(said[0]!), said.join());
    assert.equal([await state(here), await state(there)], ["paused", "active"]);
    assert.equal(await far.query("SELECT 7"), [["7"]]);
    network.healAll();
    await until(
      "it to be reached",
      async () => (await given(here, "RECONNECT")).length === 0,
      120_000,
      200,
    );
    // It was never paused. A worker of the own host that is slow to answer is named in the same notice.
    const [notice = "", ...more] = await given(here, "RESUME");
    assert.match(notice, "not on all hosts: pooler is not paused/suspended");
    assert.is(more.length, 0);
    await until(
      "all to be active",
      async () => await state(here) === "active" && await state(there) === "active",
    );
  },
);

tests.run();
