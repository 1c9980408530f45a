// What is left of a demand seconds after.

import { Average } from "../../shared/ledger/average.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("ledger/average");

test("at() comes to a number that stays", () => {
  const average = new Average();
  average.set(10, 5000);
  assert.is(average.at(5000), 0);
  assert.ok(average.at(6000) > 6 && average.at(6000) < 7);
  assert.ok(average.at(9000) > 9.8);
});

test("at() is hardly moved by a number that is soon over", () => {
  const average = new Average();
  average.set(10, 0);
  average.set(90, 20_000);
  average.set(10, 20_020);
  const mean = average.at(20_020);
  assert.ok(mean > 10 && mean < 12, `${mean}`);
});

test("at() is in the middle of a number that goes up and down, however often it is looked at", () => {
  const average = new Average();
  const idle = new Average();
  for (let now = 0; now <= 20_000; now += 10) {
    for (const one of [average, idle]) one.set(now % 20 === 0 ? 0 : 8, now);
    average.at(now + 3);
  }
  assert.ok(Math.abs(average.at(20_000) - 4) < 0.1);
  assert.is(average.at(20_000), idle.at(20_000));
});

test("isMoving() until the number has stayed for some seconds", () => {
  const average = new Average();
  assert.is(average.isMoving(0), false);
  average.set(10, 0);
  assert.is(average.isMoving(1000), true);
  assert.is(average.isMoving(5000), false);
});

test.run();
