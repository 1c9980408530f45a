// How late the event loop is: the mean over the moments at which a timer was due.

import { EventLoopLag } from "../../services/pooler/plane/event_loop_lag.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("event loop lag");

/** When the loop of a timer of 100 ms looks at its timers, and the mean that is told then. */
const rows: readonly { what: string; looks: readonly number[]; mean: number }[] = [
  { what: "no tick yet", looks: [], mean: 0 },
  { what: "in time", looks: [100, 200, 300], mean: 0 },
  { what: "always a little late", looks: [110, 210, 310], mean: 10 },
  { what: "one of ten is late", looks: [100, 200, 350, 400, 500], mean: 10 },
  // From the step that was missed on the timer counts anew.
  { what: "one long batch of 350 ms", looks: [100, 550], mean: (0 + 350 + 250 + 150 + 50) / 5 },
  { what: "late again behind a step that was missed", looks: [230, 350], mean: 60 },
  { what: "late for ever", looks: [1100, 2200], mean: 550 },
  { what: "stopped for a minute", looks: [150, 60_000, 60_105], mean: 5 },
];

for (const { what, looks, mean } of rows) {
  tests(`the mean of a timer that is ${what}`, () => {
    let due = 100;
    const lag = new EventLoopLag(100, due);
    for (const now of looks) {
      // As timers of a reactor: what was missed is skipped.
      due = due + 100 <= now ? now + 100 : due + 100;
      lag.tick(now, due);
    }
    assert.ok(Math.abs(lag.take() - mean) < 1e-6);
    assert.is(lag.take(), 0);
  });
}

tests.run();
