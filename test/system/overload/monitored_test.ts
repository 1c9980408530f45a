// The monitor beside the workers of `pgweir up`: there when the file wants it, by the file that holds now, again after
// a crash, and gone with the rest. A lone worker has none, and says so.
// limit: 360 s
// load: waits

import { assert, suite, until } from "../../support/harness.ts";
import type { Ini } from "../../support/ini.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { isAlive, signal } from "../../support/processes.ts";

const tests = suite("monitored workers");
const patienceMs = 60_000;

let pgweir: Pgweir;
tests.after.each(async () => {
  await pgweir.stop();
});

type Settings = Readonly<Record<string, string | number>>;
const ini = (settings: Settings): Ini => ({
  databases: { app: "host=127.0.0.1 port=1" },
  pgbouncer: { verbose: 1, log_format: "json", overload_interval: 0.2, ...settings },
});
const bounds = (max: number): Settings => ({ max_os_cpu_wait_time_ratio_to_throw: max });

/** The only monitor, when there is one. */
function monitorOf(): number | undefined {
  const pids = pgweir.servicePids("overload");
  assert.ok(pids.length < 2, `${pids.length} monitors`);
  return pids[0];
}

interface Sample {
  readonly pid: number;
  readonly processes: number;
  readonly elapsed_ms: number;
}

function samplesOf(pid: number): Sample[] {
  // The last line may be half written.
  return pgweir.log().split("\n").slice(0, -1).filter((line) => line.includes('"overload sample"'))
    .map((line) => JSON.parse(line) as Sample).filter((sample) => sample.pid === pid);
}

async function reload(settings: Settings): Promise<void> {
  pgweir.rewrite(ini(settings));
  await pgweir.console("RELOAD");
}

tests("a monitor comes and goes with the bounds of the file, and goes by them", async () => {
  pgweir = await startPgweir({ workers: 2, ini: ini({}) });
  assert.is(monitorOf(), undefined);
  await reload(bounds(5));
  const first = await until("a monitor", monitorOf, patienceMs);
  const sees = (pid: number) => () => samplesOf(pid).some(({ processes }) => processes === 2);
  await until("its look at both workers", sees(first), patienceMs);
  // Killed, it is no matter: another one comes, the workers stay.
  const workers = pgweir.workerPids();
  signal(first, "SIGKILL");
  const second = await until("another one", () => {
    const pid = monitorOf();
    return pid !== undefined && pid !== first ? pid : null;
  }, patienceMs);
  await until("its look at both workers", sees(second), patienceMs);
  assert.equal(pgweir.workerPids(), workers);
  // What is handed to it when it runs.
  await reload({ ...bounds(5), overload_interval: 0.6 });
  await until(
    "longer intervals",
    () => samplesOf(second).slice(-2).every((one) => one.elapsed_ms > 450),
    patienceMs,
  );
  await reload({});
  await until("no monitor", () => !isAlive(second), patienceMs);
  assert.is(monitorOf(), undefined);
  await pgweir.console("SET max_os_cpu_wait_time_ratio_to_throw = 3");
  const third = await until("a monitor", monitorOf, patienceMs);
  await pgweir.stop();
  assert.is(isAlive(third), false);
});

tests("a lone worker says that it has no monitor", async () => {
  pgweir = await startPgweir({ ini: ini(bounds(5)) });
  const told = /no effect on a lone worker.*max_event_loop_lag_to_throw/;
  await until("the log to say so", () => told.test(pgweir.log()));
});

tests.run();
