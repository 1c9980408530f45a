// What a monitor makes of one interval: the ratio of CPU wait to CPU work, as ClickHouse takes it, and how much of
// new work is to be refused by the bounds of the configuration. Pure.

import { type Config, lookupDatabase } from "../../shared/config/mod.ts";
import {
  databaseBounds,
  type Shedding,
  shedding,
  transactionBounds,
} from "../../shared/overload/mod.ts";

/** What the watched processes did in an interval, all their threads together. */
export interface CpuTimes {
  /** Microseconds in which they could have run and had no CPU. */
  readonly waitUs: number;
  /** Microseconds in which they ran. */
  readonly busyUs: number;
}

export interface Decision {
  readonly ratio: number;
  readonly transactions: Shedding;
  readonly connections: Shedding;
  readonly databases: readonly { readonly database: string; readonly transactions: Shedding }[];
}

/** Wait by work; 0 when there was less work than the threshold, which tells nothing. */
export function overloadRatio({ waitUs, busyUs }: CpuTimes, thresholdUs: number): number {
  if (!(busyUs > 0) || busyUs < thresholdUs || !(waitUs > 0)) return 0;
  return waitUs / busyUs;
}

/** For a host's workers: `database` is null. For a database: by the bounds of its entry, if it has any. */
export function decide(times: CpuTimes, config: Config, database: string | null): Decision {
  const { settings } = config;
  const ratio = overloadRatio(times, settings.osCpuBusyTimeThreshold);
  const own = database === null ? null : lookupDatabase(config, database);
  return {
    ratio,
    transactions: shedding(ratio, transactionBounds(settings, own)),
    connections: shedding(ratio, {
      min: settings.minOsCpuWaitTimeRatioToDropConnection,
      max: settings.maxOsCpuWaitTimeRatioToDropConnection,
    }),
    databases: database !== null ? [] : databaseBounds(config).map(({ database, bounds }) => ({
      database,
      transactions: shedding(ratio, bounds),
    })),
  };
}
