// Who gets how many: fair shares, how fast slots move, what does not move, and caps that change.

import { assert, seededRandom, suite } from "../support/harness.ts";
import { chargedOf, Mesh, oneLeaf, rulesOf } from "./fixtures.ts";

const test = suite("ledger/ledger_shares");

const LEAF = "pool:a/b";

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

test("a worker that is alone gets what it wants, and some in advance", () => {
  const mesh = new Mesh(oneLeaf(20), 1);
  mesh.use(1, LEAF, 3);
  mesh.tick();
  assert.is(mesh.grantedTo(1, LEAF), 3 + 8);
});

test("a worker gets no more than the cap, whatever it wants", () => {
  const mesh = new Mesh(oneLeaf(5), 1);
  mesh.use(1, LEAF, 1000);
  mesh.ticks(3);
  assert.is(mesh.grantedTo(1, LEAF), 5);
  assert.is(mesh.tables.get(1)!.lease(LEAF).pending, false);
});

test("slots that another holds idle move within one report of each side", () => {
  const mesh = new Mesh(oneLeaf(20), 2);
  mesh.use(1, LEAF, 20);
  mesh.ticks(3);
  mesh.use(1, LEAF, 2);
  mesh.ticks(5);
  assert.equal(mesh.split(LEAF), [20, 0]);
  mesh.use(2, LEAF, 9);
  mesh.tick(50, false);
  assert.equal(mesh.split(LEAF), [11, 0], "lowered when the wish was seen");
  assert.is(mesh.tables.get(2)!.lease(LEAF).pending, true);
  mesh.tick(50, false);
  assert.equal(mesh.split(LEAF), [11, 9], "raised when they were closed");
});

test("slots that were granted in advance go before idle ones, and idle ones before those in use", () => {
  const mesh = new Mesh(oneLeaf(12), 4);
  mesh.use(1, LEAF, 4);
  mesh.use(2, LEAF, 4);
  mesh.use(3, LEAF, 4);
  mesh.ticks(3);
  const leases = [1, 2, 3].map((worker) => mesh.tables.get(worker)!.lease(LEAF));
  // 1 has closed two, 2 has two idle, 3 uses all of its own.
  leases[0]!.held = leases[0]!.wanted = 2;
  leases[1]!.wanted = 2;
  leases[1]!.idleMs = 100;
  for (const lease of leases) lease.touch();
  mesh.use(4, LEAF, 2);
  mesh.ticks(2);
  assert.equal(mesh.split(LEAF), [2, 4, 4, 2]);
  mesh.use(4, LEAF, 3);
  mesh.ticks(2);
  assert.equal(mesh.split(LEAF), [2, 3, 4, 3]);
});

test("of idle slots those that have been idle for longest go first", () => {
  const mesh = new Mesh(oneLeaf(12), 4);
  for (const worker of [1, 2, 3]) mesh.use(worker, LEAF, 4);
  mesh.ticks(3);
  for (const [worker, idleMs] of [[1, 10], [2, 3000], [3, 200]] as const) {
    const lease = mesh.tables.get(worker)!.lease(LEAF);
    lease.wanted = 1;
    lease.idleMs = idleMs;
  }
  mesh.use(4, LEAF, 5);
  mesh.ticks(2);
  assert.equal(mesh.split(LEAF), [4, 1, 2, 5]);
});

test("contending workers come to equal shares, and stay there", () => {
  const mesh = new Mesh(oneLeaf(20), 4);
  mesh.use(1, LEAF, 50);
  mesh.ticks(3);
  assert.equal(mesh.split(LEAF), [20, 0, 0, 0]);
  for (const worker of [2, 3, 4]) mesh.use(worker, LEAF, 50);
  mesh.ticks(100);
  assert.equal(mesh.split(LEAF), [5, 5, 5, 5]);
  mesh.takeGranted();
  mesh.ticks(100);
  assert.is(mesh.takeGranted(), 0);
});

test("shares that cannot be equal differ by one, and do not change all the time", () => {
  const mesh = new Mesh(oneLeaf(11), 3);
  for (const worker of [1, 2, 3]) mesh.use(worker, LEAF, 50);
  mesh.ticks(5);
  assert.equal(mesh.split(LEAF).sort(), [3, 4, 4]);
  mesh.takeGranted();
  mesh.ticks(100);
  assert.is(mesh.takeGranted(), 0);
});

