// What texts and tags say of parameters: when the server is to be asked, what for, and what a RESET has led back.

import { hasReset, isHidden, SettingChanges } from "../../services/pooler/plane/setting_changes.ts";
import { statusFailed, statusIdle } from "../../services/pooler/plane/server_state.ts";
import {
  noSettingNames,
  type SettingNames,
  type SettingStep,
  SqlFlag,
} from "../../shared/wire/mod.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("setting changes");

const names = (...steps: SettingStep[]): SettingNames => ({ steps, isComplete: true });
const set = (...all: string[]) =>
  all.map((name): SettingStep => ({ by: "SET", name, isReset: false }));
const reset = (...all: (string | null)[]) =>
  all.map((name): SettingStep => ({ by: "RESET", name, isReset: true }));
const called = (name: string): SettingStep => ({ by: null, name, isReset: false });
const resetAll = reset(null);
const discardAll: SettingStep[] = [{ by: "DISCARD ALL", name: null, isReset: true }];

test("a text that calls functions or runs code is asked about, a SET when its tag comes", () => {
  const asked = (flags: number) => {
    const changes = new SettingChanges();
    changes.expect(flags, noSettingNames, 0);
    return changes.isDue;
  };
  assert.is(asked(SqlFlag.sets), false);
  assert.is(asked(SqlFlag.resets), false);
  assert.is(asked(SqlFlag.setsConfig), true);
  assert.is(asked(SqlFlag.runsCode), true);
});

test("a name that is not in the text, or can't be one, leaves a doubt until the end", () => {
  const rows: [number, SettingNames, boolean][] = [
    [SqlFlag.sets, names(...set("work_mem")), true],
    [SqlFlag.sets, names(...set("app.tenant", "role")), true],
    [SqlFlag.setsConfig, names(called("app.tenant")), true],
    [SqlFlag.sets, names(...set("my-app.tenant")), false],
    [SqlFlag.sets, { ...names(...set("")), isComplete: false }, false],
    [SqlFlag.setsConfig | SqlFlag.setsUnnamed, noSettingNames, false],
    [SqlFlag.setsConfig | SqlFlag.mentionsConfig, noSettingNames, false],
    [SqlFlag.runsCode, noSettingNames, false],
  ];
  for (const [flags, found, isCertain] of rows) {
    const changes = new SettingChanges();
    changes.expect(flags, found, 0);
    changes.endCycle(statusIdle, true);
    assert.is(changes.isCertain, isCertain, JSON.stringify(found));
    changes.clear();
    assert.is(changes.isCertain, true);
  }
});

test("what PostgreSQL does not list is asked for by its name", () => {
  const hidden = (...steps: SettingStep[]) => {
    const changes = new SettingChanges();
    changes.expect(SqlFlag.sets, names(...steps), 0);
    const found = [...changes.hidden];
    changes.clear();
    assert.equal([...changes.hidden], []);
    return found;
  };
  assert.equal(hidden(...set("work_mem", "app.tenant", "role")), ["app.tenant", "role"]);
  assert.equal(hidden(...set("app.tenant", "role"), ...reset("app.tenant")), ["role"]);
  // RESET ALL spares who the session acts for.
  assert.equal(hidden(...set("app.tenant", "role"), ...resetAll), ["role"]);
  assert.equal(hidden(...set("app.tenant", "role"), ...discardAll), []);
  assert.is(isHidden("session_authorization"), true);
  assert.is(isHidden("search_path"), false);
});

type Act = (changes: SettingChanges) => void;
const did = (tag: SettingStep["by"]): Act => (changes) => changes.onTag(tag);
const sets = did("SET");
const resets = did("RESET");
const discards = did("DISCARD ALL");
const commits: Act = (changes) => changes.onCommit();
const rollsBack: Act = (changes) => changes.onRollback();
const saves: Act = (changes) => changes.onSavepoint();
const releases: Act = (changes) => changes.onRelease();
const fails: Act = (changes) => changes.onError();

/** What is led back of a, b and role at the end of a request, of which all texts were sent before the answers. */
function ledBack(
  changes: SettingChanges,
  texts: readonly SettingStep[][],
  acts: readonly Act[],
  status = statusIdle,
): string {
  for (const steps of texts) changes.expect(SqlFlag.resets, names(...steps), 0);
  for (const act of acts) act(changes);
  const found = changes.endCycle(status, true);
  return found === null ? "" : ["a", "b", "role"].filter((name) => hasReset(found, name)).join(" ");
}

