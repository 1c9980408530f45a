// Prepared statements in transaction pooling: a client's names map to statements shared by text and
// parameter types; each statement has one server-side name, prepared on a server when it lacks it.
// Pure bookkeeping over bytes: who sends and answers the messages is in relay code.
// Invariant: a statement lives in the pool's table while a client name or a server refers to it.

import { Frontend, message, SqlFlag, unlistens, writeInt32 } from "../../../shared/wire/mod.ts";
import { textFlags } from "./residue.ts";
import { startsWith } from "./tags.ts";

const encoder = new TextEncoder();
const noChannels: readonly string[] = [];

/** A statement shared by every client and server of a pool. One buffer each: there may be many. */
export class Statement {
  readonly key: string;
  /** The settings under which the text was read, see Dialects; what `key` begins with. */
  readonly dialect: string;
  /** The complete Parse message under the server-side name. */
  readonly parse: Uint8Array;
  /** Server-side name with its terminating zero; a view into `parse`. */
  readonly name: Uint8Array;
  /** What its text may do, see textFlags. */
  readonly flags: number;
  /** The channels of its UNLISTENs. */
  readonly channels: readonly string[];
  references = 0;

  /** The Parse body after the name (text, zero, types) is `bytes[from, to)`; it is copied. */
  constructor(
    dialect: string,
    id: number,
    bytes: Uint8Array,
    from: number,
    to: number,
    plain: boolean,
  ) {
    const name = encoder.encode(`PGWEIR_${id}\0`);
    const bodyAt = 5 + name.length;
    this.dialect = dialect;
    this.key = keyOf(dialect, bytes, from, to);
    this.parse = new Uint8Array(bodyAt + to - from);
    this.parse[0] = Frontend.parse;
    writeInt32(this.parse, 1, this.parse.length - 1);
    this.parse.set(name, 5);
    this.parse.set(bytes.subarray(from, to), bodyAt);
    this.name = this.parse.subarray(5, bodyAt);
    const textEnd = this.parse.indexOf(0, bodyAt);
    this.flags = textFlags(this.parse, bodyAt, textEnd, plain);
    this.channels = (this.flags & SqlFlag.unlistens) === 0
      ? noChannels
      : unlistens(this.parse, bodyAt, textEnd);
  }

  /** The complete Close message, made anew: evictions are rare. */
  closeMessage(): Uint8Array {
    return message(Frontend.close, statementKind, this.name);
  }
}

function keyOf(dialect: string, bytes: Uint8Array, from: number, to: number): string {
  return dialect + latin1.decode(bytes.subarray(from, to));
}

const outdatedPlan = encoder.encode("\0RRevalidateCachedQuery\0");
const statementKind = Uint8Array.of(0x53);
const latin1 = new TextDecoder("latin1");

/**
 * The statements of one pool, by query text and parameter types, and by the dialect the text is in: a
 * prefix that no text has, see Dialects.
 */
export class StatementTable {
  readonly #byKey = new Map<string, Statement>();
  #nextId = 1;

  get size(): number {
    return this.#byKey.size;
  }

  /** The statement whose Parse body after the name (text, zero, types) is `bytes[from, to)`. */
  intern(bytes: Uint8Array, from: number, to: number, dialect = "", plain = true): Statement {
    const key = keyOf(dialect, bytes, from, to);
    let statement = this.#byKey.get(key);
    if (statement === undefined) {
      statement = new Statement(dialect, this.#nextId++, bytes, from, to, plain);
      this.#byKey.set(key, statement);
    }
    return statement;
  }

  /** As `intern`, but null if there is none. */
  find(bytes: Uint8Array, from: number, to: number, dialect = ""): Statement | null {
    return this.#byKey.get(keyOf(dialect, bytes, from, to)) ?? null;
  }

  /** The same text under other settings. */
  inDialect({ parse, name }: Statement, dialect: string, plain: boolean): Statement {
    return this.intern(parse, 5 + name.length, parse.length, dialect, plain);
  }

  /** Whatever is prepared from now on is a new statement, also where the text is known. */
  renew(): void {
    this.#byKey.clear();
  }

  /**
   * The body [from, end) of an error of SQLSTATE 0A000. If a statement's table has changed so that its
   * result would, what is prepared from now on is not taken for what is on the servers already, or
   * everybody would be given the outdated statement.
   */
  onUnsupported(bytes: Uint8Array, from: number, end: number): void {
    for (let at = from; at < end; at++) {
      // Field R, the routine: the message itself may be translated.
      if (startsWith(bytes, at, end, outdatedPlan)) return this.renew();
    }
  }

  retain(statement: Statement): void {
    statement.references++;
  }

  release(statement: Statement): void {
    statement.references--;
    // An evicted statement may have been followed by a new one of the same text.
    if (statement.references === 0 && this.#byKey.get(statement.key) === statement) {
      this.#byKey.delete(statement.key);
    }
  }
}

/** One name of one client. `next` chains names with equal hashes. */
export class StatementName {
  readonly bytes: Uint8Array;
  readonly hash: number;
  statement: Statement;
  next: StatementName | null = null;

