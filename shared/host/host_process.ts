// What a process of pgweir is to the host it runs on: where its log goes, its pidfile, the user it becomes, and
// that it may be a daemon. The same for a lone worker and for a supervisor, whose workers inherit it.
// Order: open(), what needs the rights of the start, becomeUser(), ready(), ..., close().

import { lchownSync } from "node:fs";
import process from "node:process";
import type { Config } from "../config/mod.ts";
import { becomeUser, findUser, redirect, type SystemUser } from "../sys/mod.ts";
import { LogOutput, logTargets } from "../telemetry/mod.ts";
import { isInBackground, tellReady } from "./background.ts";
import { notify, notifyReloading } from "./notify.ts";
import { Pidfile, PidfileError } from "./pidfile.ts";

/** What a command line says over the file; PgBouncer's options. */
export interface HostOptions {
  /** -q: nothing to standard error. */
  readonly quiet: boolean;
  /** -v, how often. */
  readonly verbose: number;
  /** -d */
  readonly daemon: boolean;
  /** -u; null: as the file says. */
  readonly user: string | null;
}

/** A start that can't go on, for a reason the operator can mend. */
export class HostFailure extends Error {}

/** The configuration of a file with what the command line says over it: -v may make it more verbose. */
export function withOptions(config: Config, options: HostOptions): Config {
  const verbose = Math.max(config.settings.verbose, options.verbose);
  return { ...config, settings: { ...config.settings, verbose } };
}

export class HostProcess {
  readonly log = new LogOutput();
  readonly #options: HostOptions;
  readonly #config: Config;
  readonly #isDaemon: boolean;
  #pidfile: Pidfile | null = null;
  #user: { readonly name: string; readonly ids: SystemUser } | null = null;
  /** From ready() to stopping(). */
  #isServing = false;
  /** Under way. */
  #reloads = 0;
  /** A daemon that is ready. */
  #hushed = false;

  constructor(config: Config, options: HostOptions) {
    this.#config = config;
    this.#options = options;
    this.#isDaemon = options.daemon && isInBackground();
  }

  /** Opens the log and takes the pidfile. Throws HostFailure. */
  open(): void {
    const { settings } = this.#config;
    if (this.#options.daemon && settings.pidfile === "") {
      throw new HostFailure("daemon needs pidfile configured");
    }
    const name = this.#options.user ?? settings.user;
    if (name !== "") this.#user = { name, ids: knownUser(name) };
    this.configureLog(this.#config);
    if (settings.pidfile === "") return;
    try {
      this.#pidfile = Pidfile.claim(settings.pidfile);
    } catch (error) {
      throw error instanceof PidfileError ? new HostFailure(error.message) : error;
    }
  }

  /** Makes the log what the settings say. Throws HostFailure, and leaves it as it is, when it can't. */
  configureLog({ settings }: Config): void {
    attempt(() => this.log.configure(logTargets(settings, this.#options.quiet || this.#hushed)));
    this.#followLog();
  }

  /** A log file that was moved away is made anew. Throws HostFailure. */
  reopenLog(): void {
    attempt(() => this.log.reopen());
    this.#followLog();
  }

  /** What a runtime says when it dies goes to the log file, once nobody reads standard error. */
  #followLog(): void {
    if (this.#hushed) redirect(2, this.log.fileDescriptor);
  }

  /** Does a reload, which systemd hears the beginning and the end of: its own waits for it (Type=notify-reload). */
  async reload(action: () => Promise<void>): Promise<void> {
    // At the start and at the stop it hears of those.
    if (!this.#isServing) return await action();
    this.#reloads++;
    notifyReloading();
    try {
      await action();
    } finally {
      this.#reloads--;
      if (this.#isServing && this.#reloads === 0) notify("READY=1");
    }
  }

  /** Clients can connect: systemd hears of it, and a daemon lets whoever started it go. */
  ready(): void {
    this.#isServing = true;
    notify(`READY=1\nMAINPID=${process.pid}`);
    if (!this.#isDaemon) return;
    tellReady();
    this.log.hush();
    this.#hushed = true;
    for (const fd of [0, 1]) redirect(fd, null);
    this.#followLog();
  }

  /**
   * Once all that needs more rights is done: becomes the user that the file names, who from then on owns
   * the log file, the pidfile and `sockets`. Throws HostFailure.
   */
  becomeUser(sockets: readonly string[]): void {
    if (this.#user === null) return;
    const { name, ids } = this.#user;
    attempt(() => {
      if (process.getuid?.() === 0 && ids.uid !== 0) {
        this.log.giveTo(ids);
        this.#pidfile?.giveTo(ids);
        // The group is that of unix_socket_group, where there is one.
        for (const path of sockets) lchownSync(path, ids.uid, this.#socketGroup(ids));
      }
      becomeUser(name, ids);
    });
  }

  #socketGroup({ gid }: SystemUser): number {
    return this.#config.settings.unixSocketGroup === "" ? gid : -1;
  }

  /** Clients are about to be sent away. */
  stopping(): void {
    this.#isServing = false;
    notify("STOPPING=1");
  }

  /** Idempotent. */
  close(): void {
    this.#pidfile?.release();
  }
}

function knownUser(name: string): SystemUser {
  const user = attempt(() => findUser(name));
  if (user === null) throw new HostFailure(`could not find user "${name}" to switch to`);
  return user;
}

function attempt<T>(action: () => T): T {
  try {
    return action();
  } catch (error) {
    throw new HostFailure((error as Error).message);
  }
}