test("where there are fewer slots than workers each has its turn", () => {
  const mesh = new Mesh(oneLeaf(2), 5);
  for (const worker of [1, 2, 3, 4, 5]) mesh.use(worker, LEAF, 3);
  const turns = [0, 0, 0, 0, 0];
  for (let n = 0; n < 200; n++) {
    mesh.tick();
    const split = mesh.split(LEAF);
    assert.ok(sum(split) <= 2);
    split.forEach((granted, at) => turns[at]! += granted);
  }
  assert.ok(Math.min(...turns) > 0.5 * Math.max(...turns), `turns ${turns.join(" ")}`);
});

test("each has its turn in every pool of a joint account", () => {
  // One place in the round for all pools: in some order of pools and workers one never had its turn.
  const pools = ["pool:a/u", "pool:b/u", "pool:c/u"];
  const mesh = new Mesh(
    rulesOf(
      Object.fromEntries(pools.map((pool, at) => [pool, { [pool]: 1 + at % 2, "user:u": 3 }])),
    ),
    4,
  );
  const turns = new Map<string, number>();
  for (let worker = 1; worker <= 4; worker++) {
    for (const pool of pools.slice(worker % 2)) mesh.use(worker, pool, 2);
  }
  for (let n = 0; n < 600; n++) {
    mesh.tick();
    for (const [worker, table] of mesh.tables) {
      for (const { leaf, granted, wanted } of table.leases()) {
        if (wanted === 0) continue;
        turns.set(`${worker} ${leaf}`, (turns.get(`${worker} ${leaf}`) ?? 0) + granted);
      }
    }
  }
  for (const [whose, count] of turns) assert.ok(count > 20, `${whose} had ${count}`);
});

const demands: readonly [cap: number, demands: readonly number[], shares: readonly number[]][] = [
  [8, [90, 4, 3, 3], [5, 1, 1, 1]],
  [8, [40, 40], [4, 4]],
  [8, [13, 5, 5, 13], [3, 1, 1, 3]],
  [20, [90, 4, 3, 3], [17, 1, 1, 1]],
  [20, [15, 15, 2], [9, 9, 2]],
  [10, [4, 3, 3], [4, 3, 3]],
];

for (const [cap, wanted, shares] of demands) {
  test(`of ${cap} slots workers that want ${wanted.join(", ")} get ${shares.join(", ")}`, () => {
    const mesh = new Mesh(oneLeaf(cap), wanted.length);
    wanted.forEach((count, at) => mesh.use(at + 1, LEAF, count));
    mesh.ticks(100);
    assert.equal(mesh.split(LEAF), shares);
  });
}

test("slots follow the clients from a worker to another, and the first of them at once", () => {
  const mesh = new Mesh(oneLeaf(8), 2);
  mesh.use(1, LEAF, 40);
  mesh.ticks(100);
  mesh.use(2, LEAF, 40);
  mesh.ticks(2);
  assert.equal(mesh.split(LEAF), [7, 1]);
  mesh.ticks(100);
  assert.equal(mesh.split(LEAF), [4, 4]);
  mesh.use(1, LEAF, 2);
  mesh.ticks(100);
  assert.equal(mesh.split(LEAF), [1, 7]);
});

test("a crowd that is soon gone again moves no slots but the first", () => {
  const mesh = new Mesh(oneLeaf(8), 2);
  mesh.use(1, LEAF, 10);
  mesh.use(2, LEAF, 1);
  mesh.ticks(100);
  assert.equal(mesh.split(LEAF), [7, 1]);
  mesh.takeGranted();
  for (let n = 0; n < 10; n++) {
    mesh.use(2, LEAF, 20);
    mesh.tick();
    mesh.use(2, LEAF, 1);
    mesh.ticks(100);
  }
  assert.is(mesh.takeGranted(), 0);
});

