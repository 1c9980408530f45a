// A client that speaks the PostgreSQL protocol message by message and shows what a driver hides: every reply in
// order, in the short notation, with a time limit. It sends exactly the bytes it is given, whole or in pieces.
// Nothing is read ahead of the test: replies wait in a buffer until asked for.

import { connect, type Socket } from "node:net";
import { connect as connectTls, type ConnectionOptions } from "node:tls";
import {
  Backend,
  cancelRequest,
  concatBytes,
  largeMessageLimit,
  md5Response,
  md5Secret,
  type Message,
  MessageReader,
  parseAuthentication,
  parseBackendKeyData,
  type ParsedError,
  parseErrorFields,
  parseParameterStatus,
  parseRowDescription,
  passwordMessage,
  queryMessage,
  saltedPassword,
  saslInitialResponse,
  saslResponse,
  ScramClientExchange,
  scramSha256,
  sslRequest,
  startupPacket,
  terminateMessage,
} from "../../shared/wire/mod.ts";
import { notation, type NotationOptions, rowValues } from "./notation.ts";
import { sendByteByByte, sendCut } from "./slow_send.ts";

/** Where a server listens; a Postgres, a Pgweir, a FakePostgres and a Relay are such targets. */
export type Target = { readonly host: string; readonly port: number } | { readonly path: string };

export interface Login {
  readonly user: string;
  /** Default: the server's, which is the name of the user. */
  readonly database?: string;
  readonly password?: string | Uint8Array;
  /** More startup parameters. */
  readonly parameters?: Readonly<Record<string, string>>;
  /** Minor version of protocol 3; default 0. */
  readonly minor?: number;
  /** How long each answer may take; default as ever. */
  readonly timeoutMs?: number;
}

export interface ReplyOptions extends NotationOptions {
  readonly timeoutMs?: number;
}

export type Values = (string | null)[];

/** An ErrorResponse where the test did not expect one. */
export class ServerError extends Error {
  readonly code: string;
  readonly fields: ParsedError;
  constructor(what: string, fields: ParsedError) {
    super(`${what}: ${fields.severity} ${fields.code} ${fields.message}`);
    this.code = fields.code;
    this.fields = fields;
  }
}

const DEFAULT_TIMEOUT_MS = 30_000;

export class RawClient {
  /** The cancel key of the last login, or null. */
  key: { processId: number; secret: Uint8Array } | null = null;
  /** The settings the server reported, latest values. */
  readonly settings: Map<string, string> = new Map();
  /** Fulfilled when the connection is closed: with "" for an orderly end, else the error's code. */
  readonly closed: Promise<string>;
  /** How it was closed, as `closed` says, or null while it is open. */
  closeReason: string | null = null;
  readonly #target: Target;
  #socket: Socket;
  #reader = new MessageReader({ maxLength: largeMessageLimit });
  #wake: (() => void) | null = null;
  #errorCode = "";
  #settleClosed: (reason: string) => void = () => {};

