// The one door to the test library: every test file imports `suite` and `assert` from here.
// A test file ends each suite with `.run()`; the runner (test/run.ts) starts one process per file
// and per runtime, and fails a file that runs no test, leaks a handle or passes its time limit.

import { suite as uvuSuite, type Test } from "uvu";
import * as assert from "uvu/assert";

export { assert, type Test };

/**
 * Makes a suite of tests. An error of its `before` hook is printed: uvu leaves the tests out then, and drops
 * the reason.
 */
export function suite<T = Record<string, unknown>>(name: string, context?: T): Test<T> {
  const test = context === undefined ? uvuSuite<T>(name) : uvuSuite<T>(name, context);
  const { before } = test;
  const told: Test<T>["before"] = (hook) =>
    before(async (state) => {
      try {
        await hook(state);
      } catch (error) {
        console.error(`the before hook of "${name}" failed:`, error);
        throw error;
      }
    });
  told.each = before.each;
  test.before = told;
  return test;
}

/** Waits until `probe` returns a truthy value; throws naming `what` after `timeoutMs`, which costs only who fails. */
export async function until<T>(
  what: string,
  probe: () => T | Promise<T>,
  timeoutMs = 30_000,
  everyMs = 5,
): Promise<NonNullable<T>> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const value = await probe();
    if (value) return value as NonNullable<T>;
    if (performance.now() > deadline) {
      throw new Error(`wait for ${what}: not so after ${timeoutMs} ms`);
    }
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
}

/** A seeded generator of numbers in [0, 1) (mulberry32), so that a failure can be replayed. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
