// Door of shared/config: the settings table, the readers of PgBouncer's files, and the typed
// configuration made from them. Pure; the one function that reads from disk is `readFromDisk`.

export { type BudgetAuth, parseBudgetAuth } from "./budget_auth.ts";
export { parseConnectionString } from "./connstr.ts";
export type { ConnectionString, Pair } from "./connstr.ts";
export {
  CONSOLE_DATABASE,
  defaultCpuShares,
  entryNameOf,
  groupConditionKeys,
  lookupDatabase,
  minPoolSizeFor,
  poolModeFor,
  poolSizeFor,
  reservePoolSizeFor,
} from "./config.ts";
export type {
  Config,
  DatabaseConfig,
  GroupCondition,
  GroupConditionKey,
  GroupConfig,
  GroupRule,
  PoolMode,
  UserConfig,
} from "./config.ts";
export { loadConfig } from "./load.ts";
export type { Loaded, LoadedFile, SetValues } from "./load.ts";
export { failureText, readFromDisk } from "./files.ts";
export { mapsToUser, matchHba, PAM_SERVICE } from "./hba.ts";
export type { HbaMethod, HbaRule, IdentMaps } from "./hba.ts";
export type { ReadFile } from "./files.ts";
export { addressBytes, isInNetwork, parseNetwork } from "./network.ts";
export { compilePattern } from "./pattern.ts";
export type { Pattern } from "./pattern.ts";
export { readIni } from "./ini.ts";
export { type LdapOptions, type LdapSearch, type LdapServer, parseLdapOptions } from "./ldap.ts";
export type { Ini, IniEntry, IniSection } from "./ini.ts";
export {
  groupBounds,
  inherit,
  type OverloadBounds,
  type OwnPair,
  settingsBounds,
} from "./overload_bounds.ts";
export { problemText } from "./problem.ts";
export type { Place, Problem } from "./problem.ts";
export { type Reloaded, reloaded, remainingDatabase, sameConnection } from "./reload.ts";
export {
  databaseKeys,
  findSetting,
  groupKeys,
  settingKey,
  settingsTable,
  userKeys,
} from "./settings.ts";
export type { EntryKey, Setting, SettingName, Settings, Support } from "./settings.ts";
export { renderReference, reportLines, showConfigRows } from "./show.ts";
export type { ConfigRow } from "./show.ts";
export { clientTlsPlan, requiresTls, serverTlsPlan } from "./tls.ts";
export type { TlsPlan } from "./tls.ts";
export { parseUserlist, secretKind, secretsOf } from "./userlist.ts";
export type { SecretKind, Userlist, UserSecret } from "./userlist.ts";
export { formatValue, parseValue } from "./values.ts";
export type { Kind, Value } from "./values.ts";
