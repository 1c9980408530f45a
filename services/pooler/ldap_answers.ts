// What an LDAP server answers, read strictly: a message that is cut short or says something else than it should is none.
// (ldapts, which makes our requests, takes an answer without a result code for success, and may look for the end
// of a broken one for ever.) Only what logins need: result codes, and the names of entries. Pure.
//
//   message  = 0x30 length { 0x02 length id, tag length { body }, [controls] }     a length: one byte below 0x80,
//   result   = { 0x0a length code, 0x04 length name, 0x04 length text, ... }       or 0x80 + n, then n bytes
//   entry    = { 0x04 length name, ... }

export const AnswerTag = {
  bind: 0x61,
  entry: 0x64,
  searchDone: 0x65,
  reference: 0x73,
  extended: 0x78,
} as const;

export interface LdapAnswer {
  readonly id: number;
  readonly tag: number;
  /** of a result; 0 = success */
  readonly code: number;
  /** what the server says to a result, or the name of an entry */
  readonly text: string;
  /** bytes of the whole message */
  readonly length: number;
}

interface Element {
  readonly tag: number;
  readonly at: number;
  readonly end: number;
}

const INTEGER = 0x02;
const OCTETS = 0x04;
const ENUMERATED = 0x0a;
const SEQUENCE = 0x30;
const results: readonly number[] = [AnswerTag.bind, AnswerTag.searchDone, AnswerTag.extended];

/** The message that the bytes begin with; null = its end has not come, "broken" = it is none. */
export function readAnswer(bytes: Uint8Array): LdapAnswer | null | "broken" {
  const { length } = bytes;
  if (length > 0 && bytes[0] !== SEQUENCE) return "broken";
  const digits = digitsOf(bytes[1] ?? 0);
  if (digits === null) return "broken";
  if (length < 2 + digits) return null;
  const message = element(bytes, 0, Infinity) as Element;
  if (message.end > length) return null;
  const id = element(bytes, message.at, message.end, INTEGER);
  const operation = id === null ? null : element(bytes, id.end, message.end);
  if (id === null || operation === null) return "broken";
  const head = { id: number(bytes, id), tag: operation.tag, length: message.end };
  if (operation.tag === AnswerTag.entry) {
    const name = element(bytes, operation.at, operation.end, OCTETS);
    return name === null ? "broken" : { ...head, code: 0, text: textOf(bytes, name) };
  }
  if (!results.includes(operation.tag)) return { ...head, code: 0, text: "" };
  const code = element(bytes, operation.at, operation.end, ENUMERATED);
  const name = code === null ? null : element(bytes, code.end, operation.end, OCTETS);
  const text = name === null ? null : element(bytes, name.end, operation.end, OCTETS);
  if (code === null || text === null) return "broken";
  return { ...head, code: number(bytes, code), text: textOf(bytes, text) };
}

/** The element that begins at `at`, with the tag that is wanted; null if it is not all there before `end`. */
function element(bytes: Uint8Array, at: number, end: number, wanted?: number): Element | null {
  const tag = bytes[at];
  const first = bytes[at + 1];
  if (tag === undefined || first === undefined || (wanted !== undefined && tag !== wanted)) {
    return null;
  }
  const digits = digitsOf(first);
  if (digits === null || at + 2 + digits > bytes.length) return null;
  let length = first < 0x80 ? first : 0;
  for (let i = 0; i < digits; i++) length = length * 256 + (bytes[at + 2 + i] as number);
  const start = at + 2 + digits;
  return start + length > end ? null : { tag, at: start, end: start + length };
}

/** How many bytes of a length stand behind its first; null = it has no end, or is longer than any answer may be. */
function digitsOf(first: number): number | null {
  if (first < 0x80) return 0;
  return first === 0x80 || first > 0x84 ? null : first & 0x7f;
}

/** -1 for what is none that LDAP knows. */
function number(bytes: Uint8Array, { at, end }: Element): number {
  if (end - at < 1 || end - at > 4 || (bytes[at] as number) >= 0x80) return -1;
  let value = 0;
  for (let i = at; i < end; i++) value = value * 256 + (bytes[i] as number);
  return value;
}

function textOf(bytes: Uint8Array, { at, end }: Element): string {
  return new TextDecoder().decode(bytes.subarray(at, end));
}

/** The words of the C library, which people look for. */
const codeTexts: ReadonlyMap<number, string> = new Map([
  [1, "Operations error"],
  [2, "Protocol error"],
  [3, "Time limit exceeded"],
  [4, "Size limit exceeded"],
  [7, "Authentication method not supported"],
  [8, "Strong(er) authentication required"],
  [10, "Referral"],
  [11, "Administrative limit exceeded"],
  [12, "Critical extension is unavailable"],
  [13, "Confidentiality required"],
  [18, "Inappropriate matching"],
  [32, "No such object"],
  [34, "Invalid DN syntax"],
  [48, "Inappropriate authentication"],
  [49, "Invalid credentials"],
  [50, "Insufficient access"],
  [51, "Server is busy"],
  [52, "Server is unavailable"],
  [53, "Server is unwilling to perform"],
]);

/** What a result says, in words. */
export function resultText({ code, text }: LdapAnswer): string {
  const what = codeTexts.get(code) ?? `result code ${code}`;
  return text === "" ? what : `${what} (${text.slice(0, 200)})`;
}
