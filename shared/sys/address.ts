// Socket addresses: numeric text <-> the kernel's sockaddr_in, sockaddr_in6 and sockaddr_un.
// No name is ever resolved here. Pure, but for the index of a named interface (fe80::1%eth0).
// Invariant: an IPv4 address mapped into IPv6 reads as IPv4, so that "*" and "0.0.0.0" look alike to
// whoever compares addresses.

import { readFileSync } from "node:fs";
import { AF_INET, AF_INET6, AF_UNIX } from "./libc.ts";

export interface SocketAddress {
  /** Numeric, or "unix". */
  readonly host: string;
  /** 0 for unix sockets. */
  readonly port: number;
}

/** host:port, and [host]:port for IPv6. */
export function hostPort(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/** The size of the largest address here, sockaddr_un. */
export const ADDRESS_BYTES = 110;
/** sun_path, less the terminating zero of a path in the file system. */
const MAX_UNIX_PATH_BYTES = 107;

const MAPPED_PREFIX = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/** "10.1.2.3" -> its 4 bytes; null when it is not one. */
export function parseIpv4(text: string): number[] | null {
  const parts = text.split(".");
  if (parts.length !== 4) return null;
  const bytes: number[] = [];
  for (const part of parts) {
    // No leading zeros: some systems read them as octal.
    if (!/^(0|[1-9][0-9]{0,2})$/.test(part)) return null;
    const value = Number(part);
    if (value > 255) return null;
    bytes.push(value);
  }
  return bytes;
}

/** "2001:db8::1", "::ffff:10.1.2.3" -> its 16 bytes; null when it is not one. No %scope. */
export function parseIpv6(text: string): number[] | null {
  const halves = text.split("::");
  if (halves.length > 2) return null;
  const head = parseGroups(halves[0]!, halves.length === 1);
  if (head === null) return null;
  if (halves.length === 1) return head.length === 16 ? head : null;
  const tail = parseGroups(halves[1]!, true);
  if (tail === null) return null;
  const missing = 16 - head.length - tail.length;
  // "::" stands for at least one group.
  if (missing < 2) return null;
  return [...head, ...new Array<number>(missing).fill(0), ...tail];
}

function parseGroups(text: string, mayEndInIpv4: boolean): number[] | null {
  if (text === "") return [];
  const bytes: number[] = [];
  const groups = text.split(":");
  for (const [index, group] of groups.entries()) {
    if (/^[0-9a-fA-F]{1,4}$/.test(group)) {
      const value = Number.parseInt(group, 16);
      bytes.push(value >> 8, value & 0xff);
      continue;
    }
    const ipv4 = mayEndInIpv4 && index === groups.length - 1 ? parseIpv4(group) : null;
    if (ipv4 === null) return null;
    bytes.push(...ipv4);
  }
  return bytes;
}

/** 16 bytes -> the canonical text of RFC 5952. */
export function formatIpv6(bytes: readonly number[]): string {
  const groups: number[] = [];
  for (let i = 0; i < 16; i += 2) groups.push((bytes[i]! << 8) | bytes[i + 1]!);
  let bestStart = -1;
  let bestLength = 1;
  for (let start = 0; start < 8; start++) {
    let length = 0;
    while (start + length < 8 && groups[start + length] === 0) length++;
    if (length > bestLength) {
      bestStart = start;
      bestLength = length;
    }
  }
  const hex = (part: number[]) => part.map((group) => group.toString(16)).join(":");
  if (bestStart < 0) return hex(groups);
  return `${hex(groups.slice(0, bestStart))}::${hex(groups.slice(bestStart + bestLength))}`;
}

/**
 * Writes the sockaddr of a numeric address into `into` and returns its length; null when `host` is
 * not a numeric address.
 */
export function writeInetAddress(into: Uint8Array, host: string, port: number): number | null {
  const ipv4 = parseIpv4(host);
  if (ipv4 !== null) {
    into.fill(0, 0, 16);
    writeFamilyAndPort(into, AF_INET, port);
    into.set(ipv4, 4);
    return 16;
  }
  const percent = host.indexOf("%");
  const ipv6 = parseIpv6(percent < 0 ? host : host.slice(0, percent));
  if (ipv6 === null) return null;
  const scope = percent < 0 ? 0 : interfaceIndex(host.slice(percent + 1));
  if (scope === null) return null;
  into.fill(0, 0, 28);
  writeFamilyAndPort(into, AF_INET6, port);
  into.set(ipv6, 8);
  new DataView(into.buffer, into.byteOffset).setUint32(24, scope, true);
  return 28;
}

/**
 * Writes the sockaddr of a unix socket ("@name" = abstract) into `into` and returns its length; null
 * when the path is empty or too long.
 */
export function writeUnixAddress(into: Uint8Array, path: string): number | null {
  const bytes = new TextEncoder().encode(path);
  const isAbstract = path.startsWith("@");
  if (bytes.length < (isAbstract ? 2 : 1) || bytes.length > MAX_UNIX_PATH_BYTES) return null;
  if (bytes.includes(0)) return null;
  into.fill(0, 0, ADDRESS_BYTES);
  into[0] = AF_UNIX;
  into.set(bytes, 2);
  if (!isAbstract) return 2 + bytes.length + 1;
  into[2] = 0;
  return 2 + bytes.length;
}

/** Reads a sockaddr that the kernel wrote. */
export function readAddress(from: Uint8Array): SocketAddress {
  const family = from[0]! | (from[1]! << 8);
  const port = (from[2]! << 8) | from[3]!;
  if (family === AF_INET) return { host: from.subarray(4, 8).join("."), port };
  if (family === AF_INET6) {
    const bytes = [...from.subarray(8, 24)];
    if (MAPPED_PREFIX.every((byte, index) => bytes[index] === byte)) {
      return { host: bytes.slice(12).join("."), port };
    }
    return { host: formatIpv6(bytes), port };
  }
  if (family === AF_UNIX) return { host: "unix", port: 0 };
  throw new Error(`read a socket address: the family is ${family}, wanted IPv4, IPv6 or unix`);
}

function writeFamilyAndPort(into: Uint8Array, family: number, port: number): void {
  into[0] = family;
  into[2] = port >> 8;
  into[3] = port & 0xff;
}

function interfaceIndex(name: string): number | null {
  if (/^[0-9]{1,9}$/.test(name)) return Number(name);
  if (!/^[A-Za-z0-9_.-]{1,15}$/.test(name) || name === "." || name === "..") return null;
  try {
    return Number(readFileSync(`/sys/class/net/${name}/ifindex`, "latin1"));
  } catch {
    return null;
  }
}
