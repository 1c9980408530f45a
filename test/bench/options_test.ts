// The benchmark's command line.

import { assert, suite } from "../support/harness.ts";
import { parseOptions, UsageError } from "./options.ts";

const test = suite("bench options");

test("parseOptions() plans the whole matrix, fleets included, when nothing is asked", () => {
  const options = parseOptions([], 4);
  assert.equal(options?.clients, [1, 8, 32, 128, 256]);
  assert.equal(options?.protocols, ["simple", "extended", "prepared"]);
  assert.equal(options?.contenders.map((c) => c.id), [
    "pgbouncer",
    "pgweir-bun",
    "pgweir-deno",
    "pgbouncer-fleet",
    "pgweir-bun-fleet",
    "pgweir-deno-fleet",
  ]);
  assert.is(options?.assertTargets, false);
});

test("parseOptions() leaves fleets out when quick or when there is one core", () => {
  const single = ["pgbouncer", "pgweir-bun", "pgweir-deno"];
  assert.equal(parseOptions(["--quick"], 4)?.contenders.map((c) => c.id), single);
  assert.equal(parseOptions([], 1)?.contenders.map((c) => c.id), single);
});

test("parseOptions() keeps --quick under three minutes", () => {
  const quick = parseOptions(["--quick"], 2)!;
  const perRound = quick.clients.length * quick.protocols.length * quick.seconds +
    quick.connectSeconds;
  const total = perRound * quick.rounds * quick.contenders.length;
  assert.ok(total <= 120, `${total} s of measuring`);
});

test("parseOptions() lets single options override what --quick sets", () => {
  const options = parseOptions(["--quick", "--clients", "4, 2,4", "--rounds=1"], 2);
  assert.equal(options?.clients, [4, 2]);
  assert.is(options?.rounds, 1);
  assert.is(options?.seconds, 2);
});

test("parseOptions() returns null when help is asked for", () => {
  assert.is(parseOptions(["--help"], 2), null);
});

for (
  const [args, message] of [
    [["--clients", "8,many"], /read --clients: "many" given, a whole number/],
    [["--clients", ","], /read --clients: an empty list/],
    [["--seconds", "2.5"], /read --seconds: "2.5" given, a whole number/],
    [["--rounds", "0"], /read --rounds: "0" given/],
    [["--protocols", "fancy"], /"fancy" given, one of simple, extended, prepared wanted/],
    [["--contenders", "odyssey"], /"odyssey" given, one of pgbouncer, pgweir-bun/],
    [["--fast"], /read the command line: .*--fast/],
    [["extra"], /read the command line: .*extra/],
  ] as const
) {
  test(`parseOptions() refuses ${args.join(" ")} with what was wanted`, () => {
    try {
      parseOptions(args, 2);
    } catch (error) {
      assert.instance(error, UsageError);
      assert.match((error as Error).message, message);
      return;
    }
    assert.unreachable("it was accepted");
  });
}

test.run();
