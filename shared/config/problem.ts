// A finding about a file: where it is and what it says. Never holds a secret or the raw text of a line
// that may hold one. A finding about the whole file has line 0.

export interface Problem {
  readonly file: string;
  readonly line: number;
  readonly message: string;
}

/** `file:line: message`, as compilers print it. */
export function problemText(problem: Problem): string {
  const at = problem.line > 0 ? `${problem.file}:${problem.line}` : problem.file;
  return `${at}: ${problem.message}`;
}
