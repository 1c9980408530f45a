// A worker's seat in a fleet, as the supervisor gives it in the environment variable PGWEIR_FLEET.
// Pure. Without one the worker is alone: one of one, no bus.

import { randomBytes, randomInt } from "node:crypto";
import { isMeshName, isWorkerId } from "../../shared/bus/mod.ts";

export interface FleetSeat {
  readonly index: number;
  readonly count: number;
  readonly workerId: number;
  /** Rises with each worker that a supervisor starts; with the id it names one worker for ever. */
  readonly incarnation: number;
  readonly mesh: string;
  /** null = no bus. Without a token the login is in the addresses. */
  readonly bus: { readonly servers: readonly string[]; readonly token: string | null } | null;
  /** Known to all workers of the fleet and to nobody else. */
  readonly fleetSecret: string;
  /** The supervisor's name on the bus; "" = none. It hands the configuration over on standard input. */
  readonly supervisor: string;
  /** The worker ends when this process is gone; 0 = nobody to watch. */
  readonly supervisorPid: number;
}

export function loneSeat(): FleetSeat {
  const workerId = randomInt(1, 0x8000);
  const fleetSecret = randomBytes(32).toString("base64url");
  return {
    index: 0,
    count: 1,
    workerId,
    incarnation: Date.now(),
    mesh: "default",
    bus: null,
    fleetSecret,
    supervisor: "",
    supervisorPid: 0,
  };
}

/**
 * Reads the variable's JSON; a string says what is wrong with it. A seat without an incarnation, which no
 * supervisor gives, gets one of now.
 */
export function parseSeat(text: string): FleetSeat | string {
  let value: Record<string, unknown>;
  try {
    value = JSON.parse(text) as Record<string, unknown>;
  } catch {
    return "read PGWEIR_FLEET: not JSON";
  }
  const { index, count, workerId, mesh, busUrl, busToken, fleetSecret, supervisorPid } = value;
  const incarnation = value["incarnation"] ?? Date.now();
  const isWhole = (number: unknown): number is number =>
    Number.isInteger(number) && (number as number) >= 0;
  if (!isWhole(count) || count < 1 || !isWhole(index) || index >= count) {
    return "read PGWEIR_FLEET: index and count, wanted 0 <= index < count";
  }
  if (!isWorkerId(workerId)) return "read PGWEIR_FLEET: workerId, wanted 0 to 32767";
  if (!isWhole(incarnation)) {
    return "read PGWEIR_FLEET: incarnation, wanted a whole number";
  }
  if (!isMeshName(mesh)) return "read PGWEIR_FLEET: mesh, wanted letters, digits, _ and -";
  if (typeof busUrl !== "string" || typeof busToken !== "string") {
    return "read PGWEIR_FLEET: busUrl and busToken, wanted texts";
  }
  if (typeof fleetSecret !== "string" || fleetSecret === "") {
    return "read PGWEIR_FLEET: fleetSecret, wanted a text";
  }
  const bus = { servers: busUrl.split(","), token: busToken === "" ? null : busToken };
  const pid = isWhole(supervisorPid) ? supervisorPid : 0;
  const supervisor = value["supervisor"] ?? "";
  if (supervisor !== "" && !isMeshName(supervisor)) {
    return "read PGWEIR_FLEET: supervisor, wanted letters, digits, _ and -";
  }
  return {
    index,
    count,
    workerId,
    incarnation,
    mesh,
    bus,
    fleetSecret,
    supervisor: supervisor as string,
    supervisorPid: pid,
  };
}
