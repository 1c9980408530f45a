// PostgreSQL's md5 passwords: the stored secret "md5" + md5(password + user), and the response to a
// challenge, "md5" + md5(hex of the secret + salt). Weak by today's measure; kept for the servers and
// clients that have nothing else.

import { createHash, timingSafeEqual } from "node:crypto";
import { concatBytes } from "./messages.ts";
import { encodeUtf8 } from "./text.ts";

function md5Hex(...parts: Uint8Array[]): string {
  return createHash("md5").update(concatBytes(...parts)).digest("hex");
}

function toBytes(text: string | Uint8Array): Uint8Array {
  return typeof text === "string" ? encodeUtf8(text) : text;
}

/** The form stored in pg_authid and userlist files: "md5" and 32 hexadecimal digits. */
export function md5Secret(user: string, password: string | Uint8Array): string {
  return "md5" + md5Hex(toBytes(password), encodeUtf8(user));
}

/** True for text in the form of md5Secret. */
export function isMd5Secret(text: string): boolean {
  return /^md5[0-9a-f]{32}$/.test(text);
}

/** What a client answers to AuthenticationMD5Password, from the stored secret. */
export function md5Response(secret: string, salt: Uint8Array): string {
  return "md5" + md5Hex(encodeUtf8(secret.slice(3)), salt);
}

/** Whether `response` answers the challenge `salt`; compares in constant time. */
export function verifyMd5Response(
  secret: string,
  salt: Uint8Array,
  response: string | Uint8Array,
): boolean {
  const wanted = encodeUtf8(md5Response(secret, salt));
  const given = toBytes(response);
  return isMd5Secret(secret) && given.length === wanted.length && timingSafeEqual(given, wanted);
}
