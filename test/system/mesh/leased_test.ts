// One budget for several hosts, exact whatever happens between them: 8 server connections in the whole mesh, many
// more clients on each host, and lines cut, nats-servers and coordinators killed, a host that loses its power.
// What is watched: PostgreSQL never has a ninth backend, and has eight again soon after each fault.
// limit: 900 s
// load: waits

import { openStore } from "../../../shared/bus/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needsHosts } from "../../support/hosts.ts";
import { needs } from "../../support/needs.ts";
import { signal } from "../../support/processes.ts";
import { BackendWatch, type Look } from "./backend_watch.ts";
import { Load } from "./load.ts";
import { makeMesh, type MeshHost } from "./mesh.ts";

needs("postgresql", "nats-server", "iproute2");
needsHosts();

const CAP = 8;
const CLIENTS = 100;
const LEASE_S = 2;
/** From the end of a fault until all is in use again. */
const RECOVERY_MS = 45_000;
/** That, and the elections of JetStream in between. */
const STORE_MS = 180_000;

const mesh = await makeMesh({
  names: ["north", "south", "west"],
  poolers: 2,
  database: `pool_size=${CAP} max_db_connections=${CAP}`,
  // Of a line that was cut and a server that gave up meanwhile, either side finds out in some seconds, not in hours.
  settings: { max_client_conn: 1000, tcp_keepidle: 1, tcp_keepintvl: 1, tcp_keepcnt: 3 },
  own: {
    budget_mode: "leased",
    budget_lease: LEASE_S,
    budget_auth: "user=counter dbname=postgres",
  },
  postgres: {
    tcp_keepalives_idle: "1",
    tcp_keepalives_interval: "1",
    tcp_keepalives_count: "3",
    tcp_user_timeout: "4000",
  },
});
const { network, postgres, nats } = mesh;
const [north, south] = mesh.hosts as [MeshHost, MeshHost];
const west = network.hosts[2]!;
await postgres.query(`CREATE ROLE app LOGIN CONNECTION LIMIT ${CAP}`);
await postgres.query("CREATE ROLE counter LOGIN IN ROLE pg_monitor");
const watch = await BackendWatch.start(postgres, "app");
const bus = await mesh.bus();
const store = await openStore(bus);
const loads = [north, south].map((host) => new Load(host, { user: "app", database: "postgres" }));
const [northLoad, southLoad] = loads as [Load, Load];

let leader: { epoch: number; name: string } | null = null;
const forgetLeader = bus.subscribe(bus.subjects.budgetLeader, (message) => {
  if (leader === null || message.epoch >= leader.epoch) leader = message;
});

const allInUse = (look: Look) => look.total === CAP && look.active === CAP;

/** Whether a majority of the nats-servers takes what is written. */
async function storeWrites(): Promise<boolean> {
  const value = new Uint8Array(1);
  try {
    const last = await store.get("probe");
    const revision = last === null
      ? await store.create("probe", value)
      : await store.update("probe", value, last.revision);
    return revision !== null;
  } catch {
    return false;
  }
}

/** Both have a part: what is fair is the same for each worker with clients, and a host may have one such only. */
const shared = (look: Look) =>
  [north, south].every((host) => (look.from.get(host.host.address) ?? 0) >= CAP / 4);

/**
 * Fails when the nats-servers have taken writes without a break for so long. How long they take to find together again
 * is theirs: elections of JetStream last up to 20 s, and one that comes back with a later term starts another one.
 */
async function storeWroteFor(ms: number, over: AbortSignal): Promise<never> {
  let since: number | null = null;
  while (!over.aborted) {
    if (!await storeWrites()) since = null;
    else if (performance.now() - (since ??= performance.now()) > ms) break;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`recover: not so after ${ms} ms with JetStream; last: ${watch}`);
}

/** What must be so after each fault: all in use, by both hosts, and never too many. */
async function recovered(): Promise<void> {
  const over = new AbortController();
  const recovering = async () => {
    await watch.until(`${CAP} in use`, allInUse, STORE_MS);
    await watch.until("a fair share for both", shared, STORE_MS);
    await Promise.all(loads.map((load) => load.progress(50, STORE_MS)));
  };
  try {
    const done = recovering();
    const late = storeWroteFor(RECOVERY_MS, over.signal);
    for (const either of [done, late]) either.catch(() => {}); // the one that comes second tells nobody
    await Promise.race([done, late]);
  } finally {
    over.abort();
  }
  neverTooMany();
}

function neverTooMany(): void {
  assert.ok(watch.most.total <= CAP, `${watch.most.total} backends, wanted at most ${CAP}`);
  assert.not.match(postgres.log(), /too many connections/);
}

/** The clients of these hosts saw no error since the marks were taken. */
function noErrors(marks: ReadonlyMap<Load, number>): void {
  for (const [load, mark] of marks) {
    assert.equal(load.errorsSince(mark), [], `errors on ${load.host.name}`);
  }
}

const marks = (...which: Load[]) => new Map(which.map((load) => [load, load.errors.length]));

/** A fault lasts longer than a lease, so that what hangs on a lease has ended. */
const outlast = (leases = 1.5) =>
  new Promise<void>((resolve) => setTimeout(resolve, leases * LEASE_S * 1000));

const tests = suite("one budget of several hosts");
let broken = false;

/** The end of a host's log, without the comings and goings of clients and servers. */
function lastWords(host: MeshHost): string {
  const lines = host.log().split("\n").filter((line) => !/ LOG [CS]-/.test(line));
  return lines.slice(-40).join("\n");
}

