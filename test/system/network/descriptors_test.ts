// A worker that runs short of file descriptors: it takes what the system gives, keeps some for servers, cancels and
// the console, tells surplus clients so, and neither spins nor stays shut.

import { existsSync, readFileSync, renameSync, unlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { Errno, errnoText, runtimeCommand } from "../../../shared/sys/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { iniText, userlistText } from "../../support/ini.ts";
import { ManagedProcess } from "../../support/managed_process.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { Pgweir, startPgweir } from "../../support/pgweir.ts";
import { DEFAULT_USERS, defaultSettings } from "../../support/pooler.ts";
import { startPostgres } from "../../support/postgres.ts";
import { atRest, openFiles } from "../../support/processes.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";
import { freePort, tempDir } from "../../support/temp.ts";

// Any of the packages that bring Python.
needs("postgresql", "python3-psycopg");

const postgres = await startPostgres();
const cli = resolve(import.meta.dirname!, "../../../services/cli.ts");
const login = { user: "postgres", database: "postgres" };
const RESULT = 'T D C"SELECT 1" Z(I)';

/** A lone worker that begins with these limits of open files. */
async function startLimited(soft: number, hard: number): Promise<Pgweir> {
  const port = await freePort();
  const dir = tempDir("few");
  const iniFile = join(dir, "pgweir.ini");
  writeFileSync(join(dir, "userlist.txt"), userlistText(DEFAULT_USERS));
  writeFileSync(
    iniFile,
    iniText({
      databases: { postgres: `host=127.0.0.1 port=${postgres.port} pool_size=5` },
      pgbouncer: {
        ...defaultSettings(port, dir),
        max_client_conn: 1000,
        client_login_timeout: 300,
        logfile: "p.log",
      },
    }),
  );
  const limits = `ulimit -Sn ${soft} && ulimit -Hn ${hard} && exec "$@"`;
  const server = await ManagedProcess.launch({
    command: ["sh", "-c", limits, "sh", ...runtimeCommand(), cli, "pooler", iniFile],
    cwd: dir,
  });
  await server.ready("pgweir", () => server.stderr().includes("process up: pgweir"));
  return new Pgweir(server, port, dir, iniFile, false, {});
}

/** Asserts that a worker that can't accept says so once in 10 s, as it is meant to, and not each time it tries. */
function saidNowAndThen(pooler: Pgweir, since: number): void {
  const lines = pooler.log().split("accepting clients is paused").length - 1;
  const most = 3 + (performance.now() - since) / 10_000;
  assert.ok(lines <= most, `${lines} lines in the log`);
}

/** Has five clients need a server each. */
async function fiveAtWork(clients: readonly RawClient[]): Promise<void> {
  for (const client of clients) client.send(f.Q("SELECT pg_sleep(300)"));
  await until(
    "five servers to be at work",
    async () => (await postgres.backends()).filter((b) => b.wait_event === "PgSleep").length === 5,
  );
}

/** Moves the log away, and waits until a reload has begun another, which tells of the reload. */
async function rotate(pooler: Pgweir): Promise<void> {
  const log = join(pooler.dir, "p.log");
  renameSync(log, `${log}.1`);
  pooler.signal("SIGHUP");
  await until("the new log", () => existsSync(log) && readFileSync(log, "utf8").includes("SIGHUP"));
}

/** Logs clients in until one is refused. */
async function saturate(pooler: Pgweir): Promise<{ clients: RawClient[]; refusal: ServerError }> {
  const clients: RawClient[] = [];
  for (;;) {
    try {
      clients.push(await RawClient.login(pooler, login));
    } catch (error) {
      assert.instance(error, ServerError);
      return { clients, refusal: error as ServerError };
    }
    assert.ok(clients.length < 1000);
  }
}

const tests = suite("few file descriptors");

tests.after(async () => {
  await postgres.stop("immediate");
});

// The soft limit of a shell is 1,024 where thousands are allowed.
tests("the soft limit is raised to the hard one", async () => {
  const pooler = await startLimited(128, 512);
  const limits = readFileSync(`/proc/${pooler.pid}/limits`, "utf8");
  assert.match(limits, /Max open files +512 +512/);
  await pooler.stop();
});

// The last descriptors went to clients: existing ones got no server, no cancel came in and no operator, and
// the loop spun on a listener it could not serve.
tests(
  "with every place taken servers, cancels and the console still work, and nothing spins",
  async () => {
    const pooler = await startLimited(128, 128);
    // The log may be a moment behind.
    const warning = /WARNING .*limit of open files.* clients/;
    await until("the warning", () => warning.test(pooler.log()));
    const { clients, refusal } = await saturate(pooler);
    assert.is(refusal.code, "53300");
    assert.match(refusal.message, /no more connections allowed \(file descriptors\)/);
    assert.match(refusal.fields.hint, /ulimit -n/);
    assert.ok(clients.length >= 16, `${clients.length} clients`);

    await fiveAtWork(clients.slice(0, 5));
    for (const client of clients.slice(5)) client.send(f.Q("SELECT 1"));
    for (const client of clients.slice(0, 5)) {
      assert.is(await client.cancel(), "");
      assert.is(await client.replies(), "T E(57014) Z(I)");
    }
    for (const client of clients.slice(5)) assert.is(await client.replies(), RESULT);
    assert.is((await pooler.console("SHOW VERSION")).length, 1);
    assert.equal(await pooler.console("RELOAD"), []);
    await rotate(pooler);
    await atRest(pooler.pid);

    // A place that comes free is given at once.
    await clients.pop()!.end();
    const late = await until("a place", () => RawClient.login(pooler, login).catch(() => null));
    clients.push(late);

    for (const client of clients) await client.end();
    await pooler.stop();
  },
);

// Strangers that connect and say nothing use up the rest. The accepting stopped for ever, or went on at full
// speed with an error each time; or they took what servers need as well.
tests("with nothing left to accept with it waits quietly, and begins again by itself", async () => {
  const pooler = await startLimited(128, 128);
  const files = openFiles(pooler.pid);
  const { clients } = await saturate(pooler);
  const silent: RawClient[] = [];
  const began = performance.now();
  for (let i = 0; i < 100; i++) silent.push(await RawClient.connect(pooler));
  await until("the listener to rest", () => /accepting clients is paused/.test(pooler.log()));
  assert.ok(openFiles(pooler.pid) <= 128);
  await fiveAtWork(clients.slice(0, 5));
  await rotate(pooler);
  await atRest(pooler.pid);
  saidNowAndThen(pooler, began);

  for (const client of [...silent, ...clients]) client.close();
  const client = await until(
    "a client to be let in",
    () => RawClient.login(pooler, login).catch(() => null),
  );
  assert.equal(await client.query("SELECT 1"), [["1"]]);
  await client.end();
  await until("descriptors to be free", () => openFiles(pooler.pid) <= files + 6);
  await pooler.stop();
});

// Only a lack of descriptors was waited out: when the kernel was out of memory the loop went on at full speed, and
// when every connection had died in its queue it never came back from it.
for (const errno of [Errno.ENFILE, Errno.ENOBUFS, Errno.ECONNABORTED]) {
  tests(
    `accepting that fails with ${errnoText(errno)} rests, and begins again by itself`,
    async () => {
      const filter = join(import.meta.dirname!, "failing_accepts.py");
      const switchFile = join(tempDir("accepts"), "fail");
      const pooler = await startPgweir({
        ini: { databases: { postgres: `host=127.0.0.1 port=${postgres.port}` } },
        prefix: ["python3", filter, String(errno), switchFile],
      });
      const client = await RawClient.login(pooler, login);
      writeFileSync(switchFile, "");
      const began = performance.now();
      const late = await RawClient.connect(pooler);
      late.startup(login);
      const paused = `accepting clients is paused: ${errnoText(errno)}`;
      await until(`the log: ${paused}`, () => pooler.log().includes(paused));
      assert.equal(await client.query("SELECT 1"), [["1"]]);
      await atRest(pooler.pid);
      saidNowAndThen(pooler, began);
      unlinkSync(switchFile);
      await late.authenticate(login);
      assert.equal(await late.query("SELECT 1"), [["1"]]);
      await late.end();
      await client.end();
      await pooler.stop();
    },
  );
}

// Refused clients that kept their side open held descriptors that nobody counted.
tests("refused clients that do not close their side cost nobody else a descriptor", async () => {
  const pooler = await startLimited(128, 128);
  const { clients } = await saturate(pooler);
  const refused: RawClient[] = [];
  for (let i = 0; i < 150; i++) {
    const client = await RawClient.connect(pooler);
    client.startup(login);
    refused.push(client);
  }
  for (const client of clients) {
    client.send(f.Q("SELECT 1"));
    assert.is(await client.replies(), RESULT);
  }
  for (const client of refused) {
    assert.is(await client.repliesUntilClosed(), "E(53300) closed");
  }
  assert.not.match(pooler.log(), /Too many open files/);
  for (const client of [...clients, ...refused]) client.close();
  await pooler.stop();
});

tests.run();
