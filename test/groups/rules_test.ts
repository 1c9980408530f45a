// Which group a query is in, and the tag in its leading comment.

import { Buffer } from "node:buffer";
import { assert, suite } from "../support/harness.ts";
import type { GroupCondition, GroupRule } from "../../shared/config/mod.ts";
import { type QueryFacts, readTag, RuleSet } from "../../shared/groups/mod.ts";
import { groupsOf } from "./fixtures.ts";

const test = suite("group rules");

const groups = groupsOf("first; second; rest");

/** "user=a tag=~^r -> second" */
function rulesOf(...texts: string[]): GroupRule[] {
  return texts.map((text, n) => {
    const [left, group] = text.split("->").map((part) => part.trim());
    const conditions = left === "" ? [] : left!.split(" ").map((part): GroupCondition => {
      const [, key, pattern, value] = /^([a-z_]+)=(~?)(.*)$/.exec(part)!;
      return { key: key as GroupCondition["key"], value: value!, isPattern: pattern !== "" };
    });
    return { name: `r${n}`, conditions, group: group! };
  });
}

const nobody: QueryFacts = {
  user: "u",
  database: "d",
  applicationName: "",
  clientAddress: "192.0.2.7",
  tag: "",
};

const rules = rulesOf(
  "tag=fast user=~^app -> first",
  "database=shop application_name=~^report client_addr=10.0.0.0/8 -> second",
  "client_addr=unix -> first",
  "user=batch -> second",
);

/** what differs from `nobody`; the group */
const rows: readonly (readonly [Partial<QueryFacts>, string])[] = [
  [{}, "rest"],
  [{ user: "app1", tag: "fast" }, "first"],
  [{ user: "batch", tag: "fast" }, "second"],
  [{ user: "app1", tag: "faster" }, "rest"],
  [{ database: "shop", applicationName: "reports", clientAddress: "10.9.9.9" }, "second"],
  [{ database: "shop", applicationName: "reports", clientAddress: "::ffff:10.9.9.9" }, "second"],
  [{ database: "shop", applicationName: "reports", clientAddress: "11.9.9.9" }, "rest"],
  [{ database: "shop", applicationName: "reports", clientAddress: null }, "first"],
  [{ database: "shop", applicationName: "a report", clientAddress: "10.9.9.9" }, "rest"],
  [{ user: "batch", clientAddress: null }, "first"],
  [{ user: "Batch" }, "rest"],
];

test("the first rule whose conditions all hold decides", () => {
  const set = new RuleSet(rules, groups, "rest");
  for (const [facts, expected] of rows) {
    const index = set.match({ ...nobody, ...facts });
    assert.is(groups[index]!.name, expected, JSON.stringify(facts));
  }
});

test("without unmatched_group, what no rule matches is in no group", () => {
  assert.is(new RuleSet(rules, groups, "").match(nobody), -1);
  assert.is(new RuleSet([], groups, "").match(nobody), -1);
});

test("a rule set says what it looks at", () => {
  const uses = (...texts: string[]) => {
    const { usesApplicationName, usesTags } = new RuleSet(rulesOf(...texts), groups, "");
    return [usesApplicationName, usesTags];
  };
  assert.equal(uses("user=a -> first"), [false, false]);
  assert.equal(uses("user=a -> first", "application_name=x -> first"), [true, false]);
  assert.equal(uses("tag=~x -> first"), [false, true]);
});

const tags: readonly (readonly [string, string])[] = [
  ["/* group=reports */ select 1", "reports"],
  ["/*group=reports*/select 1", "reports"],
  [" \n\t/* group = reports */ select 1", "reports"],
  ["/* route=home, group='a.b-c_1', x=1 */ select 1", "a.b-c_1"],
  ["/*app='x',group='reports'*/ select 1", "reports"],
  ["/* first */ /* group=second */ select 1", "second"],
  ["select 1 /* group=reports */", ""],
  ["select 1", ""],
  ["", ""],
  ["/", ""],
  ["/*", ""],
  ["/* group=reports", ""],
  ["/* group=reports *", ""],
  ["/* group= */ select 1", ""],
  ["/* group='reports */ select 1", ""],
  ["/* group=a b */ select 1", "a"],
  ["/* group=a;drop */ select 1", ""],
  ["/* subgroup=a */ select 1", ""],
  ["/* groups=a */ select 1", ""],
  [`/* group=${"a".repeat(63)} */ select 1`, "a".repeat(63)],
  [`/* group=${"a".repeat(64)} */ select 1`, ""],
  [`/* group=a ${"x".repeat(300)} */ select 1`, ""],
  ["-- group=a\nselect 1", ""],
  ["/* group=\u00e9 */ select 1", ""],
];

test("readTag() reads the tag of a leading comment, and nothing else", () => {
  for (const [text, expected] of tags) {
    const bytes = Buffer.from(`xx${text}/* group=behind */`);
    assert.is(readTag(bytes, 2, 2 + Buffer.byteLength(text)), expected, text);
  }
});

test.run();
