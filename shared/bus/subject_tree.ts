// Which subscriptions a subject matches. Literal subjects are one look-up in a map, patterns with
// wildcards are a trie of tokens: the cost follows the subject's tokens, not the subscriptions. Pure.
// `*` matches one token, a final `>` matches one or more; inside a token both are plain characters.

/** Non-empty tokens between dots, without white space or control characters. */
// deno-lint-ignore no-control-regex
const wellFormed = /^[^\u0000-\u0020\u007f.]+(?:\.[^\u0000-\u0020\u007f.]+)*$/;

export function isPattern(text: string): boolean {
  if (!wellFormed.test(text)) return false;
  const rest = text.split(".").indexOf(">");
  return rest === -1 || rest === text.split(".").length - 1;
}

export function hasWildcard(pattern: string): boolean {
  return pattern.split(".").some((token) => token === "*" || token === ">");
}

export function isLiteralSubject(text: string): boolean {
  return wellFormed.test(text) && !hasWildcard(text);
}

/** Whether every subject that `pattern` (which may be literal) matches is matched by `allowed` too. */
export function covers(allowed: string, pattern: string): boolean {
  const wide = allowed.split(".");
  const narrow = pattern.split(".");
  for (let i = 0; i < wide.length; i += 1) {
    const token = narrow[i];
    if (token === undefined) return false;
    if (wide[i] === ">") return true;
    if (token === ">" || (wide[i] !== "*" && wide[i] !== token)) return false;
  }
  return wide.length === narrow.length;
}

interface Node<T> {
  readonly children: Map<string, Node<T>>;
  /** Values whose pattern ends here. */
  readonly here: Set<T>;
}

function emptyNode<T>(): Node<T> {
  return { children: new Map(), here: new Set() };
}

export class SubjectTree<T> {
  readonly #literals = new Map<string, Set<T>>();
  readonly #wild: Node<T> = emptyNode();

  /** The caller checked `isPattern(pattern)`. */
  add(pattern: string, value: T): void {
    if (!hasWildcard(pattern)) {
      const values = this.#literals.get(pattern);
      if (values === undefined) this.#literals.set(pattern, new Set([value]));
      else values.add(value);
      return;
    }
    let node = this.#wild;
    for (const token of pattern.split(".")) {
      let next = node.children.get(token);
      if (next === undefined) {
        next = emptyNode();
        node.children.set(token, next);
      }
      node = next;
    }
    node.here.add(value);
  }

  /** Leaves no empty set or node behind: short-lived inboxes would add up. */
  remove(pattern: string, value: T): void {
    if (!hasWildcard(pattern)) {
      const values = this.#literals.get(pattern);
      values?.delete(value);
      if (values?.size === 0) this.#literals.delete(pattern);
      return;
    }
    this.#removeBelow(this.#wild, pattern.split("."), 0, value);
  }

  #removeBelow(node: Node<T>, tokens: readonly string[], depth: number, value: T): void {
    const token = tokens[depth];
    if (token === undefined) {
      node.here.delete(value);
      return;
    }
    const next = node.children.get(token);
    if (next === undefined) return;
    this.#removeBelow(next, tokens, depth + 1, value);
    if (next.here.size === 0 && next.children.size === 0) node.children.delete(token);
  }

  /** All values whose pattern matches this literal subject, in a new array. */
  match(subject: string): T[] {
    const found: T[] = [];
    const values = this.#literals.get(subject);
    if (values !== undefined) { for (const value of values) found.push(value); }
    if (this.#wild.children.size > 0) this.#matchBelow(this.#wild, subject.split("."), 0, found);
    return found;
  }

  #matchBelow(node: Node<T>, tokens: readonly string[], depth: number, found: T[]): void {
    const token = tokens[depth];
    if (token === undefined) {
      for (const value of node.here) found.push(value);
      return;
    }
    const rest = node.children.get(">");
    if (rest !== undefined) { for (const value of rest.here) found.push(value); }
    const literal = node.children.get(token);
    // A published token is never a wildcard, so these two are different nodes.
    if (literal !== undefined) this.#matchBelow(literal, tokens, depth + 1, found);
    const any = node.children.get("*");
    if (any !== undefined) this.#matchBelow(any, tokens, depth + 1, found);
  }

  /** Nothing is stored: for tests of leaks. */
  get isEmpty(): boolean {
    return this.#literals.size === 0 && this.#wild.children.size === 0;
  }
}
