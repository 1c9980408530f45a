// What is wrong with what the settings name outside of the configuration: files and words of TLS, found by making of
// them what a worker would make, and letting go of it again; PAM; folders to write to, users and groups of the host.

import { accessSync, constants, statSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname } from "node:path";
import {
  clientTlsPlan,
  type Config,
  failureText,
  loadConfig,
  type Loaded,
  type LoadedFile,
  type Problem,
  type ReadFile,
  readFromDisk,
  requiresTls,
  serverTlsPlan,
  type SettingName,
  type Settings,
} from "../config/mod.ts";
import {
  closeFd,
  findGroup,
  findUser,
  isMissingAddress,
  listenTcp,
  openSslProblem,
  pamProblem,
  SysError,
  TlsContext,
  TlsError,
} from "../sys/mod.ts";
import { ListenHostError, listenHosts } from "./listen_hosts.ts";

interface Found {
  readonly setting: string;
  readonly message: string;
}

export function tlsFileProblems(settings: Settings): Found[] {
  const server = serverTlsPlan(settings);
  const mayDoWithout = !requiresTls(settings.serverTlsSslmode) && openSslProblem() !== null;
  const found: Found[] = [];
  for (const plan of [clientTlsPlan(settings), mayDoWithout ? null : server]) {
    if (plan === null) continue;
    try {
      new TlsContext(plan).free();
    } catch (error) {
      if (!(error instanceof TlsError)) throw error;
      const { message, problems } = error;
      const whole = [{ setting: `${plan.name}_sslmode`, message }];
      found.push(...problems.length > 0 ? problems : whole);
    }
  }
  return found;
}

/** Whether logins are to be judged by PAM, and it is not there. */
export function pamProblems({ settings: { authType, pamConfigDir }, hba }: Config): string[] {
  const isUsed = authType === "pam" || hba.some(({ pamService }) => pamService !== null);
  const problem = isUsed ? pamProblem(pamConfigDir !== "") : null;
  return problem === null ? [] : [problem];
}

/** Why nothing can be made in a folder, or null. */
function folderProblem(path: string): string | null {
  try {
    if (!statSync(path).isDirectory()) return "it is no directory";
    accessSync(path, constants.W_OK | constants.X_OK);
    return null;
  } catch (error) {
    return isMissing(error) ? "no such directory" : failureText(error);
  }
}

/** Why a file cannot be made, or null. */
function newFileProblem(path: string): string | null {
  const folder = dirname(path);
  const problem = folderProblem(folder);
  return problem === null ? null : `directory "${folder}": ${problem}`;
}

/** Why a file that is there, or one that can be made, cannot be written to; or null. */
function writingProblem(path: string): string | null {
  try {
    if (statSync(path).isDirectory()) return "it is a directory";
    accessSync(path, constants.W_OK);
    return null;
  } catch (error) {
    return isMissing(error) ? newFileProblem(path) : failureText(error);
  }
}

function isMissing(error: unknown): boolean {
  return (error as { code?: unknown }).code === "ENOENT";
}

function logProblem({ logfile }: Settings): Found[] {
  const problem = logfile === "" ? null : writingProblem(logfile);
  return problem === null
    ? []
    : [{ setting: "logfile", message: `logfile "${logfile}": ${problem}` }];
}

/** What would keep a process from starting on this host; `user` is who it becomes whatever the file says. */
function startProblems(settings: Settings, user: string | null): Found[] {
  const { pidfile, unixSocketDir, unixSocketGroup } = settings;
  const found: Found[] = [];
  const add = (setting: SettingName, value: string, problem: string | null) => {
    if (problem !== null) found.push({ setting, message: `${setting} "${value}": ${problem}` });
  };
  if (pidfile !== "") add("pidfile", pidfile, newFileProblem(pidfile));
  if (settings.user !== "" && user === null) {
    add("user", settings.user, lookUp(findUser, settings.user));
  }
  if (!unixSocketDir.startsWith("/")) return found;
  add("unix_socket_dir", unixSocketDir, folderProblem(unixSocketDir));
  if (unixSocketGroup !== "") {
    add("unix_socket_group", unixSocketGroup, lookUp(findGroup, unixSocketGroup));
  }
  return found;
}

