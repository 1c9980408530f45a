// Loads a pgbouncer.ini and all it names into one frozen, typed `Config`, or into the list of everything
// that is wrong with it: there is no half-loaded configuration. Pure apart from the injected file reader.

import { Buffer } from "node:buffer";
import { parseBudgetAuth } from "./budget_auth.ts";
import type { Config, DatabaseConfig, PoolMode, Shed, UserConfig } from "./config.ts";
import { CONSOLE_DATABASE, hashOf, MAX_DATABASE_BYTES } from "./config.ts";
import { parseConnectionString } from "./connstr.ts";
import type { ReadFile } from "./files.ts";
import { readFromDisk, readText } from "./files.ts";
import { GroupsReader } from "./groups.ts";
import type { HbaRule, IdentMaps } from "./hba.ts";
import { parseHba, parseIdent } from "./hba.ts";
import { type LdapOptions, parseLdapOptions } from "./ldap.ts";
import type { Ini, IniEntry, IniSection } from "./ini.ts";
import { readIni } from "./ini.ts";
import { mayBeHost } from "./network.ts";
import { checkBounds, readBounds } from "./overload_bounds.ts";
import type { Place, Problem } from "./problem.ts";
import { Findings, quote, shown } from "./problem.ts";
import type { EntryKey, Extra, Setting, SettingName, Settings, Support } from "./settings.ts";
import {
  databaseKeys,
  defaultSettings,
  findSetting,
  groupKeys,
  peerKeys,
  settingKey,
  settingsTable,
  settingValue,
  userKeys,
} from "./settings.ts";
import { didYouMean } from "./suggest.ts";
import type { UserSecret } from "./userlist.ts";
import { tlsProblems } from "./tls.ts";
import { MAX_USER_BYTES, parseUserlist } from "./userlist.ts";
import type { Kind, Value } from "./values.ts";
import { parseValue } from "./values.ts";

/** Settings that were given otherwise than by the file, and win over it. */
export type SetValues = readonly (readonly [key: string, value: string])[];

export interface Loaded {
  /** null exactly when there are problems */
  readonly config: Config | null;
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
}

/** What was read, also where it has problems: for whoever looks further. */
export interface LoadedFile extends Loaded {
  /** Settings with problems have their defaults; null: the file could not be read. */
  readonly settings: Settings | null;
  /** Where a setting was written, or the file as a whole. */
  placeOf(setting: string): Place;
}

/** Of an entry in [peers]. */
const MAX_PEER_ID = 65_535;
/** sun_path of a unix socket address, without the closing zero */
const MAX_SOCKET_PATH_BYTES = 107;
const GROUP_SECTIONS: readonly string[] = ["groups", "group_rules"];
const SECTIONS: readonly string[] = [
  "pgbouncer",
  "pgweir",
  "databases",
  "users",
  "peers",
  ...GROUP_SECTIONS,
];
/** What an entry of a section is called, and a key of it. */
const ENTRIES: Readonly<Record<string, readonly [what: string, key: string]>> = {
  databases: ["database", "connection parameter"],
  users: ["user", "user parameter"],
  peers: ["peer", "peer parameter"],
  groups: ["group", "group parameter"],
};
/** What has less of an effect than its name says without a monitor on the database host. */
const PARTLY = [
  ["cpu_shares", "divides slots only, not CPU"],
  ["soft_max_memory", "goes by estimates"],
] as const;
const STARTUP_KEYS: readonly string[] = [
  "client_encoding",
  "datestyle",
  "timezone",
  "application_name",
];

const byteLength = (text: string) => Buffer.byteLength(text);

interface Supported extends Extra {
  readonly kind: Kind;
  readonly support: Support;
  readonly default?: string;
}

