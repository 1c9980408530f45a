// The kinds of values a setting may have: text from the file to a typed value and back. Numbers read
// as in PgBouncer (C's strtol with base 0, so `010` is 8 and `0x10` is 16; times are seconds with
// fractions). Times are held in whole milliseconds, and a time above 0 never becomes 0, because 0
// means "off" for most of them. Parsing never throws: it returns the value or what was wanted.

export interface EnumKind<V extends string = string> {
  readonly oneOf: readonly V[];
}

export type Kind =
  | "int"
  /** whole number, or the word `auto`, which is held as 0 */
  | "count_or_auto"
  | "bool"
  /** seconds in the file, milliseconds in memory */
  | "seconds"
  /** milliseconds in the file and in memory */
  | "milliseconds"
  | "string"
  | "list"
  /** file mode: octal digits with a leading 0 */
  | "octal"
  /** bytes, with an optional kB, MB or GB (powers of 1024) */
  | "size"
  /** fraction or factor, not negative */
  | "ratio"
  | EnumKind;

export type ValueOf<K extends Kind> = K extends EnumKind<infer V> ? V
  : K extends "bool" ? boolean
  : K extends "string" ? string
  : K extends "list" ? readonly string[]
  : number;

export type Value = string | number | boolean | readonly string[];

export interface Bounds {
  readonly min?: number;
  readonly max?: number;
  /** of a list */
  readonly noEmptyItems?: true;
}

/** `wanted` completes the sentence "`x` is not …". */
export type Parsed = { readonly value: Value } | { readonly wanted: string };

const MAX_INT = 2_147_483_647;
/** Some write a large number for "never". */
const MAX_SECONDS = 1_000_000_000_000;

const INTEGER = /^([+-]?)(0x[0-9a-f]+|0[0-7]*|[1-9][0-9]*)$/i;
const DECIMAL = /^\+?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?$/i;
const SIZE = /^([0-9]+)(b|kb?|mb?|gb?)?$/i;
const OCTAL = /^0[0-7]{0,4}$/;
const UNIT: Readonly<Record<string, number>> = { "": 1, b: 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3 };
const TRUE_WORDS: readonly string[] = ["on", "yes", "true"];
const FALSE_WORDS: readonly string[] = ["off", "no", "false"];

export function oneOf<const V extends string>(...values: V[]): EnumKind<V> {
  return { oneOf: values };
}

function parseInteger(text: string): number | null {
  const match = INTEGER.exec(text);
  if (match === null) return null;
  const digits = match[2] as string;
  const magnitude = /^0[0-7]/.test(digits) ? parseInt(digits, 8) : Number(digits);
  return match[1] === "-" ? -magnitude : magnitude;
}

function within(value: number | null, min: number, max: number, what: string): Parsed {
  if (value !== null && value >= min && value <= max) return { value: value === 0 ? 0 : value };
  return { wanted: `${what} from ${min} to ${max}` };
}

/** Comma list: items are trimmed, empty ones are dropped. */
export function splitList(text: string): string[] {
  return text.split(",").map((item) => item.trim()).filter((item) => item !== "");
}

export function parseValue(kind: Kind, text: string, bounds: Bounds = {}): Parsed {
  const min = bounds.min ?? 0;
  if (typeof kind === "object") {
    const lower = text.toLowerCase();
    const found = kind.oneOf.find((name) => name.toLowerCase() === lower);
    return found === undefined ? { wanted: `one of ${kind.oneOf.join(", ")}` } : { value: found };
  }
  switch (kind) {
    case "string":
      return { value: text };
    case "list":
      if (bounds.noEmptyItems && text.split(",").some((item) => item.trim() === "")) {
        return { wanted: "a list without empty items" };
      }
      return { value: Object.freeze(splitList(text)) };
    case "int":
      return within(parseInteger(text), min, bounds.max ?? MAX_INT, "a whole number");
    case "count_or_auto":
      if (text.toLowerCase() === "auto") return { value: 0 };
      return within(parseInteger(text), 1, bounds.max ?? MAX_INT, "auto or a whole number");
    case "bool": {
      const number = parseInteger(text);
      const lower = text.toLowerCase();
      if (number !== null) return { value: number !== 0 };
      if (TRUE_WORDS.includes(lower)) return { value: true };
      return FALSE_WORDS.includes(lower) ? { value: false } : { wanted: "0 or 1" };
    }
    case "seconds": {
      const max = bounds.max ?? MAX_SECONDS;
      const parsed = within(
        DECIMAL.test(text) ? Number(text) : null,
        min,
        max,
        "a number of seconds, without a unit,",
      );
      if ("wanted" in parsed) return parsed;
      const seconds = parsed.value as number;
      return { value: seconds === 0 ? 0 : Math.max(1, Math.round(seconds * 1000)) };
    }
    case "milliseconds":
      return within(
        parseInteger(text),
        min,
        bounds.max ?? MAX_INT,
        "a whole number of milliseconds",
      );
    case "octal":
      if (!OCTAL.test(text)) return { wanted: "an octal number with a leading 0, like 0770" };
      return { value: parseInt(text, 8) };
    case "size": {
      const match = SIZE.exec(text);
      const unit = UNIT[(match?.[2] ?? "").toLowerCase().slice(0, 1)] ?? 1;
      const bytes = match === null ? null : Number(match[1]) * unit;
      return within(bytes, min, bounds.max ?? MAX_INT, "a number of bytes (kB, MB, GB allowed)");
    }
    case "ratio":
      return within(
        DECIMAL.test(text) ? Number(text) : null,
        min,
        bounds.max ?? MAX_INT,
        "a number",
      );
  }
}

/** The text that parses back to `value`; what SHOW CONFIG prints. */
export function formatValue(kind: Kind, value: Value): string {
  if (typeof value === "object") return value.join(", ");
  if (typeof value === "boolean") return value ? "1" : "0";
  switch (kind) {
    case "seconds":
      return String((value as number) / 1000);
    case "octal":
      return value === 0 ? "0" : `0${(value as number).toString(8)}`;
    case "count_or_auto":
      return value === 0 ? "auto" : String(value);
    default:
      return String(value);
  }
}

/** Name of a kind for the reference. */
export function kindName(kind: Kind): string {
  if (typeof kind === "object") return kind.oneOf.join(", ");
  return kind === "count_or_auto" ? "int, auto" : kind;
}
