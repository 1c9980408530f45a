// A worker under load for a while is no larger at the end than it was after a fifth of it: nothing that clients,
// transactions, statements or log lines need is kept. Load: pgbench in each protocol, and a client that reconnects.
// limit: 600 s
//
//   PGWEIR_SOAK_SECONDS=300 bun test/system/soak/steady_memory_test.ts    five minutes instead of twenty seconds
//
// It prints its figures. It sees leaks of a few hundred bytes per connection in five minutes, not in twenty seconds.

import { runtimeName } from "../../../shared/sys/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { openFiles, residentBytes } from "../../support/processes.ts";
import { run } from "../drivers/support.ts";

needs("postgresql");

const SECONDS = Number(process.env["PGWEIR_SOAK_SECONDS"] ?? 20);
/** Code is compiled and heaps find their size. */
const WARM_UP_SECONDS = 15;
const GROWTH_MAX = 0.1;
const ROUNDS_MAX = 3;

/** Clients, threads and transactions per second of each load; 0 = as many as it can. */
const LOADS = [
  { args: ["-S", "-M", "simple"], clients: 4, rate: 2000 },
  { args: ["-S", "-M", "prepared"], clients: 4, rate: 2000 },
  { args: ["-M", "extended"], clients: 4, rate: 150 },
  { args: ["-S", "-M", "prepared", "-C"], clients: 2, rate: 0 },
];

const tests = suite("steady memory");
const postgres = await startPostgres();
const pooler = await startPgweir({
  ini: {
    databases: { "*": `host=127.0.0.1 port=${postgres.port}` },
    pgbouncer: { default_pool_size: 4, max_prepared_statements: 3 },
  },
});
const target = ["-h", pooler.host, "-p", String(pooler.port), "-U", "postgres", "postgres"];

const megabytes = (bytes: number) => (bytes / 2 ** 20).toFixed(1);
const percent = (share: number) => `${(100 * share).toFixed(1)} %`;

/** The least of some samples of the worker's memory: what is left when garbage was just collected. */
async function least(samples: number): Promise<number> {
  let bytes = Infinity;
  for (let i = 0; i < samples; i++) {
    await new Promise((resolve) => setTimeout(resolve, 250));
    bytes = Math.min(bytes, residentBytes(pooler.pid));
  }
  return bytes;
}

/** How much larger the worker is at the end of the load than after a fifth of it. */
async function growth(): Promise<number> {
  const total = WARM_UP_SECONDS + SECONDS;
  const fifth = WARM_UP_SECONDS + SECONDS / 5;
  const window = SECONDS / 10;
  const loads = LOADS.map(({ args, clients, rate }) => {
    const load = ["-n", "-c", String(clients), "-j", String(clients), "-T", String(total + 1)];
    const limit = rate > 0 ? ["-R", String(rate)] : [];
    return run(["pgbench", ...load, ...limit, ...args, ...target], { seconds: total + 120 });
  });
  const started = performance.now();
  const at = (seconds: number) =>
    new Promise((resolve) =>
      setTimeout(resolve, Math.max(0, started + 1000 * seconds - performance.now()))
    );
  await at(fifth - window);
  const early = await least(4 * window);
  await at(total - window);
  const late = await least(4 * window);
  const processed = (await Promise.all(loads)).map((ran) => {
    assert.equal([ran.code, /error|abort/i.exec(ran.stderr)], [0, null], ran.stderr);
    return Number(/actually processed: (\d+)/.exec(ran.stdout)?.[1]);
  });
  console.log(
    `${runtimeName}: ${megabytes(early)} MiB after ${SECONDS / 5} s, ${
      megabytes(late)
    } MiB after ` +
      `${SECONDS} s (${percent(late / early - 1)}); ${processed.join(" + ")} transactions, ` +
      "a connection for each of the last",
  );
  return late / early - 1;
}

tests(`a worker's memory is the same after a fifth and at the end of ${SECONDS} s`, async () => {
  await run(["pgbench", "-i", "-q", "-s", "1", ...target]);
  const files = openFiles(pooler.pid);
  // Where the machine was too busy for code and heaps to get warm in their time, they are after another round; what
  // is kept goes on to be.
  let grown = Infinity;
  for (let round = 0; round < ROUNDS_MAX && grown > GROWTH_MAX; round++) grown = await growth();
  assert.ok(grown <= GROWTH_MAX, `it grew by ${percent(grown)}`);
  await until("sockets to be closed", () => openFiles(pooler.pid) <= files + 8);
});

tests.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});
tests.run();