  constructor(bytes: Uint8Array, hash: number, statement: Statement) {
    this.bytes = bytes;
    this.hash = hash;
    this.statement = statement;
  }

  is(bytes: Uint8Array, from: number, to: number): boolean {
    return equals(this.bytes, bytes, from, to);
  }
}

/** A client's statement names; a look-up allocates nothing. */
export class StatementNames {
  readonly #byHash = new Map<number, StatementName>();
  readonly #table: StatementTable;
  #last: StatementName | null = null;
  size = 0;

  constructor(table: StatementTable) {
    this.#table = table;
  }

  /** The entry for the name `bytes[from, to)` (without its zero), or null. */
  get(bytes: Uint8Array, from: number, to: number): StatementName | null {
    const last = this.#last;
    if (last !== null && equals(last.bytes, bytes, from, to)) return last;
    let entry = this.#byHash.get(hashOf(bytes, from, to)) ?? null;
    while (entry !== null && !equals(entry.bytes, bytes, from, to)) entry = entry.next;
    if (entry !== null) this.#last = entry;
    return entry;
  }

  add(bytes: Uint8Array, from: number, to: number, statement: Statement): StatementName {
    const entry = new StatementName(bytes.slice(from, to), hashOf(bytes, from, to), statement);
    this.put(entry);
    return entry;
  }

  /** Puts an entry (back). */
  put(entry: StatementName): void {
    entry.next = this.#byHash.get(entry.hash) ?? null;
    this.#byHash.set(entry.hash, entry);
    this.size++;
    this.#table.retain(entry.statement);
  }

  /** From now on the name stands for another statement. */
  repoint(entry: StatementName, statement: Statement): void {
    this.#table.retain(statement);
    this.#table.release(entry.statement);
    entry.statement = statement;
  }

  remove(entry: StatementName): void {
    let previous: StatementName | null = null;
    let at = this.#byHash.get(entry.hash) ?? null;
    while (at !== null && at !== entry) {
      previous = at;
      at = at.next;
    }
    if (at === null) return;
    if (previous !== null) previous.next = entry.next;
    else if (entry.next !== null) this.#byHash.set(entry.hash, entry.next);
    else this.#byHash.delete(entry.hash);
    entry.next = null;
    if (this.#last === entry) this.#last = null;
    this.size--;
    this.#table.release(entry.statement);
  }

  clear(): void {
    for (const first of this.#byHash.values()) {
      for (let at: StatementName | null = first; at !== null; at = at.next) {
        this.#table.release(at.statement);
      }
    }
    this.#byHash.clear();
    this.#last = null;
    this.size = 0;
  }
}

interface PreparedUse {
  lastUse: number;
}

/** The statements that one server has prepared, bounded, least recently used first out. */
export class PreparedOnServer {
  readonly #uses = new Map<Statement, PreparedUse>();
  readonly #table: StatementTable;
  #clock = 0;

  constructor(table: StatementTable) {
    this.#table = table;
  }

  get size(): number {
    return this.#uses.size;
  }

  /** Whether the server has it; counts as a use. */
  use(statement: Statement): boolean {
    const use = this.#uses.get(statement);
    if (use === undefined) return false;
    use.lastUse = ++this.#clock;
    return true;
  }

  add(statement: Statement): void {
    if (this.#uses.has(statement)) return;
    this.#uses.set(statement, { lastUse: ++this.#clock });
    this.#table.retain(statement);
  }

  remove(statement: Statement): void {
    if (this.#uses.delete(statement)) this.#table.release(statement);
  }

  leastRecentlyUsed(): Statement | null {
    let oldest: Statement | null = null;
    let lastUse = Infinity;
    for (const [statement, use] of this.#uses) {
      if (use.lastUse < lastUse) {
        lastUse = use.lastUse;
        oldest = statement;
      }
    }
    return oldest;
  }

  clear(): void {
    for (const statement of this.#uses.keys()) this.#table.release(statement);
    this.#uses.clear();
  }
}

/** FNV-1a, cut to 30 bits so that it stays a small integer on both engines. */
function hashOf(bytes: Uint8Array, from: number, to: number): number {
  let hash = 0x811c9dc5;
  for (let i = from; i < to; i++) hash = Math.imul(hash ^ (bytes[i] as number), 0x01000193);
  return hash & 0x3fffffff;
}

function equals(name: Uint8Array, bytes: Uint8Array, from: number, to: number): boolean {
  const length = to - from;
  if (name.length !== length) return false;
  for (let i = 0; i < length; i++) if (name[i] !== bytes[from + i]) return false;
  return true;
}
