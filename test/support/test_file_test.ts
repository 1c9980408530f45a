// Tests of the test runner's own judgement, with small made-up test files: each is a way in which a test run
// can look green and is not.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { assert, suite } from "./harness.ts";
import { isAlive } from "./processes.ts";
import {
  findTestFiles,
  judge,
  limitOf,
  loadOf,
  type Outcome,
  parseFailures,
  parseSummaries,
  type Patience,
  runTestFile,
} from "./test_file.ts";

const SUMMARY = "\n  Total:     3\n  Passed:    3\n  Skipped:   0\n  Duration:  1.00ms\n\n";

const judging = suite("judge");

const fine = {
  output: SUMMARY,
  end: { code: 0, signal: null },
  timedOutAfterMs: null,
  lingered: false,
  leftProcesses: [],
  leftFiles: [],
};

function check(name: string, evidence: Partial<Parameters<typeof judge>[0]>, want: {
  passed?: number;
  failed?: number;
  skipped?: number;
  problem?: RegExp;
}) {
  judging(name, () => {
    const got = judge({ ...fine, ...evidence });
    assert.is(got.passed, want.passed ?? 3, "passed");
    assert.is(got.failed, want.failed ?? 0, "failed");
    assert.is(got.skipped, want.skipped ?? 0, "skipped");
    if (want.problem === undefined) assert.equal(got.problems, []);
    else assert.match(got.problems.join("\n"), want.problem);
  });
}

const FAILURES = `2026-11-30 12:00:00 LOG ready
 a suite name  ✘ ✘   (0 / 2)

   FAIL  a suite name  "one"
    wait for the cows: not so after 50 ms

    at until (file:///main/test/support/harness.ts:43:13)
    at async Object.handler (file:///main/test/some_test.ts:3:39)
    at async runner (file:///main/node_modules/uvu/dist/index.mjs:78:5)


   FAIL  a suite name  "two"
    Expected values to be strictly equal:  (is)

        ++2    (Expected)
        --1    (Actual)
        
    at is (file:///main/node_modules/uvu/assert/index.mjs:41:2)
    at <anonymous> (file:///main/test/some_test.ts:5:27)

2026-11-30 12:00:01 LOG stopped
    at nothing of a test
${SUMMARY}`;

judging("judge() says of each failed test what was wrong and where", () => {
  assert.equal(judge({ ...fine, output: FAILURES }).failures, [
    `FAIL  a suite name  "one"
    wait for the cows: not so after 50 ms
    at test/some_test.ts:3`,
    `FAIL  a suite name  "two"
    Expected values to be strictly equal:  (is)
        ++2    (Expected)
        --1    (Actual)
    at test/some_test.ts:5`,
  ]);
  assert.equal(parseFailures(SUMMARY), []);
});

judging("judge() says little of a failed test that printed much", () => {
  const many = "    and so on\n".repeat(1000);
  const [failure = ""] = parseFailures(`   FAIL  a suite name  "one"\n${many}`);
  assert.ok(failure.split("\n").length < 20);
});

const none = { passed: 0, failed: 1 };
check("judge() passes a file whose tests all passed", {}, {});
check("judge() counts failed tests once", {
  output: SUMMARY.replace("Passed:    3", "Passed:    1"),
  end: { code: 1, signal: null },
}, { passed: 1, failed: 2 });
check("judge() fails a file without a summary", { output: "hello\n" }, {
  ...none,
  problem: /no summary/,
});
check("judge() fails a file that ran no test", {
  output: SUMMARY.replaceAll("3", "0"),
}, { ...none, problem: /no test/ });
check("judge() fails a file with two summaries", { output: SUMMARY + SUMMARY }, {
  failed: 1,
  problem: /2 summaries/,
});
check("judge() names a before hook that failed unseen", {
  output: SUMMARY.replace("Passed:    3", "Passed:    0"),
}, { passed: 0, failed: 3, problem: /before hook/ });
check("judge() fails a file that passed and exited with another code", {
  end: { code: 1, signal: null },
}, { failed: 1, problem: /code 1/ });
check("judge() fails a file that a signal ended", { end: { code: null, signal: "SIGSEGV" } }, {
  failed: 1,
  problem: /SIGSEGV/,
});
check("judge() fails a file past its limit", { timedOutAfterMs: 60_000, output: "" }, {
  ...none,
  problem: /limit of 60 s/,
});
check("judge() fails a file that does not end after its summary", { lingered: true }, {
  failed: 1,
  problem: /kept the process running/,
});
check("judge() fails a file that leaves a process behind", { leftProcesses: ["7 sleep 9"] }, {
  failed: 1,
  problem: /7 sleep 9/,
});
check("judge() fails a file that leaves a temp folder behind", { leftFiles: ["pgweir-x"] }, {
  failed: 1,
  problem: /pgweir-x/,
});
check("judge() counts a file that skipped itself", { output: "SKIP no nats-server here\n" }, {
  passed: 0,
  skipped: 1,
});
check("judge() does not let SKIP hide a crash", {
  output: "SKIP no nats-server here\n",
  end: { code: 1, signal: null },
}, { ...none, problem: /code 1/ });

judging("parseSummaries() reads uvu's lines and nothing that looks like them", () => {
  assert.equal(parseSummaries(SUMMARY), [{ total: 3, passed: 3, skipped: 0 }]);
  assert.equal(parseSummaries("Total: 3\nPassed: 3\nSkipped: 0\n"), []);
});

