// Admission by resource groups: who runs, who waits, who is refused, and who is next.

import { assert, suite } from "../support/harness.ts";
import { groupsOf, World } from "./fixtures.ts";

const test = suite("admission tree");

interface Row {
  readonly name: string;
  readonly groups: string;
  readonly agingMs?: number;
  /** what is done => what comes of it; "+ms" lets time pass */
  readonly steps: readonly (readonly [string, string])[];
}

/** "ask a1 a2", "end a1", "cancel a1", "limit a 3", "wait 500", "expire", "reload <groups>", "counts" */
function perform(world: World, step: string): string {
  const [verb, ...rest] = step.split(" ");
  const text = rest.join(" ");
  switch (verb) {
    case "ask":
      return world.askAll(text);
    case "why":
      return world.ask(text);
    case "end":
      return world.end(text);
    case "cancel":
      return world.cancel(text);
    case "limit":
      return world.limit(rest[0]!, Number(rest[1]));
    case "wait":
      world.now += Number(text);
      return world.expire();
    case "reload":
      return world.configure(groupsOf(text), 0);
    case "counts":
      return world.counts();
  }
  throw new Error(`no such step: ${step}`);
}

function check({ name, groups, agingMs, steps }: Row): void {
  test(name, () => {
    const world = new World(groups, agingMs);
    for (const [step, expected] of steps) {
      assert.is(perform(world, step), expected, `${step} in ${world.counts()}`);
    }
  });
}

