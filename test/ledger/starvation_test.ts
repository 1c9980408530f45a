// Whether a pool that has clients waiting is ever left without a slot, while all others have more to do than fits:
// fleets whose clients never rest, by the seed, with what slows slots down on their way from one to the other.
// limit: 400 s
//   PGWEIR_SIM_SEEDS=n     so many fleets of any kind instead of 20
//   PGWEIR_SIM_FIRST=n     the first of them, 1 if not given
//   PGWEIR_SEED=n          that one alone

import { assert, suite } from "../support/harness.ts";
import { rulesOf } from "./fixtures.ts";
import { type Crowd, type FleetOptions, runFleet, type Served } from "./simulated_fleet.ts";
import { Chance } from "./simulated_world.ts";

const tests = suite("ledger/starvation");

const USERS = ["ann", "bob", "cid", "dan"].map((user) => `pool:app/${user}`);
const FAST: Pick<FleetOptions, "loginMs" | "closeMs" | "transactionMs"> = {
  loginMs: [4, 8],
  closeMs: [1, 2],
  transactionMs: [15, 25],
};
const EVERYWHERE = [7, 8, 7, 8];

/** Pools of a database that has so many slots. */
function shared(slots: number, leaves: readonly string[] = USERS): FleetOptions["rules"] {
  return rulesOf(
    Object.fromEntries(leaves.map((leaf) => [leaf, { [leaf]: 100, "db:app": slots }])),
  );
}

function everyone(slots: number, times: Partial<FleetOptions>, seed = 1): FleetOptions {
  const crowds = USERS.map((leaf): Crowd => ({ leaf, clients: EVERYWHERE }));
  return { seed, workers: 4, rules: shared(slots), ...FAST, crowds, ...times };
}

function worstOf(served: readonly Served[]): Served {
  return served.reduce((worst, one) => one.longestMs > worst.longestMs ? one : worst);
}

function assertServed(served: readonly Served[], withinMs: number, what = ""): void {
  const { worker, leaf, longestMs } = worstOf(served);
  assert.ok(
    longestMs <= withinMs,
    `${what} worker ${worker} had nothing in ${leaf} for ${Math.round(longestMs)} ms, wanted ${
      Math.round(withinMs)
    } at most`,
  );
}

const around = (ms: number): [number, number] => [0.9 * ms, 1.1 * ms];

// Sixteen that want some of eight slots. A turn of half a second was over before the slot was there, if logins or
// transactions took longer: it went to the next, whose turn was over then. Some had nothing for minutes.
const rows: readonly [what: string, loginMs: number, transactionMs: number, withinMs: number][] = [
  ["all is fast", 6, 20, 1500],
  ["logins take most of a turn", 450, 20, 3000],
  ["logins take longer than a turn", 700, 20, 4500],
  ["logins take very long", 3000, 20, 18_000],
  ["transactions take longer than a turn", 6, 700, 3000],
  ["transactions take long", 6, 3000, 9000],
  ["transactions take very long", 6, 20_000, 50_000],
  ["logins and transactions take longer than a turn", 700, 700, 6000],
];

for (const [what, loginMs, transactionMs, withinMs] of rows) {
  tests(`everyone has turns when ${what}`, () => {
    for (let seed = 1; seed <= 2; seed++) {
      const times = { loginMs: around(loginMs), transactionMs: around(transactionMs) };
      const served = runFleet(everyone(8, times, seed), 60_000);
      assertServed(served, withinMs);
      const wasted = served.reduce((sum, one) => sum + one.wasted, 0);
      assert.ok(wasted <= 4, `${wasted} logins that nobody had anything of`);
    }
  });
}

// There would have been a slot for everyone, had one given back what it was asked for. Until it did, those that
// had come first kept theirs, and the others had nothing.
tests("who cannot give back holds up nobody for long", () => {
  const leaves = ["pool:app/hog", ...USERS];
  const options: FleetOptions = {
    ...everyone(20, {}),
    rules: shared(20, leaves),
    crowds: [
      { leaf: leaves[0]!, clients: [13], transactionMs: [60_000, 100_000] },
      ...USERS.map((leaf) => ({ leaf, clients: EVERYWHERE, atMs: 1000 })),
    ],
  };
  const served = runFleet(options, 60_000).filter(({ leaf }) => leaf !== leaves[0]);
  assertServed(served, 8000);
});

