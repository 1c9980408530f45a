// One worker: the control thread. It reads the file, starts the data-plane thread, and does for it
// whatever takes time: names, key derivation, the bus, the log. It composes; see control.ts.

import process from "node:process";
import { problemText, reportLines } from "../../shared/config/mod.ts";
import {
  configFrom,
  HostFailure,
  type HostOptions,
  HostProcess,
  LiveConfig,
  loadWithFiles,
  markOf,
  readHanded,
  RecordingReader,
  socketActivationProblem,
  withOptions,
} from "../../shared/host/mod.ts";
import { untouched } from "../../shared/console/mod.ts";
import { isMonitored } from "../../shared/overload/mod.ts";
import { setProcessName } from "../../shared/sys/mod.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { Control } from "./control.ts";
import { type FleetSeat, loneSeat, parseSeat } from "./seat.ts";

/**
 * Runs a worker until it is told to stop; returns the exit code, or "mesh" for a lone one whose file names a
 * bus: the supervisor, which knows how to join one, has to run it.
 */
export async function runPooler(
  configPath: string,
  options: HostOptions,
): Promise<number | "mesh"> {
  const seat = seatFromEnvironment();
  if (typeof seat !== "string" && seat !== null && seat.supervisor !== "") {
    return await runHanded(seat, options);
  }
  const reader = new RecordingReader();
  const loaded = loadWithFiles(configPath, reader.read, options.user);
  const { warnings } = loaded;
  if (typeof seat === "string" || loaded.config === null) {
    const report = typeof seat === "string" ? [`pgweir: ${seat}`] : reportLines(configPath, loaded);
    process.stderr.write(`${report.join("\n")}\n`);
    return 1;
  }
  const config = withOptions(loaded.config, options);
  if (seat === null && config.settings.busUrl.length > 0) return "mesh";
  // In a fleet log, pidfile and user are the supervisor's.
  const host = seat === null ? new HostProcess(config, options) : null;
  const logger = createLogger({
    component: "pooler",
    level: config.settings.verbose > 0 ? "debug" : "info",
    format: config.settings.logFormat,
    ...(host === null ? {} : { write: host.log.write }),
  });
  setProcessName("pgweir pooler");
  try {
    host?.open();
    if (seat === null) {
      for (const warning of warnings) logger.warning(problemText(warning));
      const unused = socketActivationProblem();
      if (unused !== null) logger.warning(unused);
    }
    if (seat === null && isMonitored(config)) {
      logger.warning(
        "the bounds of os_cpu_wait_time_ratio and the overload warnings have no effect on a lone worker, which has " +
          "no monitor: run pgweir up, or set max_event_loop_lag_to_throw",
      );
    }
    const live = new LiveConfig(config, reader.texts, options, logger);
    return await new Control(
      config,
      markOf(config, live.sources),
      seat ?? loneSeat(),
      host,
      live,
      untouched,
      logger,
    ).run();
  } catch (error) {
    if (!(error instanceof HostFailure)) throw error;
    logger.fatal(error.message);
    return 1;
  } finally {
    host?.close();
  }
}

/** A worker of a fleet goes by what its supervisor hands it: it looks at no file. */
async function runHanded(seat: FleetSeat, options: HostOptions): Promise<number> {
  let control: Control | null = null;
  const { sources, state } = await readHanded((more) => {
    const next = configFrom(more.sources, options);
    control?.takeOver(next, markOf(next, more.sources), more.state);
  });
  const config = configFrom(sources, options);
  const { verbose, logFormat } = config.settings;
  const level = verbose > 0 ? "debug" : "info";
  const logger = createLogger({ component: "pooler", level, format: logFormat });
  setProcessName("pgweir pooler");
  control = new Control(config, markOf(config, sources), seat, null, null, state, logger);
  return await control.run();
}

/** The seat that the environment names, null if none; a text says what is wrong with it. */
function seatFromEnvironment(): FleetSeat | string | null {
  const text = process.env.PGWEIR_FLEET ?? "";
  return text === "" ? null : parseSeat(text);
}
