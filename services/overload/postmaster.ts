// Which processes are those of a PostgreSQL: its postmaster, found by what an operator says of it, else by the port
// that the entry names, and its children. It is looked for again when it is gone, so a restart of PostgreSQL needs
// nothing; while it is away no other one takes its place.

import { realpathSync } from "node:fs";
import { resolve } from "node:path";
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
      // A postmaster works in its data directory.
      const dataDirectory = proc.link("proc", `${pid}`, "cwd");
      const file = dataDirectory === null ? null : proc.text(dataDirectory, "postmaster.pid");
      const lines = file?.split("\n") ?? [];
      const isIts = Number(lines[0]) === pid;
      const told = isIts ? Number(lines[3]) : NaN;
      const port = told > 0 ? told : portOfArguments(proc.text("proc", `${pid}`, "cmdline") ?? "");
      return { pid, dataDirectory, port };
    });
}

/** As /proc shows it: a path that is not there for us may be one of a container. */
function realDirectory(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return resolve(path);
  }
}

export function isHinted({ pid, dataDirectory, port }: PostmasterHints): boolean {
  return pid !== null || dataDirectory !== null || port !== null;
}

/**
 * The one that is meant; a text says why there is none. Without a hint it is that of the entry's port; one whose port
 * may not be seen is it as long as no other one runs.
 */
export function choosePostmaster(
  all: readonly Postmaster[],
  hints: PostmasterHints,
  entryPort: number,
): Postmaster | string {
  const { pid, dataDirectory, port } = hints;
  const hinted = isHinted(hints);
  const fitting = all.filter((one) =>
    hinted
      ? (pid === null || one.pid === pid) && (port === null || one.port === port) &&
        (dataDirectory === null || one.dataDirectory === dataDirectory)
      : one.port === entryPort || one.port === null && all.length === 1
  );
  const [first] = fitting;
  if (first !== undefined && fitting.length === 1) return first;
  const list = all.map((one) => {
    const directory = one.dataDirectory === null ? "" : `, data directory "${one.dataDirectory}"`;
    return `pid ${one.pid}, port ${one.port ?? "?"}${directory}`;
  }).join("; ") || "none";
  const what = hinted ? "what was given" : `port ${entryPort}, that of the entry`;
  const rights = all.some((one) => one.dataDirectory === null)
    ? ", or run it as the user of PostgreSQL, who may see its data directory"
    : "";
  return `${fitting.length} PostgreSQL servers fit ${what} (running here: ${list}), wanted one: ` +
    `--pid, --port or --data-directory names it${rights}`;
}

export class PostmasterWatch {
  readonly #proc: Proc;
  readonly #hints: PostmasterHints;
  readonly #entryPort: () => number;
  readonly #onFound: (found: Postmaster) => void;
  readonly #onMissing: (why: string) => void;
  #found: Postmaster | null = null;
  /** What it was found by. */
  #port = 0;

  constructor(options: {
    readonly proc: Proc;
    readonly hints: PostmasterHints;
    /** That of now. */
    readonly entryPort: () => number;
    readonly onFound: (found: Postmaster) => void;
    /** Called each time it is looked for in vain. */
    readonly onMissing: (why: string) => void;
  }) {
    this.#proc = options.proc;
    this.#hints = options.hints;
    this.#entryPort = options.entryPort;
    this.#onFound = options.onFound;
    this.#onMissing = options.onMissing;
  }

  /** Its processes now; none while it does not run. */
  pids(): readonly number[] {
    const proc = this.#proc;
    const entryPort = this.#entryPort();
    if (!this.#isStill(entryPort)) {
      const { dataDirectory } = this.#hints;
      const hints = {
        ...this.#hints,
        dataDirectory: dataDirectory === null ? null : realDirectory(dataDirectory),
      };
      const found = choosePostmaster(postmasters(proc), hints, entryPort);
      const before = this.#found;
      this.#found = typeof found === "string" ? null : found;
      this.#port = entryPort;
      if (typeof found === "string") this.#onMissing(found);
      else if (found.pid !== before?.pid) this.#onFound(found);
    }
    if (this.#found === null) return [];
    return [this.#found.pid, ...proc.childrenOf(this.#found.pid)];
  }

  /** Whether the one that was found last runs and is the one that would be found now. */
  #isStill(entryPort: number): boolean {
    if (this.#found === null) return false;
    const { pid, port } = this.#found;
    if (!programs.includes(this.#proc.entry(pid)?.name ?? "")) return false;
    // Whether one of no known port is the only one has to be seen each time.
    return isHinted(this.#hints) || port !== null && entryPort === this.#port;
  }
}