test("shares do not follow demands that go up and down all the time", () => {
  const mesh = new Mesh(oneLeaf(8), 4);
  const random = seededRandom(1);
  const noisy = (ticks: number) => {
    for (let n = 0; n < ticks; n++) {
      for (const worker of mesh.tables.keys()) {
        mesh.use(worker, LEAF, 5 + Math.floor(41 * random()));
      }
      mesh.tick();
    }
  };
  noisy(200);
  assert.equal(mesh.split(LEAF), [2, 2, 2, 2]);
  mesh.takeGranted();
  noisy(1200);
  const moved = mesh.takeGranted();
  assert.ok(moved <= 8, `${moved} grants in a minute`);
});

test("of an account that pools share, one on many workers gets no more than one on a single one", () => {
  const pools = ["pool:a/u", "pool:b/u"];
  const mesh = new Mesh(
    rulesOf(Object.fromEntries(pools.map((pool) => [pool, { [pool]: 100, "user:u": 20 }]))),
    4,
  );
  for (const worker of [1, 2, 3, 4]) mesh.use(worker, "pool:a/u", 50);
  mesh.use(1, "pool:b/u", 12);
  mesh.ticks(100);
  assert.is(sum(mesh.split("pool:a/u")), 10);
  assert.is(mesh.grantedTo(1, "pool:b/u"), 10);
  mesh.use(1, "pool:b/u", 3);
  mesh.ticks(100);
  assert.is(sum(mesh.split("pool:a/u")), 17);
  assert.is(mesh.grantedTo(1, "pool:b/u"), 3);
});

test("what a silent worker keeps is part of what its pool has", () => {
  const pools = ["pool:a/u", "pool:b/u"];
  const mesh = new Mesh(
    rulesOf(Object.fromEntries(pools.map((pool) => [pool, { [pool]: 100, "user:u": 12 }]))),
    3,
  );
  mesh.use(1, "pool:a/u", 20);
  mesh.use(2, "pool:a/u", 20);
  mesh.use(3, "pool:b/u", 20);
  mesh.ticks(100);
  mesh.tables.delete(1);
  mesh.ticks(100);
  assert.is(mesh.grantedTo(2, "pool:a/u"), 3);
  assert.is(mesh.grantedTo(3, "pool:b/u"), 6);
});

test("every worker has one slot before any has more, whatever pools they are for", () => {
  const pools = ["pool:a/u", "pool:b/u"];
  const mesh = new Mesh(
    rulesOf(Object.fromEntries(pools.map((pool) => [pool, { [pool]: 100, "user:u": 6 }]))),
    4,
  );
  mesh.use(1, "pool:b/u", 9);
  mesh.ticks(3);
  for (const worker of [1, 2, 3, 4]) mesh.use(worker, "pool:a/u", 2);
  mesh.ticks(3);
  assert.equal(mesh.split("pool:a/u"), [1, 1, 1, 1]);
  assert.is(mesh.grantedTo(1, "pool:b/u"), 2);
});

test("the slot of a leaf that cannot be split is everybody's for as long", () => {
  const mesh = new Mesh(oneLeaf(4), 3);
  for (const worker of [1, 2, 3]) mesh.use(worker, LEAF, 9);
  mesh.ticks(100);
  const seconds = [0, 0, 0];
  for (let n = 0; n < 3600; n++) {
    mesh.tick(1000);
    mesh.split(LEAF).forEach((granted, at) => seconds[at]! += granted - 1);
  }
  for (const count of seconds) assert.ok(count > 900, `extra for ${seconds.join(", ")} s`);
  assert.ok(mesh.takeGranted() < 150);
});

// Two pools had the slots that could not be split among three. When the third was gone there was one such slot,
// and it changed hands with every division: both had their turn.
test("a turn that is lost to another is over", () => {
  const pools = ["pool:a/u", "pool:b/u", "pool:c/u"];
  const rules = Object.fromEntries(pools.map((leaf) => [leaf, { [leaf]: 50, "user:u": 11 }]));
  const mesh = new Mesh(rulesOf(rules), 1);
  for (const leaf of pools) mesh.use(1, leaf, 30);
  mesh.ticks(10);
  const held = (leaf: string) => mesh.grantedTo(1, leaf);
  const [poor] = pools.filter((leaf) => held(leaf) === 3);
  mesh.use(1, poor!, 0);
  mesh.ticks(10);
  assert.equal(pools.map(held).sort(), [0, 5, 6]);
  mesh.takeGranted();
  for (let n = 0; n < 100; n++) {
    mesh.use(1, pools.find((leaf) => held(leaf) === 6)!, 30 + n % 2);
    mesh.tick();
  }
  assert.is(mesh.takeGranted(), 0);
});

