// What a text of SQL may do to the session it runs in, as bit flags: a lexer that looks at the first words
// of each statement and at a few names, and that parses nothing. It reads every simple Query and Parse in
// the data plane: nothing is allocated, nothing throws, each byte is looked at a bounded number of times.
// A doubt sets the flag. What a function does when it is called, and what a prepared statement does when
// it is executed, is not to be seen in a text. The lexical rules are PostgreSQL's (scan.l) with
// standard_conforming_strings on and client_encoding a superset of ASCII.

import {
  blankEnd,
  dollarEnd,
  escapedEnd,
  insideWord,
  isSpace,
  lettersStart,
  nextToken,
  quotedEnd,
  same,
  spaceStart,
  tagEnd,
  tokenEnd,
  word,
  wordBefore,
  wordEnd,
} from "./sql_tokens.ts";

export const SqlFlag = {
  /** A statement begins with DEALLOCATE or DISCARD. */
  discards: 1 << 0,
  /** A statement begins with SET, and is not SET LOCAL, SET TRANSACTION or SET CONSTRAINTS. */
  sets: 1 << 1,
  /** A statement begins with RESET. */
  resets: 1 << 2,
  /** set_config() is called without a literal true at the end, or a string names it, or pg_settings is updated. */
  setsConfig: 1 << 3,
  /** A statement begins with LISTEN. */
  listens: 1 << 4,
  /** A statement begins with UNLISTEN. */
  unlistens: 1 << 5,
  /** A temporary table, view or the like is made that outlives the transaction. */
  makesTemp: 1 << 6,
  /** A cursor is declared WITH HOLD. */
  holds: 1 << 7,
  /** A function that takes a session-level advisory lock is named, be it in a string. */
  locks: 1 << 8,
  /** A function that releases session-level advisory locks is named, be it in a string. */
  unlocks: 1 << 9,
  /** A statement begins with PREPARE, and is not PREPARE TRANSACTION. */
  prepares: 1 << 10,
  /** A statement begins with DO, and may do anything. */
  runsCode: 1 << 11,
  /** As sets, but of a parameter that every PostgreSQL reports and every pooler tracks. */
  setsReported: 1 << 12,
  /** A SET, of whatever, goes back to the default. */
  setsDefault: 1 << 13,
  /** A statement begins with SET LOCAL, SET TRANSACTION or SET CONSTRAINTS. */
  setsLocal: 1 << 14,
  /** set_config() is called, or pg_settings updated, for a parameter whose name is not in the text. */
  setsUnnamed: 1 << 15,
  /** A string names set_config(). */
  mentionsConfig: 1 << 16,
  /** A parameter is set, however long, that may change what later texts mean; or DISCARD is done. */
  changesMeaning: 1 << 17,
  /** A statement begins with BEGIN or START. */
  begins: 1 << 18,
  /** A statement may end the transaction block: COMMIT, END, ROLLBACK, ABORT, PREPARE TRANSACTION. */
  ends: 1 << 19,
  /** A statement begins with SAVEPOINT, RELEASE or ROLLBACK TO. */
  savepoints: 1 << 20,
  /** A statement begins with NOTIFY. */
  notifies: 1 << 21,
  /** pg_notify() is named, be it in a string. */
  namesNotify: 1 << 22,
} as const;

const everyFlag = (1 << 23) - 1;

const setsUnnamedConfig = SqlFlag.setsConfig | SqlFlag.setsUnnamed;
/** Set by a name of a function alone. */
const callsAny = SqlFlag.locks | SqlFlag.unlocks | SqlFlag.namesNotify;

// Beside the flags, and dropped at the end of a statement:
/** The statement may make something in the schema pg_temp. */
const creates = 1 << 23;
/** The statement may be an UPDATE, which on pg_settings does what set_config() does. */
const updates = 1 << 24;
/** The statement is a SET. */
const configures = 1 << 28;
const ofStatement = creates | updates | configures;

// What the scan finds beside the flags:
/** The schema pg_temp. */
const tempSchema = 1 << 25;
/** The view pg_settings. */
const settingsView = 1 << 26;
/** The word TEMP or TEMPORARY. */
const tempWord = 1 << 27;

/** Of the names searched for in strings, the shortest is pg_temp. */
const shortestName = 7;

/** 1 for the bytes at which the scan of a statement stops. */
const stops = new Uint8Array(256);

