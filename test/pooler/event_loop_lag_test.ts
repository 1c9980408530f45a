// How late the event loop is: the mean over the moments at which a timer was due.

import { EventLoopLag } from "../../services/pooler/plane/event_loop_lag.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("event loop lag");

/** When a timer of 100 ms fires, and the mean that is told then. */
const rows: readonly { what: string; ticks: readonly number[]; mean: number }[] = [
  { what: "no tick yet", ticks: [], mean: 0 },
  { what: "in time", ticks: [100, 200, 300], mean: 0 },
  { what: "early by a rounding", ticks: [99.9, 200], mean: 0 },
  { what: "always a little late", ticks: [110, 210, 310], mean: 10 },
  { what: "one of ten is late", ticks: [100, 200, 250 + 100, 400, 500], mean: 10 },
  // 350 and 450 are those that were missed: the timer goes on from when it fired.
  { what: "one long batch of 350 ms", ticks: [100, 550], mean: (0 + 350 + 250 + 150 + 50) / 5 },
  { what: "late for ever", ticks: [1100, 2200], mean: 550 },
  { what: "stopped for a minute", ticks: [150, 60_000, 60_105], mean: 5 },
];

for (const { what, ticks, mean } of rows) {
  tests(`the mean of a timer that is ${what}`, () => {
    const lag = new EventLoopLag(100, 0);
    for (const tick of ticks) lag.tick(tick);
    assert.ok(Math.abs(lag.take() - mean) < 1e-6);
    assert.is(lag.take(), 0);
  });
}

tests.run();
