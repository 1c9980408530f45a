// Reads a connection string, `host=a port=5432 password='it''s'`, into its pairs. As PgBouncer reads it:
// blanks around "=" are allowed, a value in single quotes may hold blanks and '' for a quote, and no
// value may be empty. Stricter in one point: what follows a closing quote must be a blank or the end
// (PgBouncer drops that character). Messages name keys and columns, never values.

export interface Pair {
  readonly key: string;
  readonly value: string;
}

/** A pair that may be written with `=~`: the value is a pattern. */
export interface Condition extends Pair {
  readonly isPattern: boolean;
}

type Conditions =
  | { readonly conditions: readonly Condition[] }
  | { readonly failure: string };

export type ConnectionString =
  | { readonly pairs: readonly Pair[] }
  | { readonly failure: string };

const BLANKS = /[ \t]*/y;
const KEY = /[^=' \t]+/y;
const EQUALS = /[ \t]*=()[ \t]*/y;
const EQUALS_OR_MATCHES = /[ \t]*=(~?)[ \t]*/y;
const QUOTED = /'([^']*(?:''[^']*)*)'(?!')/y;
const BARE = /[^ \t]+/y;

export function parseConnectionString(text: string): ConnectionString {
  const parsed = parse(text, EQUALS);
  if ("failure" in parsed) return parsed;
  return { pairs: parsed.conditions.map(({ key, value }) => ({ key, value })) };
}

/** The same grammar with `=~` beside `=`. */
export function parseConditions(text: string): Conditions {
  return parse(text, EQUALS_OR_MATCHES);
}

function parse(text: string, equals: RegExp): Conditions {
  const conditions: Condition[] = [];
  let at = 0;
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (match !== null) at = pattern.lastIndex;
    return match;
  };
  for (;;) {
    take(BLANKS);
    if (at === text.length) return { conditions };
    const column = at + 1;
    const key = take(KEY)?.[0];
    if (key === undefined) return { failure: `no key at column ${column}` };
    const sign = take(equals);
    if (sign === null) return { failure: `no "=" after the key at column ${column}` };
    const quote = text[at] === "'";
    const match = take(quote ? QUOTED : BARE);
    if (match === null) {
      return { failure: quote ? `the quote of "${key}" is not closed` : `"${key}" has no value` };
    }
    const value = quote ? (match[1] as string).replaceAll("''", "'") : match[0];
    if (value === "") return { failure: `the value of "${key}" is empty` };
    if (quote && at < text.length && text[at] !== " " && text[at] !== "\t") {
      return { failure: `no blank after the closing quote of "${key}"` };
    }
    conditions.push({ key, value, isPattern: sign[1] !== "" });
  }
}
