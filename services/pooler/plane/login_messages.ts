// What the messages of clients that log in say, and what is said of those that say nothing. Pure.

import { readInt32, type WireProblem } from "../../../shared/wire/mod.ts";
import { badHeaderText } from "./log_lines.ts";
import type { Refusal } from "./refusals.ts";

const lossy = new TextDecoder();

/** What is no packet to PgBouncer has no name there. */
export function initialRefusal(problem: WireProblem, bytes: Uint8Array, at: number): Refusal {
  const { sqlstate: code, message } = problem;
  const isUnknown = message.startsWith("unsupported frontend protocol");
  return isUnknown
    ? { code, message, logged: badHeaderText(bytes, at, at + 8) }
    : { code, message };
}

export function withoutZero(body: Uint8Array): Uint8Array {
  return body[body.length - 1] === 0 ? body.subarray(0, body.length - 1) : body;
}

export function saslInitial(body: Uint8Array): { mechanism: string; data: Uint8Array } | null {
  const zero = body.indexOf(0);
  if (zero < 0 || body.length - zero - 1 < 4) return null;
  const length = readInt32(body, zero + 1);
  const data = body.slice(zero + 5);
  // -1 (no initial response) is of no use with SCRAM: the client speaks first.
  if (length !== data.length) return null;
  return { mechanism: lossy.decode(body.slice(0, zero)), data };
}