judging("limitOf() reads a limit among the first lines only", () => {
  assert.is(limitOf("// A test.\n// limit: 360 s\n"), 360_000);
  assert.is(limitOf("// A test.\n"), 240_000);
  assert.is(limitOf("\n".repeat(20) + "// limit: 360 s\n"), 240_000);
});

judging("loadOf() reads what a file asks of the machine among the first lines only", () => {
  assert.is(loadOf("// A test.\n// load: waits\n"), "waits");
  assert.is(loadOf("// load: alone\n// limit: 240 s\n"), "alone");
  assert.is(loadOf("// A test of the load: waits\n"), "computes");
  assert.is(loadOf("\n".repeat(20) + "// load: waits\n"), "computes");
  assert.throws(() => loadOf("// load: heavy\n"), /load: "heavy", wanted waits or alone/);
});

judging.run();

const running = suite("runTestFile");
const base = mkdtempSync(join(tmpdir(), "runner-"));
process.on("exit", () => rmSync(base, { recursive: true, force: true }));
let count = 0;

/** More than any machine needs, so that only what a test is about is cut short. */
const PATIENCE: Patience = { lingerMs: 60_000, stopMs: 60_000, leftoverMs: 60_000 };

async function runScript(
  script: string,
  patience: Partial<Patience> = {},
  limitMs = 60_000,
): Promise<Outcome> {
  const root = join(base, String(++count));
  mkdirSync(root);
  writeFileSync(join(root, "made_up.sh"), script);
  return await runTestFile({ path: "made_up.sh", limitMs, load: "computes" }, {
    root,
    tempDir: join(root, "tmp"),
    command: ["/bin/sh"],
    patience: { ...PATIENCE, ...patience },
  });
}

const PRINT_SUMMARY = `printf '${SUMMARY.replaceAll("\n", "\\n")}'`;

running("runTestFile() counts the tests of a file that ends well", async () => {
  const outcome = await runScript(`echo hello; ${PRINT_SUMMARY}`);
  assert.equal(outcome.problems, []);
  assert.is(outcome.passed, 3);
  assert.match(outcome.output, "hello");
});

running("runTestFile() ends a file at its limit with everything it started", async () => {
  const outcome = await runScript(
    `sleep 600 & echo "pid $!"; trap '' TERM; sleep 600`,
    { stopMs: 300 },
    500,
  );
  assert.match(outcome.problems.join(), /limit of 0.5 s/);
  assert.not(isAlive(Number(/pid (\d+)/.exec(outcome.output)?.[1])));
});

running("runTestFile() ends a file that stays after its summary", async () => {
  const outcome = await runScript(`${PRINT_SUMMARY}; sleep 600`, { lingerMs: 300 });
  assert.match(outcome.problems.join(), /kept the process running/);
  assert.is(outcome.passed, 3);
  assert.is(outcome.failed, 1);
});

running("runTestFile() finds and ends a process left in a session of its own", async () => {
  // It ends when the other one is what it will be, and no copy of the shell any more.
  const isSleep = 'grep -qx sleep "/proc/$!/comm"';
  const outcome = await runScript(
    `setsid sleep 601 >/dev/null 2>&1 </dev/null & until ${isSleep}; do :; done; ${PRINT_SUMMARY}`,
    { leftoverMs: 300, stopMs: 300 },
  );
  assert.match(outcome.problems.join(), /left processes behind: \d+ sleep 601/);
  assert.is(outcome.failed, 1);
  const left = Number(/behind: (\d+) /.exec(outcome.problems.join())?.[1]);
  assert.not(isAlive(left));
});

running("runTestFile() names what is left in the temp folder, and removes it", async () => {
  const outcome = await runScript(`mkdir "$TMPDIR/forgotten"; ${PRINT_SUMMARY}`);
  assert.match(outcome.problems.join(), /temp folder: forgotten/);
});

running("runTestFile() keeps drivers' variables of the caller away from the file", async () => {
  process.env["PGHOST"] = "elsewhere.example";
  const outcome = await runScript(`echo "host is <$PGHOST>"; ${PRINT_SUMMARY}`);
  delete process.env["PGHOST"];
  assert.match(outcome.output, "host is <>");
});

running("runTestFile() reports a program that cannot be started", async () => {
  const outcome = await runTestFile({ path: "made_up.sh", limitMs: 60_000, load: "computes" }, {
    root: base,
    tempDir: join(base, "tmp"),
    command: ["/no/such/program"],
  });
  assert.is(outcome.failed, 1);
  assert.match(outcome.output, /no\/such\/program/);
});

running(
  "findTestFiles() finds test files at any depth, sorted, with what they say of themselves",
  () => {
    const root = mkdtempSync(join(base, "tree-"));
    mkdirSync(join(root, "test/shared/wire"), { recursive: true });
    writeFileSync(join(root, "test/shared/wire/b_test.ts"), "// limit: 90 s\n");
    writeFileSync(join(root, "test/a_test.ts"), "// load: alone\n");
    writeFileSync(join(root, "test/shared/helper.ts"), "");
    assert.equal(findTestFiles(root), [
      { path: "test/a_test.ts", limitMs: 240_000, load: "alone" },
      { path: "test/shared/wire/b_test.ts", limitMs: 90_000, load: "computes" },
    ]);
  },
);

running.run();
