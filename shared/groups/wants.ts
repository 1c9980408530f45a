// Which of the groups' settings want a monitor on the database host, to be in effect fully. Pure.

import { defaultCpuShares, type GroupConfig } from "../config/mod.ts";

/** CPU is divided as soon as a group wants another share than all have by default. */
export function dividesCpu(groups: readonly GroupConfig[]): boolean {
  return groups.some(({ cpuShares }) => cpuShares !== defaultCpuShares);
}

/** Some group's memory has a limit: what its queries have is to be known. */
export function boundsMemory(groups: readonly GroupConfig[]): boolean {
  return groups.some(({ softMaxMemory }) => softMaxMemory > 0);
}
