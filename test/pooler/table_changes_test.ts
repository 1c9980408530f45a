// Changes of tables and who is told of them: the own statements at each, the other workers now and then.

import { TableChanges } from "../../services/pooler/plane/table_changes.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("table changes");

class Rig {
  readonly renewed: (string | null)[] = [];
  readonly told: string[] = [];
  #timers: (() => void)[] = [];
  readonly changes = new TableChanges({
    renew: (database) => this.renewed.push(database),
    tell: (database) => this.told.push(database),
    after: (ms, then) => {
      assert.is(ms, 50);
      this.#timers.push(then);
    },
  });

  /** Fifty milliseconds go by; whether anything was waited for. */
  pass(): boolean {
    const due = this.#timers;
    this.#timers = [];
    for (const then of due) then();
    return due.length > 0;
  }
}

test("a first change is told at once, those that follow it once in 50 ms", () => {
  const rig = new Rig();
  for (let i = 0; i < 100; i++) rig.changes.seen("shop");
  assert.equal(rig.told, ["shop"]);
  assert.is(rig.renewed.length, 100);
  rig.changes.seen("more");
  assert.equal(rig.told, ["shop", "more"]);
  rig.pass();
  assert.equal(rig.told, ["shop", "more", "shop"]);
  rig.pass();
  assert.equal(rig.told.length, 3);
  assert.not(rig.pass(), "nothing is left behind");
  rig.changes.seen("shop");
  assert.equal(rig.told.length, 4);
});

test("what is heard of others is passed on to nobody", () => {
  const rig = new Rig();
  rig.changes.heard("shop");
  rig.changes.heard(null);
  assert.equal(rig.renewed, ["shop", null]);
  assert.equal(rig.told, []);
  assert.not(rig.pass());
});

test.run();
