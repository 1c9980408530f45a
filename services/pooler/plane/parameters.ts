// Session parameters that PostgreSQL reports (ParameterStatus) and that follow the client from server
// to server. Pure. Sets of values are interned, so that "nothing to do" is one comparison of identity.

/** Values by index of ParameterTracker.names; null = the client did not set it. */
export interface ParameterSet {
  readonly values: readonly (string | null)[];
}

/** Always tracked, as in PgBouncer; `track_extra_parameters` adds to them. */
const alwaysTracked = [
  "client_encoding",
  "DateStyle",
  "TimeZone",
  "standard_conforming_strings",
  "application_name",
];

/**
 * Interned sets kept at most, and their size; beyond it the table starts anew, which only costs
 * comparisons. They come from startup packets, which anybody may send.
 */
const internedMax = 10_000;
const internedMaxLength = 2_000_000;

/** Lists whose elements SET would quote once more. */
const quotedLists = ["search_path"];

export class ParameterTracker {
  readonly names: readonly string[];
  readonly none: ParameterSet;
  readonly #indexes = new Map<string, number>();
  readonly #interned = new Map<string, ParameterSet>();
  #internedLength = 0;

  constructor(extra: readonly string[]) {
    const names = [...alwaysTracked];
    for (const name of extra) {
      if (!names.some((known) => known.toLowerCase() === name.toLowerCase())) names.push(name);
    }
    this.names = names;
    names.forEach((name, index) => this.#indexes.set(name.toLowerCase(), index));
    this.none = this.intern(names.map(() => null));
  }

  /** The index of a parameter, -1 if it is not tracked; names are case-insensitive. */
  indexOf(name: string): number {
    return this.#indexes.get(name.toLowerCase()) ?? -1;
  }

  intern(values: readonly (string | null)[]): ParameterSet {
    const key = values.map((value) => value === null ? "-" : `=${value}`).join("\0");
    let set = this.#interned.get(key);
    if (set === undefined) {
      this.#internedLength += key.length;
      if (this.#interned.size >= internedMax || this.#internedLength > internedMaxLength) {
        this.#interned.clear();
        this.#internedLength = key.length;
      }
      set = { values: [...values] };
      this.#interned.set(key, set);
    }
    return set;
  }

  /** `set` with one value changed. */
  with(set: ParameterSet, index: number, value: string): ParameterSet {
    if (set.values[index] === value) return set;
    const values = [...set.values];
    values[index] = value;
    return this.intern(values);
  }

  /**
   * The SQL that takes a server from `current` to what the client wants: its own values, and
   * `defaults` (what the server reported at its login) for those it did not set. Empty if nothing
   * differs. A parameter that the server does not report is left alone.
   */
  setStatement(
    wanted: ParameterSet,
    defaults: readonly (string | null)[],
    current: readonly (string | null)[],
  ): string {
    const statements: string[] = [];
    for (let i = 0; i < this.names.length; i++) {
      const now = current[i] ?? null;
      const target = wanted.values[i] ?? defaults[i] ?? null;
      if (now === null || target === null || now === target) continue;
      statements.push(setOne(this.names[i] as string, target));
    }
    return statements.join(";");
  }
}

function setOne(name: string, value: string): string {
  const lower = name.toLowerCase();
  const literal = quoteLiteral(value);
  if (quotedLists.includes(lower)) {
    return `SELECT pg_catalog.set_config('${name}',${literal},false)`;
  }
  // A style without an order of day and month takes the order from what was set before it.
  const isPart = lower === "datestyle" && !value.includes(",");
  return `${isPart ? "SET DateStyle=DEFAULT;" : ""}SET ${name}=${literal}`;
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
