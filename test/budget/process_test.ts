// The process `pgweir budget`: what it says when it cannot start, and how it lives through a bus, a store and
// a supervisor that go away.
// limit: 360 s
// load: waits

import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import { ElectingNats } from "../bus/electing_nats.ts";
import { assert, suite, until } from "../support/harness.ts";
import { ManagedProcess } from "../support/managed_process.ts";
import { startNats } from "../support/nats.ts";
import { needs } from "../support/needs.ts";
import { tempDir } from "../support/temp.ts";
import { leaderOf, TestCoordinator, TestMesh } from "./mesh.ts";

needs("nats-server");

const cli = resolve(import.meta.dirname!, "../../services/cli.ts");
const tests = suite("pgweir budget");

function iniOf(...settings: string[]): string {
  const file = join(tempDir("budget"), "pgweir.ini");
  const lines = ["[databases]", "shop = host=127.0.0.1", "[pgbouncer]", "pool_mode = transaction"];
  writeFileSync(file, [...lines, ...settings, ""].join("\n"));
  return file;
}

async function start(file: string, seat?: string): Promise<TestCoordinator> {
  const environment = { ...process.env as Record<string, string> };
  if (seat !== undefined) environment["PGWEIR_BUDGET"] = seat;
  const command = [...runtimeCommand(), cli, "budget", file];
  return new TestCoordinator(await ManagedProcess.launch({ command, environment }));
}

tests("a start that cannot work ends with the reason and exit code 1", async () => {
  const rows: [string, string | undefined, RegExp][] = [
    ["/nowhere/pgweir.ini", undefined, /nowhere\/pgweir\.ini/],
    [iniOf("nonsense = 1"), undefined, /unknown parameter: pgbouncer\/nonsense/],
    [iniOf(), undefined, /bus_url is not set in .*wanted the nats-servers of the mesh/],
    [iniOf("bus_url = http://x"), undefined, /wanted nats:\/\/host:port/],
    [iniOf("bus_url = nats://x", "bus_credentials = /nowhere"), undefined, /"\/nowhere" ENOENT/],
    [iniOf(), "{}", /read PGWEIR_BUDGET: mesh/],
  ];
  for (const [file, seat, reason] of rows) {
    const coordinator = await start(file, seat);
    const end = await coordinator.process.ended();
    assert.equal(end, { code: 1, signal: null }, coordinator.log);
    assert.match(coordinator.log, reason);
  }
});

tests("a bus that is not there is waited for, and spoken of", async () => {
  const nats = await startNats({ jetstream: true });
  const { port, token } = nats;
  await nats.stop();
  const coordinator = await start(iniOf(`bus_url = nats://${token}@127.0.0.1:${port}`));
  await until("the log", () => /bus is not reachable/.test(coordinator.log));
  assert.not(coordinator.log.includes(token));
  await nats.start();
  await leaderOf([coordinator]);
  await coordinator.process.stop();
  await nats.stop();
});

tests("a cluster that elects who leads it for long is waited for, and spoken of", async () => {
  const nats = await ElectingNats.start();
  try {
    const { port, token } = nats.server;
    const coordinator = await start(iniOf(`bus_url = nats://${token}@127.0.0.1:${port}`));
    await until(
      "the log",
      () => /open the budget's store: .*unavailable; trying again/.test(coordinator.log),
    );
    await nats.elect();
    await leaderOf([coordinator]);
    await coordinator.process.stop();
  } finally {
    await nats.stop();
  }
});

tests("a nats-server without JetStream is named with what it needs", async () => {
  const nats = await startNats();
  const coordinator = await start(iniOf(`bus_url = nats://${nats.token}@127.0.0.1:${nats.port}`));
  await until("the log", () => coordinator.log.includes("--jetstream"));
  assert.equal(await coordinator.process.stop(), { code: 0, signal: null });
  await nats.stop();
});

tests("a bus that goes away ends the term; back, it leads again and nothing was lost", async () => {
  // However long it takes for the bus to be back.
  const mesh = await TestMesh.start({ face: "nats", poolSize: 10, leaseS: 60 });
  const [leader] = await mesh.startCoordinators(1);
  const worker = mesh.addWorker(4);
  await until("4 slots", () => worker.lease.held === 4);
  await mesh.nats!.kill();
  await until("the end of the term", () => leader!.log.includes("no longer coordinates"));
  await mesh.nats!.start();
  await leaderOf([leader!], leader!.epochs[0]!);
  const other = mesh.addWorker(10);
  await until("what is left", () => other.lease.held === 6);
  assert.is(worker.lease.held, 4);
  mesh.checkViolations();
  await leader!.process.stop();
  await mesh.stop();
});

tests("a broker that freezes ends the term, and its late answers do no harm", async () => {
  const mesh = await TestMesh.start({ face: "nats", poolSize: 10 });
  const [leader, other] = await mesh.startCoordinators(2);
  const worker = mesh.addWorker(6);
  await until("6 slots", () => worker.lease.held === 6);
  await mesh.nats!.pause();
  worker.wanted = 9;
  await until("the end of the term", () => leader!.log.includes("no longer coordinates"));
  mesh.nats!.resume();
  await leaderOf([leader!, other!], leader!.epochs[0]!);
  await until("9 slots", () => worker.lease.held === 9);
  mesh.checkViolations();
  await Promise.all([leader!.process.stop(), other!.process.stop()]);
  await mesh.stop();
});

tests("a coordinator whose supervisor is gone ends", async () => {
  const nats = await startNats({ jetstream: true });
  const seat = {
    busUrl: nats.url,
    busToken: "",
    mesh: "default",
    name: "budget-x",
    embedded: false,
    // Somebody else's child: its parent is not this process.
    supervisorPid: 1,
  };
  const file = iniOf(`bus_url = nats://${nats.token}@127.0.0.1:${nats.port}`);
  const coordinator = await start(file, JSON.stringify(seat));
  assert.equal(await coordinator.process.ended(), { code: 0, signal: null });
  assert.match(coordinator.log, /supervisor is gone/);
  await nats.stop();
});

tests.run();
