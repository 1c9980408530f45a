// Which bounds a configuration sets, and whether anything in it needs a monitor. Pure.

import type { Config, DatabaseConfig, Settings } from "../config/mod.ts";
import { type Bounds, isLimit } from "./probability.ts";

/** The bounds for transactions of a database; null: of those that set none of their own. */
export function transactionBounds(settings: Settings, database: DatabaseConfig | null): Bounds {
  return {
    min: database?.minOsCpuWaitTimeRatioToThrow ?? settings.minOsCpuWaitTimeRatioToThrow,
    max: database?.maxOsCpuWaitTimeRatioToThrow ?? settings.maxOsCpuWaitTimeRatioToThrow,
  };
}

/** The databases whose entries set bounds of their own. Those of the `*` entry have no names to be told by. */
export function databaseBounds(config: Config): { database: string; bounds: Bounds }[] {
  return [...config.databases.values()]
    .filter(({ minOsCpuWaitTimeRatioToThrow: min, maxOsCpuWaitTimeRatioToThrow: max }) =>
      min !== null || max !== null
    )
    .map((database) => ({
      database: database.name,
      bounds: transactionBounds(config.settings, database),
    }));
}

/** Whether a bound or a warning is on that only a monitor can tell about. */
export function isMonitored(config: Config): boolean {
  const { settings } = config;
  const connections = {
    min: settings.minOsCpuWaitTimeRatioToDropConnection,
    max: settings.maxOsCpuWaitTimeRatioToDropConnection,
  };
  return settings.cpuOverloadWarnRatio > 0 || settings.memoryOverloadWarnRatio > 0 ||
    isLimit(connections) || isLimit(transactionBounds(settings, null)) ||
    databaseBounds(config).some(({ bounds }) => isLimit(bounds));
}
