// Access rules (auth_hba_file) and user name maps (auth_ident_file): which clients have to prove who they are, and
// how. The first rule that matches a client decides; a client that none matches is refused.
//
//   rule      = type databases users [address [mask]] method [map=name]
//   type      = "local" (unix socket) | "host" | "hostssl" | "hostnossl"
//   databases = list of names, all, sameuser, replication, @file        users = list of names, all, @file
//   address   = all, IPv4 or IPv6 with /bits, or an address and a mask   (not for local)
//   method    = trust | reject | password | md5 | scram-sha-256 | peer | cert | ldap options | pam [pamservice=name]
//   map       = name system-user database-user, a line of the auth_ident_file; database-user may be all
//
// Words are separated by blanks, lists by commas; in double quotes ("" is one quote) a word is a name only; # begins
// a comment. Stricter than PgBouncer, which skips a line that it cannot read: the next one could let in whom that
// line was to keep out.

import type { ReadFile } from "./files.ts";
import { readText } from "./files.ts";
import { addressBytes, isInNetwork, type Network, parseNetwork } from "./network.ts";
import { type LdapOptions, ldapOptions } from "./ldap.ts";
import type { Problem } from "./problem.ts";
import { quote } from "./problem.ts";
import { didYouMean } from "./suggest.ts";

const TYPES = ["local", "host", "hostssl", "hostnossl"] as const;
const METHODS = [
  "trust",
  "reject",
  "password",
  "md5",
  "scram-sha-256",
  "peer",
  "cert",
  "ldap",
  "pam",
] as const;

export type HbaMethod = typeof METHODS[number];

/** The service that PAM is asked for unless a rule says otherwise, as in PgBouncer. */
export const PAM_SERVICE = "pgbouncer";

export interface HbaNames {
  /** every database or user */
  readonly all: boolean;
  /** the database of the user's own name */
  readonly sameuser: boolean;
  /** physical replication, which is no database, and which nothing else matches */
  readonly replication: boolean;
  readonly names: ReadonlySet<string>;
}

export interface HbaRule {
  readonly line: number;
  readonly type: typeof TYPES[number];
  readonly databases: HbaNames;
  readonly users: HbaNames;
  /** null: any */
  readonly network: Network | null;
  readonly method: HbaMethod;
  /** of the auth_ident_file; null: the names have to be the same */
  readonly map: string | null;
  /** with the method ldap */
  readonly ldap: LdapOptions | null;
  /** with the method pam: the service that PAM is asked for */
  readonly pamService: string | null;
}

export interface IdentEntry {
  readonly systemUser: string;
  /** null: all */
  readonly user: string | null;
}

export type IdentMaps = ReadonlyMap<string, readonly IdentEntry[]>;

/** What a rule looks at. */
export interface HbaClient {
  /** numeric, of the other end; null: a unix socket */
  readonly host: string | null;
  readonly tls: boolean;
  readonly database: string;
  readonly user: string;
  /** it asks for physical replication */
  readonly replication: boolean;
}

// --- matching

/** The rule that decides; null: none. */
export function matchHba(rules: readonly HbaRule[], client: HbaClient): HbaRule | null {
  const address = client.host === null ? null : addressBytes(client.host);
  return rules.find((rule) => matches(rule, client, address)) ?? null;
}

function matches(rule: HbaRule, client: HbaClient, address: readonly number[] | null): boolean {
  if ((rule.type === "local") !== (client.host === null)) return false;
  if (rule.type === "hostssl" && !client.tls) return false;
  if (rule.type === "hostnossl" && client.tls) return false;
  if (rule.network !== null && (address === null || !isInNetwork(rule.network, address))) {
    return false;
  }
  return isOneOf(rule.databases, client.database, client) &&
    (rule.users.all || rule.users.names.has(client.user));
}

function isOneOf(names: HbaNames, database: string, client: HbaClient): boolean {
  if (client.replication) return names.replication;
  return names.all || (names.sameuser && database === client.user) || names.names.has(database);
}

/** Whether the system user, or the name of a certificate, may log in as `user`. */
export function mapsToUser(
  maps: IdentMaps,
  map: string | null,
  systemUser: string,
  user: string,
): boolean {
  if (map === null) return systemUser === user;
  return (maps.get(map) ?? []).some((entry) =>
    entry.systemUser === systemUser && (entry.user === null || entry.user === user)
  );
}

// --- reading

export interface Hba {
  readonly rules: readonly HbaRule[];
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
}

export interface Ident {
  readonly maps: IdentMaps;
  readonly problems: readonly Problem[];
}

interface Word {
  readonly text: string;
  readonly quoted: boolean;
}

const MAX_INCLUDE_DEPTH = 10;
const MAX_NAMES = 1_000_000;

class Failure extends Error {}

function fail(message: string): never {
  throw new Failure(message);
}

