// What a running process makes of a configuration that was read again: settings that only change at the
// start keep the values they have, and whoever wants to can be told which. Pure.

import { type Config, type DatabaseConfig, hashOf, lookupDatabase } from "./config.ts";
import {
  type Setting,
  settingKey,
  type Settings,
  settingsTable,
  settingValue,
} from "./settings.ts";
import { formatValue, type Value } from "./values.ts";

export interface Reloaded {
  readonly config: Config;
  /** Settings that the file changes and that need a restart for it, by name. */
  readonly restart: readonly string[];
}

/** `next` as a process can take it that runs by `running`. */
export function reloaded(running: Config, next: Config): Reloaded {
  const settings: Record<string, Value> = { ...next.settings };
  const restart: string[] = [];
  for (const setting of settingsTable as readonly Setting[]) {
    if (setting.when !== "start") continue;
    const value = settingValue(running.settings, setting);
    const wanted = settingValue(next.settings, setting);
    if (formatValue(setting.kind, value) === formatValue(setting.kind, wanted)) continue;
    settings[settingKey(setting)] = value;
    restart.push(setting.name);
  }
  if (restart.length === 0) return { config: next, restart };
  const parts = { ...next, settings: Object.freeze(settings as unknown as Settings) };
  return { config: Object.freeze({ ...parts, hash: hashOf(parts) }), restart };
}

/**
 * What a database in use is by the next configuration; null: it is removed. That is one whose own entry is gone,
 * too, where `*` would take its name from now on: its clients would find themselves in another database.
 */
export function remainingDatabase(
  running: Config,
  next: Config,
  name: string,
): DatabaseConfig | null {
  const isDropped = running.databases.has(name) && !next.databases.has(name);
  return isDropped ? null : lookupDatabase(next, name);
}

/** Whether server connections made by the one entry are what the other asks for. */
export function sameConnection(a: DatabaseConfig, b: DatabaseConfig): boolean {
  return connectionOf(a) === connectionOf(b);
}

function connectionOf(database: DatabaseConfig): string {
  const { dbname, hosts, port, user, connectQuery, authDbname, authQuery, loadBalanceHosts } =
    database;
  const parameters = Object.entries(database.startupParameters).sort();
  return JSON.stringify([
    dbname,
    hosts,
    port,
    user,
    connectQuery,
    authDbname,
    authQuery,
    loadBalanceHosts,
    parameters,
  ]);
}
