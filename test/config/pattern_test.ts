// Patterns of rules: what they match, which are refused, and that none takes long.

import { assert, seededRandom, suite } from "../support/harness.ts";
import { compilePattern } from "../../shared/config/mod.ts";

const test = suite("pattern");

function patternOf(text: string) {
  const compiled = compilePattern(text);
  if ("failure" in compiled) throw new Error(`${text}: ${compiled.failure}`);
  return compiled.pattern;
}

/** pattern, texts it matches, texts it does not */
const rows: readonly (readonly [string, readonly string[], readonly string[]])[] = [
  ["report", ["report", "daily report 1"], ["repor", "REPORT", ""]],
  ["^report", ["report", "reports"], ["a report"]],
  ["report$", ["a report"], ["reports"]],
  ["^$", [""], ["a"]],
  ["^a.c$", ["abc", "a😀c", "a\nc"], ["ac", "abbc"]],
  ["^(web|api)-[0-9]+$", ["web-1", "api-42"], ["web-", "job-1", "web-1x"]],
  ["^(?:a|b|)c", ["c", "ac", "bc"], ["dc"]],
  ["^a*b+c?$", ["b", "aabbc"], ["a", "abcc"]],
  ["^a{2}$", ["aa"], ["a", "aaa"]],
  ["^a{2,}$", ["aa", "aaaa"], ["a"]],
  ["^(ab){1,2}$", ["ab", "abab"], ["", "ababab"]],
  ["^a{0,1}$", ["", "a"], ["aa"]],
  ["^[a-c_]+$", ["abc_"], ["d", "-"]],
  ["^[^a-c]+$", ["xyz"], ["xay"]],
  ["^[]a]+$", ["]a"], ["b"]],
  ["^[a-]+$", ["a-"], ["b"]],
  ["^[\\]\\\\]+$", ["]\\"], ["a"]],
  ["^[\\d.]+$", ["1.2"], ["a"]],
  ["^\\w+\\s\\d+\\.$", ["job 1."], ["job 1x"]],
  ["\\W", ["a b"], ["a_b"]],
  ["^\\D\\S$", ["ab"], ["1b", "a "]],
  ["\\.csv$", ["x.csv"], ["xcsv"]],
  ["(?i)^Réport$", ["réPORT", "RÉPORT"], ["report"]],
  ["(?i)^[a-z]+$", ["ABC"], ["1"]],
  ["(?i)^[^a-z]+$", ["123"], ["ABC"]],
  ["a|^b$|c", ["xax", "b", "c"], ["bb"]],
  ["(a*)*$", ["", "aaa", "b"], []],
  ["^(a|b*)*c$", ["c", "abbac"], ["abd"]],
  ["", ["", "a"], []],
  // Of long texts the beginning is looked at.
  ["^a*$", ["a".repeat(256)], ["a".repeat(257)]],
  ["b", [`${"a".repeat(255)}b`], [`${"a".repeat(256)}b`]],
];

test("a pattern matches what a regular expression of that text does", () => {
  for (const [text, good, bad] of rows) {
    const pattern = patternOf(text);
    for (const each of good) assert.ok(pattern.test(each), `${text} matches ${each}`);
    for (const each of bad) assert.not(pattern.test(each), `${text} does not match ${each}`);
  }
});

const failures: readonly (readonly [string, string])[] = [
  ["(a", `"(" is not closed`],
  ["a)", `")" closes nothing`],
  ["[a", `"[" is not closed`],
  ["*a", `nothing stands before "*" that it could repeat`],
  ["a|+", `nothing stands before "+" that it could repeat`],
  ["^*a", `nothing stands before "*" that it could repeat`],
  ["a${2}", `nothing stands before "{" that it could repeat`],
  ["a**", "two repetitions stand behind each other"],
  ["a+?", "two repetitions stand behind each other"],
  ["a{", `"{" is not followed by a count like {2}, {2,} or {2,5}`],
  ["a{3,2}", "{3,2} ends below its beginning"],
  ["a{101}", "a count is above 100"],
  ["((a{100}){100}){100}", "it is too large"],
  ["a\\", `"\\" stands at the end`],
  ["\\bfoo", `"\\b" is not supported`],
  ["(a)\\1", `"\\1" is not supported`],
  ["(?=a)", `"(?" is supported in "(?:" only, and in "(?i)" at the beginning`],
  ["[z-a]", "a range within [ ] ends below its beginning"],
  ["[[:alpha:]]", `"[:" within "[" is not supported`],
  ["[\\W]", "a negated class within [ ] is not supported"],
  ["a".repeat(251), "it is longer than 250 characters"],
];

test("what cannot be matched in linear time, or is none, is refused with a reason", () => {
  for (const [text, expected] of failures) {
    const compiled = compilePattern(text);
    assert.is("failure" in compiled ? compiled.failure : "none", expected, text);
  }
});

test("patterns that other engines take for ever for are matched at once", () => {
  const started = performance.now();
  for (const text of ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "a*a*a*a*a*a*b", "^(.*.*.*.*)*x$"]) {
    assert.not(patternOf(text).test(`${"a".repeat(5000)}!`), text);
  }
  // Milliseconds here; a backtracking engine would need years.
  assert.ok(performance.now() - started < 5000);
});

test("random patterns agree with the engine of the runtime", () => {
  const seed = Number(process.env["PGWEIR_SEED"] ?? Date.now() % 2 ** 32);
  const random = seededRandom(seed);
  const pieces = [
    "a",
    "b",
    "c",
    ".",
    "a*",
    "b+",
    "c?",
    "(a|b)",
    "(bc)*",
    "[ab]",
    "[^b]",
    "^",
    "$",
    "|",
  ];
  pieces.push("a{2}", "(a|)", "(b*){1,2}");
  const pick = <T>(list: readonly T[]) => list[Math.floor(random() * list.length)]!;
  for (let n = 0; n < 5000; n++) {
    const text = Array.from({ length: 1 + Math.floor(random() * 6) }, () => pick(pieces)).join("");
    const subject = Array.from({ length: Math.floor(random() * 8) }, () => pick(["a", "b", "c"]))
      .join("");
    const expected = new RegExp(text, "su").test(subject);
    assert.is(patternOf(text).test(subject), expected, `seed ${seed}: /${text}/ on "${subject}"`);
  }
});

test.run();
