// What the relay does with messages that name prepared statements: under which name the server knows the
// statement, what it must be told first, and which messages are answered here. Appends to the outlet
// what goes to the server, in place of the client's message or before it; the caller has passed on what
// came before. The tables themselves are statements.ts; what a server's error undoes is its journal.

import {
  Backend,
  bindMessage,
  closeMessage,
  concatBytes,
  Frontend,
  latin1Bytes,
  latin1Text,
  message,
  namedStatements,
  parseMessage,
} from "../../../shared/wire/mod.ts";
import type { ClientSession } from "./client.ts";
import { allStatements, type Drops } from "./drops.ts";
import type { Plane } from "./plane.ts";
import type { Pool } from "./pool.ts";
import { type Refusal, refusals } from "./refusals.ts";
import { Request } from "./requests.ts";
import { textFlags } from "./residue.ts";
import type { ServerConnection } from "./server.ts";
import { statusFailed } from "./server_state.ts";
import { nameOverhead, statementOverhead } from "./statement_memory.ts";
import { foreign, type Statement, type StatementName, StatementNames } from "./statements.ts";
import { Counter } from "./stats.ts";
import { Tag } from "./tags.ts";

/** Fails with 26000 on any server; stands for a message that is known to fail. */
export const failingBind = bindMessage("", "PGWEIR_none");
const trialName = new TextEncoder().encode("PGWEIR_trial\0");
const trialClose = closeMessage("S", "PGWEIR_trial");
/** Succeeds and fails where a DEALLOCATE of what is there would, with its tag behind one of PREPARE. */
const playedDeallocate = new TextEncoder().encode(
  'PREPARE "PGWEIR_played" AS SELECT 1;DEALLOCATE "PGWEIR_played"',
);
const stubClose = closeMessage("S", "PGWEIR_stub");
const stubParse = parseMessage("PGWEIR_stub", "SELECT 1");
const stubDrop = parseMessage("", 'DEALLOCATE "PGWEIR_stub"');
const dropName = new TextEncoder().encode("PGWEIR_drop\0");
const dropClose = closeMessage("S", "PGWEIR_drop");
const dropParse = parseMessage("PGWEIR_drop", 'DEALLOCATE "PGWEIR_stub"');
const ownPrefix = new TextEncoder().encode("PGWEIR_");
const parseComplete = Uint8Array.of(Backend.parseComplete, 0, 0, 0, 4);
const closeComplete = Uint8Array.of(Backend.closeComplete, 0, 0, 0, 4);
const noSuchStatement = "26000";
/** A Bind has to have a portal's name beside it in what is kept of an unfinished message. */
const nameMax = 16 * 1024;
const decoder = new TextDecoder();

/** The name of the unnamed statement. */
export const unnamed = Uint8Array.of(0);

export class Prepared {
  readonly #plane: Plane;

  constructor(plane: Plane) {
    this.#plane = plane;
  }

  /** The refusal if [from, to) names a statement that cannot be this client's. */
  missing(
    client: ClientSession,
    server: ServerConnection,
    bytes: Uint8Array,
    from: number,
    to: number,
  ): Refusal | null {
    if (from === to) {
      const own = server.unnamedOwner === client && client.unnamedOn === server;
      return own ? null : refusals.unnamedGone;
    }
    if (!isReserved(client, server, bytes, from, to) || client.names?.get(bytes, from, to)) {
      return null;
    }
    const name = decoder.decode(bytes.slice(from, to));
    return { code: noSuchStatement, message: `prepared statement "${name}" does not exist` };
  }

  /**
   * Whether it is open what the statement name [from, to) will mean, or whether the server will have
   * the statement: that depends on requests that are not answered yet. `textEnd`: where the text
   * behind the name ends, if this is a Parse.
   */
  isUnsure(
    client: ClientSession,
    server: ServerConnection,
    from: number,
    to: number,
    textEnd = 0,
  ): boolean {
    if (from === to || server.copyIn || !server.isUnsure) return false;
    if (server.mayDiscard || server.residue.maySet) return true;
    const { bytes } = this.#plane.arena;
    const named = client.names?.get(bytes, from, to)?.statement ?? null;
    // What it drops may be no name of the client's.
    if (named !== null && named.inText.drops !== null) return true;
    // It will stand for another one.
    if (named !== null && named.dialect !== dialectOf(client)) return true;
    const text = textEnd > to && !server.residue.isForeign
      ? server.pool.statements.find(bytes, to + 1, textEnd, dialectOf(client))
      : null;
    return server.journal.isOpen([named, text], bytes, from, to);
  }

