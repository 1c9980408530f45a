// Prepared statements in transaction pooling: a client's names map to statements shared by text and
// parameter types; each statement has one server-side name, prepared on a server when it lacks it.
// Pure bookkeeping over bytes: who sends and answers the messages is in relay code.
// Invariant: a statement lives in the pool's table while a client name or a server refers to it.

import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { Frontend, message, writeInt32 } from "../../../shared/wire/mod.ts";
import { keyedHash } from "./keyed_hash.ts";
import { textFlags } from "./residue.ts";
import { nameOverhead, StatementMemory, statementOverhead } from "./statement_memory.ts";
import { startsWith } from "./tags.ts";
import { namesIn, type TextNames } from "./text_names.ts";

const encoder = new TextEncoder();

// Drawn at each start: clients choose the texts and names that are hashed.
const seeds = randomBytes(12);
const key0 = seeds.readInt32LE(0);
const key1 = seeds.readInt32LE(4);
const nameSeed = seeds.readInt32LE(8);

/** The dialect of statements that were prepared under settings nobody knows: each is one client's alone. */
export const foreign = "\u0101";

/** A statement shared by every client and server of a pool. One buffer each: there may be many. */
export class Statement {
  /** Of the dialect, the text and the types. */
  readonly hash: number;
  /** The next one in the table with the same hash. */
  next: Statement | null = null;
  /** The settings under which the text was read, see Dialects. */
  readonly dialect: string;
  /** The complete Parse message under the server-side name. */
  readonly parse: Uint8Array;
  /** Server-side name with its terminating zero; a view into `parse`. */
  readonly name: Uint8Array;
  /** What its text may do, see textFlags. */
  readonly flags: number;
  /** What it names. */
  readonly inText: TextNames;
  /** Names of clients, and servers. */
  references = 0;
  /** Names of clients. */
  names = 0;

  /** The Parse body after the name (text, zero, types) is `bytes[from, to)`; it is copied. */
  constructor(
    dialect: string,
    hash: number,
    id: number,
    bytes: Uint8Array,
    from: number,
    to: number,
    plain: boolean,
  ) {
    const name = encoder.encode(`PGWEIR_${id}\0`);
    const bodyAt = 5 + name.length;
    this.dialect = dialect;
    this.hash = hash;
    this.parse = new Uint8Array(bodyAt + to - from);
    this.parse[0] = Frontend.parse;
    writeInt32(this.parse, 1, this.parse.length - 1);
    this.parse.set(name, 5);
    this.parse.set(bytes.subarray(from, to), bodyAt);
    this.name = this.parse.subarray(5, bodyAt);
    const textEnd = this.parse.indexOf(0, bodyAt);
    this.flags = textFlags(this.parse, bodyAt, textEnd, plain);
    this.inText = namesIn(this.parse, bodyAt, textEnd, this.flags);
  }

  /** What it takes of memory. */
  get size(): number {
    return this.parse.length + statementOverhead;
  }

  /** Where the Parse body after the name begins. */
  get bodyAt(): number {
    return 5 + this.name.length;
  }

  /** Whether its Parse body after the name is `bytes[from, to)`. */
  is(bytes: Uint8Array, from: number, to: number): boolean {
    const { parse, bodyAt } = this;
    return parse.length - bodyAt === to - from &&
      Buffer.compare(parse.subarray(bodyAt), bytes.subarray(from, to)) === 0;
  }

  /** The complete Close message, made anew: evictions are rare. */
  closeMessage(): Uint8Array {
    return message(Frontend.close, statementKind, this.name);
  }
}

const outdatedPlan = encoder.encode("\0RRevalidateCachedQuery\0");
const statementKind = Uint8Array.of(0x53);

function hashOf(dialect: string, bytes: Uint8Array, from: number, to: number): number {
  let key = key1;
  // The same text in every dialect would be one chain.
  for (let i = 0; i < dialect.length; i++) key = Math.imul(key ^ dialect.charCodeAt(i), 0x01000193);
  return keyedHash(key0, key, bytes, from, to);
}

/** The statements of one pool, by query text and parameter types, and by the dialect the text is in. */
export class StatementTable {
  readonly memory: StatementMemory;
  readonly #hashOf: typeof hashOf;
  readonly #byHash = new Map<number, Statement>();
  #nextId = 1;
  #size = 0;

  constructor(memory: StatementMemory, hash: typeof hashOf = hashOf) {
    this.memory = memory;
    this.#hashOf = hash;
  }

  get size(): number {
    return this.#size;
  }