const rows: readonly Row[] = [
  {
    name: "a group without limits runs all",
    groups: "a",
    steps: [["ask a1 a2 a3", "rrr"], ["end a2", ""], ["counts", "a 2+0"]],
  },
  {
    name: "a leaf that is full queues, first come, first served",
    groups: "a max=2",
    steps: [
      ["ask a1 a2 a3 a4 a5", "rrqqq"],
      ["end a1", "a3"],
      ["end a3", "a4"],
      ["ask a1", "q"],
      ["end a2", "a5"],
      ["end a4", "a1"],
      ["end a5", ""],
      ["counts", "a 1+0"],
    ],
  },
  {
    name: "a parent that is full queues in its children",
    groups: "top max=2; a<top; b<top",
    steps: [
      ["ask a1 b1 a2 b2", "rrqq"],
      ["counts", "top 2+2 a 1+1 b 1+1"],
      ["end a1", "a2"],
      ["end b1", "b2"],
    ],
  },
  {
    name: "a grandparent that is full queues for both generations",
    groups: "top max=2; mid<top max=5; a<mid max=5; b<top",
    steps: [
      ["ask a1 a2 a3 b1", "rrqq"],
      ["why a4", "queued"],
      ["end a1", "b1"],
      ["end a2", "a3"],
      ["counts", "top 2+1 mid 1+1 a 1+1 b 1+0"],
    ],
  },
  {
    name: "a full group says which it is and which limit",
    groups: "top max=1; a<top noqueue; b<top max=3 queued=1; c noqueue max=1",
    steps: [
      ["ask b1", "r"],
      ["why a1", "refused: a queueing, top max_concurrent_queries"],
      ["ask b2", "q"],
      ["why b3", "refused: b max_queued, top max_concurrent_queries"],
      ["ask c1", "r"],
      ["why c2", "refused: c queueing, c max_concurrent_queries"],
    ],
  },
  {
    name: "an ancestor's queue bounds those of its children together",
    groups: "top max=1 queued=2; a<top; b<top",
    steps: [
      ["ask a1 a2 b1", "rqq"],
      ["why b2", "refused: top max_queued, top max_concurrent_queries"],
      ["end a1", "a2"],
      ["ask b2", "q"],
    ],
  },
  {
    name: "max_queued = 0 is no limit",
    groups: "a max=1",
    steps: [["ask a1 a2 a3 a4 a5 a6", "rqqqqq"]],
  },
  {
    name: "children share what their parent has: with one idle, the other uses all",
    groups: "top max=6; a<top max=2; b<top max=6",
    steps: [
      ["ask b1 b2 b3 b4 b5 b6 b7 b8 b9", "rrrrrrqqq"],
      ["ask a1 a2 a3", "qqq"],
      ["end b1", "a1"],
      ["end b2", "a2"],
      ["end b3", "b7"],
      ["end a1", "a3"],
      ["end a2", "b8"],
      ["end a3", "b9"],
      ["counts", "top 6+0 a 0+0 b 6+0"],
    ],
  },
  {
    name: "a slot goes to the own group first, and to siblings when nobody waits in it",
    groups: "top max=4; a<top; b<top",
    steps: [
      ["ask a1 a2 b1 b2 a3 b3 b4", "rrrrqqq"],
      ["end a1", "a3"],
      ["end a2", "b3"],
      ["end b1", "b4"],
    ],
  },
  {
    name: "the higher priority goes first, however many are running and waiting",
    groups: "top max=2; low<top; high<top priority=5; mid<top priority=1",
    steps: [
      ["ask low1 low2 low3 mid1 high1 high2 mid2", "rrqqqqq"],
      ["end low1", "high1"],
      ["end low2", "high2"],
      ["end high1", "mid1"],
      ["ask high1", "q"],
      ["end high2", "high1"],
      ["end high1", "mid2"],
      ["end mid1", "low3"],
    ],
  },
  {
    name: "of equal priority, who runs fewest for its weight goes first",
    groups: "top max=8; a<top weight=300; b<top weight=100",
    steps: [
      ["ask b1 b2 b3 b4 b5 b6 b7 b8", "rrrrrrrr"],
      ["ask a1 a2 a3 a4 a5 a6 a7 b9 b10", "qqqqqqqqq"],
      ["end b1", "a1"],
      ["end b2", "a2"],
      ["end b3", "a3"],
      ["end b4", "a4"],
      ["end b5", "a5"],
      ["end b6", "a6"],
      ["end b7", "b9"],
      ["end b8", "b10"],
      ["end a1", "a7"],
      ["counts", "top 8+0 a 6+0 b 2+0"],
    ],
  },
  {
    name: "with one slot, turns go by weight",
    groups: "top max=1; a<top weight=200; b<top weight=100; x<top",
    steps: [
      ["ask x1 a1 a2 a3 a4 b1 b2 b3", "rqqqqqqq"],
      ["end x1", "a1"],
      ["end a1", "b1"],
      ["end b1", "a2"],
      ["end a2", "a3"],
      ["end a3", "b2"],
      ["end b2", "a4"],
      ["end a4", "b3"],
    ],
  },
  {
    name: "turns missed while nobody waited are not made up for",
    groups: "top max=1; a<top; b<top; x<top",
    steps: [
      ["ask x1 a1 a2 a3", "rqqq"],
      ["end x1", "a1"],
      ["end a1", "a2"],
      ["ask b1 b2 b3 a4", "qqqq"],
      ["end a2", "b1"],
      ["end b1", "a3"],
      ["end a3", "b2"],
    ],
  },
  {
    name: "queries of a parent itself take turns with its children",
    groups: "top max=1; a<top",
    steps: [
      ["ask top1 top2 top3 a1 a2", "rqqqq"],
      ["end top1", "top2"],
      ["end top2", "a1"],
      ["end a1", "top3"],
      ["end top3", "a2"],
    ],
  },
  {
    name: "a slot of an ancestor goes across to cousins",
    groups: "top max=2; left<top; a<left; right<top; b<right",
    steps: [
      ["ask a1 a2 b1", "rrq"],
      ["end a1", "b1"],
      ["counts", "top 2+0 left 1+0 a 1+0 right 1+0 b 1+0"],
    ],
  },
  {
    name: "who has no room of its own is passed over",
    groups: "top max=3; a<top max=1 priority=9; b<top",
    steps: [
      ["ask a1 b1 b2 a2 b3", "rrrqq"],
      ["end b1", "b3"],
      ["end b2", ""],
      ["end a1", "a2"],
    ],
  },
  {
    name: "aging: who is passed over for so long gets the next slot, once in so long",
    groups: "top max=1; low<top; high<top priority=9",
    agingMs: 1000,
    steps: [
      ["ask high1 low1 low2 high2 high3 high4 high5", "rqqqqqq"],
      ["end high1", "high2"],
      ["wait 999", ""],
      ["end high2", "high3"],
      ["wait 1", ""],
      ["end high3", "low1"],
      ["end low1", "high4"],
      ["wait 500", ""],
      ["ask high1", "q"],
      ["end high4", "high5"],
      ["wait 500", ""],
      ["end high5", "low2"],
      ["end low2", "high1"],
    ],
  },
  {
    name: "without aging, priority is strict",
    groups: "top max=1; low<top; high<top priority=9",
    steps: [
      ["ask high1 low1 high2", "rqq"],
      ["wait 9999999", ""],
      ["end high1", "high2"],
    ],
  },
  {
    name: "a wait ends when it has lasted for long enough, and says what was in the way",
    groups: "top max=1; a<top timeout=500; b max=1 timeout=2000",
    steps: [
      ["ask a1 a2 b1 b2", "rqrq"],
      ["wait 300", ""],
      ["ask a3", "q"],
      ["wait 200", "a2 timed_out(top max_concurrent_queries)"],
      ["end a1", "a3"],
      ["wait 1500", "b2 timed_out(b max_concurrent_queries)"],
      ["counts", "top 1+0 a 1+0 b 1+0"],
    ],
  },
  {
    name: "who leaves the queue is passed over",
    groups: "a max=1",
    steps: [
      ["ask a1 a2 a3 a4", "rqqq"],
      ["cancel a3", ""],
      ["cancel a2", ""],
      ["end a1", "a4"],
      ["counts", "a 1+0"],
    ],
  },
  {
    name: "a lease bounds a group, and a higher one hands off at once",
    groups: "top max=6; a<top max=4",
    steps: [
      ["limit top 3", ""],
      ["limit a 2", ""],
      ["ask a1 a2 a3 a4 a5", "rrqqq"],
      ["limit a 4", "a3"],
      ["limit top 6", "a4"],
      ["limit a 0", ""],
      ["end a1", ""],
      ["end a2", ""],
      ["end a3", ""],
      ["limit a 9", "a5"],
    ],
  },
  {
    name: "a reload that shrinks a running group lets its queries end",
    groups: "a max=3",
    steps: [
      ["ask a1 a2 a3 a4 a5", "rrrqq"],
      ["reload a max=1", ""],
      ["end a1", ""],
      ["end a2", ""],
      ["counts", "a 1+2"],
      ["end a3", "a4"],
      ["reload a max=2", "a5"],
    ],
  },
  {
    name: "a reload that takes a limit away runs all",
    groups: "top max=1; a<top max=1",
    steps: [
      ["ask a1 a2 a3", "rqq"],
      ["reload top max=3; a<top", "a2 a3"],
    ],
  },
  {
    name: "what runs in a group that vanishes counts in the groups above it",
    groups: "top max=3; mid<top max=2; a<mid max=2; b<top",
    steps: [
      ["ask a1 a2 a3 b1 b2", "rrqrq"],
      ["reload top max=3; b<top", "a3 displaced"],
      ["counts", "top 3+1 b 1+1"],
      ["end a1", "b2"],
      ["end a2", ""],
      ["counts", "top 2+0 b 2+0"],
    ],
  },
  {
    name: "a group that comes back finds its queries",
    groups: "top max=3; a<top max=2",
    steps: [
      ["ask a1 a2", "rr"],
      ["reload top max=3", ""],
      ["reload other; top max=3; a<top max=2", ""],
      ["ask a3", "q"],
      ["end a1", "a3"],
      ["counts", "other 0+0 top 2+0 a 2+0"],
    ],
  },
  {
    name: "who waits in a child of a group that vanishes waits in the child",
    groups: "mid max=1; a<mid; b<mid; top",
    steps: [
      ["ask a1 a2 b1", "rqq"],
      ["reload top max=1; a<top; b<top", ""],
      ["end a1", "a2"],
      ["end a2", "b1"],
    ],
  },
  {
    name: "a group that moves takes what runs and waits along",
    groups: "left max=1; right max=1; a<left",
    steps: [
      ["ask a1 a2", "rq"],
      ["reload left max=1; right max=2; a<right", "a2"],
      ["counts", "left 0+0 right 2+0 a 2+0"],
    ],
  },
];

