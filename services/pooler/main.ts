// One worker: the control thread. It reads the file, starts the data-plane thread, and does for it
// whatever takes time: names, key derivation, the bus, the log. It composes; see control.ts.

import process from "node:process";
import { loadConfig, problemText } from "../../shared/config/mod.ts";
import { setProcessName } from "../../shared/sys/mod.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { Control } from "./control.ts";
import { type FleetSeat, loneSeat, parseSeat } from "./seat.ts";

/** Runs a worker until it is told to stop; returns the exit code. */
export async function runPooler(configPath: string, seat: FleetSeat | null): Promise<number> {
  const { config, problems, warnings } = loadConfig(configPath);
  if (config === null) {
    for (const problem of problems) process.stderr.write(`pgweir: ${problemText(problem)}\n`);
    return 1;
  }
  const logger = createLogger({
    component: "pooler",
    level: config.settings.verbose > 0 ? "debug" : "info",
    format: config.settings.logFormat,
  });
  for (const warning of warnings) {
    // In a fleet the supervisor has said it once for all.
    if (seat === null) logger.warning(problemText(warning));
  }
  setProcessName("pgweir pooler");
  return await new Control(config, seat ?? loneSeat(), logger).run();
}

/** The seat that the environment names, null if none; throws an Error with what is wrong with it. */
export function seatFromEnvironment(): FleetSeat | null {
  const text = process.env.PGWEIR_FLEET;
  if (text === undefined || text === "") return null;
  const seat = parseSeat(text);
  if (typeof seat === "string") throw new Error(seat);
  return seat;
}
