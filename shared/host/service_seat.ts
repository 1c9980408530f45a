// The seat of a service beside the workers (a coordinator, a monitor) on a supervised host, as the supervisor
// gives it in an environment variable. Pure. Without one the service is on its own: the bus is that of the file.

import { isMeshName } from "../bus/mod.ts";

export interface ServiceSeat {
  /** The name to connect to the bus with: the rights of the token go with it. */
  readonly name: string;
  readonly mesh: string;
  /** The embedded bus of the host, or null: the nats-servers that the file names. */
  readonly embedded: { readonly servers: readonly string[]; readonly token: string } | null;
  /** The supervisor's own name on the bus; "" from one that does not say. */
  readonly supervisor: string;
  /** The service ends when this process is gone. */
  readonly supervisorPid: number;
  /** The supervisor hands the configuration over on standard input. */
  readonly handed: boolean;
}

/** Reads the JSON of `variable`; a string says what is wrong with it. */
export function parseServiceSeat(variable: string, text: string): ServiceSeat | string {
  const wrong = (what: string) => `read ${variable}: ${what}`;
  let value: Record<string, unknown>;
  try {
    value = Object(JSON.parse(text)) as Record<string, unknown>;
  } catch {
    return wrong("not JSON");
  }
  const { busUrl, busToken, mesh, name, supervisor = "", supervisorPid, embedded } = value;
  if (!isMeshName(mesh)) return wrong("mesh, wanted letters, digits, _ and -");
  if (!isMeshName(name)) return wrong("name, wanted letters, digits, _ and -");
  if (supervisor !== "" && !isMeshName(supervisor)) {
    return wrong("supervisor, wanted letters, digits, _ and -");
  }
  if (typeof busUrl !== "string" || typeof busToken !== "string") {
    return wrong("busUrl and busToken, wanted texts");
  }
  if (typeof embedded !== "boolean") return wrong("embedded, wanted true or false");
  if (!Number.isSafeInteger(supervisorPid) || (supervisorPid as number) < 1) {
    return wrong("supervisorPid, wanted a process id");
  }
  return {
    name,
    mesh,
    embedded: embedded ? { servers: busUrl.split(","), token: busToken } : null,
    supervisor: supervisor as string,
    supervisorPid: supervisorPid as number,
    handed: value["handed"] === true,
  };
}
