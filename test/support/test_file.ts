// Runs one test file in a process of its own and judges how it went. It knows uvu's summary and its blind
// spots: no test at all, a before hook whose error vanishes, a process that does not end, something left behind.
// The process leads a session of its own and carries a marker in its environment, so that whatever it started
// is found again, and stopped, by what it inherited and never by its name.

import { spawn } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { commandLine, isAlive, listProcesses, signal, startedWith } from "./processes.ts";

/** What a file asks of the machine: processors, mostly patience, or quiet. */
export type Load = "computes" | "waits" | "alone";

export interface TestFile {
  /** Path below the root, with slashes. */
  readonly path: string;
  readonly limitMs: number;
  readonly load: Load;
}

export interface Outcome {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly seconds: number;
  /** Why the file skipped itself, else null. */
  readonly skipReason: string | null;
  /** What is wrong beyond failed tests; with any of these the file counts at least one failure. */
  readonly problems: readonly string[];
  /** What was printed of each failed test: its name, what was wrong, where; a few lines each. */
  readonly failures: readonly string[];
  /** The end of what the process printed, without colours. */
  readonly output: string;
}

export interface Patience {
  /** How long a process may live on after its summary. */
  readonly lingerMs: number;
  /** How long processes have to obey SIGTERM before SIGKILL. */
  readonly stopMs: number;
  /** How long what a file started may outlive it. */
  readonly leftoverMs: number;
}

export interface RunOptions {
  /** The working directory of the process. */
  readonly root: string;
  /** Becomes TMPDIR of the process; made before it starts, must be empty when it ended, removed then. */
  readonly tempDir: string;
  /** argv before the file name. */
  readonly command: readonly string[];
  /** More environment for the process. */
  readonly environment?: Readonly<Record<string, string>>;
  readonly patience?: Patience;
  /** Aborting ends the process and everything it started. */
  readonly abort?: AbortSignal;
}

const DEFAULT_LIMIT_MS = 240_000;
// Removing a large cluster from a busy disk may take a process many seconds after its summary.
const PATIENCE: Patience = { lingerMs: 40_000, stopMs: 3_000, leftoverMs: 20_000 };
const OUTPUT_CHARS = 256 * 1024;
const FAILURE_LINES = 16;

function headOf(source: string): string {
  return source.split("\n", 12).join("\n");
}

/** Reads a test file's time limit: `// limit: 360 s` among its first lines, else 240 s. */
export function limitOf(source: string): number {
  const seconds = /^\/\/ limit: (\d+) s$/m.exec(headOf(source))?.[1];
  return seconds === undefined ? DEFAULT_LIMIT_MS : Number(seconds) * 1000;
}

/**
 * Reads what a test file asks of the machine: `// load: waits` among its first lines when its time goes by in
 * waiting for terms, leases and elections, `// load: alone` when it measures the machine.
 */
export function loadOf(source: string): Load {
  const word = /^\/\/ load: (.*)$/m.exec(headOf(source))?.[1];
  if (word === undefined) return "computes";
  if (word !== "waits" && word !== "alone") {
    throw new Error(`read a test file's load: "${word}", wanted waits or alone`);
  }
  return word;
}

/** The test files below `<root>/test`, sorted by path. */
export function findTestFiles(root: string): TestFile[] {
  return readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith("_test.ts"))
    .map((name) => `test/${name}`)
    .sort()
    .map((path) => {
      const source = readFileSync(join(root, path), "utf8");
      return { path, limitMs: limitOf(source), load: loadOf(source) };
    });
}

interface Summary {
  readonly total: number;
  readonly passed: number;
  readonly skipped: number;
}

/** The summaries uvu printed; a file that is run right has exactly one. */
export function parseSummaries(output: string): Summary[] {
  const summary = /^ {2}Total: +(\d+)\n {2}Passed: +(\d+)\n {2}Skipped: +(\d+)$/gm;
  return [...output.matchAll(summary)].map((m) => ({
    total: Number(m[1]),
    passed: Number(m[2]),
    skipped: Number(m[3]),
  }));
}

/** What uvu printed of each failed test, without the frames of the stack outside of the tests. */
export function parseFailures(output: string): string[] {
  const failures: string[][] = [];
  let lines: string[] | null = null;
  for (const line of output.split("\n")) {
    if (/^ {3}FAIL {2}/.test(line)) {
      lines = [line.trim()];
      failures.push(lines);
    } else if (/^\S/.test(line)) lines = null; // a log line between two tests
    else if (/^ {4}at /.test(line)) {
      const place = /\btest\/(?!support\/harness)[\w/.-]+:\d+/.exec(line)?.[0];
      if (place !== undefined) lines?.push(`    at ${place}`);
    } else if (/^ {4}/.test(line) && line.trim() !== "") lines?.push(line);
  }
  return failures.map((each) => each.slice(0, FAILURE_LINES).join("\n"));
}

interface End {
  readonly code: number | null;
  readonly signal: string | null;
}

/** Everything that can be known when a process has ended; `judge` turns it into an outcome. */
export interface Evidence {
  readonly output: string;
  readonly end: End;
  readonly timedOutAfterMs: number | null;
  readonly lingered: boolean;
  readonly leftProcesses: readonly string[];
  readonly leftFiles: readonly string[];
}