for (const char of `'"$-/;_pP`) stops[char.charCodeAt(0)] = 1;

const ABORT = word("abort");
const ANALYSE = word("analyse");
const ANALYZE = word("analyze");
const BEGIN = word("begin");
const COMMIT = word("commit");
const CONSTRAINTS = word("constraints");
const CREATE = word("create");
const DEALLOCATE = word("deallocate");
const DECLARE = word("declare");
const DEFAULT = word("default");
const DISCARD = word("discard");
const DO = word("do");
const DROP = word("drop");
const END = word("end");
const EXPLAIN = word("explain");
const FOR = word("for");
const GLOBAL = word("global");
const HOLD = word("hold");
const INSERT = word("insert");
const INTO = word("into");
const LISTEN = word("listen");
const LOCAL = word("local");
const MERGE = word("merge");
const NOTIFY = word("notify");
const ON = word("on");
const OR = word("or");
const PREPARE = word("prepare");
const RELEASE = word("release");
const REPLACE = word("replace");
const RESET = word("reset");
const ROLLBACK = word("rollback");
const SAVEPOINT = word("savepoint");
const SESSION = word("session");
const SET = word("set");
const START = word("start");
const T = word("t");
const TABLE = word("table");
const TEMP = word("temp");
const TEMPORARY = word("temporary");
const TIME = word("time");
const TO = word("to");
const TRANSACTION = word("transaction");
const TRUE = word("true");
const UESCAPE = word("uescape");
const UNLISTEN = word("unlisten");
const UPDATE = word("update");
const VERBOSE = word("verbose");
const WITH = word("with");
const WORK = word("work");

const timeoutSuffix = word("_timeout");
/** Beside time-outs and what extensions and applications define. */
const meaninglessNames = [
  "application_name",
  "client_min_messages",
  "jit",
  "maintenance_work_mem",
  "synchronous_commit",
  "work_mem",
].map(word);
const setConfigName = word("set_config");
const tempName = word("pg_temp");
const settingsName = word("pg_settings");
const notifyName = word("pg_notify");
const lockNames = [
  "pg_advisory_lock",
  "pg_advisory_lock_shared",
  "pg_try_advisory_lock",
  "pg_try_advisory_lock_shared",
].map(word);
/** NAMES is client_encoding, TIME begins TIME ZONE. */
const reportedNames = [
  "application_name",
  "client_encoding",
  "datestyle",
  "intervalstyle",
  "names",
  "standard_conforming_strings",
  "time",
  "timezone",
].map(word);
const unlockNames = [
  "pg_advisory_unlock",
  "pg_advisory_unlock_shared",
  "pg_advisory_unlock_all",
].map(word);

