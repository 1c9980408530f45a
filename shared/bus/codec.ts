// Bytes to messages and back: MessagePack maps with a version. Pure, no logging: the caller counts
// and reports what is refused.
// Invariants: nothing larger than the bound of its kind is decoded or sent; what comes out passed the
// check of its kind; the memory a hostile payload makes us allocate is bounded.

import { Decoder, encode } from "@msgpack/msgpack";
import { BusError } from "./errors.ts";
import type { Payload } from "./payload.ts";

/** Of a payload whose kind has no bound of its own. */
export const maxPayloadBytes = 64 * 1024;

/** Why a payload was refused. */
export type Refusal = "too_large" | "malformed" | "newer_version";

export type Decoded<M> =
  | { readonly ok: true; readonly message: M }
  | { readonly ok: false; readonly refusal: Refusal };

// The decoder allocates an array at its declared length before it reads the items, and arrays nest:
// the bound on the length keeps 64 KiB of nested headers from costing hundreds of megabytes.
const decoder = new Decoder({
  maxStrLength: maxPayloadBytes,
  maxBinLength: maxPayloadBytes,
  maxArrayLength: 256,
  maxMapLength: 1024,
  maxExtLength: 0,
});

function refused(refusal: Refusal): { ok: false; refusal: Refusal } {
  return { ok: false, refusal };
}

export function decodePayload<M>(kind: Payload<M>, bytes: Uint8Array): Decoded<M> {
  if (bytes.length > maxPayloadBytes) return refused("too_large");
  let raw: unknown;
  try {
    raw = decoder.decode(bytes);
  } catch {
    return refused("malformed");
  }
  if (typeof raw !== "object" || raw === null || Array.isArray(raw)) return refused("malformed");
  const fields = raw as Readonly<Record<string, unknown>>;
  const version = fields.v;
  if (!Number.isSafeInteger(version) || (version as number) < 1) return refused("malformed");
  if ((version as number) > kind.version) return refused("newer_version");
  const message = kind.check(fields);
  return message === null ? refused("malformed") : { ok: true, message };
}

/** Throws `INVALID` for a message its own kind would refuse: the receiver would only drop it. */
export function encodePayload<M extends object>(kind: Payload<M>, message: M): Uint8Array {
  const clean = kind.check(message as Readonly<Record<string, unknown>>);
  if (clean === null) {
    throw new BusError("INVALID", `encode ${kind.name}: a field is missing or out of range`);
  }
  const bytes = encode({ v: kind.version, ...clean });
  if (bytes.length > maxPayloadBytes) {
    throw new BusError(
      "INVALID",
      `encode ${kind.name}: is ${bytes.length} bytes, wanted at most ${maxPayloadBytes}`,
    );
  }
  return bytes;
}
