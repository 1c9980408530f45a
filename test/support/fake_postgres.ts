// A scripted PostgreSQL: it logs everybody in and answers simple things, and a test replaces any part of that by
// its own bytes: cut, late, wrong, or none at all. It shows what a real server will not do on demand.
// Handlers of one connection run one after the other; a handler that never returns is a server that hangs.

import { readFileSync } from "node:fs";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import {
  authenticationOk,
  Backend,
  backendKeyData,
  commandComplete,
  concatBytes,
  dataRow,
  emptyQueryResponse,
  Frontend,
  largeMessageLimit,
  type Message,
  message,
  MessageReader,
  parameterStatus,
  parseInitialPacket,
  readyForQuery,
  rowDescription,
  type StartupPacket,
} from "../../shared/wire/mod.ts";
import type { Certificate } from "./certificates.ts";
import { sendByteByByte, sendCut } from "./slow_send.ts";

export interface FakeOptions {
  /** Settings reported at login; default: those a PostgreSQL 15 reports that drivers ask for. */
  readonly settings?: Readonly<Record<string, string>>;
  /** The cancel key of each session; null sends none. Default: unique keys with 4-byte secrets. */
  readonly key?: { readonly processId: number; readonly secret: Uint8Array } | null;
  /** Replaces the login; the default is `session.acceptLogin()`. */
  readonly onStartup?: (session: FakeSession, startup: StartupPacket) => void | Promise<void>;
  /** Replaces the answer to a message; the default is `session.answer(message)`. */
  readonly onMessage?: (session: FakeSession, message: Message) => void | Promise<void>;
  /** Called for a cancel request, whose connection is closed afterwards. */
  readonly onCancel?: (processId: number, secret: Uint8Array) => void | Promise<void>;
  /** What is answered to SSLRequest; default "N". Anything may follow the first byte. */
  readonly tlsAnswer?: string;
  /** Answers SSLRequest with "S", and goes on encrypted. */
  readonly tls?: Certificate;
  /** Its end of a connection stays open when the other end was closed, until a handler ends it. */
  readonly lingers?: boolean;
}

const SETTINGS = {
  server_version: "15.0",
  server_encoding: "UTF8",
  client_encoding: "UTF8",
  standard_conforming_strings: "on",
  integer_datetimes: "on",
  DateStyle: "ISO, MDY",
  TimeZone: "UTC",
};

const text = new TextDecoder();
const bytesOf = (value: string) => new TextEncoder().encode(value);

/** The SQL of a Query message. */
export function queryText(query: Message): string {
  return text.decode(query.body.subarray(0, -1));
}

/** One connection to the fake server that has sent its startup packet. */
export class FakeSession {
  readonly startup: StartupPacket;
  readonly key: { readonly processId: number; readonly secret: Uint8Array } | null;
  /** Everything the client sent after its startup packet. */
  readonly messages: Message[] = [];
  readonly encrypted: boolean;
  /** Fulfilled when the connection is closed. */
  readonly closed: Promise<void>;
  isClosed = false;
  /** What `answer` puts in ReadyForQuery: it follows BEGIN, COMMIT and ROLLBACK. */
  transaction: "I" | "T" | "E" = "I";
  readonly #socket: Socket;
  readonly #ports: readonly [number, number];
  readonly #settings: Readonly<Record<string, string>>;

  constructor(
    socket: Socket,
    startup: StartupPacket,
    key: { processId: number; secret: Uint8Array } | null,
    settings: Readonly<Record<string, string>>,
    encrypted: boolean,
  ) {
    this.startup = startup;
    this.key = key;
    this.#socket = socket;
    this.#settings = settings;
    this.encrypted = encrypted;
    this.#ports = [socket.localPort ?? 0, socket.remotePort ?? 0];
    this.closed = new Promise((resolve) =>
      socket.on("close", () => {
        this.isClosed = true;
        resolve();
      })
    );
  }

