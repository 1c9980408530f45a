// A connection to an LDAP server: opened, encrypted where that is asked for, used once and closed. Requests are the
// ldapts package's; when an answer is one, and that everything ends, is said here: each connection has a
// deadline and a bound on what it may be sent.
// Invariant: nothing that came before the handshake is taken for an answer after it.

import { readFileSync } from "node:fs";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { checkServerIdentity, connect as connectTls } from "node:tls";
import { BindRequest, ExtendedRequest, FilterParser, SearchRequest } from "ldapts";
import type { LdapOptions, LdapSearch, LdapServer } from "../../shared/config/mod.ts";
import { AnswerTag, type LdapAnswer, readAnswer, resultText } from "./ldap_answers.ts";

export interface LdapTimes {
  /** How long a server may take to be reached, with TLS. */
  readonly connectMs: number;
  /** How long it may take for all that it is asked. */
  readonly answersMs: number;
}

/** The first as in PgBouncer. */
const usualTimes: LdapTimes = { connectMs: 3000, answersMs: 5000 };
/** What it may send. */
const receivedMax = 1 << 20;
const startTlsOid = "1.3.6.1.4.1.1466.20037";
const success = 0;
const sizeLimitExceeded = 4;
/** Enough to tell one from several. */
const entriesMax = 2;

export interface LdapTarget {
  readonly server: LdapServer;
  /** a numeric address of it */
  readonly address: string;
  readonly tls: LdapOptions["tls"];
}

/** What a server has answered, or that it did not; the text names no secret. */
export class LdapFailure extends Error {
  /** What it says is final; else another server may do better. */
  readonly isAnswer: boolean;

  constructor(message: string, isAnswer = false) {
    super(message);
    this.isAnswer = isAnswer;
  }
}

export class LdapConnection {
  readonly #dialogue: Dialogue;
  readonly #deadline: ReturnType<typeof setTimeout>;

  private constructor(dialogue: Dialogue, answersMs: number) {
    this.#dialogue = dialogue;
    this.#deadline = setTimeout(() => dialogue.end("timeout"), answersMs);
  }

  /** Throws LdapFailure. */
  static async open(
    { server, address, tls }: LdapTarget,
    { connectMs, answersMs }: LdapTimes = usualTimes,
  ): Promise<LdapConnection> {
    const socket = connectTcp({ host: address, port: server.port });
    let reason: string | null = null;
    // Kept, so that no error of it is one that nobody handles.
    socket.on("error", (error: Error) => reason ??= error.message);
    const deadline = setTimeout(() => {
      reason ??= "timeout";
      socket.destroy();
    }, connectMs);
    try {
      await new Promise<void>((resolve, reject) => {
        socket.once("connect", resolve);
        socket.once("close", () => reject(new Error("connection was closed")));
      });
      if (tls === "start") await askForTls(socket);
      const isPlain = tls === "none";
      return new LdapConnection(
        new Dialogue(isPlain ? socket : await secured(socket, server.host)),
        answersMs,
      );
    } catch (error) {
      socket.destroy();
      throw new LdapFailure(reason ?? (error as Error).message);
    } finally {
      clearTimeout(deadline);
    }
  }

  /** Throws LdapFailure if the server does not take name and password. */
  async bind(name: string, password: string): Promise<void> {
    const answer = await this.#dialogue.ask(
      AnswerTag.bind,
      (messageId) => new BindRequest({ messageId, dn: name, password }),
    );
    if (answer.code !== success) throw new LdapFailure(resultText(answer), true);
  }

  /** The names of the entries that are found; of more than two, two. Throws LdapFailure. */
  async search({ baseDn: baseDN, scope }: LdapSearch, text: string): Promise<readonly string[]> {
    const names: string[] = [];
    const filter = readFilter(text);
    const answer = await this.#dialogue.ask(AnswerTag.searchDone, (messageId) => {
      const rest = { scope, filter, attributes: ["1.1"], sizeLimit: entriesMax };
      return new SearchRequest({ messageId, baseDN, ...rest });
    }, (entry) => names.push(entry.text));
    const hasMore = answer.code === sizeLimitExceeded && names.length >= entriesMax;
    if (answer.code !== success && !hasMore) throw new LdapFailure(resultText(answer), true);
    return names;
  }

  /** Idempotent. */
  close(): void {
    clearTimeout(this.#deadline);
    this.#dialogue.end("connection was closed");
  }
}

function readFilter(text: string) {
  try {
    return FilterParser.parseString(text);
  } catch {
    throw new LdapFailure("Bad search filter", true);
  }
}

