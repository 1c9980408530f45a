// Patterns (`=~` in rules): regular expressions that are matched in linear time. Every state that the pattern could
// be in is followed at once (Thompson's construction), so no pattern and no text, which a client chooses, can hold
// up a worker; back-references and look-around, which cannot be had that way, are refused.
//
//   pattern = ["(?i)"] branch *("|" branch)          (?i): letters match in either case
//   branch  = *(atom ["*" | "+" | "?" | "{" n ["," [m]] "}"])
//   atom    = character | "." | "^" | "$" | "\" punctuation | \d \D \w \W \s \S \t
//           | "[" ["^"] characters and ranges "]" | "(" ["?:"] pattern ")"
//
// It matches anywhere in a text, unless ^ and $ tie it to the ends. Of a text only the first 256 characters are
// looked at; of a longer one $ is never reached.

const MAX_PATTERN_CHARACTERS = 250;
const MAX_STEPS = 1000;
const MAX_REPEAT = 100;
const MAX_TEXT_CHARACTERS = 256;

type Range = readonly [from: number, to: number];

interface CharacterSet {
  readonly ranges: readonly Range[];
  readonly negated: boolean;
}

type Node =
  | { readonly kind: "set"; readonly set: CharacterSet }
  | { readonly kind: "start" | "end" }
  | { readonly kind: "all" | "any"; readonly items: readonly Node[] }
  | { readonly kind: "repeat"; readonly item: Node; readonly min: number; readonly max: number };

/** One step of the compiled pattern: `set` eats a character, the others lead on without. */
type Step =
  | { readonly op: "set"; readonly set: CharacterSet }
  | { readonly op: "start" | "end" | "match" }
  | { readonly op: "go"; to: number; or: number };

class PatternError extends Error {}

const LAST = 0x10ffff;
const DIGITS: readonly Range[] = [[0x30, 0x39]];
const WORD: readonly Range[] = [[0x30, 0x39], [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]];
const SPACES: readonly Range[] = [[0x09, 0x0d], [0x20, 0x20]];
const CLASSES: Readonly<Record<string, CharacterSet>> = {
  d: { ranges: DIGITS, negated: false },
  D: { ranges: DIGITS, negated: true },
  w: { ranges: WORD, negated: false },
  W: { ranges: WORD, negated: true },
  s: { ranges: SPACES, negated: false },
  S: { ranges: SPACES, negated: true },
};
const ANY: CharacterSet = { ranges: [[0, LAST]], negated: false };

const REPETITIONS: readonly string[] = ["*", "+", "?", "{"];

const codeOf = (character: string) => character.codePointAt(0) as number;

class Parser {
  readonly #text: readonly string[];
  #at = 0;

  constructor(text: string) {
    this.#text = [...text];
  }

