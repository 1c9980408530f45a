// Parsers of message bodies (the bytes behind the length word) that the pooler itself must
// understand: logins, errors, keys, reported settings, small results. What is only passed on is not
// parsed. Every parser takes any bytes: it never throws, never reads outside the body, takes linear
// time, and copies what it returns.

import { type WireProblem, wireProblem } from "./errors.ts";
import { readInt16, readInt32 } from "./frame.ts";
import { copyBytes, decodeUtf8, decodeUtf8Lossy, findNul } from "./text.ts";

export type ParsedError = {
  /** Not translated when the server says (field V); "" when missing. */
  severity: string;
  /** SQLSTATE; "XX000" when missing or not five digits and capitals. */
  code: string;
  /** "" when missing, like detail and hint. Bad UTF-8 is replaced: for people, not for decisions. */
  message: string;
  detail: string;
  hint: string;
};

/** Reads the body of an ErrorResponse or NoticeResponse, also a damaged one. */
export function parseErrorFields(body: Uint8Array): ParsedError {
  const fields = { S: "", V: "", C: "", M: "", D: "", H: "" };
  let at = 0;
  while (at < body.length && body[at] !== 0) {
    const key = String.fromCharCode(body[at]!);
    const nul = findNul(body, at + 1, body.length);
    const end = nul < 0 ? body.length : nul;
    if (key in fields) {
      fields[key as keyof typeof fields] = decodeUtf8Lossy(body.subarray(at + 1, end));
    }
    at = end + 1;
  }
  return {
    severity: fields.V || fields.S,
    code: /^[0-9A-Z]{5}$/.test(fields.C) ? fields.C : "XX000",
    message: fields.M,
    detail: fields.D,
    hint: fields.H,
  };
}

/** A reported setting, or null when the body is damaged or not UTF-8. */
export function parseParameterStatus(body: Uint8Array): { name: string; value: string } | null {
  const nameEnd = findNul(body, 0, body.length);
  const valueEnd = nameEnd < 0 ? -1 : findNul(body, nameEnd + 1, body.length);
  if (nameEnd < 1 || valueEnd !== body.length - 1) return null;
  const name = decodeUtf8(body.subarray(0, nameEnd));
  const value = decodeUtf8(body.subarray(nameEnd + 1, valueEnd));
  return name === null || value === null ? null : { name, value };
}

export type Authentication =
  | { kind: "ok" }
  | { kind: "cleartext" }
  | { kind: "md5"; salt: Uint8Array }
  | { kind: "sasl"; mechanisms: string[] }
  | { kind: "saslContinue"; data: Uint8Array }
  | { kind: "saslFinal"; data: Uint8Array }
  /** A method that is not spoken here: Kerberos, GSSAPI, SSPI ... */
  | { kind: "unsupported"; code: number }
  | WireProblem;

/** Reads the body of an Authentication message. */
export function parseAuthentication(body: Uint8Array): Authentication {
  if (body.length < 4) return damaged("Authentication");
  const code = readInt32(body, 0);
  switch (code) {
    case 0:
      return body.length === 4 ? { kind: "ok" } : damaged("Authentication");
    case 3:
      return body.length === 4 ? { kind: "cleartext" } : damaged("Authentication");
    case 5:
      return body.length === 8
        ? { kind: "md5", salt: copyBytes(body, 4, body.length) }
        : damaged("AuthenticationMD5Password");
    case 10:
      return parseMechanisms(body);
    case 11:
      return { kind: "saslContinue", data: copyBytes(body, 4, body.length) };
    case 12:
      return { kind: "saslFinal", data: copyBytes(body, 4, body.length) };
    default:
      return { kind: "unsupported", code };
  }
}

function parseMechanisms(body: Uint8Array): Authentication {
  const mechanisms: string[] = [];
  let at = 4;
  while (at < body.length && body[at] !== 0) {
    const end = findNul(body, at, body.length);
    if (end < 0) return damaged("AuthenticationSASL");
    mechanisms.push(decodeUtf8Lossy(body.subarray(at, end)));
    at = end + 1;
  }
  return at === body.length - 1 ? { kind: "sasl", mechanisms } : damaged("AuthenticationSASL");
}

function damaged(what: string): WireProblem {
  return wireProblem("08P01", `invalid ${what} message`);
}

/** A cancel key: 4 bytes of secret in protocol 3.0, 4 to 256 from 3.2 on; null when damaged. */
export function parseBackendKeyData(
  body: Uint8Array,
): { processId: number; secret: Uint8Array } | null {
  if (body.length < 8 || body.length > 260) return null;
  return { processId: readInt32(body, 0), secret: copyBytes(body, 4, body.length) };
}