/** Questions and answers on a connection that stands, one after the other. */
class Dialogue {
  readonly #socket: Socket;
  /** What has come of messages that are not read yet. */
  #pending: Uint8Array = new Uint8Array(0);
  #received = 0;
  #nextId = 1;
  /** Why nothing more comes; null while it stands. */
  #reason: string | null = null;
  #wake: () => void = () => {};
  readonly #onData = (bytes: Uint8Array) => {
    this.#received += bytes.length;
    if (this.#received > receivedMax) return this.end("answer is too long");
    this.#pending = Buffer.concat([this.#pending, bytes]);
    this.#wake();
  };

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("data", this.#onData);
    socket.on("error", (error: Error) => this.end(error.message));
    socket.on("close", () => this.end("connection was closed"));
  }

  /** The last answer to a question; entries come before it. Throws LdapFailure. */
  async ask(
    wanted: number,
    question: (id: number) => { write(): Uint8Array },
    onEntry: (entry: LdapAnswer) => void = () => {},
  ): Promise<LdapAnswer> {
    const id = this.#nextId++;
    this.#socket.write(question(id).write());
    for (;;) {
      const answer = await this.#next();
      const isEntry = answer.tag === AnswerTag.entry || answer.tag === AnswerTag.reference;
      if (
        answer.id !== id || (answer.tag !== wanted && !(isEntry && wanted === AnswerTag.searchDone))
      ) {
        // With the id 0 it is the server's notice that it ends the connection.
        this.end(answer.id === 0 ? `server says: ${resultText(answer)}` : "unexpected answer");
      } else if (answer.tag === wanted) {
        return answer;
      } else if (answer.tag === AnswerTag.entry) {
        onEntry(answer);
      }
    }
  }

  async #next(): Promise<LdapAnswer> {
    for (;;) {
      if (this.#reason !== null) throw new LdapFailure(this.#reason);
      const answer = readAnswer(this.#pending);
      if (answer === "broken") {
        this.end("malformed answer");
      } else if (answer !== null) {
        this.#pending = this.#pending.subarray(answer.length);
        return answer;
      } else {
        await new Promise<void>((resolve) => this.#wake = resolve);
      }
    }
  }

  /** Hands the socket on; false if more has come than was asked for. */
  handOn(): boolean {
    this.#socket.off("data", this.#onData);
    return this.#pending.length === 0;
  }

  /** Idempotent. */
  end(reason: string): void {
    this.#reason ??= reason;
    this.#socket.destroy();
    this.#wake();
  }
}

/** Sends the StartTLS request of RFC 4511, and takes nothing but its answer. */
async function askForTls(socket: Socket): Promise<void> {
  const dialogue = new Dialogue(socket);
  const what = "could not start LDAP TLS session";
  const answer = await dialogue.ask(
    AnswerTag.extended,
    (messageId) => new ExtendedRequest({ messageId, oid: startTlsOid }),
  ).catch((error: Error) => {
    throw new LdapFailure(`${what}: ${error.message}`);
  });
  if (answer.code !== success) throw new LdapFailure(`${what}: ${resultText(answer)}`);
  if (!dialogue.handOn()) throw new LdapFailure(`${what}: data behind the answer`);
}

async function secured(socket: Socket, host: string): Promise<Socket> {
  const authorities = ldapAuthorities();
  const secure = connectTls({
    socket,
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...(authorities === null ? {} : { ca: authorities }),
    minVersion: "TLSv1.2",
    rejectUnauthorized: true,
    // The name is looked at when the handshake is over: by the one rule on every runtime.
    checkServerIdentity: () => undefined,
  });
  await new Promise<void>((resolve, reject) => {
    secure.once("secureConnect", resolve);
    secure.once("error", (error: Error) => reject(new LdapFailure(`TLS: ${error.message}`)));
    const closed = () => reject(new LdapFailure("TLS: connection was closed"));
    secure.once("close", closed);
    socket.once("close", closed);
  });
  secure.on("error", () => {});
  const mismatch = checkServerIdentity(host, secure.getPeerCertificate());
  if (mismatch === undefined) return secure;
  secure.destroy();
  throw new LdapFailure(`TLS: ${mismatch.message}`);
}

/**
 * The authorities that sign certificates of LDAP servers, named where the C library looks for them: LDAPTLS_CACERT, or
 * TLS_CACERT of the system's ldap.conf. null = those of the runtime.
 */
function ldapAuthorities(): string | null {
  const file = process.env["LDAPTLS_CACERT"] ?? fromLdapConf();
  if (file === null) return null;
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new LdapFailure(`TLS: read the authorities from "${file}": ${code}`);
  }
}

function fromLdapConf(): string | null {
  const usual = ["/etc/ldap/ldap.conf", "/etc/openldap/ldap.conf"];
  for (const path of [process.env["LDAPCONF"] ?? usual].flat()) {
    try {
      const found = /^\s*TLS_CACERT\s+(.*\S)\s*$/im.exec(readFileSync(path, "utf8"));
      if (found !== null) return found[1] as string;
    } catch {
      // The next one, or none.
    }
  }
  return null;
}