  /** Bytes that the client's kernel has and the client has not read; IPv4 on this host. */
  get unreadByPeer(): number {
    const [own, peer] = this.#ports.map((port) => port.toString(16).toUpperCase().padStart(4, "0"));
    for (const line of readFileSync("/proc/net/tcp", "utf8").split("\n")) {
      const [, local, remote, , queues] = line.trim().split(/\s+/);
      if (!local?.endsWith(`:${peer}`) || !remote?.endsWith(`:${own}`)) continue;
      return parseInt(queues?.split(":")[1] ?? "0", 16);
    }
    return 0;
  }

  /** Sends all parts in one write. */
  send(...parts: readonly Uint8Array[]): void {
    this.#socket.write(concatBytes(...parts));
  }

  sendCut(bytes: Uint8Array, cuts: readonly number[], pauseMs?: number): Promise<void> {
    return sendCut(this.#socket, bytes, cuts, pauseMs);
  }

  sendByteByByte(bytes: Uint8Array): Promise<void> {
    return sendByteByByte(this.#socket, bytes);
  }

  /** Ends the connection with FIN, after what was sent. */
  end(): void {
    this.#socket.end();
  }

  /** Breaks the connection with RST. */
  reset(): void {
    this.#socket.resetAndDestroy();
  }

  /** The bytes of a login without password: AuthenticationOk, settings, key, ReadyForQuery. */
  loginBytes(): Uint8Array {
    return concatBytes(
      authenticationOk(),
      ...Object.entries(this.#settings).map(([name, value]) => parameterStatus(name, value)),
      this.key === null ? new Uint8Array(0) : backendKeyData(this.key.processId, this.key.secret),
      readyForQuery("I"),
    );
  }

  acceptLogin(): void {
    this.send(this.loginBytes());
  }

  /** The bytes of a result of one text column and one row, without ReadyForQuery. */
  oneRow(value: string): Uint8Array {
    return concatBytes(
      rowDescription([{ name: "value", typeOid: 25, typeSize: -1 }]),
      dataRow([value]),
      commandComplete("SELECT 1"),
    );
  }

  /**
   * Answers a message plausibly. A query gets one row with its own text, unless it is known to return none:
   * BEGIN, COMMIT, ROLLBACK, SET, RESET, DISCARD ALL and the empty one.
   */
  answer(asked: Message): void {
    switch (asked.type) {
      case Frontend.query:
        return this.send(this.#queryResult(queryText(asked)), readyForQuery(this.transaction));
      case Frontend.parse:
        return this.send(message(Backend.parseComplete));
      case Frontend.bind:
        return this.send(message(Backend.bindComplete));
      case Frontend.close:
        return this.send(message(Backend.closeComplete));
      case Frontend.describe: {
        const parameters = message(Backend.parameterDescription, new Uint8Array(2));
        return this.send(
          asked.body[0] === 0x53 ? parameters : new Uint8Array(0),
          rowDescription([{ name: "value", typeOid: 25, typeSize: -1 }]),
        );
      }
      case Frontend.execute:
        return this.send(dataRow(["executed"]), commandComplete("SELECT 1"));
      case Frontend.sync:
        return this.send(readyForQuery(this.transaction));
      case Frontend.terminate:
        return this.end();
    }
  }

  #queryResult(sql: string): Uint8Array {
    const words = sql.trim().replace(/;$/, "").toUpperCase().split(/\s+/);
    switch (words[0]) {
      case "":
        return emptyQueryResponse();
      case "BEGIN":
        this.transaction = "T";
        return commandComplete("BEGIN");
      case "COMMIT":
      case "ROLLBACK":
        this.transaction = "I";
        return commandComplete(words[0]);
      case "SET":
      case "RESET":
        return commandComplete(words[0]);
      case "DISCARD":
        return commandComplete("DISCARD ALL");
      default:
        return this.oneRow(sql);
    }
  }
}

export class FakePostgres {
  readonly host: string;
  port = 0;
  /** Every session so far, also closed ones. */
  readonly sessions: FakeSession[] = [];
  /** Every cancel request so far. */
  readonly cancels: { readonly processId: number; readonly secret: Uint8Array }[] = [];
  /** How many of them came by TLS. */
  encryptedCancels = 0;
  /** Changes apply to what comes next. */
  options: FakeOptions;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #nextProcessId = 1;

  constructor(options: FakeOptions, host = "127.0.0.1") {
    this.options = options;
    this.host = host;
    this.#server = createServer(
      { noDelay: true, allowHalfOpen: options.lingers ?? false },
      (socket) => this.#accept(socket),
    );
  }

  /** Sessions that are not closed. */
  get open(): FakeSession[] {
    return this.sessions.filter((session) => !session.isClosed);
  }

  async listen(port = 0): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen({ port, host: this.host }, resolve);
    });
    this.port = (this.#server.address() as AddressInfo).port;
  }