/** The flags (SqlFlag) of the SQL in [from, to), which may be several statements, complete or not. */
export function scanSql(bytes: Uint8Array, from: number, to: number): number {
  let at = blankEnd(bytes, from, to);
  let flags = statementFlags(bytes, at, to);
  /** Where the last call of set_config ends that sets nothing beyond the transaction. */
  let callEnd = from;
  /** Where the last comments in a row, and the white space with them, began and ended. */
  let commentsFrom = from;
  let commentsEnd = from;
  for (;;) {
    at = nextStop(bytes, at, to);
    if (at >= to) return flags & everyFlag;
    let start = at;
    let name = 0;
    switch (bytes[at]) {
      case 0x3b: // ;
        at = blankEnd(bytes, at + 1, to);
        flags = (flags & ~ofStatement) | statementFlags(bytes, at, to);
        continue;
      case 0x27: { // '
        const escapes = at > from && ((bytes[at - 1] as number) | 0x20) === 0x65 &&
          !wordBefore(bytes, from, at - 1);
        at = escapes ? escapedEnd(bytes, at + 1, to) : quotedEnd(bytes, at + 1, to, 0x27);
        if (at - start > shortestName) flags |= mentions(bytes, start + 1, at);
        continue;
      }
      case 0x22: { // "
        at = quotedEnd(bytes, at + 1, to, 0x22);
        const encoded = start - from > 1 && bytes[start - 1] === 0x26 &&
          ((bytes[start - 2] as number) | 0x20) === 0x75 && !wordBefore(bytes, from, start - 2);
        if (encoded) {
          flags |= encodedFlags(bytes, at, to, flags);
          continue;
        }
        name = nameAt(bytes, start + 1, at - 1);
        break;
      }
      case 0x24: // $
        if (insideWord(bytes, from, at)) {
          at = wordEnd(bytes, at, to);
          continue;
        }
        at = dollarEnd(bytes, at, to);
        if (at - start > shortestName) {
          const tag = tagEnd(bytes, start, to);
          if (tag > 0) flags |= mentions(bytes, tag, at - (tag - start));
        }
        continue;
      case 0x2d: // -
      case 0x2f: // /
        at = blankEnd(bytes, at, to);
        if (at === start) {
          at++;
          continue;
        }
        commentsFrom = start;
        commentsEnd = at;
        continue;
      case 0x5f: // _
        start = nameStart(bytes, from, at);
        if (start < 0 || wordBefore(bytes, from, start)) {
          at++;
          continue;
        }
        at = wordEnd(bytes, at, to);
        name = nameAt(bytes, start, at);
        break;
      default: // p, as in TEMP
        at++;
        if (start - from < 3 || ((bytes[start - 1] as number) | 0x20) !== 0x6d) continue;
        start -= 3;
        if (wordBefore(bytes, from, start)) continue;
        at = wordEnd(bytes, at, to);
        if (same(bytes, start, at, TEMP) || same(bytes, start, at, TEMPORARY)) name = tempWord;
        break;
    }
    if (name === 0) continue;
    flags |= name & callsAny;
    if ((name & SqlFlag.setsConfig) !== 0 && (flags & SqlFlag.changesMeaning) === 0) {
      const open = blankEnd(bytes, at, to);
      if (open < to && bytes[open] === 0x28) flags |= configMeaning(bytes, open + 1, to);
    }
    if ((name & SqlFlag.setsConfig) !== 0 && (flags & SqlFlag.setsUnnamed) === 0) {
      const open = blankEnd(bytes, at, to);
      if (open < to && bytes[open] === 0x28) {
        // One call within another is not looked into: with many, the text would be read many times.
        const isKnown = (flags & SqlFlag.setsConfig) !== 0 || at < callEnd;
        const end = isKnown ? -1 : localCallEnd(bytes, open + 1, to);
        if (end >= 0) callEnd = end;
        else flags |= configFlags(bytes, open + 1, to);
      }
    } else if ((name & (tempSchema | tempWord)) !== 0 && (flags & SqlFlag.makesTemp) === 0) {
      const before = start === commentsEnd ? commentsFrom : start;
      // What is created by names without a schema is temporary where pg_temp comes first in the path.
      if ((name & tempSchema) !== 0 && (flags & configures) !== 0) flags |= SqlFlag.makesTemp;
      else if (intoBefore(bytes, from, before)) flags |= SqlFlag.makesTemp;
      else if ((name & tempSchema) !== 0 && (flags & creates) !== 0) {
        const dot = blankEnd(bytes, at, to);
        if (dot < to && bytes[dot] === 0x2e) flags |= SqlFlag.makesTemp;
      }
    } else if ((name & settingsView) !== 0 && (flags & updates) !== 0) {
      flags |= setsUnnamedConfig;
    }
  }
}

/**
 * The next byte at which the scan of a statement stops, or `to`. Four bytes at a time, since the branches of
 * the shorter loop are guessed wrong twice as often.
 */
function nextStop(bytes: Uint8Array, at: number, to: number): number {
  const last = to - 3;
  while (at < last) {
    if (stops[bytes[at] as number] !== 0) return at;
    if (stops[bytes[at + 1] as number] !== 0) return at + 1;
    if (stops[bytes[at + 2] as number] !== 0) return at + 2;
    if (stops[bytes[at + 3] as number] !== 0) return at + 3;
    at += 4;
  }
  while (at < to && stops[bytes[at] as number] === 0) at++;
  return at;
}

// Statements. `at` is where a word begins, or behind one.

