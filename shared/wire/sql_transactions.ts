// What a text of SQL does to the transaction block it is sent in, by the first words of its statements. Nothing is
// allocated.

import { blankEnd, quotedEnd, same, skipStatement, word, wordEnd } from "./sql_tokens.ts";

const ABORT = word("abort");
const AND = word("and");
const BEGIN = word("begin");
const CHAIN = word("chain");
const COMMIT = word("commit");
const END = word("end");
const NO = word("no");
const PREPARED = word("prepared");
const ROLLBACK = word("rollback");
const START = word("start");
const TRANSACTION = word("transaction");
const WORK = word("work");

const semicolon = 0x3b;
const quote = 0x27;

/** Whether the first statement of the SQL [from, to), complete or not, begins a transaction block. */
export function beginsBlock(bytes: Uint8Array, from: number, to: number): boolean {
  return isBegin(bytes, statementAt(bytes, from, to), to);
}

/**
 * Whether the SQL [from, to) is the end of a transaction and nothing else: of the block it stands in, or of one that
 * is prepared.
 */
export function endsBlock(bytes: Uint8Array, from: number, to: number): boolean {
  let at = statementAt(bytes, from, to);
  let end = wordEnd(bytes, at, to);
  const isPrepared = same(bytes, at, end, COMMIT) || same(bytes, at, end, ROLLBACK);
  if (!isPrepared && !same(bytes, at, end, END) && !same(bytes, at, end, ABORT)) return false;
  at = blankEnd(bytes, end, to);
  end = wordEnd(bytes, at, to);
  if (isPrepared && same(bytes, at, end, PREPARED)) {
    at = blankEnd(bytes, end, to);
    if (at >= to || bytes[at] !== quote) return false;
    return statementAt(bytes, quotedEnd(bytes, at + 1, to, quote), to) >= to;
  }
  if (same(bytes, at, end, WORK) || same(bytes, at, end, TRANSACTION)) {
    at = blankEnd(bytes, end, to);
    end = wordEnd(bytes, at, to);
  }
  if (same(bytes, at, end, AND)) {
    at = blankEnd(bytes, end, to);
    end = wordEnd(bytes, at, to);
    if (!same(bytes, at, end, NO)) return false;
    at = blankEnd(bytes, end, to);
    end = wordEnd(bytes, at, to);
    if (!same(bytes, at, end, CHAIN)) return false;
    at = blankEnd(bytes, end, to);
  }
  return statementAt(bytes, at, to) >= to;
}

/** Whether a block is open behind the SQL [from, to) that it has begun itself; a doubt is a yes. */
export function leavesBlock(bytes: Uint8Array, from: number, to: number): boolean {
  let isOpen = false;
  for (let at = statementAt(bytes, from, to); at < to;) {
    const next = skipStatement(bytes, at, to);
    if (isBegin(bytes, at, next)) isOpen = true;
    // An END may be that of a function's body.
    else if (isOpen && !same(bytes, at, wordEnd(bytes, at, next), END)) {
      isOpen = !endsBlock(bytes, at, next);
    }
    at = statementAt(bytes, next, to);
  }
  return isOpen;
}

/** Where the first statement that is not empty begins. */
function statementAt(bytes: Uint8Array, from: number, to: number): number {
  let at = blankEnd(bytes, from, to);
  while (at < to && bytes[at] === semicolon) at = blankEnd(bytes, at + 1, to);
  return at;
}

function isBegin(bytes: Uint8Array, at: number, to: number): boolean {
  const end = wordEnd(bytes, at, to);
  if (same(bytes, at, end, BEGIN)) return true;
  if (!same(bytes, at, end, START)) return false;
  const next = blankEnd(bytes, end, to);
  return same(bytes, next, wordEnd(bytes, next, to), TRANSACTION);
}
