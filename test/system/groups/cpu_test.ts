// CPU by cpu_shares, in the cgroups of this kernel, version 1: backends of two groups that share a CPU have CPU time as
// their shares say, an idle group leaves all to the other, and nothing is left at the end, whichever end it is. What
// strangers say of processes moves none that are not clients' backends. Version 2 is in test/overload/cpu_tree_test.ts.
// limit: 240 s
// load: alone

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { connectBus, type GroupBackend } from "../../../shared/bus/mod.ts";
import { createLogger } from "../../../shared/telemetry/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import type { ManagedProcess } from "../../support/managed_process.ts";
import { needs } from "../../support/needs.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import { childrenOf, commandLine, threadCpuSeconds } from "../../support/processes.ts";
import type { RawClient } from "../../support/raw_client.ts";
import { canDivideCpu, cgroupOf, DatabaseHost, patienceMs, traceOf } from "./database_host.ts";

needs("postgresql", "nats-server");
if (!canDivideCpu()) {
  console.log("SKIP cgroups of version 1 that may be written, with the cpu controller, not there");
  process.exit(0);
}

const tests = suite("CPU of resource groups");
const clientsOfEach = 3;
const shares = { a: 3072, b: 1024 } as const;
type Name = keyof typeof shares;
const names = Object.keys(shares) as Name[];

const host = await DatabaseHost.start();
const { postgres } = host;
const home = cgroupOf(postgres.pid);
// On one CPU they have to share whatever else this machine does. Backends inherit it.
const cpu = /^Cpus_allowed_list:\s*(\d+)/m.exec(readFileSync("/proc/self/status", "utf8"))![1]!;
execFileSync("taskset", ["-pc", cpu, String(postgres.pid)], { stdio: "ignore" });
for (const name of [...names, "other"]) await postgres.query(`CREATE ROLE ${name} LOGIN`);

let pooler: Pgweir;
let monitor: ManagedProcess | null = null;
const clients: Record<Name, RawClient[]> = { a: [], b: [] };

tests.before(async () => {
  pooler = await host.pooler({
    a: `cpu_shares=${shares.a}`,
    b: `cpu_shares=${shares.b}`,
  });
});
tests.after(async () => {
  await monitor?.stop();
  await host.stop();
});

const forever = "DO $$ BEGIN LOOP PERFORM 1; END LOOP; END $$";

async function work(name: Name): Promise<number[]> {
  while (clients[name].length < clientsOfEach) {
    clients[name].push(await host.client(pooler, name));
  }
  for (const client of clients[name]) client.query(forever).catch(() => {});
  return await until(`${clientsOfEach} of ${name} to work`, async () => {
    const pids = await host.backendsOf(name);
    return pids.length === clientsOfEach ? pids : null;
  }, patienceMs);
}

async function rest(name: Name): Promise<void> {
  await postgres.query(
    `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = '${name}'`,
  );
  await until(
    `${name} to rest`,
    async () => (await host.backendsOf(name)).length === 0,
    patienceMs,
  );
}

async function placed(pids: readonly number[], end: string): Promise<void> {
  await until(
    `${pids} to be in "${end}"`,
    () => pids.every((pid) => cgroupOf(pid).endsWith(end)),
    patienceMs,
  ).catch((error) => {
    throw new Error(`${(error as Error).message}: ${pids.map(cgroupOf)}\n${monitor?.stderr()}`);
  });
}

function cpuSeconds(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => {
    return sum + [...threadCpuSeconds(pid).values()].reduce((a, b) => a + b, 0);
  }, 0);
}

/** What each has used until all together have used so many seconds, and how long that took. */
async function used(lists: readonly (readonly number[])[], seconds: number) {
  const before = lists.map(cpuSeconds);
  const from = performance.now();
  const since = () => lists.map((pids, at) => cpuSeconds(pids) - before[at]!);
  const times = await until("CPU time", () => {
    const now = since();
    return now.reduce((a, b) => a + b) >= seconds ? now : null;
  }, 60_000);
  return { times, wallS: (performance.now() - from) / 1000 };
}

tests("CPU time is as the shares, and all of it one group's while the other is idle", async () => {
  monitor = await host.monitor(pooler);
  const [a, b] = [await work("a"), await work("b")];
  await placed(a, "/group.a/own");
  await placed(b, "/group.b/own");
  await placed([postgres.pid], "/rest");
  const both = await used([a, b], 4);
  const ratio = both.times[0]! / both.times[1]!;
  const wanted = shares.a / shares.b;
  assert.ok(Math.abs(ratio / wanted - 1) < 0.15, `CPU time is ${ratio} to 1`);
  await rest("a");
  const all = childrenOf(postgres.pid).filter((pid) => !b.includes(pid));
  const alone = await used([b, all], 2);
  const part = alone.times[0]! / (alone.times[0]! + alone.times[1]!);
  assert.ok(part > 0.95, `${part} of PostgreSQL's CPU time`);
  // And PostgreSQL has no less of the CPU than before: the noise of other processes is about the same.
  const speed = (2 / alone.wallS) / (4 / both.wallS);
  assert.ok(speed > 0.6, `${speed} of the speed of both`);
});

