// Reads SQL scripts in psql's format: statements end at a semicolon, `\;` joins two into one string, the data of
// COPY FROM STDIN follows its statement up to a line `\.`. Of psql's commands \set and \getenv are obeyed, those
// that send what was typed so far end a statement, and all others are left out. Text is bytes, one character each.

/** One string of SQL, sent as it is, with the data for each COPY FROM STDIN in it. */
export interface Statement {
  /** Where it begins, from 1. */
  readonly line: number;
  readonly sql: string;
  /** Null: not a COPY FROM STDIN. */
  readonly copyData: readonly string[] | null;
}

export interface ScriptOptions {
  /** What \getenv finds. */
  readonly environment?: Readonly<Record<string, string>>;
}

const SENDS = /^(g|gx|gset|gexec|gdesc|crosstabview|watch)$/;
const IDENTIFIER_START = /[A-Za-z_\x80-\xff]/;
const IDENTIFIER = /[A-Za-z0-9_$\x80-\xff]*/y;
const DOLLAR_TAG = /\$(?:[A-Za-z_\x80-\xff][A-Za-z0-9_\x80-\xff]*)?\$/y;
const VARIABLE = /:(?:'([A-Za-z0-9_]+)'|"([A-Za-z0-9_]+)"|([A-Za-z0-9_]+))/y;
const FROM_STDIN = /\bcopy\b[^;]*?\bfrom\s+std(?:in|out)\b/gi;
const ESCAPES_OFF = /^\s*set\s+(?:session\s+)?standard_conforming_strings\s*(?:to|=)\s*'?(on|off)/i;

class Reader {
  readonly statements: Statement[] = [];
  readonly #text: string;
  readonly #environment: Readonly<Record<string, string>>;
  readonly #variables = new Map<string, string>();
  #at = 0;
  #line = 1;
  #countedTo = 0;
  #sql = "";
  #firstLine = 1;
  #parentheses = 0;
  /** How deep in the body of a function that begins with BEGIN ATOMIC. */
  #atomic = 0;
  /** The initials of the words that may lead to such a body: c(reate) o(r) r(eplace) f(unction) p(rocedure). */
  #lead = "";
  /** Whether anything but blanks and comments has been read since the last statement. */
  #started = false;
  #plainBackslash = true;

  constructor(text: string, options: ScriptOptions) {
    this.#text = text;
    this.#environment = options.environment ?? {};
  }

