// When a warning is raised and cleared: by ratios that are apart, and only after a while.

import { Alarm, type AlarmStep } from "../../services/overload/alarm.ts";
import { WarningBook } from "../../services/overload/warning_book.ts";
import { assert, suite } from "../support/harness.ts";
import { configWith } from "./fixtures.ts";

const tests = suite("overload warnings");
const rule = { warn: 0.9, clear: 0.8, durationMs: 3000 };

/** One value a second; the step that each of them is. */
function steps(values: (number | null)[], durationMs = rule.durationMs): AlarmStep[] {
  const alarm = new Alarm();
  return values.map((value, second) => alarm.take(value, second * 1000, { ...rule, durationMs }));
}

tests("an alarm is raised and cleared after its duration, without a break", () => {
  const none = null;
  const rows: [string, (number | null)[], AlarmStep[]][] = [
    ["raise", [1, 1, 1, 1, 1], [none, none, none, "raise", none]],
    ["at the ratio is not above it", [0.9, 0.9, 0.9, 0.9, 0.9], [none, none, none, none, none]],
    ["a break begins it anew", [1, 1, 0.9, 1, 1, 1, 1], [
      none,
      none,
      none,
      none,
      none,
      none,
      "raise",
    ]],
    ["what lies between keeps it raised", [1, 1, 1, 1, 0.85, 0.85, 0.85, 0.85, 0.85], [
      none,
      none,
      none,
      "raise",
      none,
      none,
      none,
      none,
      none,
    ]],
    ["clear", [1, 1, 1, 1, 0.7, 0.7, 0.7, 0.7], [
      none,
      none,
      none,
      "raise",
      none,
      none,
      none,
      "clear",
    ]],
    ["a break of the quiet begins it anew", [1, 1, 1, 1, 0.7, 0.7, 0.8, 0.7, 0.7, 0.7, 0.7], [
      none,
      none,
      none,
      "raise",
      none,
      none,
      none,
      none,
      none,
      none,
      "clear",
    ]],
    ["what is not known changes nothing", [1, null, null, 1, null], [
      none,
      none,
      none,
      "raise",
      none,
    ]],
  ];
  for (const [what, values, wanted] of rows) assert.equal(steps(values), wanted, what);
  assert.equal(steps([1, 0.7, 1], 0), ["raise", "clear", "raise"], "no duration");
});

tests("an alarm that is turned off says so", () => {
  const alarm = new Alarm();
  assert.is(alarm.take(1, 0, { ...rule, durationMs: 0 }), "raise");
  assert.is(alarm.take(1, 1, { ...rule, warn: 0 }), "off");
  assert.is(alarm.take(1, 2, { ...rule, warn: 0 }), null);
});

const { settings } = configWith(`cpu_overload_warn_ratio = 0.9
cpu_overload_duration_seconds = 1
memory_overload_warn_ratio = 0.5
memory_overload_clear_ratio = 0.4
memory_overload_duration_seconds = 0`);

tests("the book tells what changed, and keeps what was", () => {
  const book = new WarningBook();
  const [first] = book.take({ cpu: 1, memory: 0.6 }, 0, 5000, settings);
  const memory = { kind: "memory", raisedAt: 5000, clearedAt: null, warn: 0.5, clear: 0.4 };
  assert.equal(first, { step: "raise", warning: { ...memory, value: 0.6 }, durationMs: 0 });
  const [second] = book.take({ cpu: 0.95, memory: 0.45 }, 1000, 6000, settings);
  const cpu = { kind: "cpu", raisedAt: 6000, clearedAt: null, value: 0.95, warn: 0.9, clear: 0.8 };
  assert.equal(second, { step: "raise", warning: cpu, durationMs: 1000 });
  // What holds has the last value.
  assert.equal(book.warnings, [{ ...memory, value: 0.45 }, cpu]);
  const [third] = book.take({ cpu: 0.99, memory: 0.1 }, 1500, 7000, settings);
  assert.equal(third?.warning, { ...memory, clearedAt: 7000, value: 0.1 });
  book.take({ cpu: 0.99, memory: 0.2 }, 1600, 7100, settings);
  assert.equal(book.warnings, [third?.warning, { ...cpu, value: 0.99 }]);
});

tests("a warning that holds has the ratios of now; switched off it ends with its last ones", () => {
  const book = new WarningBook();
  const within = { cpu: null, memory: 0.55 };
  const [raised] = book.take(within, 0, 5000, settings);
  const other = { ...settings, memoryOverloadWarnRatio: 0.3, memoryOverloadClearRatio: 0.2 };
  assert.equal(book.take(within, 1, 5001, other), []);
  const now = { ...raised!.warning, warn: 0.3, clear: 0.2 };
  assert.equal(book.warnings, [now]);
  const off = { ...settings, memoryOverloadWarnRatio: 0 };
  const ended = { ...now, clearedAt: 5002 };
  const unknown = { cpu: null, memory: null };
  assert.equal(book.take(unknown, 2, 5002, off), [{ step: "off", warning: ended, durationMs: 0 }]);
  assert.equal(book.warnings, [ended]);
});

tests("a clear ratio above the other one is that, and is shown as that", () => {
  const odd = {
    ...settings,
    cpuOverloadWarnRatio: 0.5,
    cpuOverloadClearRatio: 0.9,
    cpuOverloadDurationSeconds: 0,
  };
  const book = new WarningBook();
  const of = (cpu: number, now: number) => {
    const [change] = book.take({ cpu, memory: null }, now, now, odd);
    return [change?.step, book.warnings[0]?.warn, book.warnings[0]?.clear];
  };
  assert.equal(of(0.7, 1), ["raise", 0.5, 0.5]);
  assert.equal(of(0.7, 2), [undefined, 0.5, 0.5]);
  assert.equal(of(0.5, 3), [undefined, 0.5, 0.5]);
  assert.equal(of(0.4, 4), ["clear", 0.5, 0.5]);
});

tests("the book is bounded", () => {
  const book = new WarningBook();
  for (let time = 0; time < 200; time++) {
    book.take({ cpu: 0, memory: time % 2 === 0 ? 0.9 : 0.1 }, time, time, settings);
  }
  assert.is(book.warnings.length, 48);
  assert.is(book.warnings.at(-1)?.clearedAt, 199);
});

tests.run();
