// A client's way in: initial packets (SSLRequest, GSSENCRequest, CancelRequest, startup), the proof
// of who it is, the checks of what it asks for, and the greeting. Cold code.
// Until the proof is right nothing tells whether the user or the database exists.

import { randomBytes } from "node:crypto";
import process from "node:process";
import {
  type DatabaseConfig,
  type HbaRule,
  lookupDatabase,
  matchHba,
  poolModeFor,
} from "../../../shared/config/mod.ts";
import {
  type PeerCredentials,
  peerCredentials,
  type Stream,
  SysError,
} from "../../../shared/sys/mod.ts";
import {
  authenticationCleartext,
  authenticationMd5,
  authenticationOk,
  authenticationSasl,
  authenticationSaslContinue,
  authenticationSaslFinal,
  concatBytes,
  Frontend,
  initialPacketLengthProblem,
  isCancelRequest,
  latestProtocolMinor,
  mockScramSecret,
  negotiateProtocolVersion,
  readInt32,
  type ScramSecret,
  ScramServerExchange,
  scramSha256,
  scramSha256Plus,
} from "../../../shared/wire/mod.ts";
import { authTarget } from "./auth_query.ts";
import type { ClientGate } from "./client_gate.ts";
import type { ClientSession } from "./client.ts";
import { consoleGreeting, ConsoleSession } from "./console_session.ts";
import { Credential } from "./credentials.ts";
import { badHeaderText, clientLabel, loginAttemptText } from "./log_lines.ts";
import { certificateProblem, peerProblem } from "./identities.ts";
import type { Entrant } from "./entrance.ts";
import { initialRefusal, saslInitial, withoutZero } from "./login_messages.ts";
import type { ParameterSet } from "./parameters.ts";
import { isConsole, type Pool } from "./pool.ts";
import { type Refusal, refusals } from "./refusals.ts";
import type { Replication, Startup } from "./startup.ts";
import { Counter } from "./stats.ts";
import { Tunnel } from "./tunnel.ts";
import type { LookedUp } from "./user_lookup.ts";
import { type Judge, judgeFor } from "./judge.ts";

/** A password message may be this long; longer ones are refused before they are read. */
const passwordMax = 16 * 1024;
/** The pooler's own system user is an administrator under this name, without a password. */
const ownerName = "pgbouncer";
/** How long a login waits for a server to try what the client asks for. */
const trialMs = 3000;
const no = Uint8Array.of(0x4e);
const yes = Uint8Array.of(0x53);
const tlsHandshake = 0x16;

type Secrets = readonly [ScramSecret, ...ScramSecret[]];

type Step =
  /** Initial packets; leaves with a startup packet or a cancel request. */
  | { at: "initial"; ssl: boolean; gss: boolean }
  /** A password of the named method is wanted. */
  | { at: "cleartext" }
  /** A password is wanted that somebody else knows. */
  | { at: "judged"; judge: Judge }
  | { at: "md5"; salt: Uint8Array }
  /** `binding`: what the channel is bound with if the client wants that; null = it was not offered. */
  | { at: "saslInitial"; secrets: Secrets; binding: Uint8Array | null }
  | { at: "saslFinal"; exchange: ScramServerExchange }
  /** A result of the control thread, a server's greeting or a cancel's end is awaited. */
  | { at: "waiting" }
  | { at: "over" };

export class ClientLogin implements Entrant {
  isCalled = false;
  /** When it began, as client_login_timeout counts. */
  since: number;
  readonly #client: ClientSession;
  readonly #unixSocket: boolean;
  #step: Step = { at: "initial", ssl: false, gss: false };
  #startup: Startup | null = null;
  #credential: Credential | null = null;
  /** The rule of auth_hba_file that it comes under. */
  #rule: HbaRule | null = null;
  /** The pooler's own system user, at the console. */
  #isOwner = false;
  /** What others were asked, auth_query or a judge; `late`: what it is told if they take too long. */
  #asked: { readonly withdraw: () => void; readonly late: Refusal } | null = null;

