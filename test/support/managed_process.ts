// A server process that a test started: its output goes to files (so that no pipe keeps the test process alive
// or blocks the server), it is stopped by its pid, and it never outlives the test process.
// Signals are sent with process.kill: ChildProcess.kill works only once on Deno.

import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { atExit, waitBlocking } from "./at_exit.ts";
import { until } from "./harness.ts";
import { isAlive, signal } from "./processes.ts";
import { tempDir } from "./temp.ts";

export interface LaunchOptions {
  /** argv; the program is looked up in PATH when it has no slash. */
  readonly command: readonly string[];
  readonly cwd?: string;
  /** The whole environment; default: that of this process. */
  readonly environment?: Record<string, string>;
  readonly user?: { readonly uid: number; readonly gid: number };
  /** The signal that stops it at once when the test process ends; default SIGKILL. */
  readonly exitSignal?: NodeJS.Signals;
}

export interface ProcessEnd {
  readonly code: number | null;
  readonly signal: string | null;
}

const decoder = new TextDecoder();

export class ManagedProcess {
  readonly pid: number;
  readonly #stdoutFile: string;
  readonly #stderrFile: string;
  readonly #forget: () => void;
  #end: ProcessEnd | null = null;

  private constructor(
    child: ChildProcess,
    files: { stdout: string; stderr: string },
    exitSignal: NodeJS.Signals,
  ) {
    this.pid = child.pid!;
    this.#stdoutFile = files.stdout;
    this.#stderrFile = files.stderr;
    child.on("exit", (code, name) => this.#end = { code, signal: name });
    child.unref();
    this.#forget = atExit(() => {
      if (this.#end !== null) return;
      this.signal("SIGCONT");
      this.signal(exitSignal);
      if (!waitBlocking(() => !isAlive(this.pid), 10_000)) this.signal("SIGKILL");
    });
  }

  static async launch(options: LaunchOptions): Promise<ManagedProcess> {
    const dir = tempDir("out");
    const files = { stdout: join(dir, "stdout"), stderr: join(dir, "stderr") };
    const stdout = openSync(files.stdout, "a");
    const stderr = openSync(files.stderr, "a");
    const [program = "", ...args] = options.command;
    try {
      const child = spawn(program, args, {
        cwd: options.cwd ?? "/",
        env: options.environment ?? process.env,
        stdio: ["ignore", stdout, stderr],
        ...options.user,
      });
      await new Promise<void>((resolve, reject) => {
        child.once("spawn", resolve);
        child.once("error", (error) => reject(new Error(`start "${program}": ${error.message}`)));
      });
      return new ManagedProcess(child, files, options.exitSignal ?? "SIGKILL");
    } finally {
      closeSync(stdout);
      closeSync(stderr);
    }
  }

  /** Whether it has not ended; a stopped (SIGSTOP) process runs. */
  get running(): boolean {
    return this.#end === null && isAlive(this.pid);
  }

  /** How it ended, or null. */
  get end(): ProcessEnd | null {
    return this.#end;
  }

  stdout(): string {
    return decoder.decode(readFileSync(this.#stdoutFile));
  }

  stderr(): string {
    return decoder.decode(readFileSync(this.#stderrFile));
  }

  /** Both outputs, for messages of failed tests. */
  output(): string {
    return this.stdout() + this.stderr();
  }

  signal(name: NodeJS.Signals): void {
    if (this.#end === null) signal(this.pid, name);
  }

  /** Waits for its end without asking for it. */
  async ended(timeoutMs = 60_000): Promise<ProcessEnd> {
    const end = await until(`process ${this.pid} to end`, () => this.#end, timeoutMs);
    this.#forget();
    return end;
  }

  /** Asks it to end and waits; kills it when it does not obey in time. */
  async stop(name: NodeJS.Signals = "SIGTERM", graceMs = 30_000): Promise<ProcessEnd> {
    this.signal("SIGCONT");
    this.signal(name);
    try {
      return await this.ended(graceMs);
    } catch {
      this.signal("SIGKILL");
      return await this.ended();
    }
  }

  /** Waits until `probe` is truthy; fails at once, with what the process printed, when it has ended before. */
  async ready<T>(
    what: string,
    probe: () => T | Promise<T>,
    timeoutMs = 40_000,
  ): Promise<NonNullable<T>> {
    try {
      return await until(what, async () => {
        const value = await probe();
        if (!value && !this.running) throw new Error(`wait for ${what}: the process has ended`);
        return value;
      }, timeoutMs);
    } catch (error) {
      const output = this.output().trimEnd().slice(-4_000);
      await this.stop("SIGKILL");
      throw new Error(`${(error as Error).message}\n--- its output:\n${output}`);
    }
  }
}
