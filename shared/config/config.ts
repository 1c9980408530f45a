// The typed configuration: what a loaded file amounts to, the look-ups the pooler makes in it, and its
// hash. Plain data (structured clone carries it to another thread), and it holds secrets in clear: it
// must never be logged as a whole. How it comes to be is in load.ts.

import { createHash, scryptSync } from "node:crypto";
import { Buffer } from "node:buffer";
import type { HbaRule, IdentMaps } from "./hba.ts";
import type { LdapOptions } from "./ldap.ts";
import type { OverloadBounds } from "./overload_bounds.ts";
import type { Setting, Settings } from "./settings.ts";
import { settingsTable, settingValue } from "./settings.ts";
import type { UserSecret } from "./userlist.ts";
import { secretsOf } from "./userlist.ts";
import { formatValue } from "./values.ts";

export type PoolMode = Settings["poolMode"];
/** Whether new work is refused on overload. */
export type Shed = "normal" | "never";

export interface DatabaseConfig {
  /** what clients ask for; "*" in `Config.fallbackDatabase` */
  readonly name: string;
  /** database on the server; "" in `Config.fallbackDatabase` when the entry names none */
  readonly dbname: string;
  /** never empty: names, numeric addresses, "/dir" of a unix socket, "@name" of an abstract one */
  readonly hosts: readonly string[];
  readonly port: number;
  /** forced user of all server connections, or null: the client's */
  readonly user: string | null;
  readonly password: string | null;
  readonly authUser: string | null;
  readonly authQuery: string | null;
  readonly authDbname: string | null;
  readonly poolSize: number | null;
  readonly minPoolSize: number | null;
  readonly reservePoolSize: number | null;
  readonly poolMode: PoolMode | null;
  readonly connectQuery: string | null;
  readonly loadBalanceHosts: "round-robin" | "disable";
  readonly maxDbConnections: number | null;
  readonly maxDbClientConnections: number | null;
  readonly serverLifetimeMs: number | null;
  readonly queryWaitTimeoutMs: number | null;
  readonly warnSessionFeatures: Settings["warnSessionFeatures"] | null;
  /** of its own; null: none */
  readonly bounds: OverloadBounds | null;
  readonly shed: Shed | null;
  /** client_encoding, datestyle, timezone, application_name as far as the entry names them */
  readonly startupParameters: Readonly<Record<string, string>>;
}

export interface UserConfig {
  readonly name: string;
  readonly poolMode: PoolMode | null;
  readonly poolSize: number | null;
  readonly reservePoolSize: number | null;
  readonly maxUserConnections: number | null;
  readonly maxUserClientConnections: number | null;
  readonly queryTimeoutMs: number | null;
  readonly queryWaitTimeoutMs: number | null;
  readonly idleTransactionTimeoutMs: number | null;
  readonly transactionTimeoutMs: number | null;
  readonly clientIdleTimeoutMs: number | null;
  readonly shed: Shed | null;
}

/** Of a group that says nothing, and of what is in none. */
export const defaultCpuShares = 1024;

/** A resource group: how much of PostgreSQL its queries may have. 0 is no limit, but where it says otherwise. */
export interface GroupConfig {
  readonly name: string;
  /** its limits hold for this group too; null: none */
  readonly parent: string | null;
  /** that run at once, those of groups below included */
  readonly maxConcurrentQueries: number;
  /** that wait at once, those of groups below included */
  readonly maxQueued: number;
  /** off: what has no room is refused at once */
  readonly queueing: boolean;
  readonly queueTimeoutMs: number;
  /** bytes in use from which new queries wait */
  readonly softMaxMemory: number;
  /** bytes a query is counted with until something is known of the group's queries; 0: nothing */
  readonly minQueryMemory: number;
  /** share of the CPU, and of the slots of the parent, in proportion to its siblings */
  readonly cpuShares: number;
  /** among its siblings; larger goes first */
  readonly priority: number;
  /** never: its queries are not refused when the host is overloaded */
  readonly shed: Shed;
  /** of its own; null: none */
  readonly bounds: OverloadBounds | null;
}

export type GroupConditionKey = typeof groupConditionKeys[number];
export const groupConditionKeys = [
  "user",
  "database",
  "application_name",
  "client_addr",
  "tag",
] as const;

export interface GroupCondition {
  readonly key: GroupConditionKey;
  /** a text it is equal to; a pattern; of client_addr a network, an address or "unix" */
  readonly value: string;
  readonly isPattern: boolean;
}

/** Which group a query is in: of rules whose conditions all hold, the first decides. */
export interface GroupRule {
  readonly name: string;
  readonly conditions: readonly GroupCondition[];
  readonly group: string;
}