// One that needs a slot of two limits was promised that of the one, while the other was taken for long.
tests("a slot is not kept free for long for who cannot use it yet", () => {
  const rules = rulesOf({
    "pool:b/u": { "user:u": 1 },
    "pool:a/u": { "db:a": 3, "user:u": 1 },
    "pool:a/v": { "db:a": 3 },
    "pool:a/w": { "db:a": 3 },
  });
  const all = [5, 5, 5, 5];
  const others = ["pool:a/v", "pool:a/w"];
  const options: FleetOptions = {
    ...everyone(0, {}),
    rules,
    crowds: [
      { leaf: "pool:b/u", clients: [1], transactionMs: [40_000, 40_000] },
      { leaf: "pool:a/u", clients: all, atMs: 1000 },
      ...others.map((leaf) => ({ leaf, clients: all, atMs: 1000 })),
    ],
  };
  const served = runFleet(options, 80_000);
  assertServed(served.filter(({ leaf }) => others.includes(leaf)), 6000);
  assertServed(served.filter(({ leaf }) => leaf === "pool:a/u"), 45_000);
  const done = served.filter(({ leaf }) => others.includes(leaf))
    .reduce((sum, { transactions }) => sum + transactions, 0);
  // Three slots, a transaction of 20 ms after the other.
  assert.ok(done > 0.7 * 3 * 80_000 / 20, `${done} transactions`);
});

/** A fleet of any kind, and how long its pools may wait for a slot at most. */
function anyFleet(seed: number): { options: FleetOptions; withinMs: number; what: string } {
  const chance = new Chance(seed);
  const workers = chance.whole(1, 6);
  const users = chance.whole(1, 5);
  const databases = chance.whole(1, 3);
  const accounts: Record<string, Record<string, number>> = {};
  const crowds: Crowd[] = [];
  const capOf = new Map<string, number>();
  const cap = (name: string) => {
    const known = capOf.get(name) ?? chance.whole(1, 8);
    capOf.set(name, known);
    return known;
  };
  const userLimits = chance.yes(0.3);
  for (let d = 0; d < databases; d++) {
    for (let u = 0; u < users; u++) {
      if (crowds.length > 0 && chance.yes(0.3)) continue;
      const leaf = `pool:d${d}/u${u}`;
      accounts[leaf] = { [leaf]: chance.whole(1, 8), [`db:d${d}`]: cap(`db:d${d}`) };
      if (userLimits) accounts[leaf]![`user:u${u}`] = cap(`user:u${u}`);
      const clients = Array.from(
        { length: workers },
        (_, at) => at > 0 && chance.yes(0.2) ? 0 : chance.whole(1, 20),
      );
      crowds.push({ leaf, clients, atMs: chance.between(0, 3000) });
    }
  }
  const loginMs = chance.pick([5, 5, 50, 300, 600, 1500]);
  const transactionMs = chance.pick([10, 20, 20, 300, 700, 2000, 6000]);
  const isStormy = chance.yes(0.5);
  const weather = {
    delayMs: chance.pick([3, 30, 150]),
    late: chance.pick([0, 0.05]),
    lateMs: chance.pick([300, 2000]),
    loss: chance.pick([0, 0.02, 0.1]),
    doubled: chance.pick([0, 0.1]),
  };
  const stops = { everyMs: chance.pick([3000, 10_000]), lengthMs: [100, 3500] as const };
  const times = {
    loginMs: around(loginMs),
    closeMs: [1, chance.pick([2, 50, 400])] as const,
    transactionMs: chance.yes(0.5) ? around(transactionMs) : [1, transactionMs] as const,
    saveMs: [1, chance.pick([3, 100, 600])] as const,
  };
  const options = {
    seed,
    workers,
    rules: rulesOf(accounts),
    crowds,
    ...times,
    ...(isStormy ? { weather } : {}),
    ...(isStormy && chance.yes(0.5) ? { stops } : {}),
  };
  const cells = crowds.reduce(
    (sum, { clients }) => sum + clients.filter((count) => count > 0).length,
    0,
  );
  // All may want the same slot. It changes hands in the time of a turn, or of what it is used for, and messages.
  const slot = Math.min(...Object.values(accounts).flatMap((caps) => Object.values(caps)));
  const rounds = 1 + Math.ceil(cells / slot);
  const passMs = Math.max(750, transactionMs * 1.1, 2 * loginMs) + loginMs + times.closeMs[1] +
    times.saveMs[1] + (isStormy ? 4 * weather.delayMs + 1500 : 150);
  const stoppedMs = options.stops === undefined ? 0 : 20_000;
  const withinMs = 2000 + rounds * passMs + stoppedMs;
  const what =
    `seed ${seed}: ${workers} workers, ${crowds.length} pools, ${cells} cells, least limit ${slot}, ` +
    `login ${loginMs}, transactions ${transactionMs}, storm ${isStormy};`;
  return { options, withinMs, what };
}

const { PGWEIR_SEED: alone, PGWEIR_SIM_FIRST = "1", PGWEIR_SIM_SEEDS = "20" } = process.env;
const first = Number(alone ?? PGWEIR_SIM_FIRST);
const count = alone === undefined ? Number(PGWEIR_SIM_SEEDS) : 1;

tests("nobody starves in fleets of any kind", () => {
  for (let seed = first; seed < first + count; seed++) {
    const { options, withinMs, what } = anyFleet(seed);
    assertServed(runFleet(options, Math.min(120_000, 2.5 * withinMs)), withinMs, what);
  }
});

tests.run();
