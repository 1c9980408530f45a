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

/** Interned sets kept at most; beyond it the table starts anew, which only costs comparisons. */
const internedMax = 10_000;

export class ParameterTracker {
  readonly names: readonly string[];
  readonly none: ParameterSet;
  readonly #indexes = new Map<string, number>();
  readonly #interned = new Map<string, ParameterSet>();

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
      if (this.#interned.size >= internedMax) this.#interned.clear();
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
      statements.push(`SET ${this.names[i]}=${quoteLiteral(target)}`);
    }
    return statements.join(";");
  }
}

/**
 * A value as it may travel in a SET: printable ASCII, anything else replaced by `?`. PostgreSQL does
 * the same to application_name, and the other tracked parameters have no such characters. It also
 * keeps a multi-byte client_encoding from turning an escaped byte into a quote.
 */
export function cleanValue(value: string): string {
  return value.replace(/[^\x20-\x7e]/g, "?");
}

/** A string literal that means the same whatever standard_conforming_strings is. */
export function quoteLiteral(value: string): string {
  const quoted = value.replaceAll("'", "''");
  return value.includes("\\") ? ` E'${quoted.replaceAll("\\", "\\\\")}'` : `'${quoted}'`;
}
