// The accounts of the ledger's simulation: pools of several databases and users, joined to components by caps of
// databases and users, connections outside of pools under the same caps, clients, and a tree of resource groups. A
// reload makes a new version of the caps; processes learn of it at their own time.

import type { LeafRule, LeafRules } from "../../shared/ledger/mod.ts";
import type { Chance } from "./simulated_world.ts";

export interface Pool {
  readonly leaf: string;
  readonly database: string;
  readonly user: string;
}

/** Every account a leaf may be in, whether it has a cap at present or not. */
export interface Topology {
  readonly pools: readonly Pool[];
  /** Connections outside of pools. */
  readonly directs: readonly Pool[];
  /** Databases and users that clients come for; each client charges up to three leaves. */
  readonly guests: readonly Pool[];
  /** Resource groups, each after its parent: a query has a slot of its group and of each above. */
  readonly groups: readonly { readonly leaf: string; readonly parent: string | null }[];
  readonly accountsOf: ReadonlyMap<string, readonly string[]>;
  readonly leaves: readonly string[];
}

export function makeTopology(chance: Chance, many: boolean): Topology {
  const databases = many ? 230 : chance.whole(1, 3);
  const users = many ? 1 : chance.whole(1, 3);
  const pools: Pool[] = [];
  for (let d = 0; d < databases; d++) {
    for (let u = 0; u < users; u++) {
      if (!many && pools.length > 0 && chance.yes(0.3)) continue;
      pools.push({ leaf: `pool:d${d}/u${u}`, database: `d${d}`, user: `u${u}` });
    }
  }
  const withDirects = !many && chance.yes(0.5);
  const directs = pools.filter(() => withDirects && chance.yes(0.6))
    .map((pool) => ({ ...pool, leaf: `direct:${pool.database}/${pool.user}` }));
  const guests = many ? [] : pools.filter(() => chance.yes(0.5)).slice(0, 3);
  const accountsOf = new Map<string, string[]>();
  for (const { leaf, database, user } of pools) {
    accountsOf.set(leaf, [leaf, `db:${database}`, `user:${user}`]);
  }
  for (const { leaf, database, user } of directs) {
    accountsOf.set(leaf, [`db:${database}`, `user:${user}`]);
  }
  if (guests.length > 0) accountsOf.set("clients", ["clients"]);
  for (const { database, user } of guests) {
    accountsOf.set(`clients/db:${database}`, [`clients/db:${database}`]);
    accountsOf.set(`clients/user:${user}`, [`clients/user:${user}`]);
  }
  const groups: { leaf: string; parent: string | null }[] = [];
  const grouped = many || chance.yes(0.5) ? 0 : chance.whole(1, 5);
  for (let g = 0; g < grouped; g++) {
    const leaf = `group:g${g}`;
    const parent = g > 0 && chance.yes(0.7) ? chance.pick(groups).leaf : null;
    accountsOf.set(leaf, [leaf]);
    groups.push({ leaf, parent });
  }
  return { pools, directs, guests, groups, accountsOf, leaves: [...accountsOf.keys()] };
}

/** One version of the caps: an account that is not in the map has none. */
export type Caps = ReadonlyMap<string, number>;

export function makeCaps(chance: Chance, topology: Topology): Map<string, number> {
  const caps = new Map<string, number>();
  for (const { leaf } of topology.pools) caps.set(leaf, chance.whole(1, chance.pick([3, 8, 20])));
  for (const [leaf, accounts] of topology.accountsOf) {
    if (leaf === "clients") caps.set(leaf, chance.whole(2, 20));
    else if (leaf.startsWith("clients/")) {
      if (chance.yes(0.5)) caps.set(leaf, chance.whole(1, 12));
    } else if (leaf.startsWith("group:")) {
      if (chance.yes(0.8)) caps.set(leaf, chance.whole(1, chance.pick([3, 8, 20])));
    } else if (leaf.startsWith("pool:")) {
      for (const account of accounts.slice(1)) {
        if (!caps.has(account) && chance.yes(0.3)) caps.set(account, chance.whole(1, 20));
      }
    }
  }
  return caps;
}

/** Other caps for some accounts; now and then a database or user gets or loses its cap. */
export function reloadCaps(chance: Chance, topology: Topology, caps: Caps): Caps {
  const next = new Map(caps);
  const fresh = makeCaps(chance, topology);
  const accounts = new Set([...topology.accountsOf.values()].flat());
  for (const account of accounts) {
    if (!chance.yes(0.35)) continue;
    const cap = fresh.get(account);
    if (cap !== undefined) next.set(account, cap);
    else if (/^(db|user|group):/.test(account)) next.delete(account);
  }
  return next;
}

/** What a configuration file says at one time. */
export class Version {
  readonly caps: Caps;
  readonly rules: LeafRules;

  constructor(topology: Topology, caps: Caps) {
    this.caps = caps;
    const made = new Map<string, LeafRule>();
    for (const [leaf, names] of topology.accountsOf) {
      const accounts = names.flatMap((name) => {
        const cap = caps.get(name);
        return cap === undefined ? [] : [{ name, cap }];
      });
      made.set(leaf, { accounts, sticky: !/^(pool|group):/.test(leaf) });
    }
    this.rules = (leaf) => made.get(leaf) ?? null;
  }

  text(): string {
    return [...this.caps].map(([account, cap]) => `${account}=${cap}`).join(" ");
  }
}
