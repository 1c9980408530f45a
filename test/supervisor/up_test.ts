// `pgweir up file.ini` as a process, with stand-ins for workers: what it prints, how it ends, what it
// leaves behind. PostgreSQL and real workers are in test/system/up_test.ts.
// limit: 360 s

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { assert, suite, until } from "../support/harness.ts";
import { ManagedProcess } from "../support/managed_process.ts";
import { childrenOf, isAlive, signal } from "../support/processes.ts";
import { freePort, tempDir } from "../support/temp.ts";
import { runtimeCommand, runtimeName } from "../../shared/sys/mod.ts";

const test = suite("up");

interface FakeWorker {
  readonly index: number;
  readonly count: number;
  readonly workerId: number;
  readonly busUrl: string;
  readonly busToken: string;
  readonly mesh: string;
  readonly supervisorPid: number;
  readonly pid: number;
}

class Rig {
  readonly folder = tempDir("up");
  readonly port: number;
  readonly file = join(this.folder, "some.ini");

  private constructor(port: number) {
    this.port = port;
  }

  static async make(modes: Record<string, string> = {}, more = ""): Promise<Rig> {
    const rig = new Rig(await freePort());
    for (const [name, mode] of Object.entries(modes)) rig.setMode(name, mode);
    rig.writeConfig(more);
    return rig;
  }

  writeConfig(more: string): void {
    writeFileSync(
      this.file,
      `[databases]
shop = host=127.0.0.1
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${this.port}
unix_socket_dir =
pool_mode = transaction
admin_users = ann
auth_type = trust
auth_file = ${this.folder}/users
workers = 2
drain_timeout = 60
${more}
`,
    );
    writeFileSync(join(this.folder, "users"), '"ben" "secret"\n');
  }

  setMode(name: string, mode: string): void {
    writeFileSync(join(this.folder, name), mode);
  }

  launch(...words: string[]): Promise<ManagedProcess> {
    const script = join(import.meta.dirname!, "up_process.ts");
    return ManagedProcess.launch({
      command: [...runtimeCommand(), script, this.folder, "up", ...words],
      cwd: this.folder,
    });
  }

  async ready(...words: string[]): Promise<ManagedProcess> {
    const up = await this.launch(...(words.length === 0 ? ["some.ini"] : words));
    await up.ready("the ready text", () => up.stdout().includes("Ctrl-C\n"));
    return up;
  }

  workers(): FakeWorker[] {
    return readdirSync(this.folder).filter((name) => /^worker\.\d+$/.test(name))
      .map((name) => JSON.parse(readFileSync(join(this.folder, name), "utf8")));
  }

  alive(): FakeWorker[] {
    return this.workers().filter((worker) => isAlive(worker.pid));
  }

  /** Waits for the end of a process that should have left nothing. */
  async ends(up: ManagedProcess, code: number): Promise<void> {
    assert.equal(await up.ended(), { code, signal: null }, up.output());
    assert.equal(this.alive(), [], "no worker is left");
  }
}

test("run() prints the ready text when all workers are ready, and SIGTERM ends all of it", async () => {
  const rig = await Rig.make();
  const up = await rig.ready();
  assert.match(
    up.stdout(),
    new RegExp(`^pgweir is ready: 2 workers on 127\\.0\\.0\\.1:${rig.port} \\(fake 1\\.0\\)
  connect   psql postgres://ben@127\\.0\\.0\\.1:${rig.port}/shop
  console   psql postgres://ann@127\\.0\\.0\\.1:${rig.port}/pgbouncer -c "SHOW POOLS"
  read on   README\\.md, services/README\\.md
  stop      Ctrl-C
$`),
  );
  assert.not.match(up.output(), /secret/);
  const workers = rig.alive();
  assert.equal(workers.map((worker) => worker.index).sort(), [0, 1]);
  for (const worker of workers) {
    assert.is(worker.count, 2);
    assert.is(worker.mesh, "default");
    assert.is(worker.supervisorPid, up.pid);
    assert.match(worker.busUrl, /^nats:\/\/127\.0\.0\.1:\d+$/);
    assert.ok(worker.busToken.length >= 32);
    assert.ok(worker.workerId >= 1 && worker.workerId <= 0x7fff);
  }
  assert.not.equal(workers[0]!.workerId, workers[1]!.workerId);
  up.signal("SIGTERM");
  await rig.ends(up, 0);
  assert.match(
    up.stderr(),
    /LOG got SIGTERM, waiting for all clients to disconnect; a second one ends at once\n/,
  );
  assert.match(up.stderr(), /worker \d+: drained/);
  assert.match(up.stderr(), /LOG stopped\n$/);
});

test("options win over the file", async () => {
  const rig = await Rig.make();
  const up = await rig.ready("some.ini", "--workers", "3", "--runtime", runtimeName);
  assert.match(up.stdout(), /: 3 workers on /);
  assert.is(rig.alive().length, 3);
  up.signal("SIGINT");
  await rig.ends(up, 0);
});

test("a second signal ends workers that do not drain, and an echo of the first does not", async () => {
  const rig = await Rig.make({ mode: "deaf" });
  const up = await rig.ready();
  up.signal("SIGINT");
  up.signal("SIGINT");
  await until("the drain", () => up.stderr().split("heard nothing").length === 3);
  assert.is(rig.alive().length, 2);
  await until("the second signal to count", () => {
    up.signal("SIGINT");
    return up.end !== null;
  });
  await rig.ends(up, 0);
  assert.match(up.stderr(), /LOG got SIGINT, ending at once\n/);
});

