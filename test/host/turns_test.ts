// Work that waits for its turn.

import { Turns } from "../../shared/host/mod.ts";
import { assert, suite, until } from "../support/harness.ts";

const test = suite("turns");

test("run() lets so many run at once, the others in their order, whatever becomes of them", async () => {
  const turns = new Turns(2);
  const begun: number[] = [];
  const ends: ((failed: boolean) => void)[] = [];
  const results = Array.from(
    { length: 6 },
    (_, i) =>
      turns.run(() =>
        new Promise<number>((resolve, reject) => {
          begun.push(i);
          ends[i] = (failed) => failed ? reject(new Error("failed")) : resolve(i);
        })
      ).catch(() => -1),
  );
  assert.equal(begun, [0, 1]);
  for (const [i, failed] of [[1, false], [0, true], [2, false], [3, true]] as const) {
    await until(`${i} to begin`, () => begun.includes(i));
    const before = begun.length;
    ends[i]!(failed);
    await until("the next one to begin", () => begun.length === before + 1);
  }
  assert.equal(begun, [0, 1, 2, 3, 4, 5]);
  ends[4]!(false);
  ends[5]!(false);
  assert.equal(await Promise.all(results), [-1, 1, 2, -1, 4, 5]);
});

test.run();
