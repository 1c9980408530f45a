// Rows about resource groups, as this worker has them: the limits of the file, and what of them is in use here.

import type { OverloadBounds } from "../../../../shared/config/mod.ts";
import { UNLIMITED } from "../../../../shared/ledger/mod.ts";
import { columnsOf, type Row } from "./encode.ts";
import { timestamp } from "./socket_rows.ts";
import type { Moment } from "./view.ts";

export const groupColumns = columnsOf(
  "name s, parent s, can_run_more i, can_queue_more i, priority i, cpu_shares i, " +
    "soft_max_memory q, memory q, max_concurrent_queries i, granted_queries i, running_queries i, " +
    "max_queued i, queued_queries i, queue_timeout_ms q, last_used T, in_use i, admitted q, " +
    "refused q, timed_out q, queued_time_total_ms q, running_time_total_ms q, shed s, " +
    "busy_time_threshold q, min_to_throw s, max_to_throw s, min_to_drop s, max_to_drop s, " +
    "min_lag_to_throw s, max_lag_to_throw s",
);

export function* groupRows({ plane, now, wallNow }: Moment): Generator<Row> {
  for (const group of plane.admission.groups) {
    const { settings, running, queued, lastUsed } = group;
    const { maxConcurrentQueries, softMaxMemory } = settings;
    const isLimited = maxConcurrentQueries > 0 && group.lease < UNLIMITED;
    yield [
      group.name,
      settings.parent,
      group.full() === null ? 1 : 0,
      group.closed(queued) === null ? 1 : 0,
      settings.priority,
      settings.cpuShares,
      Math.round(softMaxMemory),
      Math.round(group.memory),
      maxConcurrentQueries,
      isLimited ? group.lease : null,
      running,
      settings.maxQueued,
      queued,
      settings.queueTimeoutMs,
      lastUsed === 0 ? null : timestamp(wallNow - (now - lastUsed)),
      running + queued > 0 ? 1 : 0,
      group.admitted,
      group.refused,
      group.timedOut,
      Math.round(group.queuedMs),
      Math.round(group.runningMs),
      settings.shed,
      ...boundCells(plane.overload.boundsOf("", group.name)),
    ];
  }
}

/** Bounds on overload, those of groups above included; null: those of the database, or the settings, hold. */
function boundCells(bounds: OverloadBounds | null): (number | string | null)[] {
  const pairs = bounds === null ? [] : [bounds.transactions, bounds.connections, bounds.lag];
  const cells = pairs.flatMap(({ min, max }) => [min, max])
    .map((bound) => bound === null ? null : String(bound));
  return [bounds?.busyTimeThreshold ?? null, ...(cells.length === 0 ? Array(6).fill(null) : cells)];
}
