// Runs the ledger's simulation over many seeds, and proves with deliberate mistakes that it can fail.
// limit: 900 s
//   PGWEIR_SEED=n          that seed alone
//   PGWEIR_SIM_SEEDS=n     so many seeds instead of 300
//   PGWEIR_SIM_FIRST=n     the first of them, 1 if not given

import { assert, suite } from "../support/harness.ts";
import { mistakes } from "./mistakes.ts";
import { simulate, SimulationFailure } from "./simulation.ts";

const SEEDS = 300;
/** Of them, those that are run once more with what is hard on workers that nobody hears of. */
const SILENT_SEEDS = 1000;
/** A mistake has to be found in so many seeds. */
const MISTAKE_SEEDS = 600;

function numberFrom(variable: string, otherwise: number): number {
  const value = Number(process.env[variable] ?? otherwise);
  if (!Number.isSafeInteger(value)) {
    throw new Error(`read ${variable}: "${process.env[variable]}", wanted a whole number`);
  }
  return value;
}

const alone = process.env.PGWEIR_SEED === undefined ? null : numberFrom("PGWEIR_SEED", 0);
const first = alone ?? numberFrom("PGWEIR_SIM_FIRST", 1);
const count = alone === null ? numberFrom("PGWEIR_SIM_SEEDS", SEEDS) : 1;

const tests = suite("ledger simulation");

tests(
  `no account is over its cap and shares come to be fair in ${count} seeds from ${first} on`,
  () => {
    for (let seed = first; seed < first + count; seed++) simulate(seed);
  },
);

tests("no account is over its cap while workers are silent for dozens of leases", () => {
  for (let seed = first; seed < first + Math.min(count, SILENT_SEEDS); seed++) {
    simulate(seed, {
      faults: ["stop worker", "cut worker", "slow postgres", "terminate"],
      leaseMs: 1000,
      auth: true,
      endless: true,
    });
  }
});

tests("simulate() does the same again when it is given the same seed", () => {
  assert.equal(simulate(7), simulate(7));
});

/** The failure of the first seed that finds a mistake. */
function find(variant: Parameters<typeof simulate>[1]): SimulationFailure | null {
  for (let seed = 1; seed <= MISTAKE_SEEDS; seed++) {
    try {
      simulate(seed, variant);
    } catch (error) {
      if (error instanceof SimulationFailure) return error;
      throw error;
    }
  }
  return null;
}

if (alone === null) {
  for (const { what, variant } of mistakes) {
    tests(`simulation finds ${what}`, () => {
      const failure = find(variant);
      assert.ok(failure !== null, `not found in ${MISTAKE_SEEDS} seeds`);
      assert.match(failure!.message, /the last \d+ events/);
    });
  }
}

tests.run();