test("a wish that goes up and down while nobody lacks anything moves nothing", () => {
  const mesh = new Mesh(oneLeaf(20), 2);
  mesh.use(1, LEAF, 4);
  mesh.use(2, LEAF, 3);
  mesh.ticks(5);
  mesh.takeGranted();
  for (let n = 0; n < 50; n++) {
    mesh.use(1, LEAF, 3 + n % 2);
    mesh.use(2, LEAF, 3 - n % 2);
    mesh.tick();
  }
  assert.is(mesh.takeGranted(), 0);
});

test("a quiet mesh sends answers and nothing else", () => {
  const mesh = new Mesh(oneLeaf(100), 20);
  for (let worker = 1; worker <= 20; worker++) mesh.use(worker, LEAF, worker % 4);
  mesh.ticks(10);
  mesh.takeGranted();
  mesh.ticks(200);
  assert.is(mesh.takeGranted(), 0);
});

test("what is granted in advance is bounded: half of what is free stays free", () => {
  const mesh = new Mesh(oneLeaf(64), 8);
  for (let worker = 1; worker <= 8; worker++) mesh.use(worker, LEAF, 1);
  mesh.ticks(20);
  const total = sum(mesh.split(LEAF));
  assert.ok(total >= 16 && total <= 8 + 28 + 4, `granted ${mesh.split(LEAF)}`);
});

test("a leaf that is not used for a minute is given back and forgotten", () => {
  const mesh = new Mesh(oneLeaf(20), 1);
  mesh.use(1, LEAF, 3);
  mesh.ticks(2);
  const lease = mesh.tables.get(1)!.lease(LEAF);
  lease.wanted = lease.held = 0;
  lease.touch();
  mesh.tick();
  for (let n = 0; n < 59; n++) mesh.tick(1000);
  assert.ok(lease.granted > 0);
  mesh.tick(1000);
  mesh.ticks(2);
  assert.is(lease.granted, 0);
  assert.equal([...mesh.ledger.accounts()], []);
  assert.is(mesh.tables.get(1)!.forget(LEAF), true);
});

test("a joint account is shared by pools, and each pool's own cap holds", () => {
  const mesh = new Mesh(
    rulesOf({
      "pool:a/u": { "pool:a/u": 4, "db:a": 100, "user:u": 10 },
      "pool:b/u": { "pool:b/u": 20, "user:u": 10 },
    }),
    2,
  );
  for (const worker of [1, 2]) {
    mesh.use(worker, "pool:a/u", 9);
    mesh.use(worker, "pool:b/u", 9);
  }
  mesh.ticks(6);
  assert.equal(mesh.split("pool:a/u"), [2, 2]);
  assert.equal(mesh.split("pool:b/u"), [3, 3]);
  assert.is(chargedOf(mesh.ledger, "user:u"), 10);
});

test("accounts that come to hang together later are divided together", () => {
  const mesh = new Mesh(
    rulesOf({
      "pool:a/u": { "pool:a/u": 8, "db:a": 10 },
      "pool:b/v": { "pool:b/v": 8, "user:v": 10 },
      "pool:a/v": { "pool:a/v": 8, "db:a": 10, "user:v": 10 },
    }),
    2,
  );
  mesh.use(1, "pool:a/u", 8);
  mesh.use(1, "pool:b/v", 8);
  mesh.ticks(3);
  mesh.use(2, "pool:a/v", 8);
  mesh.ticks(6);
  assert.equal(
    [mesh.split("pool:a/u"), mesh.split("pool:b/v"), mesh.split("pool:a/v")],
    [[5, 0], [5, 0], [0, 5]],
  );
});

test("several wishes that do not fit together are divided at once", () => {
  // The first was met, the second was not, and what the division took back from the first stayed free.
  const mesh = new Mesh(oneLeaf(2), 2);
  mesh.use(1, LEAF, 6);
  mesh.use(2, LEAF, 2);
  mesh.tick();
  assert.equal(mesh.split(LEAF), [1, 1]);
});

