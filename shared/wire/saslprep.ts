// SASLprep (RFC 4013) of passwords, as PostgreSQL does it: a password that the profile refuses, or
// that is not UTF-8, is used as it is. Not for user names: PostgreSQL takes those from the startup
// packet, unprepared.

import {
  isLeftToRight,
  isMappedToNothing,
  isNonAsciiSpace,
  isProhibited,
  isRightToLeft,
  isUnassigned,
} from "./stringprep_tables.ts";
import { decodeUtf8, encodeUtf8 } from "./text.ts";

/**
 * The password in its normal form, or unchanged when SASLprep prohibits it.
 * Three habits of PostgreSQL are kept, since both ends must hash the same bytes: ASCII is never
 * changed (control characters included), U+200B becomes a space, and prohibited, unassigned and
 * right-to-left characters are looked for before normalisation instead of after it.
 */
export function saslprep(password: string): string {
  // deno-lint-ignore no-control-regex
  if (/^[\x00-\x7f]*$/.test(password)) return password;
  const mapped: number[] = [];
  for (const character of password) {
    const codePoint = character.codePointAt(0)!;
    if (isNonAsciiSpace(codePoint)) mapped.push(0x20);
    else if (!isMappedToNothing(codePoint)) mapped.push(codePoint);
  }
  if (mapped.length === 0) return password;
  if (mapped.some((codePoint) => isProhibited(codePoint) || isUnassigned(codePoint))) {
    return password;
  }
  if (mapped.some(isRightToLeft)) {
    const ends = isRightToLeft(mapped[0]!) && isRightToLeft(mapped[mapped.length - 1]!);
    if (!ends || mapped.some(isLeftToRight)) return password;
  }
  return mapped.map((codePoint) => String.fromCodePoint(codePoint)).join("").normalize("NFKC");
}

/** The bytes that SCRAM hashes: prepared if the password is UTF-8, else as they are. */
export function preparePassword(password: string | Uint8Array): Uint8Array {
  const text = typeof password === "string" ? password : decodeUtf8(password);
  return text === null ? password as Uint8Array : encodeUtf8(saslprep(text));
}
