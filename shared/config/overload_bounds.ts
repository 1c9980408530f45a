// Bounds on overload that a database or a resource group has for itself: how they are read from its entry, what holds
// where it leaves some of them to what stands above it, and which of them cannot have been meant. Pure.
// The order: a group, the groups above it, the database, the settings; each key on its own.

import type { Config } from "./config.ts";
import type { Findings, Place } from "./problem.ts";
import { quote } from "./problem.ts";
import type { SettingName } from "./settings.ts";
import type { Value } from "./values.ts";

/** null: that of what stands above. */
export interface OwnPair {
  readonly min: number | null;
  readonly max: number | null;
}

export interface OverloadBounds {
  /** microseconds of work in an interval; null: as of a pair */
  readonly busyTimeThreshold: number | null;
  /** ratios of CPU wait to work, for new transactions and new connections */
  readonly transactions: OwnPair;
  readonly connections: OwnPair;
  /** milliseconds, for new transactions */
  readonly lag: OwnPair;
}

/** The settings': each is there. */
export interface FullBounds extends OverloadBounds {
  readonly busyTimeThreshold: number;
  readonly transactions: FullPair;
  readonly connections: FullPair;
  readonly lag: FullPair;
}

interface FullPair extends OwnPair {
  readonly min: number;
  readonly max: number;
}

const THRESHOLD = "os_cpu_busy_time_threshold";
const PAIRS = [
  ["transactions", "os_cpu_wait_time_ratio_to_throw"],
  ["connections", "os_cpu_wait_time_ratio_to_drop_connection"],
  ["lag", "event_loop_lag_to_throw"],
] as const;

/** The settings that databases and groups may have of their own. */
export const overloadBoundNames: readonly SettingName[] = [
  THRESHOLD,
  ...PAIRS.flatMap(([, name]) => [`min_${name}`, `max_${name}`] as const),
];

/** Those that an entry has; null: none. */
export function readBounds(values: ReadonlyMap<string, Value>): OverloadBounds | null {
  if (!overloadBoundNames.some((name) => values.has(name))) return null;
  const number = (key: string) => (values.get(key) ?? null) as number | null;
  const pair = (name: string) =>
    Object.freeze({ min: number(`min_${name}`), max: number(`max_${name}`) });
  const [transactions, connections, lag] = PAIRS.map(([, name]) => pair(name)) as [
    OwnPair,
    OwnPair,
    OwnPair,
  ];
  return Object.freeze({ busyTimeThreshold: number(THRESHOLD), transactions, connections, lag });
}

function overlaid(own: OwnPair, above: OwnPair): OwnPair {
  return { min: own.min ?? above.min, max: own.max ?? above.max };
}

/** What holds for whoever has `own`, below what has `above`. */
export function inherit(
  own: OverloadBounds | null,
  above: OverloadBounds | null,
): OverloadBounds | null {
  if (own === null || above === null) return own ?? above;
  return {
    busyTimeThreshold: own.busyTimeThreshold ?? above.busyTimeThreshold,
    transactions: overlaid(own.transactions, above.transactions),
    connections: overlaid(own.connections, above.connections),
    lag: overlaid(own.lag, above.lag),
  };
}

/** Of each group that has any, or is below one that has, by name: with those of the groups above. */
export function groupBounds({ groups }: Pick<Config, "groups">): Map<string, OverloadBounds> {
  const byName = new Map(groups.map((group) => [group.name, group]));
  const found = new Map<string, OverloadBounds>();
  const of = (name: string | null): OverloadBounds | null => {
    const group = name === null ? undefined : byName.get(name);
    if (group === undefined) return null;
    const known = found.get(group.name);
    if (known !== undefined) return known;
    const bounds = inherit(group.bounds, of(group.parent));
    if (bounds !== null) found.set(group.name, bounds);
    return bounds;
  };
  for (const { name } of groups) of(name);
  return found;
}

/** Bounds, and how a message names whose they are. */
interface Holder {
  readonly name: string;
  readonly bounds: OverloadBounds;
}

type Parts = Pick<Config, "settings" | "databases" | "fallbackDatabase" | "groups">;

