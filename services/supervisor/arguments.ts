// The command line of pgweir: words in, one command out. Pure: it reads no file and no environment.
// What it can't make sense of becomes a `misuse` with one line to print; it never throws.

import type { HostOptions } from "../../shared/host/mod.ts";
import { takeHostWords } from "./host_words.ts";

/** A PostgreSQL server that is already there, as `--upstream` names it. */
export interface Upstream {
  readonly host: string;
  readonly port: number;
  readonly database: string;
  /** null: not in the address, to be taken from the environment. */
  readonly user: string | null;
  readonly password: string | null;
  /** null: the setting's default. */
  readonly sslmode: string | null;
}

export interface UpCommand {
  readonly kind: "up";
  /** A pgbouncer.ini; null: pgweir writes one of its own. */
  readonly file: string | null;
  readonly upstream: Upstream | null;
  /** null: as the file says, or the number of cores. */
  readonly workers: number | null;
  readonly runtime: "bun" | "deno" | null;
  /** Port to listen on, only without a file; null: 6432. */
  readonly port: number | null;
  readonly options: HostOptions;
  /** `pooler` of a mesh: one worker, which others may stand beside. */
  readonly lone: boolean;
}

export interface PoolerCommand {
  readonly kind: "pooler";
  readonly file: string;
  readonly options: HostOptions;
}

export interface OverloadCommand {
  readonly kind: "overload";
  readonly file: string;
  /** None: only under a supervisor. */
  readonly databases: readonly string[];
  /** What tells the PostgreSQL that is meant from others on its host. */
  readonly postmaster: {
    readonly pid: number | null;
    readonly dataDirectory: string | null;
    readonly port: number | null;
  };
}

export type Command =
  | UpCommand
  | PoolerCommand
  | OverloadCommand
  | { readonly kind: "budget"; readonly file: string }
  | { readonly kind: "check"; readonly file: string }
  | { readonly kind: "help" }
  | { readonly kind: "version" }
  | { readonly kind: "misuse"; readonly problem: string };

/** A worker of a mesh has a supervisor, which gives it its id. */
export function loneWorker({ file, options }: PoolerCommand): UpCommand {
  const own = { upstream: null, workers: 1, runtime: null, port: null };
  return { kind: "up", file, ...own, options, lone: true };
}

export const maxWorkers = 1024;

export const usageText = `pgweir pools PostgreSQL connections on every core of a host.

usage:
  pgweir up [file.ini] [options]   run all of a host: a bus, the workers and, without a file
                                   and without --upstream, a PostgreSQL of its own in .pgweir/
  pgweir check file.ini            print every problem of a configuration, exit 1 if there is one
  pgweir pooler [options] file.ini run one worker, as pgbouncer would run
  pgweir budget file.ini           run one budget coordinator in the foreground; up starts one itself
  pgweir overload --database NAME [options] file.ini
                                   watch the PostgreSQL of this host, so that workers refuse new
                                   work for the database while it is overloaded
  pgweir --version | --help

options of pooler, and of up with a file:
  -d, --daemon         run in the background; needs pidfile
  -q, --quiet          log nothing to standard error
  -v, --verbose        log more
  -u, --user=NAME      become this user, whatever the file says
  -V, --version        show the version
  -h, --help           show this
  -R, --reboot         not needed: says how to restart without a pause

options of up:
  --upstream ADDRESS   pool this server: postgres://user:password@host:port/database, or
                       host:port/database with PGUSER and PGPASSWORD in the environment
  --port N             listen on 127.0.0.1:N, without a file (default 6432)
  --workers N          worker processes (default: one for each core)
  --runtime NAME       bun or deno: what the workers run on (default: what runs pgweir up)

options of overload, to tell the PostgreSQL that is meant from others on its host:
  --database NAME      its name in [databases]; may be given several times
  --data-directory DIR, --port N or --pid N
`;

const sslmodes = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

class Misuse extends Error {}

/** `argv` is what follows the script's name. */
export function parseArguments(argv: readonly string[]): Command {
  try {
    return parse(argv);
  } catch (error) {
    if (error instanceof Misuse) return { kind: "misuse", problem: error.message };
    throw error;
  }
}