  /** The statement whose Parse body after the name (text, zero, types) is `bytes[from, to)`. */
  intern(bytes: Uint8Array, from: number, to: number, dialect = "", plain = true): Statement {
    const hash = this.#hashOf(dialect, bytes, from, to);
    const known = dialect === foreign ? null : this.#find(hash, dialect, bytes, from, to);
    if (known !== null) return known;
    const statement = new Statement(dialect, hash, this.#nextId++, bytes, from, to, plain);
    if (dialect === foreign) return statement;
    statement.next = this.#byHash.get(hash) ?? null;
    this.#byHash.set(hash, statement);
    this.#size++;
    return statement;
  }

  /** As `intern`, but null if there is none. */
  find(bytes: Uint8Array, from: number, to: number, dialect = ""): Statement | null {
    return this.#find(this.#hashOf(dialect, bytes, from, to), dialect, bytes, from, to);
  }

  #find(
    hash: number,
    dialect: string,
    bytes: Uint8Array,
    from: number,
    to: number,
  ): Statement | null {
    let at = this.#byHash.get(hash) ?? null;
    while (at !== null && !(at.dialect === dialect && at.is(bytes, from, to))) at = at.next;
    return at;
  }

  /** The same text under other settings. */
  inDialect({ parse, bodyAt }: Statement, dialect: string, plain: boolean): Statement {
    return this.intern(parse, bodyAt, parse.length, dialect, plain);
  }

  /** Whatever is prepared from now on is a new statement, also where the text is known. */
  renew(): void {
    this.#byHash.clear();
    this.#size = 0;
  }

  /**
   * The body [from, end) of an error of SQLSTATE 0A000. If a statement's table has changed so that its
   * result would, what is prepared from now on is not taken for what is on the servers already, or
   * everybody would be given the outdated statement; and what `server` has is to be prepared anew for whoever
   * uses it next.
   */
  onUnsupported(server: PreparedOnServer, bytes: Uint8Array, from: number, end: number): void {
    for (let at = from; at < end; at++) {
      // Field R, the routine: the message itself may be translated.
      if (!startsWith(bytes, at, end, outdatedPlan)) continue;
      server.outdate();
      return this.renew();
    }
  }

  retain(statement: Statement): void {
    if (statement.references++ === 0) this.memory.keep(statement.size);
  }

  release(statement: Statement): void {
    if (--statement.references > 0) return;
    this.memory.drop(statement.size);
    this.#remove(statement);
  }

  /** By a name of a client. */
  retainNamed(statement: Statement): void {
    this.retain(statement);
    if (statement.names++ === 0) this.memory.name(statement.size);
  }

  releaseNamed(statement: Statement): void {
    if (--statement.names === 0) this.memory.unname(statement.size);
    this.release(statement);
  }