const WORD = /(?:[^\s,"#]|"(?:[^"]|"")*")+/y;

/** The fields of a line, each a list of words. */
function fieldsOf(line: string): Word[][] {
  const fields: Word[][] = [];
  let at = 0;
  let continues = false;
  for (;;) {
    while (at < line.length && /\s/.test(line[at] as string)) at++;
    if (at === line.length || line[at] === "#") break;
    if (line[at] === ",") {
      if (continues || fields.length === 0) fail('a word is missing before ","');
      continues = true;
      at++;
      continue;
    }
    WORD.lastIndex = at;
    const raw = WORD.exec(line)?.[0];
    if (raw === undefined) fail("a quote is not closed");
    const behind = line[at + raw.length];
    if (behind === '"') fail("a quote is not closed");
    const unquoted = raw.replace(
      /"((?:[^"]|"")*)"/g,
      (_, inner: string) => inner.replaceAll('""', '"'),
    );
    const word = { text: unquoted, quoted: raw.startsWith('"') };
    if (continues) (fields.at(-1) as Word[]).push(word);
    else fields.push([word]);
    continues = false;
    at += raw.length;
  }
  if (continues) fail('a word is missing after ","');
  return fields;
}

/** Each line that holds something, with its number; what it throws as a Failure becomes a problem. */
function eachLine(
  text: string,
  file: string,
  problems: Problem[],
  read: (fields: Word[][], line: number) => void,
): void {
  let line = 0;
  for (const raw of text.split("\n")) {
    line++;
    try {
      if (/[\0\uFFFD]/.test(raw)) fail("line is not valid UTF-8, or holds a NUL character");
      const fields = fieldsOf(raw);
      if (fields.length > 0) read(fields, line);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      problems.push({ file, line, message: error.message });
    }
  }
}

/** The one word of a field. */
function single(field: Word[] | undefined, what: string): Word {
  const [word] = field ?? [];
  if (word === undefined) fail(`${what} is missing`);
  if ((field as Word[]).length > 1) fail(`${what} is a list, wanted one word`);
  return word;
}

/** Reads an auth_hba_file; `file` names it in messages, and @files are sought where it is. */
export function parseHba(text: string, file: string, readFile: ReadFile): Hba {
  const rules: HbaRule[] = [];
  const problems: Problem[] = [];
  const warnings: Problem[] = [];
  const reader = new NamesReader(readFile, file);
  eachLine(text, file, problems, (fields, line) => {
    const rule = parseRule(fields, line, reader);
    if (rule.method === "peer" && rule.type !== "local") {
      const message = "method peer is for unix sockets (local): nobody can log in by this rule";
      warnings.push({ file, line, message });
    }
    rules.push(Object.freeze(rule));
  });
  return { rules, problems, warnings };
}

function parseRule(fields: Word[][], line: number, reader: NamesReader): HbaRule {
  const { text: type } = single(fields.shift(), "the type");
  if (!isOne(TYPES, type)) {
    const also = /^host(no)?gssenc$/.test(type) ? ": there is no GSSAPI" : didYouMean(type, TYPES);
    fail(`type ${quote(type)} is not one of ${TYPES.join(", ")}${also}`);
  }
  const databases = reader.read(fields.shift(), "database", ["all", "sameuser", "replication"]);
  const users = reader.read(fields.shift(), "user", ["all"]);
  const network = type === "local" ? null : takeNetwork(fields);
  const method = methodOf(single(fields.shift(), "the method").text);
  const options = optionsOf(fields);
  const ldap = method === "ldap" ? ldapOf(options) : null;
  const pamService = method === "pam" ? pamServiceOf(options) : null;
  const map = ldap === null && pamService === null ? mapOf(options, method) : null;
  return { line, type, databases, users, network, method, map, ldap, pamService };
}

function isOne<const T extends string>(all: readonly T[], text: string): text is T {
  return (all as readonly string[]).includes(text);
}

function methodOf(text: string): HbaMethod {
  if (text === "plain") return "password";
  if (isOne(METHODS, text)) return text;
  const known = ["gss", "sspi", "ident", "radius", "bsd", "oauth"].includes(text);
  if (known) fail(`method ${quote(text)} is not supported: this version has ${METHODS.join(", ")}`);
  return fail(
    `method ${quote(text)} is not one of ${METHODS.join(", ")}${didYouMean(text, METHODS)}`,
  );
}

type Options = readonly (readonly [name: string, value: string])[];

function optionsOf(fields: Word[][]): Options {
  return fields.map((field) => {
    const { text } = single(field, "the option");
    const at = text.indexOf("=");
    return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
  });
}

function mapOf(options: Options, method: HbaMethod): string | null {
  let map: string | null = null;
  for (const [name, value] of options) {
    if (name !== "map" || (method !== "peer" && method !== "cert")) {
      fail(`method ${method} has no option ${quote(name)}`);
    }
    if (value === "") fail("option map names no map");
    map = value;
  }
  return map;
}

function ldapOf(options: Options): LdapOptions {
  const read = ldapOptions(options);
  if ("failure" in read) fail(read.failure);
  return read;
}

