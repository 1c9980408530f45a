// Builders of whole protocol messages, of both sides. They are for logins, errors, the console, our
// own queries and tests: traffic that is passed on is never rebuilt.
// A string with a NUL byte cannot be sent and would smuggle fields, so builders throw WireError for
// it; only errorResponse and noticeResponse, whose text may come from anywhere, replace it instead.

import { WireError } from "./errors.ts";
import { Backend, Frontend, writeInt16, writeInt32 } from "./frame.ts";
import { encodeUtf8 } from "./text.ts";

/** The bytes of all parts in one new array. */
export function concatBytes(...parts: readonly Uint8Array[]): Uint8Array {
  return join(parts);
}

function join(parts: readonly Uint8Array[]): Uint8Array {
  let length = 0;
  for (const part of parts) length += part.length;
  const whole = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** A message of any type from its body parts, e.g. `message(Backend.parseComplete)`. */
export function message(type: number, ...parts: readonly Uint8Array[]): Uint8Array {
  return build(type, parts);
}

// An array, not arguments: 65,535 values of a row are more arguments than a call may have.
function build(type: number, parts: readonly Uint8Array[]): Uint8Array {
  const whole = join([new Uint8Array(5), ...parts]);
  whole[0] = type;
  writeInt32(whole, 1, whole.length - 1);
  return whole;
}

function int32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  writeInt32(bytes, 0, value);
  return bytes;
}

function int16(value: number): Uint8Array {
  const bytes = new Uint8Array(2);
  writeInt16(bytes, 0, value);
  return bytes;
}

function count16(what: string, items: readonly unknown[]): Uint8Array {
  if (items.length > 0xffff) {
    throw new WireError(`build message: ${items.length} ${what}, wanted at most 65535`);
  }
  return int16(items.length);
}

function cString(text: string): Uint8Array {
  // The text is not quoted: it may be a password.
  if (text.includes("\0")) {
    throw new WireError("build message: string with a NUL byte, wanted none");
  }
  return encodeUtf8(text + "\0");
}

function sized(value: string | Uint8Array | null): Uint8Array {
  if (value === null) return int32(-1);
  const bytes = typeof value === "string" ? encodeUtf8(value) : value;
  return concatBytes(int32(bytes.length), bytes);
}

// Messages of a server

export type ErrorFields = {
  /** ERROR, FATAL, PANIC; for a notice WARNING, NOTICE, DEBUG, INFO, LOG. */
  severity: string;
  /** SQLSTATE, five characters. */
  code: string;
  message: string;
  detail?: string;
  hint?: string;
};

export function errorResponse(fields: ErrorFields): Uint8Array {
  return errorOrNotice(Backend.errorResponse, fields);
}

export function noticeResponse(fields: ErrorFields): Uint8Array {
  return errorOrNotice(Backend.noticeResponse, fields);
}

function errorOrNotice(type: number, fields: ErrorFields): Uint8Array {
  const field = (key: string, text: string) => `${key}${text.replaceAll("\0", "\ufffd")}\0`;
  let body = field("S", fields.severity) + field("V", fields.severity) + field("C", fields.code) +
    field("M", fields.message);
  if (fields.detail !== undefined) body += field("D", fields.detail);
  if (fields.hint !== undefined) body += field("H", fields.hint);
  return message(type, encodeUtf8(body + "\0"));
}

export function parameterStatus(name: string, value: string): Uint8Array {
  return message(Backend.parameterStatus, cString(name), cString(value));
}

export function readyForQuery(status: "I" | "T" | "E"): Uint8Array {
  return message(Backend.readyForQuery, encodeUtf8(status));
}

/** The secret has 4 bytes for a client of protocol 3.0 and 4 to 256 from 3.2 on. */
export function backendKeyData(processId: number, secret: Uint8Array): Uint8Array {
  if (secret.length < 4 || secret.length > 256) {
    throw new WireError(`build BackendKeyData: secret of ${secret.length} bytes, wanted 4 to 256`);
  }
  return message(Backend.backendKeyData, int32(processId), secret);
}

export function authenticationOk(): Uint8Array {
  return message(Backend.authentication, int32(0));
}

export function authenticationCleartext(): Uint8Array {
  return message(Backend.authentication, int32(3));
}

export function authenticationMd5(salt: Uint8Array): Uint8Array {
  if (salt.length !== 4) {
    throw new WireError(`build AuthenticationMD5Password: ${salt.length} bytes of salt, wanted 4`);
  }
  return message(Backend.authentication, int32(5), salt);
}

/** Offers SASL mechanisms, the preferred one first. */
export function authenticationSasl(mechanisms: readonly string[]): Uint8Array {
  const names = mechanisms.map(cString);
  return build(Backend.authentication, [int32(10), ...names, new Uint8Array(1)]);
}