  /** It may not be there: an outdated statement may even have been followed by a new one of the same text. */
  #remove(statement: Statement): void {
    if (unchain(this.#byHash, statement)) this.#size--;
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

  /** What it takes of memory, without the statement. */
  get size(): number {
    return this.bytes.length + nameOverhead;
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
  /** What the names and their statements take of memory: what this client is charged, shared or not. */
  bytes = 0;

  constructor(table: StatementTable) {
    this.#table = table;
  }

  /** The entry for the name `bytes[from, to)` (without its zero), or null. */
  get(bytes: Uint8Array, from: number, to: number): StatementName | null {
    const last = this.#last;
    if (last !== null && equals(last.bytes, bytes, from, to)) return last;
    let entry = this.#byHash.get(nameHashOf(bytes, from, to)) ?? null;
    while (entry !== null && !equals(entry.bytes, bytes, from, to)) entry = entry.next;
    if (entry !== null) this.#last = entry;
    return entry;
  }

  /** One that stands for the statement of this server-side name; null: there is none. Looks at all. */
  standingFor(serverName: string): StatementName | null {
    const wanted = encoder.encode(`${serverName}\0`);
    for (let at of this.#byHash.values() as Iterable<StatementName | null>) {
      for (; at !== null; at = at.next) {
        if (equals(at.statement.name, wanted, 0, wanted.length)) return at;
      }
    }
    return null;
  }

  add(bytes: Uint8Array, from: number, to: number, statement: Statement): StatementName {
    const entry = new StatementName(bytes.slice(from, to), nameHashOf(bytes, from, to), statement);
    this.put(entry);
    return entry;
  }

  /** Puts an entry (back). */
  put(entry: StatementName): void {
    entry.next = this.#byHash.get(entry.hash) ?? null;
    this.#byHash.set(entry.hash, entry);
    this.size++;
    this.#charge(entry);
  }

  /** From now on the name stands for another statement. */
  repoint(entry: StatementName, statement: Statement): void {
    this.bytes += statement.size - entry.statement.size;
    this.#table.retainNamed(statement);
    this.#table.releaseNamed(entry.statement);
    entry.statement = statement;
  }

  all(): StatementName[] {
    const entries: StatementName[] = [];
    for (const first of this.#byHash.values()) {
      for (let at: StatementName | null = first; at !== null; at = at.next) entries.push(at);
    }
    return entries;
  }

  /** False if it is not there. */
  remove(entry: StatementName): boolean {
    if (!unchain(this.#byHash, entry)) return false;
    if (this.#last === entry) this.#last = null;
    this.size--;
    this.#discharge(entry);
    return true;
  }

  clear(): void {
    const entries = this.all();
    this.#byHash.clear();
    for (const entry of entries) {
      entry.next = null;
      this.#discharge(entry);
    }
    this.#last = null;
    this.size = 0;
  }

  #charge({ size, statement }: StatementName): void {
    const { memory } = this.#table;
    this.bytes += size + statement.size;
    memory.keep(size);
    memory.name(size);
    this.#table.retainNamed(statement);
  }

  #discharge({ size, statement }: StatementName): void {
    const { memory } = this.#table;
    this.bytes -= size + statement.size;
    memory.drop(size);
    memory.unname(size);
    this.#table.releaseNamed(statement);
  }
}

interface PreparedUse {
  lastUse: number;
}

/** What one server's statements may take here; the server itself needs many times as much for them. */
const serverMax = 16 * 1024 * 1024;

/** The statements that one server has prepared, bounded, least recently used first out. */
export class PreparedOnServer {
  readonly #uses = new Map<Statement, PreparedUse>();
  /** Those of them that are one client's alone. */
  readonly privates = new Set<Statement>();
  /** Those whose tables may have changed since. */
  readonly #outdated = new Set<Statement>();
  readonly #table: StatementTable;
  #clock = 0;
  #bytes = 0;

  constructor(table: StatementTable) {
    this.#table = table;
  }

  get size(): number {
    return this.#uses.size;
  }

  /** Whether something has to go before one more of so many bytes can be added; `most`: statements. */
  isFull(bytes: number, most: number): boolean {
    const { size } = this.#uses;
    return size >= most || (size > 0 && this.#bytes + bytes > serverMax);
  }

  all(): Statement[] {
    return [...this.#uses.keys()];
  }

  outdate(): void {
    for (const statement of this.#uses.keys()) this.#outdated.add(statement);
  }

  isOutdated(statement: Statement): boolean {
    return this.#outdated.size > 0 && this.#outdated.has(statement);
  }

  has(statement: Statement): boolean {
    return this.#uses.has(statement);
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
    this.#bytes += statement.size;
    this.#table.retain(statement);
    if (statement.dialect === foreign) this.privates.add(statement);
  }

  remove(statement: Statement): void {
    if (!this.#uses.delete(statement)) return;
    this.#bytes -= statement.size;
    this.#table.release(statement);
    this.privates.delete(statement);
    this.#outdated.delete(statement);
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
    this.privates.clear();
    this.#outdated.clear();
    this.#bytes = 0;
  }
}

/**
 * FNV-1a from a start that is secret, cut to 30 bits so that it stays a small integer on both engines. For
 * names, which are short and looked up with each Bind.
 */
function nameHashOf(bytes: Uint8Array, from: number, to: number): number {
  let hash = nameSeed;
  for (let i = from; i < to; i++) hash = Math.imul(hash ^ (bytes[i] as number), 0x01000193);
  return hash & 0x3fffffff;
}

function equals(name: Uint8Array, bytes: Uint8Array, from: number, to: number): boolean {
  const length = to - from;
  if (name.length !== length) return false;
  for (let i = 0; i < length; i++) if (name[i] !== bytes[from + i]) return false;
  return true;
}

/** Takes `entry` out of the chain of its hash; false if it is not there. */
function unchain<Entry extends { readonly hash: number; next: Entry | null }>(
  byHash: Map<number, Entry>,
  entry: Entry,
): boolean {
  let previous: Entry | null = null;
  let at = byHash.get(entry.hash) ?? null;
  while (at !== null && at !== entry) {
    previous = at;
    at = at.next;
  }
  if (at === null) return false;
  if (previous !== null) previous.next = entry.next;
  else if (entry.next !== null) byHash.set(entry.hash, entry.next);
  else byHash.delete(entry.hash);
  entry.next = null;
  return true;
}
