// The election over a store whose answers can be late or lost, with a clock of the test.

import { Election } from "../../services/budget/election.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";
import { TestStore } from "./test_store.ts";

const tests = suite("election");

class Clock {
  now = 1000;
  readonly read = () => this.now;
}

function candidate(store: TestStore, clock: Clock, name: string, leastEpoch = () => 10) {
  const events: string[] = [];
  const election = new Election({
    store,
    name,
    clock: clock.read,
    leastEpoch,
    onElected: (epoch, past) => events.push(`elected ${epoch}${past === "ours" ? " (ours)" : ""}`),
    onDeposed: (reason) => events.push(`deposed: ${reason}`),
  });
  return { election, events };
}

/** A candidate with a store and a clock. */
function alone() {
  const store = new TestStore();
  const clock = new Clock();
  return { store, clock, a: candidate(store, clock, "a") };
}

/** And another one over the same store. */
function rivals() {
  const { store, clock, a } = alone();
  return { store, clock, a, b: candidate(store, clock, "b") };
}

/** Lets the time pass in small steps, in which all candidates do what is due. */
async function pass(clock: Clock, ms: number, ...elections: readonly Election[]) {
  for (let at = 0; at < ms; at += 100) {
    clock.now += 100;
    for (const election of elections) await election.tick().catch(() => {});
  }
}

tests("tick() claims a store that knows no leader, with the first epoch", async () => {
  const a = candidate(new TestStore(), new Clock(), "a");
  await a.election.tick();
  assert.equal(a.events, ["elected 10"]);
  assert.is(a.election.leading, true);
  assert.is(a.election.epoch, 10);
});

tests("tick() makes one of two candidates the leader, who keeps renewing", async () => {
  const { clock, a, b } = rivals();
  await Promise.all([a.election.tick(), b.election.tick()]);
  await pass(clock, 20_000, a.election, b.election);
  assert.equal([a.events, b.events], [["elected 10"], []]);
  assert.is(b.election.leading, false);
});

tests("tick() takes over a term after nothing was renewed for its length", async () => {
  const { clock, a, b } = rivals();
  await a.election.tick();
  await pass(clock, 5000, a.election, b.election);
  await pass(clock, 2400, b.election);
  assert.equal(b.events, []);
  await pass(clock, 1600, b.election);
  assert.equal(b.events, ["elected 11"]);
});

tests("leading is false after the time in which nothing was renewed, before any tick", async () => {
  const clock = new Clock();
  const a = candidate(new TestStore(), clock, "a");
  await a.election.tick();
  clock.now += 1999;
  assert.is(a.election.leading, true);
  clock.now += 1;
  assert.is(a.election.leading, false);
});

tests("a leader that slept over its term finds its successor and follows", async () => {
  const { clock, a, b } = rivals();
  await a.election.tick();
  await pass(clock, 5000, b.election);
  assert.equal(b.events, ["elected 11"]);
  await pass(clock, 3000, a.election, b.election);
  assert.equal(a.events, ["elected 10", "deposed: the term could not be renewed for 2000 ms"]);
  assert.is(b.election.leading, true);
});

tests("confirm() says no, and deposes, when another took over since", async () => {
  const { store, clock, a } = alone();
  const slow = candidate(store, new Clock(), "b");
  await a.election.tick();
  await slow.election.tick();
  // The follower's clock runs faster: by the leader's own clock its term has just begun.
  const fast = candidate(store, clock, "c");
  await fast.election.tick();
  const before = clock.now;
  clock.now += 3000;
  await fast.election.tick();
  clock.now = before;
  assert.equal(fast.events, ["elected 11"]);
  assert.is(await a.election.confirm(), false);
  assert.equal(a.events, [
    "elected 10",
    'deposed: another coordinator took over: "c" leads epoch 11',
  ]);
});

tests("confirm() begins a write of its own when a renewal is under way", async () => {
  const { store, a } = alone();
  await a.election.tick();
  let release = () => {};
  store.fate = () => new Promise((resolve) => release = () => resolve("done"));
  const first = a.election.confirm();
  await new Promise((resolve) => setTimeout(resolve, 0));
  const [second, third] = [a.election.confirm(), a.election.confirm()];
  const unblock = release;
  store.fate = () => "done";
  unblock();
  assert.equal(await Promise.all([first, second, third]), [true, true, true]);
  assert.is(store.log.filter((line) => line === "update leader").length, 2);
});

tests(
  "a renewal whose answer was lost is found again by its name, not taken for another's",
  async () => {
    const { store, clock, a } = alone();
    await a.election.tick();
    store.fate = (operation) => operation === "update" ? "untold" : "done";
    await pass(clock, 1000, a.election);
    store.fate = () => "done";
    await pass(clock, 5000, a.election);
    assert.equal(a.events, ["elected 10"]);
  },
);