/** The flags that the first words of the statement at `at` set. */
function statementFlags(bytes: Uint8Array, at: number, to: number): number {
  if (at >= to) return 0;
  const end = wordEnd(bytes, at, to);
  switch ((bytes[at] as number) | 0x20) {
    case 0x61: // a
      return same(bytes, at, end, ABORT) ? SqlFlag.ends : 0;
    case 0x62: // b
      return same(bytes, at, end, BEGIN) ? SqlFlag.begins : 0;
    case 0x63: // c
      if (same(bytes, at, end, CREATE)) return creationFlags(bytes, end, to);
      return same(bytes, at, end, COMMIT) ? SqlFlag.ends : 0;
    case 0x64: // d
      if (same(bytes, at, end, DECLARE)) return cursorHolds(bytes, end, to) ? SqlFlag.holds : 0;
      if (same(bytes, at, end, DEALLOCATE)) return SqlFlag.discards;
      if (same(bytes, at, end, DISCARD)) return SqlFlag.discards | SqlFlag.changesMeaning;
      return same(bytes, at, end, DO) ? SqlFlag.runsCode : 0;
    case 0x65: // e
      if (same(bytes, at, end, END)) return SqlFlag.ends;
      return same(bytes, at, end, EXPLAIN) ? explainedFlags(bytes, end, to) : 0;
    case 0x6c: // l
      return same(bytes, at, end, LISTEN) ? SqlFlag.listens : 0;
    case 0x6e: // n
      return same(bytes, at, end, NOTIFY) ? SqlFlag.notifies : 0;
    case 0x70: // p
      if (!same(bytes, at, end, PREPARE)) return 0;
      return preparesTransaction(bytes, end, to) ? SqlFlag.ends : SqlFlag.prepares;
    case 0x72: // r
      if (same(bytes, at, end, ROLLBACK)) {
        return toSavepoint(bytes, end, to) ? SqlFlag.savepoints : SqlFlag.ends;
      }
      if (same(bytes, at, end, RESET)) return SqlFlag.resets;
      return same(bytes, at, end, RELEASE) ? SqlFlag.savepoints : 0;
    case 0x73: // s
      if (same(bytes, at, end, START)) return SqlFlag.begins;
      if (!same(bytes, at, end, SET)) {
        return same(bytes, at, end, SAVEPOINT) ? SqlFlag.savepoints : 0;
      }
      return configures |
        (setsLocally(bytes, end, to)
          ? SqlFlag.setsLocal | localMeaning(bytes, end, to)
          : settingFlags(bytes, end, to));
    case 0x75: // u
      if (same(bytes, at, end, UPDATE)) return updates;
      return same(bytes, at, end, UNLISTEN) ? SqlFlag.unlistens : 0;
    case 0x77: // w
      return same(bytes, at, end, WITH) ? updates : 0;
    default:
      return 0;
  }
}

/** The flags of CREATE ... */
function creationFlags(bytes: Uint8Array, at: number, to: number): number {
  at = blankEnd(bytes, at, to);
  let end = wordEnd(bytes, at, to);
  if (same(bytes, at, end, OR)) {
    at = blankEnd(bytes, end, to);
    end = wordEnd(bytes, at, to);
    if (!same(bytes, at, end, REPLACE)) return creates;
    at = blankEnd(bytes, end, to);
    end = wordEnd(bytes, at, to);
  }
  if (same(bytes, at, end, GLOBAL) || same(bytes, at, end, LOCAL)) {
    at = blankEnd(bytes, end, to);
    end = wordEnd(bytes, at, to);
  }
  if (!same(bytes, at, end, TEMP) && !same(bytes, at, end, TEMPORARY)) return creates;
  return dropsOnCommit(bytes, at, to) ? 0 : SqlFlag.makesTemp;
}

/** The flags of EXPLAIN ..., which with ANALYZE executes the statement. */
function explainedFlags(bytes: Uint8Array, at: number, to: number): number {
  at = blankEnd(bytes, at, to);
  if (at < to && bytes[at] === 0x28) {
    let depth = 0;
    do {
      if (bytes[at] === 0x28) depth++;
      else if (bytes[at] === 0x29) depth--;
      at = nextToken(bytes, at, to);
    } while (at < to && depth > 0);
  }
  for (;;) {
    const end = wordEnd(bytes, at, to);
    if (same(bytes, at, end, CREATE)) return updates | creationFlags(bytes, end, to);
    if (
      !same(bytes, at, end, ANALYZE) && !same(bytes, at, end, ANALYSE) &&
      !same(bytes, at, end, VERBOSE)
    ) return updates;
    at = blankEnd(bytes, end, to);
  }
}

