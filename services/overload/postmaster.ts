// Which processes are those of a PostgreSQL: its postmaster, found by what an operator says of it or because it is the
// only one here, and its children. It is looked for again when it is gone, so a restart of PostgreSQL needs nothing.

import { join } from "node:path";
import { readlinkSync } from "node:fs";
import type { Proc } from "./proc.ts";

/** What an operator says; nothing at all is allowed. */
export interface PostmasterHints {
  readonly pid: number | null;
  readonly dataDirectory: string | null;
  readonly port: number | null;
}

export interface Postmaster {
  readonly pid: number;
  /** null: it may not be seen by us. */
  readonly dataDirectory: string | null;
  readonly port: number | null;
}

const programs: readonly string[] = ["postgres", "postmaster"];

/** Port in a command line, arguments with zeros between: `-p 5432`, `-p5432`, `-c port=5432`, `--port=5432`. */
export function portOfArguments(text: string): number | null {
  const words = text.split("\0");
  let port: number | null = null;
  for (const [at, word] of words.entries()) {
    const found = /^-p(\d+)$/.exec(word)?.[1] ?? /^(?:-c|--)?port=(\d+)$/.exec(word)?.[1] ??
      (word === "-p" ? /^\d+$/.exec(words[at + 1] ?? "")?.[0] : undefined);
    if (found !== undefined) port = Number(found);
  }
  return port;
}

/** Every postmaster of this host: a process of PostgreSQL whose parent is none. */
export function postmasters(proc: Proc): Postmaster[] {
  const entries = proc.entries();
  const names = new Map(entries.map(({ pid, name }) => [pid, name]));
  return entries
    .filter(({ name, parent }) => programs.includes(name) && names.get(parent) !== name)
    .map(({ pid }) => {
      const dataDirectory = workingDirectory(pid);
      const file = dataDirectory === null ? null : proc.text(dataDirectory, "postmaster.pid");
      const lines = file?.split("\n") ?? [];
      const isIts = Number(lines[0]) === pid;
      const told = isIts ? Number(lines[3]) : NaN;
      const port = told > 0 ? told : portOfArguments(proc.text("proc", `${pid}`, "cmdline") ?? "");
      return { pid, dataDirectory, port };
    });
}

/** A postmaster's is its data directory. */
function workingDirectory(pid: number): string | null {
  try {
    return readlinkSync(join("/proc", `${pid}`, "cwd"));
  } catch {
    return null;
  }
}

/** The one that is meant; a text says why there is none. `usualPort` decides between several without a hint. */
export function choosePostmaster(
  all: readonly Postmaster[],
  hints: PostmasterHints,
  usualPort: number,
): Postmaster | string {
  const { pid, dataDirectory, port } = hints;
  const hinted = all.filter((one) =>
    (pid === null || one.pid === pid) && (port === null || one.port === port) &&
    (dataDirectory === null || one.dataDirectory === dataDirectory)
  );
  const [first] = hinted;
  if (first !== undefined && hinted.length === 1) return first;
  const usual = hinted.filter((one) => one.port === usualPort);
  if (usual.length === 1) return usual[0]!;
  const list = all.map((one) => `pid ${one.pid}, port ${one.port ?? "?"}`).join("; ") || "none";
  const rights = all.some((one) => one.dataDirectory === null)
    ? ", or run it as the user of PostgreSQL, who may see its data directory"
    : "";
  return `${hinted.length} PostgreSQL servers fit (running here: ${list}), wanted one: ` +
    `--pid, --port or --data-directory names it${rights}`;
}

export class PostmasterWatch {
  readonly #proc: Proc;
  readonly #hints: PostmasterHints;
  readonly #usualPort: number;
  readonly #onFound: (found: Postmaster) => void;
  readonly #onMissing: (why: string) => void;
  #pid: number | null = null;

  constructor(options: {
    readonly proc: Proc;
    readonly hints: PostmasterHints;
    readonly usualPort: number;
    readonly onFound: (found: Postmaster) => void;
    /** Called each time it is looked for in vain. */
    readonly onMissing: (why: string) => void;
  }) {
    this.#proc = options.proc;
    this.#hints = options.hints;
    this.#usualPort = options.usualPort;
    this.#onFound = options.onFound;
    this.#onMissing = options.onMissing;
  }

  /** Its processes now; none while it does not run. */
  pids(): readonly number[] {
    const proc = this.#proc;
    const known = this.#pid === null ? null : proc.entry(this.#pid);
    if (known === null || !programs.includes(known.name)) {
      const found = choosePostmaster(postmasters(proc), this.#hints, this.#usualPort);
      this.#pid = typeof found === "string" ? null : found.pid;
      if (typeof found === "string") this.#onMissing(found);
      else this.#onFound(found);
    }
    return this.#pid === null ? [] : [this.#pid, ...proc.childrenOf(this.#pid)];
  }
}