  constructor(client: ClientSession, unixSocket: boolean) {
    this.#client = client;
    this.since = client.connectedAt;
    this.#unixSocket = unixSocket;
  }

  get isFresh(): boolean {
    return this.#step.at === "initial";
  }

  get closed(): boolean {
    return this.#client.closed;
  }

  get stream(): Stream {
    return this.#client.stream;
  }

  /** Input is to be kept until `ClientSession.resumeInput`. */
  get paused(): boolean {
    return this.#step.at === "waiting";
  }

  postpone(ms: number): void {
    this.since += ms;
  }

  abandon(): void {
    this.#step = { at: "over" };
    this.#asked?.withdraw();
    this.#asked = null;
  }

  /** What it is told when its time is over; null = the client has let it pass. */
  get lateRefusal(): Refusal | null {
    return this.#asked?.late ?? this.#client.pool?.lateLogin ?? null;
  }

  /** Consumes whole packets of [at, end); returns where the unfinished one begins. */
  consume(bytes: Uint8Array, at: number, end: number): number {
    while (at < end) {
      if (this.#step.at === "initial") {
        if (bytes[at] === tlsHandshake) {
          this.#client.close("unexpected TLS handshake: TLS is not enabled, or not asked for");
          return end;
        }
        if (end - at < 4) return at;
        const length = readInt32(bytes, at);
        const problem = initialPacketLengthProblem(length);
        if (problem !== null) {
          const logged = badHeaderText(bytes, at, end);
          this.#refuse({ code: "08P01", message: problem, logged });
          return end;
        }
        if (end - at < length) return at;
        this.#initial(bytes, at, length, end - at > length);
        at += length;
      } else if (this.#step.at === "waiting" || this.#step.at === "over") {
        return this.#client.closed ? end : at;
      } else {
        if (end - at < 5) return at;
        const type = bytes[at] as number;
        const length = readInt32(bytes, at + 1);
        if (type === Frontend.terminate) {
          this.#client.close("client close request");
          return end;
        }
        if (type !== Frontend.password || length < 4 || length > passwordMax) {
          this.#refuse(
            type === Frontend.password
              ? { code: "08P01", message: "password too long" }
              : refusals.unknownPacket,
          );
          return end;
        }
        if (end - at < 1 + length) return at;
        this.#password(bytes.slice(at + 5, at + 1 + length));
        at += 1 + length;
      }
      if (this.#client.closed) return end;
      if (this.#client.login === null) return at;
    }
    return at;
  }

  // --- initial packets

  #initial(bytes: Uint8Array, at: number, length: number, more: boolean): void {
    const packet = this.#client.plane.startups.read(bytes, at, length);
    const step = this.#step;
    if (step.at !== "initial") return;
    switch (packet.kind) {
      case "problem":
        // Nobody who sends a cancel request is ever answered.
        if (isCancelRequest(bytes, at)) this.#client.close(packet.message);
        else this.#refuse(initialRefusal(packet, bytes, at));
        return;
      case "ssl":
      case "gss": {
        const what = packet.kind === "ssl" ? "SSL" : "GSSAPI encryption";
        if (packet.kind === "ssl" ? step.ssl : step.gss) {
          const message = `unsupported protocol: ${what} request was answered already`;
          this.#refuse({ code: "0A000", message });
          return;
        }
        // What is glued behind such a request was written by somebody who did not await the answer.
        if (more) {
          const message = `received unencrypted data after ${what} request`;
          this.#refuse({ code: "08P01", message });
          return;
        }
        step[packet.kind] = true;
        if (packet.kind === "gss" || !this.#startTls()) this.#client.stream.sendBytes(no);
        return;
      }
      case "cancel":
        // Not a login: how long it may take is the cancels' own business.
        this.#client.plane.loggingIn.delete(this.#client);
        this.#wait();
        this.#client.plane.cancels.request(this.#client, packet.processId, packet.secret);
        return;
      case "startup":
        this.#onStartup(packet);
        return;
    }
  }

  /** Answers a request for TLS, if the client gets it. */
  #startTls(): boolean {
    const { stream, plane } = this.#client;
    const context = plane.tls.client;
    if (context === null || this.#unixSocket || stream.tls !== null) return false;
    if (stream.sendBytes(yes) === 0) stream.startTls(context);
    else this.#client.close("client does not take the answer to its SSL request");
    return true;
  }

  /** The handshake is over; it has failed if there is a problem. */
  onSecured(problem: string): void {
    const client = this.#client;
    const step = this.#step;
    if (problem !== "") {
      const line = `TLS handshake error: handshake failed: ${problem}`;
      client.plane.control.log("warning", `${clientLabel(client)} ${line}`);
      client.closeAfterFlush(`TLS handshake failed: ${problem}`);
    } else if (step.at === "initial" && !step.ssl && client.stream.tls?.hasAlpn !== true) {
      // Without it a browser could be made to speak to a database.
      client.close('direct TLS without the protocol (ALPN) "postgresql"');
    }
  }

  #onStartup(startup: Startup): void {
    const client = this.#client;
    const plane = client.plane;
    const { packet } = startup;
    if (plane.tls.clientRequired && client.stream.tls === null && !this.#unixSocket) {
      this.#refuse(refusals.tlsRequired);
      return;
    }
    if (startup.refusal !== null) {
      this.#refuse(startup.refusal);
      return;
    }
    this.#startup = startup;
    client.user = packet.user;
    client.database = packet.database;
    client.parameters = this.#named(startup);
    if (plane.stopping) {
      this.#refuse(refusals.shuttingDown);
      return;
    }
    if (!isConsole(packet.database)) {
      const refusal = plane.overload.loginRefusal(client) ?? plane.clientLimit();
      if (refusal !== null) {
        this.#refuse(refusal);
        return;
      }
      this.#enter(plane.mainGates, () => this.#begin(startup));
      return;
    }
    this.#begin(startup);
  }

