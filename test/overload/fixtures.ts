// Configurations in memory, and what workers say of themselves, for tests of the monitor.

import type { Presence } from "../../shared/bus/mod.ts";
import { type Config, loadConfig } from "../../shared/config/mod.ts";

/** Lines of [pgbouncer], [databases] and [groups]. */
export function configWith(
  settings = "",
  databases = "shop = host=127.0.0.1",
  groups = "",
): Config {
  const text = `[databases]\n${databases}\n[pgbouncer]\npool_mode = transaction\n${settings}\n` +
    `[groups]\n${groups}\n`;
  const { config, problems } = loadConfig("main.ini", () => text);
  if (config === null) throw new Error(problems.map(({ message }) => message).join("\n"));
  return config;
}

/** The same with lines of [groups], and a rule for the first one. */
export function configWithGroups(...groups: string[]): Config {
  const [first] = (groups[0] as string).split(" ");
  return configWith(
    `unmatched_group = ${first}\n[groups]\n${groups.join("\n")}\n[group_rules]\nr = group=${first}`,
  );
}

export function presence(pid: number, change: Partial<Presence> = {}): Presence {
  return {
    id: pid,
    incarnation: 1,
    host: "h",
    boot: "",
    pid,
    state: "ready",
    addresses: [],
    clients: 0,
    servers: 0,
    configMark: "",
    runtime: "",
    supervisor: "supervisor-1",
    ...change,
  };
}