/** What its workers hold and want, or why they don't say. */
async function leasesOf(host: MeshHost): Promise<string> {
  const lines: string[] = [];
  // Which worker answers is the kernel's choice.
  for (let i = 0; i < 6; i++) {
    const rows = await host.console("SHOW LEASES").catch((error: Error) => error.message);
    lines.push(typeof rows === "string" ? rows : rows.map((row) => JSON.stringify(row)).join("\n"));
  }
  return lines.join("\n");
}

/** A test of the series: after one that fails the others would only wait for what does not come. */
function fault(name: string, run: () => Promise<void>): void {
  tests(name, async () => {
    assert.not.ok(broken, "not tried: what an earlier fault broke is still broken");
    broken = true;
    try {
      await run();
    } catch (error) {
      for (const host of mesh.hosts) {
        console.log(`${host.name} says:\n${lastWords(host)}\n${await leasesOf(host)}`);
      }
      throw error;
    }
    broken = false;
  });
}

tests.before(async () => {
  await mesh.start();
  await until("a leading coordinator", () => leader !== null, 90_000);
});

tests.after(async () => {
  forgetLeader();
  network.healAll();
  await Promise.all(loads.map((load) => load.stop()));
  await watch.end();
  await bus.close();
  await mesh.stop();
});

// Limits were divided by the number of workers: one host's clients queued while the other's connections were idle.
fault(
  "the host that has the clients gets all of the budget, and the other one after it",
  async () => {
    for (const [load, other] of [[northLoad, southLoad], [southLoad, northLoad]] as const) {
      load.start(CLIENTS);
      await watch.until(
        `${CAP} on ${load.host.name}`,
        () => watch.of(load.host.host) === CAP,
        RECOVERY_MS,
      );
      await load.progress(100);
      await load.stop();
      assert.equal(load.errorsSince(0), []);
      assert.equal(other.errorsSince(0), []);
    }
    neverTooMany();
    for (const load of loads) {
      load.start(CLIENTS);
    }
    await recovered();
  },
);

fault("a host cut off from the bus serves on, and the budget stays whole", async () => {
  const before = marks(northLoad, southLoad);
  await nats[0]!.pause();
  network.cutBetween(north.host, south.host);
  network.cutBetween(north.host, west);
  await outlast();
  await Promise.all(loads.map((load) => load.progress(20)));
  neverTooMany();
  network.healAll();
  nats[0]!.resume();
  await recovered();
  noErrors(before);
});

// The nats-server of the host that is alone runs on, so that its workers and its coordinator have a bus: of their own.
fault(
  "lines that work in one direction only part the mesh, and the budget stays whole",
  async () => {
    const before = marks(northLoad, southLoad);
    for (const hears of [true, false]) {
      for (const other of [south.host, west]) {
        if (hears) network.cutOneWay(north.host, other);
        else network.cutOneWay(other, north.host);
      }
      await outlast();
      await Promise.all(loads.map((load) => load.progress(20)));
      neverTooMany();
      network.healAll();
      await recovered();
    }
    noErrors(before);
  },
);

fault(
  "a host cut off from everything leaves its clients waiting, and the others their part",
  async () => {
    const before = marks(southLoad);
    north.host.cut();
    await outlast(2);
    await southLoad.progress(20);
    neverTooMany();
    north.host.heal();
    await recovered();
    noErrors(before);
  },
);

fault("the leading nats-server dies and comes back", async () => {
  const before = marks(northLoad, southLoad);
  const leading = await mesh.natsLeader();
  await leading.kill();
  await Promise.all(loads.map((load) => load.progress(20)));
  await leading.start();
  await mesh.natsLeader();
  await recovered();
  noErrors(before);
});

/** The process of the leading coordinator, and null while there is none that is known. */
function leaderPid(): number | null {
  const log = mesh.hosts.map((host) => host.log()).join("");
  const elected = [...log.matchAll(/\[(\d+)\] LOG elected to coordinate the budget .*$/gm)];
  const line = elected.findLast(([text]) => leader !== null && text.includes(leader.name));
  return line === undefined ? null : Number(line[1]);
}

fault("the leading coordinator is killed: the next one leads, and no grant is lost", async () => {
  const before = marks(northLoad, southLoad);
  const epoch = leader!.epoch;
  signal(await until("the leader", leaderPid), "SIGKILL");
  await until("the next leader", () => leader!.epoch > epoch, 90_000);
  await recovered();
  noErrors(before);
});

fault(
  "workers that are killed while their host is cut off are replaced, within the budget",
  async () => {
    const before = marks(southLoad);
    north.host.cut();
    await outlast();
    for (const pid of north.servicePids("pooler")) signal(pid, "SIGKILL");
    await southLoad.progress(20);
    await outlast();
    neverTooMany();
    north.host.heal();
    await recovered();
    noErrors(before);
  },
);

fault("a host that loses its power gives back what it had, and comes back", async () => {
  const before = marks(southLoad);
  north.host.cut();
  await north.crash();
  await outlast();
  neverTooMany();
  north.host.heal();
  north.host.newBoot();
  await north.launch();
  await north.ready();
  await recovered();
  noErrors(before);
});

fault("after all of it the budget still goes where the clients are", async () => {
  const before = marks(northLoad, southLoad);
  await northLoad.stop();
  await watch.until(`${CAP} on south`, () => watch.of(south.host) === CAP, RECOVERY_MS);
  neverTooMany();
  noErrors(before);
});

tests.run();