  /** What it asks for, with where it comes from in its application_name. */
  #named({ parameters, parameterRefusal, replication }: Startup): ParameterSet {
    const { plane, address } = this.#client;
    const { settings, tracker } = plane;
    // A replication client's is the name of a standby.
    const isPlain = replication === null && parameterRefusal === null;
    if (!settings.applicationNameAddHost || !isPlain) return parameters;
    const index = tracker.applicationName;
    const name = parameters.values[index] ?? "app";
    const { host, port } = address;
    const from = this.#unixSocket
      ? `unix(${this.#peer?.pid ?? 0}):${settings.listenPort}`
      : host.includes(":")
      ? `[${host}]:${port}`
      : `${host}:${port}`;
    return tracker.with(parameters, index, `${name} - ${from}`);
  }

  /**
   * Passes all gates, then goes on. Who has to wait at one holds no place at the others meanwhile: they
   * may be all that a client under other limits needs.
   */
  #enter(gates: readonly ClientGate[], then: () => void, held: readonly ClientGate[] = []): void {
    const client = this.#client;
    const entered = [...held];
    for (const gate of gates) {
      if (gate.enter()) {
        entered.push(gate);
        continue;
      }
      for (const other of entered) other.leave();
      const others = [...held, ...gates].filter((other) => other !== gate);
      this.#later((done) => {
        gate.wait(client, (refusal) => {
          done(() => refusal === null ? this.#enter(others, then, [gate]) : this.#refuse(refusal));
        });
      });
      return;
    }
    // The list of the main gate is one for all clients: nearly all have no other.
    if (gates === client.plane.mainGates) client.gates = gates;
    else if (entered.length > 0) client.gates = [...client.gates, ...entered];
    then();
  }

  #begin(startup: Startup): void {
    const client = this.#client;
    const plane = client.plane;
    const { packet } = startup;
    client.minor = Math.min(packet.minor, latestProtocolMinor);
    if (client.minor < packet.minor || packet.protocolOptions.length > 0) {
      client.stream.sendBytes(negotiateProtocolVersion(client.minor, packet.protocolOptions));
    }
    plane.logClient(client, loginAttemptText(client, startup.replication));
    this.#challenge();
  }

  // --- proof

  #challenge(): void {
    const client = this.#client;
    const plane = client.plane;
    const { authType } = plane.settings;
    this.#isOwner = isConsole(client.database) && client.user === ownerName &&
      this.#peer?.uid === process.geteuid?.();
    if (this.#isOwner || authType === "any") {
      this.#proven();
      return;
    }
    if (authType === "hba") {
      this.#rule = this.#matchingRule();
      if (this.#rule === null || this.#rule.method === "reject") {
        this.#refuse(this.#rule === null ? refusals.noMethod : refusals.loginRejected);
        return;
      }
    }
    const judge = judgeFor(plane.config, this.#rule);
    if (judge !== null) {
      this.#ask({ at: "judged", judge }, authenticationCleartext());
      return;
    }
    const credential = plane.credential(client.user);
    // Who is in the auth_file is not looked up.
    const target = credential === null ? authTarget(plane.config, client.database) : null;
    if (target === null) {
      this.#challengeAs(credential, false);
    } else if ("problem" in target) {
      plane.control.log("error", target.problem);
      this.#refuse(refusals.lookupRefused);
    } else if (
      target.database.name !== client.database && plane.operator.isDisabled(target.database.name)
    ) {
      const message = `authentication database "${target.database.name}" is disabled`;
      this.#refuse({ code: "57P03", message });
    } else {
      this.#later((done) => {
        let isTold = false;
        const withdraw = plane.lookups.find(target, client.user, (result) => {
          isTold = true;
          this.#asked = null;
          done(() => this.#onLookedUp(result));
        });
        if (!isTold) this.#asked = { withdraw, late: refusals.lookupTimeout };
      });
    }
  }

  #onLookedUp(result: LookedUp): void {
    if (result.kind === "refused") {
      this.#refuse(result.refusal);
      return;
    }
    const credential = result.kind === "user" ? new Credential(result.secret) : null;
    if (result.kind === "user") {
      // As in PgBouncer it is who auth_query says it is, with PostgreSQL's spelling of the name.
      this.#client.user = result.secret.user;
      this.#client.plane.strangers.onFound(result.secret.kind);
    }
    this.#challengeAs(credential, true);
  }

  #matchingRule(): HbaRule | null {
    const { plane, address, stream, database, user } = this.#client;
    return matchHba(plane.config.hba, {
      host: this.#unixSocket ? null : address.host,
      tls: stream.tls !== null,
      database,
      user,
      replication: this.#startup?.replication === "physical",
    });
  }

  /** Asks for the proof of what is known of the user; null = nothing, and that is not to be noticed. */
  #challengeAs(credential: Credential | null, lookedUp: boolean): void {
    const { plane, user } = this.#client;
    const method = this.#rule?.method ?? plane.settings.authType;
    this.#credential = credential;
    if (credential === null) plane.logClient(this.#client, `no such user: ${user}`);
    switch (method) {
      case "trust":
        if (credential === null) this.#refuse(refusals.trustFailed);
        else this.#proven();
        return;
      case "peer":
        this.#checkPeer(credential);
        return;
      case "cert": {
        const { stream: { tls } } = this.#client;
        const { identMaps } = plane.config;
        if (credential === null) this.#refuse(refusals.certFailed);
        else {this.#judgeName(
            certificateProblem(tls, identMaps, this.#map, user),
            refusals.certFailed,
          );}
        return;
      }
      case "plain":
      case "password":
      case "md5":
      case "scram-sha-256": {
        const { scramIterations } = plane.settings;
        const shown = credential?.provesBy(method)
          ? credential
          : plane.strangers.credential(user, scramIterations, method, lookedUp);
        this.#credential = shown;
        this.#askForPassword(method, shown);
        return;
      }
      default:
        this.#refuse(refusals.noMethod);
    }
  }

  #askForPassword(
    method: "plain" | "password" | "md5" | "scram-sha-256",
    credential: Credential,
  ): void {
    // A SCRAM secret can be proved by SCRAM alone.
    const isMd5 = method === "md5" && !credential.hasScram;
    if (isMd5) {
      const salt = new Uint8Array(randomBytes(4));
      this.#ask({ at: "md5", salt }, authenticationMd5(salt));
    } else if (method === "plain" || method === "password") {
      this.#ask({ at: "cleartext" }, authenticationCleartext());
    } else {
      this.#offerScram(credential);
    }
  }

  /** Who is at the other end of a unix socket. */
  get #peer(): PeerCredentials | null {
    if (!this.#unixSocket) return null;
    try {
      return peerCredentials(this.#client.stream.fd);
    } catch (error) {
      if (!(error instanceof SysError)) throw error;
      return null;
    }
  }

  /** The map of names that the rule names. */
  get #map(): string | null {
    return this.#rule?.map ?? null;
  }

  #judgeName(problem: string | null, refusal: Refusal): void {
    if (problem === null) return this.#proven();
    const client = this.#client;
    if (problem !== "") client.plane.control.log("error", `${clientLabel(client)} ${problem}`);
    this.#refuse(refusal);
  }

  #checkPeer(credential: Credential | null): void {
    const uid = this.#peer?.uid ?? null;
    if (uid === null || credential === null) {
      this.#refuse(refusals.peerFailed);
      return;
    }
    this.#later((done) => {
      this.#client.plane.control.userName(uid, (name) => {
        done(() => {
          const { plane, user } = this.#client;
          const problem = peerProblem(name, plane.config.identMaps, this.#map, user);
          this.#judgeName(problem, refusals.peerFailed);
        });
      });
    });
  }

  #ask(step: Step, message: Uint8Array): void {
    this.#step = step;
    this.#client.stream.sendBytes(message);
  }

  #offerScram(credential: Credential): void {
    const plane = this.#client.plane;
    const offer = ([first, ...others]: readonly ScramSecret[]) => {
      if (this.#step.at === "over") return;
      const { mockKey, settings: { scramIterations } } = plane;
      const known = first ?? mockScramSecret(mockKey, this.#client.user, scramIterations);
      const secrets: Secrets = [known, ...others];
      const binding = this.#client.stream.tls?.context.endPoint ?? null;
      const mechanisms = binding === null ? [scramSha256] : [scramSha256Plus, scramSha256];
      this.#ask({ at: "saslInitial", secrets, binding }, authenticationSasl(mechanisms));
    };
    this.#later((done) => {
      const { control, mockKey, settings } = plane;
      credential.scramSecrets(control, mockKey, settings.scramIterations, (secrets) => {
        done(() => offer(secrets));
      });
    });
  }

  #password(body: Uint8Array): void {
    const step = this.#step;
    const credential = this.#credential as Credential;
    switch (step.at) {
      case "cleartext":
        this.#later((done) => {
          const { control } = this.#client.plane;
          credential.provesPassword(withoutZero(body), control, (right) => {
            done(() => this.#judge(right));
          });
        });
        return;
      case "judged":
        this.#askJudge(step.judge, withoutZero(body));
        return;
      case "md5":
        this.#judge(credential.provesMd5(step.salt, withoutZero(body)));
        return;
      case "saslInitial": {
        const first = saslInitial(body);
        if (first === null) {
          this.#refuse({ code: "08P01", message: "malformed SASLInitialResponse message" });
          return;
        }
        const { secrets: [secret, ...others], binding: channelBinding } = step;
        const { mechanism } = first;
        const isPlus = mechanism === scramSha256Plus && channelBinding !== null;
        if (mechanism !== scramSha256 && !isPlus) {
          this.#refuse(refusals.badMechanism);
          return;
        }
        const exchange = new ScramServerExchange(secret, { mechanism, channelBinding, others });
        const result = exchange.first(first.data);
        if (!result.ok) {
          this.#refuse({ code: result.sqlstate, message: result.message });
          return;
        }
        this.#ask({ at: "saslFinal", exchange }, authenticationSaslContinue(result.reply));
        return;
      }
      case "saslFinal": {
        const result = step.exchange.final(body);
        if (!result.ok || credential.isMock) {
          const refusal = result.ok
            ? refusals.saslFailed
            : { code: result.sqlstate, message: result.message };
          if (refusal.code === refusals.saslFailed.code) {
            const { control } = this.#client.plane;
            const { message } = refusals.passwordFailed;
            control.log("error", `${clientLabel(this.#client)} ${message}`);
          }
          this.#refuse(refusal);
          return;
        }
        credential.onScramProof(result.secret, result.clientKey);
        this.#client.stream.sendBytes(authenticationSaslFinal(result.reply));
        this.#proven();
        return;
      }
    }
  }

  #askJudge({ refusal, proofOf, credentialOf }: Judge, password: Uint8Array): void {
    const client = this.#client;
    const { control } = client.plane;
    this.#later((done) => {
      const withdraw = control.checkPassword(proofOf(client, password), (verdict) => {
        this.#asked = null;
        done(() => {
          if (verdict === null) {
            this.#credential = credentialOf(client, password);
            this.#proven();
            return;
          }
          control.log("warning", `${clientLabel(client)} ${verdict}`);
          this.#refuse(refusal);
        });
      });
      this.#asked = { withdraw, late: refusals.loginTimeout };
    });
  }

  #judge(right: boolean): void {
    if (right) this.#proven();
    else this.#refuse(refusals.passwordFailed);
  }

  // --- what it asked for

  /** The client is who it says: only now may it learn what exists. */
  #proven(): void {
    const client = this.#client;
    const plane = client.plane;
    const startup = this.#startup as Startup;
    if (isConsole(client.database)) {
      this.#enterConsole();
      return;
    }
    const database = lookupDatabase(plane.config, client.database);
    if (database === null) {
      plane.logClient(client, `login failed: db=${client.database} user=${client.user}`);
      this.#refuse({ code: "3D000", message: `no such database: ${client.database}` });
      return;
    }
    if (plane.operator.isDisabled(client.database)) {
      this.#refuse({
        code: "57P03",
        message: `database "${client.database}" is disabled`,
        hint: "An operator has disabled it from the admin console; try again later",
      });
      return;
    }
    if (plane.settings.authType === "any" && database.user === null) {
      const hint = "auth_type=any needs a user in the entry of the database";
      this.#refuse({ code: "28000", message: "bouncer config error", hint });
      return;
    }
    if (startup.parameterRefusal !== null) {
      this.#refuse(startup.parameterRefusal);
      return;
    }
    const { replication } = startup;
    this.#enter(plane.gatesFor(database, client.user), () => {
      // While it waited for the limits' answer the configuration may have changed.
      const now = lookupDatabase(plane.config, client.database);
      if (now === null) this.#refuse(refusals.databaseRemoved);
      else if (replication === null) this.#join(now);
      else this.#replicate(now, replication);
    });
  }

  /** A server of its own, for as long as the client lives. */
  #replicate(database: DatabaseConfig, replication: Replication): void {
    const client = this.#client;
    const { plane } = client;
    const pool = plane.poolFor(database, client.user, this.#credential);
    const slots = plane.directSlots(database.name, pool.user);
    const parameters = plane.startups.forwarded((this.#startup as Startup).packet);
    client.tunnel = new Tunnel(client, pool, slots, replication, parameters);
    this.#wait();
    client.tunnel.start();
  }

  /** The tunnel's server has let the client in. */
  enterTunnel(greeting: Uint8Array): void {
    this.#finish(greeting);
  }

  #join(database: DatabaseConfig): void {
    const client = this.#client;
    const pool = client.plane.poolFor(database, client.user, this.#credential);
    client.join(pool, poolModeFor(client.plane.config, database, client.user));
    if (pool.welcome.reported !== null && this.isJudged()) {
      this.greet();
      return;
    }
    if (client.mode !== "session" && endsIdleSessions(client.parameters)) {
      this.#refuse(refusals.idleSessionTimeout);
      return;
    }
    // A server is waited for as for a query; when it comes, or the first has said what it is like, the
    // pool goes on here.
    this.#wait();
    const server = pool.acquire(client);
    if (server !== null) client.onServer(server);
    else client.plane.reactor.after(trialMs, () => this.#skipTrial(pool));
  }

  /** All servers are busy for long: its first query will try what it asks for. */
  #skipTrial(pool: Pool): void {
    const client = this.#client;
    // What only a server reports can't be told without one.
    const needsServer = pool.welcome.reported === null || client.parameters.extras.length > 0;
    if (!client.queued || client.login !== this || needsServer) return;
    pool.dequeue(client);
    client.isUntried = true;
    this.greet();
  }

  /**
   * Takes what the client asks for as servers of its pool spell it. False if none of them has judged it
   * yet: then a server is to try it before the client is told that it is logged in.
   */
  isJudged(): boolean {
    const client = this.#client;
    const pool = client.pool as Pool;
    const asked = client.plane.tracker.settable(client.parameters, pool.welcome.defaults);
    const spelled = pool.welcome.accepted(asked);
    client.parameters = spelled ?? asked;
    return spelled !== null;
  }

  #enterConsole(): void {
    const client = this.#client;
    const { adminUsers, statsUsers, authType } = client.plane.settings;
    const admin = this.#isOwner || authType === "any" || adminUsers.includes(client.user);
    if (!admin && !statsUsers.includes(client.user)) {
      this.#refuse(refusals.notConsoleUser);
      return;
    }
    client.console = new ConsoleSession(client, admin);
    this.#finish(concatBytes(authenticationOk(), consoleGreeting(client)));
  }

  /** Sends the greeting; the login is over. */
  greet(): void {
    const client = this.#client;
    const pool = client.pool as Pool;
    client.plane.giveKey(client);
    client.initial = client.parameters;
    client.defaults = pool.welcome.defaults;
    this.#finish(pool.welcome.greetingFor(client));
    pool.counters[Counter.logins]!++;
  }

  #finish(greeting: Uint8Array): void {
    const client = this.#client;
    const waited = this.paused;
    this.#step = { at: "over" };
    client.begin();
    client.plane.loggingIn.delete(client);
    const { outlet } = client.plane;
    outlet.begin(client.stream);
    outlet.put(greeting);
    outlet.flush();
    if (waited) client.resumeInput();
  }

  // --- waiting

  #wait(): void {
    this.#step = { at: "waiting" };
    this.#client.stream.pause(true);
  }

  /** Runs something that may call back later; input is kept until then. */
  #later(start: (done: (then: () => void) => void) => void): void {
    let now = true;
    let finished = false;
    start((then) => {
      finished = true;
      if (this.#client.closed) return;
      then();
      if (!now && !this.#client.closed && this.#client.login !== null && !this.paused) {
        this.#client.resumeInput();
      }
    });
    now = false;
    if (!finished) this.#wait();
  }

  #refuse(refusal: Refusal): void {
    this.#client.fail(refusal);
  }
}

/** PostgreSQL would end servers that wait for work, and the client would not notice. */
function endsIdleSessions(parameters: ParameterSet): boolean {
  return parameters.extras.some(([name, value]) =>
    name.toLowerCase() === "idle_session_timeout" && parseFloat(value) !== 0
  );
}
