// Own limits of servers: none is beyond the one of the file, and they are spread, within a worker and a fleet.

import { ownLimitMs } from "../../services/pooler/plane/server_age.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("server age");

test("a server's own limit lies in the last tenth before the limit", () => {
  for (const limit of [1, 300, 3_600_000]) {
    for (let server = 1; server < 500; server++) {
      for (const worker of [0, 1, 7, 32767]) {
        const own = ownLimitMs(limit, server, worker);
        assert.ok(own <= limit && own >= 0.9 * limit, `${limit} ${server} ${worker}: ${own}`);
      }
    }
  }
  assert.is(ownLimitMs(0, 17, 3), 0);
});

// A fleet that was started at once connected anew at once, an hour later and each hour from then on.
test("those of servers that were opened together are far from each other", () => {
  const limit = 3_600_000;
  const tenth = limit / 10;
  const rows: readonly [string, number, number][] = [
    ["one worker", 1, 40],
    ["eight workers", 8, 20],
    ["a fleet", 64, 5],
  ];
  for (const [what, workers, servers] of rows) {
    const slots = new Array<number>(10).fill(0);
    for (let worker = 1; worker <= workers; worker++) {
      for (let server = 1; server <= servers; server++) {
        const before = limit - ownLimitMs(limit, server, worker);
        slots[Math.min(9, Math.floor(before / tenth * 10))]!++;
      }
    }
    const fair = workers * servers / 10;
    for (const count of slots) {
      assert.ok(count > fair * 0.5 && count < fair * 1.5, `${what}: ${slots.join(" ")}`);
    }
  }
});

test.run();
