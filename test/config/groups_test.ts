// [groups] and [group_rules]: what is read of them, and what is wrong with them.

import { assert, suite } from "../support/harness.ts";
import type { GroupConfig, Value } from "../../shared/config/mod.ts";
import { groupKeys, parseConnectionString, parseValue, readIni } from "../../shared/config/mod.ts";
import { GroupsReader } from "../../shared/config/groups.ts";
import { Findings } from "../../shared/config/problem.ts";
import { filesOf, lines, load, MAIN } from "./fixtures.ts";

const test = suite("groups");

function read(text: string, unmatched = "") {
  const problems = new Findings();
  const warnings = new Findings();
  const reader = new GroupsReader(problems, warnings);
  for (const entry of readIni(MAIN, filesOf({ [MAIN]: text })).entries) {
    if (entry.section === "groups") {
      const parsed = parseConnectionString(entry.value);
      if ("failure" in parsed) throw new Error(parsed.failure);
      const values = new Map<string, Value>();
      for (const { key, value } of parsed.pairs) {
        const row = groupKeys.find(({ name }) => name === key)!;
        const result = parseValue(row.kind, value, row);
        if ("value" in result) values.set(key, result.value);
      }
      reader.addGroup(entry, values);
    } else reader.addRule(entry);
  }
  const sections = reader.finish(unmatched, { file: MAIN, line: 99 });
  return {
    ...sections,
    problems: lines(problems.list("problem", MAIN)),
    warnings: lines(warnings.list("warning", MAIN)),
  };
}

test("a group has every field, and its defaults", () => {
  const { groups, problems } = read(`[groups]
analytics = max_concurrent_queries=20
reports = parent=analytics max_concurrent_queries=8 max_queued=100 queueing=off queue_timeout=2.5 soft_max_memory=4GB min_query_memory=64MB cpu_shares=256 priority=-3 shed=never
`);
  assert.equal(problems, []);
  const expected: readonly GroupConfig[] = [
    {
      name: "analytics",
      parent: null,
      maxConcurrentQueries: 20,
      maxQueued: 0,
      queueing: true,
      queueTimeoutMs: 5000,
      softMaxMemory: 0,
      minQueryMemory: 64 * 2 ** 20,
      cpuShares: 1024,
      priority: 0,
      shed: "normal",
      bounds: null,
    },
    {
      name: "reports",
      parent: "analytics",
      maxConcurrentQueries: 8,
      maxQueued: 100,
      queueing: false,
      queueTimeoutMs: 2500,
      softMaxMemory: 4 * 2 ** 30,
      minQueryMemory: 64 * 2 ** 20,
      cpuShares: 256,
      priority: -3,
      shed: "never",
      bounds: null,
    },
  ];
  assert.equal(groups, expected);
});

test("rules keep their order, their conditions and what is a pattern", () => {
  const { rules, problems } = read(`[groups]
a =
[group_rules]
second = database=shop application_name=~'^daily report' client_addr=10.0.0.0/8 group=a
first = user = "bob" tag=~^r group=a
rest = group=a
`);
  assert.equal(problems, []);
  const shown = rules.map(({ name, group, conditions }) => {
    const all = conditions.map(({ key, value, isPattern }) =>
      `${key}${isPattern ? "=~" : "="}${value}`
    );
    return `${name}: ${all.join(", ")} -> ${group}`;
  });
  assert.equal(shown, [
    "second: database=shop, application_name=~^daily report, client_addr=10.0.0.0/8 -> a",
    `first: user="bob", tag=~^r -> a`,
    "rest:  -> a",
  ]);
});

const nine = Array.from({ length: 9 }, (_, n) => n === 0 ? "g0 =" : `g${n} = parent=g${n - 1}`);

