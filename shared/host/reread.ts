// Reads the configuration of a running process again, and says in the log what comes of it: what is wrong with
// it, or what a running process can't change.

import { type Config, loadConfig, problemText, reloaded } from "../config/mod.ts";
import type { Logger } from "../telemetry/mod.ts";
import { type HostOptions, withOptions } from "./host_process.ts";

/** What to go by from now on, or null: the file has problems, and changes nothing. */
export function rereadConfig(
  running: Config,
  options: HostOptions,
  logger: Logger,
): Config | null {
  const { config, problems, warnings } = loadConfig(running.path);
  if (config === null) {
    for (const problem of problems) logger.error(`reload: ${problemText(problem)}`);
    logger.error("reload failed, nothing is changed", { problems: problems.length });
    return null;
  }
  for (const warning of warnings) logger.warning(problemText(warning));
  const next = reloaded(running, withOptions(config, options));
  for (const name of next.restart) {
    logger.warning(`reload: ${name} changes with a restart only, the former value is kept`);
  }
  return next.config;
}
