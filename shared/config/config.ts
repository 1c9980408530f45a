// Loads a pgbouncer.ini and all it names into one frozen, typed `Config`, or into the list of everything
// that is wrong with it: there is no half-loaded configuration. Pure apart from the injected file reader.
// `Config` is plain data (structured clone carries it to another thread) and holds secrets in clear: it
// must never be logged as a whole.

import { createHash, scryptSync } from "node:crypto";
import { Buffer } from "node:buffer";
import { parseConnectionString } from "./connstr.ts";
import type { ReadFile } from "./files.ts";
import { readFromDisk, readText } from "./files.ts";
import type { IniEntry } from "./ini.ts";
import { readIni } from "./ini.ts";
import type { Problem } from "./problem.ts";
import type { EntryKey, Extra, Setting, Settings, Support } from "./settings.ts";
import {
  databaseKeys,
  defaultSettings,
  findSetting,
  settingKey,
  settingsTable,
  settingValue,
  userKeys,
} from "./settings.ts";
import { didYouMean } from "./suggest.ts";
import type { UserSecret } from "./userlist.ts";
import { MAX_USER_BYTES, parseUserlist } from "./userlist.ts";
import type { Kind, Value } from "./values.ts";
import { formatValue, parseValue } from "./values.ts";

export type PoolMode = Settings["poolMode"];

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
}

export interface Config {
  readonly path: string;
  readonly settings: Settings;
  readonly databases: ReadonlyMap<string, DatabaseConfig>;
  /** the `*` entry */
  readonly fallbackDatabase: DatabaseConfig | null;
  readonly users: ReadonlyMap<string, UserConfig>;
  readonly userlist: ReadonlyMap<string, UserSecret>;
  /** SHA-256, hex, equal for files that mean the same; tells nothing about single secrets */
  readonly hash: string;
}

export interface Loaded {
  /** null exactly when there are problems */
  readonly config: Config | null;
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
}

/** Name of the admin console's database. */
export const CONSOLE_DATABASE = "pgbouncer";
export const MAX_DATABASE_BYTES = 63;
/** sun_path of a unix socket address, without the closing zero */
const MAX_SOCKET_PATH_BYTES = 107;
const MAX_QUOTED_CHARACTERS = 120;
const SECTIONS: readonly string[] = ["pgbouncer", "pgweir", "databases", "users", "peers"];
const GROUP_SECTIONS: readonly string[] = ["groups", "group_rules"];
const STARTUP_KEYS: readonly string[] = [
  "client_encoding",
  "datestyle",
  "timezone",
  "application_name",
];

const byteLength = (text: string) => Buffer.byteLength(text);

function quoted(text: string): string {
  const long = text.length > MAX_QUOTED_CHARACTERS;
  return `"${long ? `${text.slice(0, MAX_QUOTED_CHARACTERS)}...` : text}"`;
}

interface Place {
  readonly file: string;
  readonly line: number;
}

interface Supported extends Extra {
  readonly kind: Kind;
  readonly support: Support;
  readonly default?: string;
}

function sameValue(a: Value, b: Value): boolean {
  return typeof a === "object" ? a.join() === String(b) : a === b;
}

/** Whether this version does what `value` says. */
function takesEffect(row: Supported, value: Value): boolean {
  if (row.support === "works") return true;
  const working = row.working ?? (row.default === undefined ? [] : [row.default]);
  return working.some((text) => {
    const parsed = parseValue(row.kind, text, row);
    return "value" in parsed && sameValue(parsed.value, value);
  });
}

class Loader {
  readonly problems: Problem[] = [];
  readonly warnings: Problem[] = [];
  readonly #path: string;
  readonly #readFile: ReadFile;
  readonly #settings = defaultSettings();
  readonly #places = new Map<string, Place>();
  readonly #databases = new Map<string, DatabaseConfig>();
  readonly #users = new Map<string, UserConfig>();
  #fallback: DatabaseConfig | null = null;

  constructor(path: string, readFile: ReadFile) {
    this.#path = path;
    this.#readFile = readFile;
  }