function lookUp(find: (name: string) => unknown, name: string): string | null {
  try {
    return find(name) === null ? "this host has none of that name" : null;
  } catch (error) {
    return (error as Error).message;
  }
}

/** Of a monitor's threshold that all CPUs of this host together do not come to, so that nothing is ever refused. */
function thresholdWarnings(settings: Settings): Found[] {
  const setting = "os_cpu_busy_time_threshold";
  const { osCpuBusyTimeThreshold: threshold, overloadIntervalMs } = settings;
  const isOn = settings.maxOsCpuWaitTimeRatioToThrow > 0 ||
    settings.maxOsCpuWaitTimeRatioToDropConnection > 0;
  const cpus = availableParallelism();
  const most = overloadIntervalMs * 1000 * cpus;
  if (!isOn || threshold <= most) return [];
  const message =
    `${setting} = ${threshold}: in an overload_interval the ${cpus} CPUs of this host do no more than ` +
    `${most} microseconds of work: nothing is refused by os_cpu_wait_time_ratio here`;
  return [{ setting, message }];
}

function placed(loaded: LoadedFile, found: readonly Found[]): Problem[] {
  return found.map(({ setting, message }) => ({ ...loaded.placeOf(setting), message }));
}

/** What keeps settings from being taken that are read again, and that others do not fall back from. */
export function reloadProblems(loaded: LoadedFile): readonly Problem[] {
  const { settings, problems } = loaded;
  return settings === null ? problems : [...problems, ...placed(loaded, logProblem(settings))];
}

/**
 * As loadConfig(), and with a look at what the settings name outside of the configuration. `user`: who the process
 * becomes whatever the file says.
 */
export function loadWithFiles(
  path: string,
  readFile: ReadFile = readFromDisk,
  user: string | null = null,
): LoadedFile {
  const read = loadConfig(path, readFile);
  const { config, settings } = read;
  if (settings === null) return read;
  const warnings = [...read.warnings, ...placed(read, thresholdWarnings(settings))];
  const loaded = { ...read, warnings };
  const found = [
    ...tlsFileProblems(settings),
    ...logProblem(settings),
    ...startProblems(settings, user),
  ];
  if (config !== null) {
    const setting = settings.authType === "pam" ? "auth_type" : "auth_hba_file";
    found.push(...pamProblems(config).map((message) => ({ setting, message })));
  }
  if (found.length === 0) return loaded;
  return withProblems(loaded, found);
}

function withProblems(loaded: LoadedFile, found: readonly Found[]): LoadedFile {
  const { settings, warnings, placeOf } = loaded;
  const problems = [...loaded.problems, ...placed(loaded, found)];
  return { config: null, settings, problems, warnings, placeOf };
}

/** The same, and with a look at whether a worker could listen: at a free port, since one may be running. */
export async function loadToCheck(path: string): Promise<Loaded> {
  const loaded = loadWithFiles(path);
  if (loaded.settings === null) return loaded;
  const { listenAddr } = loaded.settings;
  const setting = "listen_addr";
  try {
    const addresses = await listenHosts(listenAddr);
    const missing = addresses.filter((host) => !isOurs(host));
    if (missing.length === 0) return loaded;
    if (missing.length === addresses.length) {
      const message = `listen_addr: this host has no such address: ${listenAddr.join(", ")}`;
      return withProblems(loaded, [{ setting, message }]);
    }
    const warnings = missing.map((host) => ({
      setting,
      message: `listen_addr: this host has no address "${host}": it will not listen there`,
    }));
    return { ...loaded, warnings: [...loaded.warnings, ...placed(loaded, warnings)] };
  } catch (error) {
    if (!(error instanceof ListenHostError)) throw error;
    return withProblems(loaded, [{ setting, message: error.message }]);
  }
}

/** Whether this host has the address now. */
function isOurs(host: string): boolean {
  try {
    closeFd(listenTcp({ host, port: 0, backlog: 1, reusePort: false }).fd);
    return true;
  } catch (error) {
    if (error instanceof SysError) return !isMissingAddress(error);
    throw error;
  }
}
