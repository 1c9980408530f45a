// The configuration of a running process: read at the start, read again, changed from the console. It keeps the
// texts of the files it was made of, so that others can make the same of them: the processes of one host go by one
// reading, whatever becomes of the files meanwhile.
// Invariant: what has problems changes nothing.

import {
  type Config,
  findSetting,
  loadConfig,
  problemText,
  type ReadFile,
  readFromDisk,
  reloaded,
  type SetValues,
} from "../config/mod.ts";
import type { Logger } from "../telemetry/mod.ts";
import { type HostOptions, withOptions } from "./host_process.ts";
import { reloadProblems } from "./outside.ts";

/** Texts of files by the paths they were read by. */
export type FileTexts = Readonly<Record<string, string>>;

/** What a configuration is made of: that of the start, for what can't change, and that of now. */
export interface ConfigSources {
  readonly path: string;
  readonly start: FileTexts;
  /** null: as at the start */
  readonly now: FileTexts | null;
  /** changed from the console since the file was read */
  readonly set: SetValues;
  /** How often it was read again. Files that it only names, as those of TLS, count as new each time. */
  readonly readings: number;
}

/** Tells configurations apart, and readings of the same one. */
export function markOf(config: Config, { readings }: ConfigSources): string {
  return `${config.hash}.${readings}`;
}

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** Reads from disk, and keeps what it has read. */
export class RecordingReader {
  readonly #texts: Record<string, string> = {};

  readonly read: ReadFile = (path) => {
    const content = readFromDisk(path);
    return this.#texts[path] = typeof content === "string" ? content : decoder.decode(content);
  };

  get texts(): FileTexts {
    return { ...this.#texts };
  }
}

/** Reads what was kept; from disk what was not, and keeps it. */
function readerOf(texts: FileTexts, more: RecordingReader): ReadFile {
  return (path) => Object.hasOwn(texts, path) ? texts[path]! : more.read(path);
}

/** The configuration that another process of this host goes by. Throws where it is none. */
export function configFrom({ path, start, now, set }: ConfigSources, options: HostOptions): Config {
  const made = (texts: FileTexts, values: SetValues): Config => {
    const { config, problems } = loadConfig(path, readerOf(texts, new RecordingReader()), values);
    if (config === null) throw new Error(problems.map(problemText).join("\n"));
    return withOptions(config, options);
  };
  const first = made(start, []);
  return now === null && set.length === 0 ? first : reloaded(first, made(now ?? start, set)).config;
}

export class LiveConfig {
  readonly #options: HostOptions;
  readonly #logger: Logger;
  readonly #start: FileTexts;
  #current: Config;
  #now: FileTexts | null = null;
  #set: SetValues = [];
  #readings = 0;

  /** `config` was read from the texts. */
  constructor(config: Config, texts: FileTexts, options: HostOptions, logger: Logger) {
    this.#current = config;
    this.#start = texts;
    this.#options = options;
    this.#logger = logger;
  }

  get current(): Config {
    return this.#current;
  }

  get sources(): ConfigSources {
    return {
      path: this.#current.path,
      start: this.#start,
      now: this.#now,
      set: this.#set,
      readings: this.#readings,
    };
  }

  /**
   * Reads the file again; what was set from the console is over. `take` puts it into effect, and may throw to
   * refuse it. False: nothing is changed, and the log says why.
   */
  reload(take: (config: Config) => void): boolean {
    const reader = new RecordingReader();
    const loaded = loadConfig(this.#current.path, reader.read);
    const { config, warnings } = loaded;
    const problems = reloadProblems(loaded);
    if (config === null || problems.length > 0) {
      for (const problem of problems) this.#logger.error(`reload: ${problemText(problem)}`);
      this.#logger.error("reload failed, nothing is changed", { problems: problems.length });
      return false;
    }
    const next = reloaded(this.#current, withOptions(config, this.#options));
    this.#readings++;
    const refusal = this.#take(next.config, reader.texts, [], take);
    if (refusal !== null) {
      this.#readings--;
      this.#logger.error(`reload: ${refusal}, nothing is changed`);
      return false;
    }
    for (const warning of warnings) this.#logger.warning(problemText(warning));
    for (const name of next.restart) {
      this.#logger.warning(`reload: ${name} changes with a restart only, the former value is kept`);
    }
    this.#logger.info("configuration reloaded", { file: config.path });
    return true;
  }

  /** Changes one setting until the file is read again; returns why that is not possible, or null. */
  set(key: string, value: string, take: (config: Config) => void): string | null {
    const setting = findSetting(key);
    if (setting === undefined) return `unknown setting "${key}"`;
    if (setting.when === "start") return `${key} changes with a restart only`;
    const texts = this.#now ?? this.#start;
    const more = new RecordingReader();
    const values: SetValues = [...this.#set.filter(([other]) => other !== key), [key, value]];
    const { config, problems } = loadConfig(this.#current.path, readerOf(texts, more), values);
    const [problem] = problems;
    if (config === null) return problem?.message ?? "the value is not valid";
    const next = reloaded(this.#current, withOptions(config, this.#options)).config;
    return this.#take(next, { ...texts, ...more.texts }, values, take);
  }

  /** Returns why it was not taken, or null. */
  #take(
    config: Config,
    texts: FileTexts,
    set: SetValues,
    take: (config: Config) => void,
  ): string | null {
    const before = this.sources;
    this.#now = texts;
    this.#set = set;
    try {
      take(config);
    } catch (error) {
      this.#now = before.now;
      this.#set = before.set;
      return (error as Error).message;
    }
    this.#current = config;
    return null;
  }
}