  load(): Config | null {
    const ini = readIni(this.#path, this.#readFile);
    this.problems.push(...ini.problems);
    for (const { name, file, line } of ini.sections) {
      if (SECTIONS.includes(name)) continue;
      const message = GROUP_SECTIONS.includes(name)
        ? `section [${name}]: this version has no resource groups`
        : `unknown section [${quoted(name).slice(1, -1)}]${didYouMean(name, SECTIONS)}`;
      this.#problem({ file, line }, message);
    }
    const peers = ini.sections.find(({ name }) => name === "peers");
    if (peers !== undefined) {
      this.#warn(peers, "section [peers] is not needed: workers find each other on the bus");
    }
    this.#checkDuplicates(ini.entries);
    const isMain = (section: string) => section === "pgbouncer" || section === "pgweir";
    if (ini.problems.length === 0 && !ini.sections.some(({ name }) => isMain(name))) {
      this.#problem({ file: this.#path, line: 0 }, "no section [pgbouncer]");
    }
    // Settings first: unix_socket_dir is the default host of the databases, wherever it stands.
    for (const entry of ini.entries) if (isMain(entry.section)) this.#readSetting(entry);
    for (const entry of ini.entries) {
      if (entry.section === "databases") this.#readDatabase(entry);
      if (entry.section === "users") this.#readUser(entry);
    }
    this.#checkDefaults();
    const userlist = this.#readUserlist();
    this.#checkTogether(userlist);
    if (this.problems.length > 0) return null;
    const parts = {
      path: this.#path,
      settings: Object.freeze(this.#settings),
      databases: this.#databases,
      fallbackDatabase: this.#fallback,
      users: this.#users,
      userlist,
    };
    return Object.freeze({ ...parts, hash: hashOf(parts) });
  }

  #problem(at: Place, message: string): void {
    this.problems.push({ file: at.file, line: at.line, message });
  }

  #warn(at: Place, message: string): void {
    this.warnings.push({ file: at.file, line: at.line, message });
  }