tests("a claim whose answer was lost is followed by a claim of the next epoch", async () => {
  const { store, clock, a } = alone();
  store.fate = (operation) => operation === "create" ? "untold" : "done";
  await pass(clock, 1000, a.election);
  assert.equal(a.events, ["elected 11"]);
});

tests(
  "a leader without its store stops in time and leads again at once when it is back",
  async () => {
    const { store, clock, a } = alone();
    await a.election.tick();
    store.fate = () => "lost";
    await pass(clock, 1900, a.election);
    assert.is(a.election.leading, true);
    await pass(clock, 3000, a.election);
    assert.is(a.election.leading, false);
    store.fate = () => "done";
    await pass(clock, 600, a.election);
    assert.equal(a.events.at(-1), "elected 11 (ours)");
  },
);

tests("doubt() stops a leader until a renewal succeeded", async () => {
  const clock = new Clock();
  const a = candidate(new TestStore(), clock, "a");
  await a.election.tick();
  a.election.doubt();
  assert.is(a.election.leading, false);
  await a.election.tick();
  assert.is(a.election.leading, true);
  assert.equal(a.events, ["elected 10"]);
});

tests("resign() lets another lead at its next look, with a higher epoch", async () => {
  const { clock, a, b } = rivals();
  await a.election.tick();
  await b.election.tick();
  await a.election.resign();
  await pass(clock, 500, a.election, b.election);
  assert.equal(a.events, ["elected 10", "deposed: resigned"]);
  assert.equal(b.events, ["elected 11"]);
});

tests("promised() makes a leader lead again above what a worker has promised", async () => {
  const { clock, a } = alone();
  await a.election.tick();
  a.election.promised(10);
  assert.is(a.election.leading, true);
  a.election.promised(57);
  assert.is(a.election.leading, false);
  await pass(clock, 100, a.election);
  assert.equal(a.events, ["elected 10", "deposed: a worker follows epoch 57", "elected 58"]);
});

tests("promised() does not believe an epoch that no election can have reached", async () => {
  const a = candidate(new TestStore(), new Clock(), "a");
  await a.election.tick();
  a.election.promised(Number.MAX_SAFE_INTEGER);
  assert.is(a.election.leading, true);
});

// A nats-server came back without its files, and its coordinators began again with epochs that workers ignore.
tests("a leader whose key is lost leads again above its epoch, and nobody else does", async () => {
  const { store, clock, a, b } = rivals();
  await pass(clock, 2000, a.election, b.election);
  store.values.clear();
  await pass(clock, 20_000, a.election, b.election);
  assert.equal(a.events, [
    "elected 10",
    "deposed: the store has lost who leads",
    "elected 11 (ours)",
  ]);
  assert.equal(b.events, []);
});

tests("a follower of a lost key waits until its leader must have noticed", async () => {
  const { store, clock, a, b } = rivals();
  await pass(clock, 2000, a.election, b.election);
  store.values.clear();
  await pass(clock, 3900, b.election);
  assert.is(a.election.leading, false);
  assert.equal(b.events, []);
  await pass(clock, 800, b.election);
  assert.equal(b.events, ["elected 11"]);
  await pass(clock, 5000, a.election, b.election);
  assert.is(b.election.leading, true);
  assert.equal(a.events.slice(1), ["deposed: the term could not be renewed for 2000 ms"]);
});

tests(
  "a leader that lost the store for longer than its term comes before its followers",
  async () => {
    const store = new TestStore();
    const clock = new Clock();
    const b = candidate(store, clock, "b");
    const a = candidate(store, clock, "a");
    await pass(clock, 2000, a.election, b.election);
    store.values.clear();
    store.fate = () => "lost";
    await pass(clock, 10_000, b.election, a.election);
    store.fate = () => "done";
    await pass(clock, 10_000, b.election, a.election);
    assert.is(a.events.at(-1), "elected 11 (ours)");
    assert.equal(b.events, []);
  },
);

tests("a leader that was only heard of counts as one when the store has none", async () => {
  const { clock, a } = alone();
  a.election.heard({ epoch: Number.MAX_SAFE_INTEGER, name: "b" });
  a.election.heard({ epoch: 30, name: "b" });
  await pass(clock, 3900, a.election);
  assert.equal(a.events, []);
  await pass(clock, 800, a.election);
  assert.equal(a.events, ["elected 31"]);
});

