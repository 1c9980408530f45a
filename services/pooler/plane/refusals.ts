// Every error that the pooler itself sends to a client: PgBouncer's text, since people grep for it,
// with the SQLSTATE that tells a driver what happened, and a hint where one helps. One table.

import {
  concatBytes,
  type ErrorFields,
  errorResponse,
  frontendFrameProblem,
  readyForQuery,
} from "../../../shared/wire/mod.ts";
import type { Risk, Work } from "./shedding.ts";

export interface Refusal {
  readonly code: string;
  readonly message: string;
  readonly detail?: string;
  readonly hint?: string;
  /** What the log says instead of the message: PgBouncer's words, where the client is told more. */
  readonly logged?: string;
}

const closeStatements =
  "Close statements that are not used any more, or use the unnamed one for texts " +
  "that do not repeat";

/** Why a connection ends whose client has left without a word. */
export const clientGone = "client unexpected eof";

export const refusals = {
  tooManyClients: {
    code: "53300",
    message: "no more connections allowed (max_client_conn)",
    hint: "Close idle connections, or raise max_client_conn",
  },
  tooManyDatabaseClients: {
    code: "53300",
    message: "client connections exceeded (max_db_client_connections)",
    hint: "Close idle connections, or raise max_db_client_connections",
  },
  tooManyUserClients: {
    code: "53300",
    message: "client connections exceeded (max_user_client_connections)",
    hint: "Close idle connections, or raise max_user_client_connections",
  },
  outOfDescriptors: {
    code: "53300",
    message: "no more connections allowed (file descriptors)",
    hint: "Raise the limit of open files (ulimit -n) of the pooler",
  },
  passwordFailed: { code: "28P01", message: "password authentication failed" },
  saslFailed: { code: "28P01", message: "SASL authentication failed" },
  badMechanism: {
    code: "28P01",
    message: "client selected an invalid SASL authentication mechanism",
  },
  pamFailed: { code: "28000", message: "PAM authentication failed" },
  ldapFailed: { code: "28000", message: "LDAP authentication failed" },
  tlsRequired: {
    code: "28000",
    message: "SSL required",
    hint: "Connect with sslmode=require: client_tls_sslmode lets nobody in without TLS",
  },
  trustFailed: { code: "28000", message: '"trust" authentication failed' },
  peerFailed: { code: "28000", message: "unix socket login rejected" },
  certFailed: { code: "28000", message: "certificate authentication failed" },
  noMethod: {
    code: "28000",
    message: "no authentication method is found",
    hint: "No rule of auth_hba_file is for this address, database and user",
  },
  loginRejected: {
    code: "28000",
    message: "login rejected",
    hint: "A rule of auth_hba_file rejects this address, database or user",
  },
  loginTimeout: { code: "08006", message: "client_login_timeout" },
  loginServerDown: {
    code: "57P03",
    message: "client_login_timeout (server down)",
    hint: "The server could not be reached in time: connect again later",
  },
  lookupTimeout: {
    code: "57P03",
    message: "client_login_timeout (server down)",
    hint: "The server that knows the users does not answer: connect again later",
  },
  lookupWaitTimeout: {
    code: "53300",
    message: "query_wait_timeout",
    hint: "The server that knows the users has no connection for this one: connect again later",
  },
  lookupRefused: {
    code: "28000",
    message: "bouncer config error",
    hint: "The user could not be looked up: the pooler's log says why",
  },
  queryWaitTimeout: {
    code: "53300",
    message: "query_wait_timeout",
    hint: "No server connection came free in time: raise the pool size, or query_wait_timeout",
  },
  groupWaitTimeout: {
    code: "53300",
    message: "query_wait_timeout",
    hint:
      "No room came free in its resource group in time: raise the group's limits, or query_wait_timeout",
  },
  queuedQueryTimeout: {
    code: "57014",
    message: "query_timeout",
    hint: "No server connection came free in time: raise the pool size, or query_timeout",
  },
  groupQueryTimeout: {
    code: "57014",
    message: "query_timeout",
    hint:
      "No room came free in its resource group in time: raise the group's limits, or query_timeout",
  },
  queryTimeout: {
    code: "57014",
    message: "query timeout",
    hint: "The query was cancelled: it ran for longer than query_timeout",
  },
  idleTransactionTimeout: {
    code: "25P03",
    message: "idle transaction timeout",
    hint: "The transaction was rolled back: nothing was sent for idle_transaction_timeout",
  },
  transactionTimeout: {
    code: "25P04",
    message: "transaction timeout",
    hint: "The transaction was rolled back: it lasted longer than transaction_timeout",
  },
  clientIdleTimeout: {
    code: "57P05",
    message: "client_idle_timeout",
    hint: "Connect again, and keep idle connections for less than client_idle_timeout",
  },
  noCoordinator: {
    code: "53300",
    message: "query_wait_timeout",
    hint: "No more connections are granted: the budget coordinator does not answer",
  },
  noListener: {
    code: "53300",
    message: "query_wait_timeout",
    hint: "LISTEN needs a server connection beside those of the pool, and none could be had",
  },
  noDatabaseListener: {
    code: "53300",
    message: "no server connection for LISTEN (max_db_connections)",
    hint: "LISTEN needs one beside that of the pool: raise max_db_connections",
  },
  noUserListener: {
    code: "53300",
    message: "no server connection for LISTEN (max_user_connections)",
    hint: "LISTEN needs one beside that of the pool: raise max_user_connections",
  },
  tooManyNotifications: {
    code: "53400",
    message: "notification queue is full",
    hint: "Read notifications as they come, and keep transactions of sessions that listen short",
  },
  cancelledInQueue: { code: "57014", message: "canceling statement due to user request" },
  serverGone: { code: "08006", message: "server conn crashed?" },
  fastClose: {
    code: "57P01",
    message: "server connection is outdated (server_fast_close)",
    hint: "Connect again: the session's server connection had to be closed",
  },
  transactionBlock: {
    code: "0A000",
    message: "transaction blocks not allowed in statement pooling mode",
    hint: "Use pool_mode = transaction, or send the whole block as one query",
  },
  serverProtocol: { code: "08006", message: "bad packet from server" },
  adminDisconnect: {
    code: "57P01",
    message: "admin forced disconnect",
    hint: "An operator has ended the connection from the pooler's console",
  },
  databaseRemoved: {
    code: "57P01",
    message: "database removed",
    hint: "The pooler's configuration was changed",
  },
  databaseChanged: {
    code: "57P01",
    message: "database configuration changed",
    hint: "Connect again: the database's user was changed in the pooler's configuration",
  },
  serverShuttingDown: { code: "57P01", message: "server shutting down" },
  suspendTimeout: {
    code: "57P01",
    message: "suspend_timeout",
    hint: "The pooler was suspended, and what was to be sent was not taken in time; connect again",
  },
  shuttingDown: { code: "57P01", message: "pooler is shutting down" },
  idleSessionTimeout: {
    code: "22023",
    message: "unsupported startup parameter: idle_session_timeout",
    hint: "Use pool_mode = session, or add it to ignore_startup_parameters",
  },
  noPqexec: {
    code: "0A000",
    message: "PQexec disallowed",
    hint: "Use the extended query protocol: disable_pqexec is set",
  },
  unknownPacket: { code: "08P01", message: "unknown pkt" },
  packetTooLarge: { code: "54000", message: "packet too large (max_packet_size)" },
  statementTooLarge: {
    code: "54000",
    message: "prepared statement too large",
    hint: "Use the unnamed statement, or a simple query, for a text of this size",
  },
  clientStatements: {
    code: "54000",
    message:
      "too many prepared statements: those of this client may take 64 MiB of the pooler's memory",
    hint: closeStatements,
  },
  workerStatements: {
    code: "54000",
    message:
      "too many prepared statements: those of all clients may take 512 MiB of the pooler's memory",
    hint: closeStatements,
  },
  tooManyParameters: {
    code: "54000",
    message: "session parameters are not kept: a client may have 100 of them, and 16 KiB",
    hint: "Use SET LOCAL, or a database or user with pool_mode = session",
  },
  brokenParse: { code: "08P01", message: "broken Parse packet" },
  namesTooLong: {
    code: "54000",
    message: "names of portal and prepared statement are too long: more than 32 KiB in a Bind",
  },
  nameTooLong: {
    code: "54000",
    message: "name of prepared statement is too long: more than 16 KiB",
  },
  brokenBind: { code: "08P01", message: "broken Bind packet" },
  brokenDescribe: { code: "08P01", message: "broken Describe packet" },
  brokenClose: { code: "08P01", message: "broken Close packet" },
  unnamedGone: {
    code: "26000",
    message: "unnamed prepared statement does not exist",
    hint: "In transaction pooling the unnamed statement lasts until the end of its transaction",
  },
  notConsoleUser: { code: "42501", message: "not allowed" },
  consoleBadMessage: {
    code: "08P01",
    message: "unsupported packet type for admin console",
  },
  consoleCommandTooLong: { code: "08P01", message: "console command too long" },
} as const satisfies Record<string, Refusal>;

