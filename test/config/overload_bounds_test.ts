// Bounds on overload of databases and groups: how they are read, and what `pgweir check` says of those that refuse
// nothing.

import { assert, suite } from "../support/harness.ts";
import { configOf, iniWith, lines, load } from "./fixtures.ts";

const test = suite("overload bounds");

const [min, max] = ["min_os_cpu_wait_time_ratio_to_throw", "max_os_cpu_wait_time_ratio_to_throw"];
const drop = "os_cpu_wait_time_ratio_to_drop_connection";

test("databases, the * entry and groups have each of the bounds", () => {
  const text = `os_cpu_busy_time_threshold=7 ${min}=1 ${max}=2.5 min_${drop}=3 max_${drop}=4 ` +
    "min_event_loop_lag_to_throw=5 max_event_loop_lag_to_throw=6";
  const config = configOf(
    `${iniWith("", `shop = host=a ${text}\n* = host=a ${text}`)}\n[groups]\nreports = ${text}\n`,
  );
  const wanted = {
    busyTimeThreshold: 7,
    transactions: { min: 1, max: 2.5 },
    connections: { min: 3, max: 4 },
    lag: { min: 5, max: 6 },
  };
  const { databases, fallbackDatabase, groups } = config;
  for (const each of [databases.get("shop"), fallbackDatabase, groups[0]]) {
    assert.equal(each?.bounds, wanted);
  }
  const part = configOf(iniWith("", `shop = host=a ${max}=0`)).databases.get("shop")?.bounds;
  assert.equal(part?.transactions, { min: null, max: 0 });
  const without = configOf(`${iniWith()}\n[groups]\na =\n`);
  assert.is(without.groups[0]?.bounds, null);
  assert.is.not(without.hash, configOf(`${iniWith()}\n[groups]\na = ${max}=3\n`).hash);
});

interface Row {
  readonly settings?: string;
  readonly database?: string;
  readonly groups?: string;
  /** Each warning is one of these, in order. */
  readonly warnings: readonly (string | RegExp)[];
}

const nothing = "nothing is refused by it";
const rows: readonly Row[] = [
  { settings: `${min} = 2\n${max} = 6`, warnings: [] },
  {
    settings: `${min} = 6\n${max} = 6`,
    warnings: [`${min} = 6 is not below ${max} = 6: ${nothing}`],
  },
  { settings: `${min} = 6`, warnings: [`${min} = 6 is not below ${max} = 0: ${nothing}`] },
  { settings: "cpu_overload_warn_ratio = 0.8\nmemory_overload_clear_ratio = 0.9", warnings: [] },
  {
    settings: "cpu_overload_warn_ratio = 0.5\nmemory_overload_warn_ratio = 0.6",
    warnings: [
      "cpu_overload_clear_ratio = 0.8 is above cpu_overload_warn_ratio = 0.5: warnings are cleared below 0.5",
      "memory_overload_clear_ratio = 0.8 is above memory_overload_warn_ratio = 0.6: warnings are cleared",
    ],
  },
  // It is what the database has its lower bound from.
  { settings: `${min} = 6`, database: `${max}=9`, warnings: [] },
  { settings: `${min} = 2\n${max} = 6`, database: `${max}=0`, warnings: [] },
  {
    settings: `${min} = 2\n${max} = 6`,
    database: `${max}=1`,
    warnings: [
      `database "shop": ${min} = 2 of the settings is not below ${max} = 1: ${nothing}`,
    ],
  },
  {
    database: `${min}=2`,
    warnings: [`database "shop": ${min} = 2 is not below ${max} = 0 of the settings: ${nothing}`],
  },
  {
    database: `${max}=1 shed=never`,
    warnings: [`database "shop": shed=never: its bounds on overload have no effect`],
  },
  { groups: `a = ${min}=1 ${max}=2`, warnings: [] },
  {
    groups: `a = ${max}=2\nb = parent=a ${min}=2\nc = parent=b`,
    warnings: [`group "b": ${min} = 2 is not below ${max} = 2 of group "a": ${nothing}`],
  },
  // Only where the group meets the database.
  {
    settings: `${min} = 2\n${max} = 6`,
    database: `${max}=4`,
    groups: `a = ${min}=5`,
    warnings: [`group "a": ${min} = 5 is not below ${max} = 4 of database "shop": ${nothing}`],
  },
  { settings: `${max} = 6`, groups: "a = os_cpu_busy_time_threshold=9", warnings: [] },
  { groups: `a = ${max}=2 shed=never\nb = parent=a`, warnings: [] },
  {
    groups: `a = ${max}=2 shed=never`,
    warnings: [`group "a": shed=never: its bounds on overload have no effect`],
  },
  {
    groups: `a = min_event_loop_lag_to_throw=9 max_event_loop_lag_to_throw=3 max_${drop}=0`,
    warnings: [/min_event_loop_lag_to_throw = 9 is not below max_event_loop_lag_to_throw = 3:/],
  },
];

for (const { settings = "", database = "", groups = "", warnings: wanted } of rows) {
  test(`warnings of: ${[settings, database, groups].join(" | ").replaceAll("\n", ", ")}`, () => {
    const { problems, warnings } = load(
      `${iniWith(settings, `shop = host=a ${database}`)}\n[groups]\n${groups}\n[group_rules]\n` +
        [...groups.matchAll(/^\w+/gm)].map(([name]) => `${name} = tag=${name} group=${name}\n`)
          .join(""),
    );
    assert.equal(lines(problems), []);
    // The file has no users, which is warned of as well.
    const told = lines(warnings.filter(({ message }) => !message.includes("auth_file")));
    assert.is(told.length, wanted.length, told.join("\n"));
    wanted.forEach((each, index) => assert.match(told[index]!, each));
    // Each has its line.
    for (const each of told) assert.not.match(each, /^0:/);
  });
}

test.run();
