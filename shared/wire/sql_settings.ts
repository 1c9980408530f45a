// Which parameters a text of SQL sets and resets, by their names: for texts of which scanSql says that they do.
// It looks at SET, RESET, DISCARD ALL and calls of set_config(), and takes each statement as done. A name that is not
// there to be read is empty; scanSql has a flag for that. Allocates. Names are in lower case, since PostgreSQL
// compares them so, with one character per byte.

import { blankEnd, isLetter, nextToken, quotedEnd, same, word, wordEnd } from "./sql_tokens.ts";
import { latin1Text } from "./text.ts";

/** What one statement does to one parameter, or to all. */
export interface SettingStep {
  /** The tag of the command; null: the function is a part of one that has another. */
  readonly by: "SET" | "RESET" | "DISCARD ALL" | null;
  /** Empty: it sets what lasts for the transaction at most, or has no name to be read. Null: all. */
  readonly name: string | null;
  /** Led back to its default. */
  readonly isReset: boolean;
}

export interface SettingNames {
  /** In the order of the text. */
  readonly steps: readonly SettingStep[];
  /** False: there is a SET whose name can't be read. */
  readonly isComplete: boolean;
}

export const noSettingNames: SettingNames = { steps: [], isComplete: true };

const ALL = word("all");
const AUTHORIZATION = word("authorization");
const CHARACTERISTICS = word("characteristics");
const CONSTRAINTS = word("constraints");
const DEFAULT = word("default");
const DISCARD = word("discard");
const LOCAL = word("local");
const NAMES = word("names");
const RESET = word("reset");
const SCHEMA = word("schema");
const SESSION = word("session");
const SET = word("set");
const SET_CONFIG = word("set_config");
const TIME = word("time");
const TO = word("to");
const TRANSACTION = word("transaction");

const sessionUser = "session_authorization";

/** What may be a SET or a call of set_config() in the text of a code block; a name too many does no harm. */
const setInCode =
  /\bset\s+(?:session\s+)?((?:"[^"]+"|[a-z_][\w$]*)(?:\s*\.\s*(?:"[^"]+"|[a-z_][\w$]*))+)\s*(?:=|to\b)/gi;
const callInCode = /\bset_config"?\s*\(\s*'+([^']+)'/gi;

export function settingNames(bytes: Uint8Array, from: number, to: number): SettingNames {
  const steps: SettingStep[] = [];
  let isComplete = true;
  let at = from;
  while (at < to) {
    at = blankEnd(bytes, at, to);
    const end = wordEnd(bytes, at, to);
    const next = blankEnd(bytes, end, to);
    const isAll = same(bytes, next, wordEnd(bytes, next, to), ALL);
    if (same(bytes, at, end, SET)) {
      if (!takeSet(bytes, next, to, steps)) isComplete = false;
    } else if (same(bytes, at, end, RESET)) {
      steps.push({ by: "RESET", name: isAll ? null : nameAt(bytes, next, to).name, isReset: true });
    } else if (isAll && same(bytes, at, end, DISCARD)) {
      steps.push({ by: "DISCARD ALL", name: null, isReset: true });
    }
    at = takeCalls(bytes, at, to, steps) + 1;
  }
  return { steps, isComplete };
}