tests("what a leader remembers is not the latest when another led after it", async () => {
  const { store, clock, a, b } = rivals();
  await pass(clock, 1000, a.election, b.election);
  await pass(clock, 5000, b.election);
  assert.equal(b.events, ["elected 11"]);
  await pass(clock, 2000, a.election, b.election);
  store.values.clear();
  await pass(clock, 10_000, a.election);
  assert.is(a.events.at(-1), "elected 12");
});

// Members of a cluster of nats-servers were killed, and what they had confirmed last was lost.
tests("a leader whose store has lost its newest writes takes over again", async () => {
  const { store, clock, a, b } = rivals();
  await pass(clock, 1000, a.election, b.election);
  const then = new Map(store.values);
  await pass(clock, 5000, a.election, b.election);
  store.rewind(then);
  await pass(clock, 10_000, a.election, b.election);
  assert.equal(a.events, [
    "elected 10",
    "deposed: the store has lost its newest writes",
    "elected 11 (ours)",
  ]);
  assert.equal(b.events, []);
});

for (const how of ["frozen", "resigned"]) {
  tests(
    `an earlier leader that finds its record again waits for the later one: ${how}`,
    async () => {
      const { store, clock, a, b } = rivals();
      await pass(clock, 1000, a.election);
      if (how === "resigned") await a.election.resign();
      const then = new Map(store.values);
      await pass(clock, 5000, b.election);
      assert.equal(b.events, ["elected 11"]);
      const later = candidate(store, clock, "a");
      await pass(clock, 1000, b.election, later.election);
      store.rewind(then);
      await pass(clock, 2900, later.election);
      assert.equal(later.events, []);
      assert.is(b.election.leading, false);
      await pass(clock, 1000, later.election);
      assert.equal(later.events, ["elected 12"]);
    },
  );
}

tests("an epoch is not given again that is lost with all that knew of it", async () => {
  const store = new TestStore();
  const clock = new Clock();
  const seconds = () => Math.floor(clock.now / 1000);
  const a = candidate(store, clock, "a", seconds);
  await a.election.tick();
  const then = new Map(store.values);
  const b = candidate(store, clock, "b", seconds);
  await pass(clock, 4000, b.election);
  assert.equal(b.events, ["elected 4"]);
  store.rewind(then);
  const c = candidate(store, clock, "c", seconds);
  await pass(clock, 4000, c.election);
  assert.equal(c.events, ["elected 8"]);
});

tests("what is no record of a leader is taken over after a term", async () => {
  const store = new TestStore();
  const clock = new Clock();
  await store.create("leader", new Uint8Array([0xc1]));
  const a = candidate(store, clock, "a");
  await pass(clock, 2500, a.election);
  assert.equal(a.events, []);
  await pass(clock, 1500, a.election);
  assert.equal(a.events, ["elected 10"]);
});

tests("at no moment two lead, whatever is lost, late or frozen", async () => {
  for (let seed = 1; seed <= 30; seed++) {
    const random = seededRandom(seed);
    const store = new TestStore();
    const clock = new Clock();
    store.fate = () => {
      const draw = random();
      return draw < 0.85 ? "done" : draw < 0.93 ? "untold" : "lost";
    };
    // As seconds are to elections: nobody who missed some begins below them.
    const leastEpoch = () => Math.floor(clock.now / 100);
    const all = ["a", "b", "c"].map((name) => candidate(store, clock, name, leastEpoch));
    const frozenUntil = [0, 0, 0];
    const epochs: number[] = [];
    let lostAt = 0;
    for (let step = 0; step < 2000; step++) {
      clock.now += Math.floor(random() * 100);
      // Once all know that there is a leader, and have known of the last one it was lost with.
      if (clock.now > 15_000 && clock.now - lostAt > 15_000 && random() < 0.01) {
        store.values.clear();
        lostAt = clock.now;
      }
      for (const [at, { election }] of all.entries()) {
        if (clock.now < frozenUntil[at]!) continue;
        if (random() < 0.002) frozenUntil[at] = clock.now + Math.floor(random() * 8000);
        if (random() < 0.001) election.doubt();
        await election.tick().catch(() => {});
      }
      const leading = all.filter(({ election }) => election.leading);
      assert.ok(leading.length <= 1, `seed ${seed}, step ${step}: ${leading.length} lead`);
      const epoch = leading[0]?.election.epoch;
      if (epoch && epoch !== epochs.at(-1)) epochs.push(epoch);
    }
    assert.ok(epochs.length > 0, `seed ${seed}: nobody ever led`);
    assert.equal(epochs, [...epochs].sort((x, y) => x - y), `seed ${seed}`);
    const elected = all.flatMap(({ events }) => events.filter((e) => e.startsWith("elected")));
    assert.is(new Set(elected).size, elected.length, `seed ${seed}: an epoch with two leaders`);
  }
});

tests.run();
