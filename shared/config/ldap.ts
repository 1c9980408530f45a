// How passwords are checked with an LDAP server: the options of auth_ldap_options and of the method ldap in
// auth_hba_file, which are PostgreSQL's own. Either the name that is bound to is made of the user's (ldapprefix,
// ldapsuffix), or it is looked for first (ldapbasedn, or ldapurl). Pure; who asks the server is in services/pooler.

import { quote } from "./problem.ts";
import { didYouMean } from "./suggest.ts";

export type LdapScope = "base" | "one" | "sub";

export interface LdapServer {
  readonly host: string;
  readonly port: number;
}

export interface LdapSearch {
  readonly baseDn: string;
  readonly scope: LdapScope;
  /** holds $username, which stands for the user */
  readonly filter: string;
  /** who searches; "" = nobody (an anonymous bind) */
  readonly bindDn: string;
}

export interface LdapOptions {
  /** tried in this order */
  readonly servers: readonly LdapServer[];
  /** "start": the connection is turned into one before anything else is sent; "direct": ldaps */
  readonly tls: "none" | "start" | "direct";
  /** the name that is bound to is prefix, user, suffix; null = it is looked for */
  readonly template: { readonly prefix: string; readonly suffix: string } | null;
  readonly search: LdapSearch | null;
  /** of who searches */
  readonly bindPassword: string;
}

export type LdapPairs = readonly (readonly [name: string, value: string])[];

const NAMES = [
  "ldapserver",
  "ldapport",
  "ldapscheme",
  "ldaptls",
  "ldapprefix",
  "ldapsuffix",
  "ldapbasedn",
  "ldapbinddn",
  "ldapbindpasswd",
  "ldapsearchattribute",
  "ldapsearchfilter",
  "ldapurl",
] as const;

type Name = typeof NAMES[number];
type Values = { [name in Name]?: string };

const defaultPort = { ldap: 389, ldaps: 636 } as const;

class Failure extends Error {}

function fail(message: string): never {
  throw new Failure(message);
}

/** Reads the text of auth_ldap_options: name=value or name="value", with blanks or commas between. */
export function parseLdapOptions(text: string): LdapOptions | { readonly failure: string } {
  const pairs: [string, string][] = [];
  const option = /[\s,]*("(?:[^"]|"")*"|[^\s,"=]+)=("(?:[^"]|"")*"|(?!")[^\s,"]*)(?=[\s,]|$)/y;
  const unquoted = (word: string) =>
    word.startsWith('"') ? word.slice(1, -1).replaceAll('""', '"') : word;
  let at = 0;
  while (/[^\s,]/.test(text.slice(at))) {
    option.lastIndex = at;
    const found = option.exec(text);
    // What stands there may be the rest of a secret: it is not repeated.
    if (found === null) return { failure: `option ${pairs.length + 1} is not name="value"` };
    pairs.push([unquoted(found[1] as string), unquoted(found[2] as string)]);
    at = option.lastIndex;
  }
  return ldapOptions(pairs);
}

/** What the options come to, or what is wrong with them; no value of a secret is repeated. */
export function ldapOptions(pairs: LdapPairs): LdapOptions | { readonly failure: string } {
  try {
    return Object.freeze(read(pairs));
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return { failure: error.message };
  }
}

function read(pairs: LdapPairs): LdapOptions {
  const values: Values = {};
  let scope: LdapScope = "sub";
  let previous = "";
  for (const [name, value] of pairs) {
    if (!(NAMES as readonly string[]).includes(name)) {
      // It may be the rest of the secret.
      if (previous === "ldapbindpasswd") {
        fail("unknown option after ldapbindpasswd, a value with blanks needs double quotes");
      }
      fail(`there is no LDAP option ${quote(name)}${didYouMean(name, NAMES)}`);
    }
    previous = name;
    // As if it were not there: an empty ldapsuffix beside a ldapprefix is usual.
    if (value === "") continue;
    if (name !== "ldapurl") {
      values[name as Name] = value;
      continue;
    }
    const url = readUrl(value);
    Object.assign(values, url.values);
    scope = url.scope;
  }
  const scheme = values.ldapscheme ?? "ldap";
  if (scheme !== "ldap" && scheme !== "ldaps") {
    fail(`ldapscheme ${quote(scheme)} is not ldap or ldaps`);
  }
  const startTls = values.ldaptls ?? "0";
  if (startTls !== "0" && startTls !== "1") fail(`ldaptls ${quote(startTls)} is not 0 or 1`);
  if (startTls === "1" && scheme === "ldaps") fail("ldaptls = 1 is not for ldaps, which is TLS");
  const bindPassword = values.ldapbindpasswd ?? "";
  const tls = startTls === "1" ? "start" : scheme === "ldaps" ? "direct" : "none";
  const search = readSearch(values, scope);
  return {
    servers: readServers(values, defaultPort[scheme]),
    tls,
    template: search === null
      ? { prefix: values.ldapprefix ?? "", suffix: values.ldapsuffix ?? "" }
      : null,
    search,
    bindPassword,
  };
}

