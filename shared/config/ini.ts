// Reads PgBouncer's ini grammar into a flat list of entries, each with its section, file and line. It
// knows no setting and never throws: what it cannot read is a problem, and reading goes on.
//
//   line      = blank | comment | "%include" blank path | "[" name "]" line | key "=" value
//   comment   = (";" | "#") to the end of the line; only at its start, so values may hold both
//   key       = letters, digits, "_", ".", "-", "*", or in double quotes ("" is one quote), or single
//   value     = raw to the end of the line, trimmed; it has no quotes and no escapes of its own
//
// As in PgBouncer, an included path is relative to the working directory, includes nest ten deep, and
// the section that an included file ends in goes on in the file that includes it. Unlike PgBouncer,
// opening [pgbouncer] again does not put earlier settings back to their defaults.

import type { Problem } from "./problem.ts";
import { quote } from "./problem.ts";
import type { ReadFile } from "./files.ts";
import { readText } from "./files.ts";

export interface IniEntry {
  readonly section: string;
  readonly key: string;
  readonly value: string;
  readonly file: string;
  readonly line: number;
}

export interface IniSection {
  readonly name: string;
  readonly file: string;
  readonly line: number;
}

export interface Ini {
  readonly entries: readonly IniEntry[];
  /** every section header, in order, repeated ones too */
  readonly sections: readonly IniSection[];
  readonly problems: readonly Problem[];
}

const MAX_INCLUDE_DEPTH = 10;
/** All files together, so that a few files including each other twice cannot grow without end. */
const MAX_INCLUDES = 1000;
/** All files together. */
const MAX_LINES = 2_000_000;
const MAX_LINE_CHARACTERS = 256 * 1024;

const KEY = /^(?:([A-Za-z0-9_.*-]+)|"([^"]*(?:""[^"]*)*)"|'([^']*)')[ \t]*=/;
const SECTION = /^\[([^\]]*)\]/;
const INCLUDE = /^%include(?:[ \t]+(.*))?$/;
const BLANKS = " \t\v\f\r";

class Reader {
  readonly entries: IniEntry[] = [];
  readonly sections: IniSection[] = [];
  readonly problems: Problem[] = [];
  readonly #readFile: ReadFile;
  readonly #open: string[] = [];
  #section: string | null = null;
  #includes = 0;
  #lines = 0;

  constructor(readFile: ReadFile) {
    this.#readFile = readFile;
  }

  readFile(path: string, from: { file: string; line: number }): void {
    const read = readText(path, this.#readFile);
    if ("failure" in read) {
      this.#problem(from.file, from.line, `read ${quote(path)}: ${read.failure}`);
      return;
    }
    this.#open.push(path);
    let number = 0;
    let start = 0;
    const text = read.text;
    while (start <= text.length) {
      if (this.#lines++ === MAX_LINES) this.#problem(path, number, `more than ${MAX_LINES} lines`);
      if (this.#lines > MAX_LINES) break;
      const newline = text.indexOf("\n", start);
      const end = newline === -1 ? text.length : newline;
      number++;
      if (end - start > MAX_LINE_CHARACTERS) {
        this.#problem(path, number, `line is longer than ${MAX_LINE_CHARACTERS} characters`);
      } else {
        this.#readLine(text.slice(start, end), path, number);
      }
      start = end + 1;
    }
    this.#open.pop();
  }

  #problem(file: string, line: number, message: string): void {
    this.problems.push({ file, line, message });
  }

  #readLine(raw: string, file: string, line: number): void {
    let text = trim(raw);
    // A header may be followed by a key on the same line.
    while (text !== "" && !text.startsWith(";") && !text.startsWith("#")) {
      if (!text.startsWith("[")) {
        this.#readEntry(text, file, line);
        return;
      }
      const header = SECTION.exec(text);
      if (header === null) {
        this.#problem(file, line, `section header has no "]"`);
        return;
      }
      this.#section = header[1] as string;
      this.sections.push({ name: this.#section, file, line });
      text = trim(text.slice(header[0].length));
    }
  }

  #readEntry(text: string, file: string, line: number): void {
    const include = INCLUDE.exec(text);
    if (include !== null) {
      this.#include(include[1] ?? "", file, line);
      return;
    }
    const match = KEY.exec(text);
    if (match === null) {
      this.#problem(file, line, explainLine(text));
      return;
    }
    const key = match[1] ?? match[2]?.replaceAll('""', '"') ?? (match[3] as string);
    const value = trim(text.slice(match[0].length));
    if (key === "") {
      this.#problem(file, line, "the key is empty");
    } else if (this.#section === null) {
      this.#problem(file, line, `${quote(key)} stands before the first section`);
    } else if (key.includes("\0") || value.includes("\0")) {
      this.#problem(file, line, "line holds a NUL character");
    } else if (key.includes("\uFFFD") || value.includes("\uFFFD")) {
      this.#problem(file, line, "line is not valid UTF-8");
    } else {
      this.entries.push({ section: this.#section, key, value, file, line });
    }
  }

  #include(path: string, file: string, line: number): void {
    if (path === "") {
      this.#problem(file, line, "%include names no file");
    } else if (this.#open.includes(path)) {
      const chain = [...this.#open.slice(this.#open.indexOf(path)), path];
      this.#problem(
        file,
        line,
        `%include goes round in a circle: ${chain.map(quote).join(" -> ")}`,
      );
    } else if (this.#open.length > MAX_INCLUDE_DEPTH) {
      this.#problem(
        file,
        line,
        `%include ${quote(path)}: files are nested deeper than ${MAX_INCLUDE_DEPTH}`,
      );
    } else if (++this.#includes > MAX_INCLUDES) {
      // Said once; the rest is left out without a word.
      if (this.#includes === MAX_INCLUDES + 1) {
        this.#problem(file, line, `%include ${quote(path)}: more than ${MAX_INCLUDES} files`);
      }
    } else {
      this.readFile(path, { file, line });
    }
  }
}

/** Blanks of C, not of Unicode; a loop, since a pattern for the end takes quadratic time. */
function trim(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && BLANKS.includes(text[start] as string)) start++;
  while (end > start && BLANKS.includes(text[end - 1] as string)) end--;
  return text.slice(start, end);
}

/** Says what is wrong with a line that is no entry; never quotes it, it may hold a secret. */
function explainLine(text: string): string {
  if (text.startsWith("%")) return "unknown directive, %include is the only one";
  if (text.startsWith("=")) return `no key before "="`;
  if (!text.includes("=")) {
    return `no "=" in the line: "key = value", a section or a comment is wanted`;
  }
  return `the key has characters other than letters, digits, "_", ".", "-" and "*": put it in double quotes`;
}

export function readIni(path: string, readFile: ReadFile): Ini {
  const reader = new Reader(readFile);
  reader.readFile(path, { file: path, line: 0 });
  return { entries: reader.entries, sections: reader.sections, problems: reader.problems };
}
