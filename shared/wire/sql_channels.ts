// The statements of a text of SQL that say which channels a session listens to, and to which point of its transaction
// that goes back: UNLISTEN, and what is done with savepoints; and the channels that it notifies. Cold: looked for only
// where the flags of scanSql say that there are any.

import { blankEnd, isLetter, quotedEnd, same, skipStatement, word, wordEnd } from "./sql_tokens.ts";
import { decodeUtf8Lossy } from "./text.ts";

export type StepKind = "unlisten" | "savepoint" | "release" | "rollback";

export interface Step {
  /** `rollback`: to a savepoint. */
  readonly kind: StepKind;
  /**
   * The channel or savepoint as PostgreSQL knows it; "*" for UNLISTEN *. "": it is written as U&"...", which is not
   * decoded.
   */
  readonly name: string;
}

/** PostgreSQL cuts identifiers off at NAMEDATALEN - 1 bytes. */
const maxIdentifierBytes = 63;

const NOTIFY = word("notify");
const RELEASE = word("release");
const ROLLBACK = word("rollback");
const SAVEPOINT = word("savepoint");
const TO = word("to");
const TRANSACTION = word("transaction");
const UNLISTEN = word("unlisten");
const WORK = word("work");

const star = 0x2a;
const semicolon = 0x3b;
const doubleQuote = 0x22;
const ampersand = 0x26;

/** The steps in the SQL [from, to), in order. Allocates. */
export function channelSteps(bytes: Uint8Array, from: number, to: number): Step[] {
  const steps: Step[] = [];
  for (let at = blankEnd(bytes, from, to); at < to;) {
    const step = stepAt(bytes, at, to);
    if (step !== null) steps.push(step);
    at = blankEnd(bytes, skipStatement(bytes, at, to), to);
  }
  return steps;
}

/** The channels of NOTIFY in the SQL [from, to), as in steps. Allocates. */
export function notifiedChannels(bytes: Uint8Array, from: number, to: number): string[] {
  const names: string[] = [];
  for (let at = blankEnd(bytes, from, to); at < to;) {
    const end = wordEnd(bytes, at, to);
    if (same(bytes, at, end, NOTIFY)) names.push(nameAt(bytes, blankEnd(bytes, end, to), to));
    at = blankEnd(bytes, skipStatement(bytes, at, to), to);
  }
  return names;
}

function stepAt(bytes: Uint8Array, at: number, to: number): Step | null {
  let end = wordEnd(bytes, at, to);
  const next = blankEnd(bytes, end, to);
  if (same(bytes, at, end, UNLISTEN)) return { kind: "unlisten", name: nameAt(bytes, next, to) };
  if (same(bytes, at, end, SAVEPOINT)) return { kind: "savepoint", name: nameAt(bytes, next, to) };
  if (same(bytes, at, end, RELEASE)) {
    return { kind: "release", name: savepointAt(bytes, next, to) };
  }
  if (!same(bytes, at, end, ROLLBACK)) return null;
  at = next;
  end = wordEnd(bytes, at, to);
  if (same(bytes, at, end, WORK) || same(bytes, at, end, TRANSACTION)) {
    at = blankEnd(bytes, end, to);
    end = wordEnd(bytes, at, to);
  }
  if (!same(bytes, at, end, TO)) return null;
  return { kind: "rollback", name: savepointAt(bytes, blankEnd(bytes, end, to), to) };
}

/** The name at `at`, or behind the word SAVEPOINT there, which may be a name itself. */
function savepointAt(bytes: Uint8Array, at: number, to: number): string {
  const end = wordEnd(bytes, at, to);
  if (same(bytes, at, end, SAVEPOINT)) {
    const next = blankEnd(bytes, end, to);
    if (next < to && bytes[next] !== semicolon) return nameAt(bytes, next, to);
  }
  return nameAt(bytes, at, to);
}

function nameAt(bytes: Uint8Array, at: number, to: number): string {
  if (at >= to) return "";
  if (bytes[at] === star) return "*";
  const name: number[] = [];
  if (bytes[at] === doubleQuote) {
    const last = quotedEnd(bytes, at + 1, to, doubleQuote) - 1;
    for (let i = at + 1; i < last; i++) {
      name.push(bytes[i] as number);
      if (bytes[i] === doubleQuote) i++;
    }
  } else if (isLetter(bytes[at] as number)) {
    const end = wordEnd(bytes, at, to);
    if (end < to && bytes[end] === ampersand) return "";
    for (let i = at; i < end; i++) {
      const byte = bytes[i] as number;
      name.push(byte >= 0x41 && byte <= 0x5a ? byte | 0x20 : byte);
    }
  }
  let length = name.length;
  if (length > maxIdentifierBytes) {
    length = maxIdentifierBytes;
    while (length > 0 && ((name[length] as number) & 0xc0) === 0x80) length--;
  }
  return decodeUtf8Lossy(Uint8Array.from(name.slice(0, length)));
}
