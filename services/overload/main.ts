// `pgweir overload`: runs a monitor until it is told to stop: under a supervisor that of its workers, on its own that
// of databases. It composes; see monitor.ts.

import { runBusService, type ServicePlace } from "../../shared/host/mod.ts";
import { Monitor } from "./monitor.ts";
import type { PostmasterHints } from "./postmaster.ts";
import { type Scope, scopeProblem } from "./scope.ts";

export interface OverloadCommand {
  readonly file: string;
  /** None: the workers of a supervisor. */
  readonly databases: readonly string[];
  readonly postmaster: PostmasterHints;
}

/** Runs a monitor; returns the exit code. */
export async function runOverload(command: OverloadCommand): Promise<number> {
  return await runBusService({
    command: "overload",
    title: "overload monitor",
    variable: "PGWEIR_OVERLOAD",
    withoutBus: "has its workers' monitor from pgweir up",
    knowsUsers: false,
    make: (place) => {
      const scope = scopeOf(command, place);
      return typeof scope === "string" ? scope : new Monitor({ ...place, scope });
    },
  }, command.file);
}

function scopeOf(command: OverloadCommand, { config, seat }: ServicePlace): Scope | string {
  const { databases, postmaster } = command;
  if (seat !== null && seat.supervisor !== "") {
    return { kind: "workers", supervisor: seat.supervisor };
  }
  if (databases.length === 0) {
    return "no database is named, wanted --database NAME; workers have their monitor from pgweir up";
  }
  const scope: Scope = { kind: "databases", names: databases, hints: postmaster };
  return scopeProblem(config, scope) ?? scope;
}
