// `pgweir budget`: reads the file and the seat, runs a coordinator until it is told to stop. It composes;
// see coordinator.ts.

import { randomBytes } from "node:crypto";
import process from "node:process";
import { type BusAddress, BusError, busOptions } from "../../shared/bus/mod.ts";
import { type Config, loadConfig, problemText, reportLines } from "../../shared/config/mod.ts";
import { configFrom, type HostOptions, readHanded } from "../../shared/host/mod.ts";
import { setProcessName } from "../../shared/sys/mod.ts";
import { createLogger, type Logger, LogOutput, logTargets } from "../../shared/telemetry/mod.ts";
import { Coordinator } from "./coordinator.ts";
import { type BudgetSeat, parseBudgetSeat } from "./seat.ts";

const watchSupervisorMs = 500;
/** A coordinator has no command line of its own to win over the file. */
const noOptions: HostOptions = { quiet: false, verbose: 0, daemon: false, user: null };

/** Runs a coordinator; returns the exit code. */
export async function runBudget(configPath: string | null): Promise<number> {
  if (configPath === null) {
    return fail(["start budget coordinator: no file is given, wanted pgweir budget file.ini"]);
  }
  const seat = seatFromEnvironment();
  /** What is handed later, once there is somebody to take it. */
  let take: (config: Config) => void = () => {};
  const isHanded = seat !== null && typeof seat !== "string" && seat.handed;
  const handed = isHanded
    ? await readHanded(({ sources }) => take(configFrom(sources, noOptions)))
    : null;
  const loaded = handed === null
    ? loadConfig(configPath)
    : { config: configFrom(handed.sources, noOptions), problems: [], warnings: [] };
  const { config } = loaded;
  if (typeof seat === "string") return fail([seat]);
  if (config === null) {
    process.stderr.write(`${reportLines(configPath, loaded).join("\n")}\n`);
    return 1;
  }
  const address = addressOf(config, seat);
  if (typeof address === "string") return fail([address]);
  const output = new LogOutput();
  const logger = createLogger({
    component: "budget",
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
    return fail([(error as Error).message]);
  }
  setProcessName("pgweir budget");
  const embedded = seat?.embedded != null;
  const coordinator = new Coordinator({ config, bus: address, embedded, logger });
  take = (changed) => {
    openLog(changed);
    logger.setLevel(changed.settings.verbose > 0 ? "debug" : "info");
    logger.setFormat(changed.settings.logFormat);
    coordinator.setConfig(changed);
    logger.info("configuration reloaded", { file: configPath });
  };
  const stopped = untilStopped(seat, logger, () => {
    if (handed === null) reload(configPath, logger, take);
  });
  const started = coordinator.start().catch((error) => {
    // Before anything was asked: what the file says of the bus cannot be used.
    if (!(error instanceof BusError)) throw error;
    logger.fatal(`start budget coordinator: ${error.message}`);
    return "failed" as const;
  });
  const first = await Promise.race([stopped, started.then((end) => end ?? stopped)]);
  await coordinator.close();
  return first === "failed" ? 1 : 0;
}

function fail(failures: readonly string[]): number {
  for (const failure of failures) process.stderr.write(`pgweir: ${failure}\n`);
  return 1;
}

/** The seat that the environment names, null if none; a text says what is wrong with it. */
function seatFromEnvironment(): BudgetSeat | null | string {
  const text = process.env.PGWEIR_BUDGET ?? "";
  return text === "" ? null : parseBudgetSeat(text);
}

/** How to reach the bus; a text says why there is none. */
function addressOf(config: Config, seat: BudgetSeat | null): BusAddress | string {
  // Unique for ever: the name of a leader tells its terms from those of others.
  const name = seat?.name ?? `budget-${randomBytes(6).toString("hex")}`;
  if (seat?.embedded != null) return { ...seat.embedded, name, mesh: seat.mesh };
  if (config.settings.busUrl.length === 0) {
    return `start budget coordinator: bus_url is not set in "${config.path}", wanted the nats-servers ` +
      "of the mesh; a host without them has its coordinator from pgweir up";
  }
  try {
    return { ...busOptions(config.settings), name };
  } catch (error) {
    if (!(error instanceof BusError)) throw error;
    return `start budget coordinator: ${error.message}`;
  }
}

/** Resolves when somebody wants an end of it. */
function untilStopped(
  seat: BudgetSeat | null,
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
    // At once, without a word to anybody: the others wait for the end of the term.
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
function reload(path: string, logger: Logger, take: (config: Config) => void): void {
  const { config, problems } = loadConfig(path);
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
  }
}
