// Memory of groups as a monitor on the database host measures it, of two hosts with one worker each: the soft limit of a
// group is that of all workers and holds back new queries while the running ones finish; an estimate that is far too
// high is corrected while its query runs; and without a monitor all goes by estimates, and is said to.
// limit: 180 s
// load: waits

import { connectBus, type GroupBackends, type GroupMemory } from "../../../shared/bus/mod.ts";
import { createLogger } from "../../../shared/telemetry/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import type { ManagedProcess } from "../../support/managed_process.ts";
import { needs } from "../../support/needs.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import { processInfo } from "../../support/processes.ts";
import type { RawClient } from "../../support/raw_client.ts";
import { DatabaseHost, patienceMs } from "./database_host.ts";

needs("postgresql", "nats-server");

const tests = suite("memory of resource groups");
const MB = 1024 ** 2;
const groups = {
  // Room for a query with 64 MB, of which PostgreSQL may make 128, and while no more than that is in use for another.
  big: "min_query_memory=1MB soft_max_memory=200MB queue_timeout=0",
  wary: "min_query_memory=1GB soft_max_memory=1GB queue_timeout=0",
};
const host = await DatabaseHost.start();
const { postgres } = host;
for (const name of [...Object.keys(groups), "other"]) {
  await postgres.query(`CREATE ROLE ${name} LOGIN`);
}
const { url, token } = host.nats;
const logger = createLogger({ component: "test", level: "error", format: "text" });
const bus = await connectBus({ servers: [url], token, name: "test", mesh: "default", logger });
const gate = await host.client(postgres, "postgres", "postgres");
let first: Pgweir;
let second: Pgweir;
const consoles = new Map<Pgweir, RawClient>();
/** What the worker of a host says, and is told. */
const workers = new Map<Pgweir, { said: GroupBackends | null; told: GroupMemory[] }>();
let monitor: ManagedProcess;

tests.before(async () => {
  [first, second] = [await host.pooler(groups), await host.pooler(groups)];
  for (const pooler of [first, second]) {
    const console = await host.client(pooler, "admin", "pgbouncer");
    consoles.set(pooler, console);
    const [row] = await console.table("SHOW WORKER");
    const worker: { said: GroupBackends | null; told: GroupMemory[] } = { said: null, told: [] };
    workers.set(pooler, worker);
    const id = Number(row!["worker_id"]);
    bus.subscribe(bus.subjects.groupBackends(id), (said) => {
      worker.said = said;
    });
    bus.subscribe(bus.subjects.groupMemory(id), (told) => {
      worker.told.push(told);
    });
  }
});
tests.after(async () => {
  await monitor?.stop();
  await bus.close();
  await host.stop();
});

/** What queries of a group on a worker are counted with, as it says. */
function memoryOf(pooler: Pgweir, group: string): number {
  const rows = workers.get(pooler)!.said?.rows ?? [];
  return rows.find((row) => row.group === group)?.memory ?? 0;
}

/** A worker knows that others have so much; the last but one of what it was told is in effect. */
async function knows(pooler: Pgweir, group: string, bytes: number): Promise<void> {
  const { told } = workers.get(pooler)!;
  await until(`a worker to know of ${bytes} bytes elsewhere`, () => {
    const last = told.slice(-2);
    return last.length === 2 && last.every(({ elsewhere }) => {
      return (elsewhere.find((one) => one.group === group)?.bytes ?? 0) >= bytes;
    });
  }, patienceMs);
}

/** Waits at the gate with so many megabytes of its own; resolves when it has passed. */
function query(pooler: Pgweir, user: string, megabytes: number): Promise<unknown> {
  const done = host.client(pooler, user).then((client) =>
    client.query(
      `DO $$ DECLARE held text := repeat('x', ${megabytes} * 1024 * 1024); ` +
        "BEGIN PERFORM pg_advisory_xact_lock_shared(7); END $$",
    )
  );
  // A test that fails before it waits for it has its own reason.
  done.catch(() => {});
  return done;
}

/** Of the clients of the group `big`. */
async function statesOf(pooler: Pgweir): Promise<(string | null | undefined)[]> {
  const rows = await consoles.get(pooler)!.table("SHOW CLIENTS");
  return rows.filter(({ user }) => user === "big").map(({ state }) => state);
}

async function runs(user: string, count: number): Promise<void> {
  await until(`${count} of ${user} to run`, async () => {
    return (await host.backendsOf(user)).length === count;
  }, patienceMs);
}

tests(
  "an estimate that is far too high is corrected while its query runs, and who waited is let in",
  async () => {
    await gate.query("SELECT pg_advisory_lock(7)");
    const before = [query(first, "wary", 1)];
    await runs("wary", 1);
    before.push(query(first, "wary", 1));
    // The part of a worker of a host with one is all of it.
    await until("it to be full", async () => {
      const rows = await consoles.get(first)!.table("SHOW CLIENTS");
      return rows.filter(({ user, state }) => user === "wary" && state === "waiting").length === 1;
    }, patienceMs);
    await until("its estimate", () => memoryOf(first, "wary") === 1024 * MB, patienceMs);
    await runs("wary", 1);
    monitor = await host.monitor(first);
    await runs("wary", 2);
    const memory = await until("both to be measured", async () => {
      const memory = await memoryOf(first, "wary");
      return memory < 200 * MB ? memory : null;
    }, patienceMs);
    assert.ok(memory > MB, `${memory} bytes`);
    await gate.query("SELECT pg_advisory_unlock(7)");
    await Promise.all(before);
  },
);

tests(
  "the soft limit of a group is that of all workers; what runs ends in order, and then who waited runs",
  async () => {
    await gate.query("SELECT pg_advisory_lock(7)");
    const all = [query(first, "big", 64)];
    await runs("big", 1);
    const [running] = await host.backendsOf("big");
    await until("its memory", () => memoryOf(first, "big") >= 64 * MB, patienceMs);
    // The other worker knows of it, and has room for one more.
    await knows(second, "big", 64 * MB);
    all.push(query(second, "big", 64));
    await runs("big", 2);
    await until("its memory", () => memoryOf(second, "big") >= 64 * MB, patienceMs);
    await knows(first, "big", 150 * MB);
    // Neither has room for a third.
    const waiting = [query(first, "big", 1), query(second, "big", 1)];
    for (const pooler of [first, second]) {
      await until(
        "one to wait",
        async () => (await statesOf(pooler)).includes("waiting"),
        patienceMs,
      );
    }
    // Others are not held back.
    const other = await host.client(second, "other");
    assert.equal(await other.query("SELECT 1"), [["1"]]);
    await runs("big", 2);
    assert.ok(processInfo(running!) !== null);
    await gate.query("SELECT pg_advisory_unlock(7)");
    await Promise.all([...all, ...waiting]);
  },
);

tests("what was measured is void when the monitor is gone, and that is in the log", async () => {
  await gate.query("SELECT pg_advisory_lock(7)");
  const all = [query(first, "big", 210)];
  await until("its memory", () => memoryOf(first, "big") >= 210 * MB, patienceMs);
  await knows(second, "big", 210 * MB);
  all.push(query(second, "big", 1));
  await until("it to wait", async () => (await statesOf(second)).includes("waiting"), patienceMs);
  await monitor.stop("SIGKILL");
  // Nobody knows of the other worker's any more.
  await runs("big", 2);
  const line = /soft_max_memory goes by estimates/;
  await until("the log", () => line.test(first.log()), patienceMs);
  assert.match(first.log(), /measured by monitors on database hosts/);
  await gate.query("SELECT pg_advisory_unlock(7)");
  await Promise.all(all);
});

tests.run();
