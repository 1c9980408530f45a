// One query on a connection of its own to PostgreSQL: connect, log in (trust, password, md5,
// SCRAM-SHA-256), ask, read the rows, leave. Not a driver: no parameters, text only.
// Invariants: it ends within its time, whatever the server does; the socket is closed when it has
// ended; no password is in an error.

import { connect } from "node:net";
import {
  Backend,
  md5Response,
  md5Secret,
  type Message,
  MessageReader,
  parseAuthentication,
  parseDataRow,
  parseErrorFields,
  passwordMessage,
  queryMessage,
  saltedPassword,
  saslInitialResponse,
  saslResponse,
  ScramClientExchange,
  startupPacket,
  terminateMessage,
} from "../../shared/wire/mod.ts";
import { hostPort } from "../../shared/sys/mod.ts";
import { secured, type ServerTls } from "./server_tls.ts";

/** A numeric address, or the path of a unix socket with the port 0. */
export interface ServerAddress {
  readonly host: string;
  readonly port: number;
  /** As the configuration has it, for a certificate to be checked; default: the address. */
  readonly name?: string;
}

export interface Login {
  readonly user: string;
  readonly password: string | null;
  readonly database: string;
}

export type Row = readonly (string | null)[];

/** Rows and bytes of one answer: a server with more backends than this is not believed. */
const maxRows = 200_000;
const maxMessageBytes = 64 * 1024;

const decoder = new TextDecoder();

export function addressText({ host, port }: ServerAddress): string {
  return port === 0 ? host : hostPort(host, port);
}

/** Rejects with an `Error` that says what failed and why, SQLSTATE included. */
export function queryOnce(
  address: ServerAddress,
  login: Login,
  sql: string,
  timeoutMs: number,
  tls: ServerTls | null = null,
): Promise<Row[]> {
  return new Promise((resolve, reject) => {
    const what = `ask PostgreSQL at ${addressText(address)}`;
    const { host, port } = address;
    let socket = connect(port === 0 ? { path: unixPath(host) } : { host, port });
    const conversation = new Conversation(login, sql, (bytes) => socket.write(bytes));
    const end = (settle: () => void): void => {
      clearTimeout(timer);
      socket.removeAllListeners();
      socket.on("error", () => {}); // what comes after the end is nobody's business
      socket.destroy();
      settle();
    };
    const fail = (reason: string): void => end(() => reject(new Error(`${what}: ${reason}`)));
    const timer = setTimeout(() => fail(`no answer in ${timeoutMs} ms`), timeoutMs);
    const watch = () => {
      socket.on("error", (error: NodeJS.ErrnoException) => fail(error.code ?? error.message));
      socket.on("close", () => fail("connection was closed"));
    };
    const converse = () => {
      socket.on("data", (bytes: Uint8Array) => {
        conversation.onBytes(bytes).then((rows) => {
          if (rows === null) return;
          socket.write(terminateMessage());
          end(() => resolve(rows));
        }, (error) => fail((error as Error).message));
      });
      socket.write(conversation.hello());
    };
    watch();
    socket.on("connect", () => {
      if (tls === null || port === 0) return converse();
      // Why a handshake failed is told after the connection has gone.
      socket.removeAllListeners("close");
      secured(socket, address.name ?? host, tls).then((secure) => {
        socket.removeAllListeners("error");
        socket.on("error", () => {});
        socket = secure;
        watch();
        converse();
      }, (error: Error) => fail(error.message));
    });
  });
}

/** "@name" is an abstract socket. */
function unixPath(path: string): string {
  return path.startsWith("@") ? `\0${path.slice(1)}` : path;
}

class Conversation {
  readonly #login: Login;
  readonly #sql: string;
  readonly #send: (bytes: Uint8Array) => void;
  readonly #reader = new MessageReader({ maxLength: maxMessageBytes });
  readonly #rows: Row[] = [];
  #scram: ScramClientExchange | null = null;
  #scramVerified = false;
  #authenticated = false;
  #asked = false;
  /** Messages are taken one after the other, though one of them needs a key derived. */
  #last: Promise<Row[] | null> = Promise.resolve(null);