export interface Config {
  readonly path: string;
  readonly settings: Settings;
  readonly databases: ReadonlyMap<string, DatabaseConfig>;
  /** the `*` entry */
  readonly fallbackDatabase: DatabaseConfig | null;
  readonly users: ReadonlyMap<string, UserConfig>;
  readonly userlist: ReadonlyMap<string, UserSecret>;
  /** with auth_type = hba; the first that matches a client decides */
  readonly hba: readonly HbaRule[];
  /** maps of the auth_ident_file, by name */
  readonly identMaps: IdentMaps;
  readonly groups: readonly GroupConfig[];
  /** the first that matches a query decides its group; else the setting unmatched_group */
  readonly groupRules: readonly GroupRule[];
  /** what auth_ldap_options says, with auth_type = ldap */
  readonly ldap: LdapOptions | null;
  /** SHA-256, hex, equal for files that mean the same; tells nothing about single secrets */
  readonly hash: string;
}

/** Name of the admin console's database. */
export const CONSOLE_DATABASE = "pgbouncer";
export const MAX_DATABASE_BYTES = 63;

/**
 * The database a client asked for: its entry, or the `*` entry under that name, or null. The admin
 * console's database is no entry: null.
 */
export function lookupDatabase(config: Config, name: string): DatabaseConfig | null {
  const found = config.databases.get(name);
  if (found !== undefined) return found;
  const fallback = config.fallbackDatabase;
  if (fallback === null || name === "" || name === CONSOLE_DATABASE) return null;
  if (Buffer.byteLength(name) > MAX_DATABASE_BYTES) return null;
  return Object.freeze({
    ...fallback,
    name,
    dbname: fallback.dbname === "" ? name : fallback.dbname,
  });
}

/** Which entry of [databases] a database has, its own or the `*` one; its name where it has none. */
export function entryNameOf({ databases, fallbackDatabase }: Config, database: string): string {
  return fallbackDatabase === null || databases.has(database) ? database : "*";
}

/**
 * Server connections of one (database, user) pool: the user's pool_size, else the database's, else
 * default_pool_size. `user` is the user the server connections log in as.
 */
export function poolSizeFor(config: Config, database: string, user: string): number {
  return config.users.get(user)?.poolSize ??
    lookupDatabase(config, database)?.poolSize ??
    config.settings.defaultPoolSize;
}

/** Server connections beyond the size of the pool, for clients that have waited for long. */
export function reservePoolSizeFor(config: Config, database: string, user: string): number {
  return config.users.get(user)?.reservePoolSize ??
    lookupDatabase(config, database)?.reservePoolSize ??
    config.settings.reservePoolSize;
}

/** Server connections that a pool keeps open while it is in use: never more than it may have. */
export function minPoolSizeFor(config: Config, database: DatabaseConfig, user: string): number {
  const minimum = database.minPoolSize ?? config.settings.minPoolSize;
  return Math.min(minimum, poolSizeFor(config, database.name, user));
}

/** How a client's server connections are given back: by its user, else the database, else the setting. */
export function poolModeFor(
  config: Config,
  database: DatabaseConfig,
  clientUser: string,
): PoolMode {
  return config.users.get(clientUser)?.poolMode ?? database.poolMode ?? config.settings.poolMode;
}

/**
 * Secrets go in through scrypt, all at once, salted with the rest: whoever sees the hash (it is
 * announced to the mesh) can neither read a secret from it nor try guesses quickly.
 */
export function hashOf(config: Omit<Config, "hash">): string {
  const open: unknown[] = [];
  const secrets: string[] = [];
  for (const setting of settingsTable as readonly Setting[]) {
    const text = formatValue(setting.kind, settingValue(config.settings, setting));
    if (!setting.secret) open.push([setting.name, text]);
    else if (text !== "") secrets.push(setting.name, text);
  }
  const all = [...config.databases.values()];
  if (config.fallbackDatabase !== null) all.push(config.fallbackDatabase);
  for (const database of all.sort(byName)) {
    open.push([{ ...database, password: database.password !== null }]);
    if (database.password !== null) secrets.push(database.name, database.password);
  }
  for (const user of [...config.users.values()].sort(byName)) open.push([user]);
  const plain = (key: keyof LdapOptions | string, value: unknown) => {
    if (key === "bindPassword" satisfies keyof LdapOptions) return value !== "";
    return value instanceof Set ? [...value] : value;
  };
  open.push(JSON.stringify(config.hba, plain), [...config.identMaps]);
  open.push([config.groups, config.groupRules]);
  for (const { line, ldap } of config.hba) {
    if (ldap !== null && ldap.bindPassword !== "") secrets.push(`${line}`, ldap.bindPassword);
  }
  const users = [...config.userlist.values()].flatMap(secretsOf)
    .map((user) => ({ ...user, name: user.user }));
  for (const { name, kind, secret } of users.sort(byName)) {
    open.push([name, kind]);
    if (secret !== "") secrets.push(name, secret);
  }
  const openText = JSON.stringify(open);
  const hash = createHash("sha256").update(openText);
  if (secrets.length > 0) {
    const digest = createHash("sha256").update(JSON.stringify(secrets)).digest();
    const salt = createHash("sha256").update(openText).digest();
    hash.update(scryptSync(digest, salt, 32));
  }
  return hash.digest("hex");
}

function byName(a: { readonly name: string }, b: { readonly name: string }): number {
  return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
}
