// The test runner: every test/**/*_test.ts, one process per file and per runtime, each with a time limit.
//   test/run.ts [--unit] [--runtime bun|deno] [--jobs N] [--list] [part of a path ...]
// --unit leaves out test/system. N files that compute run at once, 2 (N - 1) that mostly wait beside them; default:
// as many as there are processors. Prints one line per file, the output of files that failed, and at the end what
// failed, a line each, and the line `N passed, N failed`; exits 1 on any failure. It runs on either runtime and uses node: modules only.

import { chmodSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { Schedule } from "./support/schedule.ts";
import { findTestFiles, type Outcome, runTestFile, type TestFile } from "./support/test_file.ts";

const root = resolve(import.meta.dirname!, "..");

/** Two where there is one processor, too: no file computes all the time. */
const defaultJobs = Math.min(8, Math.max(2, availableParallelism()));

const COMMANDS: Readonly<Record<string, readonly string[]>> = {
  bun: [join(root, "node_modules/.bin/bun"), "run"],
  deno: [join(root, "node_modules/.bin/deno"), "run", "-A"],
};

/** Of a failure in the list at the end; the whole is where it happened. */
const failureChars = 200;

interface Job {
  readonly file: TestFile;
  readonly runtime: string;
}

interface Totals {
  passed: number;
  failed: number;
  skipped: number;
}

function usage(message: string): never {
  console.error(
    `${message}\nusage: test/run.ts [--unit] [--runtime bun|deno] [--jobs N] [--list] [name ...]`,
  );
  process.exit(2);
}

function readOptions() {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        unit: { type: "boolean", default: false },
        runtime: { type: "string", multiple: true },
        jobs: { type: "string" },
        list: { type: "boolean", default: false },
      },
    });
    return { ...values, names: positionals };
  } catch (error) {
    return usage((error as Error).message);
  }
}

/** A unix socket's path has 107 bytes at most: a deep TMPDIR would leave none for the tests. */
function shortTempDir(): string {
  const base = tmpdir().length <= 40 ? tmpdir() : "/tmp";
  const dir = mkdtempSync(join(base, "pgweir-"));
  // PostgreSQL is started as another user when the tests run as root, and has to get to its folder.
  chmodSync(dir, 0o755);
  return dir;
}

function report(job: Job, outcome: Outcome): void {
  const bad = outcome.failed > 0;
  const skippedFile = !bad && outcome.skipReason !== null && outcome.passed === 0;
  const word = bad ? "FAIL" : skippedFile ? "skip" : "ok  ";
  const what = skippedFile
    ? outcome.skipReason
    : `${outcome.passed} passed` + (bad ? `, ${outcome.failed} failed` : "") +
      (outcome.skipReason === null ? "" : ` (SKIP ${outcome.skipReason})`);
  console.log(
    `${word} ${job.runtime.padEnd(4)} ${job.file.path.padEnd(44)} ${
      outcome.seconds.toFixed(2).padStart(6)
    } s  ${what}`,
  );
  if (!bad) return;
  const lines = outcome.output.trimEnd().split("\n").concat(
    outcome.problems.map((p) => `==> ${p}`),
  );
  console.log(lines.map((line) => `     ${line}`).join("\n"));
}

/** One line that tells which test failed and how: what keeps only the end of a log keeps all of these. */
function shortened(failure: string): string {
  const line = failure.replace(/\s+/g, " ").trim();
  return line.length <= failureChars ? line : `${line.slice(0, failureChars - 1)}…`;
}

async function runAll(
  schedule: Schedule<Job>,
  run: (job: Job) => Promise<void>,
  abort: AbortSignal,
): Promise<void> {
  const running = new Set<Promise<void>>();
  const fill = () => {
    for (let job = schedule.next(); job !== null; job = schedule.next()) {
      const one = job;
      const ended = run(one).finally(() => {
        schedule.done(one);
        running.delete(ended);
      });
      running.add(ended);
    }
  };
  for (;;) {
    if (!abort.aborted) fill();
    if (running.size === 0) return;
    await Promise.race(running);
  }
}

async function main(): Promise<number> {
  const options = readOptions();
  const runtimes = options.runtime ?? Object.keys(COMMANDS);
  for (const name of runtimes) {
    if (COMMANDS[name] === undefined) usage(`--runtime: "${name}" is neither bun nor deno`);
    if (!existsSync(COMMANDS[name][0]!)) {
      usage(`${COMMANDS[name][0]}: no such file, run deploy/install.sh`);
    }
  }
  const atOnce = options.jobs === undefined ? defaultJobs : Number(options.jobs);
  if (!(Number.isInteger(atOnce) && atOnce > 0)) {
    usage(`--jobs: "${options.jobs}" is no positive whole number`);
  }
  const files = findTestFiles(root).filter((file) =>
    !(options.unit && file.path.startsWith("test/system/")) &&
    (options.names.length === 0 || options.names.some((name) => file.path.includes(name)))
  );
  if (files.length === 0) usage(`no test file matches ${JSON.stringify(options.names)}`);
  if (options.list) {
    for (const { path, limitMs, load } of files) {
      console.log(`${path}  (limit ${limitMs / 1000} s, ${load})`);
    }
    return 0;
  }

  const runDir = shortTempDir();
  const abort = new AbortController();
  let interrupted = false;
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(name, () => {
      interrupted = true;
      abort.abort();
    });
  }
  const totals: Totals = { passed: 0, failed: 0, skipped: 0 };
  const failures: string[] = [];
  const skips = new Map<string, string>();
  let number = 0;

  async function run(job: Job): Promise<void> {
    const outcome = await runTestFile(job.file, {
      root,
      tempDir: join(runDir, String(++number)),
      command: COMMANDS[job.runtime]!,
      // Where test/support/postgres.ts keeps freshly made clusters to copy, for as long as this run lasts.
      environment: { PGWEIR_TEST_CACHE: join(runDir, "cache") },
      abort: abort.signal,
    });
    if (interrupted) return;
    report(job, outcome);
    totals.passed += outcome.passed;
    totals.failed += outcome.failed;
    totals.skipped += outcome.skipped;
    if (outcome.failed > 0) {
      const why = [...outcome.problems.map((p) => `==> ${p}`), ...outcome.failures];
      failures.push(...why.map((each) => `${job.runtime} ${job.file.path}: ${shortened(each)}`));
    }
    if (outcome.skipReason !== null) skips.set(job.file.path, outcome.skipReason);
  }

  const started = performance.now();
  try {
    const jobs = files.flatMap((file) => runtimes.map((runtime) => ({ file, runtime })));
    await runAll(new Schedule(jobs, atOnce), run, abort.signal);
  } finally {
    rmSync(runDir, { recursive: true, force: true });
  }
  if (interrupted) {
    console.log("interrupted");
    return 130;
  }

  console.log(
    `\n${files.length} files on ${runtimes.join(" and ")} in ${
      ((performance.now() - started) / 1000).toFixed(1)
    } s`,
  );
  for (const [path, reason] of skips) console.log(`skipped ${path}: ${reason}`);
  for (const failure of failures) console.log(`failed  ${failure}`);
  console.log(
    `${totals.passed} passed, ${totals.failed} failed` +
      (totals.skipped > 0 ? `, ${totals.skipped} skipped` : ""),
  );
  return totals.failed > 0 ? 1 : 0;
}

process.exitCode = await main();