function pamServiceOf(options: Options): string {
  let service = PAM_SERVICE;
  for (const [name, value] of options) {
    if (name === "pam_use_hostname" && value === "0") continue;
    if (name === "pam_use_hostname") fail("pam_use_hostname is not supported: PAM gets addresses");
    if (name !== "pamservice") fail(`method pam has no option ${quote(name)}`);
    // It is the name of a file.
    if (!/^[\w.-]{1,64}$/.test(value)) fail(`pamservice ${quote(value)} is no name of a service`);
    service = value;
  }
  return service;
}

function takeNetwork(fields: Word[][]): Network | null {
  const { text, quoted } = single(fields.shift(), "the address");
  if (text === "all" && !quoted) return null;
  const network = parseNetwork(text);
  if (typeof network === "string") {
    const named = ["samehost", "samenet"].includes(text) ? "is not supported" : network;
    fail(`${quote(text)} ${named}: wanted all, address/bits, or an address and a mask`);
  }
  if (text.includes("/")) return network;
  const { bytes } = network;
  // Written as IPv6, it has no mask that could be written as one of IPv4.
  const isMapped = bytes.length === 4 && text.includes(":");
  const mask = single(fields.shift(), "the mask of the address").text;
  const maskBytes = addressBytes(mask);
  const bits = maskBytes === null || isMapped ? null : maskBits(maskBytes);
  if (maskBytes?.length !== bytes.length || bits === null) {
    fail(`${quote(mask)} is no mask for ${quote(text)}: wanted address/bits, or a mask behind it`);
  }
  return { bytes, bits };
}

/** How many ones a mask begins with; null: ones follow zeros. */
function maskBits(mask: readonly number[]): number | null {
  const bits = mask.map((byte) => byte.toString(2).padStart(8, "0")).join("");
  return /^1*0*$/.test(bits) ? bits.replaceAll("0", "").length : null;
}

class NamesReader {
  readonly #readFile: ReadFile;
  readonly #folder: string;

  constructor(readFile: ReadFile, file: string) {
    this.#readFile = readFile;
    this.#folder = file.includes("/") ? file.slice(0, file.lastIndexOf("/") + 1) : "";
  }

  read(field: Word[] | undefined, what: string, keywords: readonly string[]): HbaNames {
    if (field === undefined) fail(`the ${what} is missing`);
    const names = new Set<string>();
    const found = new Set<string>();
    this.#add(field, what, 0, ({ text, quoted }) => {
      if (!quoted && keywords.includes(text)) found.add(text);
      else if (!quoted && isGroup(text, what)) {
        fail(`${what} ${quote(text)}: groups and patterns are not supported, wanted names`);
      } else if (text === "") fail(`the ${what} is empty`);
      else if (names.add(text).size > MAX_NAMES) fail(`more than ${MAX_NAMES} names`);
    });
    return Object.freeze({
      all: found.has("all"),
      sameuser: found.has("sameuser"),
      replication: found.has("replication"),
      names,
    });
  }

  #add(words: readonly Word[], what: string, depth: number, add: (word: Word) => void): void {
    for (const word of words) {
      if (word.quoted || !word.text.startsWith("@")) {
        add(word);
        continue;
      }
      if (depth === MAX_INCLUDE_DEPTH) fail(`files include each other ${depth} deep`);
      const named = word.text.slice(1);
      const path = named.startsWith("/") ? named : this.#folder + named;
      const read = readText(path, this.#readFile);
      if ("failure" in read) fail(`read ${what}s from ${quote(path)}: ${read.failure}`);
      for (const [index, line] of read.text.split("\n").entries()) {
        try {
          this.#add(fieldsOf(line).flat(), what, depth + 1, add);
        } catch (error) {
          if (!(error instanceof Failure) || error.message.startsWith("in ")) throw error;
          fail(`in ${quote(path)}, line ${index + 1}: ${error.message}`);
        }
      }
    }
  }
}

function isGroup(text: string, what: string): boolean {
  return text.startsWith("/") || (what === "user" && text.startsWith("+")) ||
    (what === "database" && ["samerole", "samegroup"].includes(text));
}

/** Reads an auth_ident_file. */
export function parseIdent(text: string, file: string): Ident {
  const maps = new Map<string, IdentEntry[]>();
  const problems: Problem[] = [];
  eachLine(text, file, problems, (fields) => {
    const map = single(fields.shift(), "the map").text;
    const systemUser = single(fields.shift(), "the system user");
    const user = single(fields.shift(), "the database user");
    if (fields.length > 0) fail("more than three words");
    for (const { text, quoted } of [systemUser, user]) {
      if (!quoted && /^[/+]/.test(text)) {
        fail(`${quote(text)}: groups and patterns are not supported, wanted names`);
      }
    }
    const isAll = user.text === "all" && !user.quoted;
    const entry = Object.freeze({
      systemUser: systemUser.text,
      user: isAll ? null : user.text,
    });
    const entries = maps.get(map);
    if (entries === undefined) maps.set(map, [entry]);
    else entries.push(entry);
  });
  return { maps, problems };
}
