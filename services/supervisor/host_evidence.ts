// What this host can see of itself: which run of which supervisor we are, and whether the processes that the
// store names still run.

import { hostname } from "node:os";
import process from "node:process";
import { bootId } from "../../shared/sys/mod.ts";
import { pidNamespace, someProcessHas, startTimeOf } from "./processes.ts";
import type { Evidence, HostMark } from "./worker_record.ts";

/** This run of this supervisor. */
export function ownMark(): HostMark {
  return {
    host: hostname(),
    boot: bootId(),
    pidNamespace: pidNamespace(),
    supervisorPid: process.pid,
    supervisorStart: startTimeOf(process.pid)!,
  };
}

export const evidence: Evidence = {
  supervisorRuns: (pid, start) => startTimeOf(pid) === start,
  workerRuns: ({ id, incarnation }) =>
    someProcessHas("PGWEIR_FLEET", (value) => {
      const seat = JSON.parse(value);
      return seat.workerId === id && seat.incarnation === incarnation;
    }),
};
