// The logger: levels, fields that every line of a child carries, one line per call. Not an exporter
// and not buffered: a line is written before the call returns, so that the last words of a process
// that dies are not lost. Child loggers share the level and the output of their root.

import process from "node:process";
import {
  type Fields,
  formatLine,
  type LogFormat,
  type LogLevel,
  logLevels,
  type LogRecord,
} from "./line.ts";
import { LogOutput } from "./output.ts";

export type { Fields };

export interface LoggerOptions {
  /** Which part of pgweir speaks: `pooler`, `supervisor`. A field of JSON lines; text lines have the pid. */
  readonly component: string;
  /** The least level that is written. */
  readonly level: LogLevel;
  readonly format: LogFormat;
  /** Takes one whole line with its newline; default: standard error. */
  readonly write?: (line: string) => void;
  /** Milliseconds since the epoch; default: `Date.now`. */
  readonly clock?: () => number;
}

export interface Logger {
  debug(message: string, fields?: Fields): void;
  info(message: string, fields?: Fields): void;
  warning(message: string, fields?: Fields): void;
  error(message: string, fields?: Fields): void;
  /** Only writes: ending the process is the caller's. */
  fatal(message: string, fields?: Fields): void;
  /** A logger whose lines carry these fields too; a field of the call wins over the child's. */
  child(fields: Fields): Logger;
  /** Whether a line of this level would be written: ask before building costly fields. */
  enabled(level: LogLevel): boolean;
  /** Changes the least level of this logger, its root and all its relatives. */
  setLevel(level: LogLevel): void;
  /** The same for the form of the lines. */
  setFormat(format: LogFormat): void;
}

interface Root {
  readonly component: string;
  format: LogFormat;
  readonly write: (line: string) => void;
  readonly clock: () => number;
  threshold: number;
}

class RootedLogger implements Logger {
  readonly #root: Root;
  readonly #fields: Fields;

  constructor(root: Root, fields: Fields) {
    this.#root = root;
    this.#fields = fields;
  }

  debug(message: string, fields?: Fields): void {
    this.#log("debug", message, fields);
  }
  info(message: string, fields?: Fields): void {
    this.#log("info", message, fields);
  }
  warning(message: string, fields?: Fields): void {
    this.#log("warning", message, fields);
  }
  error(message: string, fields?: Fields): void {
    this.#log("error", message, fields);
  }
  fatal(message: string, fields?: Fields): void {
    this.#log("fatal", message, fields);
  }

  child(fields: Fields): Logger {
    return new RootedLogger(this.#root, { ...this.#fields, ...fields });
  }

  enabled(level: LogLevel): boolean {
    return logLevels.indexOf(level) >= this.#root.threshold;
  }

  setLevel(level: LogLevel): void {
    this.#root.threshold = logLevels.indexOf(level);
  }

  setFormat(format: LogFormat): void {
    this.#root.format = format;
  }

  #log(level: LogLevel, message: string, fields: Fields | undefined): void {
    if (!this.enabled(level)) return;
    const root = this.#root;
    const record: LogRecord = {
      time: root.clock(),
      pid: process.pid,
      level,
      component: root.component,
      message,
      fields: fields === undefined ? this.#fields : { ...this.#fields, ...fields },
    };
    root.write(formatLine(root.format, record));
  }
}

export function createLogger(options: LoggerOptions): Logger {
  return new RootedLogger({
    component: options.component,
    format: options.format,
    write: options.write ?? new LogOutput().write,
    clock: options.clock ?? Date.now,
    threshold: logLevels.indexOf(options.level),
  }, {});
}
