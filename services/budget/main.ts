// `pgweir budget`: runs a coordinator until it is told to stop. It composes; see coordinator.ts.

import { runBusService } from "../../shared/host/mod.ts";
import { Coordinator } from "./coordinator.ts";

/** Runs a coordinator; returns the exit code. */
export async function runBudget(file: string): Promise<number> {
  return await runBusService({
    command: "budget",
    title: "budget coordinator",
    variable: "PGWEIR_BUDGET",
    withoutBus: "has its coordinator from pgweir up",
    knowsUsers: true,
    make: ({ config, bus, seat, logger }) =>
      new Coordinator({ config, bus, embedded: seat?.embedded != null, logger }),
  }, file);
}