  /**
   * The ErrorResponse with this body, in which statements have the client's names for them; null: none of them is
   * in it. Only looked for in errors, which may be many, but are not the rule.
   */
  renamed({ names }: ClientSession, drops: Drops, body: Uint8Array): Uint8Array | null {
    if (names === null) return null;
    const text = latin1Text(body);
    if (!text.includes("PGWEIR_")) return null;
    const own = text.replaceAll(/PGWEIR_(\d+|drop|stub)/g, (name) => {
      if (name === "PGWEIR_drop") return latin1Text(drops.by);
      if (name === "PGWEIR_stub") return latin1Text(drops.what);
      const entry = names.standingFor(name);
      return entry === null ? name : latin1Text(entry.bytes);
    });
    return message(Backend.errorResponse, latin1Bytes(own));
  }

  /** A message that fails on the server, and for the client by this error. */
  putFailing(server: ServerConnection, refusal: Refusal): void {
    this.#plane.outlet.put(failingBind);
    server.requests.push(Request.failsHere);
    server.journal.record(null, null, null, null, { instead: noSuchStatement, refusal });
  }

  /**
   * Sees to it that the server has what the client's name stands for when it reads what follows. Null: it
   * can't be, and the message that is under way fails.
   */
  prepare(client: ClientSession, server: ServerConnection, name: StatementName): Statement | null {
    this.#dropPrivate(server);
    this.#dropOutdated(server, name.statement);
    if (server.prepared.use(name.statement)) return name.statement;
    const dialect = server.residue.isForeign ? foreign : dialectOf(client);
    if (name.statement.dialect !== dialect || dialect === foreign) {
      // The client has changed its settings since: this server reads the text under the new ones, and
      // that is not what others who have the old ones share.
      const { size } = name.statement;
      if (!this.#mayName(server, (client.names?.bytes ?? 0) - size, size)) return null;
      const { isPlain } = server.session;
      const statement = server.pool.statements.inDialect(name.statement, dialect, isPlain);
      client.names?.repoint(name, statement);
      if (server.prepared.use(name.statement)) return name.statement;
    }
    const { statement } = name;
    this.#makeRoom(server, statement);
    this.#plane.outlet.put(statement.parse);
    server.requests.push(Request.ownParse);
    server.prepared.add(statement);
    server.journal.record(statement, null, null, null);
    server.pool.counters[Counter.serverParses]!++;
    return statement;
  }

  /** Whether a client with names for `has` bytes may have some for `more`; if not, what it sent fails. */
  #mayName(server: ServerConnection, has: number, more: number): boolean {
    const { statementMemory, clients } = this.#plane;
    const refusal = statementMemory.refusal(has, more, clients.size);
    if (refusal !== null) this.putFailing(server, refusal);
    return refusal === null;
  }