/** Whether what follows SET lasts for the transaction at most. */
function setsLocally(bytes: Uint8Array, at: number, to: number): boolean {
  at = blankEnd(bytes, at, to);
  const end = wordEnd(bytes, at, to);
  if (
    !same(bytes, at, end, LOCAL) && !same(bytes, at, end, TRANSACTION) &&
    !same(bytes, at, end, CONSTRAINTS)
  ) return false;
  const dot = blankEnd(bytes, end, to);
  return dot >= to || bytes[dot] !== 0x2e; // SET local.x = 1 is a setting of an extension
}

/** The flags of SET ..., by the name and the value that follow; `x.y` is a setting of an extension. */
function settingFlags(bytes: Uint8Array, at: number, to: number): number {
  at = blankEnd(bytes, at, to);
  if (same(bytes, at, wordEnd(bytes, at, to), SESSION)) {
    at = blankEnd(bytes, wordEnd(bytes, at, to), to);
  }
  if (at >= to) return SqlFlag.sets;
  const end = tokenEnd(bytes, at, to);
  const isZone = same(bytes, at, end, TIME);
  let flags: number = isReported(bytes, at, end) ? SqlFlag.setsReported : SqlFlag.sets;
  flags |= meaningFlags(bytes, at, end, to);
  at = blankEnd(bytes, end, to);
  while (at < to && bytes[at] === 0x2e) {
    flags = SqlFlag.sets;
    at = nextToken(bytes, at, to);
    if (at < to) at = nextToken(bytes, at, to);
  }
  // The value stands behind ZONE, = or TO; where SESSION was a name, the word there is no value.
  if (at < to && !same(bytes, at, tokenEnd(bytes, at, to), DEFAULT)) at = nextToken(bytes, at, to);
  if (at >= to) return flags;
  const valueEnd = tokenEnd(bytes, at, to);
  const isDefault = same(bytes, at, valueEnd, DEFAULT) ||
    (isZone && same(bytes, at, valueEnd, LOCAL));
  return isDefault ? flags | SqlFlag.setsDefault : flags;
}

/** Whether the name [at, end), quoted or not, is of a parameter that is reported. */
function isReported(bytes: Uint8Array, at: number, end: number): boolean {
  if (bytes[at] === 0x22) {
    at++;
    end--;
  }
  return isOneOf(bytes, at, end, reportedNames);
}

function isOneOf(
  bytes: Uint8Array,
  at: number,
  end: number,
  names: readonly Uint8Array[],
): boolean {
  for (let i = 0; i < names.length; i++) {
    if (same(bytes, at, end, names[i] as Uint8Array)) return true;
  }
  return false;
}

/** The flag for what follows SET where it is the transaction's: LOCAL x, TRANSACTION, CONSTRAINTS. */
function localMeaning(bytes: Uint8Array, at: number, to: number): number {
  at = blankEnd(bytes, at, to);
  const end = wordEnd(bytes, at, to);
  if (!same(bytes, at, end, LOCAL)) return 0;
  at = blankEnd(bytes, end, to);
  return at >= to ? 0 : meaningFlags(bytes, at, tokenEnd(bytes, at, to), to);
}

/** The flag for setting the parameter whose name, or the first part of it, is [at, end), quoted or not. */
function meaningFlags(bytes: Uint8Array, at: number, end: number, to: number): number {
  const dot = blankEnd(bytes, end, to);
  if (dot < to && bytes[dot] === 0x2e) return 0;
  if (bytes[at] === 0x22) {
    at++;
    end--;
  }
  return isMeaningless(bytes, at, end) ? 0 : SqlFlag.changesMeaning;
}

/** The flag for a call of set_config whose arguments begin at `at`. */
function configMeaning(bytes: Uint8Array, at: number, to: number): number {
  at = blankEnd(bytes, at, to);
  if (at >= to || bytes[at] !== 0x27) return SqlFlag.changesMeaning;
  const end = quotedEnd(bytes, at + 1, to, 0x27) - 1;
  // What follows a string without a comma or a type may be more of it.
  const next = blankEnd(bytes, end + 1, to);
  if (next >= to || (bytes[next] !== 0x2c && bytes[next] !== 0x3a)) return SqlFlag.changesMeaning;
  for (let i = at + 1; i < end; i++) if (bytes[i] === 0x2e) return 0;
  return isMeaningless(bytes, at + 1, end) ? 0 : SqlFlag.changesMeaning;
}

