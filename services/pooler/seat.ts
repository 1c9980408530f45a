// A worker's seat in a fleet, as the supervisor gives it in the environment variable PGWEIR_FLEET.
// Pure. Without one the worker is alone: one of one, no bus.

import { randomInt } from "node:crypto";
import { isMeshName, isWorkerId } from "../../shared/bus/mod.ts";

export interface FleetSeat {
  readonly index: number;
  readonly count: number;
  readonly workerId: number;
  readonly mesh: string;
  /** null = no bus. */
  readonly bus: { readonly url: string; readonly token: string } | null;
  /** The worker ends when this process is gone; 0 = nobody to watch. */
  readonly supervisorPid: number;
}

export function loneSeat(): FleetSeat {
  const workerId = randomInt(1, 0x8000);
  return { index: 0, count: 1, workerId, mesh: "default", bus: null, supervisorPid: 0 };
}

/** Reads the variable's JSON; a string says what is wrong with it. */
export function parseSeat(text: string): FleetSeat | string {
  let value: Record<string, unknown>;
  try {
    value = JSON.parse(text) as Record<string, unknown>;
  } catch {
    return "read PGWEIR_FLEET: not JSON";
  }
  const { index, count, workerId, mesh, busUrl, busToken, supervisorPid } = value;
  const isWhole = (number: unknown): number is number =>
    Number.isInteger(number) && (number as number) >= 0;
  if (!isWhole(count) || count < 1 || !isWhole(index) || index >= count) {
    return "read PGWEIR_FLEET: index and count, wanted 0 <= index < count";
  }
  if (!isWorkerId(workerId)) return "read PGWEIR_FLEET: workerId, wanted 0 to 32767";
  if (!isMeshName(mesh)) return "read PGWEIR_FLEET: mesh, wanted letters, digits, _ and -";
  if (typeof busUrl !== "string" || typeof busToken !== "string") {
    return "read PGWEIR_FLEET: busUrl and busToken, wanted texts";
  }
  const bus = { url: busUrl, token: busToken };
  return {
    index,
    count,
    workerId,
    mesh,
    bus,
    supervisorPid: isWhole(supervisorPid) ? supervisorPid : 0,
  };
}
