// Bytes to messages and back: MessagePack maps with a version. Pure, no logging: the caller counts
// and reports what is refused.
// Invariants: nothing larger than the bound of its kind is decoded or sent; what comes out passed the
// check of its kind; the memory a hostile payload makes us allocate is bounded.

import { Decoder, encode } from "@msgpack/msgpack";
import { BusError } from "./errors.ts";
import type { Fields, Payload } from "./payload.ts";
import { isModest } from "./payload_shape.ts";

/** Of a payload whose kind has no bound of its own. */
export const maxPayloadBytes = 64 * 1024;

/** Why a payload was refused. */
export type Refusal = "too_large" | "malformed" | "newer_version";

export type Decoded<M> =
  | { readonly ok: true; readonly message: M }
  | { readonly ok: false; readonly refusal: Refusal };

const decoder = new Decoder({ maxExtLength: 0 });

function refused(refusal: Refusal): { ok: false; refusal: Refusal } {
  return { ok: false, refusal };
}

export function decodePayload<M>(kind: Payload<M>, bytes: Uint8Array): Decoded<M> {
  if (bytes.length > (kind.maxBytes ?? maxPayloadBytes)) return refused("too_large");
  if (!isModest(bytes)) return refused("malformed");
  let raw: unknown;
  try {
    raw = decoder.decode(bytes);
  } catch {
    return refused("malformed");
  }
  if (typeof raw !== "object" || raw === null || Array.isArray(raw)) return refused("malformed");
  const fields = raw as Fields;
  const version = fields.v;
  if (!Number.isSafeInteger(version) || (version as number) < 1) return refused("malformed");
  if ((version as number) > kind.version) return refused("newer_version");
  const message = kind.check(kind.wire?.unpack(fields) ?? fields);
  return message === null ? refused("malformed") : { ok: true, message };
}

/** Throws `INVALID` for a message its own kind would refuse: the receiver would only drop it. */
export function encodePayload<M extends object>(kind: Payload<M>, message: M): Uint8Array {
  const clean = kind.check(message as Fields);
  if (clean === null) {
    throw new BusError("INVALID", `encode ${kind.name}: a field is missing or out of range`);
  }
  const bytes = encode({ v: kind.version, ...kind.wire?.pack(clean) ?? clean });
  const maxBytes = kind.maxBytes ?? maxPayloadBytes;
  if (bytes.length > maxBytes) {
    throw new BusError(
      "INVALID",
      `encode ${kind.name}: is ${bytes.length} bytes, wanted at most ${maxBytes}`,
    );
  }
  return bytes;
}