/** The parameters that the code of a DO in the text [from, to) may set, if they have a dot in their name. */
export function settingNamesInCode(bytes: Uint8Array, from: number, to: number): string[] {
  const text = latin1Text(bytes.subarray(from, to));
  const found = [...text.matchAll(setInCode), ...text.matchAll(callInCode)];
  return found.map(([, name = ""]) => name.replace(/["\s]/g, "").toLowerCase());
}

/** What follows SET at `at`; false if it sets what can't be read. */
function takeSet(bytes: Uint8Array, at: number, to: number, steps: SettingStep[]): boolean {
  const step = { by: "SET", name: "", isReset: false } as const;
  let end = wordEnd(bytes, at, to);
  const next = blankEnd(bytes, end, to);
  const isName = next < to && (bytes[next] === 0x2e || bytes[next] === 0x3d); // . or =
  if (!isName) {
    // Its tag is another.
    if (same(bytes, at, end, CONSTRAINTS)) return true;
    if (same(bytes, at, end, LOCAL) || same(bytes, at, end, TRANSACTION)) {
      steps.push(step);
      return true;
    }
    if (same(bytes, at, end, SESSION)) {
      const nextEnd = wordEnd(bytes, next, to);
      if (same(bytes, next, nextEnd, CHARACTERISTICS)) {
        steps.push(step);
        return true;
      }
      if (!same(bytes, next, nextEnd, AUTHORIZATION)) {
        at = next;
        end = nextEnd;
      }
    }
  }
  const { name, behind } = nameAt(bytes, at, to);
  const hasSign = (behind < to && bytes[behind] === 0x3d) ||
    same(bytes, behind, wordEnd(bytes, behind, to), TO);
  const value = hasSign ? nextToken(bytes, behind, to) : behind;
  const valueEnd = wordEnd(bytes, value, to);
  const isDefault = same(bytes, value, valueEnd, DEFAULT) ||
    (same(bytes, at, end, TIME) && same(bytes, value, valueEnd, LOCAL));
  steps.push({ ...step, name, isReset: isDefault });
  return name !== "";
}

/** The name of a parameter at `at`, "" if it can't be read; and where the token behind it begins. */
function nameAt(bytes: Uint8Array, at: number, to: number): { name: string; behind: number } {
  const end = wordEnd(bytes, at, to);
  const second = blankEnd(bytes, end, to);
  const secondEnd = wordEnd(bytes, second, to);
  const behindTwo = blankEnd(bytes, secondEnd, to);
  if (second >= to || bytes[second] !== 0x2e) {
    if (same(bytes, at, end, TIME)) return { name: "timezone", behind: behindTwo };
    if (same(bytes, at, end, SESSION) && same(bytes, second, secondEnd, AUTHORIZATION)) {
      return { name: sessionUser, behind: behindTwo };
    }
    if (same(bytes, at, end, NAMES)) return { name: "client_encoding", behind: second };
    if (same(bytes, at, end, SCHEMA)) return { name: "search_path", behind: second };
  }
  let name = "";
  for (;;) {
    const part = identifierAt(bytes, at, to);
    if (part === "") return { name: "", behind: at };
    name += part;
    at = nextToken(bytes, at, to);
    if (at >= to || bytes[at] !== 0x2e) return { name, behind: at };
    name += ".";
    at = blankEnd(bytes, at + 1, to);
  }
}

function identifierAt(bytes: Uint8Array, at: number, to: number): string {
  if (at >= to) return "";
  if (bytes[at] === 0x22) {
    const end = quotedEnd(bytes, at + 1, to, 0x22);
    return latin1Text(bytes.subarray(at + 1, end - 1)).replaceAll('""', '"').toLowerCase();
  }
  const end = wordEnd(bytes, at, to);
  // U&"..." is not decoded.
  if (!isLetter(bytes[at] as number) || (end < to && bytes[end] === 0x26)) return "";
  return latin1Text(bytes.subarray(at, end)).toLowerCase();
}

/** The calls of set_config() in the statement at `at`; returns where the statement ends. */
function takeCalls(bytes: Uint8Array, at: number, to: number, steps: SettingStep[]): number {
  while (at < to && bytes[at] !== 0x3b) {
    const start = bytes[at] === 0x22 ? at + 1 : at;
    const end = wordEnd(bytes, start, to);
    const isCall = same(bytes, start, end, SET_CONFIG);
    at = nextToken(bytes, at, to);
    if (!isCall || at >= to || bytes[at] !== 0x28) continue;
    const name = literalName(bytes, blankEnd(bytes, at + 1, to), to);
    if (name !== "") steps.push({ by: null, name, isReset: false });
  }
  return at;
}

/** The parameter that the first argument of set_config(), at `at`, names; "" if that is no plain string. */
function literalName(bytes: Uint8Array, at: number, to: number): string {
  if (at >= to || bytes[at] !== 0x27) return "";
  const end = quotedEnd(bytes, at + 1, to, 0x27);
  const next = blankEnd(bytes, end, to);
  if (next >= to || (bytes[next] !== 0x2c && bytes[next] !== 0x3a)) return ""; // , or ::type
  return latin1Text(bytes.subarray(at + 1, end - 1)).replaceAll("''", "'").toLowerCase();
}
