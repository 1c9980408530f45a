// Which cgroups the resource groups have, and with which weights. Pure. The tree is that of the groups:
//
//   <base>/rest                    PostgreSQL itself, and all that is in no group
//   <base>/group.analytics/own     what is in analytics itself, beside the groups below it
//   <base>/group.analytics/group.reports/own
//
// `own` and `rest` count as a group with the default of cpu_shares. In version 2 only leaves may have processes, so that
// each group has one from the beginning.

import { defaultCpuShares, type GroupConfig } from "../../shared/config/mod.ts";

export type CgroupVersion = 1 | 2;

export const restPath = "rest";
const defaultWeight = 100;
const maxWeight = 10_000;
const maxShares = 262_144;

export interface CpuFolder {
  /** Below the base; "" is the base. */
  readonly path: string;
  readonly shares: number;
  /** It has cgroups below it. */
  readonly isInner: boolean;
}

export interface CpuPlan {
  /** What is above stands before what is below. */
  readonly folders: readonly CpuFolder[];
  /** Where the processes of a group belong, by its name. */
  readonly leaves: ReadonlyMap<string, string>;
}

/** What is to be written for so many shares, as systemd converts them: 1024 are the default of both versions. */
export function weightText(shares: number, version: CgroupVersion): string {
  if (version === 1) return String(Math.min(maxShares, Math.max(2, Math.round(shares))));
  const weight = Math.round(shares * defaultWeight / defaultCpuShares);
  return String(Math.min(maxWeight, Math.max(1, weight)));
}

/** `processes`: so many does PostgreSQL have, which together weigh what each of them would alone. */
export function cpuPlan(groups: readonly GroupConfig[], processes: number): CpuPlan {
  const byName = new Map(groups.map((group) => [group.name, group]));
  const pathOf = ({ name, parent }: GroupConfig): string => {
    const above = parent === null ? undefined : byName.get(parent);
    return `${above === undefined ? "" : `${pathOf(above)}/`}group.${name}`;
  };
  const inner = groups.map((group) => {
    return { name: group.name, path: pathOf(group), shares: group.cpuShares, isInner: true };
  });
  const depth = ({ path }: { path: string }) => path.split("/").length;
  inner.sort((a, b) => depth(a) - depth(b));
  const leaf = (path: string) => ({ path, shares: defaultCpuShares, isInner: false });
  return {
    folders: [
      { path: "", shares: defaultCpuShares * Math.max(1, processes), isInner: true },
      leaf(restPath),
      ...inner.flatMap(({ path, shares }) => [
        { path, shares, isInner: true },
        leaf(`${path}/own`),
      ]),
    ],
    leaves: new Map(inner.map(({ name, path }) => [name, `${path}/own`])),
  };
}
