// Matching of subjects, against a plain matcher that tries every pattern in turn.

import {
  covers,
  hasWildcard,
  isLiteralSubject,
  isPattern,
  SubjectTree,
} from "../../shared/bus/subject_tree.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";

function plainMatch(pattern: string, subject: string): boolean {
  const source = pattern.split(".").map((token) =>
    token === "*" ? "[^.]+" : token === ">" ? ".+" : token.replace(/[*>]/g, "\\$&")
  );
  return new RegExp(`^${source.join("\\.")}$`).test(subject);
}

const tree = suite("SubjectTree");

tree("isPattern() and isLiteralSubject() know well-formed names", () => {
  const rows: [string, boolean, boolean][] = [
    ["a", true, true],
    ["a.b.c", true, true],
    ["$SYS.a-b_c", true, true],
    ["a*.b>", true, true],
    ["*", true, false],
    [">", true, false],
    ["a.*.c", true, false],
    ["a.>", true, false],
    ["a.>.c", false, false],
    [">.a", false, false],
    ["", false, false],
    [".", false, false],
    ["a.", false, false],
    [".a", false, false],
    ["a..b", false, false],
    ["a b", false, false],
    ["a\t", false, false],
    ["a\u0000", false, false],
  ];
  for (const [text, pattern, literal] of rows) {
    assert.is(isPattern(text), pattern, text);
    assert.is(isLiteralSubject(text), literal, text);
  }
});

tree("covers() is true when no subject gets past the wider pattern", () => {
  const rows: [string, string, boolean][] = [
    ["a.b", "a.b", true],
    ["a.*", "a.b", true],
    ["a.*", "a.*", true],
    ["a.*", "a.>", false],
    ["a.b", "a.*", false],
    ["a.>", "a.>", true],
    ["a.>", "a.*", true],
    ["a.>", "a.*.>", true],
    ["a.>", "a", false],
    ["a.*.>", "a.>", false],
    [">", "*", true],
    [">", ">", true],
    ["*", ">", false],
    ["*.b", "a.b", true],
    ["*.b", "a.c", false],
    ["a.b.c", "a.b", false],
    ["a.b", "a.b.c", false],
  ];
  for (const [wide, narrow, expected] of rows) {
    assert.is(covers(wide, narrow), expected, `${wide} ${narrow}`);
  }
});

tree("match() agrees with a plain matcher, and nothing is left after remove()", () => {
  const seed = Date.now() >>> 0;
  const random = seededRandom(seed);
  const pick = (words: readonly string[]): string =>
    words[Math.floor(random() * words.length)] ?? "";
  const name = (words: readonly string[]): string =>
    Array.from({ length: 1 + Math.floor(random() * 4) }, () => pick(words)).join(".");
  for (let round = 0; round < 20; round += 1) {
    const subjects = new SubjectTree<number>();
    const stored = new Map<number, string>();
    for (let step = 0; step < 300; step += 1) {
      const keys = [...stored.keys()];
      if (keys.length > 0 && random() < 0.4) {
        const key = keys[Math.floor(random() * keys.length)] ?? 0;
        subjects.remove(stored.get(key) ?? "", key);
        stored.delete(key);
      } else {
        const pattern = name(["a", "b", "c", "*", "*"]) + (random() < 0.2 ? ".>" : "");
        assert.ok(isPattern(pattern));
        subjects.add(pattern, step);
        stored.set(step, pattern);
      }
      const subject = name(["a", "b", "c"]);
      const expected = [...stored].filter(([, pattern]) => plainMatch(pattern, subject));
      assert.equal(
        subjects.match(subject).sort((x, y) => x - y),
        expected.map(([key]) => key),
        `seed ${seed}, ${subject}`,
      );
      for (const [, pattern] of expected) assert.ok(covers(pattern, subject), `seed ${seed}`);
    }
    for (const [key, pattern] of stored) subjects.remove(pattern, key);
    assert.ok(subjects.isEmpty, `seed ${seed}`);
  }
});

tree("remove() of what is not there changes nothing", () => {
  const subjects = new SubjectTree<number>();
  subjects.add("a.*", 1);
  subjects.add("a.b", 2);
  subjects.remove("a.*", 2);
  subjects.remove("a.*.c", 1);
  subjects.remove("a.b", 1);
  subjects.remove("x", 1);
  assert.equal(subjects.match("a.b").sort(), [1, 2]);
  assert.is(hasWildcard("a.*b"), false);
});

tree.run();
