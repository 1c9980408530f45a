// The end of a transaction in transaction and statement pooling: what is found out before its ReadyForQuery, since the
// client's next transaction may have another server. First what the session's parameters are, where something was
// set that PostgreSQL does not report: from then on they are the client's, and follow it as those of its startup
// packet do. Whatever was rolled back, or set by a function, is in the answer. Then LISTEN, which is notifier.ts.

import { Buffer } from "node:buffer";
import { latin1Text, parseDataRow, type ParsedError } from "../../../shared/wire/mod.ts";
import type { ClientSession } from "./client.ts";
import { type Extra, identities, quoteLiteral } from "./parameters.ts";
import type { Plane } from "./plane.ts";
import { error, type Refusal, refusals } from "./refusals.ts";
import type { ServerConnection } from "./server.ts";
import { isHidden } from "./setting_changes.ts";

/** What one client may have set at a time. */
const keptMax = 100;
const keptMaxBytes = 16 * 1024;
/** In hexadecimal digits a longer value would not come in one piece. */
const valueMaxBytes = 8192;

const timeout = "statement_timeout";
/** They are their transaction's, however they are set. */
const ofTransaction = ["deferrable", "isolation", "read_only"].map((what) => `transaction_${what}`);

// Under whatever search_path and encoding the client has.
const equal = "OPERATOR(pg_catalog.=)";
const hexOf = (value: string) =>
  `CASE WHEN pg_catalog.octet_length(${value}) OPERATOR(pg_catalog.<=) ${valueMaxBytes} THEN ` +
  `pg_catalog.encode(pg_catalog.convert_to(${value},'UTF8'),'hex') END`;
const currently = (name: string) => `pg_catalog.current_setting(${name},true)`;

const showTimeout = `SELECT '${timeout}',${hexOf(currently(`'${timeout}'`))},''`;
// Its own statement_timeout may be too short for this. What it is without the client comes second.
const askAll = `${showTimeout};SET LOCAL ${timeout} TO DEFAULT;${showTimeout};` +
  `SET LOCAL ${timeout}=0;SELECT name,${hexOf("setting")},context ` +
  `FROM pg_catalog.pg_show_all_settings() WHERE source ${equal} 'session' AND ` +
  `NOT name ${equal} ANY(ARRAY[${[timeout, ...ofTransaction].map(quoteLiteral)}])`;
/** A role that is none is worth a word where it is something else by default. */
const hasRole = `EXISTS(SELECT FROM pg_catalog.pg_db_role_setting d,` +
  `pg_catalog.unnest(d.setconfig) c WHERE c OPERATOR(pg_catalog.~~) 'role=%')`;

/** What a session has, by names in lower case. */
interface Answer {
  readonly values: Map<string, Extra>;
  /** Of statement_timeout: the value, and the default. */
  readonly timeouts: string[];
  isTooLong: boolean;
  /** Somebody else could not set or reset all of it. */
  isPrivileged: boolean;
}

export class TransactionEnd {
  readonly #plane: Plane;

  constructor(plane: Plane) {
    this.#plane = plane;
  }

  /**
   * Before the ReadyForQuery of a transaction's end. True if the client is not to have that yet: then `withhold`
   * follows when all else is sent.
   */
  isWithheld(server: ServerConnection, client: ClientSession): boolean {
    return this.#isAsked(server, client) || this.#plane.notifier.onTransactionEnd(server, client);
  }

