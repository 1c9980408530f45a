// Child processes and what /proc says of others. A process is signalled by its pid, through process.kill:
// Deno's ChildProcess.kill() works only once. Nothing is ever looked up by a program's name.

import { type ChildProcess, spawn, type SpawnOptions } from "node:child_process";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import process from "node:process";
import { StartFailure } from "./failure.ts";

/** The user a child runs as; null = the user we are. */
export interface Account {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

export interface Finished {
  /** null: ended by a signal or by the deadline. */
  readonly code: number | null;
  /** Standard output and standard error, as they came, the last 64 KiB. */
  readonly output: string;
}

const outputLimit = 64 * 1024;

/**
 * The options of spawn() that make a child run as `account`, from a directory every user may be in. Another
 * user gets nothing of our environment, which may hold secrets, but PATH.
 */
export function asAccount(account: Account | null) {
  const env: NodeJS.ProcessEnv = account === null ? process.env : { PATH: process.env["PATH"] };
  const user = account === null ? {} : { uid: account.uid, gid: account.gid };
  // Messages are read for what went wrong, so they must be in English.
  return { cwd: "/", env: { ...env, LC_ALL: "C" }, ...user };
}

/**
 * spawn(), with a program that can't be run reported as a StartFailure: thrown at once (Deno, and every
 * runtime for some errors), or handed to `onFailure` (the event "error").
 */
export function startProcess(
  command: string,
  args: readonly string[],
  options: SpawnOptions,
  onFailure: (failure: StartFailure) => void,
): ChildProcess {
  const failure = (error: unknown) =>
    new StartFailure(`run "${command}": ${(error as NodeJS.ErrnoException).code ?? error}`);
  let child: ChildProcess;
  try {
    child = spawn(command, args, options);
  } catch (error) {
    throw failure(error);
  }
  child.on("error", (error) => onFailure(failure(error)));
  return child;
}

/**
 * Runs a program to its end, with `input` on its standard input. In a session of its own: a Ctrl-C at the
 * terminal is for us alone, and what takes a second may as well be finished.
 */
export function run(
  command: string,
  args: readonly string[],
  options: { account: Account | null; input?: string; timeoutMs: number },
): Promise<Finished> {
  return new Promise((resolve, reject) => {
    const child = startProcess(
      command,
      args,
      { ...asAccount(options.account), detached: true, stdio: ["pipe", "pipe", "pipe"] },
      (failure) => {
        clearTimeout(timer);
        reject(failure);
      },
    );
    let output = "";
    const append = (chunk: Uint8Array) => {
      output = (output + new TextDecoder().decode(chunk)).slice(-outputLimit);
    };
    const timer = setTimeout(() => {
      append(new TextEncoder().encode(`\nno end after ${options.timeoutMs} ms\n`));
      if (child.pid !== undefined) signalProcess(child.pid, "SIGKILL");
    }, options.timeoutMs);
    child.stdout!.on("data", append);
    child.stderr!.on("data", append);
    // A program that ends without reading all of its input has said why on standard error.
    child.stdin!.on("error", () => {});
    child.stdin!.end(options.input ?? "");
    child.on("close", (code) => {
      clearTimeout(timer);
      resolve({ code, output });
    });
  });
}

/** Sends a signal; false when the process is already gone. */
export function signalProcess(pid: number, signal: NodeJS.Signals): boolean {
  try {
    process.kill(pid, signal);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
    throw error;
  }
}

/** Whether a process runs; one that has ended and waits to be reaped does not. */
export function isRunning(pid: number): boolean {
  return startTimeOf(pid) !== null;
}

/**
 * When a process was started, in clock ticks since the boot: with the pid and the boot it names one process
 * for ever. null: it does not run.
 */
export function startTimeOf(pid: number): number | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name, field 2, is in parentheses and may hold spaces and parentheses itself.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return "ZX".includes(fields[0]!) ? null : Number(fields[19]);
  } catch {
    return null;
  }
}

/** Names the processes among which our pids mean something, e.g. "pid:[4026531836]". */
export function pidNamespace(): string {
  return readlinkSync("/proc/self/ns/pid");
}

/** Whether a process was started with a variable whose value `fits`; those we may not look at are not seen. */
export function someProcessHas(variable: string, fits: (value: string) => boolean): boolean {
  const prefix = `${variable}=`;
  return readdirSync("/proc").map(Number).some((pid) => {
    if (!(pid > 0)) return false;
    try {
      // Empty for one that has ended and waits to be reaped.
      return readFileSync(`/proc/${pid}/environ`, "utf8").split("\0")
        .some((entry) => entry.startsWith(prefix) && fits(entry.slice(prefix.length)));
    } catch {
      return false;
    }
  });
}

/** Processes whose working directory is `directory` (a real path); those we may not look at are not seen. */
export function processesIn(directory: string): number[] {
  return readdirSync("/proc").map(Number).filter((pid) => {
    if (!(pid > 0)) return false;
    try {
      return readlinkSync(`/proc/${pid}/cwd`) === directory && isRunning(pid);
    } catch {
      return false;
    }
  });
}

/** Waits until `done` holds; false when it did not within `timeoutMs`. */
export async function waitUntil(done: () => boolean, timeoutMs: number): Promise<boolean> {
  const deadline = performance.now() + timeoutMs;
  while (!done()) {
    if (performance.now() >= deadline) return false;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return true;
}
