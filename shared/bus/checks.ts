// The checks that payloads are built of: written by hand, for values that a stranger sent. Pure.

const maxWorkerId = 0x7fff;

/** A whole number from 0 to `max`, without loss. */
export function isCount(value: unknown, max: number = Number.MAX_SAFE_INTEGER): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= max;
}

/** Well-formed: the decoder turns bytes that are no UTF-8 into lone surrogates. */
export function isText(value: unknown, maxCharacters: number): value is string {
  return typeof value === "string" && value.length <= maxCharacters && value.isWellFormed();
}

export function isOneOf<T extends string>(value: unknown, all: readonly T[]): value is T {
  return typeof value === "string" && (all as readonly string[]).includes(value);
}

export function isWorkerId(value: unknown): value is number {
  return isCount(value, maxWorkerId);
}

/** A clean copy of each item, or null when one is refused or there are too many. */
export function checkItems<T>(
  raw: unknown,
  maxItems: number,
  check: (item: unknown) => T | null,
): T[] | null {
  if (!Array.isArray(raw) || raw.length > maxItems) return null;
  const items: T[] = [];
  for (const each of raw) {
    const item = check(each);
    if (item === null) return null;
    items.push(item);
  }
  return items;
}

/** What a map has; nothing for a value that is none, so that every check of a field fails. */
export function fieldsOf(raw: unknown): Readonly<Record<string, unknown>> {
  return typeof raw === "object" && raw !== null && !Array.isArray(raw)
    ? raw as Readonly<Record<string, unknown>>
    : {};
}
