// Configurations in memory for tests of the monitor.

import { type Config, loadConfig } from "../../shared/config/mod.ts";

/** `settings` are lines of [pgbouncer], `databases` lines of [databases]. */
export function configWith(settings = "", databases = "shop = host=127.0.0.1"): Config {
  const text = `[databases]\n${databases}\n[pgbouncer]\npool_mode = transaction\n${settings}\n`;
  const { config, problems } = loadConfig("main.ini", () => text);
  if (config === null) throw new Error(problems.map(({ message }) => message).join("\n"));
  return config;
}