tests("what a stranger says moves nothing but clients' backends", async () => {
  const { url, token } = host.nats;
  const logger = createLogger({ component: "test", level: "error", format: "text" });
  const bus = await connectBus({
    servers: [url],
    token,
    name: "stranger",
    mesh: "default",
    logger,
  });
  const processes = [postgres.pid, ...childrenOf(postgres.pid)];
  const helpers = processes.filter((pid) => !/\(\d+\)|\[local\]/.test(commandLine(pid)));
  assert.ok(helpers.length > 2, helpers.map(commandLine).join());
  const pids = [...helpers, process.pid, monitor!.pid, 1, 4_000_000];
  const own = pids.map(cgroupOf);
  const uptimeS = Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]);
  const ageOf = (pid: number): GroupBackend => {
    const stat = commandLine(pid) === "" ? "" : readFileSync(`/proc/${pid}/stat`, "utf8");
    const start = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]) / 100;
    return { pid, ageMs: Math.max(0, Math.round((uptimeS - start) * 1000)) || 0 };
  };
  const backends = pids.map(ageOf);
  const [victim] = await host.backendsOf("b");
  for (let seq = 1; seq <= 5; seq++) {
    bus.publish(bus.subjects.groupBackends(0), {
      worker: 0,
      incarnation: 1,
      seq,
      // The last one shows that the message is heard.
      rows: [{
        database: "app",
        group: "a",
        memory: 0,
        running: 0,
        backends: [...backends, ageOf(victim!)],
      }],
    });
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await placed([victim!], "/group.a/own");
  assert.equal(pids.map(cgroupOf), own);
  await bus.close();
});

tests(
  "a reload moves backends, and a group without a share of its own divides nothing",
  async () => {
    const b = await host.backendsOf("b");
    const text = readFileSync(pooler.iniFile, "utf8");
    const write = (text: string) => {
      pooler.rewrite(text);
      monitor!.signal("SIGHUP");
    };
    write(text.replace("b = cpu_shares=1024", "b = parent=a cpu_shares=512"));
    await placed(b, "/group.a/group.b/own");
    write(text.replaceAll(/cpu_shares=\d+/g, "cpu_shares=1024"));
    await until("no cgroups", () => traceOf(monitor!.pid, home).length === 0, patienceMs);
    assert.equal(b.map(cgroupOf), b.map(() => home));
    await until("it to say so", () => /no longer dividing CPU/.test(monitor!.stderr()), patienceMs);
    write(text);
    await placed(b, "/group.b/own");
  },
);

tests("after SIGKILL the next monitor clears away; at its end nothing is left", async () => {
  const b = await host.backendsOf("b");
  const killed = monitor!;
  await killed.stop("SIGKILL");
  assert.is(traceOf(killed.pid, home).length, 1);
  monitor = await host.monitor(pooler);
  await until("its trace to go", () => traceOf(killed.pid, home).length === 0, patienceMs);
  await placed(b, "/group.b/own");
  assert.is(traceOf(monitor.pid, home).length, 1);
  assert.equal(await monitor.stop("SIGINT"), { code: 0, signal: null });
  assert.equal(traceOf(monitor.pid, home), []);
  const all = [postgres.pid, ...childrenOf(postgres.pid)];
  assert.equal(all.map(cgroupOf), all.map(() => home));
  assert.equal((await host.backendsOf("b")).length, clientsOfEach);
});

tests("a second monitor of one PostgreSQL says that there is another", async () => {
  const first = monitor = await host.monitor(pooler);
  await placed([postgres.pid], "/rest");
  const second = await host.monitor(pooler);
  const said = new RegExp(`process id ${first.pid} divides CPU of this PostgreSQL as well`);
  await until("a warning", () => said.test(second.stderr()), patienceMs);
  await second.stop();
  await first.stop();
});

tests("one that divides nothing clears away after SIGKILL, too", async () => {
  const b = await host.backendsOf("b");
  const killed = monitor = await host.monitor(pooler);
  await placed(b, "/group.b/own");
  await killed.stop("SIGKILL");
  const text = readFileSync(pooler.iniFile, "utf8");
  pooler.rewrite(text.replaceAll(/ cpu_shares=\d+/g, ""));
  monitor = await host.monitor(pooler);
  await until("its trace to go", () => traceOf(killed.pid, home).length === 0, patienceMs);
  assert.equal(b.map(cgroupOf), b.map(() => home));
  assert.equal(await monitor.stop(), { code: 0, signal: null });
  pooler.rewrite(text);
});

tests("without the right it says what is missing, once, and all else works", async () => {
  // As in a container: cgroups can only be looked at, and processes of others not at all.
  const readOnly = 'mount -o remount,ro,bind /sys/fs/cgroup/cpu && exec "$@"';
  const capabilities = "-sys_ptrace,-sys_admin,-perfmon";
  const drop = ["setpriv", `--bounding-set=${capabilities}`, `--inh-caps=${capabilities}`];
  monitor = await host.monitor(pooler, "unshare", "-m", "sh", "-c", readOnly, "sh", ...drop);
  const log = () => monitor!.stderr();
  await until(
    "the warnings",
    () => /divide CPU/.test(log()) && /measure memory/.test(log()),
    patienceMs,
  );
  assert.match(
    log(),
    /divide CPU among resource groups: make "\/sys\/.*: EROFS, wanted the right to make cgroups there: run the monitor as root, or .*Delegate=cpu/,
  );
  assert.match(
    log(),
    /measure memory of resource groups: read .*smaps_rollup.*run the monitor as its user, or as root/,
  );
  const answer = await (await host.client(pooler, "a")).query("SELECT 1");
  assert.equal(answer, [["1"]]);
  assert.is(log().split("divide CPU among").length, 2);
  assert.is(log().split("measure memory of").length, 2);
  assert.equal(await monitor.stop(), { code: 0, signal: null });
  await rest("b");
});

tests.run();
