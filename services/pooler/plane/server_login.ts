// Logging in to PostgreSQL: startup packet, authentication (trust, password, md5, SCRAM-SHA-256),
// the parameters and the key, up to the first ReadyForQuery. Cold code: messages are read whole.
// Servers are asked for the newest protocol. One that knows no negotiation about it refuses, or closes the
// connection without a word: then it is asked for 3.0, on a second connection in the same slot.
// A login ends exactly once, with ReadyForQuery or in `fail`; a deadline of the owner's bounds it.

import { errnoText } from "../../../shared/sys/mod.ts";
import {
  Backend,
  md5Response,
  md5Secret,
  parseAuthentication,
  parseBackendKeyData,
  parseErrorFields,
  parseNegotiateProtocolVersion,
  parseParameterStatus,
  passwordMessage,
  readInt32,
  saslInitialResponse,
  saslResponse,
  ScramClientExchange,
  scramSha256,
  scramSha256Plus,
  startupPacket,
} from "../../../shared/wire/mod.ts";
import type { Credential } from "./credentials.ts";
import type { LoginGate } from "./login_gates.ts";
import { failureOf } from "./login_retry.ts";
import type { Refusal } from "./refusals.ts";
import type { ServerConnection } from "./server.ts";

/** No message of a login may be larger. */
const messageMax = 30_000;
/** The first answer of a server that does not know the version, if it gives one. */
const versionRefusals = ["0A000", "08P01"];

export class ServerLogin {
  readonly #server: ServerConnection;
  /** What the server reports. */
  readonly parameters = new Map<string, string>();
  #scram: ScramClientExchange | null = null;
  #scramVerified = false;
  #authenticated = false;
  /** What was asked for; -1 until then. */
  #minor = -1;
  /** The server has said something. */
  #answered = false;
  #versionRefused = false;
  #ended = false;

  readonly #gate: LoginGate;
  #isInGate = true;

  constructor(server: ServerConnection) {
    this.#server = server;
    const { database, plane } = server.pool;
    this.#gate = plane.loginGates.of(database.hosts, database.port);
    this.#gate.enter();
  }

  /** It counts no more among those that log in at once. */
  leaveGate(): void {
    if (this.#isInGate) this.#gate.leave();
    this.#isInGate = false;
  }

  #end(): void {
    this.#ended = true;
    this.leaveGate();
  }

  onConnected(errno: number): void {
    if (errno !== 0) return this.fail("08001", "connect failed", errnoText(errno));
    const { plane, pool, owner } = this.#server;
    // The process may have slept since the slot was taken: then it may be another worker's by now.
    plane.budget.expire();
    if (plane.budget.isLost && owner.lease.held > owner.lease.limit) return this.loseSlot();
    const parameters = new Map([["user", pool.user], ["database", pool.database.dbname]]);
    for (const [name, value] of owner.startupParameters) parameters.set(name, value);
    this.#minor = pool.protocolMinor;
    this.#send(startupPacket(parameters, this.#minor));
  }

  /** The connection broke, or the server has closed it. */
  onBroken(reason: string): void {
    if (!this.#versionRefused && (this.#answered || this.#minor <= 0)) {
      return this.fail("08006", reason);
    }
    if (this.#ended) return;
    this.#versionRefused = false;
    this.#answered = false;
    this.#minor = -1;
    this.#server.pool.onVersionRefused();
    this.#server.reconnect();
  }

  /** Consumes whole messages of [at, end); returns where the unfinished one begins. */
  consume(bytes: Uint8Array, at: number, end: number): number {
    while (end - at >= 5 && !this.#ended) {
      const length = readInt32(bytes, at + 1);
      if (length < 4 || length > messageMax) {
        this.fail("08006", "bad pkt header");
        return end;
      }
      if (at + 1 + length > end) return at;
      this.#message(bytes[at] as number, bytes.slice(at + 5, at + 1 + length));
      at += 1 + length;
    }
    return at;
  }

  /** The connection is closed from elsewhere: late results are ignored. */
  abandon(): void {
    this.#end();
  }

  /** Fails if it takes longer than server_connect_timeout. */
  checkTime(now: number): void {
    const { connectedAt, plane } = this.#server;
    const limit = plane.settings.serverConnectTimeoutMs;
    if (limit > 0 && now - connectedAt >= limit) this.fail("08001", "connect timeout");
  }

  /** The slot is another worker's by now, perhaps. */
  loseSlot(): void {
    this.fail("08001", "the slot was lost: the budget coordinator does not answer");
  }

  fail(code: string, reason: string, detail = ""): void {
    this.failWith({ code, message: detail === "" ? reason : `${reason}: ${detail}` }, reason);
  }

  /** Its server has said no. */
  #refused(failure: Refusal): void {
    const server = this.#server;
    if (!this.#ended) {
      server.plane.logServer(server, `server login failed: FATAL ${failure.message}`);
    }
    this.failWith(failure);
  }