  private constructor(target: Target, socket: Socket) {
    this.#target = target;
    this.#socket = socket;
    this.closed = new Promise((resolve) => this.#settleClosed = resolve);
    this.#listen(socket);
  }

  /** Opens a connection and sends nothing. */
  static async connect(target: Target): Promise<RawClient> {
    const socket = "path" in target
      ? connect({ path: target.path })
      : connect({ host: target.host, port: target.port });
    socket.setNoDelay(true);
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    });
    return new RawClient(target, socket);
  }

  /** Opens a connection and logs in; see `login`. */
  static async login(target: Target, login: Login): Promise<RawClient> {
    const client = await RawClient.connect(target);
    try {
      await client.login(login);
    } catch (error) {
      client.close();
      throw error;
    }
    return client;
  }

  #listen(socket: Socket): void {
    socket.on("data", (bytes: Uint8Array) => {
      this.#reader.push(bytes);
      this.#wake?.();
    });
    socket.on("error", (error: Error & { code?: string }) => {
      this.#errorCode = error.code ?? error.message;
    });
    socket.on("close", () => {
      if (socket !== this.#socket) return;
      this.closeReason = this.#errorCode;
      this.#settleClosed(this.#errorCode);
      this.#wake?.();
    });
  }

  /** The port of this side of a TCP connection. */
  get localPort(): number {
    return this.#socket.localPort ?? 0;
  }

  /** Bytes received and not yet read by the test. */
  get unread(): number {
    return this.#reader.buffered;
  }

  // Sending

  /** Sends all parts in one write. */
  send(...parts: readonly Uint8Array[]): void {
    this.#socket.write(concatBytes(...parts));
  }

  /** Sends bytes cut before each of the given offsets. */
  sendCut(bytes: Uint8Array, cuts: readonly number[], pauseMs?: number): Promise<void> {
    return sendCut(this.#socket, bytes, cuts, pauseMs);
  }

  sendByteByByte(bytes: Uint8Array): Promise<void> {
    return sendByteByByte(this.#socket, bytes);
  }

  /** Sends a startup packet of protocol 3.`minor`. */
  startup(parameters: Readonly<Record<string, string>>, minor = 0): void {
    this.send(startupPacket(parameters, minor));
  }

  // Receiving

  async #wait<T>(what: string, timeoutMs: number, probe: () => T | null): Promise<T | null> {
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      const value = probe();
      if (value !== null) return value;
      if (this.closeReason !== null) return null;
      const left = deadline - performance.now();
      if (left <= 0) throw new Error(`wait for ${what}: nothing more within ${timeoutMs} ms`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wake = null;
    }
  }

  /** The next message of the server, or null when the connection was closed before it. */
  async message(timeoutMs: number = DEFAULT_TIMEOUT_MS): Promise<Message | null> {
    const message = await this.#wait("a message", timeoutMs, () => this.#reader.next());
    if (message?.type === Backend.backendKeyData) this.key = parseBackendKeyData(message.body);
    if (message?.type === Backend.parameterStatus) {
      const setting = parseParameterStatus(message.body);
      if (setting !== null) this.settings.set(setting.name, setting.value);
    }
    return message;
  }

  /** The next single byte, an answer to SSLRequest or GSSENCRequest; "" when closed before it. */
  async byte(timeoutMs: number = DEFAULT_TIMEOUT_MS): Promise<string> {
    const byte = await this.#wait("a byte", timeoutMs, () => this.#reader.nextByte());
    return byte === null ? "" : String.fromCharCode(byte);
  }

  /**
   * The messages up to the `count`-th of a type (its letter), which is the last of them; null = no type ends
   * it. Ends early when the connection is closed. On a time-out the error says what had come.
   */
  async messagesUntil(
    type: string | null,
    count = 1,
    timeoutMs: number = DEFAULT_TIMEOUT_MS,
  ): Promise<Message[]> {
    const messages: Message[] = [];
    let left = count;
    const deadline = performance.now() + timeoutMs;
    while (left > 0) {
      let message: Message | null;
      try {
        message = await this.message(Math.max(0, deadline - performance.now()));
      } catch (error) {
        const came = messages.map((m) => notation(m)).join(" ");
        const reason = error instanceof Error ? error.message : String(error);
        throw new Error(
          `read up to ${type}: ${reason} (${timeoutMs} ms), after "${came.slice(-500)}"`,
        );
      }
      if (message === null) break;
      messages.push(message);
      if (String.fromCharCode(message.type) === type) left--;
    }
    return messages;
  }

  /**
   * The replies up to the `count`-th ReadyForQuery in the short notation, e.g. `T D C"SELECT 1" Z(I)`;
   * ends with `closed` when the server closed the connection before.
   */
  replies(count = 1, options: ReplyOptions = {}): Promise<string> {
    return this.repliesUntil("Z", count, options);
  }

  /** Like `replies`, up to the `count`-th message of another type. */
  async repliesUntil(type: string | null, count = 1, options: ReplyOptions = {}): Promise<string> {
    const messages = await this.messagesUntil(type, count, options.timeoutMs);
    const complete = messages.filter((m) => String.fromCharCode(m.type) === type).length === count;
    return messages.map((m) => notation(m, options)).concat(complete ? [] : ["closed"]).join(" ");
  }

  /** Asserts that no byte comes for a time and that the connection stays open. */
  async readNothingFor(ms: number): Promise<void> {
    const deadline = performance.now() + ms;
    do {
      if (this.unread > 0) throw new Error(`read nothing: ${this.unread} bytes came`);
      if (this.closeReason !== null) throw new Error("read nothing: the connection was closed");
      await new Promise((resolve) => setTimeout(resolve, Math.min(5, ms)));
    } while (performance.now() < deadline);
  }

  /** Waits for the connection to be closed; gives the replies that came before it. */
  repliesUntilClosed(options: ReplyOptions = {}): Promise<string> {
    return this.repliesUntil(null, 1, options);
  }

  /** Stops reading from the socket, so that its buffers fill up. */
  pauseReading(): void {
    this.#socket.pause();
  }

  resumeReading(): void {
    this.#socket.resume();
  }

  // Conversations

  /** Logs in and reads up to ReadyForQuery. Throws a ServerError when the server refuses. */
  async login(login: Login): Promise<void> {
    const parameters: Record<string, string> = { user: login.user };
    if (login.database !== undefined) parameters["database"] = login.database;
    this.startup({ ...parameters, ...login.parameters }, login.minor);
    await this.authenticate(login);
  }

  /** The part of a login after the startup packet: answers what the server asks, up to ReadyForQuery. */
  async authenticate(login: Login): Promise<void> {
    let scram: ScramClientExchange | null = null;
    const password = () => {
      if (login.password === undefined) {
        throw new Error(`log in as "${login.user}": a password is asked for`);
      }
      return login.password;
    };
    for (;;) {
      const message = await this.message(login.timeoutMs);
      if (message === null) throw new Error(`log in as "${login.user}": connection closed`);
      if (message.type === Backend.readyForQuery) return;
      if (message.type === Backend.errorResponse) {
        throw new ServerError(`log in as "${login.user}"`, parseErrorFields(message.body));
      }
      if (message.type !== Backend.authentication) continue;
      const asked = parseAuthentication(message.body);
      switch (asked.kind) {
        case "ok":
          break;
        case "cleartext":
          this.send(passwordMessage(password()));
          break;
        case "md5":
          this.send(passwordMessage(md5Response(md5Secret(login.user, password()), asked.salt)));
          break;
        case "sasl":
          scram = new ScramClientExchange();
          this.send(saslInitialResponse(scramSha256, scram.first()));
          break;
        case "saslContinue": {
          const challenge = scram?.continue(asked.data);
          if (challenge?.kind !== "challenge") {
            throw new Error(`SCRAM login: ${challenge?.message}`);
          }
          const { salt, iterations } = challenge;
          this.send(saslResponse(scram!.proof(await saltedPassword(password(), salt, iterations))));
          break;
        }
        case "saslFinal":
          if (!scram?.verifyFinal(asked.data)) {
            throw new Error("SCRAM login: wrong server signature");
          }
          break;
        default:
          throw new Error(`log in as "${login.user}": asked for ${JSON.stringify(asked)}`);
      }
    }
  }

  async #results(sql: string, timeoutMs?: number): Promise<Message[]> {
    this.send(queryMessage(sql));
    const messages = await this.messagesUntil("Z", 1, timeoutMs);
    const error = messages.find((m) => m.type === Backend.errorResponse);
    if (error !== undefined) throw new ServerError("run query", parseErrorFields(error.body));
    if (messages.at(-1)?.type !== Backend.readyForQuery) {
      throw new Error("run query: connection closed");
    }
    return messages;
  }

  /**
   * Runs a simple query and gives the rows of all its results. On an error of the server throws a
   * ServerError, after ReadyForQuery.
   */
  async query(sql: string, timeoutMs?: number): Promise<Values[]> {
    const messages = await this.#results(sql, timeoutMs);
    return messages.filter((m) => m.type === Backend.dataRow).map(rowValues);
  }

  /** Like `query`, for one result, as objects by column name. */
  async table(sql: string, timeoutMs?: number): Promise<Record<string, string | null>[]> {
    const messages = await this.#results(sql, timeoutMs);
    const header = messages.find((m) => m.type === Backend.rowDescription);
    const names = (header && parseRowDescription(header.body) || []).map((column) => column.name);
    return messages.filter((m) => m.type === Backend.dataRow).map((row) => {
      const values = rowValues(row);
      return Object.fromEntries(names.map((name, at) => [name, values[at] ?? null]));
    });
  }

  /** Sends a cancel request with this client's key on a connection of its own; see `sendCancel`. */
  cancel(): Promise<string> {
    if (this.key === null) throw new Error("cancel: no key was received");
    return sendCancel(this.#target, this.key.processId, this.key.secret);
  }

  /** Asks for TLS by SSLRequest and goes on encrypted. Throws when the server says no. */
  async startTls(options: ConnectionOptions = { rejectUnauthorized: false }): Promise<void> {
    this.send(sslRequest());
    const answer = await this.byte();
    if (answer !== "S") throw new Error(`start TLS: the server answered "${answer}"`);
    await this.directTls(options);
  }

  /** Begins a TLS handshake at once. */
  async directTls(options: ConnectionOptions = { rejectUnauthorized: false }): Promise<void> {
    const plain = this.#socket;
    plain.removeAllListeners("data");
    const secure = connectTls({ ALPNProtocols: ["postgresql"], ...options, socket: plain });
    this.#socket = secure;
    this.#listen(secure);
    await new Promise<void>((resolve, reject) => {
      secure.once("secureConnect", resolve);
      secure.once("error", reject);
      secure.once("close", () => reject(new Error("start TLS: connection closed")));
    });
  }

  // Leaving

  /** Says that nothing more will be sent (FIN), and still receives. */
  halfClose(): void {
    this.#socket.end();
  }

  /** Breaks the connection with RST. */
  reset(): void {
    this.#socket.resetAndDestroy();
  }

  /** Leaves in order: Terminate, then FIN. */
  async end(): Promise<void> {
    if (this.closeReason !== null) return;
    this.#socket.end(terminateMessage());
    await this.closed;
  }

  /** Drops the connection without a word. */
  close(): void {
    this.#socket.destroy();
  }
}

/**
 * Sends a cancel request and waits until the server closes its connection; fulfilled with how it was closed
 * ("" for in order). Throws when the server answers, which the protocol forbids.
 */
export async function sendCancel(
  target: Target,
  processId: number,
  secret: Uint8Array,
): Promise<string> {
  const client = await RawClient.connect(target);
  client.send(cancelRequest(processId, secret));
  try {
    const answer = await client.message();
    if (answer !== null) throw new Error(`cancel: the server answered ${notation(answer)}`);
    if (client.unread > 0) throw new Error(`cancel: the server answered ${client.unread} bytes`);
    return client.closeReason ?? "";
  } finally {
    client.close();
  }
}
