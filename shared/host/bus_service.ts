// A process that lives on the bus beside the workers, a coordinator or a monitor: how it comes to its
// configuration, its log and its place on the bus, under a supervisor or on its own, and how it ends. What it does
// there is its own affair.

import { randomBytes } from "node:crypto";
import process from "node:process";
import { type BusAddress, BusError, busOptions } from "../bus/mod.ts";
import {
  type Config,
  loadConfig,
  type LoadedFile,
  problemText,
  readFromDisk,
  reloaded,
  reportLines,
} from "../config/mod.ts";
import { setProcessName } from "../sys/mod.ts";
import { createLogger, type Logger, LogOutput, logTargets } from "../telemetry/mod.ts";
import { readHanded } from "./handed.ts";
import type { HostOptions } from "./host_process.ts";
import { configFrom } from "./live_config.ts";
import { notify, notifyReloading } from "./notify.ts";
import { parseServiceSeat, type ServiceSeat } from "./service_seat.ts";

export interface BusService {
  /** Returns when it is at work, or was closed before. Throws a BusError where the file's bus can't be used. */
  start(): Promise<void>;
  /** Why it can't go on by such a configuration; null: it can. */
  problemOf?(config: Config): string | null;
  /** Takes effect at once. */
  setConfig(config: Config): void;
  close(): Promise<void>;
}

export interface ServicePlace {
  readonly config: Config;
  /** How to reach the bus. */
  readonly bus: BusAddress;
  /** null: it runs on its own. */
  readonly seat: ServiceSeat | null;
  readonly logger: Logger;
}

export interface ServiceKind {
  /** The command that runs it, which is also its name in logs and on the bus. */
  readonly command: string;
  /** What it is, for people: "budget coordinator". */
  readonly title: string;
  /** The environment variable with its seat. */
  readonly variable: string;
  /** What else it needs where there is no supervisor, after "a host without nats-servers ...". */
  readonly withoutBus: string;
  /** Whether it is any matter to it who may log in. */
  readonly knowsUsers: boolean;
  /** A text says why it can't be. */
  readonly make: (place: ServicePlace) => BusService | string;
}

const watchSupervisorMs = 500;
/** It has no command line of its own to win over the file. */
const noOptions: HostOptions = { quiet: false, verbose: 0, daemon: false, user: null };

/** Runs it until it is told to stop; returns the exit code. */
export async function runBusService(kind: ServiceKind, file: string): Promise<number> {
  const { command, title } = kind;
  const seat = seatFromEnvironment(kind.variable);
  if (typeof seat === "string") return fail(seat);
  /** What is handed later, once there is somebody to take it. */
  let take: (config: Config) => void = () => {};
  const handed = seat?.handed
    ? await readHanded(({ sources }) => take(configFrom(sources, noOptions)))
    : null;
  const loaded = handed === null
    ? load(kind, file)
    : { config: configFrom(handed.sources, noOptions), problems: [], warnings: [] };
  const { config } = loaded;
  if (config === null) {
    process.stderr.write(`${reportLines(file, loaded).join("\n")}\n`);
    return 1;
  }
  const bus = addressOf(kind, config, seat);
  if (typeof bus === "string") return fail(bus);
  const output = new LogOutput();
  const logger = createLogger({
    component: command,
    level: config.settings.verbose > 0 ? "debug" : "info",
    format: config.settings.logFormat,
    write: output.write,
  });
  // Under a supervisor, which writes the log of the host, standard error is the way to it.
  const openLog = (loaded: Config) => {
    if (seat === null) output.configure(logTargets(loaded.settings, false));
  };
  try {
    openLog(config);
  } catch (error) {
    return fail((error as Error).message);
  }
  setProcessName(`pgweir ${command}`);
  const service = kind.make({ config, bus, seat, logger });
  if (typeof service === "string") return fail(`start ${title}: ${service}`);
  take = (changed) => {
    const problem = service.problemOf?.(changed) ?? null;
    if (problem !== null) throw new Error(problem);
    openLog(changed);
    logger.setLevel(changed.settings.verbose > 0 ? "debug" : "info");
    logger.setFormat(changed.settings.logFormat);
    service.setConfig(changed);
    logger.info("configuration reloaded", { file });
  };
  const stopped = untilStopped(seat, logger, () => {
    if (handed !== null) return;
    notifyReloading();
    reload(load(kind, file), config, logger, take);
    notify("READY=1");
  });
  const started = service.start().then(() => notify("READY=1"), (error) => {
    // Before anything was asked: what the file says of the bus cannot be used.
    if (!(error instanceof BusError)) throw error;
    logger.fatal(`start ${title}: ${error.message}`);
    return "failed" as const;
  });
  const first = await Promise.race([stopped, started.then((end) => end ?? stopped)]);
  notify("STOPPING=1");
  await service.close();
  return first === "failed" ? 1 : 0;
}

