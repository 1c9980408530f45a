// What clients may have of prepared statements, and when what they have left is worth a collection.

import { StatementMemory } from "../../services/pooler/plane/statement_memory.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("statement memory");
const mib = 1024 * 1024;

test("refusal() keeps a client within its own limit", () => {
  const memory = new StatementMemory({ client: 100, worker: 1000 });
  assert.is(memory.refusal(0, 100, 1), null);
  assert.is(memory.refusal(60, 40, 1), null);
  assert.is(memory.refusal(61, 40, 1)?.code, "54000");
  assert.match(memory.refusal(61, 40, 1)!.message, /of this client/);
});

test("refusal() leaves an equal part to each client when all have too much", () => {
  const memory = new StatementMemory({ client: 100, worker: 1000 });
  memory.name(1000);
  assert.match(memory.refusal(50, 1, 20)!.message, /of all clients/);
  assert.is(memory.refusal(49, 1, 20), null);
  memory.unname(1);
  assert.is(memory.refusal(50, 1, 20), null);
});

test("refusal() says the limits that hold", () => {
  const memory = new StatementMemory();
  assert.is(memory.refusal(64 * mib - 1, 1, 1), null);
  assert.match(memory.refusal(64 * mib, 1, 1)!.message, / 64 MiB /);
  memory.name(512 * mib);
  assert.match(memory.refusal(6 * mib, 1, 100)!.message, / 512 MiB /);
});

/** What hasShrunk() says at sweeps of a second each, between which so many MiB come and go. */
function sweeps(...changes: readonly number[]): boolean[] {
  const memory = new StatementMemory();
  return changes.map((change, second) => {
    if (change > 0) memory.keep(change * mib);
    else memory.drop(-change * mib);
    return memory.hasShrunk(1000 * (1 + second));
  });
}

test("hasShrunk() is true once when 16 MiB and a half of all were let go", () => {
  assert.equal(sweeps(20, -16, 0, 0), [false, false, true, false]);
  assert.equal(sweeps(20, -15, 0), [false, false, false]);
  assert.equal(sweeps(100, -49, 0), [false, false, false]);
  assert.equal(sweeps(100, -50, 0), [false, false, true]);
});

test("hasShrunk() waits while more is let go, and for a while after it was true", () => {
  assert.equal(sweeps(100, -60, -20, -10, 0), [false, false, false, false, true]);
  assert.equal(
    sweeps(40, -40, 0, 40, -40, 0, 0, 0, 0),
    [false, false, true, false, false, false, false, true, false],
  );
});

test("hasShrunk() is never true where as much comes as goes", () => {
  const memory = new StatementMemory();
  memory.keep(30 * mib);
  for (let second = 1; second <= 100; second++) {
    for (let i = 0; i < 20; i++) {
      memory.drop(mib);
      memory.keep(mib);
    }
    assert.not(memory.hasShrunk(1000 * second));
  }
});

test("hasShrunk() sees what came and went between two sweeps", () => {
  const memory = new StatementMemory();
  memory.keep(50 * mib);
  memory.drop(50 * mib);
  assert.ok(memory.hasShrunk(1000));
});

test.run();
