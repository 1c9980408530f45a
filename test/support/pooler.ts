// What tests see of a running pooler, whichever it is: its port, its processes, its log, its admin console.
// test/support/pgweir.ts starts ours and test/support/pgbouncer.ts the one to compare with.

import type { Ini } from "./ini.ts";
import { type ManagedProcess, type ProcessEnd } from "./managed_process.ts";
import { RawClient } from "./raw_client.ts";

export interface PoolerOptions {
  /** Sections and settings; what is missing gets the test defaults. Text is used as it is. */
  readonly ini: Ini | string;
  /** Users of the auth_file; default: postgres and admin without a password. Text is used as it is. */
  readonly userlist?: Readonly<Record<string, string>> | string;
}

/** Settings every test pooler gets unless its ini says otherwise. */
export function defaultSettings(port: number, dir: string): Record<string, string | number> {
  return {
    listen_addr: "127.0.0.1",
    listen_port: port,
    unix_socket_dir: dir,
    // Tests look at what becomes of those who connect and say nothing.
    tcp_defer_accept: 0,
    // Answers are compared as a whole: a notice must not come between them because the machine is slow.
    query_wait_notify: 0,
    auth_type: "trust",
    auth_file: `${dir}/userlist.txt`,
    pool_mode: "transaction",
    admin_users: "admin",
  };
}

export const DEFAULT_USERS: Readonly<Record<string, string>> = { postgres: "", admin: "" };

export type ConsoleRow = Record<string, string | null>;

export abstract class Pooler {
  readonly host = "127.0.0.1";
  readonly port: number;
  /** The folder with its files and its unix socket. */
  readonly dir: string;
  readonly iniFile: string;
  protected readonly process: ManagedProcess;

  constructor(process: ManagedProcess, port: number, dir: string, iniFile: string) {
    this.process = process;
    this.port = port;
    this.dir = dir;
    this.iniFile = iniFile;
  }

  /** The process that was started: a lone worker, or the supervisor. */
  get pid(): number {
    return this.process.pid;
  }

  /** The processes that serve clients, in the order they were started. */
  abstract workerPids(): number[];

  /** The path of its unix socket. */
  get socketPath(): string {
    return `${this.dir}/.s.PGSQL.${this.port}`;
  }

  /** Everything it printed so far. */
  log(): string {
    return this.process.output();
  }

  /** How the started process ended, or null while it runs. */
  get end(): ProcessEnd | null {
    return this.process.end;
  }

  /** Runs one command on the admin console. */
  async console(command: string, user = "admin"): Promise<ConsoleRow[]> {
    const client = await RawClient.login(this, { user, database: "pgbouncer" });
    try {
      return await client.table(command);
    } finally {
      await client.end();
    }
  }

  /** Asks it to end with SIGTERM and waits. */
  stop(): Promise<ProcessEnd> {
    return this.process.stop("SIGTERM");
  }

  /** Ends it as a crash would. */
  kill(): Promise<ProcessEnd> {
    return this.process.stop("SIGKILL");
  }

  signal(name: NodeJS.Signals): void {
    this.process.signal(name);
  }
}
