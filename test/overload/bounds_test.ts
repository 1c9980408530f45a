// Which bounds hold for whom: those of a group, of the groups above it, of the database, each key on its own. The
// settings' stand in a monitor's decision.

import type { OverloadBounds } from "../../shared/config/mod.ts";
import { OwnBounds } from "../../shared/overload/mod.ts";
import { assert, suite } from "../support/harness.ts";
import { configWith } from "./fixtures.ts";

const tests = suite("bounds of one's own");

const config = configWith(
  "",
  `plain = host=a
strict = host=a min_os_cpu_wait_time_ratio_to_throw=1 max_os_cpu_wait_time_ratio_to_throw=3 max_event_loop_lag_to_throw=50
* = host=a max_os_cpu_wait_time_ratio_to_drop_connection=9`,
  `child = parent=top max_os_cpu_wait_time_ratio_to_throw=20
top = min_os_cpu_wait_time_ratio_to_throw=5 os_cpu_busy_time_threshold=70000
heir = parent=child max_concurrent_queries=2
free = max_concurrent_queries=2`,
);
const bounds = new OwnBounds(config);

/** threshold, then the pairs */
function shown(own: OverloadBounds | null): string {
  if (own === null) return "none";
  const pairs = [own.transactions, own.connections, own.lag];
  const text = (value: number | null) => value ?? "-";
  return [text(own.busyTimeThreshold), ...pairs.map(({ min, max }) => `${text(min)}:${text(max)}`)]
    .join(" ");
}

const rows: [database: string, group: string | null, wanted: string][] = [
  ["plain", null, "none"],
  ["plain", "free", "none"],
  ["strict", null, "- 1:3 -:- -:50"],
  ["strict", "free", "- 1:3 -:- -:50"],
  ["plain", "top", "70000 5:- -:- -:-"],
  ["plain", "child", "70000 5:20 -:- -:-"],
  ["plain", "heir", "70000 5:20 -:- -:-"],
  ["strict", "top", "70000 5:3 -:- -:50"],
  ["strict", "heir", "70000 5:20 -:- -:50"],
  ["another", null, "- -:- -:9 -:-"],
  ["another", "heir", "70000 5:20 -:9 -:-"],
  ["another", "nosuch", "- -:- -:9 -:-"],
];

tests("of() goes from the group up to the root, then to the database", () => {
  for (const [database, group, wanted] of rows) {
    assert.is(shown(bounds.of(database, group)), wanted, `${database}, ${group}`);
  }
  assert.equal([...bounds.groups].sort(), ["child", "heir", "top"]);
  assert.equal(["heir", "free"].map((name) => bounds.has(name)), [true, false]);
});

tests("of() gives the same object for the same bounds, in another thread as well", () => {
  const cloned = new OwnBounds(structuredClone(config));
  for (const each of [bounds, cloned]) {
    for (const [database, group] of rows) {
      assert.ok(each.of(database, group) === each.of(database, group), `${database}, ${group}`);
    }
  }
});

tests("limitsLag is whether anybody has a bound on it that is on", () => {
  const of = (settings: string, database = "", group = "") =>
    new OwnBounds(configWith(settings, `shop = host=a ${database}`, `a = ${group}`)).limitsLag;
  const [min, max] = ["min_event_loop_lag_to_throw", "max_event_loop_lag_to_throw"];
  assert.not(of(""));
  assert.not(of("max_os_cpu_wait_time_ratio_to_throw = 5"));
  assert.ok(of(`${max} = 5`));
  assert.not(of(`${max} = 5\n${min} = 5`));
  assert.ok(of(`${max} = 5\n${min} = 5`, `${min}=1`));
  assert.ok(of("", "", `${max}=5`));
  assert.ok(of("", `${max}=5`, `${min}=1`));
  assert.not(of("", "", `${min}=1`));
});

tests.run();
