// `pgweir up` in budget_mode leased, with stand-ins for workers and coordinators: who gets started, who is
// called what, who is told that a worker is gone, and in which order all of it ends.
// limit: 360 s
// load: waits

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ElectingNats } from "../bus/electing_nats.ts";
import { assert, suite, until } from "../support/harness.ts";
import { ManagedProcess } from "../support/managed_process.ts";
import { NatsServer, startNats } from "../support/nats.ts";
import { needs } from "../support/needs.ts";
import { childrenOf, isAlive, signal } from "../support/processes.ts";
import { freePort, tempDir } from "../support/temp.ts";
import { connectBus, openStore } from "../../shared/bus/mod.ts";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";

needs("nats-server");

const test = suite("up, leased");

interface FakeWorker {
  readonly index: number;
  readonly workerId: number;
  readonly incarnation: number;
  readonly pid: number;
}

interface FakeCoordinator {
  readonly busUrl: string;
  readonly busToken: string;
  readonly mesh: string;
  readonly name: string;
  readonly supervisor: string;
  readonly supervisorPid: number;
  readonly embedded: boolean;
  readonly pid: number;
}

class Rig {
  readonly folder = tempDir("up");

  static async make(more = ""): Promise<Rig> {
    const rig = new Rig();
    writeFileSync(
      join(rig.folder, "some.ini"),
      `[databases]
shop = host=127.0.0.1
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${await freePort()}
unix_socket_dir =
pool_mode = transaction
auth_type = trust
auth_file = ${rig.folder}/users
default_pool_size = 1
workers = 2
drain_timeout = 60
budget_mode = leased
${more}
`,
    );
    writeFileSync(join(rig.folder, "users"), '"ben" "secret"\n');
    return rig;
  }

  set(name: string, mode: string): void {
    writeFileSync(join(this.folder, name), mode);
  }

  launch(environment: Record<string, string> = {}): Promise<ManagedProcess> {
    const script = join(import.meta.dirname!, "up_process.ts");
    return ManagedProcess.launch({
      command: [...runtimeCommand(), script, this.folder, "up", "some.ini"],
      cwd: this.folder,
      environment: { ...process.env as Record<string, string>, ...environment },
    });
  }

  async ready(environment: Record<string, string> = {}): Promise<ManagedProcess> {
    const up = await this.launch(environment);
    await up.ready("the ready text", () => up.stdout().includes("Ctrl-C\n"));
    return up;
  }

  workers(): FakeWorker[] {
    return this.#read<FakeWorker>(/^worker\.\d+$/).filter(({ pid }) => isAlive(pid))
      .sort((a, b) => a.index - b.index);
  }

  coordinators(): FakeCoordinator[] {
    return this.#read<FakeCoordinator>(/^budget\.\d+$/).filter(({ pid }) => isAlive(pid));
  }

  coordinator(): Promise<FakeCoordinator> {
    return until("a coordinator", () => this.coordinators()[0]);
  }

  #read<T>(name: RegExp): T[] {
    return readdirSync(this.folder).filter((file) => name.test(file))
      .map((file) => JSON.parse(readFileSync(join(this.folder, file), "utf8")));
  }

  /** Waits for the end of a process that should have left nothing. */
  async ends(up: ManagedProcess, code: number): Promise<void> {
    assert.equal(await up.ended(), { code, signal: null }, up.output());
    assert.equal([this.workers(), this.coordinators()], [[], []], "nothing is left");
  }
}

const gone = ({ workerId, incarnation }: FakeWorker) =>
  `coordinator: gone ${workerId} ${incarnation}\n`;

/** The keys of a mesh's store on a nats-server. */
async function storedKeys(nats: NatsServer): Promise<string[]> {
  const bus = await connectBus({
    servers: [nats.url],
    token: nats.token,
    name: "test",
    mesh: "default",
    logger: createLogger({ component: "test", level: "error", format: "text" }),
  });
  try {
    return (await (await openStore(bus)).list("")).map(({ key }) => key);
  } finally {
    await bus.close();
  }
}

const busUrl = (nats: NatsServer) => `bus_url = nats://${nats.token}@${nats.host}:${nats.port}`;

