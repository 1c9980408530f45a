// Forgets pools that nobody uses any more: pool_idle_timeout, and autodb_idle_timeout for databases that were made
// from the `*` entry, which any client may have asked for by any name. What a pool has counted stays in the
// statistics of its database for as long as that is there.

import { type Config, CONSOLE_DATABASE } from "../../../shared/config/mod.ts";
import { isOver } from "./deadlines.ts";
import type { Plane } from "./plane.ts";
import type { Pool } from "./pool.ts";
import { ServerState } from "./server_state.ts";

export class UnusedPools {
  readonly #plane: Plane;
  readonly #since = new WeakMap<Pool, number>();

  constructor(plane: Plane) {
    this.#plane = plane;
  }

  /** Called ten times a second. */
  sweep(now: number): void {
    const { config, pools } = this.#plane;
    const { poolIdleTimeoutMs, autodbIdleTimeoutMs } = config.settings;
    if (poolIdleTimeoutMs === 0 && autodbIdleTimeoutMs === 0) return;
    for (const [key, pool] of pools) {
      if (this.#isUsed(key, pool)) {
        this.#since.delete(pool);
        continue;
      }
      const since = this.#since.get(pool) ?? now;
      this.#since.set(pool, since);
      const isAuto = isAutomatic(config, pool.database.name);
      if (isOver(poolIdleTimeoutMs, since, now)) this.#plane.forget(key, "pool idle timeout");
      else if (isAuto && isOver(autodbIdleTimeoutMs, since, now)) {
        this.#plane.forget(key, "autodb idle timeout");
      }
    }
  }

  #isUsed(key: string, pool: Pool): boolean {
    if (pool.clients > 0 || pool.waiting > 0 || pool.minimum > 0) return true;
    if ((this.#plane.direct.get(key)?.servers.size ?? 0) > 0) return true;
    // Look-ups of users, logins and what is done on servers between two clients.
    for (const { state } of pool.servers) if (state !== ServerState.idle) return true;
    return false;
  }
}

/** Whether a database is not in the file by its own name. */
export function isAutomatic(config: Config, database: string): boolean {
  return !config.databases.has(database) && database !== CONSOLE_DATABASE;
}
