// Cuts the text of a console query into statements of tokens, with PostgreSQL's rules for comments and
// quotes. Pure. It knows no command, and it never fails: what is no token becomes a "bad" one, which
// no command accepts.

export interface Token {
  readonly kind:
    /** Letters, digits and underscores. */
    | "word"
    /** "in double quotes", unquoted here. */
    | "quoted"
    /** 'in single quotes', unquoted here. */
    | "string"
    /** One of `= , . * ( ) + -`. */
    | "symbol"
    /** Anything else, also a quote or a comment without its end. */
    | "bad";
  readonly text: string;
}

const space = /[ \t\n\r\f\v]+/y;
const word = /[0-9A-Za-z_]+/y;
const quoted = /"(?:[^"]|"")*"/y;
const string = /'(?:[^']|'')*'/y;
const symbol = /[=,.*()+-]/y;
const lineComment = /--[^\n\r]*/y;

/** The statements of a query; empty ones are left out, so `;;` has none. */
export function statementsOf(text: string): Token[][] {
  const statements: Token[][] = [];
  let current: Token[] = [];
  let at = 0;
  const take = (pattern: RegExp): string | null => {
    pattern.lastIndex = at;
    const found = pattern.exec(text)?.[0] ?? null;
    if (found !== null) at += found.length;
    return found;
  };
  while (at < text.length) {
    if (take(space) !== null || take(lineComment) !== null) continue;
    if (text.startsWith("/*", at)) {
      const end = commentEnd(text, at);
      if (end < 0) {
        current.push({ kind: "bad", text: "/*" });
        break;
      }
      at = end;
      continue;
    }
    if (text[at] === ";") {
      at++;
      if (current.length > 0) statements.push(current);
      current = [];
      continue;
    }
    current.push(nextToken(text, at, take));
    if (current[current.length - 1]?.kind === "bad") at++;
  }
  if (current.length > 0) statements.push(current);
  return statements;
}

function nextToken(text: string, at: number, take: (pattern: RegExp) => string | null): Token {
  const plain = take(word);
  if (plain !== null) return { kind: "word", text: plain };
  const name = take(quoted);
  if (name !== null) return { kind: "quoted", text: name.slice(1, -1).replaceAll('""', '"') };
  const value = take(string);
  if (value !== null) return { kind: "string", text: value.slice(1, -1).replaceAll("''", "'") };
  const sign = take(symbol);
  if (sign !== null) return { kind: "symbol", text: sign };
  return { kind: "bad", text: text[at] as string };
}

/** Where the comment at `at` ends, -1 if it does not; comments nest. */
function commentEnd(text: string, at: number): number {
  let depth = 0;
  for (let i = at; i < text.length - 1; i++) {
    if (text[i] === "/" && text[i + 1] === "*") {
      depth++;
      i++;
    } else if (text[i] === "*" && text[i + 1] === "/") {
      depth--;
      i++;
      if (depth === 0) return i + 1;
    }
  }
  return -1;
}
