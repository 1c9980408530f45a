// What a monitor makes of one interval: the ratio of CPU wait to CPU work, as ClickHouse takes it, and how much of
// new work is to be refused by the bounds of the configuration. Databases and groups with bounds of their own are the
// workers' affair: they know who is in which. Pure.

import { type Config, lookupDatabase, settingsBounds } from "../../shared/config/mod.ts";
import {
  type CpuTimes,
  overloadRatio,
  type Shedding,
  shedding,
  withOwn,
} from "../../shared/overload/mod.ts";

export interface Decision {
  readonly ratio: number;
  readonly transactions: Shedding;
  readonly connections: Shedding;
}

/** For a host's workers: `database` is null. For a database: by the bounds of its entry, if it has any. */
export function decide(times: CpuTimes, config: Config, database: string | null): Decision {
  const general = settingsBounds(config.settings);
  const own = database === null ? null : lookupDatabase(config, database)?.bounds ?? null;
  const ratio = overloadRatio(times, own?.busyTimeThreshold ?? general.busyTimeThreshold);
  const of = (pair: "transactions" | "connections") =>
    shedding(ratio, withOwn(own?.[pair], general[pair]));
  return { ratio, transactions: of("transactions"), connections: of("connections") };
}
