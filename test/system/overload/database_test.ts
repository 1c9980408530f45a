// `pgweir overload --database`: a real PostgreSQL is watched, found by itself or by what is said of it, also after a
// restart; what is decided goes to all workers of the mesh, under the name of the database.
// limit: 360 s
// load: waits

import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { connectBus, type OverloadDecision } from "../../../shared/bus/mod.ts";
import { runtimeCommand } from "../../../shared/sys/mod.ts";
import { createLogger } from "../../../shared/telemetry/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { ManagedProcess } from "../../support/managed_process.ts";
import { startNats } from "../../support/nats.ts";
import { needs } from "../../support/needs.ts";
import { startPostgres } from "../../support/postgres.ts";
import { tempDir } from "../../support/temp.ts";

needs("postgresql", "nats-server");

const cli = resolve(import.meta.dirname!, "../../../services/cli.ts");
const tests = suite("a database host's monitor");
const patienceMs = 60_000;

const postgres = await startPostgres();
const nats = await startNats();
const logger = createLogger({ component: "test", level: "error", format: "text" });
const { url, token } = nats;
const bus = await connectBus({ servers: [url], token, name: "test", mesh: "default", logger });
const other = await connectBus({ servers: [url], token, name: "test", mesh: "other", logger });
tests.after(async () => {
  await bus.close();
  await other.close();
  await nats.stop();
  await postgres.stop("immediate");
});

const file = join(tempDir("overload"), "pgweir.ini");
const databases = `shop = host=127.0.0.1 port=${postgres.port} max_os_cpu_wait_time_ratio_to_throw=0
stock = host=127.0.0.1 port=${postgres.port}
far = host=127.0.0.1 port=1`;
// What says who may log in is not on this host.
const ini = (databases: string, mesh = "default") =>
  `[databases]
${databases}
[pgbouncer]
auth_type = hba
auth_file = /nosuch/users.txt
auth_hba_file = /nosuch/hba.conf
bus_url = nats://${token}@127.0.0.1:${nats.port}
mesh = ${mesh}
overload_interval = 0.2
os_cpu_busy_time_threshold = 0
min_os_cpu_wait_time_ratio_to_throw = 0
max_os_cpu_wait_time_ratio_to_throw = 1000
`;
writeFileSync(file, ini(databases));

function start(...words: string[]): Promise<ManagedProcess> {
  return ManagedProcess.launch({ command: [...runtimeCommand(), cli, "overload", ...words, file] });
}

tests(
  "each database gets decisions by its own bounds, of all processes of PostgreSQL",
  async () => {
    const decisions: OverloadDecision[] = [];
    const stray: OverloadDecision[] = [];
    bus.subscribe(bus.subjects.allOverloadDatabases, (decision) => {
      decisions.push(decision);
    });
    other.subscribe(other.subjects.allOverloadDatabases, (decision) => {
      stray.push(decision);
    });
    const monitor = await start("--database", "shop", "--database=stock");
    const newest = (name: string) => decisions.findLast(({ database }) => database === name);
    await until("decisions", () => newest("shop") && newest("stock"), patienceMs);
    await until(
      "the processes of PostgreSQL",
      () => /^([5-9]|\d\d) processes of PostgreSQL waited/.test(newest("stock")!.reason),
      patienceMs,
    );
    let isOver = false;
    const work = (async () => {
      while (!isOver) {
        await postgres.query("SELECT count(*) FROM generate_series(1, 300000)");
      }
    })();
    const busy = await until(
      "work",
      () => decisions.find(({ database, busyUs }) => database === "stock" && busyUs > 20_000),
      patienceMs,
    );
    isOver = true;
    await work;
    assert.is(busy.transactions.max, 1000);
    assert.is(busy.transactions.probability, Math.min(1, busy.ratio / 1000));
    assert.is(busy.supervisor, "");
    assert.equal(newest("shop")!.transactions, { min: 0, max: 0, probability: 0 });
    await postgres.restart();
    const from = decisions.length;
    await until(
      "its successor",
      () => monitor.stderr().includes(`pid=${postgres.pid}`) && decisions.length > from + 2,
      patienceMs,
    );
    assert.equal(await monitor.stop(), { code: 0, signal: null });
    assert.equal(stray, []);
  },
);

tests("what can't be watched is said", async () => {
  const unknown = await start("--database", "nosuch");
  const apart = await start("--database", "shop", "--database", "far");
  const lost = await start("--database", "stock", "--database", "far", "--pid", "1");
  assert.equal(await unknown.ended(patienceMs), { code: 1, signal: null });
  assert.equal(await apart.ended(patienceMs), { code: 1, signal: null });
  assert.match(apart.stderr(), /the databases are at different ports \("shop" \d+, "far" 1\)/);
  assert.match(unknown.stderr(), /database "nosuch" is not in \[databases\] of /);
  // It may be there later.
  await until("the reason", () => /watch PostgreSQL: 0 .* fit/.test(lost.stderr()), patienceMs);
  assert.ok(lost.running);
  await lost.stop();
});

tests(
  "a file without what is watched is refused at a reload, and its bus is taken later",
  async () => {
    const monitor = await start("--database", "shop");
    const logged = (text: string) => until(text, () => monitor.stderr().includes(text), patienceMs);
    await logged("watching a PostgreSQL");
    writeFileSync(file, ini(databases.replace("shop", "shopping")));
    monitor.signal("SIGHUP");
    await logged(`reload: database "shop" is not in [databases] of "${file}", nothing is changed`);
    assert.is(monitor.stderr().includes("configuration reloaded"), false);
    writeFileSync(file, ini(databases, "other"));
    monitor.signal("SIGHUP");
    await logged("reload: mesh changes with a restart only, the former value is kept");
    assert.is(monitor.stderr().includes("configuration reloaded"), true);
    const decisions: OverloadDecision[] = [];
    bus.subscribe(bus.subjects.allOverloadDatabases, (decision) => {
      decisions.push(decision);
    });
    await until("decisions where it was", () => decisions.length > 1, patienceMs);
    assert.equal(decisions.at(-1)!.transactions, { min: 0, max: 0, probability: 0 });
    assert.equal(await monitor.stop(), { code: 0, signal: null });
  },
);

tests.run();
