// Which accounts a leaf is charged to, and how large they are, by the configuration. Pure look-ups;
// the sums are kept elsewhere.

import type { Config } from "../config/mod.ts";
import { lookupDatabase, poolSizeFor, reservePoolSizeFor } from "../config/mod.ts";
import type { Leaf } from "./leaf.ts";
import { encodeName, isSticky, parseLeaf } from "./leaf.ts";

export interface AccountRule {
  readonly name: string;
  readonly cap: number;
}

export interface LeafRule {
  /** one slot of the leaf is charged to each of them; none: nothing limits it */
  readonly accounts: readonly AccountRule[];
  /** what is held is never taken away: nobody is disconnected to make room */
  readonly sticky: boolean;
}

/** The rule of a leaf by its key; null: there is no such leaf, and nothing may be had of it. */
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
    const limits = leaf === null ? null : limitsOf(config, key, leaf);
    if (limits === null) return null;
    const accounts = limits.map(({ name, cap }) => ({ name, cap: shareOf(cap, part) }));
    return { accounts, sticky: isSticky(key) };
  };
}

function limitsOf(config: Config, key: string, leaf: Leaf): AccountRule[] | null {
  const { settings, users } = config;
  if (leaf.kind === "clients") {
    // Other than the limits below, 0 lets nobody in.
    return settings.maxClientConn > 0 ? [{ name: key, cap: settings.maxClientConn }] : null;
  }
  if (leaf.kind === "clients/user") {
    const own = users.get(leaf.user)?.maxUserClientConnections;
    return limited(key, own ?? settings.maxUserClientConnections);
  }
  if (leaf.kind === "group" || leaf.kind === "queue") {
    const group = config.groups.find(({ name }) => name === leaf.group);
    if (group === undefined) return null;
    return limited(key, leaf.kind === "group" ? group.maxConcurrentQueries : group.maxQueued);
  }
  const database = lookupDatabase(config, leaf.database);
  if (leaf.kind === "clients/db") {
    if (database === null) return null;
    return limited(key, database.maxDbClientConnections ?? settings.maxDbClientConnections);
  }
  const ofUser = limited(
    `user:${encodeName(leaf.user)}`,
    users.get(leaf.user)?.maxUserConnections ?? settings.maxUserConnections,
  );
  if (database === null) {
    // Connections to a database that is no more in the file count for their user until they are closed.
    return ofUser.length === 0 ? null : [{ name: key, cap: 0 }, ...ofUser];
  }
  const ofDatabase = limited(
    `db:${encodeName(leaf.database)}`,
    database.maxDbConnections ?? settings.maxDbConnections,
  );
  if (leaf.kind === "direct") return [...ofDatabase, ...ofUser];
  const sizeFor = leaf.kind === "pool" ? poolSizeFor : reservePoolSizeFor;
  const cap = sizeFor(config, leaf.database, leaf.user);
  return [{ name: key, cap }, ...ofDatabase, ...ofUser];
}

/** 0 is no limit, here and in PgBouncer's settings of this kind. */
function limited(name: string, cap: number): AccountRule[] {
  return cap > 0 ? [{ name, cap }] : [];
}

/** One worker's part of a limit: the parts add up to it, but nobody's part is nothing. */
export function shareOf(cap: number, { index, count }: Part): number {
  return cap === 0 ? 0 : Math.max(1, Math.floor(cap / count) + (index < cap % count ? 1 : 0));
}
