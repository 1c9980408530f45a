// What is kept of presence and of named backends, and the rule of a host that was started again.

import { Sightings } from "../../services/budget/sightings.ts";
import type { Presence } from "../../shared/bus/mod.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("sightings");

function presence(id: number, host: string, boot: string, more: Partial<Presence> = {}): Presence {
  return {
    id,
    incarnation: 1,
    host,
    boot,
    pid: 100 + id,
    state: "ready",
    addresses: [],
    clients: 0,
    servers: 0,
    configMark: "",
    runtime: "",
    ...more,
  };
}

function pidBytes(...pids: number[]): Uint8Array {
  const bytes = new Uint8Array(pids.length * 4);
  pids.forEach((pid, at) => new DataView(bytes.buffer).setUint32(at * 4, pid));
  return bytes;
}

const named = (list: readonly { readonly worker: number }[]) => list.map(({ worker }) => worker);

tests("heardSince() names who is there, by presence or backends, and nobody who left", () => {
  const sightings = new Sightings();
  for (const id of [1, 2, 3]) sightings.onPresence(presence(id, "a", "x"), id);
  sightings.onBackends({ worker: 4, incarnation: 1, leaves: [] }, 4);
  sightings.onPresence(presence(3, "a", "x", { state: "gone" }), 5);
  assert.equal(named(sightings.heardSince(2)), [2, 4]);
});

tests("onBackends() sets the leaves it names and keeps the others", () => {
  const sightings = new Sightings();
  const from = { worker: 7, incarnation: 1 };
  assert.is(sightings.namedAt(7, 1), -Infinity);
  sightings.onBackends({ ...from, leaves: [{ leaf: "a", pids: pidBytes(1, 70_000) }] }, 5);
  sightings.onBackends({ ...from, leaves: [{ leaf: "b", pids: pidBytes(2) }] }, 6);
  assert.equal([...sightings.pidsOf(7, 1)].map(([leaf, pids]) => [leaf, ...pids]), [
    ["a", 1, 70_000],
    ["b", 2],
  ]);
  sightings.onBackends({ ...from, leaves: [{ leaf: "a", pids: pidBytes() }] }, 7);
  assert.equal([...sightings.pidsOf(7, 1).keys()], ["b"]);
  assert.is(sightings.namedAt(7, 1), 7);
  assert.is(sightings.pidsOf(7, 2).size, 0);
});

tests("ofEarlierBoots() names the silent workers of a host that is heard with another boot", () => {
  const sightings = new Sightings();
  sightings.onPresence(presence(1, "a", "first"), 0);
  sightings.onPresence(presence(2, "a", "first"), 1000);
  sightings.onPresence(presence(3, "b", "other"), 1000);
  assert.equal(sightings.ofEarlierBoots(2000), []);
  for (const now of [4000, 30_000, 60_999]) {
    sightings.onPresence(presence(4, "a", "second"), now);
    assert.equal(sightings.ofEarlierBoots(now), [], `${now}: it may be about to speak`);
  }
  sightings.onPresence(presence(4, "a", "second"), 61_000);
  assert.equal(named(sightings.ofEarlierBoots(61_000)), [1, 2]);
  // A host that is heard no more proves nothing.
  assert.equal(sightings.ofEarlierBoots(65_000), []);
  sightings.onPresence(presence(4, "a", "second"), 65_000);
  sightings.forget(1, 1);
  sightings.forget(2, 1);
  assert.equal(sightings.ofEarlierBoots(65_000), []);
  assert.equal(sightings.namesakes(65_000), []);
});

