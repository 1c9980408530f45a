// What the relay does about texts that do more than run: what they may do to the session of the server is
// noted, what pooling by transactions does not keep is counted, warned about or refused
// (warn_session_features), and DEALLOCATE of a name that only the pooler knows is played. Cold: most texts
// have no flags.

import { noticeResponse, queryMessage, SqlFlag } from "../../../shared/wire/mod.ts";
import type { ClientSession } from "./client.ts";
import { allStatements } from "./drops.ts";
import type { Plane } from "./plane.ts";
import { played, zeroAt } from "./prepared.ts";
import type { Refusal } from "./refusals.ts";
import { Request } from "./requests.ts";
import { anything, touchesLocks } from "./residue.ts";
import type { ServerConnection } from "./server.ts";
import { namesIn, noNames, type TextNames } from "./text_names.ts";

interface Feature {
  readonly flag: number;
  /** Column of SHOW FEATURES. */
  readonly column: string;
  /** What a client is told; null: it works. */
  readonly what: string | null;
}

const inTransaction = "ends with the transaction";
/** What belongs to a session, and what becomes of it in transaction and statement pooling. */
export const features: readonly Feature[] = [
  {
    flag: SqlFlag.makesTemp,
    column: "temp_tables",
    what: `a temporary table ${inTransaction}, unless it is made ON COMMIT DROP`,
  },
  { flag: SqlFlag.holds, column: "hold_cursors", what: `a cursor WITH HOLD ${inTransaction}` },
  { flag: SqlFlag.prepares, column: "prepares", what: `what SQL PREPARE makes ${inTransaction}` },
  {
    flag: SqlFlag.locks,
    column: "advisory_locks",
    what: "a session-level advisory lock keeps a server connection for this client alone",
  },
  { flag: SqlFlag.listens, column: "listens", what: null },
  { flag: SqlFlag.sets | SqlFlag.setsConfig, column: "settings", what: null },
  {
    flag: SqlFlag.setsUnnamed,
    column: "unnamed_settings",
    what: `a parameter with a dot in its name that set_config() does not name ${inTransaction}`,
  },
];
const counted = features.reduce((all, { flag }) => all | flag, 0);
const warned = features.reduce((all, { flag, what }) => what === null ? all : all | flag, 0);
const notifiesAny = SqlFlag.notifies | SqlFlag.namesNotify;
const backToLogin = SqlFlag.resets | SqlFlag.discards | SqlFlag.setsDefault;
const hint = "Use a database or user with pool_mode = session for it";

/** How often each feature was used, in the order of `features`. */
export type FeatureCounts = Uint32Array;

export function noCounts(): FeatureCounts {
  return new Uint32Array(features.length);
}

export const Verdict = {
  /** The message goes as it is. */
  pass: 0,
  /** Something else was put in its place, behind all that stands before it. */
  replaced: 1,
  /** It waits until all that was sent is answered. */
  wait: 2,
} as const;
export type Verdict = typeof Verdict[keyof typeof Verdict];

export class Texts {
  readonly #plane: Plane;

  constructor(plane: Plane) {
    this.#plane = plane;
  }

  /** A text with these flags and names runs on the client's server. */
  expect(
    client: ClientSession,
    server: ServerConnection,
    flags: number,
    names: TextNames = noNames,
  ): void {
    // The names go as well where this server has none of the statements.
    const has = server.prepared.size > 0 || (client.names !== null && client.names.size > 0);
    if ((flags & SqlFlag.discards) !== 0 && has) server.mayDiscard = true;
    server.residue.isExpecting = true;
    // Nothing may follow a transaction that is to be refused and rolled back.
    if ((flags & SqlFlag.begins) !== 0 && client.mode === "statement") {
      server.residue.mayBlock = true;
    }
    if ((flags & SqlFlag.ends) !== 0) server.residue.mayEnd = true;
    // What comes behind it is to find what the client asked for.
    if ((flags & backToLogin) !== 0 && client.initial !== this.#plane.tracker.none) {
      server.residue.mayReset = true;
    }
    const { cycles } = server.requests;
    if (client.mode === "session") {
      server.residue.settings.expect(flags, names.settings, cycles);
      if ((flags & touchesLocks) !== 0) {
        if (client.pinned) server.residue.locksUnsure = true;
        else server.residue.mayLock = true;
      }
      return;
    }
    server.residue.expect(flags, names, cycles);
    if ((flags & notifiesAny) !== 0) this.#plane.notifier.onNotify(client, flags, names);
    if ((flags & counted) === 0 || flags === anything) return;
    client.features ??= noCounts();
    for (const [index, { flag, what }] of features.entries()) {
      if ((flags & flag) === 0) continue;
      client.features[index]!++;
      server.pool.features[index]!++;
      if (what === null || server.pool.featureWarnings !== "notice") continue;
      const message = `in ${client.mode} pooling ${what}`;
      server.session.tell(noticeResponse({ severity: "WARNING", code: "01000", message, hint }));
    }
  }

