// Session parameters that follow the client from server to server. Pure. *Tracked* ones PostgreSQL reports
// (ParameterStatus), so that the pooler knows what a client has changed; *extras* are all others of the startup
// packet: set on a server when a client that has them gets it, reset for the next one that has not.
// Sets of them are interned, so that "nothing to do" is one comparison of identity.

import { concatBytes, parameterStatus } from "../../../shared/wire/mod.ts";

/** One parameter that is not tracked. */
export type Extra = readonly [name: string, value: string];

export interface ParameterSet {
  /** Values by index of ParameterTracker.names; null = the client did not set it. */
  readonly values: readonly (string | null)[];
  /** In the order of their lower-case names. Equal lists are one object, unless the table was emptied. */
  readonly extras: readonly Extra[];
}

/** What a server connection has, as far as the pooler knows. */
export interface ServerParameters {
  /** Values of the tracked parameters: null = the server does not report it. */
  readonly values: readonly (string | null)[];
  /** Those it has without anybody's SET; an interned list. */
  defaults: readonly (string | null)[];
  extras: readonly Extra[];
  /** A query may have undone the extras. */
  extrasUnsure: boolean;
  /** The client set that all this satisfies. */
  syncedFor: ParameterSet | null;
}

/** Always tracked, as in PgBouncer; `track_extra_parameters` adds to them. */
const alwaysTracked = [
  "client_encoding",
  "DateStyle",
  "TimeZone",
  "standard_conforming_strings",
  "application_name",
  "IntervalStyle",
];

/** In these encodings the second byte of a character may look like a backslash. */
const withBackslash =
  /^(sjis|shift_?jis.*|mskanji|win(dows)?932|big5|win(dows)?950|gbk|win(dows)?936|uhc|win(dows)?949|gb18030|johab)$/i;

/** Extras that one client may have. */
export const extrasMax = 50;
export const noExtras: readonly Extra[] = [];

/**
 * Interned sets and lists kept at most, and their size; beyond it the table starts anew, which only costs
 * comparisons. They come from startup packets, which anybody may send.
 */
const internedMax = 10_000;
const internedMaxLength = 2_000_000;

/** PostgreSQL cuts a longer application_name (NAMEDATALEN). */
const applicationNameMax = 63;

/** Who the session acts for: everything else is set as the user that logged in, as at a direct login. */
export const identities = ["session_authorization", "role"];

/** Lists whose elements SET would quote once more. */
const quotedLists = ["search_path"];

export class ParameterTracker {
  readonly names: readonly string[];
  readonly none: ParameterSet;
  /** The index of application_name. */
  readonly applicationName: number;
  readonly #stringsIndex: number;
  readonly #encodingIndex: number;
  readonly #indexes = new Map<string, number>();
  readonly #interned = new Map<string, ParameterSet>();
  readonly #extras = new Map<string, readonly Extra[]>();
  #internedLength = 0;