/** lines after [groups], lines after [group_rules], what is found: "E" or "W" before the line's number */
const findings: readonly (readonly [string, string, readonly string[]])[] = [
  ["a = parent=b", "r = group=a", [`E2: group "a": parent "b" is not in [groups]`]],
  [
    "report = \nb = parent=reports",
    "r = group=b\ns = group=report",
    [
      `E3: group "b": parent "reports" is not in [groups], did you mean "report"`,
      `W6: rule "s" is never reached: rule "r" takes all that it matches`,
    ],
  ],
  [
    "a = parent=c\nb = parent=a\nc = parent=b\nd = parent=a",
    "r = group=d",
    [`E2: group "a": its parents go round in a circle: "a" -> "c" -> "b" -> "a"`],
  ],
  ["a = parent=a", "r = group=a", [
    `E2: group "a": its parents go round in a circle: "a" -> "a"`,
  ]],
  [nine.join("\n"), "r = group=g8", [`E10: group "g8": more than 8 levels of groups`]],
  [
    `"a b" =\n.. =\n${"x".repeat(64)} =`,
    "",
    [
      `E2: group "a b": a name has letters, digits, "_", "-" and "." (not first), 63 characters at most`,
      `E3: group "..": a name has letters, digits, "_", "-" and "." (not first), 63 characters at most`,
      `E4: group "${
        "x".repeat(64)
      }": a name has letters, digits, "_", "-" and "." (not first), 63 characters at most`,
    ],
  ],
  [
    "top = max_concurrent_queries=6 soft_max_memory=1GB\nmid = parent=top\n" +
    "a = parent=mid max_concurrent_queries=8 soft_max_memory=2GB\nb = parent=mid max_concurrent_queries=6",
    "r = user=a group=a\ns = group=b",
    [
      `W4: group "a": max_concurrent_queries is above that of "top", and never reached`,
      `W4: group "a": soft_max_memory is above that of "top", and never reached`,
    ],
  ],
  [
    "a = soft_max_memory=1GB min_query_memory=1GB",
    "r = group=a",
    [
      `W2: group "a": min_query_memory is not below soft_max_memory of "a": one query at a time runs, until it is known to need less`,
    ],
  ],
  ["a =\nb =", "r = group=a", [`W3: group "b": no rule leads to it`]],
  ["a =", "r = user=x group=b", [
    `E4: rule "r": group "b" is not in [groups]`,
    `W2: group "a": no rule leads to it`,
  ]],
  ["a =", "r = user=x\ns = group=a\nt = group=~a\nu = group=a group=a", [
    `E4: rule "r": it names no group, wanted group=name`,
    `E6: rule "t": group is a name, not a pattern`,
    `E7: rule "u": group stands twice`,
  ]],
  ["a =", "r = aplication_name=x group=a\ns = group=a", [
    `E4: rule "r": unrecognized condition: aplication_name, did you mean "application_name"`,
  ]],
  ["a =", "r = user=x group=a\nr = user=y group=a\ns = group", [
    `E5: rule "r" stood in line 4 already`,
    `E6: rule "s": no "=" after the key at column 1`,
  ]],
  ["a =", "r = application_name=~^(a+ group=a\ns = client_addr=~10 group=a\nt = group=a", [
    `E4: rule "r": application_name: the pattern "^(a+" cannot be read: "(" is not closed`,
    `E5: rule "s": client_addr has no patterns, wanted client_addr=address/bits`,
  ]],
  ["a =", "r = client_addr=10.0.0.0/33 group=a\ns = client_addr=x group=a\nt = group=a", [
    `E4: rule "r": client_addr: "10.0.0.0/33" has bits behind the address that are not from 0 to 32, wanted address/bits, an address, or unix`,
    `E5: rule "s": client_addr: "x" is no address, wanted address/bits, an address, or unix`,
  ]],
  ["a =", "r = tag='a b' group=a\nt = group=a", [
    `E4: rule "r": tag: "a b" is no tag, which has letters, digits, "_", "-" and "."`,
  ]],
];

test("each mistake is found, with its line", () => {
  for (const [groups, rules, expected] of findings) {
    const { problems, warnings } = read(`[groups]\n${groups}\n[group_rules]\n${rules}\n`);
    const found = [...problems.map((line) => `E${line}`), ...warnings.map((line) => `W${line}`)];
    assert.equal(found, expected, groups);
  }
});

/** rules in order; whether the last is reached */
const reached: readonly (readonly [readonly string[], boolean])[] = [
  [["", "user=a"], false],
  [["user=a", "user=b"], true],
  [["user=a", "user=a"], false],
  [["user=a", "user=a database=d"], false],
  [["user=a database=d", "user=a"], true],
  [["user=~^a", "user=abc"], false],
  [["user=~^a", "user=bc"], true],
  [["user=~^a", "user=~^ab"], true],
  [["user=~^a", "user=~^a database=d"], false],
  [["user=abc", "user=~^a"], true],
  [["client_addr=10.0.0.0/8", "client_addr=10.1.0.0/16"], false],
  [["client_addr=10.1.0.0/16", "client_addr=10.0.0.0/8"], true],
  [["client_addr=10.0.0.0/8", "client_addr=unix"], true],
  [["client_addr=unix", "client_addr=unix"], false],
  [["user=a user=b"], false],
  [["user=a user=~a"], true],
  [["user=a user=~b"], false],
  [["client_addr=10.0.0.0/8 client_addr=10.1.0.0/16"], true],
  [["client_addr=10.0.0.0/8 client_addr=unix"], false],
  [["database=d", "user=a", "user=a database=d"], false],
];

test("rules that are never reached are found", () => {
  for (const [rules, expected] of reached) {
    const text = rules.map((rule, n) => `r${n} = ${rule} group=a`).join("\n");
    const { problems, warnings } = read(`[groups]\na =\n[group_rules]\n${text}\n`);
    assert.equal(problems, []);
    const name = `r${rules.length - 1}`;
    assert.is(!warnings.some((line) => line.includes(`rule "${name}" `)), expected, text);
  }
});

test("a rule that matches nothing is called that, also where an earlier one would take it", () => {
  const rules = "r0 = user=a group=a\nr1 = user=a user=b group=a";
  const { warnings } = read(`[groups]\na =\n[group_rules]\n${rules}\n`);
  assert.equal(warnings, [
    `5: rule "r1" matches nothing: its conditions exclude each other`,
  ]);
});

test("unmatched_group has to be a group, and leads to it", () => {
  const text = "[groups]\nreports =\n";
  assert.equal(read(text, "reports").warnings, []);
  assert.equal(read(text, "report").problems, [
    `99: unmatched_group "report" is not in [groups], did you mean "reports"`,
  ]);
});

test("loadConfig() checks values of groups", () => {
  const { problems } = load(`[databases]
a = host=h
[pgbouncer]
pool_mode = transaction
[groups]
g = max_concurent_queries=8
h = cpu_shares=1
i = queueing=maybe soft_max_memory=lots
j = priority
`);
  const found = lines(problems).filter((line) => !line.includes("section"));
  assert.equal(found, [
    `6: group "g": unrecognized group parameter: max_concurent_queries, did you mean "max_concurrent_queries"`,
    `7: group "h": cpu_shares: "1" is not a whole number from 2 to 262144`,
    `8: group "i": queueing: "maybe" is not 0 or 1`,
    `8: group "i": soft_max_memory: "lots" is not a number of bytes (kB, MB, GB allowed) from 0 to 1125899906842624`,
    `9: group "j": no "=" after the key at column 1`,
  ]);
});

test.run();
