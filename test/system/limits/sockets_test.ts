// What the pooler asks of its sockets, and what it tells PostgreSQL of its clients': tcp_socket_buffer,
// tcp_defer_accept, application_name_add_host.
// load: waits

import { execFileSync } from "node:child_process";
import { assert, suite } from "../../support/harness.ts";
import { findProgram, needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";

needs("postgresql", "iproute2");

const postgres = await startPostgres();
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
const login = { user: "postgres", database: "db" };

const tests = suite("sockets");

tests.after(async () => {
  await postgres.stop("immediate");
});

/** Receive and send buffers of the connections from or to a port, `rb/tb` each. */
function buffers(side: "sport" | "dport", port: number): string[] {
  const filter = ["-tmnH", "state", "established", `( ${side} = :${port} )`];
  const seen = execFileSync(findProgram("ss")!, filter, { encoding: "utf8" });
  return [...seen.matchAll(/skmem:\(r\d+,rb(\d+),t\d+,tb(\d+)/g)].map(([, rb, tb]) =>
    `${rb}/${tb}`
  );
}

tests("tcp_socket_buffer is that of client and server connections", async () => {
  const pooler = await startPgweir({
    ini: { databases: { db: at }, pgbouncer: { tcp_socket_buffer: 16384 } },
  });
  const client = await RawClient.login(pooler, login);
  // The kernel allows itself twice as much.
  assert.equal(buffers("sport", pooler.port), ["32768/32768"]);
  assert.equal(buffers("dport", postgres.port), ["32768/32768"]);
  // More than fits in them goes through both ways.
  const text = "x".repeat(1_000_000);
  assert.equal(await client.query(`SELECT length('${text}'), repeat('y', 1000000)`), [
    ["1000000", "y".repeat(1_000_000)],
  ]);
  await client.end();
  await pooler.stop();
});

tests(
  "with tcp_defer_accept a client that says nothing is taken a second later, not never",
  async () => {
    for (const [defer, isTaken] of [[1, false], [45, false], [0, true]] as const) {
      const pooler = await startPgweir({
        ini: {
          databases: { db: at },
          pgbouncer: { tcp_defer_accept: defer, client_login_timeout: 0.1 },
        },
      });
      const began = performance.now();
      const mute = await RawClient.connect(pooler);
      assert.is(await mute.repliesUntilClosed(), "E(08006) closed");
      const took = performance.now() - began;
      // The kernel keeps it until it has sent its SYN-ACK a second time, which takes a second.
      if (!isTaken) assert.ok(took > 900, `taken and given up after ${took} ms`);
      mute.close();
      await pooler.stop();
    }
  },
);

tests("with tcp_defer_accept who speaks late is served", async () => {
  const pooler = await startPgweir({
    ini: { databases: { db: at }, pgbouncer: { tcp_defer_accept: 1 } },
  });
  const mute = await RawClient.connect(pooler);
  await mute.readNothingFor(1_500);
  mute.startup(login);
  await mute.messagesUntil("Z", 1, 30_000);
  mute.send(f.Q("SELECT 1"));
  assert.is(await mute.replies(), 'T D C"SELECT 1" Z(I)');
  mute.close();
  await pooler.stop();
});

tests("application_name_add_host adds where a client comes from, at its login", async () => {
  const pooler = await startPgweir({
    ini: {
      databases: { db: `${at} pool_size=1` },
      pgbouncer: { application_name_add_host: 1, listen_addr: "127.0.0.1,::1" },
    },
  });
  const shown = async (client: RawClient) => (await client.query("SHOW application_name"))[0]![0]!;
  const tcp = await RawClient.login(pooler, {
    ...login,
    parameters: { application_name: "batch" },
  });
  const unnamed = await RawClient.login(pooler, login);
  const six = await RawClient.login({ host: "::1", port: pooler.port }, login);
  const local = await RawClient.login({ path: pooler.socketPath }, {
    ...login,
    parameters: { application_name: "here" },
  });
  for (let round = 0; round < 2; round++) {
    assert.is(await shown(tcp), `batch - 127.0.0.1:${tcp.localPort}`);
    assert.is(await shown(unnamed), `app - 127.0.0.1:${unnamed.localPort}`);
    assert.is(await shown(six), `app - [::1]:${six.localPort}`);
    assert.is(await shown(local), `here - unix(${process.pid}):${pooler.port}`);
  }
  // PostgreSQL sees the same, and what a client sets later is its own.
  const [row] = await unnamed.query(
    "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()",
  );
  assert.is(row![0], `app - 127.0.0.1:${unnamed.localPort}`);
  await tcp.query("SET application_name = 'own'");
  assert.is(await shown(unnamed), `app - 127.0.0.1:${unnamed.localPort}`);
  assert.is(await shown(tcp), "own");
  // RESET leads back to what it had at its login.
  await tcp.query("RESET application_name");
  assert.is(await shown(tcp), `batch - 127.0.0.1:${tcp.localPort}`);
  const long = await RawClient.login(pooler, {
    ...login,
    parameters: { application_name: "n".repeat(60) },
  });
  assert.is(await shown(long), `${"n".repeat(60)} - `);
  for (const client of [tcp, unnamed, six, local, long]) await client.end();
  await pooler.stop();
});

tests.run();
