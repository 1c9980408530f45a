// The saved form of what one worker is charged: the key it has in the store and the MessagePack value.
// Pure. A later leader starts from these; whoever wrote a value is named in it, so that a writer whose
// answer was lost knows its own again.

import { decode, Encoder } from "@msgpack/msgpack";
import { type Charge, type Charges, isCount } from "../../shared/ledger/mod.ts";

/** The machine a worker runs on, and which of its runs since it was switched on. */
export interface Place {
  readonly host: string;
  readonly boot: string;
}

export interface SavedCharges {
  readonly worker: number;
  readonly incarnation: number;
  readonly charges: Charges;
  /** null: never heard. */
  readonly place: Place | null;
  /** Its process has ended; what is left are backends that have not noticed yet. */
  readonly gone: boolean;
}

/** Who wrote a value: the leader, and the number of its write. */
export interface Writer {
  readonly epoch: number;
  readonly name: string;
  readonly write: number;
}

export const chargesPrefix = "charges.";
// Made once: thousands of values may be written in a second.
const encoder = new Encoder();
const keyForm = /^charges\.([0-9]{1,5})\.([0-9]{1,16})$/;

export function chargesKey(worker: number, incarnation: number): string {
  return `${chargesPrefix}${worker}.${incarnation}`;
}

export function encodeCharges(saved: SavedCharges, writer: Writer): Uint8Array {
  const leaves: (string | number)[] = [];
  for (const [leaf, { charge, floor }] of saved.charges) leaves.push(leaf, charge, floor);
  const { epoch, name, write } = writer;
  const { host = "", boot = "" } = saved.place ?? {};
  return encoder.encode({ v: 1, epoch, name, write, host, boot, gone: saved.gone, leaves });
}

/** null: written by something newer than this, or not by a coordinator. */
export function decodeCharges(
  key: string,
  value: Uint8Array,
): { readonly saved: SavedCharges; readonly writer: Writer } | null {
  const [, worker, incarnation] = keyForm.exec(key) ?? [];
  let raw: unknown;
  try {
    raw = decode(value);
  } catch {
    return null;
  }
  if (typeof raw !== "object" || raw === null || worker === undefined) return null;
  const { v, epoch, name, write, host, boot, gone, leaves } = raw as Record<string, unknown>;
  const charges = readLeaves(leaves);
  if (
    v !== 1 || !isCount(epoch) || typeof name !== "string" || !isCount(write) ||
    typeof host !== "string" || typeof boot !== "string" || charges === null
  ) return null;
  return {
    saved: {
      worker: Number(worker),
      incarnation: Number(incarnation),
      charges,
      place: boot === "" ? null : { host, boot },
      gone: gone === true,
    },
    writer: { epoch, name, write },
  };
}

function readLeaves(raw: unknown): Map<string, Charge> | null {
  if (!Array.isArray(raw) || raw.length % 3 !== 0) return null;
  const charges = new Map<string, Charge>();
  for (let at = 0; at < raw.length; at += 3) {
    const [leaf, charge, floor] = raw.slice(at, at + 3);
    if (typeof leaf !== "string" || !isCount(charge) || !isCount(floor)) return null;
    charges.set(leaf, { charge, floor });
  }
  return charges;
}
