// Threads that sit in epoll_wait: every message arrives, in order, both ways; wake-ups are never
// lost; failures are told; a blocked thread can be ended.

import { assert, suite, until } from "../support/harness.ts";
import { spawnThread, type Thread, threadPort } from "../../shared/sys/mod.ts";
import type { Order, Report } from "./thread_child.ts";

const test = suite("sys: threads");

interface Plane {
  readonly thread: Thread;
  /** What the thread has told, in order. */
  readonly reports: Report[];
  readonly errors: Error[];
  order(order: Order): void;
}

/** Starts thread_child.ts and, unless told otherwise, waits for its wake-up descriptor. */
async function withPlane(body: (plane: Plane) => Promise<void>, early: Order[] = []) {
  const thread = spawnThread(new URL("./thread_child.ts", import.meta.url), "plane-test-name");
  const plane: Plane = {
    thread,
    reports: [],
    errors: [],
    order: (order) => thread.post(order),
  };
  thread.onMessage = (message) => {
    const report = message as Report;
    if (report.kind === "ready") thread.wakeFd = report.wakeFd;
    else plane.reports.push(report);
  };
  thread.onError = (error) => plane.errors.push(error);
  for (const order of early) plane.order(order);
  try {
    await until("the thread", () => thread.wakeFd >= 0 || plane.errors.length > 0);
    await body(plane);
  } finally {
    thread.terminate();
  }
}

function echoes(plane: Plane): number[] {
  return plane.reports.flatMap((report) => report.kind === "echo" ? [report.value] : []);
}

const COUNT = 10_000;
const inOrder = Array.from({ length: COUNT }, (_, i) => i);

test("Thread.post() delivers 10,000 messages, posted in a burst, in order, and so do the answers", () =>
  withPlane(async (plane) => {
    for (const value of inOrder) plane.order({ kind: "echo", value });
    await until("the answers", () => plane.reports.length >= COUNT);
    assert.equal(echoes(plane), inOrder);
  }));

test("Thread.post() delivers 10,000 messages, posted in small groups, in order", () =>
  withPlane(async (plane) => {
    for (let next = 0; next < COUNT;) {
      for (let i = 0; i < 40 && next < COUNT; i++) plane.order({ kind: "echo", value: next++ });
      // Let the thread fall asleep in between, now and then.
      await new Promise((resolve) => setTimeout(resolve, next % 400 === 0 ? 1 : 0));
    }
    await until("the answers", () => plane.reports.length >= COUNT);
    assert.equal(echoes(plane), inOrder);
  }));

test("Thread.post() wakes a sleeping thread each time: 500 round trips, none lost", () =>
  withPlane(async (plane) => {
    const times: number[] = [];
    for (let value = 0; value < 500; value++) {
      const start = performance.now();
      await new Promise<void>((resolve) => {
        plane.thread.onMessage = () => resolve();
        plane.order({ kind: "echo", value });
      });
      times.push(performance.now() - start);
    }
    times.sort((a, b) => a - b);
    console.log(
      `  round trip: median ${times[250]!.toFixed(3)} ms, p99 ${times[495]!.toFixed(3)} ms`,
    );
  }));

test("Thread.post() before the thread has told its wake-up descriptor is delivered", () =>
  withPlane(async (plane) => {
    await until("the answers", () => plane.reports.length >= 3);
    assert.equal(echoes(plane), [1, 2, 3]);
  }, [1, 2, 3].map((value) => ({ kind: "echo", value }))));

test("ThreadPort.post() is delivered although the thread blocks in the kernel right after", () =>
  withPlane(async (plane) => {
    plane.order({ kind: "post", count: COUNT });
    await until("the messages", () => plane.reports.length >= COUNT);
    assert.equal(echoes(plane), inOrder);
  }));

test("ThreadPort.post() from a timer, with nobody posting to the thread, is delivered", () =>
  withPlane(async (plane) => {
    plane.order({ kind: "tick", count: 20 });
    await until("the ticks", () => plane.reports.length >= 20);
    assert.equal(echoes(plane), inOrder.slice(0, 20));
  }));

test("Reactor.onWake comes after the messages that were posted before the signal", () =>
  withPlane(async (plane) => {
    for (let round = 1; round <= 50; round++) {
      for (let i = 0; i < 20; i++) plane.order({ kind: "count" });
      plane.order({ kind: "tellOnWake" });
      await until("the report", () => plane.reports.length >= round);
      const last = plane.reports.at(-1)!;
      assert.equal(last, { kind: "echo", value: 20 * round });
    }
  }));

test("Thread.post() refuses what cannot be copied, and later messages still arrive", () =>
  withPlane(async (plane) => {
    assert.throws(() => plane.thread.post(() => {}));
    plane.order({ kind: "echo", value: 7 });
    await until("the answer", () => plane.reports.length >= 1);
    assert.equal(echoes(plane), [7]);
  }));

test("Thread shows its name to ps", () =>
  withPlane(async (plane) => {
    plane.order({ kind: "name" });
    await until("the name", () => plane.reports.length >= 1);
    assert.equal(plane.reports[0], { kind: "name", name: "plane-test-name" });
  }));

for (const where of ["message", "timer", "event"] as const) {
  test(`Thread.onError tells an exception in a callback (${where}), once`, () =>
    withPlane(async (plane) => {
      plane.order({ kind: "fail", where });
      await until("the error", () => plane.errors.length > 0);
      assert.is(plane.errors[0]!.message, 'run the thread "plane-test-name": Error: a bug');
      assert.match((plane.errors[0]!.cause as Error).stack!, /thread_child\.ts/);
      // It is gone: nothing is sent to it any more, and nothing breaks.
      plane.order({ kind: "echo", value: 1 });
      assert.is(plane.thread.wakeFd, -1);
      assert.is(plane.errors.length, 1);
    }));
}

test("Thread.onError tells a module that cannot be loaded", async () => {
  const thread = spawnThread(new URL("./no_such_module.ts", import.meta.url), "nothing");
  let error: Error | null = null;
  thread.onError = (told) => error = told;
  thread.post("early");
  const told: Error = await until("the error", () => error);
  assert.match(told.message, /^run the thread "nothing": /);
});

test("Thread.terminate() ends a thread that waits in the kernel, and is idempotent", () =>
  withPlane(async (plane) => {
    const { thread, reports } = plane;
    plane.order({ kind: "tick", count: 1_000_000 });
    await until("signs of life", () => reports.length > 0);
    thread.terminate();
    thread.terminate();
    assert.is(thread.wakeFd, -1);
    const before = reports.length;
    await new Promise((resolve) => setTimeout(resolve, 30));
    assert.is(reports.length, before);
    thread.post({ kind: "echo", value: 1 });
    thread.wakeFd = 0;
    assert.is(thread.wakeFd, -1);
  }));

test("Thread.wakeFd stays harmless after the thread has closed its own descriptor", () =>
  withPlane(async (plane) => {
    plane.order({ kind: "close" });
    await until("the end of the loop", () => plane.reports.length >= 1);
    // The number may belong to anything by now; the thread still answers, as its loop has ended.
    plane.order({ kind: "echo", value: 5 });
    await until("the answer", () => plane.reports.length >= 2);
    assert.equal(echoes(plane), [0, 5]);
  }));

test("threadPort() on the main thread is refused", () => {
  assert.throws(() => threadPort(), /this is the main thread/);
});

test.run();
