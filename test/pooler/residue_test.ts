// What a transaction leaves behind: what the texts announce and the tags confirm, and when a reset is due.

import { Residue, Wipe } from "../../services/pooler/plane/residue.ts";
import { SqlFlag } from "../../shared/wire/mod.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("residue");

/** One cycle: a text with these flags, the tags and reports that came back, ReadyForQuery. */
function cycle(residue: Residue, flags: number, sets: number, reports: number, last = true): Wipe {
  residue.expect(flags);
  for (let i = 0; i < sets; i++) residue.onSet();
  for (let i = 0; i < reports; i++) residue.onReport();
  residue.endCycle(last);
  return residue.wipe;
}

test("a SET whose value the server reports leaves nothing", () => {
  assert.is(cycle(new Residue(), SqlFlag.sets, 1, 1), Wipe.nothing);
  assert.is(cycle(new Residue(), SqlFlag.sets, 2, 2), Wipe.nothing);
});

test("a SET without a report leaves settings", () => {
  assert.is(cycle(new Residue(), SqlFlag.sets, 1, 0), Wipe.settings);
  assert.is(cycle(new Residue(), SqlFlag.sets, 2, 1), Wipe.settings);
});

test("a SET that failed, and one of the transaction only, leave nothing", () => {
  assert.is(cycle(new Residue(), SqlFlag.sets, 0, 0), Wipe.nothing);
  // SET LOCAL has the tag too, but its text has no flag.
  assert.is(cycle(new Residue(), 0, 1, 0), Wipe.nothing);
});

test("reports of one cycle are no excuse for the SET of another", () => {
  const residue = new Residue();
  cycle(residue, SqlFlag.sets, 0, 3, false);
  assert.is(cycle(residue, SqlFlag.sets, 1, 0), Wipe.settings);
});

test("a text that is announced while others run counts until all are answered", () => {
  const residue = new Residue();
  residue.expect(SqlFlag.sets);
  residue.endCycle(false);
  residue.onSet();
  residue.endCycle(true);
  assert.is(residue.wipe, Wipe.settings);
  const other = new Residue();
  other.expect(SqlFlag.sets);
  other.endCycle(true);
  other.onSet();
  other.endCycle(true);
  assert.is(other.wipe, Wipe.nothing);
});

test("set_config and code that runs leave settings, objects of the session everything", () => {
  assert.is(cycle(new Residue(), SqlFlag.setsConfig, 0, 0), Wipe.settings);
  assert.is(cycle(new Residue(), SqlFlag.runsCode, 0, 0), Wipe.settings);
  for (const flag of [SqlFlag.makesTemp, SqlFlag.holds, SqlFlag.prepares]) {
    assert.is(cycle(new Residue(), flag, 0, 0), Wipe.everything);
    assert.is(cycle(new Residue(), flag | SqlFlag.setsConfig, 0, 0), Wipe.everything);
  }
  const residue = new Residue();
  cycle(residue, SqlFlag.prepares, 0, 0);
  assert.is(cycle(residue, SqlFlag.setsConfig, 0, 0), Wipe.everything);
});

test("locks are unsure once they are touched, until it is asked", () => {
  for (const flag of [SqlFlag.locks, SqlFlag.unlocks]) {
    const residue = new Residue();
    residue.expect(flag);
    assert.is(residue.locksUnsure, true);
    assert.is(residue.wipe, Wipe.nothing);
  }
});

test("a server listens when a LISTEN that was announced is done", () => {
  const residue = new Residue();
  residue.onListen();
  assert.is(residue.listening, false);
  residue.expect(SqlFlag.listens);
  assert.is(residue.listening, false);
  residue.onListen();
  assert.is(residue.listening, true);
  residue.clear();
  assert.is(residue.listening, false);
});

test.run();
