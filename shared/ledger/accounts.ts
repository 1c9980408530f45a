// Which accounts a leaf is charged to, and how large they are, by the configuration. Pure look-ups;
// the sums are kept elsewhere.

import type { Config } from "../config/mod.ts";
import { lookupDatabase, poolSizeFor } from "../config/mod.ts";
import type { Leaf } from "./leaf.ts";
import { encodeName, parseLeaf } from "./leaf.ts";

export interface AccountRule {
  readonly name: string;
  readonly cap: number;
}

export interface LeafRule {
  /** one slot of the leaf is charged to each of them */
  readonly accounts: readonly AccountRule[];
  /** what is held is never taken away: a client is not disconnected to make room */
  readonly sticky: boolean;
}

/** The rule of a leaf by its key; null: there is no such leaf, or nothing limits it. */
export type LeafRules = (leaf: string) => LeafRule | null;

/** A worker's place in a fleet that divides each limit by its size. */
export interface Part {
  readonly index: number;
  readonly count: number;
}

/** The rules of a configuration; with `part`, those of one worker of a fleet that divides the limits. */
export function leafRules(config: Config, part: Part = { index: 0, count: 1 }): LeafRules {
  return (key) => {
    const leaf = parseLeaf(key);
    if (leaf === null) return null;
    const accounts = limitsOf(config, key, leaf)
      .map(({ name, cap }) => ({ name, cap: shareOf(cap, part) }));
    return accounts.length === 0 ? null : { accounts, sticky: leaf.kind !== "pool" };
  };
}

function limitsOf(config: Config, key: string, leaf: Leaf): AccountRule[] {
  const { settings, users } = config;
  if (leaf.kind === "clients") return limited(key, settings.maxClientConn);
  if (leaf.kind === "clients/user") {
    const own = users.get(leaf.user)?.maxUserClientConnections;
    return limited(key, own ?? settings.maxUserClientConnections);
  }
  const database = lookupDatabase(config, leaf.database);
  if (leaf.kind === "clients/db") {
    if (database === null) return [];
    return limited(key, database.maxDbClientConnections ?? settings.maxDbClientConnections);
  }
  const ofUser = limited(
    `user:${encodeName(leaf.user)}`,
    users.get(leaf.user)?.maxUserConnections ?? settings.maxUserConnections,
  );
  if (database === null) {
    // Connections to a database that is no more in the file count for their user until they are closed.
    return ofUser.length === 0 ? [] : [{ name: key, cap: 0 }, ...ofUser];
  }
  return [
    { name: key, cap: poolSizeFor(config, leaf.database, leaf.user) },
    ...limited(
      `db:${encodeName(leaf.database)}`,
      database.maxDbConnections ?? settings.maxDbConnections,
    ),
    ...ofUser,
  ];
}

/** 0 is no limit, here and in PgBouncer's settings of this kind. */
function limited(name: string, cap: number): AccountRule[] {
  return cap > 0 ? [{ name, cap }] : [];
}

/** One worker's part of a limit: the parts add up to it, but nobody's part is nothing. */
export function shareOf(cap: number, { index, count }: Part): number {
  return cap === 0 ? 0 : Math.max(1, Math.floor(cap / count) + (index < cap % count ? 1 : 0));
}
