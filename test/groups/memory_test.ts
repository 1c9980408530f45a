// Memory of groups: estimates, what is measured, and who waits for it.

import { assert, suite } from "../support/harness.ts";
import { World } from "./fixtures.ts";

const test = suite("group memory");

const MB = 2 ** 20;
const GB = 2 ** 30;

function measure(world: World, client: string, bytes: number): string {
  world.tree.measure(world.ticket(client), bytes, world.now);
  return world.drain();
}

const memoryOf = (world: World, group: string) => world.tree.group(group)!.memory;

test("on estimates alone, a group over its soft limit queues new queries, and running ones end", () => {
  const world = new World(`a soft=${4 * GB} memory=${GB}`);
  assert.is(world.askAll("a1 a2 a3 a4 a5 a6"), "rrrrqq");
  assert.is(world.ticket("a5").fullLimit, "soft_max_memory");
  assert.is(world.end("a1"), "a5");
  assert.is(world.end("a2"), "a6");
  assert.is(world.end("a3"), "");
  assert.is(memoryOf(world, "a"), 3 * GB);
});

test("an estimate of 1 GB that turns out as 10 MB is corrected before the next admission", () => {
  const world = new World(`a soft=${2 * GB} memory=${GB}`);
  assert.is(world.askAll("a1 a2 a3"), "rrq");
  assert.is(measure(world, "a1", 10 * MB), "a3");
  assert.ok(world.ticket("a3").memory < 12.5 * MB, String(world.ticket("a3").memory));
  assert.ok(world.ticket("a3").memory >= 10 * MB);
});

test("what a query is seen to have counts, if it is more than was thought", () => {
  const world = new World(`top soft=${GB}; a<top memory=${MB}; b<top memory=${MB}`);
  assert.is(world.askAll("a1 b1"), "rr");
  assert.is(measure(world, "a1", 2 * GB), "");
  assert.is(world.askAll("a2 b2"), "qq");
  assert.is(world.ticket("b2").fullGroup!.name, "top");
  // The next of its group is taken to be as large, and nobody runs beside that one.
  assert.is(world.end("a1"), "a2");
  assert.is(measure(world, "a2", MB), "");
  assert.is(world.end("a2"), "b2");
});

test("memory that other workers use counts", () => {
  const world = new World(`a soft=${GB} memory=${MB}`);
  world.tree.setMemoryElsewhere(world.tree.group("a")!, GB, world.now);
  assert.is(world.ask("a1"), "queued");
  world.tree.setMemoryElsewhere(world.tree.group("a")!, GB - 1, world.now);
  assert.is(world.drain(), "a1");
});

test("the estimate is what nine of ten queries stay below, and late ones count more", () => {
  const world = new World(`a memory=${GB}`);
  const run = (bytes: number) => {
    world.ask("a1");
    measure(world, "a1", bytes);
    world.end("a1");
  };
  const estimate = () => world.tree.group("a")!.estimate;
  for (let n = 0; n < 100; n++) run(n % 20 === 0 ? GB : 20 * MB);
  assert.ok(estimate() >= 20 * MB && estimate() < 25 * MB, `${estimate() / MB} MB`);
  for (let n = 0; n < 30; n++) run(200 * MB);
  assert.ok(estimate() >= 200 * MB && estimate() < 250 * MB, `${estimate() / MB} MB`);
  for (let n = 0; n < 300; n++) run(30 * MB);
  assert.ok(estimate() >= 30 * MB && estimate() < 40 * MB, `${estimate() / MB} MB`);
});

test("a query counts once, by its peak, whatever often it is measured", () => {
  const world = new World("a");
  world.askAll("a1 a2");
  for (let n = 0; n < 1000; n++) measure(world, "a1", 10 * MB);
  measure(world, "a2", GB);
  // Of two queries the larger one: the other has not been counted a thousand times.
  assert.ok(world.tree.group("a")!.estimate >= GB);
  measure(world, "a1", 3 * GB);
  measure(world, "a1", 10 * MB);
  assert.ok(world.tree.group("a")!.estimate >= 3 * GB);
});

test("a history of millions of queries keeps its sense", () => {
  const world = new World("a");
  for (let n = 0; n < 50_000; n++) {
    world.ask("a1");
    measure(world, "a1", n < 25_000 ? GB : 50 * MB);
    world.end("a1");
  }
  const { estimate } = world.tree.group("a")!;
  assert.ok(estimate >= 50 * MB && estimate < 63 * MB, `${estimate / MB} MB`);
});

test("sums return to nothing", () => {
  const world = new World(`top soft=${GB}; a<top memory=${3 * MB}; b<top memory=${7 * MB}`);
  world.askAll("a1 a2 b1 b2");
  measure(world, "a1", 5 * MB + 1);
  measure(world, "b1", 9 * MB + 3);
  for (const client of ["a1", "b2", "b1", "a2"]) world.end(client);
  assert.equal(["top", "a", "b"].map((group) => memoryOf(world, group)), [0, 0, 0]);
});

test.run();