test("run() starts one coordinator, and ends it after the workers", async () => {
  const rig = await Rig.make();
  const up = await rig.ready();
  const { name, busToken, supervisor, ...seat } = await rig.coordinator();
  assert.equal({ ...seat, busUrl: "", pid: 0 }, {
    busUrl: "",
    mesh: "default",
    supervisorPid: up.pid,
    embedded: true,
    handed: true,
    pid: 0,
  });
  assert.match(name, /^budget-[0-9a-f]{12}$/);
  assert.match(supervisor, /^supervisor-[0-9a-f]{12}$/);
  assert.ok(busToken.length >= 32);
  const [one, two] = rig.workers() as [FakeWorker, FakeWorker];
  assert.not.equal(one.workerId, two.workerId);
  assert.ok(one.incarnation < two.incarnation);
  assert.not.match(up.stderr(), /less than the 2 workers/, "limits are not divided");
  up.signal("SIGHUP");
  await until("the reload", () => up.stderr().includes("coordinator: reload\n"));
  up.signal("SIGTERM");
  await rig.ends(up, 0);
  assert.match(
    up.stderr(),
    /worker \d+: drained\n(.*\n)*worker \d+: drained\n(.*\n)*coordinator: stopping\n(.*\n)*.* LOG stopped\n$/,
  );
});

test("budget_mode static starts no coordinator", async () => {
  const rig = await Rig.make("budget_mode = static");
  const up = await rig.ready();
  assert.is(childrenOf(up.pid).length, 2);
  assert.match(up.stderr(), /default_pool_size = 1 is less than the 2 workers/);
  up.signal("SIGTERM");
  await rig.ends(up, 0);
});

test("the death of a worker is told until somebody hears it, its successor waits for nobody", async () => {
  const rig = await Rig.make();
  rig.set("coordinator", "mute");
  const up = await rig.ready();
  await rig.coordinator();
  const [dead, other] = rig.workers() as [FakeWorker, FakeWorker];
  signal(dead.pid, "SIGKILL");
  const next = await until(
    "a replacement",
    () => rig.workers().find(({ index, pid }) => index === dead.index && pid !== dead.pid),
  );
  assert.not.equal(next.workerId, dead.workerId);
  assert.ok(next.incarnation > other.incarnation);
  await until("it to be told", () => up.stderr().includes(gone(dead)));
  rig.set("coordinator", "ready");
  await until("it to be told again", () => up.stderr().split(gone(dead)).length >= 3);
  assert.not.ok(up.stderr().includes(gone(other)));
  up.signal("SIGTERM");
  await rig.ends(up, 0);
});

test("a coordinator that dies is started again, however often, and the workers go on", async () => {
  const rig = await Rig.make();
  const up = await rig.ready();
  const first = await rig.coordinator();
  const workers = rig.workers();
  signal(first.pid, "SIGKILL");
  const second = await until(
    "another one",
    () => rig.coordinators().find(({ pid }) => pid !== first.pid),
  );
  assert.not.equal(second.busToken, first.busToken, "the token of the dead one is void");
  assert.not.equal(second.name, first.name, "a name is one process, for ever");
  rig.set("coordinator", "crash out of luck");
  signal(second.pid, "SIGKILL");
  await until(
    "a row of deaths",
    () => up.stderr().includes("starting another one in 10000 ms"),
    90_000,
  );
  assert.match(
    up.stderr(),
    /ERROR the budget coordinator ended with code 3: out of luck; starting/,
  );
  assert.match(up.stderr(), /^out of luck$/m, "what it says is passed on");
  assert.equal(rig.workers(), workers);
  up.signal("SIGTERM");
  await rig.ends(up, 0);
});

test("a coordinator that hears nothing is killed at the stop", async () => {
  const rig = await Rig.make();
  rig.set("coordinator", "stone");
  const up = await rig.ready({ COMPANION_MS: "500" });
  await rig.coordinator();
  up.signal("SIGTERM");
  await rig.ends(up, 0);
  assert.match(up.stderr(), /WARNING the budget coordinator does not end, killing it/);
});

// A host whose supervisor was stopped for a while lost all its workers when it went on: it had heard none of
// them meanwhile, and took them for hung.
test("a supervisor that was stopped takes none of its workers for hung", async () => {
  const rig = await Rig.make();
  // Longer than a machine stands still: a worker that is stopped by that is not silent for so long.
  const up = await rig.ready({ SILENT_MS: "6000" });
  const workers = rig.workers();
  up.signal("SIGSTOP");
  await new Promise((resolve) => setTimeout(resolve, 8000));
  up.signal("SIGCONT");
  // Its answer to a signal shows that it runs again; then a hung worker shows that it judges.
  up.signal("SIGHUP");
  await until("the reload", () => up.stderr().includes("configuration reloaded"));
  assert.equal(rig.workers(), workers);
  signal(workers[0]!.pid, "SIGSTOP");
  await until(
    "its end",
    () => up.stderr().includes(`worker ${workers[0]!.workerId} has been silent`),
  );
  assert.not.ok(up.stderr().includes(`worker ${workers[1]!.workerId} has been silent`));
  up.signal("SIGTERM");
  await rig.ends(up, 0);
});

