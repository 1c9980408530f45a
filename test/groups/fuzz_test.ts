// Hostile [groups] and [group_rules]: no exception, no hang, and what loads can be used: a tree without circles, rules
// that lead to groups that are there. How many inputs, and which: test/support/fuzz.ts.
// limit: 300 s

import { assert, suite } from "../support/harness.ts";
import { fuzz } from "../support/fuzz.ts";
import { compilePattern, loadConfig } from "../../shared/config/mod.ts";
import { AdmissionTree, readTag, RuleSet } from "../../shared/groups/mod.ts";

const test = suite("fuzz of groups");

const PIECES = [
  ..."'\"=~[](){}|^$.*+?\\/,: \t\n09az-_é",
  "😀",
  "group=",
  "parent=",
  "=~",
  "a",
  "b",
  "application_name",
  "client_addr=10.0.0.0/8",
  "tag=",
  "\n[groups]\n",
  "\n[group_rules]\n",
  "max_concurrent_queries=",
  "unmatched_group = a\n",
];
const FILES = [
  `[databases]\nd = host=h\n[pgbouncer]\npool_mode = transaction\nauth_type = any\n[groups]\ntop = max_concurrent_queries=6
a = parent=top max_concurrent_queries=2 queueing=off soft_max_memory=1GB\nb = parent=a priority=-3 shed=never cpu_shares=100
[group_rules]\nr1 = user=x application_name=~'^a+ (b|c)*$' group=a\nr2 = client_addr=::1/64 tag=fast group=b\nr3 = group=top\n`,
];
const PATTERNS = ["^report-[0-9]{1,3}$", "(?i)(a|b)*c+[^d-f\\w.]?", "a|b|^c$|\\.", "(x(?:y)?){2,}"];

fuzz(test, "loadConfig() survives any groups and rules, and what loads can be used", 20_000, (
  dice,
  note,
) => {
  const text = dice.mutateText(dice.pick(FILES), PIECES);
  note(text);
  const { config } = loadConfig("main.ini", (path) => {
    if (path === "main.ini") return text;
    throw Object.assign(new Error(path), { code: "ENOENT" });
  });
  if (config === null) return;
  const { groups, groupRules, settings: { unmatchedGroup, priorityAgingMs } } = config;
  const tree = new AdmissionTree({ groups, priorityAgingMs });
  const rules = new RuleSet(groupRules, groups, unmatchedGroup);
  for (const { group } of groupRules) assert.ok(tree.group(group) !== undefined);
  const tag = dice.chance(0.5) ? "fast" : "";
  const who = { user: "x", database: "d", applicationName: "aa bc", clientAddress: "::1", tag };
  const index = rules.match(who);
  assert.ok(index >= -1 && index < groups.length);
  for (const { parent } of tree.groups) assert.ok(parent !== null);
});

fuzz(test, "compilePattern() survives any text, and what compiles matches at once", 40_000, (
  dice,
  note,
) => {
  const text = dice.chance(0.4) ? dice.text(PIECES) : dice.mutateText(dice.pick(PATTERNS), PIECES);
  note(text);
  const compiled = compilePattern(text);
  if ("failure" in compiled) return assert.ok(compiled.failure !== "");
  const subject = dice.text(["a", "b", "c", "report-1", " ", "é"]);
  assert.is(compiled.pattern.test(subject), compiled.pattern.test(subject));
  // It is an expression that the runtime's engine knows, too, and means the same to it.
  const plain = text.replace(/^\(\?i\)/, "");
  const flags = plain === text ? "s" : "is";
  if (/^[\x20-\x7e]*$/.test(text + subject) && !/[[\]\\{}]/.test(text) && subject.length < 20) {
    if (/\([^)]*[*+?][^)]*\)[*+]/.test(text)) return; // that engine may take for ever
    assert.is(compiled.pattern.test(subject), new RegExp(plain, flags).test(subject), subject);
  }
});

fuzz(test, "readTag() survives any bytes", 40_000, (dice, note) => {
  const text = dice.mutateText("/* route=x, group='reports' */ select 1", [...PIECES, "/*", "*/"]);
  note(text);
  const bytes = new TextEncoder().encode(text);
  const tag = readTag(bytes, 0, bytes.length);
  assert.match(tag, /^[A-Za-z0-9_.-]{0,63}$/);
  assert.ok(tag === "" || text.includes(tag));
});

test.run();