  #isAsked(server: ServerConnection, client: ClientSession): boolean {
    if (!server.residue.settings.isDue || client.mode === "session") return false;
    return server.synced && server.requests.count === 0 && !client.isSending &&
      client.output !== null;
  }

  /** Finds out what there is to find out, then gives the client its ReadyForQuery. */
  withhold(server: ServerConnection, client: ClientSession): void {
    if (!this.#isAsked(server, client)) return this.#plane.notifier.withhold(server, client);
    client.holdInput();
    const answer: Answer = {
      values: new Map(),
      timeouts: [],
      isTooLong: false,
      isPrivileged: false,
    };
    const owed = server.session.takeOwed();
    server.ask((owed === "" ? "" : `${owed};`) + askFor(server, client), {
      onTag: null,
      onRow: (body) => read(body, answer),
      onEnd: (failure) => {
        if (client.server === server) this.#onAnswer(server, client, answer, failure);
      },
    });
  }

  #onAnswer(
    server: ServerConnection,
    client: ClientSession,
    answer: Answer,
    failure: ParsedError | null,
  ): void {
    const { outlet, notifier } = this.#plane;
    const refusal = failure === null
      ? this.#take(server, client, answer)
      : { code: failure.code, message: `session parameters are not kept: ${failure.message}` };
    if (refusal !== null) server.residue.settings.clear();
    outlet.begin(client.stream);
    if (refusal !== null) outlet.put(error(refusal));
    const isWithheld = notifier.onTransactionEnd(server, client);
    outlet.flush();
    if (isWithheld) notifier.withhold(server, client);
    else notifier.goOn(client, null);
  }

  /** What the session has is the client's from now on. Returns why not, or null. */
  #take(server: ServerConnection, client: ClientSession, answer: Answer): Refusal | null {
    const { tracker } = this.#plane;
    const { session, residue, pool } = server;
    const { values, timeouts: [now = "", preset = ""] } = answer;
    if (now !== preset) values.set(timeout, [timeout, now]);
    const initial = new Set(client.initial.extras.map(([name]) => name.toLowerCase()));
    for (const [lower, [, value]] of values) {
      const index = tracker.indexOf(lower);
      const isReported = index >= 0 && (session.values[index] ?? null) !== null;
      const isOwn = lower === "session_authorization" && value === pool.user;
      if (isReported || (isOwn && !initial.has(lower))) values.delete(lower);
    }
    const extras = [...values.values()];
    const bytes = extras.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
    if (answer.isTooLong || extras.length > keptMax || bytes > keptMaxBytes) {
      return refusals.tooManyParameters;
    }
    session.extras = tracker.internExtras(extras);
    session.extrasUnsure = false;
    session.syncedFor = null;
    // What it asked for at its login and is not there was reset, unseen.
    const lost = client.initial.extras.filter(([name]) => !values.has(name.toLowerCase()));
    client.parameters = tracker.intern(client.parameters.values, [...session.extras, ...lost]);
    const isForAll = !answer.isPrivileged && !identities.some((name) => values.has(name));
    if (residue.settings.isCertain && isForAll) residue.onSettingsKnown();
    residue.settings.clear();
    return null;
  }
}

function askFor(server: ServerConnection, client: ClientSession): string {
  const { initial, parameters } = client;
  const names = new Set(server.residue.settings.hidden);
  for (const [name] of [...initial.extras, ...parameters.extras]) {
    const lower = name.toLowerCase();
    if (isHidden(lower)) names.add(lower);
  }
  if (names.size === 0) return askAll;
  const value = currently("n");
  let sql = `${askAll} UNION ALL SELECT n,${hexOf(value)},'' FROM ` +
    `pg_catalog.unnest(ARRAY[${[...names].map(quoteLiteral)}]) n WHERE ${value} IS NOT NULL`;
  if (names.has("role") && !initial.extras.some(([name]) => name.toLowerCase() === "role")) {
    sql += ` AND (NOT n ${equal} 'role' OR NOT ${value} ${equal} 'none' OR ${hasRole})`;
  }
  return sql;
}

function read(body: Uint8Array, answer: Answer): void {
  const columns = parseDataRow(body) ?? [];
  // What is led back in front of it gives rows as well.
  if (columns.length !== 3) return;
  const [name = null, value = null, context = null] = columns;
  if (name === null || value === null) {
    answer.isTooLong = true;
    return;
  }
  const parameter = latin1Text(name);
  const text = Buffer.from(latin1Text(value), "hex").toString();
  if (parameter === timeout) {
    answer.timeouts.push(text);
    return;
  }
  const lower = parameter.toLowerCase();
  if (!answer.values.has(lower)) answer.values.set(lower, [parameter, text]);
  if (context !== null && latin1Text(context) === "superuser") answer.isPrivileged = true;
}