  parse(): Node {
    const node = this.#branches();
    if (this.#at < this.#text.length) throw new PatternError(`")" closes nothing`);
    return node;
  }

  #take(character: string): boolean {
    if (this.#text[this.#at] !== character) return false;
    this.#at++;
    return true;
  }

  #branches(): Node {
    const items = [this.#branch()];
    while (this.#take("|")) items.push(this.#branch());
    return { kind: "any", items };
  }

  #branch(): Node {
    const items: Node[] = [];
    for (;;) {
      const character = this.#text[this.#at];
      if (character === undefined || character === "|" || character === ")") break;
      items.push(this.#repeated(this.#atom()));
    }
    return { kind: "all", items };
  }

  #atom(): Node {
    const character = this.#text[this.#at++] as string;
    switch (character) {
      case "(":
        return this.#group();
      case "[":
        return { kind: "set", set: this.#characters() };
      case ".":
        return { kind: "set", set: ANY };
      case "^":
        return { kind: "start" };
      case "$":
        return { kind: "end" };
      case "\\":
        return { kind: "set", set: this.#escape() };
      case "*":
      case "+":
      case "?":
      case "{":
        throw nothingBefore(character);
    }
    return { kind: "set", set: only(codeOf(character)) };
  }

  #group(): Node {
    if (this.#take("?") && !this.#take(":")) {
      throw new PatternError(`"(?" is supported in "(?:" only, and in "(?i)" at the beginning`);
    }
    const node = this.#branches();
    if (!this.#take(")")) throw new PatternError(`"(" is not closed`);
    return node;
  }

  #repeated(item: Node): Node {
    const isAnchor = item.kind === "start" || item.kind === "end";
    const sign = this.#text[this.#at] ?? "";
    if (isAnchor && REPETITIONS.includes(sign)) throw nothingBefore(sign);
    let min: number;
    let max = Infinity;
    if (this.#take("*")) min = 0;
    else if (this.#take("+")) min = 1;
    else if (this.#take("?")) [min, max] = [0, 1];
    else if (this.#take("{")) [min, max] = this.#counts();
    else return item;
    if (REPETITIONS.includes(this.#text[this.#at] ?? "")) {
      throw new PatternError("two repetitions stand behind each other");
    }
    return { kind: "repeat", item, min, max };
  }

  #counts(): [number, number] {
    const rest = this.#text.slice(this.#at).join("");
    const [whole, least, comma, most] = /^([0-9]{1,4})(,?)([0-9]{0,4})\}/.exec(rest) ?? [];
    if (whole === undefined || (comma === "" && most !== "")) {
      throw new PatternError(`"{" is not followed by a count like {2}, {2,} or {2,5}`);
    }
    this.#at += whole.length;
    const min = Number(least);
    const max = comma === "" ? min : most === "" ? Infinity : Number(most);
    if (max < min) throw new PatternError(`{${min},${max}} ends below its beginning`);
    if (min > MAX_REPEAT || (max !== Infinity && max > MAX_REPEAT)) {
      throw new PatternError(`a count is above ${MAX_REPEAT}`);
    }
    return [min, max];
  }

  #escape(): CharacterSet {
    const character = this.#text[this.#at++];
    if (character === undefined) throw new PatternError(`"\\" stands at the end`);
    const known = CLASSES[character];
    if (known !== undefined) return known;
    if (character === "t") return only(9);
    if (/[A-Za-z0-9]/.test(character)) {
      throw new PatternError(`"\\${character}" is not supported`);
    }
    return only(codeOf(character));
  }

  #characters(): CharacterSet {
    const negated = this.#take("^");
    const ranges: Range[] = [];
    for (let first = true;; first = false) {
      const character = this.#text[this.#at++];
      if (character === undefined) throw new PatternError(`"[" is not closed`);
      if (character === "]" && !first) return { ranges, negated };
      if (character === "[" && [":", ".", "="].includes(this.#text[this.#at] ?? "")) {
        throw new PatternError(`"[${this.#text[this.#at]}" within "[" is not supported`);
      }
      const set = character === "\\" ? this.#escape() : only(codeOf(character));
      if (set.negated) throw new PatternError("a negated class within [ ] is not supported");
      const from = set.ranges.length === 1 ? set.ranges[0]![0] : -1;
      const isRange = this.#text[this.#at] === "-" && this.#text[this.#at + 1] !== "]" &&
        this.#at + 1 < this.#text.length;
      if (!isRange) {
        ranges.push(...set.ranges);
        continue;
      }
      this.#at++;
      const last = this.#text[this.#at++] as string;
      const end = last === "\\" ? this.#escape() : only(codeOf(last));
      const to = end.ranges.length === 1 && !end.negated ? end.ranges[0]![1] : -1;
      if (from < 0 || to < from) {
        throw new PatternError("a range within [ ] ends below its beginning");
      }
      ranges.push([from, to]);
    }
  }
}

function nothingBefore(sign: string): PatternError {
  return new PatternError(`nothing stands before "${sign}" that it could repeat`);
}

function only(code: number): CharacterSet {
  return { ranges: [[code, code]], negated: false };
}

function emit(steps: Step[], node: Node): void {
  if (steps.length > MAX_STEPS) throw new PatternError("it is too large");
  switch (node.kind) {
    case "set":
      steps.push({ op: "set", set: node.set });
      return;
    case "start":
    case "end":
      steps.push({ op: node.kind });
      return;
    case "all":
      for (const item of node.items) emit(steps, item);
      return;
    case "any":
      emitAny(steps, node.items);
      return;
    case "repeat":
      emitRepeat(steps, node);
  }
}

function emitAny(steps: Step[], items: readonly Node[]): void {
  const ends: { to: number; or: number }[] = [];
  items.forEach((item, index) => {
    if (index === items.length - 1) {
      emit(steps, item);
      return;
    }
    const fork = go(steps, steps.length + 1);
    emit(steps, item);
    ends.push(go(steps, -1));
    fork.or = steps.length;
  });
  for (const end of ends) end.to = end.or = steps.length;
}

function emitRepeat(
  steps: Step[],
  { item, min, max }: { item: Node; min: number; max: number },
): void {
  for (let count = 0; count < min; count++) emit(steps, item);
  if (max === Infinity) {
    const fork = go(steps, steps.length + 1);
    emit(steps, item);
    const at = steps.indexOf(fork);
    go(steps, at);
    fork.or = steps.length;
    return;
  }
  const forks: { or: number }[] = [];
  for (let count = min; count < max; count++) {
    forks.push(go(steps, steps.length + 1));
    emit(steps, item);
  }
  for (const fork of forks) fork.or = steps.length;
}

function go(steps: Step[], to: number): Step & { op: "go" } {
  const step: Step & { op: "go" } = { op: "go", to, or: to };
  steps.push(step);
  return step;
}

export class Pattern {
  readonly #steps: readonly Step[];
  readonly #ignoresCase: boolean;

  constructor(steps: readonly Step[], ignoresCase: boolean) {
    this.#steps = steps;
    this.#ignoresCase = ignoresCase;
  }

  test(text: string): boolean {
    const characters = [...text.slice(0, MAX_TEXT_CHARACTERS)];
    let states: number[] = [];
    for (let at = 0; at <= characters.length; at++) {
      // It may begin anywhere.
      const reached = new Set<number>();
      for (const state of [...states, 0]) {
        const atEnd = at === characters.length && text.length <= MAX_TEXT_CHARACTERS;
        if (this.#follow(reached, state, at === 0, atEnd)) return true;
      }
      const character = characters[at];
      if (character === undefined) return false;
      states = [];
      for (const state of reached) {
        const step = this.#steps[state]!;
        if (step.op === "set" && this.#has(step.set, character)) states.push(state + 1);
      }
    }
    return false;
  }

  /** Adds all states that `first` leads to; true: the match is one of them. */
  #follow(reached: Set<number>, first: number, atStart: boolean, atEnd: boolean): boolean {
    const open = [first];
    for (let state = open.pop(); state !== undefined; state = open.pop()) {
      if (reached.has(state)) continue;
      reached.add(state);
      const step = this.#steps[state]!;
      if (step.op === "match") return true;
      if (step.op === "go") open.push(step.to, step.or);
      else if ((step.op === "start" && atStart) || (step.op === "end" && atEnd)) {
        open.push(state + 1);
      }
    }
    return false;
  }

  #has(set: CharacterSet, character: string): boolean {
    if (!this.#ignoresCase) return isIn(set, codeOf(character));
    const lower = isWithin(set, codeOf(character.toLowerCase()));
    return (lower || isWithin(set, codeOf(character.toUpperCase()))) !== set.negated;
  }
}

function isIn(set: CharacterSet, code: number): boolean {
  return isWithin(set, code) !== set.negated;
}

function isWithin({ ranges }: CharacterSet, code: number): boolean {
  return ranges.some(([from, to]) => code >= from && code <= to);
}

/** The pattern, or what is wrong with its text. */
export function compilePattern(
  text: string,
): { readonly pattern: Pattern } | { readonly failure: string } {
  if (text.length > MAX_PATTERN_CHARACTERS) {
    return { failure: `it is longer than ${MAX_PATTERN_CHARACTERS} characters` };
  }
  const ignoresCase = text.startsWith("(?i)");
  const steps: Step[] = [];
  try {
    emit(steps, new Parser(ignoresCase ? text.slice(4) : text).parse());
  } catch (error) {
    if (error instanceof PatternError) return { failure: error.message };
    throw error;
  }
  if (steps.length > MAX_STEPS) return { failure: "it is too large" };
  steps.push({ op: "match" });
  return { pattern: new Pattern(steps, ignoresCase) };
}