  /** The Query at [at, next), with flags; all from `run` on that stands before it is to be sent. */
  onQuery(
    client: ClientSession,
    server: ServerConnection,
    flags: number,
    at: number,
    next: number,
    run: number,
  ): Verdict {
    const { arena, outlet, prepared } = this.#plane;
    const refusal = this.refusalOf(client, server, flags);
    if (refusal !== null) {
      outlet.pass(run, at);
      outlet.put(raising(refusal));
      server.requests.push(Request.query);
      return Verdict.replaced;
    }
    const { names } = client;
    const { cycles } = server.requests;
    const looks = (flags & SqlFlag.discards) !== 0 && flags !== anything && names !== null;
    // Which names there are may depend on what is not answered yet.
    if (looks && cycles > 0 && server.isUnsure) return Verdict.wait;
    const found = looks ? played(names, arena.bytes, at + 5, next - 1) : null;
    if (found !== null && cycles > 0) return Verdict.wait;
    this.expect(client, server, flags, namesIn(arena.bytes, at + 5, next - 1, flags));
    if (found === null) return Verdict.pass;
    outlet.pass(run, at);
    prepared.deallocate(server, found);
    return Verdict.replaced;
  }

  /** The Parse at [at, next) that goes as it is, with flags. */
  onParse(
    client: ClientSession,
    server: ServerConnection,
    flags: number,
    at: number,
    next: number,
    run: number,
  ): Verdict {
    const { arena, outlet, prepared } = this.#plane;
    const refusal = this.refusalOf(client, server, flags);
    if (refusal !== null) {
      outlet.pass(run, at);
      prepared.putFailing(server, refusal);
      return Verdict.replaced;
    }
    server.parsedNames = noNames;
    // It is bound by its name, and its text is not looked up then.
    if ((flags & SqlFlag.ends) !== 0 && arena.bytes[at + 5] !== 0) {
      server.residue.keepsEnding = true;
    }
    if (flags === anything) return Verdict.pass;
    const from = zeroAt(arena.bytes, at + 5, next) + 1;
    const to = zeroAt(arena.bytes, from, next);
    const inText = namesIn(arena.bytes, from, to, flags);
    server.parsedNames = inText;
    const { names } = client;
    const { drops } = inText;
    if (drops === null || names === null) return Verdict.pass;
    // Which names there are may depend on what is not answered yet.
    if (server.requests.cycles > 0 && server.isUnsure) return Verdict.wait;
    if (drops === allStatements) return Verdict.pass;
    if (names.get(drops, 0, drops.length) === null) {
      // It is made by PREPARE, or nothing.
      server.parsedNames = { ...inText, drops: null };
      return Verdict.pass;
    }
    outlet.pass(run, at);
    prepared.parseDeallocate(server);
    server.unnamedOwner = client;
    server.unnamedFlags = flags;
    client.unnamedOn = server;
    return Verdict.replaced;
  }

  /** Why a text is refused, or null. */
  refusalOf(client: ClientSession, server: ServerConnection, flags: number): Refusal | null {
    if ((flags & warned) === 0 || flags === anything || client.mode === "session") return null;
    if (server.pool.featureWarnings !== "refuse") return null;
    const { what } = features.find(({ flag }) => (flags & flag & warned) !== 0) as Feature;
    const message = `not allowed here (warn_session_features): in ${client.mode} pooling ${what}`;
    return { code: "0A000", message, hint };
  }
}

/** A query that fails with this error, in whatever state the transaction is. */
function raising({ code, message, hint }: Refusal): Uint8Array {
  const literal = (text: string) => `'${text.replaceAll("'", "''")}'`;
  return queryMessage(
    `DO $pgweir$BEGIN RAISE EXCEPTION USING ERRCODE=${literal(code)},MESSAGE=${literal(message)},` +
      `HINT=${literal(hint ?? "")};END$pgweir$`,
  );
}
