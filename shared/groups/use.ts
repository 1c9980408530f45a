// What is in use of a group, as one worker knows it and as plain data, and the sum of that over workers.

import type { Group } from "./group.ts";

export interface GroupUse {
  readonly name: string;
  readonly running: number;
  readonly queued: number;
  /** bytes */
  readonly memory: number;
  /** slots of the mesh's; 0 where nothing limits it */
  readonly granted: number;
  readonly admitted: number;
  readonly refused: number;
  readonly timedOut: number;
  readonly queuedMs: number;
  readonly runningMs: number;
  /** when a query of it began last, in milliseconds since the epoch; 0: never */
  readonly lastUsed: number;
}

/** `offsetMs`: what takes the clock of the tree to milliseconds since the epoch. All numbers are whole. */
export function useOf(group: Group, offsetMs: number): GroupUse {
  const { name, running, queued, memory, admitted, refused, timedOut, limit, lastUsed } = group;
  return {
    name,
    running,
    queued,
    memory: Math.round(memory),
    granted: limit === Infinity ? 0 : limit,
    admitted,
    refused,
    timedOut,
    queuedMs: Math.round(group.queuedMs),
    runningMs: Math.round(group.runningMs),
    lastUsed: lastUsed === 0 ? 0 : Math.round(lastUsed + offsetMs),
  };
}

/** What all workers have in use of a group together. */
export function sumOfUse(uses: readonly GroupUse[], name: string): GroupUse {
  const of = uses.filter((use) => use.name === name);
  const sum = (key: Exclude<keyof GroupUse, "name">) =>
    of.reduce((total, use) => total + use[key], 0);
  return {
    name,
    running: sum("running"),
    queued: sum("queued"),
    memory: sum("memory"),
    granted: sum("granted"),
    admitted: sum("admitted"),
    refused: sum("refused"),
    timedOut: sum("timedOut"),
    queuedMs: sum("queuedMs"),
    runningMs: sum("runningMs"),
    lastUsed: of.reduce((latest, { lastUsed }) => Math.max(latest, lastUsed), 0),
  };
}