/** The minor version that the server will speak and the options it does not know, or null. */
export function parseNegotiateProtocolVersion(
  body: Uint8Array,
): { minor: number; names: string[] } | null {
  if (body.length < 8 || readInt32(body, 0) >>> 16 !== 3) return null;
  const count = readInt32(body, 4);
  const names: string[] = [];
  let at = 8;
  while (at < body.length) {
    const end = findNul(body, at, body.length);
    if (end < 0) return null;
    names.push(decodeUtf8Lossy(body.subarray(at, end)));
    at = end + 1;
  }
  return names.length === count ? { minor: readInt32(body, 0) & 0xffff, names } : null;
}

/** The words of a command tag ("INSERT", "CREATE TABLE") and its row count, null if it has none. */
export type CommandTag = { tag: string; command: string; rows: number | null };

/** Reads the body of a CommandComplete; a damaged one gives what text there is. */
export function parseCommandTag(body: Uint8Array): CommandTag {
  const nul = findNul(body, 0, body.length);
  const tag = decodeUtf8Lossy(nul < 0 ? body : body.subarray(0, nul));
  // "SELECT 5", "INSERT 0 5" (the zero was once an oid), "CREATE TABLE". At most two numbers.
  const words = tag.split(" ");
  const numbers: string[] = [];
  while (words.length > 1 && numbers.length < 2 && /^[0-9]{1,20}$/.test(words[words.length - 1]!)) {
    numbers.push(words.pop()!);
  }
  return { tag, command: words.join(" "), rows: numbers.length > 0 ? Number(numbers[0]) : null };
}

/** Names and types of a RowDescription's columns, or null when damaged. */
export function parseRowDescription(
  body: Uint8Array,
): { name: string; typeOid: number; typeSize: number; format: number }[] | null {
  if (body.length < 2) return null;
  const count = readInt16(body, 0) & 0xffff;
  const columns = [];
  let at = 2;
  for (let i = 0; i < count; i++) {
    const end = findNul(body, at, body.length);
    if (end < 0 || end + 19 > body.length) return null;
    columns.push({
      name: decodeUtf8Lossy(body.subarray(at, end)),
      typeOid: readInt32(body, end + 7) >>> 0,
      typeSize: readInt16(body, end + 11),
      format: readInt16(body, end + 17),
    });
    at = end + 19;
  }
  return at === body.length ? columns : null;
}

/** The values of a DataRow as bytes, null for NULL; null as a whole when damaged. */
export function parseDataRow(body: Uint8Array): (Uint8Array | null)[] | null {
  if (body.length < 2) return null;
  const count = readInt16(body, 0) & 0xffff;
  const values: (Uint8Array | null)[] = [];
  let at = 2;
  for (let i = 0; i < count; i++) {
    if (body.length - at < 4) return null;
    const size = readInt32(body, at);
    at += 4;
    if (size === -1) {
      values.push(null);
      continue;
    }
    // Compared with what is left: "at + size" could pass for small after an overflow elsewhere.
    if (size < 0 || size > body.length - at) return null;
    values.push(copyBytes(body, at, at + size));
    at += size;
  }
  return at === body.length ? values : null;
}

export type PasswordMessage = { kind: "password"; password: Uint8Array } | WireProblem;

/** Reads a clear-text password or md5 response: bytes, since its encoding is the client's. */
export function parsePassword(body: Uint8Array): PasswordMessage {
  if (body.length === 0 || findNul(body, 0, body.length) !== body.length - 1) {
    return wireProblem("08P01", "invalid password packet size");
  }
  return { kind: "password", password: copyBytes(body, 0, body.length - 1) };
}

export type SaslInitialResponse =
  | { kind: "saslInitial"; mechanism: string; data: Uint8Array | null }
  | WireProblem;

/** Reads a SASLInitialResponse; null data is "no initial response" (a length of -1). */
export function parseSaslInitialResponse(body: Uint8Array): SaslInitialResponse {
  const end = findNul(body, 0, body.length);
  if (end < 0 || body.length - end - 1 < 4) return damaged("SASLInitialResponse");
  const mechanism = decodeUtf8Lossy(body.subarray(0, end));
  const size = readInt32(body, end + 1);
  const left = body.length - end - 5;
  if (size === -1 && left === 0) return { kind: "saslInitial", mechanism, data: null };
  if (size !== left) return damaged("SASLInitialResponse");
  return { kind: "saslInitial", mechanism, data: copyBytes(body, end + 5, body.length) };
}