function parse(argv: readonly string[]): Command {
  const [word, ...rest] = argv;
  switch (word) {
    case "up":
    case "pooler":
      return parseHosted(word, rest);
    case "overload":
      if (asksForHelp(rest)) return { kind: "help" };
      return parseOverload(rest);
    case "budget":
    case "check":
      if (asksForHelp(rest)) return { kind: "help" };
      return { kind: word, file: oneFile(word, rest) };
    case "-h":
    case "--help":
    case "help":
      return { kind: "help" };
    case "-V":
    case "--version":
    case "version":
      return { kind: "version" };
    case undefined:
      throw new Misuse(
        "no command given, wanted up, check, pooler, budget or overload (pgweir --help explains)",
      );
  }
  const what = word.startsWith("-") ? "option" : "command";
  throw new Misuse(
    `unknown ${what} "${word}", wanted up, check, pooler, budget or overload (pgweir --help explains)`,
  );
}

/** The commands that take PgBouncer's options. */
function parseHosted(word: "up" | "pooler", words: readonly string[]): Command {
  const taken = takeHostWords(words);
  if ("problem" in taken) throw new Misuse(`${word}: ${taken.problem}`);
  if ("asks" in taken) return { kind: taken.asks };
  if (word === "up") return parseUp(taken.rest, taken.options);
  return { kind: word, file: oneFile(word, taken.rest), options: taken.options };
}

/** A file, and options with a value each; `repeated` are those that may be given more than once. */
function readOptions(
  command: string,
  words: readonly string[],
  known: readonly string[],
  repeated: readonly string[] = [],
): { readonly file: string | null; readonly values: ReadonlyMap<string, readonly string[]> } {
  const values = new Map<string, string[]>();
  let file: string | null = null;
  for (let i = 0; i < words.length; i++) {
    const word = words[i]!;
    if (!word.startsWith("-")) {
      if (file !== null) throw new Misuse(`${command}: a second file "${word}", wanted one`);
      file = word;
      continue;
    }
    const equals = word.indexOf("=");
    const name = equals < 0 ? word : word.slice(0, equals);
    if (!known.includes(name)) {
      throw new Misuse(`${command}: unknown option "${name}" (pgweir --help lists them)`);
    }
    const given = values.get(name) ?? [];
    if (given.length > 0 && !repeated.includes(name)) {
      throw new Misuse(`${command}: ${name} given twice, wanted once`);
    }
    const value = equals < 0 ? words[++i] : word.slice(equals + 1);
    if (value === undefined || value === "") throw new Misuse(`${command}: ${name} has no value`);
    values.set(name, [...given, value]);
  }
  return { file, values };
}

const upOptions = ["--upstream", "--port", "--workers", "--runtime"];
const overloadOptions = ["--database", "--data-directory", "--port", "--pid"];

function parseOverload(words: readonly string[]): Command {
  const { file, values } = readOptions("overload", words, overloadOptions, ["--database"]);
  if (file === null) {
    throw new Misuse(
      "overload: no file given, wanted one (pgweir overload --database NAME file.ini)",
    );
  }
  const [pid] = values.get("--pid") ?? [];
  if (pid !== undefined && !/^[1-9]\d{0,9}$/.test(pid)) {
    throw new Misuse(`overload: --pid is "${pid}", wanted a process id`);
  }
  const [dataDirectory] = values.get("--data-directory") ?? [];
  return {
    kind: "overload",
    file,
    databases: values.get("--database") ?? [],
    postmaster: {
      pid: pid === undefined ? null : Number(pid),
      dataDirectory: dataDirectory ?? null,
      port: parsePort("overload: --port", values.get("--port")?.[0]),
    },
  };
}

