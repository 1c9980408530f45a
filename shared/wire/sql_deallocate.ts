// Where a text of SQL deallocates prepared statements by name, and where it prepares any: for texts of which
// scanSql says that they may. Allocates.

import { blankEnd, isLetter, quotedEnd, same, skipStatement, word, wordEnd } from "./sql_tokens.ts";

/** PostgreSQL cuts identifiers off at NAMEDATALEN - 1 bytes. */
const maxIdentifierBytes = 63;

const ALL = word("all");
const DEALLOCATE = word("deallocate");
const DISCARD = word("discard");
const PREPARE = word("prepare");
const TRANSACTION = word("transaction");

export interface NamedStatement {
  /** The name that is deallocated; null: it is a PREPARE. */
  readonly deallocated: Uint8Array | null;
  /** The range of the statement up to its name. */
  readonly from: number;
  readonly to: number;
}

/** The statements DEALLOCATE name and PREPARE in the SQL [from, to), in order. */
export function namedStatements(bytes: Uint8Array, from: number, to: number): NamedStatement[] {
  const found: NamedStatement[] = [];
  for (let at = blankEnd(bytes, from, to); at < to;) {
    const end = wordEnd(bytes, at, to);
    const next = blankEnd(bytes, end, to);
    const nextEnd = wordEnd(bytes, next, to);
    if (same(bytes, at, end, PREPARE)) {
      if (!same(bytes, next, nextEnd, TRANSACTION)) {
        found.push({ deallocated: null, from: at, to: nextEnd });
      }
    } else if (same(bytes, at, end, DEALLOCATE)) {
      const behind = blankEnd(bytes, nextEnd, to);
      const isWord = same(bytes, next, nextEnd, PREPARE) && behind < to && bytes[behind] !== 0x3b;
      const statement = deallocationAt(bytes, at, isWord ? behind : next, to);
      if (statement !== null) found.push(statement);
    }
    at = blankEnd(bytes, skipStatement(bytes, at, to), to);
  }
  return found;
}

/** Whether the SQL [from, to) is DEALLOCATE ALL or DISCARD ALL, and nothing else. */
export function deallocatesAll(bytes: Uint8Array, from: number, to: number): boolean {
  let at = blankEnd(bytes, from, to);
  let end = wordEnd(bytes, at, to);
  const isDeallocate = same(bytes, at, end, DEALLOCATE);
  if (!isDeallocate && !same(bytes, at, end, DISCARD)) return false;
  at = blankEnd(bytes, end, to);
  end = wordEnd(bytes, at, to);
  if (isDeallocate && same(bytes, at, end, PREPARE)) {
    at = blankEnd(bytes, end, to);
    end = wordEnd(bytes, at, to);
  }
  if (!same(bytes, at, end, ALL)) return false;
  at = blankEnd(bytes, end, to);
  while (at < to && bytes[at] === 0x3b) at = blankEnd(bytes, at + 1, to);
  return at >= to;
}

/** The DEALLOCATE that begins at `from`, if a name is at `at` and nothing else follows. */
function deallocationAt(
  bytes: Uint8Array,
  from: number,
  at: number,
  to: number,
): NamedStatement | null {
  if (at >= to) return null;
  const isQuoted = bytes[at] === 0x22;
  const end = isQuoted ? quotedEnd(bytes, at + 1, to, 0x22) : wordEnd(bytes, at, to);
  const behind = blankEnd(bytes, end, to);
  if (behind < to && bytes[behind] !== 0x3b) return null;
  const name: number[] = [];
  if (isQuoted) {
    for (let i = at + 1; i < end - 1; i++) {
      name.push(bytes[i] as number);
      if (bytes[i] === 0x22) i++;
    }
  } else {
    if (!isLetter(bytes[at] as number) || same(bytes, at, end, ALL)) return null;
    for (let i = at; i < end; i++) {
      const byte = bytes[i] as number;
      name.push(byte >= 0x41 && byte <= 0x5a ? byte | 0x20 : byte);
    }
  }
  return { deallocated: Uint8Array.from(name.slice(0, maxIdentifierBytes)), from, to: end };
}
