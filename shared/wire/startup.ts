// The initial packets of a connection: startup, SSLRequest, GSSENCRequest, CancelRequest, and the
// `options` startup parameter. Parsing and building only: which parameters are allowed, who may log
// in and how often negotiation may be asked for is decided elsewhere.
// Names and values must be UTF-8 (08P01 otherwise), so that two users are never mistaken for one;
// PostgreSQL takes any bytes here, but a pool name also travels the bus, logs and metrics as text.

import { WireError, type WireProblem, wireProblem } from "./errors.ts";
import { readInt32, writeInt32 } from "./frame.ts";
import { copyBytes, decodeUtf8, encodeUtf8, findNul } from "./text.ts";

const sslRequestCode = 80877103;
const gssRequestCode = 80877104;
const cancelRequestCode = 80877102;

/** The newest minor version of protocol 3 spoken here: 3.2, PostgreSQL 18's. */
export const latestProtocolMinor = 2;

/** PostgreSQL's MAX_STARTUP_PACKET_LENGTH, 10,000, does not count the length word. */
export const maxInitialPacketLength = 10_004;

export type InitialPacket =
  | { kind: "ssl" }
  | { kind: "gss" }
  /** The secret is a copy of 4 to 256 bytes. */
  | { kind: "cancel"; processId: number; secret: Uint8Array }
  | StartupPacket
  /** Text and SQLSTATE for a FATAL error; a damaged cancel is never answered, only closed. */
  | WireProblem;

export type StartupPacket = {
  kind: "startup";
  /** Always 3. */
  major: number;
  /** As asked for. NegotiateProtocolVersion is due if it is above latestProtocolMinor ... */
  minor: number;
  /** Never empty. */
  user: string;
  /** The user's name when the packet names none, as in PostgreSQL. */
  database: string;
  /** All name-value pairs, `user` and `database` included, without `_pq_.` ones; the last one wins. */
  parameters: Map<string, string>;
  /** ... or if this is not empty: names that begin with `_pq_.`, none of which is known here. */
  protocolOptions: string[];
};

/** What is wrong with the length word of an initial packet, or null. Allocates only if it is bad. */
export function initialPacketLengthProblem(length: number): string | null {
  if (length >= 8 && length <= maxInitialPacketLength) return null;
  return `invalid length of startup packet: ${length}, wanted 8 to ${maxInitialPacketLength}`;
}

/** Whether an initial packet of at least 8 bytes at `offset` is a CancelRequest, well-formed or not. */
export function isCancelRequest(bytes: Uint8Array, offset: number): boolean {
  return readInt32(bytes, offset + 4) === cancelRequestCode;
}

/** Parses one complete initial packet, `length` bytes at `offset`, its length word included. */
export function parseInitialPacket(
  bytes: Uint8Array,
  offset: number,
  length: number,
): InitialPacket {
  const lengthProblem = initialPacketLengthProblem(length);
  if (lengthProblem !== null) return wireProblem("08P01", lengthProblem);
  if (offset < 0 || offset + length > bytes.length || readInt32(bytes, offset) !== length) {
    return wireProblem("08P01", "invalid length of startup packet: not the length of the packet");
  }
  const code = readInt32(bytes, offset + 4);
  switch (code) {
    case sslRequestCode:
      return length === 8 ? { kind: "ssl" } : badLength("SSLRequest", length, "8");
    case gssRequestCode:
      return length === 8 ? { kind: "gss" } : badLength("GSSENCRequest", length, "8");
    case cancelRequestCode:
      if (length < 16 || length > 12 + 256) return badLength("CancelRequest", length, "16 to 268");
      return {
        kind: "cancel",
        processId: readInt32(bytes, offset + 8),
        secret: copyBytes(bytes, offset + 12, offset + length),
      };
  }
  const major = code >>> 16;
  const minor = code & 0xffff;
  if (major === 2) return wireProblem("0A000", "old V2 protocol not supported");
  if (major !== 3) {
    return wireProblem(
      "0A000",
      `unsupported frontend protocol ${major}.${minor}: ` +
        `server supports 3.0 to 3.${latestProtocolMinor}`,
    );
  }
  return parseParameters(bytes, offset + 8, offset + length, minor);
}

function badLength(what: string, length: number, wanted: string): WireProblem {
  return wireProblem("08P01", `invalid length of ${what}: ${length}, wanted ${wanted}`);
}