  constructor(extra: readonly string[]) {
    const names = [...alwaysTracked];
    for (const name of extra) {
      if (!names.some((known) => known.toLowerCase() === name.toLowerCase())) names.push(name);
    }
    this.names = names;
    names.forEach((name, index) => this.#indexes.set(name.toLowerCase(), index));
    this.applicationName = this.indexOf("application_name");
    this.#stringsIndex = this.indexOf("standard_conforming_strings");
    this.#encodingIndex = this.indexOf("client_encoding");
    this.none = this.intern(names.map(() => null));
  }

  /** Whether a backslash in a text of SQL is one character that means nothing, under these values. */
  isPlain(values: readonly (string | null)[]): boolean {
    return values[this.#stringsIndex] !== "off" &&
      !withBackslash.test(values[this.#encodingIndex] ?? "");
  }

  /** The index of a parameter, -1 if it is not tracked; names are case-insensitive. */
  indexOf(name: string): number {
    return this.#indexes.get(name.toLowerCase()) ?? -1;
  }

  intern(
    values: readonly (string | null)[],
    extras: readonly Extra[] = noExtras,
  ): ParameterSet {
    const list = this.internExtras(extras);
    const key = keyOf(values, list);
    let set = this.#interned.get(key);
    if (set === undefined) {
      this.#count(key);
      set = { values: [...values], extras: list };
      this.#interned.set(key, set);
    }
    return set;
  }

  /** The one list of these extras, sorted; names must differ in more than case. */
  internExtras(extras: readonly Extra[]): readonly Extra[] {
    if (extras.length === 0) return noExtras;
    const sorted = [...extras].sort(([a], [b]) => a.toLowerCase() < b.toLowerCase() ? -1 : 1);
    const key = sorted.map(joined).join("\0");
    let list = this.#extras.get(key);
    if (list === undefined) {
      this.#count(key);
      this.#extras.set(key, list = sorted);
    }
    return list;
  }

  /** Makes room for one more. */
  #count(key: string): void {
    this.#internedLength += key.length;
    const kept = this.#interned.size + this.#extras.size;
    if (kept < internedMax && this.#internedLength <= internedMaxLength) return;
    this.#interned.clear();
    this.#extras.clear();
    this.#internedLength = key.length;
    // Who has none is known by this one object.
    this.#interned.set(keyOf(this.none.values, noExtras), this.none);
  }

  /** `set` with one value changed. */
  with(set: ParameterSet, index: number, value: string | null): ParameterSet {
    if (set.values[index] === value) return set;
    const values = [...set.values];
    values[index] = value;
    return this.intern(values, set.extras);
  }

  /** `set` with those values as extras that a server with these defaults does not report. */
  settable(set: ParameterSet, defaults: readonly (string | null)[]): ParameterSet {
    const unreported = (value: string | null, index: number) =>
      value !== null && (defaults[index] ?? null) === null;
    if (!set.values.some(unreported)) return set;
    const extras = [...set.extras];
    const values = set.values.map((value, index) => {
      if (value === null || !unreported(value, index)) return value;
      extras.push([this.names[index] as string, value]);
      return null;
    });
    return this.intern(values, extras);
  }

  /**
   * The SQL that takes a server to what the client wants: its own values, and the server's defaults for
   * what it did not set. Empty if nothing differs. A parameter that the server does not report is left alone.
   */
  setStatement(wanted: ParameterSet, server: ServerParameters): string {
    const statements: string[] = [];
    for (const [index, name] of this.names.entries()) {
      const now = server.values[index] ?? null;
      const own = wanted.values[index] ?? null;
      if (now === null || now === (own ?? server.defaults[index] ?? null)) continue;
      // Not to the default that is known: a reload may have changed it, and RESET finds the new one.
      statements.push(own === null ? resetOne(name) : setOne(name, own));
    }
    const had = byLowerName(server.extras);
    const wants = byLowerName(wanted.extras);
    let identityDiffers = false;
    for (const [lower, [name]] of had) {
      if (wants.has(lower)) continue;
      if (identities.includes(lower)) identityDiffers = true;
      else statements.push(resetOne(name));
    }
    for (const [lower, [name, value]] of wants) {
      if (had.get(lower)?.[1] === value && !server.extrasUnsure) continue;
      if (identities.includes(lower)) identityDiffers = true;
      else statements.push(setConfig(name, value));
    }
    if (statements.length === 0 && !identityDiffers) return "";
    for (const identity of identities.toReversed()) {
      if (had.has(identity)) statements.unshift(resetOne(identity));
    }
    for (const identity of identities) {
      const extra = wants.get(identity);
      if (extra !== undefined) statements.push(setConfig(identity, extra[1]));
    }
    return statements.join(";");
  }

  /**
   * Whether `setStatement` may set extras. A server may refuse one that it, or another, has accepted before:
   * a role that was dropped, a tablespace. Nothing of the client's may run without them.
   */
  setsExtras(wanted: ParameterSet, server: ServerParameters): boolean {
    if (wanted.extras.length === 0) return false;
    return wanted.extras !== server.extras || server.extrasUnsure ||
      wanted.extras.some(([name]) => identities.includes(name.toLowerCase()));
  }

  /**
   * The messages that tell a client what it has, which knows of `told` and what it asked for; null if it is
   * all the same.
   */
  reports(
    asked: ParameterSet,
    told: readonly (string | null)[],
    spelled: ParameterSet,
    defaults: readonly (string | null)[],
  ): Uint8Array | null {
    const messages: Uint8Array[] = [];
    for (const [index, name] of this.names.entries()) {
      const value = spelled.values[index] ?? defaults[index] ?? null;
      if (value === null || value === (asked.values[index] ?? told[index])) continue;
      messages.push(parameterStatus(name, value));
    }
    return messages.length === 0 ? null : concatBytes(...messages);
  }

  /** The server has what was asked for: notes so, and returns it as the server spells it. */
  settle(server: ServerParameters, asked: ParameterSet): ParameterSet {
    const { values } = server;
    server.extras = asked.extras;
    server.extrasUnsure = false;
    // What the client did not set is the default now, whatever it was before.
    const defaults = values.map((value, index) =>
      (asked.values[index] ?? null) === null ? value : server.defaults[index] ?? null
    );
    if (!sameValues(defaults, server.defaults)) server.defaults = this.intern(defaults).values;
    const spelled = asked.values.map((value, index) =>
      value === null ? null : values[index] ?? value
    );
    const settled = sameValues(spelled, asked.values) ? asked : this.intern(spelled, asked.extras);
    server.syncedFor = settled;
    return settled;
  }
}

/** Sets that are told apart in one pool; beyond it all get new names. */
const dialectsMax = 1000;

/**
 * Names for the settings under which PostgreSQL reads a query's text: where they differ the same text may
 * mean another table, date or string, so that a prepared statement is not to be shared. A name ends with a
 * character that no text of bytes has; the servers' own settings have the empty one.
 */
export class Dialects {
  readonly #tracker: ParameterTracker;
  #defaults: readonly (string | null)[];
  #bySet = new WeakMap<ParameterSet, string>();
  readonly #byKey = new Map<string, string>();
  #last = 0;

  constructor(tracker: ParameterTracker) {
    this.#tracker = tracker;
    this.#defaults = tracker.none.values;
  }

  /** The servers have other settings of their own from now on. */
  renew(defaults: readonly (string | null)[]): void {
    this.#defaults = defaults;
    this.#bySet = new WeakMap();
  }

  of(set: ParameterSet): string {
    let name = this.#bySet.get(set);
    if (name === undefined) this.#bySet.set(set, name = this.#name(set));
    return name;
  }

  #name(set: ParameterSet): string {
    const defaults = this.#defaults;
    // What a client calls itself changes no meaning.
    const differs = (value: string | null, index: number) =>
      value !== null && value !== defaults[index] && index !== this.#tracker.applicationName;
    const own = set.values.map((value, index) => differs(value, index) ? `=${value}` : "-");
    const extras = set.extras.filter(([name]) => changesMeaning(name));
    if (extras.length === 0 && own.every((value) => value === "-")) return "";
    const key = own.concat(extras.map(joined)).join("\0");
    let name = this.#byKey.get(key);
    if (name === undefined) {
      if (this.#byKey.size >= dialectsMax) this.#byKey.clear();
      this.#byKey.set(key, name = `${++this.#last}\u0100`);
    }
    return name;
  }
}

/** Whether a text may be read otherwise because of this parameter: not for limits, or what applications define. */
function changesMeaning(name: string): boolean {
  return !name.includes(".") && !name.toLowerCase().endsWith("_timeout");
}

/** An application_name in ASCII, as PostgreSQL spells it: cut. */
export function spelledName(name: string): string {
  return name.slice(0, applicationNameMax);
}

function keyOf(values: readonly (string | null)[], extras: readonly Extra[]): string {
  const parts = values.map((value) => value === null ? "-" : `=${value}`);
  return parts.concat(extras.map(joined)).join("\0");
}

function joined([name, value]: Extra): string {
  return `${name}=${value}`;
}

function byLowerName(extras: readonly Extra[]): Map<string, Extra> {
  return new Map(extras.map((extra) => [extra[0].toLowerCase(), extra]));
}

export function sameValues(
  a: readonly (string | null)[],
  b: readonly (string | null)[],
): boolean {
  return a === b || (a.length === b.length && a.every((value, index) => value === b[index]));
}

/** Whether PostgreSQL could have a parameter of this name: identifiers, with dots between them. */
export function isParameterName(name: string): boolean {
  return /^[a-z_][a-z0-9_$]*(\.[a-z_][a-z0-9_$]*)*$/i.test(name);
}

function quoteName(name: string): string {
  return name.split(".").map((part) => `"${part.replaceAll('"', '""')}"`).join(".");
}

function resetOne(name: string): string {
  return `RESET ${quoteName(name)}`;
}

function setConfig(name: string, value: string): string {
  return `SELECT pg_catalog.set_config(${quoteLiteral(name)},${quoteLiteral(value)},false)`;
}

/** The SQL that sets all of these. */
export function setAll(parameters: readonly Extra[]): string {
  const rank = (name: string) => identities.indexOf(name.toLowerCase());
  const ordered = [...parameters].sort(([a], [b]) => rank(a) - rank(b));
  return ordered.map(([name, value]) => setConfig(name, value)).join(";");
}

function setOne(name: string, value: string): string {
  const lower = name.toLowerCase();
  if (quotedLists.includes(lower)) return setConfig(name, value);
  // A style without an order of day and month takes the order from what was set before it.
  const isPart = lower === "datestyle" && !value.includes(",");
  return `${isPart ? 'SET "DateStyle"=DEFAULT;' : ""}SET ${quoteName(name)}=${quoteLiteral(value)}`;
}

/**
 * A string literal in ASCII that means the same whatever standard_conforming_strings is, and in any
 * client_encoding: in some of them a byte of a longer character looks like a quote.
 */
export function quoteLiteral(value: string): string {
  const quoted = value.replaceAll("'", "''");
  if (/^[\x20-\x5b\x5d-\x7e]*$/.test(quoted)) return `'${quoted}'`;
  const escaped = quoted.replace(/[^\x20-\x5b\x5d-\x7e]/gu, (char) => {
    if (char === "\\") return "\\\\";
    return `\\U${(char.codePointAt(0) as number).toString(16).padStart(8, "0")}`;
  });
  return ` E'${escaped}'`;
}
