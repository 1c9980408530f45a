// Files in memory for the tests of shared/config: a reader over a record of paths, the smallest file
// that loads, and short-cuts for what a load found.

import type { Config, Loaded, ReadFile } from "../../shared/config/mod.ts";
import { loadConfig } from "../../shared/config/mod.ts";

export function filesOf(files: Readonly<Record<string, string | Uint8Array>>): ReadFile {
  return (path) => {
    const content = files[path];
    if (content !== undefined) return content;
    throw Object.assign(new Error(`${path} is not there`), { code: "ENOENT" });
  };
}

export const MAIN = "main.ini";

export function load(
  text: string,
  files: Readonly<Record<string, string | Uint8Array>> = {},
): Loaded {
  return loadConfig(MAIN, filesOf({ [MAIN]: text, ...files }));
}

/** A file that loads without problems, with `settings` and `databases` lines put in. */
export function iniWith(settings = "", databases = "shop = host=127.0.0.1"): string {
  return `[databases]\n${databases}\n[pgbouncer]\npool_mode = transaction\n${settings}\n`;
}

export function configOf(text: string, files: Readonly<Record<string, string>> = {}): Config {
  const { config, problems } = load(text, files);
  if (config === null) {
    throw new Error(problems.map(({ line, message }) => `${line}: ${message}`).join("\n"));
  }
  return config;
}

/** `line: message` of each, for comparison with a list. */
export function lines(found: readonly { line: number; message: string }[]): string[] {
  return found.map(({ line, message }) => `${line}: ${message}`);
}
