// What is known of names of servers, for how long, and when it is asked for again: with a clock and a name server
// of the tests' own.

import { Names } from "../../services/pooler/plane/names.ts";
import type { NameAnswer } from "../../shared/host/mod.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("names of servers");
const addresses = (...list: string[]): NameAnswer => ({
  addresses: list,
  reason: "",
  isTemporary: false,
});
const noName: NameAnswer = { addresses: [], reason: "no such name", isTemporary: false };
const silence: NameAnswer = { addresses: [], reason: "timeout", isTemporary: true };

class World {
  now = 100_000;
  maxMs = 15_000;
  failedMs = 15_000;
  /** What was asked and is not answered. */
  readonly asked: { host: string; done: (answer: NameAnswer) => void }[] = [];
  readonly changes: string[] = [];
  /** What each call of `resolve` was told, in the order of the answers. */
  readonly found: string[] = [];
  readonly names = new Names({
    ask: (host, done) => this.asked.push({ host, done }),
    now: () => this.now,
    limits: () => ({ maxMs: this.maxMs, failedMs: this.failedMs }),
    onAddresses: (host, list) => this.changes.push(`${host}=${list.join(",")}`),
  });

  resolve(host: string): void {
    this.names.resolve(host, (list, reason) => this.found.push(list.join(",") || reason));
  }

  answer(answer: NameAnswer): void {
    const next = this.asked.shift();
    assert.ok(next !== undefined, "nothing was asked");
    next!.done(answer);
  }

  take(): string[] {
    return this.found.splice(0);
  }
}

test("resolve() asks once for all who wait, and answers from memory while it holds", () => {
  const world = new World();
  for (let i = 0; i < 3; i++) world.resolve("db");
  assert.is(world.asked.length, 1);
  assert.is(world.names.pending, 1);
  world.answer(addresses("10.0.0.1"));
  assert.equal(world.take(), ["10.0.0.1", "10.0.0.1", "10.0.0.1"]);
  world.now += 14_999;
  world.resolve("db");
  assert.equal(world.take(), ["10.0.0.1"]);
  assert.is(world.asked.length, 0);
  world.now += 1;
  world.resolve("db");
  assert.equal(world.take(), []);
  world.answer(addresses("10.0.0.2"));
  assert.equal(world.take(), ["10.0.0.2"]);
  assert.equal(world.changes, ["db=10.0.0.1", "db=10.0.0.2"]);
});

test("resolve() asks nobody about numeric addresses", () => {
  const world = new World();
  for (const host of ["10.0.0.1", "::1"]) world.resolve(host);
  assert.equal(world.take(), ["10.0.0.1", "::1"]);
  assert.is(world.asked.length + world.names.known.size, 0);
});

test("resolve() remembers for dns_nxdomain_ttl that there is no such name", () => {
  const world = new World();
  world.failedMs = 5000;
  world.resolve("db");
  world.answer(noName);
  world.now += 4999;
  world.resolve("db");
  assert.equal(world.take(), ["no such name", "no such name"]);
  world.now += 1;
  world.resolve("db");
  world.answer(addresses("10.0.0.1"));
  assert.equal(world.take(), ["10.0.0.1"]);
});

test("the last addresses hold on while nobody can be asked, and not when the name is gone", () => {
  const world = new World();
  world.resolve("db");
  world.answer(addresses("10.0.0.1"));
  world.now += 15_000;
  world.resolve("db");
  world.answer(silence);
  assert.equal(world.take(), ["10.0.0.1", "10.0.0.1"]);
  world.now += 15_000;
  world.resolve("db");
  world.answer(noName);
  assert.equal(world.take(), ["no such name"]);
  // Nobody is moved away from where they are for want of an answer.
  assert.equal(world.changes, ["db=10.0.0.1"]);
  world.now += 15_000;
  world.resolve("db");
  world.answer(silence);
  assert.equal(world.take(), ["timeout"]);
});

test("sweep() asks again, ahead of time, for names in use", () => {
  const world = new World();
  world.resolve("db");
  world.answer(addresses("10.0.0.1"));
  world.take();
  for (let second = 0; second < 11; second++) {
    world.names.keep("db");
    world.names.sweep();
    assert.is(world.asked.length, 0, `${second} s`);
    world.now += 1000;
  }
  world.now += 250;
  world.names.sweep();
  world.names.sweep();
  assert.is(world.asked.length, 1);
  world.resolve("db");
  assert.equal(world.take(), ["10.0.0.1"], "meanwhile what is known still holds");
  world.answer(addresses("10.0.0.2"));
  world.resolve("db");
  assert.equal(world.take(), ["10.0.0.2"]);
});

test("sweep() forgets names that nobody uses any more", () => {
  const world = new World();
  world.resolve("db");
  world.answer(addresses("10.0.0.1"));
  world.now += 15_000;
  world.names.sweep();
  // Who asked was the first use; after that there was none.
  world.answer(addresses("10.0.0.1"));
  assert.is(world.names.known.size, 1);
  world.now += 15_000;
  world.names.sweep();
  assert.is(world.asked.length, 0);
  assert.is(world.names.known.size, 0);
});

test("connections are spread over the addresses, those that were late come last for a while", () => {
  const world = new World();
  world.resolve("db");
  world.answer(addresses("10.0.0.2", "10.0.0.1"));
  world.resolve("db");
  world.resolve("db");
  assert.equal(world.take(), ["10.0.0.1,10.0.0.2", "10.0.0.2,10.0.0.1", "10.0.0.1,10.0.0.2"]);
  world.names.note("db", "10.0.0.2", ["10.0.0.1"]);
  for (let i = 0; i < 3; i++) world.resolve("db");
  assert.equal(world.take(), Array(3).fill("10.0.0.2,10.0.0.1"));
  world.names.note("db", "10.0.0.1", []);
  for (let i = 0; i < 2; i++) world.resolve("db");
  assert.equal(world.take().sort(), ["10.0.0.1,10.0.0.2", "10.0.0.2,10.0.0.1"]);
  world.names.note("db", null, ["10.0.0.1", "10.0.0.2"]);
  world.resolve("db");
  assert.is(world.take()[0]!.split(",").length, 2);
});

test("with times of 0 each connection asks anew, several at once only once", () => {
  const world = new World();
  world.maxMs = 0;
  for (let i = 1; i <= 3; i++) {
    world.resolve("db");
    world.resolve("db");
    assert.is(world.asked.length, 1);
    world.answer(addresses(`10.0.0.${i}`));
    assert.equal(world.take(), [`10.0.0.${i}`, `10.0.0.${i}`]);
  }
});

test.run();
