// A coordinator's seat on a supervised host, as the supervisor gives it in the environment variable
// PGWEIR_BUDGET. Pure. Without one the coordinator is on its own: the bus is that of the file.

import { isMeshName } from "../../shared/bus/mod.ts";

export interface BudgetSeat {
  /** The name to connect to the bus with: the rights of the token go with it. */
  readonly name: string;
  readonly mesh: string;
  /** The embedded bus of the host, or null: the nats-servers that the file names. */
  readonly embedded: { readonly servers: readonly string[]; readonly token: string } | null;
  /** The coordinator ends when this process is gone. */
  readonly supervisorPid: number;
  /** The supervisor hands the configuration over on standard input. */
  readonly handed: boolean;
}

/** Reads the variable's JSON; a string says what is wrong with it. */
export function parseBudgetSeat(text: string): BudgetSeat | string {
  let value: Record<string, unknown>;
  try {
    value = Object(JSON.parse(text)) as Record<string, unknown>;
  } catch {
    return "read PGWEIR_BUDGET: not JSON";
  }
  const { busUrl, busToken, mesh, name, supervisorPid, embedded } = value;
  if (!isMeshName(mesh)) return "read PGWEIR_BUDGET: mesh, wanted letters, digits, _ and -";
  if (!isMeshName(name)) return "read PGWEIR_BUDGET: name, wanted letters, digits, _ and -";
  if (typeof busUrl !== "string" || typeof busToken !== "string") {
    return "read PGWEIR_BUDGET: busUrl and busToken, wanted texts";
  }
  if (typeof embedded !== "boolean") return "read PGWEIR_BUDGET: embedded, wanted true or false";
  if (!Number.isSafeInteger(supervisorPid) || (supervisorPid as number) < 1) {
    return "read PGWEIR_BUDGET: supervisorPid, wanted a process id";
  }
  return {
    name,
    mesh,
    embedded: embedded ? { servers: busUrl.split(","), token: busToken } : null,
    supervisorPid: supervisorPid as number,
    handed: value["handed"] === true,
  };
}
