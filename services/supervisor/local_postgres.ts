// Runs the PostgreSQL of `pgweir up`: started after whatever was left of an earlier one is stopped, ready
// when its own status file says so, ended by a fast shutdown. It lives in a session of its own, so that a
// Ctrl-C at the terminal reaches it only after the workers have drained.
//
// A guard, a shell that does nothing but read from a pipe whose other end only we hold, ends PostgreSQL
// when we are gone without a word (SIGKILL): the kernel closes the pipe.

import type { ChildProcess } from "node:child_process";
import { closeSync, openSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { fileFailure, StartFailure } from "./failure.ts";
import type { PostgresFiles } from "./postgres_files.ts";
import { failureLine, parsePostmasterFile, postgresArguments } from "./postmaster.ts";
import {
  asAccount,
  isRunning,
  processesIn,
  signalProcess,
  startProcess,
  waitUntil,
} from "./processes.ts";

/** Recovery after a crash may take its time. */
const startTimeoutMs = 60_000;
const fastShutdownMs = 30_000;
const immediateShutdownMs = 5_000;

/** `read` gets a line when we say goodbye, and fails at the end of the file. */
const guardScript = 'read -r line || kill -INT "$1"';

export interface LocalPostgresOptions {
  readonly files: PostgresFiles;
  readonly maxConnections: number;
  readonly logFile: string;
  readonly log: (line: string) => void;
  /** Ends a start that is under way. */
  readonly aborted: AbortSignal;
}

export class LocalPostgres {
  readonly #options: LocalPostgresOptions;
  #server: ChildProcess | null = null;
  #guard: ChildProcess | null = null;
  #ended = false;

  /** Called once, when the server ends without stop(). */
  onUnexpectedExit: (reason: string) => void = () => {};

  constructor(options: LocalPostgresOptions) {
    this.#options = options;
  }

  /** Resolves with the loopback port once connections are accepted. */
  async start(): Promise<number> {
    await this.#stopLeftOver();
    const port = await freePort();
    const { files, maxConnections, logFile } = this.#options;
    const { dataDirectory } = files;
    const output = openLog(logFile);
    let spawnFailure: StartFailure | null = null;
    const server = startProcess(
      files.postgres,
      postgresArguments({ dataDirectory, port, maxConnections }),
      {
        ...asAccount(files.account),
        detached: true,
        stdio: ["ignore", output, output],
      },
      (failure) => {
        spawnFailure = failure;
        this.#ended = true;
      },
    );
    closeSync(output);
    this.#server = server;
    let onExit = () => {};
    server.on("exit", () => {
      this.#ended = true;
      onExit();
    });
    if (server.pid !== undefined) this.#guard = startGuard(server.pid, files);
    const { aborted } = this.#options;
    const ready = await waitUntil(
      () => this.#ended || aborted.aborted || this.#isReady(),
      startTimeoutMs,
    );
    if (this.#ended || aborted.aborted || !ready) {
      const reason = this.#ended ? this.#failure() : `not ready after ${startTimeoutMs / 1000} s`;
      await this.stop();
      if (spawnFailure !== null) throw spawnFailure;
      throw new StartFailure(`start PostgreSQL in "${dataDirectory}": ${reason}`);
    }
    onExit = () => {
      if (this.#server !== null) this.onUnexpectedExit(this.#failure());
    };
    return port;
  }

  /** Ends clients and server: fast, then at once, then by force. Idempotent. */
  async stop(): Promise<void> {
    const server = this.#server;
    if (server === null) return;
    this.#server = null;
    if (server.pid !== undefined) {
      await this.#end([server.pid], () => this.#ended, server.pid);
    }
    this.#guard?.stdin?.end("bye\n");
    this.#guard = null;
  }

  #isReady(): boolean {
    const file = this.#postmasterFile();
    return file !== null && file.ready && file.pid === this.#server?.pid;
  }

  #postmasterFile() {
    try {
      return parsePostmasterFile(
        readFileSync(join(this.#options.files.dataDirectory, "postmaster.pid"), "utf8"),
      );
    } catch {
      return null;
    }
  }

  #failure(): string {
    const { logFile } = this.#options;
    try {
      return failureLine(readFileSync(logFile, "utf8")) ?? "it ended without a message";
    } catch (error) {
      throw fileFailure("read", logFile, error);
    }
  }

  /**
   * After a SIGKILL of ours or a crash of the machine. Every process of a cluster works in its data
   * directory, which finds them even when postmaster.pid names a process that has that pid by chance
   * (common in containers, where PostgreSQL would then refuse to start).
   */
  async #stopLeftOver(): Promise<void> {
    const { dataDirectory } = this.#options.files;
    const left = processesIn(dataDirectory);
    const named = this.#postmasterFile()?.pid;
    if (left.length > 0) {
      const first = named !== undefined && left.includes(named) ? named : null;
      this.#options.log(
        `PostgreSQL of an earlier run is still there (pid ${(first ?? left[0])}), stopping it`,
      );
      const gone = () => processesIn(dataDirectory).length === 0;
      await this.#end(left, gone, first);
      if (!gone()) {
        throw new StartFailure(
          `stop the PostgreSQL of an earlier run in "${dataDirectory}": pid ${
            left[0]
          } does not end`,
        );
      }
    }
    rmSync(join(dataDirectory, "postmaster.pid"), { force: true });
  }

  /** `postmaster` takes its children along; without one they are ended one by one. */
  async #end(pids: readonly number[], gone: () => boolean, postmaster: number | null) {
    if (gone()) return;
    if (postmaster !== null) {
      signalProcess(postmaster, "SIGINT");
      if (await waitUntil(gone, fastShutdownMs)) return;
      this.#options.log(
        `PostgreSQL does not stop within ${fastShutdownMs / 1000} s, ending it at once`,
      );
      signalProcess(postmaster, "SIGQUIT");
      if (await waitUntil(gone, immediateShutdownMs)) return;
    }
    for (const pid of pids) if (isRunning(pid)) signalProcess(pid, "SIGQUIT");
    if (await waitUntil(gone, immediateShutdownMs)) return;
    for (const pid of pids) if (isRunning(pid)) signalProcess(pid, "SIGKILL");
    await waitUntil(gone, immediateShutdownMs);
  }
}

function startGuard(postmaster: number, files: PostgresFiles): ChildProcess {
  const guard = startProcess(
    "/bin/sh",
    ["-c", guardScript, "pgweir-guard", String(postmaster)],
    { ...asAccount(files.account), detached: true, stdio: ["pipe", "ignore", "ignore"] },
    () => {},
  );
  guard.stdin!.on("error", () => {});
  return guard;
}

function openLog(path: string): number {
  try {
    return openSync(path, "w", 0o600);
  } catch (error) {
    throw fileFailure("write", path, error);
  }
}

/** A port nobody listens on; PostgreSQL says so itself if somebody takes it in between. */
function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}