  /** Stops listening and drops all connections. */
  async stop(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #accept(socket: Socket, encrypted = false): void {
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket));
    // What the pooler does to the connection is what tests look at; here it is no error.
    socket.on("error", () => {});
    const reader = new MessageReader({ side: "frontend", maxLength: largeMessageLimit });
    let session: FakeSession | null = null;
    // Messages are handled in order, each after the handler of the one before has returned.
    let queue = Promise.resolve();
    const enqueue = (work: () => void | Promise<void>) => {
      queue = queue.then(work).catch((error) => {
        console.error("fake PostgreSQL:", error);
        socket.destroy();
      });
    };
    socket.on("data", (bytes: Uint8Array) => {
      reader.push(bytes);
      while (session === null) {
        const packet = reader.nextInitialPacket();
        if (packet === null) return;
        const initial = parseInitialPacket(packet, 0, packet.length);
        if (initial.kind === "ssl" && this.options.tls !== undefined) {
          return this.#secure(socket, this.options.tls);
        } else if (initial.kind === "ssl") {
          const answer = this.options.tlsAnswer ?? "N";
          socket.write(bytesOf(answer));
          // What comes now is encrypted, and nobody here reads it.
          if (answer.startsWith("S")) return void socket.removeAllListeners("data");
        } else if (initial.kind === "gss") {
          socket.write(bytesOf("N"));
        } else if (initial.kind === "startup") {
          session = this.#begin(socket, initial, encrypted);
          const begun = session;
          enqueue(() => (this.options.onStartup ?? ((s) => s.acceptLogin()))(begun, initial));
        } else {
          if (initial.kind === "cancel") {
            const { processId, secret } = initial;
            this.cancels.push({ processId, secret });
            if (encrypted) this.encryptedCancels++;
            enqueue(() => this.options.onCancel?.(initial.processId, initial.secret));
          }
          enqueue(() => {
            socket.end();
          });
          return;
        }
      }
      const active = session;
      for (let next = reader.next(); next !== null; next = reader.next()) {
        const received = next;
        active.messages.push(received);
        enqueue(() => (this.options.onMessage ?? ((s, m) => s.answer(m)))(active, received));
      }
    });
  }

  #secure(socket: Socket, { certFile, keyFile }: Certificate): void {
    socket.removeAllListeners("data");
    const [cert, key] = [readFileSync(certFile), readFileSync(keyFile)];
    // It never listens: it takes over connections that are there.
    const server = createTlsServer({ cert, key }, (secure) => this.#accept(secure, true));
    server.on("tlsClientError", () => socket.destroy());
    socket.write("S");
    server.emit("connection", socket);
  }

  #begin(socket: Socket, startup: StartupPacket, encrypted: boolean): FakeSession {
    const processId = this.#nextProcessId++;
    const secret = crypto.getRandomValues(new Uint8Array(4));
    const key = this.options.key === undefined ? { processId, secret } : this.options.key;
    const session = new FakeSession(
      socket,
      startup,
      key,
      this.options.settings ?? SETTINGS,
      encrypted,
    );
    this.sessions.push(session);
    return session;
  }
}

/** `host`: an address of this machine; port 0 is any. */
export async function startFakePostgres(
  options: FakeOptions = {},
  host = "127.0.0.1",
  port = 0,
): Promise<FakePostgres> {
  const server = new FakePostgres(options, host);
  await server.listen(port);
  return server;
}
