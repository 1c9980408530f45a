// Peers whose host has vanished: no good-bye, no reset, only silence. What was sent to them is never acknowledged, and
// tcp_user_timeout (or the keepalive) says when to give up. Hosts of the test's own, whose line can be pulled.
// limit: 480 s
// load: waits

import { resolve } from "node:path";
import { concatBytes, startupPacket } from "../../../shared/wire/mod.ts";
import { runtimeCommand } from "../../../shared/sys/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { HostNetwork, needsHosts } from "../../support/hosts.ts";
import type { ManagedProcess } from "../../support/managed_process.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { openFiles } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import { freePort } from "../../support/temp.ts";

needs("postgresql", "iproute2");
needsHosts();

const network = await HostNetwork.create(["applications", "database"]);
const [applications, database] = network.hosts as [
  (typeof network.hosts)[0],
  (typeof network.hosts)[0],
];
const { outside } = network;
const postgres = await startPostgres({
  settings: { listen_addresses: `127.0.0.1,${outside.clientAddress}` },
  hba: [`host all all ${network.subnet} trust`],
});
const relayPort = await freePort();
const relay = await database.launch({
  command: [
    ...runtimeCommand(),
    resolve(import.meta.dirname!, "relay_process.ts"),
    database.address,
    String(relayPort),
    outside.clientAddress,
    String(postgres.port),
  ],
});
await relay.ready("the relay", () => relay.stdout().includes("ready"));
const at = `dbname=postgres host=`;
const pooler = await startPgweir({
  ini: {
    databases: {
      near: `${at}127.0.0.1 port=${postgres.port} pool_size=2`,
      far: `${at}${database.address} port=${relayPort} pool_size=5`,
    },
    pgbouncer: {
      listen_addr: `127.0.0.1,${outside.address}`,
      tcp_user_timeout: 2000,
      tcp_keepidle: 1,
      tcp_keepintvl: 1,
      tcp_keepcnt: 2,
      server_login_retry: 0.5,
      // A line that is there again is used sooner than that.
      server_connect_timeout: 10,
    },
  },
});
const user = "postgres";
const patient = { timeoutMs: 90_000 };
const login = (name: string) => RawClient.login(pooler, { user, database: name });

const tests = suite("peers that vanish");

tests.after(async () => {
  network.healAll();
  await pooler.stop();
  await relay.stop("SIGKILL");
  await postgres.stop("immediate");
  await network.remove();
});

/** A client on the other host: it sends the bytes, reads nothing, and stays. */
async function silentClient(...parts: readonly Uint8Array[]): Promise<ManagedProcess> {
  const open = `exec 3<>/dev/tcp/${outside.address}/${pooler.port}`;
  // A line that was pulled is not there again at once.
  await until("the host to reach the pooler", () => {
    try {
      applications.run("timeout", "5", "bash", "-c", open);
      return true;
    } catch {
      return false;
    }
  });
  const bytes = concatBytes(startupPacket({ user, database: "near" }), ...parts);
  const escaped = [...bytes].map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
  const script = `${open}; printf '${escaped}' >&3; exec sleep 1000`;
  return await applications.launch({ command: ["bash", "-c", script] });
}

const locked = async () => {
  const [row] = await postgres.query(
    "SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory' AND granted",
  );
  return Number(row!["n"]);
};

const lock = f.Q("SELECT pg_advisory_xact_lock(7)");
const endless = f.Q("SELECT repeat('x', 1000), generate_series(1, 100000000)");
const silences: [string, readonly Uint8Array[], string][] = [
  ["that takes no more of its result", [endless], "ClientWrite"],
  ["in the middle of its query", [f.Q("SELECT pg_sleep(1000)")], "PgSleep"],
  ["between two queries", [], "ClientRead"],
];

for (const [when, more, event] of silences) {
  // A client whose host had lost its power kept its transaction with all its locks, for hours.
  tests(`the transaction of a client that vanishes, ${when}, is rolled back`, async () => {
    const files = openFiles(pooler.pid);
    const client = await silentClient(f.Q("BEGIN"), lock, ...more);
    await until("it to be in its transaction", async () => {
      const backends = await postgres.backends();
      return await locked() === 1 && backends.some((each) => each.wait_event === event);
    });
    applications.cut();
    try {
      await until("the lock to be free", async () => await locked() === 0, 90_000);
      await until(
        "its server to be free",
        async () => (await postgres.backends()).every((each) => each.state === "idle"),
      );
      const next = await login("near");
      assert.equal(await next.query("SELECT 'well'"), [["well"]]);
      await next.end();
    } finally {
      applications.heal();
      await client.stop("SIGKILL");
    }
    // A server more that was opened is meant to stay.
    await until("its socket to be closed", () => openFiles(pooler.pid) <= files + 2);
  });
}

// Clients that do nothing are most of all: each kept its place, until nobody else got in.
tests("idle clients that vanish give their places back", async () => {
  const files = openFiles(pooler.pid);
  const clients = await Promise.all(Array.from({ length: 10 }, () => silentClient()));
  const there = async () =>
    (await pooler.console("SHOW CLIENTS")).filter((row) => row["database"] === "near").length;
  try {
    await until("all to be in", async () => await there() === clients.length);
    applications.cut();
    await until("all to be gone", async () => await there() === 0, 90_000);
  } finally {
    applications.heal();
    for (const client of clients) await client.stop("SIGKILL");
  }
  // A server more that was opened is meant to stay.
  await until("their sockets to be closed", () => openFiles(pooler.pid) <= files + 2);
});

/** Clients of a pool that has five servers, each of which is known to answer. */
async function fiveOfFar(): Promise<RawClient[]> {
  const five = await Promise.all(Array.from({ length: 5 }, () => login("far")));
  for (const client of five) {
    client.send(f.Q("BEGIN"));
    assert.is(await client.replies(1, patient), 'C"BEGIN" Z(T)');
  }
  for (const client of five) await client.query("COMMIT");
  return five;
}

// A firewall forgot the connections of a pool in silence: the next clients were given them, and waited for ever.
tests(
  "servers that vanish cost their clients an error in time, and the others nothing",
  async () => {
    const five = await fiveOfFar();
    const waiting = await Promise.all(Array.from({ length: 5 }, () => login("far")));
    const near = await login("near");
    database.cut();
    try {
      for (const client of [...five, ...waiting]) client.send(f.Q("SELECT 1"));
      const outcomes = five.map((client) => client.replies(1, patient));
      assert.equal(await near.query("SELECT 'well'"), [["well"]]);
      // One error each, for a query that was sent and never answered.
      for (const got of await Promise.all(outcomes)) assert.is(got, "E(08006) closed");
    } finally {
      database.heal();
    }
    for (const client of waiting) {
      assert.is(await client.replies(1, patient), 'T D C"SELECT 1" Z(I)');
      await client.end();
    }
    await near.end();
  },
);

// Idle ones are found out by the keepalive before anybody is given them.
tests("servers that vanish while nobody uses them are replaced unnoticed", async () => {
  const five = await fiveOfFar();
  const servers = async () =>
    (await pooler.console("SHOW SERVERS")).filter((row) => row["database"] === "far").length;
  assert.ok(await servers() >= 5);
  database.cut();
  try {
    await until("the pooler to give them up", async () => await servers() === 0, 90_000);
  } finally {
    database.heal();
  }
  for (const client of five) client.send(f.Q("SELECT 1"));
  for (const client of five) {
    assert.is(await client.replies(1, patient), 'T D C"SELECT 1" Z(I)');
    await client.end();
  }
});

tests.run();
