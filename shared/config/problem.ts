// A finding about a file: where it is and what it says. Never holds a secret or the raw text of a line
// that may hold one; text from a file is quoted by `quote`, so a finding stays one short line. A finding
// about the whole file has line 0.

export interface Place {
  readonly file: string;
  readonly line: number;
}

export interface Problem extends Place {
  readonly message: string;
}

const MAX_FINDINGS = 1000;

/** Collects findings: a file that is no configuration at all has one in every line, not all are kept. */
export class Findings {
  readonly #kept: Problem[] = [];
  #count = 0;

  get count(): number {
    return this.#count;
  }

  add({ file, line }: Place, message: string): void {
    this.#count++;
    if (this.#kept.length < MAX_FINDINGS) this.#kept.push({ file, line, message });
  }

  /** What was kept; a last line says how many were not. */
  list(what: "problem" | "warning", file: string): readonly Problem[] {
    const left = this.#count - this.#kept.length;
    if (left === 0) return this.#kept;
    return [...this.#kept, { file, line: 0, message: `${left} more ${what}(s) are not listed` }];
  }
}

/** `file:line: message`, as compilers print it. */
export function problemText(problem: Problem): string {
  const at = problem.line > 0 ? `${problem.file}:${problem.line}` : problem.file;
  return `${at}: ${problem.message}`;
}

const MAX_QUOTED_CHARACTERS = 120;

/** Text from a file for a message: in quotes, clipped, control characters escaped. */
export function quote(text: string): string {
  return `"${shown(text)}"`;
}

/** The same without quotes, where PgBouncer's text has none. */
export function shown(text: string): string {
  const clipped = text.length > MAX_QUOTED_CHARACTERS
    ? `${text.slice(0, MAX_QUOTED_CHARACTERS)}...`
    : text;
  // deno-lint-ignore no-control-regex
  return clipped.replace(/[\x00-\x1f\x7f-\x9f]/g, escapeControl);
}

function escapeControl(character: string): string {
  return `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`;
}
