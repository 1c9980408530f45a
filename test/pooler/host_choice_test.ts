// Which host of a list is taken: in turn or the same one, and what becomes of hosts that fail.

import { HostChoice, type LoadBalance } from "../../services/pooler/plane/host_choice.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("choice of a host");
const longestMs = 15_000;

/** A list of hosts a, b, c, ... with a clock. */
class World {
  hosts: readonly string[];
  readonly mode: LoadBalance;
  readonly choice = new HostChoice(
    () => ({ hosts: this.hosts, mode: this.mode, longestMs, now: this.now }),
    () => 0,
  );
  now = 1000;

  constructor(hosts: string, mode: LoadBalance = "round-robin") {
    this.hosts = [...hosts];
    this.mode = mode;
  }

  /** The hosts of so many connections in a row; a probe is in capitals. */
  take(count: number, mayProbe = true): string {
    let taken = "";
    for (let i = 0; i < count; i++) {
      const { host, isProbe } = this.choice.take(mayProbe);
      taken += isProbe ? host.toUpperCase() : host;
    }
    return taken;
  }

  fail(host: string): boolean {
    return this.choice.fail(host);
  }
}

test("round-robin takes one host after the other, disable always the same", () => {
  assert.is(new World("abc").take(7), "abcabca");
  assert.is(new World("abc", "disable").take(4), "aaaa");
  assert.is(new World("a").take(3), "aaa");
});

test("round-robin leaves out a host that has failed, and probes it once when its pause is over", () => {
  const world = new World("abc");
  assert.is(world.take(2), "ab");
  assert.is(world.fail("b"), false);
  assert.is(world.take(4), "caca");
  world.now += 25;
  assert.is(world.take(2, false), "ca", "nothing else could be opened beside it");
  assert.is(world.take(5), "Bcaca");
  world.fail("b");
  world.now += 49;
  assert.not.match(world.take(6), /b/i);
  world.now += 1;
  assert.match(world.take(3), /B/);
  world.choice.succeed("b");
  assert.is(world.take(6).split("").sort().join(""), "aabbcc");
});

test("a probe that never ends is made again after the longest pause", () => {
  const world = new World("ab");
  world.fail("a");
  world.now += 25;
  assert.is(world.take(3), "Abb");
  world.now += longestMs - 1;
  assert.is(world.take(2), "bb");
  world.now += 1;
  assert.match(world.take(2), /A/);
});

test("disable goes on to the next host when a connection fails, and stays there", () => {
  const world = new World("abc", "disable");
  assert.is(world.take(3), "aaa");
  // All three were under way: they are one failure of the one host.
  for (let i = 0; i < 3; i++) assert.is(world.fail("a"), false);
  assert.is(world.take(3), "bbb");
  world.now += 1_000_000;
  assert.is(world.take(3), "bbb", "no way back before this one fails");
  assert.is(world.fail("b"), false);
  assert.is(world.take(2), "cc");
  world.choice.succeed("a");
  assert.is(world.take(1), "c");
});

test("a pause is due when all hosts have failed, once a round", () => {
  for (const mode of ["round-robin", "disable"] as const) {
    const world = new World("abc", mode);
    for (let round = 0; round < 3; round++) {
      let seen = "";
      for (let i = 0; i < 3; i++) {
        const host = world.take(1);
        seen += host;
        assert.is(world.fail(host), i === 2, `${mode}: ${round} ${i}`);
      }
      assert.is(seen.split("").sort().join(""), "abc", mode);
    }
    world.choice.succeed("b");
    assert.match(world.take(3), /^b+$/, mode);
  }
});

test("a single host that fails is a pause each time", () => {
  const world = new World("a");
  for (let i = 0; i < 3; i++) {
    assert.is(world.take(1), "a");
    assert.is(world.fail("a"), true);
  }
});

test("forget() begins anew, with another list", () => {
  const world = new World("ab", "disable");
  world.fail("a");
  assert.is(world.take(1), "b");
  world.hosts = ["a", "c"];
  world.choice.forget();
  assert.is(world.take(1), "a");
});

test.run();