// Pairs of null-terminated strings, then one NUL that must be the last byte of the packet.
function parseParameters(
  bytes: Uint8Array,
  from: number,
  end: number,
  minor: number,
): StartupPacket | WireProblem {
  const parameters = new Map<string, string>();
  const protocolOptions: string[] = [];
  let at = from;
  while (at < end && bytes[at] !== 0) {
    const nameEnd = findNul(bytes, at, end);
    const valueEnd = nameEnd < 0 ? -1 : findNul(bytes, nameEnd + 1, end);
    if (valueEnd < 0) {
      at = end; // a name without value, or a string without end
      break;
    }
    const name = decodeUtf8(bytes.subarray(at, nameEnd));
    if (name === null) {
      return wireProblem("08P01", "invalid startup packet: parameter name is not valid UTF-8");
    }
    const value = decodeUtf8(bytes.subarray(nameEnd + 1, valueEnd));
    if (value === null) {
      const message = `invalid startup packet: value of parameter "${name}" is not valid UTF-8`;
      return wireProblem("08P01", message);
    }
    if (name.startsWith("_pq_.")) protocolOptions.push(name);
    else parameters.set(name, value);
    at = valueEnd + 1;
  }
  if (at !== end - 1) {
    const message = "invalid startup packet layout: expected terminator as last byte";
    return wireProblem("08P01", message);
  }
  const user = parameters.get("user") ?? "";
  if (user === "") return wireProblem("28000", "no username supplied");
  const database = parameters.get("database") || user;
  return { kind: "startup", major: 3, minor, user, database, parameters, protocolOptions };
}

/** The settings in an `options` parameter in order of appearance; the last of a name wins. */
export type StartupOptions = { kind: "options"; parameters: Map<string, string> } | WireProblem;

/**
 * Parses the `options` startup parameter: words separated by white space, a backslash takes the next
 * character literally; `-c name=value`, `-cname=value` and `--name=value` only, as in PgBouncer.
 * A dash in a name stands for an underscore, as in PostgreSQL. Names keep their case.
 */
export function parseOptions(text: string): StartupOptions {
  const parameters = new Map<string, string>();
  const words = splitOptions(text);
  for (let i = 0; i < words.length; i++) {
    const word = words[i]!;
    let setting: string | undefined;
    if (word === "-c") setting = words[++i];
    else if (word.startsWith("-c") || word.startsWith("--")) setting = word.slice(2);
    const equals = setting?.indexOf("=") ?? -1;
    if (setting === undefined || equals < 1) {
      const message = "unsupported options startup parameter: " +
        "only '-c config=val' and '--config=val' are allowed";
      return wireProblem("22023", message);
    }
    parameters.set(setting.slice(0, equals).replaceAll("-", "_"), setting.slice(equals + 1));
  }
  return { kind: "options", parameters };
}

// PostgreSQL's pg_split_opts, with the white space of C's isspace().
function splitOptions(text: string): string[] {
  const words: string[] = [];
  let word = "";
  let inWord = false;
  for (let i = 0; i < text.length; i++) {
    const char = text[i]!;
    if (" \t\n\v\f\r".includes(char)) {
      if (inWord) words.push(word);
      word = "";
      inWord = false;
      continue;
    }
    inWord = true;
    if (char === "\\") word += text[++i] ?? "";
    else word += char;
  }
  if (inWord) words.push(word);
  return words;
}

/** A startup packet of protocol 3.`minor`. Throws WireError for an empty name or an embedded NUL. */
export function startupPacket(
  parameters: Iterable<readonly [string, string]> | Record<string, string>,
  minor = 0,
): Uint8Array {
  const pairs = Symbol.iterator in parameters
    ? parameters as Iterable<readonly [string, string]>
    : Object.entries(parameters);
  let text = "";
  for (const [name, value] of pairs) {
    if (name === "" || name.includes("\0") || value.includes("\0")) {
      // The value is left out of the text: it may be a secret.
      throw new WireError(`build startup packet: parameter "${name}" is empty or has a NUL byte`);
    }
    text += `${name}\0${value}\0`;
  }
  const body = encodeUtf8(text + "\0");
  return request(8 + body.length, (3 << 16) | minor, body);
}

export function sslRequest(): Uint8Array {
  return request(8, sslRequestCode);
}

export function gssRequest(): Uint8Array {
  return request(8, gssRequestCode);
}

export function cancelRequest(processId: number, secret: Uint8Array): Uint8Array {
  const body = new Uint8Array(4 + secret.length);
  writeInt32(body, 0, processId);
  body.set(secret, 4);
  return request(8 + body.length, cancelRequestCode, body);
}

function request(length: number, code: number, body?: Uint8Array): Uint8Array {
  const packet = new Uint8Array(length);
  writeInt32(packet, 0, length);
  writeInt32(packet, 4, code);
  if (body) packet.set(body, 8);
  return packet;
}