  read(): Statement[] {
    while (this.#at < this.#text.length) this.#next();
    if (this.#started) this.#end();
    return this.statements;
  }

  #next(): void {
    const text = this.#text;
    const char = text[this.#at]!;
    const two = text.slice(this.#at, this.#at + 2);
    if (two === "--") this.#take(this.#lineEnd());
    else if (two === "/*") this.#take(this.#commentEnd());
    else if (char === "'") this.#take(this.#quoteEnd("'", !this.#plainBackslash));
    else if (char === '"') this.#take(this.#quoteEnd('"', false));
    else if (char === "$" && this.#dollarQuote()) return;
    else if (char === "\\") this.#backslash(two);
    else if (char === ";") this.#semicolon();
    else if (char === ":") this.#colon();
    else if (IDENTIFIER_START.test(char)) this.#word();
    else {
      if (char === "(") this.#parentheses++;
      if (char === ")" && this.#parentheses > 0) this.#parentheses--;
      this.#take(this.#at + 1);
    }
  }

  /** Moves what is before `end` to the statement. */
  #take(end: number): void {
    const piece = this.#text.slice(this.#at, end);
    this.#append(piece, !/^(\s|--|\/\*)/.test(piece));
    this.#at = end;
  }

  #append(piece: string, counts: boolean): void {
    if (this.#sql === "" && /^\s+$/.test(piece)) return;
    if (counts && !this.#started) {
      this.#started = true;
      this.#firstLine = this.#lineHere();
    }
    this.#sql += piece;
  }

  #lineHere(): number {
    for (; this.#countedTo < this.#at; this.#countedTo++) {
      if (this.#text[this.#countedTo] === "\n") this.#line++;
    }
    return this.#line;
  }

  #lineEnd(): number {
    const end = this.#text.indexOf("\n", this.#at);
    return end < 0 ? this.#text.length : end;
  }

  #commentEnd(): number {
    const mark = /\/\*|\*\//g;
    mark.lastIndex = this.#at;
    for (let depth = 0;;) {
      const found = mark.exec(this.#text);
      if (found === null) return this.#text.length;
      depth += found[0] === "/*" ? 1 : -1;
      if (depth === 0) return mark.lastIndex;
    }
  }

  /** Where a quoted text ends. A doubled quote is read as the end and a new beginning, which is the same. */
  #quoteEnd(quote: string, backslash: boolean): number {
    for (let at = this.#at + 1; at < this.#text.length; at++) {
      if (backslash && this.#text[at] === "\\") at++;
      else if (this.#text[at] === quote) return at + 1;
    }
    return this.#text.length;
  }

  #dollarQuote(): boolean {
    DOLLAR_TAG.lastIndex = this.#at;
    const tag = DOLLAR_TAG.exec(this.#text)?.[0];
    if (tag === undefined) return false;
    const end = this.#text.indexOf(tag, this.#at + tag.length);
    this.#take(end < 0 ? this.#text.length : end + tag.length);
    return true;
  }

  #word(): void {
    const text = this.#text;
    if (/[eE]/.test(text[this.#at]!) && text[this.#at + 1] === "'") {
      this.#take(this.#at + 1);
      this.#take(this.#quoteEnd("'", true));
      return;
    }
    IDENTIFIER.lastIndex = this.#at;
    IDENTIFIER.exec(text);
    const word = text.slice(this.#at, IDENTIFIER.lastIndex).toLowerCase();
    if (this.#lead.length < 5) {
      this.#lead += /^(create|or|replace|function|procedure)$/.test(word) ? word[0] : ".";
    }
    if (/^c(or)?[fp]/.test(this.#lead) && this.#parentheses === 0) {
      if (word === "begin" || (word === "case" && this.#atomic > 0)) this.#atomic++;
      if (word === "end" && this.#atomic > 0) this.#atomic--;
    }
    this.#take(IDENTIFIER.lastIndex);
  }

  #colon(): void {
    // A cast or an assignment, no variable.
    if (/^:[:=]/.test(this.#text.slice(this.#at, this.#at + 2))) return this.#take(this.#at + 2);
    VARIABLE.lastIndex = this.#at;
    const found = VARIABLE.exec(this.#text);
    const value = found && this.#variables.get((found[1] ?? found[2] ?? found[3])!);
    if (!found || value === null || value === undefined) return this.#take(this.#at + 1);
    if (found[1] !== undefined) this.#append(`'${value.replaceAll("'", "''")}'`, true);
    else if (found[2] !== undefined) this.#append(`"${value.replaceAll('"', '""')}"`, true);
    else this.#append(value, true);
    this.#at = VARIABLE.lastIndex;
  }

  #semicolon(): void {
    this.#take(this.#at + 1);
    if (this.#parentheses === 0 && this.#atomic === 0) this.#end();
  }

  #end(): void {
    const copies = this.#sql.match(FROM_STDIN)?.length ?? 0;
    const copyData: string[] = [];
    if (copies > 0) this.#at = Math.min(this.#lineEnd() + 1, this.#text.length);
    for (let i = 0; i < copies; i++) {
      const data = this.#inlineData();
      if (data !== null) copyData.push(data);
    }
    const plain = ESCAPES_OFF.exec(this.#sql)?.[1];
    if (plain !== undefined) this.#plainBackslash = plain.toLowerCase() === "on";
    this.statements.push({
      line: this.#firstLine,
      sql: this.#sql,
      copyData: copies > 0 ? copyData : null,
    });
    this.#reset();
  }

  #reset(): void {
    this.#sql = "";
    this.#lead = "";
    this.#started = false;
    this.#parentheses = 0;
    this.#atomic = 0;
  }

  /**
   * The lines before the next `\.`, or null where SQL goes on: psql learns from the server whether a COPY wants
   * data, and here a line that ends as a statement does tells that this one was written to be refused.
   */
  #inlineData(): string | null {
    const end = /^\\\.\r?\n?/gm;
    end.lastIndex = this.#at;
    const found = end.exec(this.#text);
    if (found === null) return null;
    const data = this.#text.slice(this.#at, found.index);
    if (
      /^(copy|select|insert|create|drop|alter|begin|commit|rollback|truncate)\b.*;\s*$/im.test(data)
    ) {
      return null;
    }
    this.#at = end.lastIndex;
    return data;
  }

  #backslash(two: string): void {
    if (two === "\\;") {
      this.#at++;
      this.#take(this.#at + 1);
      return;
    }
    const command = /\\([A-Za-z?!.]*)([^\n]*)/y;
    command.lastIndex = this.#at;
    const [all, name, rest] = command.exec(this.#text)!;
    this.#at += all.length;
    if (name === "set") this.#set(rest!);
    else if (name === "getenv") {
      const [variable, source] = rest!.trim().split(/\s+/);
      const value = this.#environment[source ?? ""];
      if (value !== undefined) this.#variables.set(variable!, value);
    } else if (name === "copy" && /from\s+stdin/i.test(rest!)) {
      this.#at = Math.min(this.#lineEnd() + 1, this.#text.length);
      this.#inlineData();
    } else if (name === "r") this.#reset();
    else if (SENDS.test(name!) && this.#started) this.#end();
  }

  #set(rest: string): void {
    const [name, ...values] = rest.match(/'(?:[^']|'')*'|\S+/g) ?? [];
    if (name === undefined) return;
    const value = values.map((word) => {
      if (word.startsWith("'")) return word.slice(1, -1).replaceAll("''", "'");
      if (word.startsWith(":")) return this.#variables.get(word.slice(1)) ?? word;
      return word;
    });
    this.#variables.set(name, value.join(""));
  }
}

/** The statements of a script. `text` has one character per byte (latin1), whatever its encoding is. */
export function readScript(text: string, options: ScriptOptions = {}): Statement[] {
  return new Reader(text, options).read();
}
