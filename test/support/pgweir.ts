// A running pgweir on a random port, started through its command line as an operator would, on the runtime that
// runs the test. One worker by default: `pgweir pooler`; with `workers` a supervised host: `pgweir up`.
// An ini given as text is used as it is, so it must name the port that was got from freePort().

import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { runtimeCommand, type RuntimeName, runtimeName } from "../../shared/sys/mod.ts";
import { atExit } from "./at_exit.ts";
import { until } from "./harness.ts";
import { type Ini, iniText, userlistText, withDefaults } from "./ini.ts";
import { ManagedProcess, type ProcessEnd } from "./managed_process.ts";
import { DEFAULT_USERS, defaultSettings, Pooler, type PoolerOptions } from "./pooler.ts";
import { childrenOf, commandLine, isAlive, signal } from "./processes.ts";
import { freePort, tempDir } from "./temp.ts";

export interface PgweirOptions extends PoolerOptions {
  /** Starts a supervised host with so many workers. Default: one lone worker, no supervisor. */
  readonly workers?: number;
  /** Default: the runtime of the test. */
  readonly runtime?: RuntimeName;
  /** The client port, for an ini given as text. */
  readonly port?: number;
  /** A program that runs the command line it is given, and becomes it. */
  readonly prefix?: readonly string[];
  /** More environment. */
  readonly environment?: Readonly<Record<string, string>>;
  readonly readyTimeoutMs?: number;
  /** A command that runs the one it is given, in the same process. */
  readonly wrapper?: readonly string[];
}

const root = resolve(import.meta.dirname!, "../..");

export class Pgweir extends Pooler {
  readonly supervised: boolean;
  /** What is added to each ini that is not given as text. */
  readonly #defaults: Ini;

  constructor(
    process: ManagedProcess,
    port: number,
    dir: string,
    iniFile: string,
    supervised: boolean,
    defaults: Ini,
  ) {
    super(process, port, dir, iniFile);
    this.#defaults = defaults;
    this.supervised = supervised;
    // The supervisor goes first, so that it starts nothing again.
    if (supervised) atExit(() => this.#kill());
  }

  /** Writes its file anew; it takes effect when it is reloaded. Text is used as it is. */
  rewrite(ini: Ini | string): void {
    const text = typeof ini === "string" ? ini : iniText(withDefaults(ini, this.#defaults));
    writeFileSync(this.iniFile, text);
  }

  /** Writes the users of its auth_file anew. */
  rewriteUsers(users: Readonly<Record<string, string>> | string): void {
    writeFileSync(
      join(this.dir, "userlist.txt"),
      typeof users === "string" ? users : userlistText(users),
    );
  }

  workerPids(): number[] {
    if (this.supervised) return this.servicePids("pooler");
    return this.process.running ? [this.pid] : [];
  }

  /** The supervisor's children that run a sub-command: pooler, budget, overload, console. */
  servicePids(command: string): number[] {
    return childrenOf(this.pid).filter((pid) => commandLine(pid).includes(`cli.ts ${command}`));
  }

  /** Asks it to end at once, whoever is connected, and waits. */
  override stop(): Promise<ProcessEnd> {
    return this.process.stop("SIGQUIT");
  }

  /** Ends the supervisor and everything it started at once, as a power cut would. */
  async crash(): Promise<ProcessEnd> {
    const children = this.#kill();
    await until("the services to end", () => !children.some(isAlive));
    return await this.kill();
  }

  #kill(): number[] {
    const children = childrenOf(this.pid);
    this.signal("SIGKILL");
    for (const pid of children) signal(pid, "SIGKILL");
    return children;
  }
}

/** What a start prints when clients can connect: `up` on stdout, a lone worker in its log. */
function saysReady(server: ManagedProcess, supervised: boolean): boolean {
  return supervised
    ? /^pgweir is ready/m.test(server.stdout())
    : server.stderr().includes("process up: pgweir");
}

/** Starts pgweir and waits until it is ready; fails with its output when it ends before that. */
export async function startPgweir(options: PgweirOptions): Promise<Pgweir> {
  const supervised = options.workers !== undefined;
  const port = options.port ?? await freePort();
  const dir = tempDir("pgw");
  const iniFile = join(dir, "pgweir.ini");
  const users = options.userlist ?? DEFAULT_USERS;
  writeFileSync(join(dir, "userlist.txt"), typeof users === "string" ? users : userlistText(users));
  const own: Record<string, string | number> = supervised
    ? {
      workers: options.workers!,
      // The supervisor's own choice for its services is not the runtime it runs on itself.
      runtime: options.runtime ?? runtimeName,
      console_listen: `127.0.0.1:${await freePort()}`,
    }
    : {};
  const defaults: Ini = { databases: {}, pgbouncer: defaultSettings(port, dir), pgweir: own };
  const { ini } = options;
  writeFileSync(iniFile, typeof ini === "string" ? ini : iniText(withDefaults(ini, defaults)));
  const server = await ManagedProcess.launch({
    command: [
      ...options.prefix ?? [],
      ...runtimeCommand(options.runtime),
      join(root, "services/cli.ts"),
      supervised ? "up" : "pooler",
      iniFile,
    ],
    cwd: dir,
    environment: { ...process.env as Record<string, string>, ...options.environment },
  });
  const pgweir = new Pgweir(server, port, dir, iniFile, supervised, defaults);
  await server.ready(
    "pgweir to be ready",
    () => saysReady(server, supervised),
    options.readyTimeoutMs,
  );
  return pgweir;
}