test("clients that are connected are never taken away, room for more is", () => {
  const mesh = new Mesh(oneLeaf(10, "clients"), 2);
  mesh.use(1, "clients", 7);
  mesh.ticks(3);
  mesh.use(2, "clients", 9);
  mesh.ticks(5);
  assert.equal(mesh.split("clients"), [7, 3]);
  const lease = mesh.tables.get(1)!.lease("clients");
  lease.held = lease.wanted = 4;
  lease.touch();
  mesh.ticks(3);
  assert.equal(mesh.split("clients"), [4, 6]);
});

test("a worker whose wish is refused for good is told that nothing is pending", () => {
  const mesh = new Mesh(oneLeaf(3, "clients"), 2);
  mesh.use(1, "clients", 3);
  mesh.ticks(3);
  mesh.use(2, "clients", 1);
  mesh.tick();
  const lease = mesh.tables.get(2)!.lease("clients");
  assert.equal([lease.granted, lease.pending, lease.answered], [0, false, true]);
});

test("setRules() with a larger cap raises", () => {
  const mesh = new Mesh(oneLeaf(4), 2);
  mesh.use(1, LEAF, 9);
  mesh.use(2, LEAF, 9);
  mesh.ticks(4);
  assert.equal(mesh.split(LEAF), [2, 2]);
  mesh.ledger.setRules(oneLeaf(10), mesh.now);
  mesh.tick();
  assert.equal(mesh.split(LEAF), [5, 5]);
});

test("setRules() with a smaller cap lowers all, and raises nobody until it fits", () => {
  const mesh = new Mesh(oneLeaf(12), 3);
  mesh.use(1, LEAF, 8);
  mesh.use(2, LEAF, 4);
  mesh.ticks(4);
  assert.equal(mesh.split(LEAF), [8, 4, 0]);
  mesh.ledger.setRules(oneLeaf(6), mesh.now);
  mesh.use(3, LEAF, 9);
  mesh.tick();
  assert.equal(mesh.split(LEAF), [3, 2, 0]);
  mesh.ticks(2);
  assert.equal(mesh.split(LEAF), [3, 2, 1]);
});

test("setRules() without a rule for a leaf takes all of it back", () => {
  const mesh = new Mesh(oneLeaf(12), 1);
  mesh.use(1, LEAF, 8);
  mesh.ticks(4);
  mesh.ledger.setRules(() => null, mesh.now);
  mesh.tick();
  assert.equal(mesh.split(LEAF), [0]);
  mesh.use(1, LEAF, 0);
  mesh.ticks(2);
  assert.equal([...mesh.ledger.accounts()], []);
  mesh.use(1, LEAF, 8);
  mesh.ledger.setRules(oneLeaf(12), mesh.now);
  mesh.ticks(2);
  assert.is(mesh.grantedTo(1, LEAF) >= 8, true);
});

test("connections of a leaf that lost its rule count in its other accounts until they are closed", () => {
  // A database was taken out of the file, and the slots of its connections that were still open were granted
  // to other databases of the same user.
  const leaves = {
    "pool:a/u": { "pool:a/u": 10, "user:u": 10 },
    "pool:b/u": { "pool:b/u": 10, "user:u": 10 },
  };
  const mesh = new Mesh(rulesOf(leaves), 2);
  mesh.use(1, "pool:a/u", 6);
  mesh.ticks(3);
  mesh.ledger.setRules(rulesOf({ "pool:b/u": leaves["pool:b/u"] }), mesh.now);
  mesh.use(2, "pool:b/u", 9);
  mesh.tick();
  const granted = mesh.grantedTo(2, "pool:b/u");
  assert.is(mesh.grantedTo(1, "pool:a/u"), 0);
  assert.ok(granted <= 4, `granted ${granted} while 6 are open`);
  mesh.ticks(2);
  assert.is(mesh.grantedTo(2, "pool:b/u"), 9);
});

test("floors of all workers fit into the cap", () => {
  const mesh = new Mesh(oneLeaf(10), 4);
  for (const worker of [1, 2, 3, 4]) mesh.use(worker, LEAF, 9);
  mesh.ticks(6);
  const leases = [...mesh.tables.values()].map((table) => table.lease(LEAF));
  assert.ok(leases.every(({ floor, granted }) => floor >= 1 && floor <= granted));
  assert.ok(sum(leases.map(({ floor }) => floor)) <= 10);
});

test.run();
