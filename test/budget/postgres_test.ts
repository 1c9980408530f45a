// Silent and ended workers whose backends PostgreSQL still shows: with budget_auth the coordinator frees
// their slots one by one, as the backends end, and none before.
// limit: 360 s
// load: waits

import { directLeaf } from "../../shared/ledger/mod.ts";
import { assert, suite, until } from "../support/harness.ts";
import { needs } from "../support/needs.ts";
import { startPostgres } from "../support/postgres.ts";
import { RawClient } from "../support/raw_client.ts";
import { type TestMesh, type TestWorker, withMesh } from "./mesh.ts";

needs("postgresql");

const password = "it's only for the test";
const postgres = await startPostgres({ auth: "scram-sha-256" });
await postgres.query("CREATE DATABASE shop");
await postgres.query("CREATE ROLE app LOGIN REPLICATION PASSWORD 'app'");
await postgres.query("CREATE ROLE auditor LOGIN PASSWORD 'it''s only for the test'");
await postgres.query("GRANT pg_monitor TO auditor");

const tests = suite("coordinator with budget_auth");
tests.after(() => postgres.stop("immediate"));

async function inMesh(
  run: (mesh: TestMesh) => Promise<void>,
  settings: readonly string[] = [],
  leaseS = 10,
): Promise<void> {
  const login = "budget_auth = user=auditor password='it''s only for the test' dbname=postgres";
  await withMesh({
    face: "embedded",
    poolSize: 10,
    leaseS,
    database: `host=127.0.0.1 port=${postgres.port}`,
    settings: [login, ...settings],
  }, run);
}

async function connections(
  count: number,
  parameters: Readonly<Record<string, string>> = {},
): Promise<{ client: RawClient; pid: number }[]> {
  return await Promise.all(Array.from({ length: count }, async () => {
    const client = await RawClient.login(postgres, {
      user: "app",
      database: "shop",
      password: "app",
      parameters,
    });
    return { client, pid: client.key!.processId };
  }));
}

/** Until the coordinator has asked PostgreSQL so often again: nobody else has sessions in that database. */
async function threeLooks(): Promise<void> {
  const sql = "SELECT sessions FROM pg_stat_database WHERE datname = 'postgres'";
  const looks = async () => Number((await postgres.query(sql, [], "template1"))[0]!["sessions"]);
  const before = await looks();
  await until("three looks", async () => await looks() >= before + 3, 60_000, 100);
}

function nameBackends(mesh: TestMesh, worker: TestWorker, pids: readonly number[]): void {
  const bytes = new Uint8Array(pids.length * 4);
  pids.forEach((pid, at) => new DataView(bytes.buffer).setUint32(at * 4, pid));
  mesh.bus.publish(mesh.bus.subjects.budgetBackends(worker.id), {
    worker: worker.id,
    incarnation: worker.incarnation,
    leaves: [{ leaf: worker.lease.leaf, pids: bytes }],
  });
}

tests(
  "a silent worker is charged the backends that PostgreSQL shows, and then its floor",
  () =>
    inMesh(
      async (mesh) => {
        const [leader] = await mesh.startCoordinators(1);
        const cut = mesh.addWorker();
        const worker = mesh.addWorker(1);
        await until("both", () => worker.lease.held === 1);
        cut.wanted = 8;
        await until("8 slots", () => cut.lease.held === 8);
        const open = await connections(8);
        nameBackends(mesh, cut, open.map(({ pid }) => pid));
        cut.mute();
        cut.freeze();
        const { granted, floor } = cut.lease;
        worker.wanted = 10;
        await until("the silence", () => leader!.log.includes("workers are silent"));
        await until("what is left", () => worker.lease.held === 10 - granted);
        // Two of its clients end: their slots are free, as soon as its lease is over.
        cut.lease.held = 6;
        for (const { client } of open.splice(0, 2)) await client.end();
        assert.ok(floor < 6);
        await until("the slots of two backends", () => worker.lease.held === 4);
        cut.lease.held = 0;
        for (const { client } of open) await client.end();
        // It might come back up to its floor; when it may not any more, later, is the ledger's.
        await until("all but its floor", () => worker.lease.held >= 10 - floor);
        assert.not(leader!.log.includes(password));
        await leader!.process.stop();
      },
      [],
      1,
    ),
);

tests(
  "each slot of a worker that ended is free when its backend is, and not before",
  () =>
    inMesh(async (mesh) => {
      const [leader] = await mesh.startCoordinators(1);
      const dead = mesh.addWorker(10);
      await until("10 slots", () => dead.lease.held === 10);
      const open = await connections(2);
      nameBackends(mesh, dead, open.map(({ pid }) => pid));
      dead.stop();
      const worker = mesh.addWorker(10);
      // It is no more, but two of its backends are, busy with queries of hours: the others' slots are free.
      dead.die();
      await mesh.reportGone(dead);
      await until("the slots without a backend", () => worker.lease.held === 8);
      await open[0]!.client.end();
      await until("one more", () => worker.lease.held === 9);
      await threeLooks();
      assert.is(worker.lease.held, 9);
      await open[1]!.client.end();
      await until("all slots", () => worker.lease.held === 10);
      await leader!.process.stop();
    }),
);

// Replication of a whole server is of no database, and PostgreSQL lists it as no client's backend: the slots of
// an ended worker were given away while the replication it had begun went on.
tests(
  "each slot of direct connections is free when PostgreSQL shows them no more, replication too",
  () =>
    inMesh(async (mesh) => {
      const [leader] = await mesh.startCoordinators(1);
      const dead = mesh.addWorker(3, directLeaf("shop", "app"));
      await until("3 slots", () => dead.lease.held === 3);
      const open = [
        ...await connections(1),
        ...await connections(1, { replication: "true" }),
        ...await connections(1, { replication: "database" }),
      ];
      nameBackends(mesh, dead, open.map(({ pid }) => pid));
      dead.stop();
      const worker = mesh.addWorker(10);
      dead.die();
      await mesh.reportGone(dead);
      await until("the slots without a backend", () => worker.lease.held === 7);
      await threeLooks();
      for (const [at, { client }] of open.entries()) {
        assert.is(worker.lease.held, 7 + at);
        await client.end();
        await until("one more", () => worker.lease.held > 7 + at);
      }
      await until("all slots", () => worker.lease.held === 10);
      await leader!.process.stop();
    }, ["max_db_connections = 10"]),
);

tests(
  "a login that PostgreSQL refuses is spoken of as soon as a coordinator leads",
  () =>
    inMesh(async (mesh) => {
      await postgres.query("ALTER ROLE auditor NOLOGIN");
      const [leader] = await mesh.startCoordinators(1);
      await until("the reason", () => /try budget_auth: .*28000/.test(leader!.log));
      await postgres.query("ALTER ROLE auditor LOGIN");
      await leader!.process.stop();
    }),
);

tests(
  "while PostgreSQL cannot be asked nothing is freed, and the log says why",
  () =>
    inMesh(async (mesh) => {
      const [leader] = await mesh.startCoordinators(1);
      const dead = mesh.addWorker(10);
      await until("10 slots", () => dead.lease.held === 10);
      await postgres.query("ALTER ROLE auditor NOLOGIN");
      dead.stop();
      await mesh.reportGone(dead);
      const worker = mesh.addWorker(10);
      await until("the reason", () => /28000.*not permitted to log in/.test(leader!.log));
      assert.is(worker.lease.held, 0);
      dead.die();
      await postgres.query("ALTER ROLE auditor LOGIN");
      await until("the slots of the dead", () => worker.lease.held === 10);
      await leader!.process.stop();
    }),
);

tests.run();