  constructor(login: Login, sql: string, send: (bytes: Uint8Array) => void) {
    this.#login = login;
    this.#sql = sql;
    this.#send = send;
  }

  hello(): Uint8Array {
    const { user, database } = this.#login;
    return startupPacket(
      new Map([
        ["user", user],
        ["database", database],
        ["application_name", "pgweir budget"],
        ["client_encoding", "UTF8"],
      ]),
    );
  }

  /** The rows once they are all there, before that null. */
  onBytes(bytes: Uint8Array): Promise<Row[] | null> {
    const own = Uint8Array.from(bytes);
    this.#last = this.#last.then(() => this.#take(own));
    return this.#last;
  }

  async #take(bytes: Uint8Array): Promise<Row[] | null> {
    this.#reader.push(bytes);
    for (let message = this.#reader.next(); message !== null; message = this.#reader.next()) {
      if (await this.#isOver(message)) return this.#rows;
    }
    return null;
  }

  async #isOver({ type, body }: Message): Promise<boolean> {
    switch (type) {
      case Backend.authentication:
        await this.#authenticate(body);
        return false;
      case Backend.errorResponse: {
        const { code, message } = parseErrorFields(body);
        throw new Error(`${code} ${message}`);
      }
      case Backend.dataRow: {
        const values = parseDataRow(body);
        if (values === null) throw new Error("damaged DataRow");
        if (this.#rows.length >= maxRows) throw new Error(`more than ${maxRows} rows`);
        this.#rows.push(values.map((value) => value === null ? null : decoder.decode(value)));
        return false;
      }
      case Backend.readyForQuery:
        if (!this.#authenticated) throw new Error("ReadyForQuery before the login was over");
        if (this.#asked) return true;
        this.#asked = true;
        this.#send(queryMessage(this.#sql));
        return false;
      default:
        return false;
    }
  }

  async #authenticate(body: Uint8Array): Promise<void> {
    const request = parseAuthentication(body);
    const { user, password } = this.#login;
    switch (request.kind) {
      case "ok":
        // A server that skips the end of the exchange has not proved that it knows the password.
        if (this.#scram !== null && !this.#scramVerified) {
          throw new Error("failed to verify server signature");
        }
        this.#authenticated = true;
        return;
      case "cleartext":
        return this.#send(passwordMessage(needed(password)));
      case "md5":
        return this.#send(
          passwordMessage(md5Response(md5Secret(user, needed(password)), request.salt)),
        );
      case "sasl":
        needed(password);
        this.#scram = new ScramClientExchange();
        if (!request.mechanisms.includes(this.#scram.mechanism)) {
          throw new Error("no SASL mechanism of the server is supported, wanted SCRAM-SHA-256");
        }
        return this.#send(saslInitialResponse(this.#scram.mechanism, this.#scram.first()));
      case "saslContinue": {
        const challenge = this.#scram?.continue(request.data);
        if (challenge === undefined) throw new Error("unexpected SASL message");
        if (challenge.kind === "problem") throw new Error(challenge.message);
        const { salt, iterations } = challenge;
        const salted = await saltedPassword(needed(password), salt, iterations);
        return this.#send(saslResponse(this.#scram!.proof(salted)));
      }
      case "saslFinal":
        this.#scramVerified = this.#scram?.verifyFinal(request.data) ?? false;
        if (!this.#scramVerified) throw new Error("invalid server signature");
        return;
      case "unsupported":
        throw new Error("authentication method of the server is not supported");
      case "problem":
        throw new Error(request.message);
    }
  }
}

function needed(password: string | null): string {
  if (password !== null) return password;
  throw new Error("server asks for a password, and budget_auth has none");
}
