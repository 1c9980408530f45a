// Rows about resource groups, as this worker has them: the limits of the file, and what of them is in use here.

import { UNLIMITED } from "../../../../shared/ledger/mod.ts";
import { columnsOf, type Row } from "./encode.ts";
import { timestamp } from "./socket_rows.ts";
import type { Moment } from "./view.ts";

export const groupColumns = columnsOf(
  "name s, parent s, can_run_more i, can_queue_more i, priority i, cpu_shares i, " +
    "soft_max_memory q, memory q, max_concurrent_queries i, granted_queries i, running_queries i, " +
    "max_queued i, queued_queries i, queue_timeout_ms q, last_used T, in_use i, admitted q, " +
    "refused q, timed_out q, queued_time_total_ms q, running_time_total_ms q",
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
    ];
  }
}