for (const row of rows) check(row);

test("what is handed to a client that leaves before it knows is handed on", () => {
  const world = new World("a max=1");
  assert.is(world.askAll("a1 a2 a3"), "rqq");
  world.tree.release(world.ticket("a1"), world.now);
  assert.is(world.ticket("a2").state, "granted");
  assert.is(world.cancel("a2"), "a3");
});

test("a client that leaves before it knows that it waited in vain is told nothing", () => {
  const world = new World("a max=1 timeout=10");
  assert.is(world.askAll("a1 a2"), "rq");
  world.tree.expire(world.now + 10);
  assert.is(world.cancel("a2"), "");
  assert.is(world.ask("a2"), "queued");
});

test("a leased group runs nothing before it has a lease, others do", () => {
  const world = new World("top; a<top max=5; b<top", 0, 0);
  assert.is(world.askAll("a1 b1"), "qr");
  assert.is(world.limit("a", 1), "a1");
});

test("who may wait although the queue is full or closed is let in, or refused after all", () => {
  for (const limit of ["queued=1", "noqueue"]) {
    const world = new World(`top max=4; a<top max=4 ${limit}`, 0, 0);
    const a = world.tree.group("a")!;
    world.limit("top", 4);
    world.tree.setQueueLimit(a, 1);
    const isOff = limit === "noqueue";
    assert.ok(a.isShort);
    const ask = (name: string) => world.tree.request(world.ticket(name), a, world.now, true);
    assert.equal(["a1", "a2", "a3"].map(ask), ["queued", "queued", "queued"]);
    assert.is(world.tree.isIntruder(world.ticket("a3")), true);
    world.tree.refuse(world.ticket("a3"), world.now);
    assert.is(world.ticket("a3").closedLimit, isOff ? "queueing" : "max_queued");
    assert.is(world.ticket("a3").fullLimit, "max_concurrent_queries");
    assert.is(a.refused, 1);
    assert.is(world.limit("a", 1), "a1");
    assert.is(world.tree.isIntruder(world.ticket("a2")), isOff);
    world.cancel("a2");
    world.limit("a", 4);
    assert.not(a.isShort);
  }
});

