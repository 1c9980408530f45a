// Where the log of a process goes: standard error, a log file, syslog, or several of them, as PgBouncer's
// settings say. All that log in this process share one output; lines of child processes may go through it.
// Invariants: write() never throws and never waits for a reader; a log file that cannot be opened again stays
// the one that was open.

import { closeSync, fchownSync, fstatSync, openSync, writeSync } from "node:fs";
import process from "node:process";
import { type SystemUser, UnixDatagram } from "../sys/mod.ts";
import { maxLineBytes } from "./line.ts";
import { LineWriter } from "./line_writer.ts";
import { type SyslogOptions, syslogPacket } from "./syslog.ts";

export interface LogTargets {
  /** "" = none. */
  readonly logfile: string;
  readonly syslog: SyslogOptions | null;
  /** Nothing goes to standard error. */
  readonly quiet: boolean;
}

const stderrFd = 2;
const syslogSocket = "/dev/log";
/** Room for what syslog puts in front of a line. */
const packetBytes = maxLineBytes + 256;

export class LogOutput {
  readonly #stderr = new LineWriter(
    (bytes) => writeSync(stderrFd, bytes),
    "standard error was blocked",
  );
  readonly #syslogPath: string;
  #file: { path: string; fd: number; writer: LineWriter } | null = null;
  #syslog: { options: SyslogOptions; socket: UnixDatagram; lost: number } | null = null;
  #quiet = false;

  constructor(syslogPath = syslogSocket) {
    this.#syslogPath = syslogPath;
  }

  /** Where lines go from now on. Throws an Error, and changes nothing, when the log file can't be opened. */
  configure({ logfile, syslog, quiet }: LogTargets): void {
    const file = logfile === "" ? null : openFile(logfile);
    if (this.#file !== null) closeSync(this.#file.fd);
    this.#file = file;
    this.#syslog?.socket.close();
    this.#syslog = syslog === null
      ? null
      : { options: syslog, socket: new UnixDatagram(this.#syslogPath, packetBytes), lost: 0 };
    this.#quiet = quiet;
  }

  /** Opens the log file anew: it may have been moved away. Throws as configure() does. */
  reopen(): void {
    if (this.#file === null) return;
    const file = openFile(this.#file.path);
    closeSync(this.#file.fd);
    this.#file = file;
  }

  /** The descriptor of the log file, or null. */
  get fileDescriptor(): number | null {
    return this.#file?.fd ?? null;
  }

  /** Nothing goes to standard error any more: it is nobody's, once a daemon runs. */
  hush(): void {
    this.#quiet = true;
  }

  /** So that the log file can be opened again by whom this process becomes. A device stays whose it is. */
  giveTo({ uid, gid }: SystemUser): void {
    const fd = this.#file?.fd;
    if (fd !== undefined && fstatSync(fd).isFile()) fchownSync(fd, uid, gid);
  }

  /** Takes one whole line with its newline. Bound: can be passed on as a function. */
  readonly write = (line: string): void => {
    if (!this.#quiet) this.#stderr.write(line);
    this.#file?.writer.write(line);
    this.#sendToSyslog(line);
  };

  #sendToSyslog(line: string): void {
    const syslog = this.#syslog;
    if (syslog === null) return;
    const send = (text: string) =>
      syslog.socket.send(syslogPacket(text, syslog.options, new Date(), process.pid)) === 0;
    const report = `${syslog.lost} log lines lost: syslog did not take them`;
    if (syslog.lost > 0 && !send(report)) {
      syslog.lost++;
      return;
    }
    syslog.lost = send(line) ? 0 : 1;
  }
}

function openFile(path: string): { path: string; fd: number; writer: LineWriter } {
  let fd: number;
  try {
    fd = openSync(path, "a", 0o644);
  } catch (error) {
    const { code } = error as { code?: string };
    throw new Error(`open logfile "${path}": ${code ?? error}`);
  }
  const writer = new LineWriter(
    (bytes) => writeSync(fd, bytes),
    "the log file could not be written",
  );
  return { path, fd, writer };
}

/** The targets that the settings of a file name. */
export function logTargets(
  settings: {
    readonly logfile: string;
    readonly syslog: boolean;
    readonly syslogFacility: SyslogOptions["facility"];
    readonly syslogIdent: string;
  },
  quiet: boolean,
): LogTargets {
  const { logfile, syslog, syslogFacility, syslogIdent } = settings;
  return {
    logfile,
    syslog: syslog ? { facility: syslogFacility, ident: syslogIdent } : null,
    quiet,
  };
}
