// Commands of the admin console that change something, and what becomes of them. The console
// plans a command, the data plane passes it on, the control thread sees to it.

/** `database` null: all of them. */
export type Command = { readonly kind: "reload" };

/** `refusal`: it was not carried out. `notice`: it was, and there is something to say about it. */
export interface Outcome {
  readonly refusal: CommandRefusal | null;
  readonly notice: string | null;
}

export interface CommandRefusal {
  readonly code: string;
  readonly message: string;
  readonly hint?: string;
}

export const done: Outcome = { refusal: null, notice: null };

export function refused(refusal: CommandRefusal): Outcome {
  return { refusal, notice: null };
}

/** A notice, as PgBouncer has it. */
export const tlsKept = "TLS settings could not be applied, still using old configuration";