/** Warns of bounds that refuse nothing, and of ratios the wrong way round, where somebody has set them. */
export function checkBounds(
  config: Parts,
  warnings: Findings,
  placeOf: (section: "pgbouncer" | "databases" | "groups", key: string) => Place,
): void {
  const { groups } = config;
  const general = settingsBounds(config.settings);
  const settings: Holder = { name: "", bounds: general };
  const all = [...config.databases.values()];
  if (config.fallbackDatabase !== null) all.push(config.fallbackDatabase);
  const databases = all.flatMap(({ name, bounds }): Holder[] => {
    return bounds === null ? [] : [{ name: `database ${quote(name)}`, bounds }];
  });
  const own = [
    ...databases,
    ...groups.flatMap(({ bounds }) => bounds === null ? [] : [{ bounds }]),
  ];
  for (const [key, name] of PAIRS) {
    const { min, max } = general[key];
    // A lower bound alone is for those below that have an upper one.
    const isForOthers = max === 0 && own.some(({ bounds }) => bounds[key].max !== null);
    const problem = isForOthers || !(min > 0 || max > 0)
      ? null
      : contradiction([settings], key, name);
    if (problem !== null) warnings.add(placeOf("pgbouncer", `min_${name}`), problem);
  }
  const { cpuOverloadWarnRatio, cpuOverloadClearRatio } = config.settings;
  const { memoryOverloadWarnRatio, memoryOverloadClearRatio } = config.settings;
  const ratios = [
    ["cpu", cpuOverloadWarnRatio, cpuOverloadClearRatio],
    ["memory", memoryOverloadWarnRatio, memoryOverloadClearRatio],
  ] as const;
  for (const [use, warn, clear] of ratios) {
    const name = `${use}_overload_warn_ratio`;
    if (warn === 0 || clear <= warn) continue;
    warnings.add(
      placeOf("pgbouncer", name),
      `${use}_overload_clear_ratio = ${clear} is above ${name} = ${warn}: warnings are cleared below ${warn}`,
    );
  }
  const spared = "shed=never: its bounds on overload have no effect";
  for (const { name, bounds, shed } of all) {
    if (bounds === null) continue;
    const at = placeOf("databases", name);
    const what = `database ${quote(name)}`;
    if (shed === "never") warnings.add(at, `${what}: ${spared}`);
    for (const problem of problemsOf([{ name: what, bounds }, settings])) {
      warnings.add(at, `${what}: ${problem}`);
    }
  }
  for (const group of groups) {
    if (group.bounds === null) continue;
    const at = placeOf("groups", group.name);
    const what = `group ${quote(group.name)}`;
    if (group.shed === "never" && !groups.some(({ parent }) => parent === group.name)) {
      warnings.add(at, `${what}: ${spared}`);
    }
    const way: Holder[] = [];
    for (let each: typeof group | undefined = group; each !== undefined;) {
      const { name, bounds, parent }: typeof group = each;
      if (bounds !== null) way.push({ name: `group ${quote(name)}`, bounds });
      each = groups.find((other) => other.name === parent);
    }
    const found = new Set(problemsOf([...way, settings]));
    // What the group leaves open is the database's: the first one tells.
    if (found.size === 0) {
      const lacking = databases.flatMap((database) => problemsOf([...way, database, settings]));
      if (lacking[0] !== undefined) found.add(lacking[0]);
    }
    for (const problem of found) warnings.add(at, `${what}: ${problem}`);
  }
}

export function settingsBounds(settings: Config["settings"]): FullBounds {
  return {
    busyTimeThreshold: settings.osCpuBusyTimeThreshold,
    transactions: {
      min: settings.minOsCpuWaitTimeRatioToThrow,
      max: settings.maxOsCpuWaitTimeRatioToThrow,
    },
    connections: {
      min: settings.minOsCpuWaitTimeRatioToDropConnection,
      max: settings.maxOsCpuWaitTimeRatioToDropConnection,
    },
    lag: { min: settings.minEventLoopLagToThrowMs, max: settings.maxEventLoopLagToThrowMs },
  };
}

/** Of the pairs that the first of a chain has a part in. */
function problemsOf(chain: readonly Holder[]): string[] {
  return PAIRS.flatMap(([key, name]) => {
    const { min, max } = chain[0]!.bounds[key];
    if (min === null && max === null) return [];
    return contradiction(chain, key, name) ?? [];
  });
}

/** Why a pair, as it holds at the beginning of a chain, refuses nothing; null: it does, or is turned off. */
function contradiction(
  chain: readonly Holder[],
  key: typeof PAIRS[number][0],
  name: string,
): string | null {
  const find = (end: "min" | "max") => {
    const at = chain.findIndex(({ bounds }) => bounds[key][end] !== null);
    const holder = chain[at]!;
    const whose = at === 0 ? "" : ` of ${holder.name === "" ? "the settings" : holder.name}`;
    return { value: holder.bounds[key][end]!, whose, isOwn: at === 0 };
  };
  const [min, max] = [find("min"), find("max")];
  if (max.value === 0 && (max.isOwn && chain.length > 1 || min.value === 0)) return null;
  if (max.value > min.value) return null;
  const is =
    `min_${name} = ${min.value}${min.whose} is not below max_${name} = ${max.value}${max.whose}`;
  return `${is}: nothing is refused by it`;
}
