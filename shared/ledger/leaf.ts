// The keys of leaves: what a worker can hold slots of. Names are percent-encoded, so that a key says
// exactly one thing whatever characters a name has, and a leaf has exactly one key.

/** Longer keys are malformed. */
export const LEAF_LENGTH_MAX = 1000;

export type Leaf =
  /** server connections of a database as a user (the one the server connections log in as) */
  | { readonly kind: "pool"; readonly database: string; readonly user: string }
  /** those beyond the size of its pool, for clients that have waited for long */
  | { readonly kind: "reserve"; readonly database: string; readonly user: string }
  /** those outside of its pool, which are one client's or one purpose's for as long as they last */
  | { readonly kind: "direct"; readonly database: string; readonly user: string }
  /** client connections: all of them, those to a database, those of a user */
  | { readonly kind: "clients" }
  | { readonly kind: "clients/db"; readonly database: string }
  | { readonly kind: "clients/user"; readonly user: string }
  /**
   * queries that a resource group runs, those of groups below it included: each holds a slot of its group and one of
   * every group above
   */
  | { readonly kind: "group"; readonly group: string }
  /** queries that wait for room in a resource group, or in a group below it */
  | { readonly kind: "queue"; readonly group: string };

/** A leaf of server connections: PostgreSQL shows them, and they may outlive their worker. */
export type ServerLeaf = Extract<Leaf, { readonly user: string; readonly database: string }>;

export const clientsLeaf = "clients";
const direct = "direct:";
const groups = "group:";
const queues = "queue:";

export function poolLeaf(database: string, user: string): string {
  return `pool:${encodeName(database)}/${encodeName(user)}`;
}

export function reserveLeaf(database: string, user: string): string {
  return `reserve:${encodeName(database)}/${encodeName(user)}`;
}

export function directLeaf(database: string, user: string): string {
  return `${direct}${encodeName(database)}/${encodeName(user)}`;
}

export function clientsDbLeaf(database: string): string {
  return `clients/db:${encodeName(database)}`;
}

export function clientsUserLeaf(user: string): string {
  return `clients/user:${encodeName(user)}`;
}

export function groupLeaf(group: string): string {
  return `${groups}${encodeName(group)}`;
}

export function queueLeaf(group: string): string {
  return `${queues}${encodeName(group)}`;
}

/** What a key says; null when it is malformed, or another spelling of a leaf that has a key. */
export function parseLeaf(key: string): Leaf | null {
  if (key.length > LEAF_LENGTH_MAX) return null;
  if (key === clientsLeaf) return { kind: "clients" };
  const [, kind, first, second] =
    /^(pool|reserve|direct|clients\/db|clients\/user|group|queue):([^/]+)(?:\/([^/]+))?$/
      .exec(key) ?? [];
  if (kind === undefined) return null;
  const isOfGroup = kind === "group" || kind === "queue";
  const isOfServers = !isOfGroup && !kind.startsWith("clients");
  if (isOfServers !== (second !== undefined)) return null;
  const name = decodeName(first!);
  if (name === null) return null;
  if (kind === "clients/db") return { kind, database: name };
  if (kind === "clients/user") return { kind, user: name };
  if (isOfGroup) return { kind, group: name };
  const user = decodeName(second!);
  return user === null ? null : { kind: kind as ServerLeaf["kind"], database: name, user };
}

/** As `parseLeaf`; null for leaves of anything else as well. */
export function parseServerLeaf(key: string): ServerLeaf | null {
  const leaf = parseLeaf(key);
  return leaf !== null && "database" in leaf && "user" in leaf ? leaf : null;
}

/**
 * What its slots are. What PostgreSQL shows of a worker are server connections, and queries run on some of them; who
 * waits in a queue is a client, that is gone with its worker.
 */
export function slotsOf(key: string): "servers" | "clients" | "queries" {
  if (key.startsWith(groups)) return "queries";
  return key.startsWith(clientsLeaf) || key.startsWith(queues) ? "clients" : "servers";
}

/** Its limit is a group's, and of nothing else. */
export function isOfGroup(key: string): boolean {
  return key.startsWith(groups) || key.startsWith(queues);
}

/** What is held of it is never taken away: nobody is disconnected to make room. */
export function isSticky(key: string): boolean {
  return slotsOf(key) === "clients" || key.startsWith(direct);
}

/** A name as it stands in a key. */
export function encodeName(name: string): string {
  return encodeURIComponent(name.toWellFormed());
}

function decodeName(text: string): string | null {
  try {
    const name = decodeURIComponent(text);
    return encodeName(name) === text ? name : null;
  } catch {
    return null;
  }
}