/** Decides from the evidence alone how many tests passed and what else went wrong. */
export function judge(seen: Evidence): Omit<Outcome, "seconds" | "output"> {
  const problems: string[] = [];
  const summaries = parseSummaries(seen.output);
  const summary = summaries.at(-1) ?? { total: 0, passed: 0, skipped: 0 };
  const skipReason = /^SKIP (.+)$/m.exec(seen.output)?.[1] ?? null;
  let failed = summary.total - summary.passed;

  if (seen.timedOutAfterMs !== null) {
    problems.push(
      `ended by the runner: still running after its limit of ${seen.timedOutAfterMs / 1000} s`,
    );
  } else if (seen.lingered) {
    problems.push(
      "ended by the runner: its tests were over, yet something kept the process running",
    );
  } else if (seen.end.signal !== null) {
    problems.push(`the process was ended by ${seen.end.signal}`);
  } else if (seen.end.code !== 0 && failed === 0) {
    problems.push(`the process exited with code ${seen.end.code} although no test failed`);
  }
  if (problems.length === 0) {
    if (summaries.length === 0 && skipReason === null) {
      problems.push("it printed no summary: a suite without .run(), or an exit before the end");
    } else if (summaries.length > 1) {
      problems.push(
        `it printed ${summaries.length} summaries: every .run() must come before the first await after another .run()`,
      );
    } else if (summary.total === 0 && skipReason === null) {
      problems.push("it ran no test");
    } else if (failed > 0 && seen.end.code === 0) {
      problems.push("a before hook failed, so tests were left out");
    }
  }
  if (seen.leftProcesses.length > 0) {
    problems.push(`it left processes behind: ${seen.leftProcesses.join("; ")}`);
  }
  if (seen.leftFiles.length > 0) {
    problems.push(`it left files in the temp folder: ${seen.leftFiles.join(", ")}`);
  }
  if (problems.length > 0 && failed === 0) failed = 1;
  const skippedFile = skipReason !== null && summary.total === 0 && problems.length === 0;
  return {
    passed: summary.passed,
    failed,
    skipped: summary.skipped + (skippedFile ? 1 : 0),
    skipReason,
    problems,
    failures: parseFailures(seen.output),
  };
}

const delay = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** The environment of the runner without what would steer a driver, pgweir or the colours of the output. */
function testEnvironment(): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(process.env)) {
    if (value === undefined || /^(PG|npm_)/.test(name) || name === "FORCE_COLOR") continue;
    kept[name] = value;
  }
  return { ...kept, NO_COLOR: "1" };
}

export async function runTestFile(file: TestFile, options: RunOptions): Promise<Outcome> {
  const started = performance.now();
  mkdirSync(options.tempDir, { recursive: true, mode: 0o755 });
  const marker = `PGWEIR_TEST_PROCESS=${process.pid}-${Math.random().toString(36).slice(2)}`;
  const [program = "", ...args] = [...options.command, file.path];
  const child = spawn(program, args, {
    cwd: options.root,
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      ...testEnvironment(),
      ...options.environment,
      TMPDIR: options.tempDir,
      [marker.split("=")[0]!]: marker.split("=")[1]!,
    },
  });
  const leader = child.pid;
  const { lingerMs, stopMs, leftoverMs } = options.patience ?? PATIENCE;
  let output = "";
  let end: End | null = null;
  let outputEnded = false;
  let summaryAt = 0;
  const take = (text: string) => {
    // deno-lint-ignore no-control-regex -- colours are control sequences
    output = (output + text.replace(/\x1b\[[0-9;]*m/g, "")).slice(-OUTPUT_CHARS);
    if (summaryAt === 0 && parseSummaries(output).length > 0) summaryAt = performance.now();
  };
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8");
    stream.on("data", take);
  }
  child.on("error", (error) => {
    take(`${error.message}\n`);
    end ??= { code: 127, signal: null };
    outputEnded = true;
  });
  child.on("exit", (code, signalName) => end = { code, signal: signalName });
  child.on("close", () => outputEnded = true);

  /** Who still runs of what this file started; the leader itself only while it has not ended. */
  const survivors = () =>
    listProcesses().filter((p) =>
      p.pid !== process.pid && p.state !== "Z" &&
      (p.session === leader || p.group === leader || startedWith(p.pid, marker))
    );
  /** Asks politely first, so that the file's own exit handlers can stop servers and remove folders; none is left. */
  const stopAll = async () => {
    for (const p of survivors()) signal(p.pid, "SIGCONT");
    if (leader !== undefined) signal(-leader, "SIGTERM");
    const deadline = performance.now() + stopMs;
    while (performance.now() < deadline && survivors().length > 0) await delay(20);
    for (const p of survivors()) signal(p.pid, "SIGKILL");
    while (survivors().length > 0 || (leader !== undefined && isAlive(leader))) await delay(20);
  };

  let timedOutAfterMs: number | null = null;
  let lingered = false;
  while (end === null) {
    await delay(10);
    const now = performance.now();
    const linger = summaryAt > 0 && now - summaryAt > lingerMs;
    const late = now - started > file.limitMs;
    if (end !== null || !(linger || late || options.abort?.aborted)) continue;
    lingered = linger;
    timedOutAfterMs = linger ? null : file.limitMs;
    await stopAll();
    break;
  }
  const ended = performance.now();
  while (survivors().length > 0 && performance.now() < ended + leftoverMs) await delay(20);
  const left = survivors();
  const leftProcesses = left.map((p) => `${p.pid} ${commandLine(p.pid).slice(0, 120)}`);
  if (left.length > 0) await stopAll();
  while (!outputEnded && performance.now() < ended + 2 * leftoverMs) await delay(5);

  const stoppedByUs = timedOutAfterMs !== null;
  const leftFiles = stoppedByUs ? [] : readdirSync(options.tempDir);
  rmSync(options.tempDir, { recursive: true, force: true });
  const verdict = judge({
    output,
    end: end ?? { code: null, signal: "SIGKILL" },
    timedOutAfterMs,
    lingered,
    leftProcesses,
    leftFiles,
  });
  return { ...verdict, seconds: (ended - started) / 1000, output };
}