  /** Where a setting was written, or the file as a whole. */
  #placeOf(setting: string): Place {
    return this.#places.get(setting) ?? { file: this.#path, line: 0 };
  }

  #checkDuplicates(entries: readonly IniEntry[]): void {
    const seen = new Map<string, IniEntry>();
    for (const entry of entries) {
      const section = entry.section === "pgweir" ? "pgbouncer" : entry.section;
      const id = `${section}\n${entry.key}`;
      const earlier = seen.get(id);
      if (earlier !== undefined) {
        const where = earlier.file === entry.file ? "" : `${earlier.file}, `;
        this.#warn(
          entry,
          `${quoted(entry.key)} stood in ${where}line ${earlier.line} already, this line wins`,
        );
      }
      seen.set(id, entry);
    }
  }

  #readSetting(entry: IniEntry): void {
    const setting = findSetting(entry.key);
    if (setting === undefined) {
      const names = settingsTable.map(({ name }) => name);
      this.#problem(entry, `unknown setting ${quoted(entry.key)}${didYouMean(entry.key, names)}`);
      return;
    }
    this.#places.set(setting.name, entry);
    const parsed = parseValue(setting.kind, entry.value, setting);
    if ("wanted" in parsed) {
      this.#problem(entry, notWanted(setting.name, setting, entry.value, parsed.wanted));
      return;
    }
    this.#checkSupport(entry, setting.name, setting, entry.value, parsed.value);
    (this.#settings as Record<string, Value>)[settingKey(setting)] = parsed.value;
  }

  #checkSupport(at: Place, name: string, row: Supported, text: string, value: Value): void {
    if (takesEffect(row, value)) return;
    const what = row.secret ? name : `${name} = ${quoted(text)}`;
    if (row.support === "refused") {
      const instead = row.instead ?? "this version cannot do this: leave it out";
      this.#problem(at, `${what} is not supported: ${instead}`);
    } else {
      this.#warn(at, `${what} has no effect in this version`);
    }
  }

  /** A default that does not work must be written out by the operator, not assumed. */
  #checkDefaults(): void {
    for (const setting of settingsTable as readonly Setting[]) {
      if (this.#places.has(setting.name)) continue;
      if (takesEffect(setting, settingValue(this.#settings, setting))) continue;
      if (setting.support !== "refused") continue;
      this.#problem(
        this.#placeOf(setting.name),
        `${setting.name} is not set, its default "${setting.default}" is not supported: ${
          setting.instead ?? "set it"
        }`,
      );
    }
  }

  /** Values of one entry by key, or null when its text cannot be read at all. */
  #readPairs(entry: IniEntry, keys: readonly EntryKey[]): Map<string, Value> | null {
    const what = `${entry.section === "users" ? "user" : "database"} ${quoted(entry.key)}`;
    const parsed = parseConnectionString(entry.value);
    if ("failure" in parsed) {
      this.#problem(entry, `${what}: ${parsed.failure}`);
      return null;
    }
    const values = new Map<string, Value>();
    for (const { key, value: text } of parsed.pairs) {
      const row = keys.find(({ name }) => name === key);
      if (row === undefined) {
        const names = keys.map(({ name }) => name);
        this.#problem(entry, `${what}: unknown key ${quoted(key)}${didYouMean(key, names)}`);
        continue;
      }
      if (values.has(key)) this.#warn(entry, `${what}: ${key} stands twice, the last one wins`);
      const value = parseValue(row.kind, text, row);
      if ("wanted" in value) {
        this.#problem(entry, `${what}: ${notWanted(key, row, text, value.wanted)}`);
        continue;
      }
      this.#checkSupport(entry, `${what}: ${key}`, row, text, value.value);
      values.set(key, value.value);
    }
    return values;
  }

  #readDatabase(entry: IniEntry): void {
    const name = entry.key;
    if (name === CONSOLE_DATABASE) {
      this.#problem(entry, `database "${name}" is reserved for the admin console`);
      return;
    }
    if (byteLength(name) > MAX_DATABASE_BYTES) {
      const limit = `longer than ${MAX_DATABASE_BYTES} bytes`;
      this.#problem(entry, `database ${quoted(name)}: the name is ${limit}`);
      return;
    }
    const values = this.#readPairs(entry, databaseKeys);
    if (values === null) return;
    const value = <T>(key: string) => (values.get(key) ?? null) as T | null;
    const fallback = name === "*";
    const what = `database ${quoted(name)}`;
    const port = value<number>("port") ?? 5432;
    const startup: Record<string, string> = {};
    for (const key of STARTUP_KEYS) {
      const text = value<string>(key);
      if (text !== null) startup[key] = text;
    }
    const database: DatabaseConfig = Object.freeze({
      name,
      dbname: value<string>("dbname") ?? (fallback ? "" : name),
      hosts: this.#hosts(entry, what, value("host"), port),
      port,
      user: value<string>("user"),
      password: value<string>("password"),
      authUser: value<string>("auth_user"),
      authQuery: value<string>("auth_query"),
      authDbname: value<string>("auth_dbname"),
      poolSize: value<number>("pool_size"),
      minPoolSize: value<number>("min_pool_size"),
      reservePoolSize: value<number>("reserve_pool_size") ?? value<number>("reserve_pool"),
      poolMode: value<PoolMode>("pool_mode"),
      connectQuery: value<string>("connect_query"),
      loadBalanceHosts: value<"round-robin" | "disable">("load_balance_hosts") ?? "round-robin",
      maxDbConnections: value<number>("max_db_connections"),
      maxDbClientConnections: value<number>("max_db_client_connections"),
      serverLifetimeMs: value<number>("server_lifetime"),
      queryWaitTimeoutMs: value<number>("query_wait_timeout"),
      startupParameters: Object.freeze(startup),
    });
    if (this.#settings.authType === "any" && database.user === null) {
      this.#problem(entry, `${what}: auth_type = any needs a user = in every database`);
    }
    if (database.user !== null && byteLength(database.user) > MAX_USER_BYTES) {
      this.#problem(entry, `${what}: user is longer than ${MAX_USER_BYTES} bytes`);
    }
    if (fallback) this.#fallback = database;
    else this.#databases.set(name, database);
  }

  #hosts(
    entry: IniEntry,
    what: string,
    named: readonly string[] | null,
    port: number,
  ): readonly string[] {
    if (named !== null && named.length === 0) {
      this.#problem(entry, `${what}: host names no address`);
      return named;
    }
    if (named === null && this.#settings.unixSocketDir === "") {
      this.#problem(entry, `${what}: no host, and unix_socket_dir is empty`);
      return [];
    }
    const hosts = named ?? [this.#settings.unixSocketDir];
    for (const host of hosts) this.#checkSocketPath(entry, `${what}: host`, host, port);
    return Object.freeze(hosts);
  }

  #checkSocketPath(at: Place, what: string, host: string, port: number): void {
    if (!host.startsWith("/") && !host.startsWith("@")) return;
    if (byteLength(`${host}/.s.PGSQL.${port}`) > MAX_SOCKET_PATH_BYTES) {
      this.#problem(at, `${what} makes a socket path longer than ${MAX_SOCKET_PATH_BYTES} bytes`);
    }
  }

  #readUser(entry: IniEntry): void {
    const name = entry.key;
    if (byteLength(name) > MAX_USER_BYTES) {
      this.#problem(entry, `user ${quoted(name)}: the name is longer than ${MAX_USER_BYTES} bytes`);
      return;
    }
    const values = this.#readPairs(entry, userKeys);
    if (values === null) return;
    const number = (key: string) => (values.get(key) ?? null) as number | null;
    this.#users.set(
      name,
      Object.freeze({
        name,
        poolMode: (values.get("pool_mode") ?? null) as PoolMode | null,
        poolSize: number("pool_size"),
        reservePoolSize: number("reserve_pool_size"),
        maxUserConnections: number("max_user_connections"),
        maxUserClientConnections: number("max_user_client_connections"),
        queryTimeoutMs: number("query_timeout"),
        queryWaitTimeoutMs: number("query_wait_timeout"),
        idleTransactionTimeoutMs: number("idle_transaction_timeout"),
        transactionTimeoutMs: number("transaction_timeout"),
        clientIdleTimeoutMs: number("client_idle_timeout"),
      }),
    );
  }

  #readUserlist(): ReadonlyMap<string, UserSecret> {
    const path = this.#settings.authFile;
    if (path === "") return new Map();
    const read = readText(path, this.#readFile);
    if ("failure" in read) {
      this.#problem(this.#placeOf("auth_file"), `read auth_file ${quoted(path)}: ${read.failure}`);
      return new Map();
    }
    const list = parseUserlist(read.text, path);
    this.problems.push(...list.problems);
    this.warnings.push(...list.warnings);
    return list.users;
  }

  /** What only shows when the settings are seen side by side. */
  #checkTogether(userlist: ReadonlyMap<string, UserSecret>): void {
    const { listenAddr, listenPort, unixSocketDir, authType } = this.#settings;
    const whole: Place = { file: this.#path, line: 0 };
    if (listenAddr.length === 0 && unixSocketDir === "") {
      this.#problem(
        this.#placeOf("listen_addr"),
        "nothing to listen on: listen_addr and unix_socket_dir are both empty",
      );
    }
    this.#checkSocketPath(
      this.#placeOf("unix_socket_dir"),
      "unix_socket_dir",
      unixSocketDir,
      listenPort,
    );
    if (this.#settings.defaultPoolSize === 0) {
      this.#warn(
        this.#placeOf("default_pool_size"),
        "default_pool_size = 0: no server connection is opened, clients wait for ever",
      );
    }
    if (this.#databases.size === 0 && this.#fallback === null) {
      this.#warn(whole, "section [databases] names no database: nobody can connect");
    }
    if (authType !== "any" && userlist.size === 0) {
      this.#warn(
        this.#placeOf("auth_file"),
        `auth_type = ${authType} and no user in auth_file: nobody can log in`,
      );
    }
  }
}