  failWith(failure: Refusal, reason = failure.message): void {
    if (this.#ended) return;
    this.#end();
    const server = this.#server;
    server.login = null;
    server.close(reason);
    server.owner.onLoginFailed(server, failure, server.pool.hosts.fail(server.host));
  }

  #message(type: number, body: Uint8Array): void {
    // Not reconnected before the server has closed its end: the slot is for one connection.
    if (this.#versionRefused) return;
    const isFirst = !this.#answered;
    this.#answered = true;
    switch (type) {
      case Backend.authentication:
        this.#authentication(body);
        return;
      case Backend.parameterStatus: {
        const parameter = parseParameterStatus(body);
        if (parameter === null) return this.fail("08006", "invalid server parameter");
        if (this.parameters.size < 200) this.parameters.set(parameter.name, parameter.value);
        return;
      }
      case Backend.backendKeyData:
        if (!takeKey(this.#server, body)) this.fail("08006", "bad BackendKeyData");
        return;
      case Backend.errorResponse: {
        const error = parseErrorFields(body);
        if (isFirst && this.#minor > 0 && versionRefusals.includes(error.code)) {
          this.#versionRefused = true;
          return;
        }
        return this.#refused(
          failureOf(error, error.message === "" ? "login failed" : error.message),
        );
      }
      case Backend.negotiateProtocolVersion: {
        const offer = parseNegotiateProtocolVersion(body);
        if (offer !== null && offer.minor <= this.#minor) return;
        return this.fail("08006", "bad NegotiateProtocolVersion");
      }
      case Backend.noticeResponse:
        return;
      case Backend.readyForQuery:
        if (!this.#authenticated || body.length !== 1 || body[0] !== 0x49) {
          return this.fail("08006", "bad ReadyForQuery during login");
        }
        this.#end();
        this.#server.login = null;
        this.#server.pool.hosts.succeed(this.#server.host);
        this.#server.session.start(this.parameters);
        return;
      default:
        return this.fail("08006", "unknown pkt");
    }
  }

  #send(bytes: Uint8Array): void {
    const result = this.#server.stream.sendBytes(bytes);
    if (result < 0) this.fail("08006", errnoText(-result));
  }

  #authentication(body: Uint8Array): void {
    const request = parseAuthentication(body);
    const { password, credential } = this.#server.pool;
    switch (request.kind) {
      case "ok":
        // A server that skips the end of the exchange has not proved that it knows the password.
        if (this.#scram !== null && !this.#scramVerified) {
          return this.fail("08006", "failed to verify server signature");
        }
        this.#authenticated = true;
        return;
      case "cleartext":
        if (password === null) return this.#cannotAnswer();
        return this.#send(passwordMessage(password));
      case "md5": {
        const secret = password === null
          ? credential?.md5 ?? null
          : md5Secret(this.#server.pool.user, password);
        if (secret === null) {
          return this.#cannotAnswer("cannot do MD5 authentication: wrong password type");
        }
        return this.#send(passwordMessage(md5Response(secret, request.salt)));
      }
      case "sasl":
        if (!this.#offersScram(request.mechanisms)) {
          return this.fail(
            "28000",
            "none of the server's SASL authentication mechanisms are supported",
          );
        }
        if (password === null && (credential?.scramKeys ?? null) === null) {
          return this.#cannotAnswer(scramProblem(credential));
        }
        this.#scram = new ScramClientExchange({
          channelBinding: this.#binding(request.mechanisms),
        });
        return this.#send(saslInitialResponse(this.#scram.mechanism, this.#scram.first()));
      case "saslContinue":
        return this.#saslContinue(request.data);
      case "saslFinal":
        if (this.#scram === null || !this.#scram.verifyFinal(request.data)) {
          return this.fail("08006", "invalid server signature");
        }
        this.#scramVerified = true;
        return;
      case "unsupported":
        return this.fail("28000", "authentication method of the server is not supported");
      case "problem":
        return this.fail("08006", request.message);
    }
  }

  /** What is known of the user proves nothing to this server; `why` as PgBouncer logs it. */
  #cannotAnswer(why = ""): void {
    const server = this.#server;
    if (why !== "" && !this.#ended) server.plane.logServer(server, why, "error");
    const message = "server login failed: wrong password type";
    this.failWith({ code: "28P01", message }, "failed to answer authreq");
  }

  #offersScram(mechanisms: readonly string[]): boolean {
    return mechanisms.includes(scramSha256) || this.#binding(mechanisms) instanceof Uint8Array;
  }

  /** Ties the login to the TLS connection, if the server offers it: nobody in between can pass it on. */
  #binding(mechanisms: readonly string[]): Uint8Array | "not offered" | "none" {
    const endPoint = this.#server.stream.tls?.peerEndPoint ?? null;
    if (endPoint === null) return "none";
    return mechanisms.includes(scramSha256Plus) ? endPoint : "not offered";
  }

  #saslContinue(data: Uint8Array): void {
    const scram = this.#scram;
    if (scram === null) return this.fail("08006", "unexpected SASL message");
    const challenge = scram.continue(data);
    if (challenge.kind === "problem") return this.fail("08006", challenge.message);
    const { password, credential } = this.#server.pool;
    if (password !== null) {
      this.#server.plane.control.saltedPassword(
        password,
        challenge.salt,
        challenge.iterations,
        (salted) => {
          if (this.#ended) return;
          if (salted === null) return this.fail("08006", "deriving the SCRAM key failed");
          this.#send(saslResponse(scram.proof(salted)));
        },
      );
      return;
    }
    const keys = credential?.scramKeys ?? null;
    if (keys === null) return this.#cannotAnswer(scramProblem(credential));
    if (!credential?.isFor(challenge)) {
      return this.fail("28P01", "the server has another SCRAM secret than the one of the client");
    }
    this.#send(saslResponse(scram.proofFromKeys(keys)));
  }
}

function scramProblem(credential: Credential | null): string {
  const why = credential?.hasScram
    ? "password is SCRAM secret but client authentication did not provide SCRAM keys"
    : "wrong password type";
  return `cannot do SCRAM authentication: ${why}`;
}

/** The key that cancels what a server runs; the last one counts. False if it is damaged. */
export function takeKey(server: ServerConnection, body: Uint8Array): boolean {
  const key = parseBackendKeyData(body);
  if (key === null) return false;
  server.processId = key.processId;
  server.secret = key.secret;
  return true;
}
