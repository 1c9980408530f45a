// The timer heap, against a list that is sorted by hand.

import { assert, seededRandom, suite } from "../support/harness.ts";
import { type Timer, TimerHeap } from "../../shared/sys/timers.ts";

const test = suite("sys: timers");

test("TimerHeap fires in the order of due times, equal ones in the order they were made", () => {
  const heap = new TimerHeap();
  const fired: string[] = [];
  for (const [name, dueMs] of [["c", 30], ["a", 10], ["b1", 20], ["b2", 20], ["b3", 20]] as const) {
    heap.add(dueMs, 0, () => fired.push(name));
  }
  assert.is(heap.nextDueMs, 10);
  heap.fireDue(9);
  assert.equal(fired, []);
  heap.fireDue(20);
  assert.equal(fired, ["a", "b1", "b2", "b3"]);
  heap.fireDue(1000);
  assert.equal(fired, ["a", "b1", "b2", "b3", "c"]);
  assert.is(heap.nextDueMs, Infinity);
  assert.is(heap.size, 0);
});

test("Timer.cancel() is idempotent and works before, within and after its callback", () => {
  const heap = new TimerHeap();
  const fired: string[] = [];
  const never = heap.add(10, 0, () => fired.push("never"));
  assert.ok(never.active);
  never.cancel();
  never.cancel();
  assert.not(never.active);
  const repeating: Timer = heap.add(10, 10, () => {
    fired.push("once");
    repeating.cancel();
  });
  const later = heap.add(10, 0, () => fired.push("later"));
  heap.add(9, 0, () => later.cancel());
  heap.fireDue(100);
  repeating.cancel();
  assert.equal(fired, ["once"]);
  assert.is(heap.size, 0);
});

test("TimerHeap.fireDue() leaves timers that its callbacks make for the next round", () => {
  const heap = new TimerHeap();
  let fired = 0;
  const again = () => {
    fired++;
    heap.add(0, 0, again);
  };
  heap.add(0, 0, again);
  heap.fireDue(5);
  assert.is(fired, 1);
  heap.fireDue(5);
  assert.is(fired, 2);
});

test("TimerHeap repeats a timer at its interval and skips what was missed", () => {
  const heap = new TimerHeap();
  let fired = 0;
  heap.add(10, 10, () => fired++);
  heap.fireDue(10);
  heap.fireDue(20);
  assert.is(fired, 2);
  assert.is(heap.nextDueMs, 30);
  heap.fireDue(95);
  assert.is(fired, 3);
  assert.is(heap.nextDueMs, 105);
});

test("TimerHeap agrees with a sorted list over 20,000 random steps", () => {
  const seed = 77;
  const random = seededRandom(seed);
  const heap = new TimerHeap();
  let model: { timer: Timer; id: number }[] = [];
  let nextId = 0;
  let now = 0;
  const fired: number[] = [];
  for (let step = 0; step < 20_000; step++) {
    const choice = random();
    if (choice < 0.5) {
      const id = nextId++;
      const timer = heap.add(now + Math.floor(random() * 50), 0, () => fired.push(id));
      model.push({ timer, id });
    } else if (choice < 0.8 && model.length > 0) {
      const [victim] = model.splice(Math.floor(random() * model.length), 1);
      victim!.timer.cancel();
    } else {
      now += Math.floor(random() * 10);
      fired.length = 0;
      const due = model.filter(({ timer }) => timer.dueMs <= now);
      due.sort((a, b) => a.timer.dueMs - b.timer.dueMs || a.id - b.id);
      model = model.filter(({ timer }) => timer.dueMs > now);
      heap.fireDue(now);
      assert.equal(fired, due.map(({ id }) => id), `seed ${seed}, step ${step}`);
    }
    assert.is(heap.size, model.length);
  }
});

test.run();
