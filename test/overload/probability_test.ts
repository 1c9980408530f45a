// The rule by which a measurement becomes a probability of refusal.

import { isLimit, probabilityOf } from "../../shared/overload/mod.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("probabilityOf");

tests("rises linearly between the bounds, and is off without an interval between them", () => {
  const rows: [value: number, min: number, max: number, probability: number][] = [
    [4, 2, 6, 0.5], // the example of ClickHouse's documentation
    [0, 2, 6, 0],
    [2, 2, 6, 0],
    [3, 2, 6, 0.25],
    [6, 2, 6, 1],
    [600, 2, 6, 1],
    [Infinity, 2, 6, 1],
    [NaN, 2, 6, 0],
    [-1, 2, 6, 0],
    [0.5, 0, 1, 0.5],
    [4, 0, 0, 0],
    [4, 6, 2, 0],
    [4, 4, 4, 0],
    [5, 4, 4, 0],
    [5, 4, 0, 0],
    [5, -2, -1, 0],
  ];
  for (const [value, min, max, probability] of rows) {
    const bounds = { min, max };
    assert.is(probabilityOf(value, bounds), probability, JSON.stringify([value, min, max]));
    if (!isLimit(bounds)) assert.is(probability, 0);
  }
});

tests("isLimit() is false for bounds that are turned off or reversed", () => {
  assert.is(isLimit({ min: 0, max: 0 }), false);
  assert.is(isLimit({ min: 2, max: 2 }), false);
  assert.is(isLimit({ min: 3, max: 2 }), false);
  assert.is(isLimit({ min: 0, max: 0.1 }), true);
});

tests.run();
