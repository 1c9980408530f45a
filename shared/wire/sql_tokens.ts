// The tokens of SQL in bytes, by PostgreSQL's lexical rules (scan.l): where words, strings, quoted
// identifiers, dollar quotes and comments begin and end. Internal to the wire folder. Nothing is allocated.
// Each function gets positions in [from, to], and returns one there; a token that is not closed ends at `to`.

const LETTER = 1;
const DIGIT = 2;
const DOLLAR = 3;

/** Which bytes make up words: LETTER (what a word begins with), DIGIT, DOLLAR, or 0. */
const wordBytes = new Uint8Array(256);

for (let byte = 0; byte < 256; byte++) {
  const char = String.fromCharCode(byte);
  if (byte >= 0x80 || /[A-Za-z_]/.test(char)) wordBytes[byte] = LETTER;
  else if (/[0-9]/.test(char)) wordBytes[byte] = DIGIT;
  else if (char === "$") wordBytes[byte] = DOLLAR;
}

/** A word as same() compares it: each byte with the bit set that makes letters lower case. */
export function word(text: string): Uint8Array {
  return Uint8Array.from(text, (char) => char.charCodeAt(0) | 0x20);
}

/** Whether a word can begin with the byte. */
export function isLetter(byte: number): boolean {
  return wordBytes[byte] === LETTER;
}

/** Whether [at, end) is the word, in any case. */
export function same(bytes: Uint8Array, at: number, end: number, wanted: Uint8Array): boolean {
  if (end - at !== wanted.length) return false;
  for (let i = 0; i < wanted.length; i++) {
    if (((bytes[at + i] as number) | 0x20) !== wanted[i]) return false;
  }
  return true;
}

/** Whether the byte before `at` can be part of a word. */
export function wordBefore(bytes: Uint8Array, from: number, at: number): boolean {
  return at > from && wordBytes[bytes[at - 1] as number] !== 0;
}

/** Whether the $ at `at` belongs to a word, and not to a number or a parameter before it. */
export function insideWord(bytes: Uint8Array, from: number, at: number): boolean {
  let start = at;
  while (start > from && wordBytes[bytes[start - 1] as number] === DIGIT) start--;
  return wordBefore(bytes, from, start);
}

export function isSpace(byte: number): boolean {
  return byte === 0x20 || (byte >= 0x09 && byte <= 0x0d);
}

/** Where the white space before `at` begins. */
export function spaceStart(bytes: Uint8Array, from: number, at: number): number {
  while (at > from && isSpace(bytes[at - 1] as number)) at--;
  return at;
}

/** Where the letters before `at` begin. */
export function lettersStart(bytes: Uint8Array, from: number, at: number): number {
  while (at > from && wordBytes[bytes[at - 1] as number] === LETTER) at--;
  return at;
}

/** Where the white space and the comments at `at` end. */
export function blankEnd(bytes: Uint8Array, at: number, to: number): number {
  while (at < to) {
    const byte = bytes[at] as number;
    const next = at + 1 < to ? bytes[at + 1] : 0;
    if (isSpace(byte)) at++;
    else if (byte === 0x2d && next === 0x2d) at = lineEnd(bytes, at + 2, to);
    else if (byte === 0x2f && next === 0x2a) at = commentEnd(bytes, at + 2, to);
    else return at;
  }
  return to;
}

/** Where the comment ends that began with two hyphens: before the end of the line. */
function lineEnd(bytes: Uint8Array, at: number, to: number): number {
  while (at < to && bytes[at] !== 0x0a && bytes[at] !== 0x0d) at++;
  return at;
}

/** The end of the comment whose opening is before `at`; comments nest. */
function commentEnd(bytes: Uint8Array, at: number, to: number): number {
  let depth = 1;
  while (at + 1 < to) {
    const byte = bytes[at++];
    if (byte === 0x2a && bytes[at] === 0x2f) {
      at++;
      if (--depth === 0) return at;
    } else if (byte === 0x2f && bytes[at] === 0x2a) {
      at++;
      depth++;
    }
  }
  return to;
}

