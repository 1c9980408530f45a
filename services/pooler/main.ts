// One worker: the control thread. It reads the file, starts the data-plane thread, and does for it
// whatever takes time: names, key derivation, the bus, the log. It composes; see control.ts.

import process from "node:process";
import { loadConfig, problemText, reportLines } from "../../shared/config/mod.ts";
import { setProcessName } from "../../shared/sys/mod.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { Control } from "./control.ts";
import { type FleetSeat, loneSeat, parseSeat } from "./seat.ts";

/** Runs a worker until it is told to stop; returns the exit code. */
export async function runPooler(configPath: string): Promise<number> {
  const seat = seatFromEnvironment();
  const loaded = loadConfig(configPath);
  const { config, warnings } = loaded;
  if (typeof seat === "string" || config === null) {
    const report = typeof seat === "string" ? [`pgweir: ${seat}`] : reportLines(configPath, loaded);
    process.stderr.write(`${report.join("\n")}\n`);
    return 1;
  }
  const logger = createLogger({
    component: "pooler",
    level: config.settings.verbose > 0 ? "debug" : "info",
    format: config.settings.logFormat,
  });
  // In a fleet the supervisor says it once for all.
  if (seat === null) { for (const warning of warnings) logger.warning(problemText(warning)); }
  setProcessName("pgweir pooler");
  return await new Control(config, seat ?? loneSeat(), logger).run();
}

/** The seat that the environment names, null if none; a text says what is wrong with it. */
function seatFromEnvironment(): FleetSeat | string | null {
  const text = process.env.PGWEIR_FLEET ?? "";
  return text === "" ? null : parseSeat(text);
}
