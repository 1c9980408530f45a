// What a monitor makes of an interval, as a table; and which configurations need a monitor at all.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { decide } from "../../services/overload/decide.ts";
import { loadConfig } from "../../shared/config/mod.ts";
import { isMonitored, overloadRatio } from "../../shared/overload/mod.ts";
import { assert, suite } from "../support/harness.ts";
import { configWith } from "./fixtures.ts";

const tests = suite("decide");

tests("overloadRatio() is wait by work, and 0 where that tells nothing", () => {
  const rows: [waitUs: number, busyUs: number, thresholdUs: number, ratio: number][] = [
    [4_000_000, 1_000_000, 50_000, 4],
    [250_000, 1_000_000, 50_000, 0.25],
    [4_000_000, 49_999, 50_000, 0],
    [100_000, 50_000, 50_000, 2],
    [4_000_000, 0, 0, 0],
    [4_000_000, 1, 0, 4_000_000],
    [0, 1_000_000, 50_000, 0],
    [-5, 1_000_000, 50_000, 0],
    [5, -1_000_000, 0, 0],
    [NaN, 1_000_000, 0, 0],
    [5, NaN, 0, 0],
  ];
  for (const [waitUs, busyUs, threshold, ratio] of rows) {
    const row = JSON.stringify([waitUs, busyUs, threshold]);
    assert.is(overloadRatio({ waitUs, busyUs }, threshold), ratio, row);
  }
});

const settings = `min_os_cpu_wait_time_ratio_to_throw = 2
max_os_cpu_wait_time_ratio_to_throw = 6
min_os_cpu_wait_time_ratio_to_drop_connection = 3
max_os_cpu_wait_time_ratio_to_drop_connection = 13
os_cpu_busy_time_threshold = 100`;

tests("decide() takes both pairs of bounds, and those of the database it is for", () => {
  const config = configWith(
    settings,
    `shop = host=a
early = host=a min_os_cpu_wait_time_ratio_to_throw=1 max_os_cpu_wait_time_ratio_to_throw=5 \
max_os_cpu_wait_time_ratio_to_drop_connection=5
half = host=a max_os_cpu_wait_time_ratio_to_throw=10
never = host=a max_os_cpu_wait_time_ratio_to_throw=0
busy = host=a os_cpu_busy_time_threshold=1000001`.replaceAll("\\\n", ""),
  );
  const times = { waitUs: 4_000_000, busyUs: 1_000_000 };
  assert.equal(decide(times, config, null), {
    ratio: 4,
    // The example of ClickHouse's documentation.
    transactions: { min: 2, max: 6, probability: 0.5 },
    connections: { min: 3, max: 13, probability: 0.1 },
  });
  const rows: [database: string, transactions: number, connections: number][] = [
    ["shop", 0.5, 0.1],
    ["early", 0.75, 0.5],
    ["half", 0.25, 0.1],
    ["never", 0, 0.1],
    ["busy", 0, 0],
  ];
  for (const [database, ...wanted] of rows) {
    const { transactions, connections } = decide(times, config, database);
    assert.equal([transactions.probability, connections.probability], wanted, database);
  }
  assert.is(decide({ waitUs: 4_000_000, busyUs: 99 }, config, null).transactions.probability, 0);
});

tests("nothing is refused by default, and a monitor is needed only where something is on", () => {
  const times = { waitUs: 900_000_000, busyUs: 1_000_000 };
  const { ratio, transactions, connections } = decide(times, configWith(), null);
  assert.equal([ratio, transactions.probability, connections.probability], [900, 0, 0]);
  const rows: [string, string, boolean][] = [
    ["", "shop = host=a", false],
    ["max_os_cpu_wait_time_ratio_to_throw = 5", "shop = host=a", true],
    ["min_os_cpu_wait_time_ratio_to_throw = 5", "shop = host=a", false],
    ["max_os_cpu_wait_time_ratio_to_drop_connection = 5", "shop = host=a", true],
    ["cpu_overload_warn_ratio = 0.9", "shop = host=a", true],
    ["memory_overload_warn_ratio = 0.9", "shop = host=a", true],
    // A worker sees its lag by itself.
    ["max_event_loop_lag_to_throw = 50", "shop = host=a", false],
    ["", "shop = host=a max_os_cpu_wait_time_ratio_to_throw=5", true],
    ["", "* = host=a max_os_cpu_wait_time_ratio_to_drop_connection=5", true],
    ["", "shop = host=a max_event_loop_lag_to_throw=5", false],
    ["", "shop = host=a\n[groups]\na = max_os_cpu_wait_time_ratio_to_throw=5", true],
    ["", "shop = host=a\n[groups]\na = min_os_cpu_wait_time_ratio_to_throw=5", false],
    ["", "shop = host=a\n[groups]\na = max_event_loop_lag_to_throw=5", false],
    // A group's bound may be what a database's lacks.
    [
      "min_os_cpu_wait_time_ratio_to_throw = 6",
      "shop = host=a max_os_cpu_wait_time_ratio_to_throw=5\n[groups]\na = " +
      "min_os_cpu_wait_time_ratio_to_throw=4",
      true,
    ],
  ];
  for (const [lines, databases, is] of rows) {
    assert.is(isMonitored(configWith(lines, databases)), is, `${lines} ${databases}`);
  }
});

tests("the example of the shipped file loads, and turns on all there is", () => {
  const path = resolve(import.meta.dirname!, "../../deploy/pgweir.ini");
  const { config, problems, warnings } = loadConfig(
    path,
    (asked) => asked === path ? readFileSync(path) : '"app" "secret"\n',
  );
  assert.equal([problems, warnings], [[], []]);
  const { settings } = config!;
  const { transactions, connections } = decide({ waitUs: 4e6, busyUs: 1e6 }, config!, null);
  assert.equal([transactions.probability, connections.max], [0.5, 10]);
  assert.equal([settings.cpuOverloadWarnRatio, settings.memoryOverloadWarnRatio], [0.9, 0.9]);
});

tests.run();
