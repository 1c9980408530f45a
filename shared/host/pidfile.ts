// The file that holds the id of a running process, as PgBouncer keeps it: it says who to signal, and keeps a
// second instance from starting. A file whose process is gone is stale and is replaced.

import { lchownSync, readFileSync, unlinkSync, writeFileSync } from "node:fs";
import process from "node:process";
import type { SystemUser } from "../sys/mod.ts";

/** Why a pidfile cannot be had; its message is for the operator. */
export class PidfileError extends Error {}

export class Pidfile {
  readonly path: string;
  #held = true;

  private constructor(path: string) {
    this.path = path;
  }

  /** Writes this process's id to a new file. Throws PidfileError. */
  static claim(path: string): Pidfile {
    for (let attempts = 0; attempts < 3; attempts++) {
      try {
        writeFileSync(path, `${process.pid}\n`, { flag: "wx", mode: 0o644 });
        return new Pidfile(path);
      } catch (error) {
        if (codeOf(error) !== "EEXIST") throw failure("write", path, error);
      }
      removeStale(path);
    }
    throw new PidfileError(`write pidfile "${path}": others write it at the same time`);
  }

  /** So that it can be emptied, at least, by whom this process becomes. */
  giveTo({ uid, gid }: SystemUser): void {
    lchownSync(this.path, uid, gid);
  }

  /** Removes the file, unless somebody else has taken it over. Idempotent; never throws. */
  release(): void {
    if (!this.#held) return;
    this.#held = false;
    try {
      if (pidIn(this.path) !== process.pid) return;
      try {
        unlinkSync(this.path);
      } catch {
        // In a folder of root's that it may not change any more: empty, it is stale at once.
        writeFileSync(this.path, "");
      }
    } catch {
      // It says a process that is gone: stale for the next one.
    }
  }
}

function removeStale(path: string): void {
  let holder: number | null;
  try {
    holder = pidIn(path);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return;
    throw failure("read", path, error);
  }
  // Our own id: in a container the first process is always the same one.
  if (holder !== null && holder !== process.pid && isAlive(holder)) {
    throw new PidfileError(
      `pidfile exists, another instance running? "${path}" names process ${holder}`,
    );
  }
  try {
    unlinkSync(path);
  } catch (error) {
    if (codeOf(error) !== "ENOENT") throw failure("remove stale", path, error);
  }
}

/** null: there is no process id in it. */
function pidIn(path: string): number | null {
  const text = /^\s*([0-9]{1,10})\s*$/.exec(readFileSync(path, "latin1"))?.[1];
  return text === undefined || Number(text) === 0 ? null : Number(text);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) !== "ESRCH";
  }
}

function codeOf(error: unknown): string | undefined {
  return (error as { code?: string }).code;
}

function failure(attempt: string, path: string, error: unknown): PidfileError {
  return new PidfileError(`${attempt} pidfile "${path}": ${codeOf(error) ?? error}`);
}