function parseUp(words: readonly string[], options: HostOptions): Command {
  const { file, values } = readOptions("up", words, upOptions);
  for (const name of ["--upstream", "--port"]) {
    if (file !== null && values.has(name)) {
      throw new Misuse(`up: ${name} given together with "${file}", wanted one of them`);
    }
  }
  if (file === null && (options.daemon || options.user !== null)) {
    throw new Misuse(
      `up: ${options.daemon ? "-d" : "-u"} given without a file, wanted up file.ini`,
    );
  }
  const [upstream] = values.get("--upstream") ?? [];
  return {
    kind: "up",
    file,
    upstream: upstream === undefined ? null : parseUpstream(upstream),
    workers: parseWorkers(values.get("--workers")?.[0]),
    runtime: parseRuntime(values.get("--runtime")?.[0]),
    port: parsePort("up: --port", values.get("--port")?.[0]),
    options,
    lone: false,
  };
}

function asksForHelp(words: readonly string[]): boolean {
  return words.includes("--help") || words.includes("-h");
}

function oneFile(command: string, words: readonly string[]): string {
  const option = words.find((word) => word.startsWith("-"));
  if (option !== undefined) {
    throw new Misuse(`${command}: unknown option "${option}" (pgweir --help lists them)`);
  }
  if (words.length !== 1) {
    throw new Misuse(
      `${command}: ${words.length} files given, wanted one (pgweir ${command} file.ini)`,
    );
  }
  return words[0]!;
}

function parseWorkers(text: string | undefined): number | null {
  if (text === undefined || text === "auto") return null;
  const count = /^\d+$/.test(text) ? Number(text) : 0;
  if (count < 1 || count > maxWorkers) {
    throw new Misuse(`up: --workers is "${text}", wanted auto or 1 to ${maxWorkers}`);
  }
  return count;
}

function parseRuntime(text: string | undefined): "bun" | "deno" | null {
  if (text === undefined || text === "bun" || text === "deno") return text ?? null;
  throw new Misuse(`up: --runtime is "${text}", wanted bun or deno`);
}

function parsePort(option: string, text: string | undefined): number | null {
  if (text === undefined) return null;
  const port = /^\d+$/.test(text) ? Number(text) : 0;
  if (port < 1 || port > 65535) throw new Misuse(`${option} is "${text}", wanted 1 to 65535`);
  return port;
}

const wantedUpstream = "wanted postgres://user:password@host:port/database";

/** Nothing of the address is repeated in a complaint: it may hold a password. */
function parseUpstream(text: string): Upstream {
  const address = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `postgres://${text}`;
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    throw new Misuse(`up: --upstream is no address, ${wantedUpstream}`);
  }
  if (url.protocol !== "postgres:" && url.protocol !== "postgresql:") {
    throw new Misuse(`up: --upstream begins with "${url.protocol}//", ${wantedUpstream}`);
  }
  const host = decode(url.hostname).replace(/^\[(.*)\]$/, "$1");
  if (host === "") throw new Misuse(`up: --upstream names no host, ${wantedUpstream}`);
  if (url.port === "0") throw new Misuse("up: --upstream has port 0, wanted 1 to 65535");
  const path = url.pathname.slice(1);
  if (path === "" || path.includes("/")) {
    throw new Misuse(`up: --upstream names no database, ${wantedUpstream}`);
  }
  const database = decode(path);
  const user = decode(url.username);
  const password = decode(url.password);
  let sslmode: string | null = null;
  for (const [key, value] of url.searchParams) {
    if (key !== "sslmode") {
      throw new Misuse(`up: --upstream has the parameter "${key}", only sslmode is known`);
    }
    if (!sslmodes.includes(value)) {
      throw new Misuse(
        `up: --upstream has sslmode "${value}", wanted one of ${sslmodes.join(", ")}`,
      );
    }
    sslmode = value;
  }
  for (const [what, value] of Object.entries({ host, database, user, password })) {
    if (hasControlCharacter(value)) {
      throw new Misuse(`up: --upstream has a control character in its ${what}`);
    }
  }
  return {
    host,
    port: url.port === "" ? 5432 : Number(url.port),
    database,
    user: user || null,
    password: password || null,
    sslmode,
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Misuse(
      `up: --upstream has a "%" that begins no two hexadecimal digits, wanted "%25"`,
    );
  }
}

function hasControlCharacter(text: string): boolean {
  // deno-lint-ignore no-control-regex
  return /[\x00-\x1f\x7f]/.test(text);
}
