// auth_query: where a user that is not in the auth_file is looked up, what is asked, and what the answer says.
// Pure; who asks is user_lookup.ts.
// The name is bound as a parameter, never a part of the query's text.

import {
  type Config,
  CONSOLE_DATABASE,
  type DatabaseConfig,
  lookupDatabase,
  secretKind,
  type UserSecret,
} from "../../../shared/config/mod.ts";
import {
  Backend,
  bindMessage,
  concatBytes,
  describeMessage,
  executeMessage,
  parseDataRow,
  type ParsedError,
  parseErrorFields,
  parseMessage,
  parseRowDescription,
  syncMessage,
} from "../../../shared/wire/mod.ts";

export interface AuthTarget {
  readonly database: DatabaseConfig;
  /** auth_user. */
  readonly user: string;
  readonly sql: string;
}

/**
 * Where the users of a database are looked up that are not in the auth_file; null = nowhere. `problem` is for
 * the log.
 */
export function authTarget(
  config: Config,
  database: string,
): AuthTarget | { readonly problem: string } | null {
  const { settings } = config;
  const entry = lookupDatabase(config, database);
  const user = entry?.authUser ?? settings.authUser;
  if (user === "") return null;
  const sql = entry?.authQuery ?? settings.authQuery;
  const name = entry?.authDbname ?? settings.authDbname;
  // Nobody learns here that there is no such database: who is unknown everywhere is so here as well.
  if (name === "") return entry === null ? null : { database: entry, user, sql };
  if (name === CONSOLE_DATABASE) {
    return { problem: `cannot use the reserved "${name}" database as an auth_dbname` };
  }
  const found = lookupDatabase(config, name);
  if (found === null) return { problem: `authentication database "${name}" is not configured` };
  return { database: found, user, sql };
}

/** The query for one user, up to Sync. */
export function authQueryMessages(sql: string, user: string): Uint8Array {
  return concatBytes(
    parseMessage("", sql),
    bindMessage("", "", [user]),
    describeMessage("P", ""),
    executeMessage("", 0),
    syncMessage(),
  );
}

export type Found =
  | { readonly kind: "user"; readonly secret: UserSecret }
  /** No row, or no secret: nothing can be proved. */
  | { readonly kind: "nobody" }
  /** For the log. */
  | { readonly kind: "failed"; readonly reason: string };

const columnsWanted = 2;
const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Reads the answer, message by message, up to ReadyForQuery. */
export class AuthAnswer {
  /** Valid once ReadyForQuery has come. */
  found: Found = { kind: "nobody" };
  #hasRow = false;

  /** Takes a message; false if it is none that can come here. */
  take(type: number, body: Uint8Array): boolean {
    switch (type) {
      case Backend.parseComplete:
      case Backend.bindComplete:
      case Backend.commandComplete:
      case Backend.emptyQuery:
      case Backend.readyForQuery:
        return true;
      case Backend.noData:
        this.#fail(wrongColumns(0));
        return true;
      case Backend.rowDescription: {
        const columns = parseRowDescription(body);
        if (columns === null) return false;
        if (columns.length !== columnsWanted) this.#fail(wrongColumns(columns.length));
        return true;
      }
      case Backend.dataRow:
        return this.#row(body);
      case Backend.errorResponse:
        this.#onError(parseErrorFields(body));
        return true;
      default:
        return false;
    }
  }

  #fail(reason: string): void {
    if (this.found.kind !== "failed") this.found = { kind: "failed", reason };
  }

  #onError({ code, message }: ParsedError): void {
    this.#fail(`error response from auth_query: ${message} (${code})`);
  }

  #row(body: Uint8Array): boolean {
    const values = parseDataRow(body);
    if (values === null) return false;
    // The first row counts, as in PgBouncer.
    if (this.#hasRow || this.found.kind === "failed") return true;
    this.#hasRow = true;
    const [name = null, secret = null] = values;
    if (values.length !== columnsWanted) {
      this.#fail(wrongColumns(values.length));
    } else if (name !== null && secret !== null) {
      this.#onUser(name, secret);
    } else if (secret !== null) {
      this.#fail("auth_query response contained null user name");
    }
    // All NULL is what a function of two OUT parameters returns that has found no row.
    return true;
  }

  #onUser(name: Uint8Array, secret: Uint8Array): void {
    try {
      const text = utf8.decode(secret);
      const user = utf8.decode(name);
      this.found = { kind: "user", secret: { user, kind: secretKind(text), secret: text } };
    } catch {
      this.#fail("auth_query response is not valid UTF-8");
    }
  }
}

function wrongColumns(count: number): string {
  return `expected ${columnsWanted} columns from auth_query, not ${count}`;
}
