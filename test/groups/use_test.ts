// What is in use of a group as plain data, and its sum over workers.

import { sumOfUse, useOf } from "../../shared/groups/mod.ts";
import { assert, suite } from "../support/harness.ts";
import { noUse, World } from "./fixtures.ts";

const tests = suite("use of groups");

tests("useOf() has whole numbers, and the time of this world", () => {
  const world = new World("top max=4 memory=100; a<top timeout=100 memory=100", 0, 0);
  const top = world.tree.group("top")!;
  world.tree.setLimit(top, 3, world.now);
  world.askAll("a1 a2 a3 a4");
  world.now += 10.4;
  world.end("a1");
  const numbers = {
    running: 3,
    queued: 0,
    memory: 300,
    admitted: 4,
    queuedMs: 10,
    runningMs: 10,
    lastUsed: 1_001_010,
  };
  assert.equal(useOf(top, 1_000_000), { ...noUse, ...numbers, name: "top", granted: 3 });
  const a = world.tree.group("a")!;
  assert.equal(useOf(a, 1_000_000), { ...noUse, ...numbers, name: "a" });
  assert.is(useOf(new World("b").tree.group("b")!, 1_000_000).lastUsed, 0);
});

tests("sumOfUse() adds up what workers have of a group, and takes the latest time", () => {
  const one = { ...noUse, name: "a", running: 1, queued: 2, memory: 3, granted: 4, admitted: 5 };
  const other = { ...one, refused: 6, timedOut: 7, queuedMs: 8, runningMs: 9, lastUsed: 10 };
  assert.equal(sumOfUse([one, { ...one, name: "b" }, other, one], "a"), {
    name: "a",
    running: 3,
    queued: 6,
    memory: 9,
    granted: 12,
    admitted: 15,
    refused: 6,
    timedOut: 7,
    queuedMs: 8,
    runningMs: 9,
    lastUsed: 10,
  });
  assert.equal(sumOfUse([], "a"), { ...noUse, name: "a" });
});

tests.run();