function encode(severity: "ERROR" | "FATAL", refusal: Refusal): Uint8Array {
  const fields: ErrorFields = { severity, code: refusal.code, message: refusal.message };
  if (refusal.detail !== undefined) fields.detail = refusal.detail;
  if (refusal.hint !== undefined) fields.hint = refusal.hint;
  return errorResponse(fields);
}

/** What is wrong with the header of a client's message. */
export function frameRefusal(type: number, length: number, longest: number): Refusal {
  if (length > longest) return refusals.packetTooLarge;
  const message = frontendFrameProblem(type, length) ?? refusals.unknownPacket.message;
  return { code: "08P01", message };
}

/** What is told of a server that knows the users and can't be reached: to strangers, so of the cause only its kind. */
export function lookupFailing(cause: string): Refusal {
  return {
    code: "08006",
    message: failingText(cause),
    hint: "The server that knows the users cannot be reached: the pooler's log says why",
  };
}

/** What is told of a server whose logins fail. */
export function failingText(cause: string): string {
  return `server login has been failing, cached error: ${cause} (server_login_retry)`;
}

/** What is told of work that is shed. Strangers get it as well: it names nothing. */
export function overloaded(
  work: Work,
  { share, source, value: measured }: Risk,
  sqlstate: string,
): Refusal {
  const value = source.scope === "worker"
    ? `The event loop of the pooler is ${measured.toFixed(0)} ms behind`
    : `The ratio of CPU wait to CPU work is ${measured.toFixed(2)}`;
  return {
    code: sqlstate,
    message: `server overloaded: the ${
      work === "transactions" ? "transaction" : "connection"
    } was refused`,
    detail:
      `${value}: ${work} are refused from ${share.min} on, all of them from ${share.max} on, ` +
      `now with probability ${share.probability.toFixed(2)}`,
    hint: work === "transactions"
      ? "Nothing of it was executed: try again after a pause, and a longer one after each attempt"
      : "Try again after a pause, and a longer one after each attempt",
  };
}

/** The message for a refusal that ends the connection. */
export function fatal(refusal: Refusal): Uint8Array {
  return encode("FATAL", refusal);
}

/** The message for a refusal that ends the request. */
export function error(refusal: Refusal): Uint8Array {
  return encode("ERROR", refusal);
}

/** What ends a cycle outside of a transaction. */
export const readyIdle = readyForQuery("I");

/** What a client without an open transaction is sent whose requests are refused alike. */
export interface Answers {
  readonly refusal: Refusal;
  /** The error alone, and with ReadyForQuery behind it. */
  readonly error: Uint8Array;
  readonly whole: Uint8Array;
}

export function answersOf(refusal: Refusal): Answers {
  const bytes = error(refusal);
  return { refusal, error: bytes, whole: concatBytes(bytes, readyIdle) };
}
