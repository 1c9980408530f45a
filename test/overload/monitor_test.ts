// The process `pgweir overload` of a supervisor's workers, which are nothing but busy processes here: what it decides
// of them, what it logs, how it takes a change of its file, and how it ends.
// limit: 360 s
// load: waits

import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join, resolve } from "node:path";
import {
  connectBus,
  EmbeddedBus,
  type OverloadDecision,
  type OverloadWarnings,
} from "../../shared/bus/mod.ts";
import { probabilityOf } from "../../shared/overload/mod.ts";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { assert, suite, until } from "../support/harness.ts";
import { ManagedProcess } from "../support/managed_process.ts";
import { threadCpuSeconds } from "../support/processes.ts";
import { tempDir } from "../support/temp.ts";
import { presence } from "./fixtures.ts";

const cli = resolve(import.meta.dirname!, "../../services/cli.ts");
const supervisor = "supervisor-t";
const intervalMs = 200;
const tests = suite("pgweir overload");

const broker = new EmbeddedBus({});
const token = randomUUID();
const { url } = await broker.start({ token });
const logger = createLogger({ component: "test", level: "error", format: "text" });
const bus = await connectBus({ servers: [url], token, name: "test", mesh: "default", logger });

const decisions: OverloadDecision[] = [];
const warnings: OverloadWarnings[] = [];
bus.subscribe(bus.subjects.overloadHost(supervisor), (decision) => {
  decisions.push(decision);
});
bus.subscribe(bus.subjects.allOverloadWarnings, (said) => {
  warnings.push(said);
});

const file = join(tempDir("overload"), "pgweir.ini");
function write(...lines: string[]): void {
  const own = [
    "log_format = json",
    "verbose = 1",
    `overload_interval = ${intervalMs / 1000}`,
    "os_cpu_busy_time_threshold = 0",
  ];
  const text = ["[databases]", "shop = host=127.0.0.1", "[pgbouncer]", "pool_mode = transaction"];
  writeFileSync(file, [...text, ...own, ...lines, ""].join("\n"));
}

function start(seat: Record<string, unknown> | null): Promise<ManagedProcess> {
  const environment = { ...process.env as Record<string, string> };
  if (seat !== null) environment["PGWEIR_OVERLOAD"] = JSON.stringify(seat);
  return ManagedProcess.launch({
    command: [...runtimeCommand(), cli, "overload", file],
    environment,
  });
}

function startMonitor(supervisorPid = process.pid): Promise<ManagedProcess> {
  const name = `overload-${randomUUID().slice(0, 8)}`;
  const busToken = randomUUID();
  broker.allow(busToken, bus.subjects.monitorRights(supervisor, name));
  return start({
    busUrl: url,
    busToken,
    mesh: "default",
    supervisor,
    supervisorPid,
    embedded: true,
    name,
  });
}

/** What the monitor has logged of each look. */
function samplesOf(monitor: ManagedProcess): Record<string, number | null>[] {
  return monitor.stderr().split("\n").filter((line) => line.includes('"overload sample"'))
    .map((line) => JSON.parse(line));
}

/** Enough for each of them to wait for a CPU as long as it runs, behind all that is not as nice; workers on the bus. */
async function startHogs(): Promise<ManagedProcess[]> {
  const hogs = await Promise.all(
    Array.from(
      { length: 2 * availableParallelism() },
      () =>
        ManagedProcess.launch({ command: ["nice", "-n", "5", "sh", "-c", "while :; do :; done"] }),
    ),
  );
  const announce = () => {
    for (const [index, { pid }] of hogs.entries()) {
      bus.publish(bus.subjects.presence(index), presence(pid, { id: index, supervisor }));
    }
  };
  const timer = setInterval(announce, 100);
  stoppers.push(async () => {
    clearInterval(timer);
    await Promise.all(hogs.map((hog) => hog.stop("SIGKILL")));
  });
  return hogs;
}

const stoppers: (() => unknown)[] = [];
tests.after(async () => {
  for (const stop of stoppers.reverse()) await stop();
  await bus.close();
  await broker.close();
});

const bounds = [
  "min_os_cpu_wait_time_ratio_to_throw = 0.5",
  "max_os_cpu_wait_time_ratio_to_throw = 400.5",
];