function readServers({ ldapserver = "", ldapport }: Values, usual: number): LdapServer[] {
  const port = ldapport === undefined ? usual : portOf("ldapport", ldapport);
  const hosts = ldapserver.split(/\s+/).filter((host) => host !== "");
  if (hosts.length === 0) fail("ldapserver is missing: wanted one host, or several with blanks");
  return hosts.map((host) => {
    // An IPv6 address stands in brackets, or alone.
    const [, bracketed, name = host, own] = /^(?:\[([^\]]+)\]|([^:]+)):([0-9]{1,5})$/.exec(host) ??
      /^\[([^\]]+)\]$/.exec(host) ?? [];
    return { host: bracketed ?? name, port: own === undefined ? port : portOf("ldapserver", own) };
  });
}

function portOf(name: Name, text: string): number {
  const port = /^[0-9]{1,5}$/.test(text) ? Number(text) : 0;
  if (port < 1 || port > 65535) fail(`${name}: the port ${quote(text)} is not from 1 to 65535`);
  return port;
}

/** null: the name is made of the user's. */
function readSearch(values: Values, scope: LdapScope): LdapSearch | null {
  const { ldapbasedn, ldapbinddn, ldapbindpasswd, ldapsearchattribute, ldapsearchfilter } = values;
  if (values.ldapprefix !== undefined || values.ldapsuffix !== undefined) {
    const others = [
      ldapbasedn,
      ldapbinddn,
      ldapbindpasswd,
      ldapsearchattribute,
      ldapsearchfilter,
    ];
    if (others.some((other) => other !== undefined)) {
      fail(
        "cannot use ldapbasedn, ldapbinddn, ldapbindpasswd, ldapsearchattribute, ldapsearchfilter, " +
          "or ldapurl together with ldapprefix or ldapsuffix",
      );
    }
    return null;
  }
  if (ldapbasedn === undefined) {
    fail("one of ldapbasedn, ldapurl, ldapprefix and ldapsuffix is needed");
  }
  if (ldapsearchattribute !== undefined && ldapsearchfilter !== undefined) {
    fail("cannot use ldapsearchattribute together with ldapsearchfilter");
  }
  if (ldapsearchattribute !== undefined && !/^[A-Za-z0-9][\w.;-]*$/.test(ldapsearchattribute)) {
    fail(`ldapsearchattribute ${quote(ldapsearchattribute)} is no name of an attribute`);
  }
  if (ldapsearchfilter?.includes("$username") === false) {
    fail("ldapsearchfilter has no $username: it would find the same entry for every user");
  }
  const filter = ldapsearchfilter ?? `(${ldapsearchattribute ?? "uid"}=$username)`;
  return { baseDn: ldapbasedn, scope, filter, bindDn: ldapbinddn ?? "" };
}

const scopes: ReadonlyMap<string, LdapScope> = new Map([
  ["", "base"],
  ["base", "base"],
  ["one", "one"],
  ["onelevel", "one"],
  ["sub", "sub"],
  ["subtree", "sub"],
]);

/** ldap[s]://host[:port]/basedn[?attribute[?scope[?filter]]] */
function readUrl(text: string): { values: Values; scope: LdapScope } {
  const wanted = "wanted ldap://host:port/basedn?attribute?scope?filter, or ldaps://";
  const parts = /^(ldaps?):\/\/([^/?#@\s]*)(?:\/([^?#]*)(?:\?([^#]*))?)?$/i.exec(text);
  if (parts === null) fail(`ldapurl is not understood: ${wanted}`);
  const [, scheme = "", authority = "", baseDn = "", query = ""] = parts;
  const [attributes = "", scope = "", filter = ""] = query.split("?").map(decoded);
  const place = /^(.*?)(?::([0-9]+))?$/.exec(authority) as RegExpExecArray;
  const host = place[1] === "" ? "localhost" : place[1] as string;
  const isAlone = /^\[[^\]]*\]$/.test(host) || !host.includes(":");
  if (!isAlone) fail(`ldapurl is not understood: ${wanted}`);
  // As in RFC 4516: without a scope only the entry itself is looked at, which is seldom meant.
  const found = scopes.get(scope.toLowerCase());
  if (found === undefined) fail(`ldapurl: the scope ${quote(scope)} is not base, one or sub`);
  const [attribute = ""] = attributes.split(",");
  const values: Values = { ldapscheme: scheme.toLowerCase(), ldapserver: decoded(host) };
  if (place[2] !== undefined) values.ldapport = place[2];
  if (baseDn !== "") values.ldapbasedn = decoded(baseDn);
  if (attribute !== "") values.ldapsearchattribute = attribute;
  if (filter !== "") values.ldapsearchfilter = filter;
  return { values, scope: found };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return fail("ldapurl has a % that is not followed by two hexadecimal digits");
  }
}