test("workers that hear nothing are killed after drain_timeout", async () => {
  const rig = await Rig.make({ mode: "stone" }, "drain_timeout = 0.2");
  const up = await rig.ready();
  up.signal("SIGTERM");
  await rig.ends(up, 0);
  assert.match(up.stderr(), /WARNING worker \d+ does not end, killing it/);
});

test("a worker that fails at the start makes one clear line and exit code 1", async () => {
  const rig = await Rig.make({ "mode.1": "crash listen on 127.0.0.1:1: permission denied" });
  const up = await rig.launch("some.ini");
  await rig.ends(up, 1);
  assert.is(up.stdout(), "");
  assert.match(
    up.stderr(),
    /^pgweir: start worker \d+: it ended with code 3: listen on 127\.0\.0\.1:1: permission denied$/m,
  );
});

test("a crash loop ends the host with exit code 1", async () => {
  const rig = await Rig.make();
  const up = await rig.ready();
  rig.setMode("mode.0", "crash out of luck");
  signal(rig.workers().find((worker) => worker.index === 0)!.pid, "SIGKILL");
  await rig.ends(up, 1);
  assert.match(
    up.stderr(),
    /FATAL worker \d+ ended with code 3; that was death 5 in \d+\.\d s, giving up/,
  );
  assert.match(up.stderr(), /worker \d+: drained/, "the other worker drained");
});

test("SIGHUP goes to every worker", async () => {
  const rig = await Rig.make();
  const up = await rig.ready();
  up.signal("SIGHUP");
  await until("both", () => up.stderr().match(/worker \d+: reload/g)?.length === 2);
  assert.is(rig.alive().length, 2);
  up.signal("SIGTERM");
  await rig.ends(up, 0);
});

test("SIGTERM during the start ends it", async () => {
  const rig = await Rig.make({ mode: "silent" });
  const up = await rig.launch("some.ini");
  await up.ready("workers", () => rig.alive().length === 2);
  up.signal("SIGTERM");
  await rig.ends(up, 1);
  assert.is(up.stdout(), "");
  assert.match(up.stderr(), /WARNING stopped before it was ready/);
});

test("a second one on the same file says who is there", async () => {
  const rig = await Rig.make();
  const up = await rig.ready();
  const second = await rig.launch("some.ini");
  assert.equal(await second.ended(), { code: 1, signal: null });
  assert.match(
    second.stderr(),
    new RegExp(
      `^pgweir: start in "${rig.file}": another pgweir runs there \\(pid ${up.pid}\\)$`,
      "m",
    ),
  );
  assert.is(rig.alive().length, 2);
  up.signal("SIGTERM");
  await rig.ends(up, 0);
});

test("a port that is taken is found before anything is started", async () => {
  const rig = await Rig.make();
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(rig.port, "127.0.0.1", resolve));
  const up = await rig.launch("some.ini");
  await rig.ends(up, 1);
  assert.match(
    up.stderr(),
    new RegExp(
      `^pgweir: listen on 127\\.0\\.0\\.1:${rig.port}: the port is taken, wanted a free one \\(listen_port names it\\)$`,
      "m",
    ),
  );
  assert.equal(rig.workers(), []);
  await new Promise((resolve) => server.close(resolve));
});

test("every problem of a file is said, with its place", async () => {
  const rig = await Rig.make({}, "wrokers = 3\nlisten_backlog = many");
  const up = await rig.launch("some.ini");
  await rig.ends(up, 1);
  assert.match(
    up.stderr(),
    /^error: some\.ini:\d+: unknown parameter: pgbouncer\/wrokers, did you mean "workers"$/m,
  );
  assert.match(up.stderr(), /^error: some\.ini:\d+: listen_backlog: "many" is not .*$/m);
});

test("a supervisor that is killed takes its workers along, and leaves no lock", async () => {
  const rig = await Rig.make();
  const up = await rig.ready();
  const children = childrenOf(up.pid);
  for (const { pid } of rig.alive()) assert.ok(children.includes(pid));
  assert.is(rig.alive().length, 2);
  up.signal("SIGKILL");
  await until("the workers' end", () => rig.alive().length === 0);
  const next = await rig.ready();
  next.signal("SIGTERM");
  await rig.ends(next, 0);
});

test("--upstream needs a login, from the address or the environment", async () => {
  const rig = await Rig.make();
  const words = ["--upstream", "db.example/shop", "--port", String(rig.port)];
  const up = await rig.launch(...words);
  await rig.ends(up, 1);
  assert.match(
    up.stderr(),
    /^pgweir: --upstream: no (user and no )?password for "db\.example:5432", wanted postgres:/m,
  );
});

test("--upstream pools a server that is already there", async () => {
  const rig = await Rig.make();
  const address = "postgres://ann:hush@db.example:5433/shop?sslmode=prefer";
  const up = await rig.ready("--upstream", address, "--port", String(rig.port), "--workers", "1");
  const first = `psql postgres://ann@127.0.0.1:${rig.port}/shop`;
  assert.is(up.stdout().split("\n")[1], `  connect   ${first}`);
  assert.not.match(up.output(), /hush/);
  const ini = readFileSync(join(rig.folder, ".pgweir/pgweir.ini"), "utf8");
  assert.match(ini, /^"shop" = host='db\.example' port=5433 dbname='shop'$/m);
  assert.match(ini, /^server_tls_sslmode = prefer$/m);
  assert.not.match(ini, /hush/);
  assert.equal(readdirSync(join(rig.folder, ".pgweir")).sort(), ["pgweir.ini", "userlist.txt"]);
  up.signal("SIGTERM");
  await rig.ends(up, 0);
});

test.run();
