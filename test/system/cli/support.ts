// The command line as an operator uses it: pgweir with a file in a folder of its own, in the foreground.

import { chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { atExit } from "../../support/at_exit.ts";
import { iniText, userlistText } from "../../support/ini.ts";
import { ManagedProcess, type ProcessEnd } from "../../support/managed_process.ts";
import { defaultSettings } from "../../support/pooler.ts";
import { signal } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import { freePort, tempDir } from "../../support/temp.ts";
import { runtimeCommand, runtimeName } from "../../../shared/sys/mod.ts";

const cli = resolve(import.meta.dirname!, "../../../services/cli.ts");

export interface Run extends ProcessEnd {
  readonly stdout: string;
  readonly stderr: string;
}

export class Folder {
  readonly path = tempDir("cli");

  write(name: string, text: string): string {
    const path = join(this.path, name);
    writeFileSync(path, text);
    return path;
  }

  /** More environment for what is launched. */
  environment: Readonly<Record<string, string>> = {};

  launch(...words: string[]): Promise<ManagedProcess> {
    return ManagedProcess.launch({
      command: [...runtimeCommand(), cli, ...words],
      cwd: this.path,
      environment: { ...process.env as Record<string, string>, ...this.environment },
    });
  }

  /** Waits for the end. */
  async run(...words: string[]): Promise<Run> {
    const run = await this.launch(...words);
    const end = await run.ended(100_000);
    return { ...end, stdout: run.stdout(), stderr: run.stderr() };
  }
}

/** A worker or a supervisor with a port of its own, to which nobody needs a password. */
export class Instance {
  readonly folder = new Folder();
  readonly host = "127.0.0.1";
  readonly port: number;

  private constructor(port: number) {
    this.port = port;
    chmodSync(this.folder.path, 0o777);
  }

  static async make(settings: Readonly<Record<string, string | number>> = {}): Promise<Instance> {
    const instance = new Instance(await freePort());
    instance.configure(settings);
    return instance;
  }

  get logfile(): string {
    return join(this.folder.path, "p.log");
  }

  get pidfile(): string {
    return join(this.folder.path, "p.pid");
  }

  get socket(): string {
    return join(this.folder.path, `.s.PGSQL.${this.port}`);
  }

  configure(settings: Readonly<Record<string, string | number>>): void {
    const { path } = this.folder;
    this.folder.write("userlist.txt", userlistText({ admin: "", postgres: "" }));
    const pgbouncer = { ...defaultSettings(this.port, path), ...settings };
    const runtime = { runtime: runtimeName, workers: 2 };
    const databases = { shop: "host=127.0.0.1 port=1" };
    this.folder.write("p.ini", iniText({ databases, pgbouncer, pgweir: runtime }));
  }

  log(): string {
    return existsSync(this.logfile) ? readFileSync(this.logfile, "utf8") : "";
  }

  /** The process id in the pidfile, or null. */
  pid(): number | null {
    return existsSync(this.pidfile) ? Number(readFileSync(this.pidfile, "utf8")) || null : null;
  }

  /** In the foreground, until it is ready. */
  async start(...words: string[]): Promise<ManagedProcess> {
    const [command = "pooler", ...options] = words;
    const started = await this.folder.launch(command, ...options, "p.ini");
    await started.ready("the console", () => this.answers());
    return started;
  }

  /** A process in the background, which a failed test must not leave. */
  owns(pid: number): void {
    atExit(() => signal(pid, "SIGKILL"));
  }

  async answers(): Promise<boolean> {
    try {
      return (await this.console("SHOW VERSION")).length === 1;
    } catch {
      return false;
    }
  }

  async console(command: string): Promise<unknown[]> {
    const client = await RawClient.login(this, { user: "admin", database: "pgbouncer" });
    try {
      return await client.table(command);
    } finally {
      await client.end();
    }
  }
}