function notWanted(name: string, row: Extra, text: string, wanted: string): string {
  const is = row.secret ? "its value" : quoted(text);
  const comment = /[ \t][;#]/.test(text) ? ", and comments have lines of their own" : "";
  return `${name}: ${is} is not ${wanted}${comment}`;
}

/**
 * Secrets go in through scrypt, all at once, salted with the rest: whoever sees the hash (it is
 * announced to the mesh) can neither read a secret from it nor try guesses quickly.
 */
function hashOf(config: Omit<Config, "hash">): string {
  const open: unknown[] = [];
  const secrets: string[] = [];
  for (const setting of settingsTable as readonly Setting[]) {
    const text = formatValue(setting.kind, settingValue(config.settings, setting));
    if (setting.secret) secrets.push(setting.name, text);
    else open.push([setting.name, text]);
  }
  const all = [...config.databases.values()];
  if (config.fallbackDatabase !== null) all.push(config.fallbackDatabase);
  for (const database of all.sort(byName)) {
    open.push([{ ...database, password: database.password !== null }]);
    if (database.password !== null) secrets.push(database.name, database.password);
  }
  for (const user of [...config.users.values()].sort(byName)) open.push([user]);
  const users = [...config.userlist.values()].map((user) => ({ ...user, name: user.user }));
  for (const { name, kind, secret } of users.sort(byName)) {
    open.push([name, kind]);
    if (secret !== "") secrets.push(name, secret);
  }
  const openText = JSON.stringify(open);
  const hash = createHash("sha256").update(openText);
  if (secrets.some((text) => text !== "")) {
    const digest = createHash("sha256").update(JSON.stringify(secrets)).digest();
    const salt = createHash("sha256").update(openText).digest();
    hash.update(scryptSync(digest, salt, 32));
  }
  return hash.digest("hex");
}

function byName(a: { readonly name: string }, b: { readonly name: string }): number {
  return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
}

/** Reads the file, its includes and its auth_file; reports every problem it can find, not the first. */
export function loadConfig(path: string, readFile: ReadFile = readFromDisk): Loaded {
  const loader = new Loader(path, readFile);
  const config = loader.load();
  return { config, problems: loader.problems, warnings: loader.warnings };
}

/**
 * The database a client asked for: its entry, or the `*` entry under that name, or null. The admin
 * console's database is no entry: null.
 */
export function lookupDatabase(config: Config, name: string): DatabaseConfig | null {
  const found = config.databases.get(name);
  if (found !== undefined) return found;
  const fallback = config.fallbackDatabase;
  if (fallback === null || name === "" || name === CONSOLE_DATABASE) return null;
  if (byteLength(name) > MAX_DATABASE_BYTES) return null;
  return Object.freeze({
    ...fallback,
    name,
    dbname: fallback.dbname === "" ? name : fallback.dbname,
  });
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
