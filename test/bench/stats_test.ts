// Medians, quantiles and per-round ratios.

import { assert, suite } from "../support/harness.ts";
import { median, medianInterval, medianOrNull, medianRatio, quantile } from "./stats.ts";

const test = suite("bench stats");

test("median() takes the middle, or the mean of the two in the middle, of unordered values", () => {
  assert.is(median([9, 1, 5]), 5);
  assert.is(median([4, 1, 3, 2]), 2.5);
  assert.is(median([7]), 7);
});

test("median() does not sort the caller's values when they are out of order", () => {
  const values = [3, 1, 2];
  median(values);
  assert.equal(values, [3, 1, 2]);
});

test("quantile() interpolates between neighbours when the place falls between two", () => {
  const values = Array.from({ length: 101 }, (_, i) => i * 10);
  assert.is(quantile(values, 0.99), 990);
  assert.is(quantile([0, 10], 0.25), 2.5);
  assert.is(quantile([1, 2, 3], 1), 3);
});

test("medianInterval() goes by ranks, and is the whole sample when that is small", () => {
  assert.equal(medianInterval(Array.from({ length: 60 }, (_, i) => 60 - i)), { low: 22, high: 39 });
  assert.equal(medianInterval([3, 1, 2]), { low: 1, high: 3 });
  assert.equal(medianInterval([5]), { low: 5, high: 5 });
});

test("quantile() throws when the sample is empty or the fraction is no fraction", () => {
  assert.throws(() => quantile([], 0.5), /the sample is empty/);
  assert.throws(() => quantile([1], 99), /"99" is not from 0 to 1/);
});

test("medianRatio() divides within rounds when the rounds differ in speed", () => {
  // The ratio of the medians would be 20 / 30: the slow round of one against the fast one of the other.
  const ratio = medianRatio([10, 20, 200], [20, 40, 100]);
  assert.equal(ratio, { median: 0.5, low: 0.5, high: 2 });
});

test("medianRatio() leaves rounds out when one side lacks a value or the base is 0", () => {
  assert.equal(medianRatio([1, null, 3, 4], [2, 2, 0, null]), { median: 0.5, low: 0.5, high: 0.5 });
  assert.is(medianRatio([1], [null]), null);
  assert.is(medianRatio([1, 2], []), null);
});

test("medianOrNull() ignores missing values, and is null when all are missing", () => {
  assert.is(medianOrNull([null, 3, 1]), 2);
  assert.is(medianOrNull([null]), null);
});

test.run();