test("a host waits for its bus, says so, and starts when it is there", async () => {
  const port = await freePort();
  const nats = new NatsServer(port, "hush", { jetstream: true });
  const rig = await Rig.make(busUrl(nats));
  const up = await rig.launch();
  await until("it to say so", () => up.stderr().includes("waiting for the bus before the workers"));
  assert.equal([rig.workers(), rig.coordinators()], [[], []]);
  await nats.start();
  try {
    await up.ready("the ready text", () => up.stdout().includes("Ctrl-C\n"));
    const { embedded, busToken } = await rig.coordinator();
    assert.equal([embedded, busToken], [false, ""]);
    assert.not.match(up.stderr(), /hush/);
    const workers = rig.workers();
    assert.equal(
      (await storedKeys(nats)).filter((key) => key.startsWith("worker.")).sort(),
      workers.map(({ workerId }) => `worker.${workerId}`).sort(),
    );
    up.signal("SIGTERM");
    await rig.ends(up, 0);
    for (const worker of workers) assert.ok(up.stderr().includes(gone(worker)), up.stderr());
    assert.equal(await storedKeys(nats), []);
  } finally {
    await nats.stop();
  }
});

test("a host waits for a cluster that elects who leads it, however long that takes", async () => {
  const nats = await ElectingNats.start();
  try {
    const rig = await Rig.make(busUrl(nats.server));
    const up = await rig.launch();
    await until(
      "it to say so",
      () => /waiting for the bus .*: open store: .* unavailable$/m.test(up.stderr()),
    );
    assert.equal([rig.workers(), rig.coordinators()], [[], []]);
    await nats.elect();
    await up.ready("the ready text", () => up.stdout().includes("Ctrl-C\n"));
    up.signal("SIGTERM");
    await rig.ends(up, 0);
  } finally {
    await nats.stop();
  }
});

test("a host that waits for its bus can be stopped", async () => {
  const rig = await Rig.make(`bus_url = nats://127.0.0.1:${await freePort()}`);
  const up = await rig.launch();
  await until("it to say so", () => up.stderr().includes("waiting for the bus before the workers"));
  up.signal("SIGTERM");
  await rig.ends(up, 1);
  assert.match(up.stderr(), /WARNING stopped before it was ready/);
});

test("a nats-server without JetStream makes one clear line and exit code 1", async () => {
  const nats = await startNats();
  try {
    const rig = await Rig.make(busUrl(nats));
    const up = await rig.launch();
    await rig.ends(up, 1);
    assert.match(up.stderr(), /^pgweir: open store: nats-server has no JetStream, wanted it /m);
  } finally {
    await nats.stop();
  }
});

test("what a killed supervisor could not say, the next one says", async () => {
  const nats = await startNats({ jetstream: true });
  try {
    const [rig, other] = [await Rig.make(busUrl(nats)), await Rig.make(busUrl(nats))];
    const up = await rig.ready();
    const beside = await other.ready();
    const workers = rig.workers();
    const ids = [...workers, ...other.workers()].map(({ workerId }) => workerId);
    assert.is(new Set(ids).size, 4);
    up.signal("SIGKILL");
    await until("the workers' end", () => rig.workers().length === 0);
    assert.is((await storedKeys(nats)).length, 4);
    const next = await rig.ready();
    await until(
      "the goodbyes",
      () => workers.every((worker) => (next.stderr() + beside.stderr()).includes(gone(worker))),
    );
    await until("the keys to go", async () => (await storedKeys(nats)).length === 4);
    for (const worker of other.workers()) assert.not.ok(next.stderr().includes(gone(worker)));
    for (const [one, its] of [[next, rig], [beside, other]] as const) {
      one.signal("SIGTERM");
      await its.ends(one, 0);
    }
    assert.equal(await storedKeys(nats), []);
  } finally {
    await nats.stop();
  }
});

test.run();
