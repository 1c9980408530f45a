// Which messages of those that say the same again and again are news.

import { Newest } from "../../services/pooler/newest.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("newest");

tests("late, doubled and reordered messages are no news, nor is what a predecessor says", () => {
  const newest = new Newest();
  const rows: readonly [about: string, epoch: number, seq: number, isNews: boolean][] = [
    ["a", 10, 5, true],
    ["a", 10, 5, false],
    ["a", 10, 4, false],
    ["b", 1, 1, true],
    ["a", 10, 7, true],
    ["a", 10, 6, false],
    ["a", 9, 100, false],
    ["a", 11, 0, true],
    ["a", 10, 8, false],
    ["a", 11, 1, true],
  ];
  for (const [about, epoch, seq, isNews] of rows) {
    assert.is(newest.take(about, { epoch, seq }, 0, 1000), isNews, `${about} ${epoch} ${seq}`);
  }
});

// A second monitor that had been started for a look, and ended, shut the first one out for a minute.
tests("when what was said last holds no longer whoever speaks is heard", () => {
  const newest = new Newest();
  assert.ok(newest.take("a", { epoch: 10, seq: 1 }, 0, 3000));
  assert.not(newest.take("a", { epoch: 9, seq: 1 }, 2999, 3000));
  assert.ok(newest.take("a", { epoch: 9, seq: 1 }, 3000, 3000));
  assert.not(newest.take("a", { epoch: 9, seq: 1 }, 3001, 3000));
});

tests("no more than a bounded number is remembered", () => {
  const newest = new Newest();
  for (let i = 0; i < 5000; i++) assert.ok(newest.take(`${i}`, { epoch: 1, seq: 1 }, 0, 1000));
  assert.not(newest.take("one more", { epoch: 1, seq: 1 }, 0, 1000));
  assert.ok(newest.take("1", { epoch: 1, seq: 2 }, 0, 1000));
  assert.ok(newest.take("one more", { epoch: 1, seq: 1 }, 1000, 1000));
});

tests.run();