function load({ knowsUsers }: ServiceKind, file: string): LoadedFile {
  return loadConfig(file, readFromDisk, [], knowsUsers);
}

function fail(failure: string): number {
  process.stderr.write(`pgweir: ${failure}\n`);
  return 1;
}

/** The seat that the environment names, null if none; a text says what is wrong with it. */
function seatFromEnvironment(variable: string): ServiceSeat | null | string {
  const text = process.env[variable] ?? "";
  return text === "" ? null : parseServiceSeat(variable, text);
}

/** How to reach the bus; a text says why there is none. */
function addressOf(
  { command, title, withoutBus }: ServiceKind,
  config: Config,
  seat: ServiceSeat | null,
): BusAddress | string {
  // Unique for ever: it tells one process from all others.
  const name = seat?.name ?? `${command}-${randomBytes(6).toString("hex")}`;
  if (seat?.embedded != null) return { ...seat.embedded, name, mesh: seat.mesh };
  if (config.settings.busUrl.length === 0) {
    return `start ${title}: bus_url is not set in "${config.path}", wanted the nats-servers ` +
      `of the mesh; a host without them ${withoutBus}`;
  }
  try {
    return { ...busOptions(config.settings), name };
  } catch (error) {
    if (!(error instanceof BusError)) throw error;
    return `start ${title}: ${error.message}`;
  }
}

/** Resolves when somebody wants an end of it. */
function untilStopped(
  seat: ServiceSeat | null,
  logger: Logger,
  onReload: () => void,
): Promise<"stopped"> {
  return new Promise((resolve) => {
    for (const name of ["SIGTERM", "SIGINT"] as const) {
      process.on(name, () => {
        logger.info(`got ${name}, stopping`);
        resolve("stopped");
      });
    }
    // At once, without a word to anybody: what others wait for runs out by itself.
    process.on("SIGQUIT", () => process.exit(0));
    process.on("SIGHUP", onReload);
    if (seat === null) return;
    setInterval(() => {
      if (process.ppid === seat.supervisorPid) return;
      logger.warning("supervisor is gone, stopping");
      resolve("stopped");
    }, watchSupervisorMs);
  });
}

/** A file with problems changes nothing. */
function reload(
  { config, problems }: LoadedFile,
  running: Config,
  logger: Logger,
  take: (config: Config) => void,
): void {
  if (config === null) {
    for (const problem of problems) logger.error(`reload: ${problemText(problem)}`);
    logger.error("reload: the file has problems, nothing is changed", {
      problems: problems.length,
    });
    return;
  }
  try {
    take(config);
  } catch (error) {
    logger.error(`reload: ${(error as Error).message}, nothing is changed`);
    return;
  }
  // Its place on the bus is that of the start.
  for (const name of reloaded(running, config).restart) {
    if (name !== "mesh" && !name.startsWith("bus_")) continue;
    logger.warning(`reload: ${name} changes with a restart only, the former value is kept`);
  }
}
