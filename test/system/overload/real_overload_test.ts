// A real overload: more busy processes than CPUs beside a worker that pgbench keeps at work. The probability is that of
// the formula on what the monitor logged, the share of refused transactions is that probability, and soon after
// the load is gone nothing is refused any more, nor when the monitor itself is gone.
// limit: 600 s
// load: alone

import { writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { assert, suite, until } from "../../support/harness.ts";
import { ManagedProcess } from "../../support/managed_process.ts";
import { findProgram, needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import type { ConsoleRow } from "../../support/pooler.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { signal } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import { tempDir } from "../../support/temp.ts";

needs("postgresql");

const tests = suite("a real overload");
const patienceMs = 60_000;
const intervalS = 1;
const burst = 20;
const bursts = 50;

let postgres: Postgres;
let pooler: Pgweir;
let admin: RawClient;
let client: RawClient;
let load: ManagedProcess[] = [];

tests.before(async () => {
  postgres = await startPostgres();
  pooler = await startPgweir({
    workers: 1,
    ini: {
      databases: { shop: `host=127.0.0.1 port=${postgres.port} dbname=postgres` },
      pgbouncer: {
        verbose: 1,
        log_format: "json",
        overload_interval: intervalS,
        // Less than a worker under load gets of its CPU, also where a dozen others share it.
        os_cpu_busy_time_threshold: 20_000,
        max_os_cpu_wait_time_ratio_to_throw: 1000,
        // What pgbench tries again.
        overload_sqlstate: "40001",
      },
    },
  });
  admin = await RawClient.login(pooler, { user: "admin", database: "pgbouncer" });
  client = await RawClient.login(pooler, { user: "postgres", database: "shop" });
});

tests.after(async () => {
  await calm();
  client.close();
  admin.close();
  await pooler.stop();
  await postgres.stop("immediate");
});

async function startLoad(): Promise<void> {
  const script = join(tempDir("overload"), "select.sql");
  writeFileSync(script, "SELECT 1;\n");
  const program = findProgram("pgbench") ?? "/usr/lib/postgresql/15/bin/pgbench";
  const target = ["-h", pooler.host, "-p", String(pooler.port), "-U", "postgres", "shop"];
  const clients = ["-n", "-c", "6", "-j", "2", "-T", "590", "--max-tries=0", "-f", script];
  const hog = ["sh", "-c", "while :; do :; done"];
  const commands = [
    [program, ...clients, ...target],
    ...Array.from({ length: 3 * availableParallelism() }, () => hog),
  ];
  load = await Promise.all(commands.map((command) => ManagedProcess.launch({ command })));
}

async function calm(): Promise<void> {
  await Promise.all(load.map((each) => each.stop("SIGKILL")));
  load = [];
}

/** The host's decision as the worker goes by it, if there is one. */
async function decision(): Promise<ConsoleRow | undefined> {
  const rows = await admin.table("SHOW OVERLOAD");
  return rows.find((row) => row["scope"] === "host" && row["database"] === "shop");
}

/**
 * One that refuses something, but not everything: the bounds are put to half and to twice of now. The lower one is far
 * above what a worker at rest shows, also on a machine where everything waits a little for its CPU.
 */
async function mixed(): Promise<ConsoleRow> {
  return await until("a decision between the bounds", async () => {
    const row = await decision();
    const probability = Number(row?.["throw_probability"]);
    if (probability > 0.1 && probability < 0.9) return row;
    const ratio = Number(row?.["value"]);
    const max = Number(row?.["max_to_throw"]);
    if (!(ratio > 0.5) || Math.abs(max / (2 * ratio) - 1) < 0.3) return null;
    await admin.query("SET min_os_cpu_wait_time_ratio_to_throw = 0");
    await admin.query(`SET max_os_cpu_wait_time_ratio_to_throw = ${(2 * ratio).toFixed(3)}`);
    await admin.query(`SET min_os_cpu_wait_time_ratio_to_throw = ${(ratio / 2).toFixed(3)}`);
    await until("it to hold", async () => {
      const held = await decision();
      return Number(held?.["max_to_throw"]) !== max && Number(held?.["min_to_throw"]) > 0;
    });
    return null;
  }, patienceMs);
}

interface Sample {
  readonly wait_us: number;
  readonly busy_us: number;
  readonly ratio: number;
  readonly throw: number;
}

function samples(): Sample[] {
  return pooler.log().split("\n").filter((line) => line.includes('"overload sample"'))
    .map((line) => JSON.parse(line));
}

tests("as much is refused as the formula says, which follows what the monitor saw", async () => {
  await startLoad();
  let [refused, expected, variance, attempts] = [0, 0, 0, 0];
  const seen = new Map<string, ConsoleRow>();
  while (attempts < burst * bursts) {
    const before = await mixed();
    let count = 0;
    for (let i = 0; i < burst; i++) {
      client.send(f.Q("SELECT 1"));
      const answer = await client.replies();
      if (answer === "E(40001) Z(I)") count++;
      else assert.is(answer, 'T D C"SELECT 1" Z(I)');
    }
    const after = await decision();
    // Only what was drawn by one decision from its first to its last.
    const same = ["reason", "value", "throw_probability", "max_to_throw"];
    if (!same.every((column) => before[column] === after?.[column])) continue;
    const probability = Number(before["throw_probability"]);
    seen.set(before["value"]!, before);
    refused += count;
    attempts += burst;
    expected += burst * probability;
    variance += burst * probability * (1 - probability);
  }
  const off = Math.abs(refused - expected) / Math.sqrt(variance);
  assert.ok(off <= 3, `${refused} of ${attempts} refused, ${expected.toFixed(1)} expected`);
  assert.ok(refused > 0 && refused < attempts);
  for (const row of seen.values()) {
    const logged = samples().find(({ ratio }) => Math.abs(ratio - Number(row["value"])) < 1e-3);
    assert.ok(logged, `no sample of ${row["value"]}`);
    const ratio = logged.wait_us / logged.busy_us;
    const [min, max] = [Number(row["min_to_throw"]), Number(row["max_to_throw"])];
    const formula = Math.min(1, Math.max(0, (ratio - min) / (max - min)));
    assert.ok(Math.abs(Number(row["throw_probability"]) - formula) < 0.05, JSON.stringify(row));
  }
  console.log(
    `${refused} of ${attempts} refused, ${expected.toFixed(1)} expected, ` +
      `${seen.size} decisions`,
  );
});

tests("when the load is gone, within three intervals nothing is refused", async () => {
  await mixed();
  const from = samples().length;
  await calm();
  // Nothing is asked of the worker meanwhile: that would be work.
  const calmAt = () => samples().slice(from).findIndex((sample) => sample.throw === 0);
  await until("the end of it", () => calmAt() >= 0, patienceMs, 100);
  // The first one ends in the middle of the load.
  assert.ok(calmAt() <= 3, JSON.stringify(samples().slice(from)));
  await until("it to hold", async () => (await decision())?.["throw_probability"] === "0");
});

tests("a monitor that is killed leaves nothing that is refused for long", async () => {
  await startLoad();
  await mixed();
  const [monitor] = pooler.servicePids("overload");
  // Frozen, it is not started again; for its workers it is gone.
  signal(monitor!, "SIGSTOP");
  await until("its decision to expire", async () => (await decision())?.["value"] == null);
  for (let i = 0; i < 50; i++) {
    client.send(f.Q("SELECT 1"));
    assert.is(await client.replies(), 'T D C"SELECT 1" Z(I)');
  }
  signal(monitor!, "SIGCONT");
  await mixed();
  signal(monitor!, "SIGKILL");
  // Its successor is believed at once.
  await until("a successor", () => pooler.servicePids("overload").some((pid) => pid !== monitor));
  await mixed();
});

tests.run();
