// One child process of the supervisor: a worker or a coordinator. Its standard error is cut into lines and
// passed on; it counts as ended when its last words are read, too. It leads a process group of its own: a
// Ctrl-C at the terminal is for the supervisor, which asks its children to stop.
// Invariant: its pid is signalled only as long as it is ours, that is until it was reaped.

import type { ChildProcess } from "node:child_process";
import process from "node:process";
import type { Writable } from "node:stream";
import type { StartFailure } from "./failure.ts";
import { messageOf } from "./last_words.ts";
import { LineSplitter } from "./output.ts";
import { signalProcess, startProcess } from "./processes.ts";

export interface ServiceOptions {
  /** argv. */
  readonly command: readonly string[];
  /** Beside our own environment. */
  readonly environment: Readonly<Record<string, string>>;
  /** Written to its standard input at once; more with `hand()`. */
  readonly input: string;
  /** Takes a line that it wrote to its standard error. */
  readonly passOn: (line: string) => void;
  /** Called once; nothing of it is left then. */
  readonly onEnd: (ended: ServiceProcess) => void;
  /** The program can't be run, which was known only after the start. */
  readonly onFailure: (failure: StartFailure) => void;
}

/** From the end of a process until nobody waits for its last words: one it started may hold the pipe. */
const lastWordsMs = 500;

export class ServiceProcess {
  readonly pid: number;
  /** Monotonic ms. */
  readonly startedAt = performance.now();
  readonly #lines: LineSplitter;
  readonly #input: Writable;
  readonly #onEnd: (ended: ServiceProcess) => void;
  /** How it ended, once it has. */
  #end: string | null = null;
  /** The last words, while it ends; what is to happen when it does not stop, before. */
  #timer: NodeJS.Timeout | null = null;
  #quitting = false;
  #over = false;

  /** Throws a StartFailure, or returns null when `onFailure` is about to be called. */
  static start(options: ServiceOptions): ServiceProcess | null {
    const { command, environment, onFailure } = options;
    const child = startProcess(
      command[0]!,
      command.slice(1),
      {
        // Standard output is for the supervisor's ready text; what a service prints is a message.
        stdio: ["pipe", 2, "pipe"],
        detached: true,
        env: { ...process.env, ...environment },
      },
      onFailure,
    );
    return child.pid === undefined ? null : new ServiceProcess(child, child.pid, options);
  }

  private constructor(child: ChildProcess, pid: number, options: ServiceOptions) {
    this.pid = pid;
    this.#onEnd = options.onEnd;
    this.#lines = new LineSplitter(options.passOn);
    child.stderr!.on("data", (chunk: Uint8Array) => this.#lines.push(chunk));
    // One that has ended takes no more: its end is heard of otherwise.
    child.stdin!.on("error", () => {});
    this.#input = child.stdin!;
    this.hand(options.input);
    child.on("exit", (code, signal) => {
      this.#end = signal ?? `code ${code}`;
      // Behind one more look at the pipe: this process may have stood still itself.
      this.#after(lastWordsMs, () => setImmediate(() => this.#finish()));
    });
    child.on("close", () => this.#finish());
  }

  /** Writes to its standard input. */
  hand(text: string): void {
    if (this.running && text !== "") this.#input.write(text);
  }

  get running(): boolean {
    return this.#end === null;
  }

  /** "SIGKILL" or "code 1"; only of one that has ended. */
  get end(): string {
    return this.#end ?? "nothing yet";
  }

  /** The message in the last line it wrote, or "". */
  get lastMessage(): string {
    return messageOf(this.#lines.last);
  }

  /** False when it has ended. */
  signal(name: NodeJS.Signals): boolean {
    return this.running && signalProcess(this.pid, name);
  }

  /**
   * SIGTERM, or SIGINT; `onLate` when it still runs after `delayMs` (null: it may take for ever). One that was told to quit
   * is not asked, and gets no more time.
   */
  stop(
    delayMs: number | null,
    onLate: () => void,
    signal: "SIGTERM" | "SIGINT" = "SIGTERM",
  ): void {
    if (this.#quitting || !this.signal(signal)) return;
    if (delayMs !== null) this.#after(delayMs, onLate);
  }

  /** SIGQUIT, and SIGKILL when that has not ended it after `delayMs`; `onKill` is told before. */
  quit(delayMs: number, onKill: () => void): void {
    if (!this.signal("SIGQUIT")) return;
    this.#quitting = true;
    this.#after(delayMs, () => {
      onKill();
      this.signal("SIGKILL");
    });
  }

  #after(delayMs: number, then: () => void): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(then, delayMs);
  }

  #finish(): void {
    if (this.#over) return;
    this.#over = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#lines.end();
    this.#onEnd(this);
  }
}