export function wordEnd(bytes: Uint8Array, at: number, to: number): number {
  while (at < to && wordBytes[bytes[at] as number] !== 0) at++;
  return at;
}

/** The end of the string or quoted identifier whose opening quote is before `at`. */
export function quotedEnd(bytes: Uint8Array, at: number, to: number, quote: number): number {
  while (at < to) {
    if (bytes[at++] !== quote) continue;
    if (at >= to || bytes[at] !== quote) return at;
    at++;
  }
  return to;
}

/** The end of the E'...' whose opening quote is before `at`. */
export function escapedEnd(bytes: Uint8Array, at: number, to: number): number {
  while (at < to) {
    const byte = bytes[at++];
    if (byte === 0x5c) at++;
    if (byte !== 0x27) continue;
    if (at < to && bytes[at] === 0x27) at++;
    else {
      const next = continuation(bytes, at, to);
      if (next < 0) return at;
      at = next;
    }
  }
  return to;
}

/** A string goes on behind a line break, and is of the same kind there: where it does, or -1. */
function continuation(bytes: Uint8Array, at: number, to: number): number {
  let broken = false;
  for (; at < to; at++) {
    const byte = bytes[at] as number;
    if (byte === 0x0a || byte === 0x0d) broken = true;
    else if (byte === 0x2d && at + 1 < to && bytes[at + 1] === 0x2d) {
      at = lineEnd(bytes, at, to) - 1;
    } else if (!isSpace(byte)) return broken && byte === 0x27 ? at + 1 : -1;
  }
  return -1;
}

/** Where the opening tag of a dollar-quoted string ends whose first $ is at `at`; or -1 if it is none. */
export function tagEnd(bytes: Uint8Array, at: number, to: number): number {
  at++;
  if (at < to && wordBytes[bytes[at] as number] === DIGIT) return -1;
  while (at < to && bytes[at] !== 0x24) {
    if (wordBytes[bytes[at++] as number] === 0) return -1;
  }
  return at < to ? at + 1 : -1;
}

/** The end of what the $ at `at` begins: a dollar-quoted string, a parameter, or nothing. */
export function dollarEnd(bytes: Uint8Array, at: number, to: number): number {
  let end = tagEnd(bytes, at, to);
  if (end < 0) {
    at++;
    while (at < to && wordBytes[bytes[at] as number] === DIGIT) at++;
    return at;
  }
  const length = end - at;
  while (end < to) {
    if (bytes[end] !== 0x24) {
      end++;
      continue;
    }
    let i = 1;
    while (i < length && end + i < to && bytes[end + i] === bytes[at + i]) i++;
    if (i === length) return end + i;
    end += i;
  }
  return to;
}

/** The end of the token at `at`: a word, a string, a quoted identifier, or a single byte. */
export function tokenEnd(bytes: Uint8Array, at: number, to: number): number {
  const byte = bytes[at] as number;
  if (byte === 0x27 || byte === 0x22) return quotedEnd(bytes, at + 1, to, byte);
  const kind = wordBytes[byte];
  if (kind === 0) return at + 1;
  if (kind === DOLLAR) return dollarEnd(bytes, at, to);
  const end = wordEnd(bytes, at, to);
  const escapes = end === at + 1 && (byte | 0x20) === 0x65 && end < to && bytes[end] === 0x27;
  return escapes ? escapedEnd(bytes, end + 1, to) : end;
}

export function nextToken(bytes: Uint8Array, at: number, to: number): number {
  return blankEnd(bytes, tokenEnd(bytes, at, to), to);
}

/** Where the statement behind the one at `at` begins. */
export function skipStatement(bytes: Uint8Array, at: number, to: number): number {
  while (at < to && bytes[at] !== 0x3b) at = nextToken(bytes, at, to);
  return at < to ? at + 1 : to;
}