test("a leased queue takes as many as its lease says, and keeps those that are there", () => {
  const world = new World("top max=1 queued=3; a<top", 0, 0);
  const top = world.tree.group("top")!;
  world.limit("top", 1);
  const isClosed = () => world.tree.isClosed(world.tree.group("a")!);
  assert.is(world.askAll("a1 a2"), "rx");
  assert.ok(top.isQueueShort(top.queued));
  assert.ok(isClosed());
  world.tree.setQueueLimit(top, 2);
  assert.not(top.isQueueShort(top.queued));
  assert.not(isClosed());
  assert.is(world.askAll("a2 a3 a4"), "qqx");
  assert.ok(isClosed());
  world.tree.setQueueLimit(top, 0);
  assert.is(world.askAll("a4"), "x");
  assert.is(world.counts(), "top 1+2 a 1+2");
  // Its own limit holds whatever the lease is.
  world.tree.setQueueLimit(top, 9);
  assert.is(world.askAll("a4 a5"), "qx");
  assert.not(top.isQueueShort(top.queued));
});

test("slots of a parent are asked for by what has those of its group only", () => {
  const world = new World("top max=8; a<top max=4; b<top", 0, 0);
  world.askAll("a1 a2 a3 b1");
  const { a, top } = { a: world.tree.group("a")!, top: world.tree.group("top")! };
  assert.equal([a.demand, top.demand], [3, 1]);
  world.limit("a", 2);
  assert.equal([a.demand, top.demand], [3, 3]);
  world.limit("top", 8);
  assert.equal([a.demand, top.demand, top.running, top.peak], [3, 3, 3, 3]);
});

test("release() tells of what ran beyond a limit that was lowered", () => {
  const world = new World("top max=4; a<top");
  world.askAll("a1 a2 a3");
  world.limit("top", 2);
  const release = (name: string) => world.tree.release(world.ticket(name), world.now);
  assert.equal(["a1", "a2", "a3"].map(release), [true, false, false]);
});

test("a ticket is released once, and asks once", () => {
  const world = new World("a");
  world.ask("a1");
  assert.throws(() => world.ask("a1"), /ticket is running, not idle/);
  world.end("a1");
  assert.throws(() => world.end("a1"), /ticket is idle, not running/);
});

test("counters are those of a group and all below", () => {
  const world = new World("top max=1 queued=1; a<top timeout=100");
  world.askAll("a1 a2 a3");
  world.now += 100;
  world.expire();
  world.ask("a2");
  world.now += 50;
  world.end("a1");
  for (const name of ["top", "a"]) {
    const { admitted, refused, timedOut, queuedMs, runningMs, lastUsed } = world.tree.group(name)!;
    assert.equal([admitted, refused, timedOut, queuedMs, runningMs, lastUsed], [
      2,
      1,
      1,
      150,
      150,
      1150,
    ]);
  }
});

test("demand is what could run if there were slots", () => {
  const world = new World("top max=9; a<top max=2; b<top");
  world.askAll("a1 a2 a3 a4 b1 b2");
  const demand = (name: string) => world.tree.group(name)!.demand;
  assert.equal(["top", "a", "b"].map(demand), [4, 2, 2]);
});

test.run();
