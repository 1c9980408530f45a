// Commands of the admin console that change something, and what becomes of them. Whoever has them carried out
// is an Executor; what they make of the state of a pooler is in operator_state.ts. Types only.

/** now: at once. servers: when all servers are given back. clients: when all clients have left. */
export type ShutdownMode = "now" | "servers" | "clients";

export type Command =
  | { readonly kind: "reload" }
  | { readonly kind: "set"; readonly key: string; readonly value: string }
  | { readonly kind: "shutdown"; readonly mode: ShutdownMode }
  | DatabaseCommand
  | { readonly kind: "suspend" }
  /** `client`: the id of SHOW CLIENTS. */
  | { readonly kind: "kill_client"; readonly client: number };

/** Of one database by the name clients use, or, where it is null, of all. */
export interface DatabaseCommand {
  readonly kind:
    | "pause"
    | "resume"
    | "kill"
    | "reconnect"
    | "wait_close"
    | "disable"
    | "enable";
  readonly database: string | null;
}

export interface CommandRefusal {
  readonly code: string;
  readonly message: string;
  readonly hint?: string;
}

/** `refusal`: it was not carried out. `notice`: it was, and there is something to say about it. */
export interface Outcome {
  readonly refusal: CommandRefusal | null;
  readonly notice: string | null;
}

export const done: Outcome = { refusal: null, notice: null };

export function refused(refusal: CommandRefusal): Outcome {
  return { refusal, notice: null };
}

/** As the console's errors of this kind are. */
export function refusedWith(message: string): Outcome {
  return refused({ code: "08P01", message });
}

export const reloadFailed: CommandRefusal = {
  code: "F0000",
  message: "RELOAD failed, see logs for additional details",
};

/** A notice, as PgBouncer has it. */
export const tlsKept = "TLS settings could not be applied, still using old configuration";

export function setFailed(reason: string): CommandRefusal {
  return { code: "08P01", message: "SET failed", hint: reason };
}

/** Whether a command is over only when something has come to an end. */
export function waits(command: Command): boolean {
  return command.kind === "pause" || command.kind === "suspend" || command.kind === "wait_close";
}

/** What undoes a command whose client does not wait for its end; null: nothing. */
export function undoing(command: Command): Command | null {
  switch (command.kind) {
    case "pause":
      return { kind: "resume", database: command.database };
    case "suspend":
      return { kind: "resume", database: null };
    default:
      return null;
  }
}
