// Which idle server suits a resource group best, where CPU is divided among groups: one that was of the group before, so
// that its backend need not be moved from one cgroup to another. Pure.

import type { Group } from "../../../shared/groups/mod.ts";

/** Servers beyond these are needed seldom, and their turn to grow old. */
const looksMax = 32;

/** Its index among idle servers, the one used last at the end; -1: none of them was. */
export function ownServerIndex(
  idle: readonly { readonly group: Group | null }[],
  group: Group | null,
): number {
  const least = Math.max(0, idle.length - looksMax);
  for (let at = idle.length - 1; at >= least; at--) {
    if ((idle[at] as { readonly group: Group | null }).group === group) return at;
  }
  return -1;
}