  #makeRoom(server: ServerConnection, { size }: Statement): void {
    const { maxPreparedStatements } = this.#plane.settings;
    while (server.prepared.isFull(size, maxPreparedStatements)) {
      this.#evict(server, server.prepared.leastRecentlyUsed() as Statement);
    }
  }

  /** What was prepared under settings that hold no longer: its client's name stands for the text alone. */
  #dropPrivate(server: ServerConnection): void {
    if (server.prepared.privates.size === 0 || server.residue.isForeign) return;
    for (const statement of server.prepared.privates) this.#evict(server, statement);
  }

  #dropOutdated(server: ServerConnection, statement: Statement): void {
    if (server.prepared.isOutdated(statement)) this.#evict(server, statement);
  }

  #evict(server: ServerConnection, statement: Statement): void {
    this.#plane.outlet.put(statement.closeMessage());
    server.requests.push(Request.ownClose);
    server.journal.record(null, statement, null, null);
    server.prepared.remove(statement);
  }

  /** A whole Parse with a name, not passed on as it is. False if it is damaged. */
  parseNamed(
    client: ClientSession,
    server: ServerConnection,
    bytes: Uint8Array,
    at: number,
    next: number,
  ): boolean {
    const pool = server.pool;
    const nameFrom = at + 5;
    const nameEnd = zeroAt(bytes, nameFrom, next);
    if (zeroAt(bytes, nameEnd + 1, next) >= next) return false;
    server.synced = false;
    pool.counters[Counter.clientParses]!++;
    if (nameEnd - nameFrom > nameMax) {
      this.putFailing(server, refusals.nameTooLong);
      return true;
    }
    // Its flags come with the statement, unless they say whether there will be one.
    if (pool.featureWarnings === "refuse") {
      const flags = parseFlags(bytes, at, next, server.session.isPlain);
      const refused = this.#plane.texts.refusalOf(client, server, flags);
      if (refused !== null) {
        this.putFailing(server, refused);
        return true;
      }
    }
    client.names ??= new StatementNames(pool.statements);
    const taken = client.names.get(bytes, nameFrom, nameEnd);
    if (taken !== null) {
      // The server is to find it out, since it may find something else wrong with the text first.
      const name = decoder.decode(bytes.slice(nameFrom, nameEnd));
      const refusal = { code: "42P05", message: `prepared statement "${name}" already exists` };
      const statement = this.prepare(client, server, taken);
      if (statement === null) return true;
      const text = bytes.slice(nameEnd + 1, next);
      this.#plane.outlet.put(message(Frontend.parse, statement.name, text));
      server.requests.push(Request.failsHere);
      server.journal.record(null, null, null, null, { instead: refusal.code, refusal });
      return true;
    }
    const more = next - at + statementOverhead + nameOverhead;
    if (!this.#mayName(server, client.names.bytes, more)) return true;
    const { isPlain } = server.session;
    this.#dropPrivate(server);
    const dialect = server.residue.isForeign ? foreign : dialectOf(client);
    const statement = pool.statements.intern(bytes, nameEnd + 1, next, dialect, isPlain);
    this.#dropOutdated(server, statement);
    const entry = client.names.add(bytes, nameFrom, nameEnd, statement);
    if (server.prepared.use(statement)) {
      if (server.requests.cycles === 0 && server.status !== statusFailed) {
        server.requests.push(Request.parseHere);
        server.journal.record(null, null, entry, null);
        return true;
      }
      // A failed transaction takes no Parse but for one of its end, and what is still under way may
      // fail: the server judges the text under a name that is dropped again.
      this.#plane.outlet.put(message(Frontend.parse, trialName, bytes.slice(nameEnd + 1, next)));
      server.requests.push(Request.parseNamed);
      server.journal.record(null, null, entry, null);
      this.#plane.outlet.put(trialClose);
      server.requests.push(Request.ownClose);
      server.journal.record(null, null, null, null);
      return true;
    }
    this.#makeRoom(server, statement);
    this.#plane.outlet.put(statement.parse);
    server.requests.push(Request.parseNamed);
    server.prepared.add(statement);
    server.journal.record(statement, null, entry, null);
    pool.counters[Counter.serverParses]!++;
    return true;
  }

  /** Describe of a statement; true if the message goes as it is. */
  describeNamed(
    client: ClientSession,
    server: ServerConnection,
    bytes: Uint8Array,
    at: number,
    next: number,
  ): boolean {
    const missing = this.missing(client, server, bytes, at + 6, next - 1);
    if (missing !== null) {
      this.putFailing(server, missing);
      return false;
    }
    const entry = next - 1 === at + 6 ? null : client.names?.get(bytes, at + 6, next - 1) ?? null;
    if (entry !== null) {
      const statement = this.prepare(client, server, entry);
      if (statement === null) return false;
      const outlet = this.#plane.outlet;
      outlet.putHeader(Frontend.describe, 4 + 1 + statement.name.length);
      outlet.pass(at + 5, at + 6);
      outlet.put(statement.name);
    }
    server.requests.push(Request.describe);
    return entry === null;
  }

  /** An unnamed Parse whose text is DEALLOCATE of a client's name: what it drops when it is executed is a stub. */
  parseDeallocate(server: ServerConnection): void {
    this.#plane.outlet.put(stubDrop);
    server.requests.push(Request.parse);
  }

  /**
   * The server-side name for a Bind of the portal [from, to) to the client's statement `name`, null = the unnamed
   * one; the statement is prepared if need be. Null: it can't be. In place of one that deallocates a client's name
   * goes one that drops a stub.
   */
  bound(
    client: ClientSession,
    server: ServerConnection,
    name: StatementName | null,
    from: number,
    to: number,
  ): Uint8Array | null {
    const { names } = client;
    const inText = name === null ? server.parsedNames : name.statement.inText;
    const drop = names === null ? null : inText.drops;
    if (drop !== null || server.drops.any) {
      server.drops.bind(this.#plane.arena.bytes, from, to, drop);
    }
    if (drop instanceof Uint8Array) {
      server.drops.what = drop;
      if (name === null) return unnamed;
      if (names?.get(drop, 0, drop.length)) {
        server.drops.by = name.bytes;
        this.#putOwn(server, dropClose, Request.ownClose);
        this.#putOwn(server, dropParse, Request.ownParse);
        return dropName;
      }
      server.drops.bind(this.#plane.arena.bytes, from, to, null);
    }
    const statement = name === null ? null : this.prepare(client, server, name);
    if (name !== null && statement === null) return null;
    const flags = statement === null ? server.unnamedFlags : statement.flags;
    if ((flags & client.heeded) !== 0) this.#plane.texts.expect(client, server, flags, inText);
    return statement === null ? unnamed : statement.name;
  }

  #putOwn({ requests, journal }: ServerConnection, bytes: Uint8Array, code: number): void {
    this.#plane.outlet.put(bytes);
    requests.push(code);
    journal.record(null, null, null, null);
  }

  /** A query with DEALLOCATEs of the client's names in it that are played: the statements stay, for others. */
  deallocate(server: ServerConnection, { text, tags }: Played): void {
    this.#plane.outlet.put(message(Frontend.query, text));
    server.requests.push(Request.query);
    server.deallocating = tags;
    // What it leaves is known when it is answered.
    server.mayDiscard = true;
  }

  /** Close of a statement; true if the message goes as it is. */
  closeNamed(
    client: ClientSession,
    server: ServerConnection,
    bytes: Uint8Array,
    at: number,
    next: number,
  ): boolean {
    const entry = next - 1 === at + 6 ? null : client.names?.get(bytes, at + 6, next - 1) ?? null;
    if (entry === null && !isReserved(client, server, bytes, at + 6, next - 1)) {
      server.requests.push(Request.close);
      return true;
    }
    // The statement stays on the server, for others; only the client's name for it goes.
    if (entry !== null) client.names?.remove(entry);
    server.requests.push(Request.closeHere);
    server.journal.record(null, null, null, entry);
    return false;
  }

  /**
   * The Execute at [at, end), where there are portals that drop statements: returns the kind of request it is, none
   * if it has to wait. All from `run` on that stands before it is to be sent.
   */
  execute(server: ServerConnection, at: number, end: number, run: number): number {
    const { arena, outlet } = this.#plane;
    const drop = server.drops.of(arena.bytes, at + 5, zeroAt(arena.bytes, at + 5, end));
    const names = server.client?.names ?? null;
    if (drop === null || names === null) {
      outlet.pass(run, at);
      return Request.execute;
    }
    if (drop === allStatements) {
      outlet.pass(run, at);
      server.journal.recordDrop(names);
      return Request.executeDrop;
    }
    if (server.requests.cycles > 0 && server.isUnsure) return Request.none;
    outlet.pass(run, at);
    server.drops.what = drop;
    this.#putOwn(server, stubClose, Request.ownClose);
    const name = names.get(drop, 0, drop.length);
    // Dropped since it was bound: now it is not there for the server, either.
    if (name === null) return Request.execute;
    this.#putOwn(server, stubParse, Request.ownParse);
    server.journal.recordDeallocate(names, name);
    return Request.executeDrop;
  }

  /** Answers what the server never saw, now that it is its turn. Appends to the outlet. */
  answerHere({ requests, journal }: ServerConnection): void {
    while (requests.isHere) {
      const code = requests.pop();
      if (code === Request.copyEnd) continue;
      journal.done();
      this.#plane.outlet.put(code === Request.parseHere ? parseComplete : closeComplete);
    }
  }

  /** Sends the answers that are due although the server owes nothing before them. */
  answerDue(server: ServerConnection): void {
    const { client } = server;
    if (client === null || !server.requests.isHere) return;
    const { outlet } = this.#plane;
    outlet.begin(client.stream);
    this.answerHere(server);
    outlet.flush();
  }
}

/** A text in which DEALLOCATE of names that only the pooler knows are played. */
interface Played {
  readonly text: Uint8Array;
  readonly tags: DeallocateTags;
}

/** What the tags of a query with played DEALLOCATEs mean. */
export class DeallocateTags {
  /** Of each tag PREPARE that is to come: null = the client's own, else the name that a DEALLOCATE then drops. */
  readonly #prepares: (StatementName | null)[];
  #next: StatementName | null = null;

  constructor(prepares: (StatementName | null)[]) {
    this.#prepares = prepares;
  }

  /** Whether the client is to see this tag. */
  take(tag: Tag, names: StatementNames | null): boolean {
    if (this.#next !== null) {
      names?.remove(this.#next);
      this.#next = null;
      return true;
    }
    if (tag !== Tag.prepare) return true;
    this.#next = this.#prepares.shift() ?? null;
    return this.#next === null;
  }
}

/** The text [from, to), a zero behind it, with DEALLOCATEs of these names played; null: there are none. */
export function played(
  names: StatementNames,
  bytes: Uint8Array,
  from: number,
  to: number,
): Played | null {
  const prepares: (StatementName | null)[] = [];
  const parts: Uint8Array[] = [];
  let at = from;
  for (const statement of namedStatements(bytes, from, to)) {
    const { deallocated } = statement;
    const name = deallocated === null ? null : names.get(deallocated, 0, deallocated.length);
    // A name that is gone by then is not there for the server, either.
    const isPlayed = name !== null && !prepares.includes(name);
    if (isPlayed || deallocated === null) prepares.push(name);
    if (!isPlayed) continue;
    parts.push(bytes.slice(at, statement.from), playedDeallocate);
    at = statement.to;
  }
  if (parts.length === 0) return null;
  const text = concatBytes(...parts, bytes.subarray(at, to + 1));
  return { text, tags: new DeallocateTags(prepares) };
}

/** Tells a client's statements from those of others for whom the same text may mean something else. */
function dialectOf({ pool, parameters }: ClientSession): string {
  return (pool as Pool).welcome.dialects.of(parameters);
}

/** What the text of the Parse [at, next) may do, see textFlags. */
export function parseFlags(bytes: Uint8Array, at: number, next: number, plain: boolean): number {
  const from = zeroAt(bytes, at + 5, next) + 1;
  return textFlags(bytes, from, zeroAt(bytes, from, next), plain);
}

/** The index of the first zero in [from, to), or `to`. */
export function zeroAt(bytes: Uint8Array, from: number, to: number): number {
  let at = from;
  while (at < to && bytes[at] !== 0) at++;
  return at < to ? at : to;
}

/**
 * Whether the name [from, to) is the pooler's own, and means nothing to a client. One whose statements have its own
 * names on the server may have it, if none of the pooler's is left there.
 */
function isReserved(
  client: ClientSession,
  server: ServerConnection,
  bytes: Uint8Array,
  from: number,
  to: number,
): boolean {
  if (!client.tracksStatements && server.prepared.size === 0) return false;
  if (to - from < ownPrefix.length) return false;
  for (let i = 0; i < ownPrefix.length; i++) if (bytes[from + i] !== ownPrefix[i]) return false;
  return true;
}
