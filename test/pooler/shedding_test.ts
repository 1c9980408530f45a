// Shedding: which probability holds for which database, for how long, and that the dice are fair.

import type { OverloadDecision } from "../../shared/bus/mod.ts";
import type { OverloadBounds } from "../../shared/config/mod.ts";
import { Shedding, type Work } from "../../services/pooler/plane/shedding.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";

const tests = suite("shedding");

const share = (probability: number) => ({ min: 2, max: 6, probability });
const none = { min: 0, max: 0, probability: 0 };

function decision(changes: Partial<OverloadDecision> = {}): OverloadDecision {
  return {
    monitor: "m",
    host: "here",
    supervisor: "s",
    database: "",
    epoch: 1,
    seq: 1,
    intervalMs: 1000,
    ratio: 4,
    waitUs: 4,
    busyUs: 1,
    reason: "CPU",
    transactions: none,
    connections: none,
    ...changes,
  };
}

const ofDatabase = (database: string, host: string, probability: number) =>
  decision({ database, host, supervisor: "", transactions: share(probability) });

const always = () => 0;

interface Row {
  readonly what: string;
  readonly said: readonly OverloadDecision[];
  readonly lag?: readonly [lagMs: number, min: number, max: number];
  /** Probabilities for the databases shop and other. */
  readonly transactions?: readonly [number, number];
  readonly connections?: readonly [number, number];
}

const rows: readonly Row[] = [
  { what: "nothing was said", said: [] },
  { what: "all is well", said: [decision()] },
  {
    what: "the host is overloaded",
    said: [decision({ transactions: share(0.5) })],
    transactions: [0.5, 0.5],
  },
  {
    what: "connections have bounds of their own",
    said: [decision({ transactions: share(0.5), connections: share(0.25) })],
    transactions: [0.5, 0.5],
    connections: [0.25, 0.25],
  },
  {
    what: "a database's host is overloaded",
    said: [ofDatabase("shop", "db1", 0.3)],
    transactions: [0.3, 0],
  },
  {
    what: "the strongest reason counts, and they do not add up",
    said: [
      decision({ transactions: share(0.2) }),
      ofDatabase("shop", "db1", 0.3),
      ofDatabase("shop", "db2", 0.7),
      ofDatabase("other", "db1", 0.1),
    ],
    transactions: [0.7, 0.2],
  },
  {
    what: "a later decision replaces one about the same",
    said: [
      ofDatabase("shop", "db1", 0.9),
      ofDatabase("shop", "db1", 0.1),
      decision({ transactions: share(0.9) }),
      decision(),
    ],
    transactions: [0.1, 0],
  },
  {
    what: "the worker itself is late",
    said: [decision({ transactions: share(0.2) })],
    lag: [60, 20, 100],
    transactions: [0.5, 0.5],
  },
  { what: "it is late, and that is not limited", said: [], lag: [60, 0, 0] },
  { what: "the lower bound is reached", said: [], lag: [20, 20, 100] },
  { what: "the upper bound is passed", said: [], lag: [500, 20, 100], transactions: [1, 1] },
];

for (const { what, said, lag, transactions = [0, 0], connections = [0, 0] } of rows) {
  tests(`probabilities when ${what}`, () => {
    const shedding = new Shedding(always);
    for (const each of said) shedding.decide(each, 0);
    if (lag !== undefined) shedding.lag(lag[0], { min: lag[1], max: lag[2] }, lag[2] > 0, 0, 1000);
    const of = (work: "transactions" | "connections") =>
      ["shop", "other"].map((name) =>
        shedding.risk(work, name, name, null)?.share.probability ?? 0
      );
    assert.equal(of("transactions"), transactions);
    assert.equal(of("connections"), connections);
    for (
      const [work, wanted] of [["transactions", transactions], [
        "connections",
        connections,
      ]] as const
    ) {
      const strongest = shedding.strongest(work)?.share.probability ?? 0;
      assert.is(strongest, Math.max(...wanted), work);
    }
  });
}

const pair = (min: number | null = null, max: number | null = null) => ({ min, max });
const own = (changes: Partial<OverloadBounds>): OverloadBounds => ({
  busyTimeThreshold: null,
  transactions: pair(),
  connections: pair(),
  lag: pair(),
  ...changes,
});

interface OwnRow {
  readonly what: string;
  readonly bounds: OverloadBounds;
  readonly transactions: number;
  readonly connections: number;
  /** By the event loop alone. */
  readonly lag: number;
}

// Of the settings: from 2 to 6, from 3 to 13, and from 20 to 100 ms; the ratio is 4, the lag 60 ms.
const ownRows: readonly OwnRow[] = [
  { what: "none of a kind", bounds: own({}), transactions: 0.5, connections: 0.1, lag: 0.5 },
  {
    what: "all of them",
    bounds: own({ transactions: pair(1, 5), connections: pair(0, 8), lag: pair(0, 80) }),
    transactions: 0.75,
    connections: 0.5,
    lag: 0.75,
  },
  {
    what: "an upper one",
    bounds: own({ transactions: pair(null, 10), connections: pair(null, 5), lag: pair(null, 60) }),
    transactions: 0.25,
    connections: 0.5,
    lag: 1,
  },
  {
    what: "a lower one",
    bounds: own({ transactions: pair(4), connections: pair(12), lag: pair(61) }),
    transactions: 0,
    connections: 0,
    lag: 0,
  },
  {
    what: "upper ones that turn it off",
    bounds: own({ transactions: pair(null, 0), connections: pair(null, 0), lag: pair(null, 0) }),
    transactions: 0,
    connections: 0,
    lag: 0,
  },
  {
    what: "a lower one above the upper one",
    bounds: own({ transactions: pair(7), connections: pair(14), lag: pair(101) }),
    transactions: 0,
    connections: 0,
    lag: 0,
  },
  {
    what: "a threshold that the work does not reach",
    bounds: own({ busyTimeThreshold: 1001 }),
    transactions: 0,
    connections: 0,
    lag: 0.5,
  },
];

