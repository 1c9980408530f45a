// Which bounds hold for what a client begins, by its database and its resource group, and whether anything in a
// configuration needs a monitor. Pure.

import {
  type Config,
  groupBounds,
  inherit,
  lookupDatabase,
  type OverloadBounds,
  settingsBounds,
} from "../config/mod.ts";
import { isLimit, withOwn } from "./probability.ts";

/** Bounds of databases and groups. Who has the same ones is given the same object, as long as there is this one. */
export class OwnBounds {
  /** Whether a bound on the lag of the event loop is on anywhere. */
  readonly limitsLag: boolean;
  /** The groups that have bounds of their own, or inherit some. */
  readonly groups: readonly string[];
  readonly #config: Config;
  /** By name. */
  readonly #groups: ReadonlyMap<string, OverloadBounds>;
  readonly #joined = new Map<OverloadBounds, Map<OverloadBounds, OverloadBounds>>();

  constructor(config: Config) {
    this.#config = config;
    this.#groups = groupBounds(config);
    this.groups = [...this.#groups.keys()];
    this.limitsLag = this.#limits("lag");
  }

  has(group: string): boolean {
    return this.#groups.has(group);
  }

  /** null: those of the settings. `group`: by name; null: none. */
  of(database: string, group: string | null): OverloadBounds | null {
    const above = lookupDatabase(this.#config, database)?.bounds ?? null;
    const own = group === null ? null : this.#groups.get(group) ?? null;
    if (own === null || above === null) return own ?? above;
    let joined = this.#joined.get(own);
    if (joined === undefined) this.#joined.set(own, joined = new Map());
    let both = joined.get(above);
    if (both === undefined) joined.set(above, both = inherit(own, above) as OverloadBounds);
    return both;
  }

  /** Whether a bound or a warning is on that only a monitor can tell about. */
  get isMonitored(): boolean {
    const { cpuOverloadWarnRatio, memoryOverloadWarnRatio } = this.#config.settings;
    return cpuOverloadWarnRatio > 0 || memoryOverloadWarnRatio > 0 ||
      this.#limits("transactions") || this.#limits("connections");
  }

  #limits(pair: "transactions" | "connections" | "lag"): boolean {
    const { settings, databases, fallbackDatabase } = this.#config;
    const general = settingsBounds(settings)[pair];
    const ofDatabases = [...databases.values(), fallbackDatabase].map((each) => each?.bounds);
    // A database's bounds hold for what groups leave open.
    return [...new Set([null, ...ofDatabases])].some((database) =>
      [null, ...this.#groups.values()].some((group) =>
        isLimit(withOwn(group?.[pair], withOwn(database?.[pair], general)))
      )
    );
  }
}

/** Whether a configuration needs a monitor. */
export function isMonitored(config: Config): boolean {
  return new OwnBounds(config).isMonitored;
}