tests("it decides by what its workers did, and logs what it saw", async () => {
  write(...bounds);
  const monitor = await startMonitor();
  stoppers.push(() => monitor.stop());
  await until("decisions", () => decisions.length > 1);
  assert.equal(decisions.at(-1)?.transactions, { min: 0.5, max: 400.5, probability: 0 });
  const hogs = await startHogs();
  const used = () =>
    hogs.reduce(
      (sum, { pid }) => sum + [...threadCpuSeconds(pid).values()].reduce((a, b) => a + b),
      0,
    );
  await until("an overload", () => (decisions.at(-1)?.ratio ?? 0) > 0.5);
  let compared = "";
  /** Ten looks, if another reader finds the same: not while one of both is kept from looking for seconds. */
  const tenLooks = async () => {
    const [from, usedFrom, startedAt] = [decisions.length, used(), performance.now()];
    await until("ten looks", () => decisions.length >= from + 10);
    const [ten, usedS] = [decisions.slice(from, from + 10), used() - usedFrom];
    const lastedS = (performance.now() - startedAt) / 1000;
    const busyS = ten.reduce((sum, { busyUs }) => sum + busyUs, 0) / 1e6;
    const waitS = ten.reduce((sum, { waitUs }) => sum + waitUs, 0) / 1e6;
    // All of them run or wait all the time. What waits now is counted when it runs.
    const ofAll = (busyS + waitS) / (hogs.length * lastedS);
    compared = `${busyS} s and not ${usedS} s, ${ofAll} of the time`;
    // The looks of both are not at the same moments.
    return Math.abs(busyS / usedS - 1) < 0.5 && ofAll > 0.5 && ofAll < 1.5 ? ten : null;
  };
  const seen = await until("looks that are right", tenLooks, 120_000).catch(({ message }) => {
    throw new Error(`${message}: ${compared}`);
  });
  for (const { ratio, waitUs, busyUs, transactions, connections } of seen) {
    assert.is(ratio, busyUs > 0 ? waitUs / busyUs : 0);
    assert.is(transactions.probability, probabilityOf(ratio, { min: 0.5, max: 400.5 }));
    assert.is(connections.probability, 0);
  }
  assert.match(seen[0]!.reason, /^\d+ workers waited \d+\.\d\d s for CPU and used \d/);
  // Warnings, which are said now and then, count as well.
  assert.ok(seen.every(({ seq }, at) => at === 0 || seq > seen[at - 1]!.seq));
  await until("the log", () => {
    const logged = samplesOf(monitor);
    return seen.every(({ waitUs, busyUs, ratio, transactions }) =>
      logged.some((line) =>
        line["wait_us"] === waitUs && line["busy_us"] === busyUs && line["ratio"] === ratio &&
        line["throw"] === transactions.probability
      )
    );
  });
});

tests("a bound that is changed holds from the next look on", async () => {
  const monitor = await startMonitor();
  await until(
    "its decisions",
    () => new Set(decisions.slice(-6).map((one) => one.epoch)).size > 1,
  );
  const epoch = Math.max(...decisions.map((one) => one.epoch));
  const own = () => decisions.filter((one) => one.epoch === epoch);
  write("min_os_cpu_wait_time_ratio_to_throw = 0", "max_os_cpu_wait_time_ratio_to_throw = 0.001");
  monitor.signal("SIGHUP");
  const isNew = ({ transactions }: OverloadDecision) => transactions.max === 0.001;
  const first = await until("the new bound", () => own().find(isNew));
  const last = await until(
    "an overload",
    () => own().find((one) => isNew(one) && one.ratio > 0.001),
  );
  assert.is(last.transactions.probability, 1);
  assert.ok(own().filter(({ seq }) => seq > first.seq).every(isNew));
  // A file with a mistake changes nothing.
  write("max_os_cpu_wait_time_ratio_to_throw = much");
  monitor.signal("SIGHUP");
  await until("the refusal", () => monitor.stderr().includes("nothing is changed"));
  const count = own().length;
  await until("the next look", () => own().length > count + 1);
  assert.ok(isNew(own().at(-1)!));
  assert.equal(await monitor.stop(), { code: 0, signal: null }, monitor.stderr());
});

tests("a use that is high is warned of until it is not, in the log and on the bus", async () => {
  write("cpu_overload_warn_ratio = 0.2", "cpu_overload_duration_seconds = 0");
  const startedAt = Date.now();
  const monitor = await startMonitor();
  const line = (text: string) => () =>
    monitor.stderr().split("\n").find((one) => one.includes(text));
  await until("the warning", line("above 20 % for 0 s"));
  const raised = await until(
    "the warning",
    () => warnings.findLast(({ warnings: [one] }) => one?.clearedAt === null),
  );
  assert.equal({ ...raised.warnings[0], raisedAt: 0, value: 0 }, {
    kind: "cpu",
    raisedAt: 0,
    clearedAt: null,
    value: 0,
    warn: 0.2,
    clear: 0.2,
  });
  assert.ok(raised.warnings[0]!.value > 0.2 && raised.warnings[0]!.raisedAt >= startedAt);
  // What has to last for long is not looked at each time, which clears nothing.
  write("cpu_overload_warn_ratio = 0.2", "cpu_overload_duration_seconds = 600");
  monitor.signal("SIGHUP");
  await until("looks at something else", () => {
    const last = samplesOf(monitor).slice(-3);
    return last.length === 3 && last.every(({ cpu }) => cpu === null);
  });
  assert.is(monitor.stderr().includes("is cleared"), false);
  write("cpu_overload_warn_ratio = 0", "cpu_overload_duration_seconds = 0");
  monitor.signal("SIGHUP");
  await until(
    "its end",
    line("above 20 % is cleared: it was switched off (cpu_overload_warn_ratio = 0)"),
  );
  const cleared = await until(
    "its end",
    () =>
      warnings.find(({ monitor: name, warnings: [one] }) =>
        name === raised.monitor && one?.clearedAt != null
      ),
  );
  assert.is(cleared.warnings.length, 1);
  await monitor.stop();
});

tests("a monitor without a supervisor, or without anything to look at, ends", async () => {
  write(...bounds);
  const [orphan, alone] = [await startMonitor(1), await start(null)];
  assert.equal(await alone.ended(), { code: 1, signal: null });
  assert.match(
    alone.stderr(),
    /start overload monitor: bus_url is not set .*monitor from pgweir up/,
  );
  assert.equal(await orphan.ended(), { code: 0, signal: null });
  assert.match(orphan.stderr(), /supervisor is gone/);
  write("bus_url = nats://127.0.0.1:1");
  const aimless = await start(null);
  assert.equal(await aimless.ended(), { code: 1, signal: null });
  assert.match(aimless.stderr(), /start overload monitor: no database is named, wanted --database/);
});

tests.run();