for (const { what, bounds, transactions, connections, lag } of ownRows) {
  tests(`bounds of one's own stand in place of the settings': ${what}`, () => {
    const ofHost = new Shedding(always);
    ofHost.decide(
      decision({
        waitUs: 4000,
        busyUs: 1000,
        transactions: share(0.5),
        connections: { min: 3, max: 13, probability: 0.1 },
      }),
      0,
    );
    const ofWorker = new Shedding(always);
    ofWorker.lag(60, { min: 20, max: 100 }, true, 0, 1000);
    const probability = (shedding: Shedding, work: Work) =>
      shedding.risk(work, "shop", "shop", bounds)?.share.probability ?? 0;
    assert.is(probability(ofHost, "transactions"), transactions);
    assert.is(probability(ofHost, "connections"), connections);
    assert.is(probability(ofWorker, "transactions"), lag);
    assert.is(probability(ofWorker, "connections"), 0);
    // Others are not concerned.
    assert.is(ofHost.risk("transactions", "shop", "shop", null)?.share.probability, 0.5);
  });
}

tests(
  "bounds of one's own refuse where the settings' are turned off, or say there is no work",
  () => {
    const shedding = new Shedding(always);
    shedding.decide(decision({ ratio: 0, waitUs: 4000, busyUs: 1000 }), 0);
    shedding.lag(60, { min: 0, max: 0 }, true, 0, 1000);
    const risk = (bounds: OverloadBounds | null) =>
      shedding.risk("transactions", "shop", "shop", bounds);
    assert.is(risk(null), null);
    const both = { transactions: pair(2, 6) };
    assert.is(risk(own(both)), null);
    const lower = risk(own({ ...both, busyTimeThreshold: 500 }));
    assert.equal([lower?.value, lower?.share], [4, { min: 2, max: 6, probability: 0.5 }]);
    assert.is(risk(own({ lag: pair(20, 100) }))?.share.probability, 0.5);
  },
);

tests("a decision holds for three intervals from when it was heard", () => {
  const shedding = new Shedding(always);
  shedding.decide(decision({ intervalMs: 200, transactions: share(1) }), 1000);
  shedding.decide(ofDatabase("shop", "db1", 1), 1000);
  assert.not(shedding.expire(1599));
  assert.is(shedding.risk("transactions", "other", "other", null)?.share.probability, 1);
  assert.ok(shedding.expire(1600));
  assert.is(shedding.risk("transactions", "other", "other", null), null);
  assert.is(shedding.risk("transactions", "shop", "shop", null)?.source.name, "db1");
  assert.ok(shedding.expire(4000));
  assert.is(shedding.risk("transactions", "shop", "shop", null), null);
  assert.equal([...shedding.sources], []);
});

tests("what is decided of the `*` entry is for the databases that are reached through it", () => {
  const shedding = new Shedding(always);
  shedding.decide(ofDatabase("*", "db1", 0.5), 0);
  shedding.decide(ofDatabase("any", "db2", 0.7), 0);
  const of = (database: string, entry: string) =>
    shedding.risk("transactions", database, entry, null)?.share.probability ?? 0;
  assert.equal([of("shop", "shop"), of("some", "*"), of("any", "*"), of("*", "*")], [
    0,
    0.5,
    0.7,
    0.5,
  ]);
});

tests("a limit on the lag that is taken away sheds nothing more", () => {
  const shedding = new Shedding(always);
  assert.not(shedding.lag(500, { min: 2, max: 2 }, false, 0, 1000));
  assert.ok(shedding.lag(500, { min: 1, max: 2 }, true, 0, 1000));
  assert.is(shedding.risk("transactions", "shop", "shop", null)?.source.scope, "worker");
  assert.is(shedding.risk("connections", "shop", "shop", null), null);
  assert.ok(shedding.lag(500, { min: 2, max: 2 }, false, 1, 1000));
  assert.is(shedding.risk("transactions", "shop", "shop", null), null);
});

tests("of many attempts as many are refused as the probability says", () => {
  let drawn = 0;
  const random = seededRandom(7);
  const shedding = new Shedding(() => {
    drawn++;
    return random();
  });
  for (const probability of [0.05, 0.5, 0.95]) {
    const attempts = 10_000;
    let refused = 0;
    for (let i = 0; i < attempts; i++) if (shedding.refuses(probability)) refused++;
    const sigma = Math.sqrt(attempts * probability * (1 - probability));
    assert.ok(Math.abs(refused - attempts * probability) < 3 * sigma, `${probability}: ${refused}`);
  }
  for (let i = 0; i < 1000; i++) assert.ok(shedding.refuses(1));
  drawn = 0;
  for (let i = 0; i < 1000; i++) assert.not(shedding.refuses(0));
  assert.is(drawn, 0);
});

tests(
  "the number of databases with monitors is bounded, and known ones are heard all the same",
  () => {
    const shedding = new Shedding(always);
    for (let i = 0; i < 3000; i++) shedding.decide(ofDatabase(`d${i}`, "db", 0.5), 0);
    assert.is([...shedding.sources].length, 2000);
    shedding.decide(ofDatabase("d5", "db", 1), 0);
    assert.is(shedding.risk("transactions", "d5", "d5", null)?.share.probability, 1);
  },
);

tests.run();