/** Whether no text means anything else by the parameter of this name. */
function isMeaningless(bytes: Uint8Array, at: number, end: number): boolean {
  const suffix = end - timeoutSuffix.length;
  return (suffix > at && same(bytes, suffix, end, timeoutSuffix)) ||
    isOneOf(bytes, at, end, meaninglessNames);
}

/** Whether what follows PREPARE is TRANSACTION 'id'; a statement may be named transaction, too. */
function preparesTransaction(bytes: Uint8Array, at: number, to: number): boolean {
  at = blankEnd(bytes, at, to);
  const end = wordEnd(bytes, at, to);
  if (!same(bytes, at, end, TRANSACTION)) return false;
  const next = blankEnd(bytes, end, to);
  return next >= to || (bytes[next] !== 0x28 && ((bytes[next] as number) | 0x20) !== 0x61);
}

/** Whether what follows ROLLBACK is [WORK | TRANSACTION] TO a savepoint. */
function toSavepoint(bytes: Uint8Array, at: number, to: number): boolean {
  at = blankEnd(bytes, at, to);
  let end = wordEnd(bytes, at, to);
  if (same(bytes, at, end, WORK) || same(bytes, at, end, TRANSACTION)) {
    at = blankEnd(bytes, end, to);
    end = wordEnd(bytes, at, to);
  }
  return same(bytes, at, end, TO);
}

/** Whether WITH HOLD is between DECLARE and the cursor's query. */
function cursorHolds(bytes: Uint8Array, at: number, to: number): boolean {
  let afterWith = false;
  for (at = blankEnd(bytes, at, to); at < to && bytes[at] !== 0x3b; at = nextToken(bytes, at, to)) {
    const end = wordEnd(bytes, at, to);
    if (afterWith && same(bytes, at, end, HOLD)) return true;
    if (same(bytes, at, end, FOR)) return false;
    afterWith = same(bytes, at, end, WITH);
  }
  return false;
}

/** Whether the rest of the statement has ON COMMIT DROP. */
function dropsOnCommit(bytes: Uint8Array, at: number, to: number): boolean {
  let matched = 0;
  for (; at < to && bytes[at] !== 0x3b; at = nextToken(bytes, at, to)) {
    const end = wordEnd(bytes, at, to);
    if (matched === 2 && same(bytes, at, end, DROP)) return true;
    if (matched === 1 && same(bytes, at, end, COMMIT)) matched = 2;
    else matched = same(bytes, at, end, ON) ? 1 : 0;
  }
  return false;
}

/** Whether what begins behind `at` is what SELECT ... INTO makes: INTO [LOCAL | GLOBAL] is before it. */
function intoBefore(bytes: Uint8Array, from: number, at: number): boolean {
  let end = spaceStart(bytes, from, at);
  let start = lettersStart(bytes, from, end);
  if (same(bytes, start, end, TABLE)) {
    end = spaceStart(bytes, from, start);
    start = lettersStart(bytes, from, end);
  }
  const scoped = same(bytes, start, end, LOCAL) || same(bytes, start, end, GLOBAL);
  if (!scoped && !same(bytes, start, end, INTO)) return false;
  end = spaceStart(bytes, from, start);
  start = lettersStart(bytes, from, end);
  if (wordBefore(bytes, from, start)) return true;
  if (scoped) return !same(bytes, start, end, CREATE) && !same(bytes, start, end, REPLACE);
  return !same(bytes, start, end, INSERT) && !same(bytes, start, end, MERGE);
}

/**
 * Where the call of set_config ends whose arguments begin at `at`, if its last argument is a literal
 * true, so that the setting lasts for the transaction at most; or -1.
 */
function localCallEnd(bytes: Uint8Array, at: number, to: number): number {
  let depth = 1;
  let tokens = 0;
  let local = false;
  for (at = blankEnd(bytes, at, to); at < to; at = nextToken(bytes, at, to)) {
    switch (bytes[at]) {
      case 0x3b: // ;
        return -1;
      case 0x28: // (
      case 0x5b: // [
        depth++;
        break;
      case 0x29: // )
      case 0x5d: // ]
        if (--depth === 0) return local && tokens === 1 ? at + 1 : -1;
        break;
      case 0x2c: // ,
        if (depth > 1) break;
        tokens = 0;
        local = false;
        continue;
    }
    tokens++;
    local = isTrue(bytes, at, tokenEnd(bytes, at, to));
  }
  return -1;
}

