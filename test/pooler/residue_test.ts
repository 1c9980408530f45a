// What a transaction leaves behind: what the texts announce and the tags confirm, and when a reset is due.

import {
  anything,
  functionFlags,
  Residue,
  textFlags,
  Wipe,
} from "../../services/pooler/plane/residue.ts";
import { noNames } from "../../services/pooler/plane/text_names.ts";
import { Frontend, SqlFlag } from "../../shared/wire/mod.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("residue");

/** A text with these flags, the tags SET that came back, and the end of what is under way. */
function cycle(residue: Residue, flags: number, sets: number): Wipe {
  residue.expect(flags, noNames, 0);
  for (let i = 0; i < sets; i++) residue.onSet();
  residue.endCycles(true);
  return residue.wipe;
}

test("a SET of a parameter that is reported, or of the transaction only, leaves nothing", () => {
  assert.is(cycle(new Residue(), SqlFlag.setsReported, 1), Wipe.nothing);
  assert.is(cycle(new Residue(), SqlFlag.setsLocal, 1), Wipe.nothing);
  assert.is(cycle(new Residue(), SqlFlag.setsLocal | SqlFlag.setsReported, 3), Wipe.nothing);
});

test("any other SET that was done leaves settings, whatever is set beside it", () => {
  assert.is(cycle(new Residue(), SqlFlag.sets, 1), Wipe.settings);
  assert.is(cycle(new Residue(), SqlFlag.sets | SqlFlag.setsReported, 1), Wipe.settings);
  assert.is(cycle(new Residue(), SqlFlag.sets, 0), Wipe.nothing);
});

test("a SET that no text has announced leaves settings", () => {
  assert.is(cycle(new Residue(), 0, 1), Wipe.settings);
  const residue = new Residue();
  cycle(residue, SqlFlag.setsLocal, 1);
  assert.is(cycle(residue, 0, 1), Wipe.settings);
});

test("a text that is announced counts until all is answered", () => {
  const residue = new Residue();
  residue.expect(SqlFlag.sets, noNames, 0);
  residue.expect(SqlFlag.setsReported, noNames, 0);
  assert.is(residue.maySet, true);
  residue.onSet();
  assert.is(residue.wipe, Wipe.settings);
  residue.endCycles(true);
  assert.is(residue.maySet, false);
  assert.is(residue.wipe, Wipe.settings);
});

/** What a text says of the texts behind it, and for how long. */
const meanings: [flags: number, foreign: boolean][] = [
  [0, false],
  [SqlFlag.setsLocal, false],
  [SqlFlag.setsReported, false],
  [SqlFlag.listens | SqlFlag.begins | SqlFlag.locks, false],
  [SqlFlag.setsLocal | SqlFlag.changesMeaning, true],
  [SqlFlag.setsReported | SqlFlag.changesMeaning, true],
  [SqlFlag.sets | SqlFlag.changesMeaning, true],
  [SqlFlag.resets, true],
  [SqlFlag.setsConfig | SqlFlag.setsUnnamed, true],
  [SqlFlag.setsConfig | SqlFlag.mentionsConfig, true],
  [SqlFlag.runsCode, true],
  [SqlFlag.makesTemp, true],
  [anything, true],
];

test("what is prepared behind a text that may change its meaning is foreign until the transaction's end", () => {
  for (const [flags, foreign] of meanings) {
    const residue = new Residue();
    residue.expect(flags, noNames, 0);
    assert.is(residue.isForeign, foreign, `flags ${flags}`);
    residue.endCycles(false);
    assert.is(residue.isForeign, foreign, `flags ${flags}, in a transaction`);
    residue.endCycles(true);
    const lasts = residue.wipe !== Wipe.nothing || residue.settings.isDue;
    assert.is(residue.isForeign, lasts, `flags ${flags}, behind it`);
    residue.clear();
    assert.is(residue.isForeign, false);
  }
});

test("parameters that are not known yet are foreign, until they are", () => {
  const residue = new Residue();
  cycle(residue, SqlFlag.sets | SqlFlag.changesMeaning, 1);
  assert.is(residue.isForeign, true);
  residue.onSettingsKnown();
  residue.settings.clear();
  assert.is(residue.isForeign, false);
});

test("defers() lets nothing but copy data follow what may reset the login's values, or LISTEN", () => {
  const { query, parse, sync, copyData, copyDone, copyFail } = Frontend;
  for (
    const begin of [
      (residue: Residue) => residue.mayReset = true,
      (residue: Residue) => residue.mayBlock = true,
      (residue: Residue) => residue.listen.expect(SqlFlag.listens, [], 0),
    ]
  ) {
    const residue = new Residue();
    for (const type of [query, parse, sync, copyData]) assert.is(residue.defers(type), false);
    begin(residue);
    for (const type of [query, parse, sync]) assert.is(residue.defers(type), true);
    for (const type of [copyData, copyDone, copyFail]) assert.is(residue.defers(type), false);
  }
});

test("textFlags() can't read a backslash where it may mean something", () => {
  const flags = (text: string, plain: boolean) =>
    textFlags(new TextEncoder().encode(text), 0, text.length, plain);
  assert.is(flags("SELECT 'a\\b'", true), 0);
  assert.is(flags("SELECT 'a\\b'", false), anything);
  assert.is(flags("SELECT 'ab'", false), 0);
});

test("functionFlags() knows the functions that change a session", () => {
  assert.is(functionFlags(2078), SqlFlag.setsConfig | SqlFlag.setsUnnamed);
  assert.is(functionFlags(2880), SqlFlag.locks);
  assert.is(functionFlags(2892), SqlFlag.locks);
  assert.is(functionFlags(2026), 0);
});

test("set_config leaves settings; code that runs and objects of the session leave anything", () => {
  assert.is(cycle(new Residue(), SqlFlag.setsConfig, 0), Wipe.settings);
  for (const flag of [SqlFlag.makesTemp, SqlFlag.holds, SqlFlag.prepares, SqlFlag.runsCode]) {
    assert.is(cycle(new Residue(), flag, 0), Wipe.everything);
    assert.is(cycle(new Residue(), flag | SqlFlag.setsConfig, 0), Wipe.everything);
  }
  const residue = new Residue();
  cycle(residue, SqlFlag.prepares, 0);
  assert.is(cycle(residue, SqlFlag.setsConfig, 0), Wipe.everything);
});

test("locks are unsure once they are touched, until it is asked", () => {
  for (const flag of [SqlFlag.locks, SqlFlag.unlocks]) {
    const residue = new Residue();
    residue.expect(flag, noNames, 0);
    assert.is(residue.locksUnsure, true);
    assert.is(residue.wipe, Wipe.nothing);
  }
});

test("what a LISTEN has left is to be wiped where nobody took it over", () => {
  const residue = new Residue();
  residue.listen.expect(SqlFlag.listens, [], 0);
  residue.listen.onListen();
  assert.is(residue.due, Wipe.everything);
  residue.listen.clear();
  assert.is(residue.due, Wipe.nothing);
});

test.run();
