// What texts and tags say of parameters: when the server is to be asked, what for, and what a RESET has led back.

import { hasReset, isHidden, SettingChanges } from "../../services/pooler/plane/setting_changes.ts";
import { noSettingNames, type SettingNames, SqlFlag } from "../../shared/wire/mod.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("setting changes");

const names = (more: Partial<SettingNames>): SettingNames => ({ ...noSettingNames, ...more });

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
  const rows: [number, Partial<SettingNames>, boolean][] = [
    [SqlFlag.sets, { set: ["work_mem"] }, true],
    [SqlFlag.sets, { set: ["app.tenant", "role"] }, true],
    [SqlFlag.setsConfig, { set: ["app.tenant"] }, true],
    [SqlFlag.sets, { set: ["my-app.tenant"] }, false],
    [SqlFlag.sets, { isComplete: false }, false],
    [SqlFlag.setsConfig | SqlFlag.setsUnnamed, {}, false],
    [SqlFlag.setsConfig | SqlFlag.mentionsConfig, {}, false],
    [SqlFlag.runsCode, {}, false],
  ];
  for (const [flags, more, isCertain] of rows) {
    const changes = new SettingChanges();
    changes.expect(flags, names(more), 0);
    changes.endCycle(true);
    assert.is(changes.isCertain, isCertain, JSON.stringify(more));
    changes.clear();
    assert.is(changes.isCertain, true);
  }
});

test("what PostgreSQL does not list is asked for by its name", () => {
  const changes = new SettingChanges();
  changes.expect(SqlFlag.sets, names({ set: ["work_mem", "app.tenant", "role"] }), 0);
  assert.equal([...changes.hidden], ["app.tenant", "role"]);
  changes.clear();
  assert.equal([...changes.hidden], []);
  assert.is(isHidden("session_authorization"), true);
  assert.is(isHidden("search_path"), false);
});

test("a RESET counts when its tag has come and its request has not failed", () => {
  const reset = names({ reset: ["work_mem"] });
  const end = (act: (changes: SettingChanges) => void) => {
    const changes = new SettingChanges();
    changes.expect(SqlFlag.resets, reset, 0);
    act(changes);
    const resets = changes.endCycle(true);
    assert.is(changes.endCycle(true), null);
    return resets !== null && hasReset(resets, "work_mem");
  };
  assert.is(end((changes) => changes.onTag()), true);
  assert.is(end(() => {}), false);
  assert.is(
    end((changes) => {
      changes.onTag();
      changes.onError();
    }),
    false,
  );
});

test("the last word on a parameter counts, whichever text of a request has it", () => {
  const end = (...texts: Partial<SettingNames>[]) => {
    const changes = new SettingChanges();
    for (const text of texts) changes.expect(SqlFlag.resets, names(text), 0);
    changes.onTag();
    const resets = changes.endCycle(true);
    const asked = ["a", "b", "role"];
    return resets === null ? [] : asked.filter((name) => hasReset(resets, name));
  };
  assert.equal(end({ reset: ["a", "b"] }), ["a", "b"]);
  assert.equal(end({ reset: ["a", "b"] }, { set: ["b"] }), ["a"]);
  assert.equal(end({ set: ["b"] }, { reset: ["a", "b"] }), ["a", "b"]);
  assert.equal(end({ resetsAll: true }), ["a", "b"]);
  assert.equal(end({ resetsAll: true, reset: ["role"] }), ["a", "b", "role"]);
  assert.equal(end({ resetsAll: true, set: ["a"] }), ["b"]);
  assert.equal(end({ set: ["a"] }, { resetsAll: true }), ["a", "b"]);
  assert.equal(end({ set: ["a"] }), []);
});

test("a request has the resets of its own texts", () => {
  const changes = new SettingChanges();
  changes.expect(SqlFlag.resets, names({ reset: ["a"] }), 0);
  changes.expect(SqlFlag.resets, names({ reset: ["b"] }), 1);
  const ended = (last: boolean) => {
    changes.onTag();
    const resets = changes.endCycle(last);
    return resets === null ? [] : ["a", "b"].filter((name) => hasReset(resets, name));
  };
  assert.equal(ended(false), ["a"]);
  assert.equal(ended(false), ["b"]);
  assert.equal(ended(true), []);
  changes.expect(SqlFlag.resets, names({ reset: ["a"] }), 0);
  changes.forget();
  assert.equal(ended(true), []);
});

test.run();
