// Tests of the order in which the test runner starts files, by files that are nothing but their names.

import { assert, seededRandom, suite } from "./harness.ts";
import { Schedule } from "./schedule.ts";
import type { Load } from "./test_file.ts";

const test = suite("Schedule");

interface Job {
  readonly file: { readonly path: string; readonly limitMs: number; readonly load: Load };
}

function job(load: Load, limitMs: number): Job {
  return { file: { path: `${load[0]}${limitMs}`, limitMs, load } };
}

const c = (limitMs: number) => job("computes", limitMs);
const w = (limitMs: number) => job("waits", limitMs);
const alone = (limitMs: number) => job("alone", limitMs);

/** Takes all that may start now. */
function startAll(schedule: Schedule<Job>): Job[] {
  const started: Job[] = [];
  for (let next = schedule.next(); next !== null; next = schedule.next()) started.push(next);
  return started;
}

function names(jobs: readonly Job[]): string {
  return jobs.map(({ file }) => file.path).join(" ");
}

test("next() starts as many files that compute as may, the longest first, and waiting ones beside them", () => {
  const schedule = new Schedule([c(1), w(5), c(3), w(9), c(2), w(7)], 2);
  const first = startAll(schedule);
  assert.is(names(first), "c3 c2 w9 w7");
  schedule.done(first[2]!);
  assert.is(names(startAll(schedule)), "w5");
  schedule.done(first[0]!);
  assert.is(names(startAll(schedule)), "c1");
});

test("next() gives waiting files the places that no file which computes wants", () => {
  const schedule = new Schedule([c(1), w(5), w(4), w(3), w(2), w(1)], 2);
  assert.is(names(startAll(schedule)), "c1 w5 w4 w3");
});

test("next() keeps the order of files with the same limit", () => {
  const schedule = new Schedule([c(60), c(60), c(60)].map((one, at) => ({ ...one, at })), 3);
  assert.equal([schedule.next()?.at, schedule.next()?.at, schedule.next()?.at], [0, 1, 2]);
});

test("next() starts one after another of all files when one may run", () => {
  const schedule = new Schedule([w(9), c(1), alone(5)], 1);
  const seen: Job[] = [];
  for (;;) {
    const started = startAll(schedule);
    if (started.length === 0) break;
    assert.is(started.length, 1);
    seen.push(started[0]!);
    schedule.done(started[0]!);
  }
  assert.is(names(seen), "c1 w9 a5");
});

test("next() starts what needs the machine for itself after all others are done, one at a time", () => {
  const schedule = new Schedule([alone(7), c(1), w(1), alone(8)], 2);
  const [one, other] = startAll(schedule);
  assert.is(names([one!, other!]), "c1 w1");
  schedule.done(one!);
  assert.is(schedule.next(), null);
  schedule.done(other!);
  const [first, ...more] = startAll(schedule);
  assert.is(first!.file.path, "a8");
  assert.is(more.length, 0);
  schedule.done(first!);
  assert.is(names(startAll(schedule)), "a7");
});

test("next() starts every file once, and never more than may run, whoever is done first", () => {
  const random = seededRandom(7);
  for (let round = 0; round < 200; round++) {
    const loads: Load[] = ["computes", "waits", "alone"];
    const jobs = Array.from(
      { length: Math.floor(random() * 30) },
      () => job(loads[Math.floor(random() * 3)]!, Math.floor(random() * 5)),
    );
    const atOnce = 1 + Math.floor(random() * 4);
    const schedule = new Schedule(jobs, atOnce);
    const running: Job[] = [];
    let started = 0;
    const count = (load: Load) => running.filter(({ file }) => file.load === load).length;
    do {
      const more = startAll(schedule);
      started += more.length;
      running.push(...more);
      assert.ok(count("computes") <= atOnce);
      assert.ok(running.length <= 3 * atOnce - 2);
      assert.ok(count("alone") === 0 || running.length === 1);
      if (running.length === 0) break;
      schedule.done(running.splice(Math.floor(random() * running.length), 1)[0]!);
    } while (started < jobs.length || running.length > 0);
    assert.is(started, jobs.length);
  }
});

test.run();
