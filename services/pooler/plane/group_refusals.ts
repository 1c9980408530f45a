// What a client is told whose resource group had no room for it: the group and the limit that stood in its way, by the
// names and numbers of the file.

import type { GroupConfig } from "../../../shared/config/mod.ts";
import { type Group, Limit, type Ticket } from "../../../shared/groups/mod.ts";
import type { Refusal } from "./refusals.ts";

type Why = Pick<Ticket, "fullGroup" | "fullLimit" | "closedGroup" | "closedLimit">;

/** It may not even wait. */
export function noRoom(group: string, why: Why, groups: readonly GroupConfig[]): Refusal {
  const { fullGroup, fullLimit, closedGroup, closedLimit } = why;
  const full = limitText(fullGroup, fullLimit, groups);
  const closed = limitText(closedGroup, closedLimit, groups);
  return {
    code: "53000",
    message: `no room in resource group "${group}"`,
    detail: `Group ${full}: no room to run; group ${closed}: no room to wait`,
    hint: "Try again after a pause, and a longer one after each attempt; or raise the limits",
  };
}

/** It has waited in vain. */
export function waitedForRoom(
  group: string,
  why: Why,
  waitedMs: number,
  groups: readonly GroupConfig[],
): Refusal {
  const full = limitText(why.fullGroup, why.fullLimit, groups);
  return {
    code: "57014",
    message: `canceling statement due to queue_timeout of resource group "${group}"`,
    detail: `It waited ${(waitedMs / 1000).toFixed(1)} s for room; group ${full}`,
    hint: "Nothing of it was executed: try again later, or raise the limits or queue_timeout",
  };
}

function limitText(
  group: Group | null,
  limit: Limit | null,
  groups: readonly GroupConfig[],
): string {
  if (group === null || limit === null) throw new Error("refuse for a group: none was full");
  // The tree may count with a worker's part of it.
  const settings = groups.find(({ name }) => name === group.name) ?? group.settings;
  return `"${group.name}" (${limit} = ${valueOf(settings, limit)})`;
}

function valueOf(settings: GroupConfig, limit: Limit): string {
  switch (limit) {
    case Limit.maxConcurrentQueries:
      return String(settings.maxConcurrentQueries);
    case Limit.softMaxMemory:
      return `${Math.round(settings.softMaxMemory / 1024 ** 2)}MB`;
    case Limit.maxQueued:
      return String(settings.maxQueued);
    case Limit.queueing:
      return "off";
  }
}