// Two machines had one name; the workers of the one that fell silent for three seconds lost their slots.
tests("ofEarlierBoots() takes nobody for gone where two machines have one name", () => {
  const sightings = new Sightings();
  for (let now = 0; now < 10_000; now += 1000) {
    sightings.onPresence(presence(1, "a", "one"), now);
    sightings.onPresence(presence(2, "a", "two"), now + 500);
    assert.equal(sightings.ofEarlierBoots(now + 500), []);
  }
  assert.equal(sightings.namesakes(10_000), [{ host: "a", boots: ["one", "two"] }]);
  for (let now = 10_000; now < 200_000; now += 1000) {
    sightings.onPresence(presence(2, "a", "two"), now);
    assert.equal(sightings.ofEarlierBoots(now), [], `${now}`);
  }
  assert.equal(sightings.namesakes(200_000), [], "only one is heard");
  // Nor when one of the two is started again, whichever it was, and its workers have new ids.
  sightings.forget(2, 1);
  for (let now = 200_000; now < 300_000; now += 1000) {
    sightings.onPresence(presence(3, "a", "three"), now);
    assert.equal(sightings.ofEarlierBoots(now), [], `${now}`);
  }
});

tests("ofEarlierBoots() goes by reports and named backends as well", () => {
  const sightings = new Sightings();
  sightings.onPresence(presence(1, "a", "one"), 0);
  sightings.onPresence(presence(2, "a", "two"), 1000);
  sightings.onReport({ worker: 1, incarnation: 1 }, 2000);
  assert.equal(sightings.namesakes(2000).length, 1);
  const restarted = new Sightings();
  restarted.onPresence(presence(1, "a", "one"), 0);
  restarted.onBackends({ worker: 1, incarnation: 1, leaves: [] }, 20_000);
  restarted.onReport({ worker: 9, incarnation: 1 }, 20_000);
  restarted.onPresence(presence(2, "a", "two"), 79_000);
  assert.equal(restarted.ofEarlierBoots(79_000), []);
  restarted.onPresence(presence(2, "a", "two"), 80_000);
  assert.equal(named(restarted.ofEarlierBoots(80_000)), [1]);
});

tests("ofEarlierBoots() knows the places that were saved", () => {
  const sightings = new Sightings();
  sightings.setPlace(1, 1, { host: "a", boot: "first" }, 0);
  for (const now of [100, 9999]) {
    sightings.onPresence(presence(2, "a", "second"), now);
    assert.equal(sightings.ofEarlierBoots(now), [], "it may be about to speak");
  }
  sightings.onPresence(presence(2, "a", "second"), 10_000);
  assert.equal(named(sightings.ofEarlierBoots(10_000)), [1]);
});

tests("a worker that does not say its boot is of none", () => {
  const sightings = new Sightings();
  sightings.onPresence(presence(1, "a", ""), 0);
  sightings.onPresence(presence(2, "a", "x"), 0);
  sightings.onPresence(presence(1, "a", ""), 1000);
  assert.equal(sightings.namesakes(1000), []);
  sightings.onPresence(presence(2, "a", "x"), 100_000);
  assert.equal(sightings.ofEarlierBoots(100_000), []);
  assert.is(sightings.placeOf(1, 1), null);
});

tests("left names the incarnations that said good-bye, until they are forgotten", () => {
  const sightings = new Sightings();
  sightings.onPresence(presence(1, "a", "x"), 0);
  sightings.onPresence(presence(2, "a", "x", { state: "gone" }), 0);
  assert.equal([...sightings.left], ["2.1"]);
  sightings.forget(2, 1);
  assert.equal([...sightings.left], []);
});

tests("prune() drops what was not seen for an hour and is not charged", () => {
  const sightings = new Sightings();
  for (const id of [1, 2, 3]) sightings.onPresence(presence(id, "a", "x"), 0);
  sightings.onBackends({ worker: 3, incarnation: 1, leaves: [] }, 3_000_000);
  sightings.prune(3_600_000, (worker) => worker === 2);
  assert.equal([1, 2, 3].map((id) => sightings.placeOf(id, 1)?.host ?? null), [null, "a", "a"]);
  sightings.prune(7_200_000, () => false);
  assert.equal([1, 2, 3].map((id) => sightings.placeOf(id, 1)), [null, null, null]);
});

tests.run();