function isMain(section: string): boolean {
  return section === "pgbouncer" || section === "pgweir";
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
  readonly problems = new Findings();
  readonly warnings = new Findings();
  readonly #path: string;
  readonly #readFile: ReadFile;
  readonly #set: readonly IniEntry[];
  readonly #withUsers: boolean;
  readonly #settings = defaultSettings();
  /** the line of each setting that wins; the default holds where there is none */
  readonly #written = new Map<string, IniEntry>();
  readonly #databases = new Map<string, DatabaseConfig>();
  /** where they were written, `*` included */
  readonly #entries = new Map<string, IniEntry>();
  readonly #users = new Map<string, UserConfig>();
  #isRead = false;
  #fallback: DatabaseConfig | null = null;
  #hba: readonly HbaRule[] = [];
  #identMaps: IdentMaps = new Map();
  #ldap: LdapOptions | null = null;

  constructor(path: string, readFile: ReadFile, set: SetValues, withUsers: boolean) {
    this.#path = path;
    this.#readFile = readFile;
    this.#withUsers = withUsers;
    this.#set = set.map(([key, value]) => {
      return { section: "pgbouncer", key, value, file: "SET", line: 0 };
    });
  }

  load(): Config | null {
    const ini = readIni(this.#path, this.#readFile);
    for (const problem of ini.problems) this.#problem(problem, problem.message);
    // A file that cannot be read is not judged.
    if (ini.entries.length === 0 && ini.problems[0]?.line === 0) return null;
    this.#isRead = true;
    this.#checkSections(ini);
    this.#checkDuplicates(ini.entries);
    // Settings first: unix_socket_dir is the default host of the databases, wherever it stands.
    for (const entry of [...ini.entries, ...this.#set]) {
      if (isMain(entry.section)) this.#readSetting(entry);
    }
    this.#checkSettings();
    const groups = new GroupsReader(this.problems, this.warnings);
    const groupsAt = new Map<string, IniEntry>();
    for (const entry of ini.entries) {
      if (entry.section === "databases") this.#readDatabase(entry);
      if (entry.section === "users") this.#readUser(entry);
      if (entry.section === "peers") this.#checkPeer(entry);
      if (entry.section === "group_rules") groups.addRule(entry);
      if (entry.section !== "groups") continue;
      const values = this.#readPairs(entry, groupKeys);
      if (values === null) continue;
      for (const [key, effect] of PARTLY) {
        if (!values.has(key) || this.#settings.busUrl.length > 0) continue;
        this.#warn(
          entry,
          `group ${
            quote(entry.key)
          }: ${key} ${effect} without bus_url, by which a monitor on the database host is heard`,
        );
      }
      groups.addGroup(entry, values);
      groupsAt.set(entry.key, entry);
    }
    const unmatchedAt = this.placeOf("unmatched_group");
    const sections = groups.finish(this.#settings.unmatchedGroup, unmatchedAt);
    const userlist = this.#withUsers ? this.#readUserlist() : new Map();
    if (this.#withUsers && this.#settings.authType === "hba") this.#readHba();
    if (this.#withUsers && this.#settings.authType === "ldap") this.#readLdapOptions();
    this.#checkTogether(userlist);
    if (!ini.entries.some(({ section }) => section === "databases")) {
      this.#warn(
        { file: this.#path, line: 0 },
        "section [databases] names no database: nobody can connect",
      );
    }
    if (this.problems.count > 0 || userlist === null) return null;
    const parts = {
      path: this.#path,
      settings: Object.freeze(this.#settings),
      databases: this.#databases,
      fallbackDatabase: this.#fallback,
      users: this.#users,
      userlist,
      hba: this.#hba,
      identMaps: this.#identMaps,
      groups: sections.groups,
      groupRules: sections.rules,
      ldap: this.#ldap,
    };
    checkBounds(parts, this.warnings, (section, key) => {
      const entries = section === "databases" ? this.#entries : groupsAt;
      return entries.get(key) ?? this.placeOf(key);
    });
    return Object.freeze({ ...parts, hash: hashOf(parts) });
  }

  #problem(at: Place, message: string): void {
    this.problems.add(at, message);
  }

  #warn(at: Place, message: string): void {
    this.warnings.add(at, message);
  }

  /** Where a setting was written, or the file as a whole. */
  placeOf(setting: string): Place {
    const { file, line } = this.#written.get(setting) ?? { file: this.#path, line: 0 };
    return { file, line };
  }

  get settings(): Settings | null {
    return this.#isRead ? this.#settings : null;
  }

  #checkSections(ini: Ini): void {
    let main: IniSection | undefined;
    for (const section of ini.sections) {
      const { name } = section;
      if (name === "peers") {
        this.#warn(section, "section [peers] is not needed: workers find each other on the bus");
      } else if (!SECTIONS.includes(name)) {
        this.#problem(section, `invalid section ${quote(name)}${didYouMean(name, SECTIONS)}`);
      } else if (name === "pgbouncer" && main?.name === name) {
        this.#warn(
          section,
          `section [${name}] was opened in line ${main.line} already: the settings there stay, ` +
            "PgBouncer would put them back to their defaults",
        );
      }
      if (isMain(name)) main ??= section;
    }
    if (main === undefined && ini.problems.length === 0) {
      this.#problem({ file: this.#path, line: 0 }, "no section [pgbouncer]");
    }
  }

  #checkDuplicates(entries: readonly IniEntry[]): void {
    const seen = new Map<string, IniEntry>();
    for (const entry of entries) {
      // Two of them are a mistake of its own: their order counts.
      if (entry.section === "group_rules") continue;
      const section = entry.section === "pgweir" ? "pgbouncer" : entry.section;
      const id = `${section}\n${entry.key}`;
      const earlier = seen.get(id);
      if (earlier !== undefined) {
        const where = earlier.file === entry.file ? "" : `${earlier.file}, `;
        this.#warn(
          entry,
          `${quote(entry.key)} stood in ${where}line ${earlier.line} already, this line wins`,
        );
      }
      seen.set(id, entry);
    }
  }

  #readSetting(entry: IniEntry): void {
    const setting = findSetting(entry.key);
    if (setting === undefined) {
      const names = settingsTable.map(({ name }) => name);
      const what = `unknown parameter: ${entry.section}/${shown(entry.key)}`;
      this.#problem(entry, `${what}${didYouMean(entry.key, names)}`);
      return;
    }
    this.#written.set(setting.name, entry);
    const parsed = parseValue(setting.kind, entry.value, setting);
    if ("wanted" in parsed) {
      this.#problem(entry, notWanted(setting.name, setting, entry.value, parsed.wanted));
      return;
    }
    (this.#settings as Record<string, Value>)[settingKey(setting)] = parsed.value;
  }

  #checkSupport(at: Place, name: string, row: Supported, text: string, value: Value): void {
    if (takesEffect(row, value)) return;
    const what = row.secret ? name : `${name} = ${quote(text)}`;
    if (row.support === "refused") {
      const instead = row.instead ?? "this version cannot do this: leave it out";
      this.#problem(at, `${what} is not supported: ${instead}`);
    } else {
      this.#warn(
        at,
        `${what} has no effect${row.instead ? `: ${row.instead}` : " in this version"}`,
      );
    }
  }

  /** Judges the values that won. A default that does not work must be written out, not assumed. */
  #checkSettings(): void {
    for (const setting of settingsTable as readonly Setting[]) {
      const value = settingValue(this.#settings, setting);
      const entry = this.#written.get(setting.name);
      if (entry !== undefined) {
        const valid = "value" in parseValue(setting.kind, entry.value, setting);
        if (valid) this.#checkSupport(entry, setting.name, setting, entry.value, value);
      } else if (!takesEffect(setting, value)) {
        const is = `${setting.name} is not set, its default ${quote(setting.default)}`;
        this.#problem(
          this.placeOf(setting.name),
          `${is} is not supported: ${setting.instead ?? "set it"}`,
        );
      }
    }
  }

  /** Values of one entry by key, or null when its text cannot be read at all. */
  #readPairs(entry: IniEntry, keys: readonly EntryKey[]): Map<string, Value> | null {
    const [kind, parameter] = ENTRIES[entry.section]!;
    const what = `${kind} ${quote(entry.key)}`;
    const parsed = parseConnectionString(entry.value);
    if ("failure" in parsed) {
      this.#problem(entry, `${what}: ${parsed.failure}`);
      return null;
    }
    const values = new Map<string, Value>();
    let previous: EntryKey | undefined;
    for (const { key, value: text } of parsed.pairs) {
      const row = keys.find(({ name }) => name === key);
      if (row === undefined) {
        // After a secret with a blank and no quotes, the "key" is the rest of the secret.
        const unknown = previous?.secret
          ? `unrecognized ${parameter} after ${previous.name}, a value with blanks needs single quotes`
          : `unrecognized ${parameter}: ${shown(key)}${
            didYouMean(key, keys.map(({ name }) => name))
          }`;
        this.#problem(entry, `${what}: ${unknown}`);
        continue;
      }
      previous = row;
      if (values.has(key)) this.#warn(entry, `${what}: ${key} stands twice, the last one wins`);
      const value = parseValue(row.kind, text, row);
      if ("wanted" in value) {
        this.#problem(entry, `${what}: ${notWanted(key, row, text, value.wanted)}`);
        continue;
      }
      this.#checkSupport(entry, `${what}: ${key}`, row, text, value.value);
      if (row.overrides !== undefined && value.value === -1) values.delete(key);
      else values.set(key, value.value);
    }
    return values;
  }

  #readDatabase(entry: IniEntry): void {
    const name = entry.key;
    if (name === CONSOLE_DATABASE) {
      this.#problem(entry, `database name "${name}" is reserved for the admin console`);
      return;
    }
    if (byteLength(name) > MAX_DATABASE_BYTES) {
      const limit = `longer than ${MAX_DATABASE_BYTES} bytes`;
      this.#problem(entry, `database ${quote(name)}: the name is ${limit}`);
      return;
    }
    const values = this.#readPairs(entry, databaseKeys);
    if (values === null) return;
    const value = <T>(key: string) => (values.get(key) ?? null) as T | null;
    const fallback = name === "*";
    const what = `database ${quote(name)}`;
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
      warnSessionFeatures: value<Settings["warnSessionFeatures"]>("warn_session_features"),
      bounds: readBounds(values),
      shed: value<Shed>("shed"),
      startupParameters: Object.freeze(startup),
    });
    if (this.#settings.authType === "any" && database.user === null) {
      this.#problem(entry, `${what}: auth_type = any needs a user = in every database`);
    }
    if (database.user !== null && byteLength(database.user) > MAX_USER_BYTES) {
      this.#problem(entry, `${what}: user is longer than ${MAX_USER_BYTES} bytes`);
    }
    this.#entries.set(name, entry);
    if (fallback) this.#fallback = database;
    else this.#databases.set(name, database);
  }

  #hosts(
    entry: IniEntry,
    what: string,
    named: readonly string[] | null,
    port: number,
  ): readonly string[] {
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
      this.#problem(entry, `user ${quote(name)}: the name is longer than ${MAX_USER_BYTES} bytes`);
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
        shed: (values.get("shed") ?? null) as Shed | null,
      }),
    );
  }

  /** Nothing comes of it, but a file that is wrong for PgBouncer is so here. */
  #checkPeer(entry: IniEntry): void {
    const values = this.#readPairs(entry, peerKeys);
    const id = /^[0-9]{1,5}$/.test(entry.key) ? Number(entry.key) : 0;
    if (id < 1 || id > MAX_PEER_ID) {
      const wanted = `a whole number from 1 to ${MAX_PEER_ID}`;
      this.#problem(entry, `peer ${quote(entry.key)}: its id is not ${wanted}`);
    }
    if (values !== null && !values.has("host")) {
      this.#problem(entry, `peer ${quote(entry.key)}: it has no host`);
    }
  }

  /** null: it could not be read. */
  #readUserlist(): ReadonlyMap<string, UserSecret> | null {
    const path = this.#settings.authFile;
    if (path === "") return new Map();
    const text = this.#textOf("auth_file", path);
    if (text === null) return null;
    const list = parseUserlist(text, path, this.#settings.authSeveralSecrets);
    for (const problem of list.problems) this.#problem(problem, problem.message);
    for (const warning of list.warnings) this.#warn(warning, warning.message);
    return list.users;
  }

  /** Text of a file that a setting names; null: it could not be read. */
  #textOf(setting: SettingName, path: string): string | null {
    const read = readText(path, this.#readFile);
    if ("text" in read) return read.text;
    this.#problem(this.placeOf(setting), `read ${setting} ${quote(path)}: ${read.failure}`);
    return null;
  }

  #readHba(): void {
    const { authHbaFile, authIdentFile } = this.#settings;
    if (authHbaFile === "") {
      this.#problem(this.placeOf("auth_type"), "auth_type = hba needs an auth_hba_file");
      return;
    }
    if (authIdentFile !== "") {
      const text = this.#textOf("auth_ident_file", authIdentFile);
      if (text === null) return;
      const ident = parseIdent(text, authIdentFile);
      for (const problem of ident.problems) this.#problem(problem, problem.message);
      this.#identMaps = ident.maps;
    }
    const text = this.#textOf("auth_hba_file", authHbaFile);
    if (text === null) return;
    const { rules, problems, warnings } = parseHba(text, authHbaFile, this.#readFile);
    for (const problem of problems) this.#problem(problem, problem.message);
    for (const warning of warnings) this.#warn(warning, warning.message);
    for (const { line, map } of rules) {
      if (map === null || this.#identMaps.has(map)) continue;
      this.#problem({ file: authHbaFile, line }, `map ${quote(map)} is not in auth_ident_file`);
    }
    if (rules.length === 0 && problems.length === 0) {
      this.#warn({ file: authHbaFile, line: 0 }, "auth_hba_file has no rule: nobody can log in");
    }
    this.#hba = Object.freeze(rules);
  }

  #readLdapOptions(): void {
    const { authLdapOptions } = this.#settings;
    if (authLdapOptions === "") {
      this.#problem(this.placeOf("auth_type"), "auth_type = ldap needs auth_ldap_options");
      return;
    }
    const read = parseLdapOptions(authLdapOptions);
    if ("failure" in read) {
      this.#problem(this.placeOf("auth_ldap_options"), `auth_ldap_options: ${read.failure}`);
    } else {
      this.#ldap = read;
    }
  }

  /** Whether some clients prove who they are to somebody else, who knows users that auth_file need not have. */
  get #asksOthers(): boolean {
    const { authType } = this.#settings;
    if (authType !== "hba") return authType === "ldap" || authType === "pam";
    return this.#hba.some(({ method }) => method === "ldap" || method === "pam");
  }

  /** What only shows when the settings are seen side by side. */
  #checkTogether(userlist: ReadonlyMap<string, UserSecret> | null): void {
    const { listenAddr, listenPort, unixSocketDir, authType } = this.#settings;
    if (listenAddr.length === 0 && unixSocketDir === "") {
      this.#problem(
        this.placeOf("listen_addr"),
        "nothing to listen on: listen_addr and unix_socket_dir are both empty",
      );
    }
    for (const host of listenAddr) {
      if (host === "*" || mayBeHost(host)) continue;
      const wanted = "wanted an address, the name of a host, or *";
      this.#problem(this.placeOf("listen_addr"), `listen_addr: ${quote(host)} is none: ${wanted}`);
    }
    this.#checkSocketPath(
      this.placeOf("unix_socket_dir"),
      "unix_socket_dir",
      unixSocketDir,
      listenPort,
    );
    this.#checkBus();
    for (const [name, problem] of tlsProblems(this.#settings)) {
      this.#problem(this.placeOf(name), problem);
    }
    if (this.#settings.defaultPoolSize === 0) {
      this.#warn(
        this.placeOf("default_pool_size"),
        "default_pool_size = 0: no server connection is opened, clients wait for ever",
      );
    }
    const { poolMode, maxPreparedStatements } = this.#settings;
    const others = [this.#fallback, ...this.#databases.values(), ...this.#users.values()];
    const modes = [poolMode, ...others.map((each) => each?.poolMode ?? "session")];
    if (maxPreparedStatements === 0 && modes.some((mode) => mode !== "session")) {
      this.#warn(
        this.placeOf("max_prepared_statements"),
        "max_prepared_statements = 0: in transaction and statement pooling a client may execute what another one " +
          "has prepared under the same name",
      );
    }
    const authUsers = this.#checkAuthQuery(userlist);
    const isAnybody = authType === "any" || this.#asksOthers;
    if (!isAnybody && userlist?.size === 0 && authUsers === 0) {
      this.#warn(
        this.placeOf("auth_file"),
        `auth_type = ${authType} and no user in auth_file: nobody can log in`,
      );
    }
  }

  /** How many users run auth_query, over all databases. */
  #checkAuthQuery(userlist: ReadonlyMap<string, UserSecret> | null): number {
    const { authUser, authDbname } = this.#settings;
    const all = [...this.#databases.values(), ...(this.#fallback === null ? [] : [this.#fallback])];
    const names = new Set(all.map((database) => database.authUser ?? authUser));
    if (authDbname !== "") names.add(authUser);
    names.delete("");
    for (const name of names) {
      if (userlist?.get(name)?.kind !== "scram-sha-256") continue;
      const what = `auth_user ${quote(name)} has a SCRAM secret in auth_file`;
      this.#warn(this.placeOf("auth_user"), `${what}: only its password can log in to a server`);
    }
    const databases = new Map([[authDbname, this.placeOf("auth_dbname")]]);
    for (const { authDbname: name, name: entry } of all) {
      if (name !== null) databases.set(name, this.#entries.get(entry) as IniEntry);
    }
    databases.delete("");
    for (const [name, place] of databases) {
      if (name === CONSOLE_DATABASE) {
        this.#problem(place, `auth_dbname: database "${name}" is reserved for the admin console`);
      } else if (!this.#databases.has(name) && this.#fallback === null) {
        this.#warn(place, `auth_dbname ${quote(name)} is not in [databases]: auth_query fails`);
      }
    }
    return names.size;
  }

  #checkBus(): void {
    const { busUrl, busCredentials, busTlsCaFile, busTlsCertFile, busTlsKeyFile } = this.#settings;
    if (!busUrl.every(isBusServer)) {
      // The text itself may hold a password, and is not quoted.
      const wanted = "wanted nats://host:port or tls://host:port, with commas between several";
      this.#problem(this.placeOf("bus_url"), `bus_url is no list of NATS servers: ${wanted}`);
    }
    const files = {
      bus_credentials: busCredentials,
      bus_tls_ca_file: busTlsCaFile,
      bus_tls_cert_file: busTlsCertFile,
      bus_tls_key_file: busTlsKeyFile,
    };
    for (const [name, path] of Object.entries(files)) {
      if (path === "" || busUrl.length > 0) continue;
      const why = "without bus_url the bus is one of this host alone, with no login and no TLS";
      this.#problem(this.placeOf(name), `${name} is set and bus_url is empty: ${why}`);
    }
    if ((busTlsCertFile === "") !== (busTlsKeyFile === "")) {
      const [set, empty] = busTlsKeyFile === ""
        ? ["bus_tls_cert_file", "bus_tls_key_file"]
        : ["bus_tls_key_file", "bus_tls_cert_file"];
      this.#problem(this.placeOf(set), `${set} is set and ${empty} is empty: both are needed`);
    }
    const auth = parseBudgetAuth(this.#settings.budgetAuth);
    if (auth !== null && "failure" in auth) {
      this.#problem(
        this.placeOf("budget_auth"),
        `budget_auth: ${auth.failure}, wanted user=a password=b dbname=c`,
      );
    }
  }
}

function isBusServer(text: string): boolean {
  const url = URL.parse(text.includes("://") ? text : `nats://${text}`);
  return url !== null && ["nats:", "tls:"].includes(url.protocol) && url.hostname !== "";
}

function notWanted(name: string, row: Extra, text: string, wanted: string): string {
  const is = row.secret ? "its value" : quote(text);
  const comment = /[ \t][;#]/.test(text) ? ", and comments have lines of their own" : "";
  return `${name}: ${is} is not ${wanted}${comment}`;
}

/**
 * Reads the file, its includes and its auth_file; reports every problem it can find, not the first. `withUsers` false:
 * for a process that no client logs in to, on a host that need not have what says who may.
 */
export function loadConfig(
  path: string,
  readFile: ReadFile = readFromDisk,
  set: SetValues = [],
  withUsers = true,
): LoadedFile {
  const loader = new Loader(path, readFile, set, withUsers);
  const config = loader.load();
  return {
    config,
    problems: loader.problems.list("problem", path),
    warnings: loader.warnings.list("warning", path),
    settings: loader.settings,
    placeOf: (setting) => loader.placeOf(setting),
  };
}