/** The flags of a call of set_config that may last, whose arguments begin at `at`. */
function configFlags(bytes: Uint8Array, at: number, to: number): number {
  at = blankEnd(bytes, at, to);
  if (at >= to || bytes[at] !== 0x27) return setsUnnamedConfig;
  const next = nextToken(bytes, at, to);
  const isName = next < to && (bytes[next] === 0x2c || bytes[next] === 0x3a); // , or ::type
  return isName ? SqlFlag.setsConfig : setsUnnamedConfig;
}

/** Whether the token [at, end) is true, 't' or 'true'. */
function isTrue(bytes: Uint8Array, at: number, end: number): boolean {
  if (bytes[at] !== 0x27) return same(bytes, at, end, TRUE);
  at++;
  end--;
  while (at < end && isSpace(bytes[at] as number)) at++;
  while (end > at && isSpace(bytes[end - 1] as number)) end--;
  return same(bytes, at, end, TRUE) || same(bytes, at, end, T);
}

// Names that matter anywhere in a statement.

/** What the name [at, end) stands for: flags, tempSchema, settingsView, or 0. */
function nameAt(bytes: Uint8Array, at: number, end: number): number {
  if (end - at < tempName.length) return 0;
  const first = (bytes[at] as number) | 0x20;
  if (first !== 0x70 && first !== 0x73) return 0;
  if (same(bytes, at, end, setConfigName)) return SqlFlag.setsConfig;
  const head = at + tempName.length;
  if (same(bytes, at, head, tempName) && (end === head || bytes[head] === 0x5f)) return tempSchema;
  if (same(bytes, at, end, settingsName)) return settingsView;
  if (same(bytes, at, end, notifyName)) return SqlFlag.namesNotify;
  for (let i = 0; i < lockNames.length; i++) {
    if (same(bytes, at, end, lockNames[i] as Uint8Array)) return SqlFlag.locks;
  }
  for (let i = 0; i < unlockNames.length; i++) {
    if (same(bytes, at, end, unlockNames[i] as Uint8Array)) return SqlFlag.unlocks;
  }
  return 0;
}

/** The flags for a name written as U&"...", which ends at `at`: it may be any, and is not decoded. */
function encodedFlags(bytes: Uint8Array, at: number, to: number, flags: number): number {
  let found: number = (flags & updates) !== 0 ? setsUnnamedConfig : 0;
  at = blankEnd(bytes, at, to);
  const end = wordEnd(bytes, at, to);
  if (same(bytes, at, end, UESCAPE)) at = nextToken(bytes, blankEnd(bytes, end, to), to);
  if (at >= to) return found;
  if (bytes[at] === 0x28) found |= setsUnnamedConfig | callsAny;
  if (bytes[at] === 0x2e && (flags & creates) !== 0) found |= SqlFlag.makesTemp;
  return found;
}

/** Where a name begins that nameAt() may know and whose first underscore is at `at`; or -1. */
function nameStart(bytes: Uint8Array, from: number, at: number): number {
  if (at - from < 2) return -1;
  const last = (bytes[at - 1] as number) | 0x20;
  if (last === 0x67) return ((bytes[at - 2] as number) | 0x20) === 0x70 ? at - 2 : -1; // pg_
  return last === 0x74 && at - from > 2 ? at - 3 : -1; // set_
}

/** The flags of the names in the contents [from, to) of a string: what is in it may be executed. */
function mentions(bytes: Uint8Array, from: number, to: number): number {
  let flags = 0;
  let at = from;
  for (;;) {
    while (at < to && bytes[at] !== 0x5f) at++;
    if (at >= to) return flags & everyFlag;
    const start = nameStart(bytes, from, at);
    at++;
    if (start < 0) continue;
    // The letter before a name may belong to an escape, as in E'\nset_config'.
    if (wordBefore(bytes, from, start) && (start - from < 2 || bytes[start - 2] !== 0x5c)) continue;
    at = wordEnd(bytes, at, to);
    const name = nameAt(bytes, start, at);
    if ((name & SqlFlag.setsConfig) !== 0) flags |= SqlFlag.mentionsConfig;
    flags |= (name & tempSchema) === 0 ? name : SqlFlag.makesTemp;
  }
}
