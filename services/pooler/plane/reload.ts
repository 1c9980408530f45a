// Puts a new configuration into effect on a running plane: the one place where settings change. What is
// read when it is used needs nothing; here is what was made of the former configuration.
// Settings that only change at the start are the former ones in the new configuration too.

import {
  type Config,
  type DatabaseConfig,
  remainingDatabase,
  sameConnection,
} from "../../../shared/config/mod.ts";
import { tlsKept } from "../../../shared/console/mod.ts";
import { isSocketDir } from "./dial.ts";
import { droppedDatabaseText } from "./log_lines.ts";
import type { Plane } from "./plane.ts";
import type { Pool } from "./pool.ts";
import { type Refusal, refusals } from "./refusals.ts";

export function applyConfig(plane: Plane, config: Config): void {
  const running = plane.config;
  const remaining = (name: string) => remainingDatabase(running, config, name);
  const known = new Set(running.databases.keys());
  for (const { database } of plane.pools.values()) known.add(database.name);
  plane.setConfig(config);
  for (const name of known) {
    if (remaining(name) === null) plane.control.log("warning", droppedDatabaseText(name));
  }
  const { problem, serversOutdated } = plane.tls.renew(config.settings);
  if (problem !== null) plane.control.log("error", `${tlsKept}: ${problem}`);
  for (const [key, pool] of [...plane.pools]) {
    const database = remaining(pool.database.name);
    if (database === null) end(plane, key, pool, refusals.databaseRemoved);
    // Its clients are logged in by a user that is not theirs any more.
    else if (database.user !== pool.database.user && pool.clients > 0) {
      end(plane, key, pool, refusals.databaseChanged);
    } else renew(plane, pool, database);
    if (serversOutdated && !database?.hosts.every(isSocketDir)) {
      pool.outdate("TLS settings changed");
    }
  }
  for (const client of [...plane.clients]) {
    if (client.tunnel !== null && remaining(client.database) === null) {
      client.fail(refusals.databaseRemoved);
    }
  }
  plane.overload.onConfig();
  plane.notifier.renew(remaining);
  for (const [key, { database, lease }] of plane.direct) {
    if (remaining(database) !== null) continue;
    plane.direct.delete(key);
    plane.budget.retire(lease);
  }
  countClients(plane);
}

function renew(plane: Plane, pool: Pool, database: DatabaseConfig): void {
  const isOutdated = !sameConnection(pool.database, database);
  pool.renew(database, plane.loginFor(database, pool.user, pool));
  if (isOutdated) pool.onOtherServer();
}

/** Nobody may use the pool any more. */
function end(plane: Plane, key: string, pool: Pool, refusal: Refusal): void {
  plane.pools.delete(key);
  for (const client of [...plane.clients]) if (client.pool === pool) client.fail(refusal);
  // Who looks up a user waits there, too.
  pool.failWaiters(refusal);
  pool.outdate(refusal.message);
  pool.retire();
}

/** Clients that are there already count in limits that are new. */
function countClients(plane: Plane): void {
  for (const client of plane.clients) {
    const { pool, login } = client;
    if (pool === null || login !== null) continue;
    for (const gate of plane.gatesFor(pool.database, client.user)) {
      if (client.gates.includes(gate)) continue;
      gate.count();
      client.gates = [...client.gates, gate];
    }
  }
}
