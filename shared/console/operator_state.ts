// What operators have made of a pooler from the console: paused or suspended, or some databases paused or
// disabled. The same for all workers of a host. Pure.

import { CONSOLE_DATABASE } from "../config/mod.ts";
import type { Command, CommandRefusal } from "./commands.ts";

export interface OperatorState {
  /** Rises with each change: of two the later one counts. */
  readonly revision: number;
  /** No servers are given to anybody. */
  readonly paused: boolean;
  /** Nothing is read from anybody, and nobody new is let in; never while something is paused. */
  readonly suspended: boolean;
  /** Databases no servers are given for. */
  readonly pausedDatabases: readonly string[];
  /** Databases that let nobody in. */
  readonly disabledDatabases: readonly string[];
}

export const untouched: OperatorState = {
  revision: 0,
  paused: false,
  suspended: false,
  pausedDatabases: [],
  disabledDatabases: [],
};

/** What a command may depend on, beside the state. */
export interface Surroundings {
  /** It shuts down. */
  readonly stopping: boolean;
  hasDatabase(name: string): boolean;
}

/** The command's words in errors like "cannot pause admin db". */
const verbs: Partial<Record<Command["kind"], string>> = {
  pause: "pause",
  kill: "kill",
  reconnect: "reconnect",
  wait_close: "wait in",
  disable: "disable",
  enable: "enable",
};

const already = "already suspended/paused";

/** The state after a command, or why it is not carried out: PgBouncer's words. */
export function advance(
  state: OperatorState,
  command: Command,
  { stopping, hasDatabase }: Surroundings,
): OperatorState | CommandRefusal {
  const refusal = (message: string): CommandRefusal => ({ code: "08P01", message });
  const next = (changes: Partial<OperatorState>): OperatorState => ({
    ...state,
    ...changes,
    revision: state.revision + 1,
  });
  const { paused, suspended, pausedDatabases, disabledDatabases } = state;
  const { kind } = command;
  if ((kind === "pause" || kind === "suspend") && stopping) {
    return refusal("pooler is shutting down");
  }
  if ("database" in command && command.database !== null) {
    const { kind, database } = command;
    const verb = verbs[kind];
    if (database === CONSOLE_DATABASE && verb !== undefined) {
      return refusal(`cannot ${verb} admin db: ${database}`);
    }
    if (!hasDatabase(database)) return refusal(`no such database: ${database}`);
    if (suspended && (kind === "pause" || kind === "kill")) return refusal(already);
    switch (kind) {
      case "pause":
      case "kill":
        return next({ pausedDatabases: plus(pausedDatabases, database) });
      case "resume":
        if (!pausedDatabases.includes(database)) {
          return refusal(`database ${database} is not paused`);
        }
        return next({ pausedDatabases: minus(pausedDatabases, database) });
      case "disable":
        return next({ disabledDatabases: plus(disabledDatabases, database) });
      case "enable":
        return next({ disabledDatabases: minus(disabledDatabases, database) });
      case "reconnect":
      case "wait_close":
        return state;
    }
  }
  switch (kind) {
    case "pause":
      return paused || suspended ? refusal(already) : next({ paused: true });
    case "suspend":
      if (paused || suspended) return refusal(already);
      // Who waits for a paused database could not be served first.
      if (pausedDatabases.length > 0) return refusal("cannot suspend with paused databases");
      return next({ suspended: true });
    case "resume":
      return paused || suspended
        ? next({ paused: false, suspended: false })
        : refusal("pooler is not paused/suspended");
    case "kill":
      return suspended ? refusal(already) : next({ paused: true });
    case "disable":
    case "enable":
      return refusal("a database is required");
    default:
      return state;
  }
}

export function isRefusal(state: OperatorState | CommandRefusal): state is CommandRefusal {
  return "code" in state;
}

function plus(names: readonly string[], name: string): readonly string[] {
  return names.includes(name) ? names : [...names, name];
}

function minus(names: readonly string[], name: string): readonly string[] {
  return names.filter((other) => other !== name);
}