test("a RESET counts when its tag has come and its request has not failed", () => {
  const end = (...acts: Act[]) => {
    const changes = new SettingChanges();
    const found = ledBack(changes, [reset("a")], acts);
    assert.is(changes.endCycle(statusIdle, true), null);
    return found;
  };
  assert.is(end(resets), "a");
  assert.is(end(), "");
  assert.is(end(resets, fails), "");
});

test("the last word on a parameter counts, whichever text of a request has it", () => {
  const end = (...texts: SettingStep[][]) => ledBack(new SettingChanges(), texts, [resets]);
  assert.is(end(reset("a", "b")), "a b");
  assert.is(end(reset("a", "b"), set("b")), "a");
  assert.is(end(set("b"), reset("a", "b")), "a b");
  assert.is(end(resetAll), "a b");
  assert.is(end(discardAll), "a b role");
  assert.is(end([...resetAll, ...set("a")]), "b");
  assert.is(end([...reset("a"), called("a")]), "");
  assert.is(end(set("a"), resetAll), "a b");
  assert.is(end(set("a")), "");
  assert.is(end(set("")), "");
});

test("an error or a rollback takes back what was not committed in front of it, and nothing else", () => {
  // DISCARD ALL, or a COMMIT, in a pipeline that then failed: the client lost what it had asked for at its login.
  const rows: [texts: SettingStep[][], acts: Act[], wanted: string][] = [
    [[discardAll], [discards, commits, fails], "a b role"],
    [[resetAll], [resets, commits, fails], "a b"],
    [[resetAll], [resets, fails], ""],
    [[reset("a"), reset("b")], [resets, commits, resets, fails], "a"],
    [[reset("a", "b")], [resets, commits, resets, fails], "a"],
    [[reset("a", "b")], [resets, commits, fails], "a"],
    [[reset("a"), set("a")], [resets, sets, commits, fails], ""],
    [[reset("a"), set("a")], [resets, commits, sets, fails], "a"],
    [[set("a"), reset("a")], [sets, resets, commits, fails], "a"],
    [[set(""), reset("a")], [sets, resets, commits, fails], "a"],
    [[reset("a"), [called("a")], reset("b")], [resets, resets, commits, fails], "b"],
    [[reset("a")], [resets, rollsBack], ""],
    [[reset("a"), reset("b")], [resets, rollsBack, resets], "b"],
    [[reset("a"), reset("b")], [resets, commits, resets, rollsBack], "a"],
    [[reset("a")], [saves, resets, rollsBack, commits], ""],
    [[reset("a")], [resets, saves, rollsBack, commits], "a"],
    [[reset("a"), reset("b")], [resets, saves, resets, rollsBack, commits], "a"],
    [[reset("a"), reset("b")], [resets, saves, commits, resets, rollsBack], "a"],
    [[reset("a")], [resets, saves, releases, rollsBack], ""],
    [[reset("a")], [rollsBack, resets], "a"],
    [[reset("a")], [fails], ""],
  ];
  for (const [index, [texts, acts, wanted]] of rows.entries()) {
    const changes = new SettingChanges();
    assert.is(ledBack(changes, texts, acts), wanted, `row ${index}`);
    assert.is(ledBack(changes, [], [fails]), "", `row ${index}, later`);
  }
});

test("what was committed in front of a block that fails waits for its end", () => {
  const changes = new SettingChanges();
  assert.is(ledBack(changes, [resetAll], [resets, commits, fails], statusFailed), "");
  assert.is(ledBack(changes, [], [fails], statusFailed), "");
  assert.is(ledBack(changes, [set("b")], [rollsBack, sets]), "a");
  assert.is(ledBack(changes, [], [rollsBack]), "");
});

test("a request has the resets of its own texts", () => {
  const changes = new SettingChanges();
  changes.expect(SqlFlag.resets, names(...reset("a")), 0);
  changes.expect(SqlFlag.resets, names(...reset("b")), 1);
  const ended = (last: boolean, ...acts: Act[]) => {
    changes.onTag("RESET");
    for (const act of acts) act(changes);
    const found = changes.endCycle(statusIdle, last);
    return found === null ? [] : ["a", "b"].filter((name) => hasReset(found, name));
  };
  assert.equal(ended(false), ["a"]);
  assert.equal(ended(false, commits, fails), ["b"]);
  assert.equal(ended(true), []);
  changes.expect(SqlFlag.resets, names(...reset("a")), 0);
  changes.forget();
  assert.equal(ended(true), []);
});

test.run();
