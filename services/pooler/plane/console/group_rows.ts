// Rows about resource groups: the limits of the file, and what of them is in use on all workers together.

import type { OverloadBounds } from "../../../../shared/config/mod.ts";
import { type GroupUse, sumOfUse, useOf } from "../../../../shared/groups/mod.ts";
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

export function* groupRows(
  { plane, now, wallNow }: Moment,
  others: readonly GroupUse[] = [],
): Generator<Row> {
  const byName = new Map<string, GroupUse[]>(plane.config.groups.map(({ name }) => [name, []]));
  for (const group of plane.admission.groups) {
    byName.get(group.name)?.push(useOf(group, wallNow - now));
  }
  for (const use of others) byName.get(use.name)?.push(use);
  for (const settings of plane.config.groups) {
    const { name, maxConcurrentQueries, softMaxMemory, maxQueued } = settings;
    const use = sumOfUse(byName.get(name) ?? [], name);
    const { running, queued, memory, lastUsed } = use;
    const isBelow = (value: number, limit: number) => limit === 0 || value < limit;
    const canRun = isBelow(running, maxConcurrentQueries) && isBelow(memory, softMaxMemory);
    yield [
      name,
      settings.parent,
      canRun ? 1 : 0,
      settings.queueing && isBelow(queued, maxQueued) ? 1 : 0,
      settings.priority,
      settings.cpuShares,
      softMaxMemory,
      memory,
      maxConcurrentQueries,
      maxConcurrentQueries > 0 ? use.granted : null,
      running,
      maxQueued,
      queued,
      settings.queueTimeoutMs,
      lastUsed === 0 ? null : timestamp(lastUsed),
      running + queued > 0 ? 1 : 0,
      use.admitted,
      use.refused,
      use.timedOut,
      use.queuedMs,
      use.runningMs,
      settings.shed,
      ...boundCells(plane.overload.boundsOf("", name)),
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