export function authenticationSaslContinue(data: Uint8Array): Uint8Array {
  return message(Backend.authentication, int32(11), data);
}

export function authenticationSaslFinal(data: Uint8Array): Uint8Array {
  return message(Backend.authentication, int32(12), data);
}

/**
 * Tells a client the minor version that will be spoken, the lower of what it asked for and
 * latestProtocolMinor, and the protocol options that are not known.
 * On the wire the version is the whole number (3.0 = 196608), as PostgreSQL sends and libpq reads it.
 */
export function negotiateProtocolVersion(minor: number, names: readonly string[]): Uint8Array {
  const version = int32((3 << 16) | minor);
  const options = names.map(cString);
  return build(Backend.negotiateProtocolVersion, [version, int32(names.length), ...options]);
}

/** A result column; typeSize is PostgreSQL's typlen, negative for variable width. */
export type Column = { name: string; typeOid: number; typeSize: number };

/** Columns of no table, without type modifier, in text format. */
export function rowDescription(columns: readonly Column[]): Uint8Array {
  const parts = [count16("columns", columns)];
  for (const { name, typeOid, typeSize } of columns) {
    const noTable = new Uint8Array(6);
    const textFormat = int16(0);
    parts.push(cString(name), noTable, int32(typeOid), int16(typeSize), int32(-1), textFormat);
  }
  return build(Backend.rowDescription, parts);
}

export function dataRow(values: readonly (string | null)[]): Uint8Array {
  return build(Backend.dataRow, [count16("values", values), ...values.map(sized)]);
}

export function commandComplete(tag: string): Uint8Array {
  return message(Backend.commandComplete, cString(tag));
}

export function emptyQueryResponse(): Uint8Array {
  return message(Backend.emptyQuery);
}

// Messages of a client

export function queryMessage(sql: string): Uint8Array {
  return message(Frontend.query, cString(sql));
}

/** A clear-text password or an md5 response; bytes for a password that is not UTF-8. */
export function passwordMessage(password: string | Uint8Array): Uint8Array {
  if (typeof password === "string") return message(Frontend.password, cString(password));
  if (password.includes(0)) {
    throw new WireError("build password message: password with a NUL byte, wanted none");
  }
  return message(Frontend.password, password, new Uint8Array(1));
}

/** Chooses a mechanism; null data is "no initial response" (length -1). */
export function saslInitialResponse(mechanism: string, data: Uint8Array | null): Uint8Array {
  return message(Frontend.password, cString(mechanism), sized(data));
}

export function saslResponse(data: Uint8Array): Uint8Array {
  return message(Frontend.password, data);
}

export function terminateMessage(): Uint8Array {
  return message(Frontend.terminate);
}

export function syncMessage(): Uint8Array {
  return message(Frontend.sync);
}

export function flushMessage(): Uint8Array {
  return message(Frontend.flush);
}

export function parseMessage(
  name: string,
  sql: string,
  oids: readonly number[] = [],
): Uint8Array {
  const count = count16("parameter types", oids);
  return build(Frontend.parse, [cString(name), cString(sql), count, ...oids.map(int32)]);
}

/** Values in text format if strings or null, in binary if bytes; results in text unless said. */
export function bindMessage(
  portal: string,
  statement: string,
  values: readonly (string | Uint8Array | null)[] = [],
  resultFormats: readonly (0 | 1)[] = [],
): Uint8Array {
  const binary = values.some((value) => value instanceof Uint8Array);
  const formats = binary ? values.map((value) => value instanceof Uint8Array ? 1 : 0) : [];
  return build(Frontend.bind, [
    cString(portal),
    cString(statement),
    count16("parameter formats", formats),
    ...formats.map(int16),
    count16("parameters", values),
    ...values.map(sized),
    count16("result formats", resultFormats),
    ...resultFormats.map(int16),
  ]);
}

/** `kind` S is a statement, P a portal. */
export function describeMessage(kind: "S" | "P", name: string): Uint8Array {
  return message(Frontend.describe, cString(kind + name));
}

/** maxRows 0 = all. */
export function executeMessage(portal: string, maxRows: number): Uint8Array {
  return message(Frontend.execute, cString(portal), int32(maxRows));
}

/** `kind` S is a statement, P a portal. */
export function closeMessage(kind: "S" | "P", name: string): Uint8Array {
  return message(Frontend.close, cString(kind + name));
}

/** CopyData of either side. */
export function copyDataMessage(data: Uint8Array): Uint8Array {
  return message(Frontend.copyData, data);
}

/** CopyDone of either side. */
export function copyDoneMessage(): Uint8Array {
  return message(Frontend.copyDone);
}

export function copyFailMessage(reason: string): Uint8Array {
  return message(Frontend.copyFail, cString(reason));
}
