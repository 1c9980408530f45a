// One client: after its login (client_login.ts) the relay of its messages to the server it is linked
// to, and everything that is decided where no transaction is open.
// Invariants: it is linked to at most one server; while it waits for one it is paused and its
// unprocessed input is kept, bounded by one receive; it is closed exactly once.

import type { PoolMode } from "../../../shared/config/mod.ts";
import { Errno, type SocketAddress, Stream, type StreamOwner } from "../../../shared/sys/mod.ts";
import { Frontend, frontendFrameProblem, readInt32, SqlFlag } from "../../../shared/wire/mod.ts";
import { IN_AT, IN_SIZE, TAIL_MAX } from "./arena.ts";
import { type ClientGate, noGates } from "./client_gate.ts";
import { ClientLogin } from "./client_login.ts";
import type { ConsoleSession } from "./console_session.ts";
import { Gather } from "./gather.ts";
import type { Inbox } from "./inbox.ts";
import type { Channel } from "./listener.ts";
import { goneText } from "./log_lines.ts";
import type { ParameterSet } from "./parameters.ts";
import { addressOf } from "./peer.ts";
import type { Place } from "./place.ts";
import type { Plane } from "./plane.ts";
import type { Pool, Waiter } from "./pool.ts";
import { clientGone, fatal, frameRefusal, type Refusal, refusals } from "./refusals.ts";
import { isJudged, type RefusedBegin } from "./refused_begin.ts";
import { parseFlags, unnamed, zeroAt } from "./prepared.ts";
import { Request } from "./requests.ts";
import { anything, functionFlags, ofListeners, textFlags } from "./residue.ts";
import type { ServerConnection } from "./server.ts";
import type { StatementNames } from "./statements.ts";
import { Counter } from "./stats.ts";
import { type FeatureCounts, Verdict } from "./texts.ts";
import type { Tunnel } from "./tunnel.ts";
import { isAnswered, leaveQueue, refuseRequest } from "./unlinked.ts";

/** A named Parse is held whole; larger ones are refused. */
const parseMax = 16 * 1024 * 1024;
/** Requests outstanding on the server beyond which the client is not read. */
const requestsMax = 4096;
/** What a server may send to a client that has said good-bye before it is stopped. */
const unwantedMax = 256 * 1024;
/** How long a closed client gets to take its last message. */
const lingerMs = 2000;

const noSecret = new Uint8Array(0);

export class ClientSession implements StreamOwner, Waiter {
  readonly plane: Plane;
  readonly stream: Stream;
  /** The peer's. Asked for at once, since the kernel forgets it when the peer resets the connection. */
  readonly address: SocketAddress;
  readonly id: number;
  readonly connectedAt: number;
  /** Set until the login is over. */
  login: ClientLogin | null;
  console: ConsoleSession | null = null;
  /** Set for a replication client, which has no pool. */
  tunnel: Tunnel | null = null;
  pool: Pool | null = null;
  server: ServerConnection | null = null;
  /** When it gives its server back. */
  mode: PoolMode = "transaction";
  /** It keeps its server between transactions. */
  keeps = false;
  /** It keeps it although its mode would not, for what it has there. */
  pinned = false;
  /** Whether its prepared statements have names of the pooler's on the servers. */
  tracksStatements = true;
  /** The flags of texts that anything is done about. */
  heeded = ~(SqlFlag.begins | ofListeners);
  closed = false;
  /** The limits on clients that it is counted in. */
  gates: readonly ClientGate[] = noGates;
  /** Its place in the resource groups; set once it was in one. */
  place: Place | null = null;
  user = "";
  database = "";
  parameters: ParameterSet;
  /** No server has taken what it asked for at login yet. */
  isUntried = false;
  /** What it asked for at login: what RESET leads back to. */
  initial: ParameterSet;
  /** The servers' own values that it was told. */
  defaults: readonly (string | null)[];
  names: StatementNames | null = null;
  /** Set once it listens, where LISTEN is not its server's affair. */
  inbox: Inbox<Channel> | null = null;
  /** What it used that pooling does not keep; null = nothing. */
  features: FeatureCounts | null = null;
  processId = 0;
  /** The minor version of protocol 3 that it speaks. */
  minor = 0;
  /** The secret of its cancel key: 4 bytes, 32 from protocol 3.2 on. */
  secret: Uint8Array = noSecret;
  /** When its last transaction began. */
  requestAt = 0;
  /** When it had all that it has asked for. */
  idleSince = 0;
  /** Without a server its messages are skipped up to a Sync, as a server does after an error. */
  skipsToSync = false;
  /** What it sends is of a transaction whose BEGIN was refused. */
  behind: RefusedBegin | null = null;

  // The pool's queue, or that of its group.
  queued = false;
  waitingSince = 0;
  previousWaiter: Waiter | null = null;
  nextWaiter: Waiter | null = null;
  /** Linked; its input waits until the server has its parameters. */
  awaitsSync = false;

  /** Input that was not processed: it waits for a server. */
  #input: Uint8Array | null = null;
  /** The beginning of an unfinished message. */
  #tail: Uint8Array | null = null;
  /** A large Parse being collected. */
  #gather: Gather | null = null;
  #bodyLeft = 0;
  #bodyDrop = false;
  /** The SET that goes in front of the next batch. */
  #ownSql = "";
  /** Terminate was read while a request is still running. */
  #leaving = false;
  #unwanted = 0;
  #congested = false;
  /** It is read again when it has taken what is sent to it. */
  #unread = false;
  /** Others wait for a server: it is read again when all it has sent is answered. */
  #yields = false;
  /** The server that has its latest unnamed statement; another may have an older one. */
  unnamedOn: ServerConnection | null = null;
  /** What it has sent waits for the answers to what it had sent before. */
  held = false;

  constructor(plane: Plane, fd: number, unixSocket: boolean) {
    this.plane = plane;
    this.id = plane.nextId();
    this.connectedAt = plane.reactor.now;
    this.parameters = plane.tracker.none;
    this.initial = this.parameters;
    this.defaults = this.parameters.values;
    this.login = new ClientLogin(this, unixSocket);
    this.stream = new Stream(plane.reactor, fd, this);
    this.address = addressOf(fd);
  }

  /** Where the server's bytes go: nowhere once the client has said good-bye. */
  get output(): Stream | null {
    return this.#leaving ? null : this.stream;
  }

  /** Whether no message to the server is half-sent. */
  get sentWhole(): boolean {
    return !this.held && !this.isSending;
  }

  get isSending(): boolean {
    return this.#gather !== null || (this.#bodyLeft > 0 && !this.#bodyDrop);
  }

  /** Bytes of input that are kept here. */
  get buffered(): number {
    return (this.#input?.length ?? 0) + (this.#tail?.length ?? 0) + (this.#gather?.filled ?? 0);
  }

  /** It has what it has asked for. */
  rest(): void {
    this.idleSince = this.plane.reactor.now;
  }

  // --- events of the stream

  onConnected(_errno: number): void {}

  onSecured(_errno: number, problem: string): void {
    this.login?.onSecured(problem);
  }

  onReadable(): void {
    // Who does not take its answers is asked for no more questions. The console sees to it itself.
    if (this.stream.pending > 0 && this.console === null) {
      this.#unread = true;
      this.stream.pause(true);
      return;
    }
    const plane = this.plane;
    if (this.login !== null && !plane.entrance.admits(this.login)) return;
    const arena = plane.arena;
    const received = this.stream.recv(arena.memory, IN_AT, IN_SIZE);
    if (received <= 0) {
      if (received !== -Errno.EAGAIN) this.#onEnd(received);
      return;
    }
    let at = IN_AT;
    const end = IN_AT + received;
    const tail = this.#tail;
    if (tail !== null) {
      at -= tail.length;
      arena.bytes.set(tail, at);
      this.#tail = null;
    }
    const pool = this.pool;
    if (pool === null || this.login !== null) {
      this.#consumeCold(at, end);
      return;
    }
    pool.counters[Counter.bytesReceived]! += received;
    if (this.#gather !== null) {
      at = this.#gatherMore(at, end);
      if (at === end) return;
    }
    this.#relay(at, end);
  }

  onDrained(): void {
    this.rest();
    this.console?.onDrained();
    this.tunnel?.onClientDrained();
    this.server?.stream.resume();
    if (this.inbox !== null) this.plane.notifier.flush(this);
    if (!this.#unread || this.awaitsSync) return;
    this.#unread = false;
    this.stream.resume();
  }

  /** The server took what was pending for it: the client is read again. */
  onServerDrained(): void {
    if (this.queued || this.awaitsSync || this.#congested || this.#leaving) return;
    if (!this.held && !this.#yields) this.stream.resume();
  }

  /** Few or no requests are outstanding any more. */
  onRequestsAnswered(outstanding: number): void {
    if (this.#leaving && outstanding === 0) this.close("client close request");
    const server = this.server;
    if (this.held && (server === null || server.requests.cycles === 0 || server.copyIn)) {
      this.held = false;
      this.#congested = false;
      this.resumeLinked();
      return;
    }
    if (this.#yields) {
      if (outstanding > 0 && !this.server?.copyIn) return;
      this.#yields = false;
    } else if (!this.#congested) return;
    this.#congested = false;
    if (this.server === null || this.server.stream.pending === 0) this.onServerDrained();
  }

  onHangup(): void {
    if (!this.#leaving) this.close(clientGone);
  }

  #onEnd(result: number): void {
    if (this.#leaving) {
      this.stream.pause(false);
      return;
    }
    this.close(goneText(result, this.stream));
  }

  // --- login and console: whole messages, not hot

  #consumeCold(at: number, end: number): void {
    if (this.login === null && this.tunnel !== null) return this.tunnel.fromClient(at, end);
    const bytes = this.plane.arena.bytes;
    const loggingIn = this.login !== null;
    const used = this.login !== null
      ? this.login.consume(bytes, at, end)
      : (this.console as ConsoleSession).consume(bytes, at, end);
    if (this.closed) return;
    if (this.login !== null && this.login.paused) {
      this.#input = bytes.slice(used, end);
      return;
    }
    if (used === end) return;
    if (this.login === null && this.pool !== null) this.#relay(used, end);
    // A first command may have come together with the end of the login.
    else if (this.login === null && loggingIn) this.#consumeCold(used, end);
    else if (end - used <= TAIL_MAX) this.#tail = bytes.slice(used, end);
    else this.fail(refusals.consoleCommandTooLong);
  }

  /** What it has waited for is there; its input is looked at again. */
  resumeInput(): void {
    if (this.closed) return;
    const input = this.#input;
    this.#input = null;
    this.stream.resume();
    if (input === null || input.length === 0) return;
    this.plane.arena.bytes.set(input, 0);
    if (this.login !== null || this.pool === null) this.#consumeCold(0, input.length);
    else this.#relay(0, input.length);
  }

  /** It is a client of this pool from now on. */
  join(pool: Pool, mode: PoolMode): void {
    this.pool = pool;
    this.mode = mode;
    this.tracksStatements = this.plane.tracksStatements && mode !== "session";
    if (mode === "statement") this.heeded |= SqlFlag.begins;
    pool.clients++;
  }

  /** Its login is over: a server that it gets is for what it sends. */
  begin(): void {
    this.login = null;
    this.plane.loginGarbage.onLogin();
    this.rest();
    this.keeps = this.mode === "session";
  }

  /** Whether it has something on its server that would be lost, or hurt others, without it. */
  pin(pinned: boolean): void {
    if (this.closed) return;
    this.pinned = pinned;
    this.keeps = pinned || this.mode === "session";
  }

  // --- linking

  /** A server for this waiting client. */
  onServer(server: ServerConnection): void {
    if (!this.#link(server)) return;
    // What it asked for is what the server had already.
    if (this.login !== null) server.release();
    else this.resumeLinked();
  }

  /** Links; true if the client can go on at once. */
  #link(server: ServerConnection): boolean {
    this.requestAt = this.plane.reactor.now;
    const extras = this.plane.tracker.setsExtras(this.parameters, server.session);
    const sql = server.link(this);
    if (sql === "") return true;
    if (this.login === null && !extras && !this.isUntried) {
      this.#ownSql = sql;
      return true;
    }
    // What the server may refuse goes first and alone: nothing of the client's may run without it.
    this.holdInput();
    const result = server.stream.sendBytes(server.parameterQuery(sql));
    if (result < 0) server.onSendFailed(-result);
    return false;
  }

  /** What it sends, or has waiting, is not looked at until `resumeLinked`. */
  holdInput(): void {
    this.held = this.#congested = false;
    this.awaitsSync = true;
    this.stream.pause(true);
  }

  /** Its ReadyForQuery was held back, and it has it now. */
  carryOn(): void {
    const server = this.server;
    if (server === null) return this.resumeLinked();
    this.awaitsSync = false;
    this.held = this.#input !== null;
    this.#unread = false;
    if (!this.held) this.stream.resume();
    server.goOn(this);
  }

  resumeLinked(): void {
    this.awaitsSync = false;
    this.#unread = false;
    this.resumeInput();
  }

  onUnlinked(): void {
    this.#ownSql = "";
    this.rest();
    if (this.login !== null && !this.closed) return this.login.greet();
    if (this.#leaving) return this.close("client close request");
    this.#congested = false;
    this.#yields = false;
    if (this.awaitsSync) return;
    this.stream.resume();
    if (this.inbox !== null) this.plane.notifier.flush(this);
  }

  // --- the relay, client to server

  #relay(start: number, end: number): void {
    const plane = this.plane;
    const outlet = plane.outlet;
    const bytes = plane.arena.bytes;
    const pool = this.pool as Pool;
    let server = this.server;
    outlet.begin(server === null ? null : server.stream);
    if (server !== null && this.#ownSql !== "") this.#putOwn(server);
    let at = start;
    let run = start;
    if (this.#bodyLeft > 0) {
      const part = Math.min(this.#bodyLeft, end - at);
      this.#bodyLeft -= part;
      at += part;
      if (this.#bodyDrop) run = at;
    }
    while (end - at >= 5) {
      const type = bytes[at] as number;
      const length = readInt32(bytes, at + 1);
      if (
        length > plane.settings.maxPacketSize || frontendFrameProblem(type, length) !== null
      ) {
        return this.#refuse(frameRefusal(type, length, plane.settings.maxPacketSize), run, at);
      }
      const next = at + 1 + length;
      let keep = true;
      if (type === Frontend.terminate) {
        outlet.pass(run, at);
        outlet.flush();
        this.#onTerminate();
        return;
      }
      if (server === null) {
        if (isAnswered(this, type)) {
          keep = false;
        } else if (next > end && length < TAIL_MAX) {
          // Small messages come whole before a server is taken for them.
          break;
        } else if (isJudged(this, pool) && plane.overload.refuses(this, at, next, end)) {
          keep = false;
        } else {
          server = plane.admission.acquire(this, at, next < end ? next : end);
          if (server === null || !this.#link(server)) {
            if (!this.closed) {
              this.#input = bytes.slice(at, end);
              this.stream.pause(true);
            }
            return;
          }
          outlet.begin(server.stream);
          if (this.#ownSql !== "") this.#putOwn(server);
          run = at;
        }
      }
      if (server !== null) {
        const requests = server.requests;
        if (requests.count === 0) {
          if (
            server.begins(plane.reactor.now) && isJudged(this, pool) &&
            plane.overload.refusesKept(this, server, at, next, end)
          ) keep = false;
        } else if (requests.cycles > 0 && server.residue.defers(type) && !server.copyIn) {
          return this.#hold(server, run, at, end);
        }
        if (!keep || (server.skipping && type !== Frontend.sync)) {
          keep = false;
        } else {
          switch (type) {
            case Frontend.query: {
              if (plane.settings.disablePqexec) return this.#refuse(refusals.noPqexec, run, at);
              if (next > end && length < TAIL_MAX) return this.#wait(server, run, at, end);
              const flags = next > end
                ? anything
                : textFlags(bytes, at + 5, next - 1, server.session.isPlain);
              if ((flags & this.heeded) !== 0) {
                const verdict = plane.texts.onQuery(this, server, flags, at, next, run);
                if (verdict === Verdict.wait) return this.#hold(server, run, at, end);
                if (verdict === Verdict.replaced) {
                  run = at;
                  keep = false;
                  break;
                }
              }
              requests.push(Request.query);
              break;
            }
            case Frontend.sync:
              if (!server.copyIn) {
                requests.push(Request.sync);
                server.journal.group++;
              }
              server.skipping = false;
              break;
            case Frontend.execute: {
              let kind: number = Request.execute;
              if (server.drops.any) {
                if (next > end && length < TAIL_MAX) return this.#wait(server, run, at, end);
                kind = plane.prepared.execute(server, at, next < end ? next : end, run);
                if (kind === Request.none) return this.#hold(server, run, at, end);
                run = at;
              }
              requests.push(kind);
              server.synced = false;
              break;
            }
            case Frontend.bind: {
              const limit = next < end ? next : end;
              const portalEnd = zeroAt(bytes, at + 5, limit);
              const nameEnd = zeroAt(bytes, portalEnd + 1, limit);
              // Whether they come in one piece or in many.
              if (nameEnd - at >= TAIL_MAX) return this.#refuse(refusals.namesTooLong, run, at);
              if (nameEnd >= limit) {
                if (next > end) return this.#wait(server, run, at, end);
                return this.#refuse(refusals.brokenBind, run, at);
              }
              if (
                requests.cycles > 0 && plane.prepared.isUnsure(this, server, portalEnd + 1, nameEnd)
              ) {
                return this.#hold(server, run, at, end);
              }
              server.synced = false;
              pool.counters[Counter.binds]!++;
              const missing = plane.prepared.missing(this, server, bytes, portalEnd + 1, nameEnd);
              if (missing !== null) {
                outlet.pass(run, at);
                run = at;
                plane.prepared.putFailing(server, missing);
                keep = false;
                break;
              }
              const isUnnamed = nameEnd === portalEnd + 1;
              const from = portalEnd + 1;
              const entry = isUnnamed ? null : this.names?.get(bytes, from, nameEnd) ?? null;
              if (entry !== null || (isUnnamed && server.unnamedFlags !== 0)) {
                outlet.pass(run, at);
                run = at;
                const name = plane.prepared.bound(this, server, entry, at + 5, portalEnd);
                if (name === null) {
                  keep = false;
                  break;
                }
                if (name !== unnamed) {
                  outlet.putHeader(type, length + name.length - (nameEnd - portalEnd));
                  outlet.pass(at + 5, portalEnd + 1);
                  outlet.put(name);
                  outlet.pass(nameEnd + 1, limit);
                  run = limit;
                }
              } else if (server.drops.any) server.drops.bind(bytes, at + 5, portalEnd, null);
              requests.push(Request.bind);
              break;
            }
            case Frontend.parse: {
              if (next > end && (length < TAIL_MAX || end - at < 6)) {
                return this.#wait(server, run, at, end);
              }
              if (bytes[at + 5] === 0 || !this.tracksStatements) {
                const flags = next > end
                  ? anything
                  : parseFlags(bytes, at, next, server.session.isPlain);
                const isHeeded = (flags & this.heeded) !== 0;
                server.synced = false;
                pool.counters[Counter.clientParses]!++;
                const verdict = isHeeded
                  ? plane.texts.onParse(this, server, flags, at, next, run)
                  : Verdict.pass;
                if (verdict === Verdict.wait) return this.#hold(server, run, at, end);
                if (verdict === Verdict.replaced) {
                  run = at;
                  keep = false;
                  break;
                }
                if (bytes[at + 5] === 0) {
                  server.unnamedOwner = this;
                  server.unnamedFlags = isHeeded ? flags : 0;
                  this.unnamedOn = server;
                } else if (isHeeded) {
                  plane.texts.expect(this, server, flags, server.parsedNames);
                }
                requests.push(Request.parse);
                break;
              }
              if (next > end) {
                if (length > parseMax) return this.#refuse(refusals.statementTooLarge, run, at);
                // Its text is not known yet, and when it is there is no stopping.
                if (requests.cycles > 0 && server.isUnsure) {
                  return this.#hold(server, run, at, end);
                }
                this.#gather = new Gather(1 + length);
                this.#gather.add(bytes, at, end);
                outlet.pass(run, at);
                return this.#wait(server, end, end, end);
              }
              if (requests.cycles > 0 && server.isUnsure) {
                const nameEnd = zeroAt(bytes, at + 5, next);
                if (plane.prepared.isUnsure(this, server, at + 5, nameEnd, next)) {
                  return this.#hold(server, run, at, end);
                }
              }
              outlet.pass(run, at);
              run = at;
              if (!plane.prepared.parseNamed(this, server, bytes, at, next)) {
                return this.#refuse(refusals.brokenParse, run, at);
              }
              keep = false;
              break;
            }
            case Frontend.describe:
            case Frontend.close: {
              if (next > end) return this.#wait(server, run, at, end);
              const nameEnd = zeroAt(bytes, at + 6, next);
              if (nameEnd !== next - 1) {
                const broken = type === Frontend.close
                  ? refusals.brokenClose
                  : refusals.brokenDescribe;
                return this.#refuse(broken, run, at);
              }
              if (
                requests.cycles > 0 && bytes[at + 5] === 0x53 &&
                plane.prepared.isUnsure(this, server, at + 6, next - 1)
              ) {
                return this.#hold(server, run, at, end);
              }
              server.synced = false;
              if (bytes[at + 5] === 0x53) {
                outlet.pass(run, at);
                run = at;
                keep = type === Frontend.close
                  ? plane.prepared.closeNamed(this, server, bytes, at, next)
                  : plane.prepared.describeNamed(this, server, bytes, at, next);
                break;
              }
              requests.push(type === Frontend.close ? Request.close : Request.describe);
              break;
            }
            case Frontend.functionCall: {
              if (next > end && length < TAIL_MAX) return this.#wait(server, run, at, end);
              const flags = functionFlags(readInt32(bytes, at + 5));
              if (flags !== 0) plane.texts.expect(this, server, flags);
              requests.push(Request.functionCall);
              break;
            }
            case Frontend.copyDone:
            case Frontend.copyFail:
              // Before the server has asked for data it is unknown whether this ends a copy.
              if (server.copyIn) server.copyIn = false;
              else requests.push(Request.copyEnd);
              break;
            case Frontend.copyData:
            case Frontend.flush:
              break;
            default:
              return this.#refuse(refusals.unknownPacket, run, at);
          }
        }
      }
      if (!keep) {
        outlet.pass(run, at);
        run = next < end ? next : end;
      }
      if (next > end) {
        this.#bodyLeft = next - end;
        this.#bodyDrop = !keep;
        at = end;
        break;
      }
      at = next;
    }
    this.#wait(server, run, at, end);
  }

  /** Sends what was relayed and keeps the unfinished rest [at, end). */
  #wait(server: ServerConnection | null, run: number, at: number, end: number): void {
    const plane = this.plane;
    plane.outlet.pass(run, at);
    if (at < end) this.#tail = plane.arena.bytes.slice(at, end);
    const pending = plane.outlet.flush();
    if (server === null) return;
    if (pending < 0) return server.onSendFailed(-pending);
    if (pending > 0) this.stream.pause(false);
    const count = server.requests.count;
    if (count > 0) plane.prepared.answerDue(server);
    if (count > requestsMax) {
      this.#congested = true;
      this.stream.pause(false);
    } else if (
      // A client that always has a request outstanding would never be parted from its server.
      count > 0 && ((this.pool as Pool).waiting > 0 || server.place?.isWanted) && !this.keeps &&
      server.requests.endsCycle && !server.copyIn && this.sentWhole
    ) {
      this.#yields = true;
      this.stream.pause(true);
    }
    if (server.releasable) server.release();
  }

  /** Sends what was relayed and keeps the rest until the requests before it are answered. */
  #hold(server: ServerConnection, run: number, at: number, end: number): void {
    this.#input = this.plane.arena.bytes.slice(at, end);
    this.held = true;
    this.#wait(server, run, at, at);
    if (this.held && !this.closed) this.stream.pause(true);
  }

  #putOwn(server: ServerConnection): void {
    this.plane.outlet.put(server.parameterQuery(this.#ownSql));
    this.#ownSql = "";
  }

  /** More of a large Parse; returns where other bytes begin. */
  #gatherMore(at: number, end: number): number {
    const plane = this.plane;
    const gather = this.#gather as Gather;
    const used = gather.add(plane.arena.bytes, at, end);
    const server = this.server;
    if (!gather.complete || server === null) return used;
    this.#gather = null;
    plane.outlet.begin(server.stream);
    if (server.skipping) plane.outlet.flush();
    else if (!plane.prepared.parseNamed(this, server, gather.bytes, 0, gather.bytes.length)) {
      this.#refuse(refusals.brokenParse, 0, 0);
      return end;
    }
    const rest = used < end ? plane.arena.bytes.slice(used, end) : null;
    this.#wait(server, 0, 0, 0);
    if (rest === null || this.closed) return end;
    plane.arena.bytes.set(rest, used);
    return used;
  }

  // --- endings

  /** Stops relaying at a bad message: what came before it is still sent. */
  #refuse(refusal: Refusal, run: number, at: number): void {
    this.plane.outlet.pass(run, at);
    this.plane.outlet.flush();
    this.fail(refusal);
  }

  /** It says good-bye. What it has asked for is still done, as PostgreSQL would, or can only be rolled back. */
  #onTerminate(): void {
    const server = this.server;
    const ends = server !== null && server.requests.endsCycle && !server.copyIn && this.sentWhole;
    if (!ends || server.upkeep.isDoomed) {
      this.close("client close request");
      return;
    }
    this.#leaving = true;
    this.stream.pause(false);
    if (server.stream.paused) server.stream.resume();
  }

  /** The server has sent something, or asks for data, after the client's good-bye. */
  onUnwanted(bytes: number, copyIn: boolean): void {
    this.#unwanted += bytes;
    // PostgreSQL stops when it waits for data in vain, and when its answer finds no reader.
    if (copyIn || this.#unwanted > unwantedMax) this.close("client close request");
  }

  /** The request that waits is answered with an error. */
  refuseWaiting(refusal: Refusal): void {
    const input = this.#input;
    if (input === null) return;
    const length = refuseRequest(this, input, refusal);
    const used = Math.min(length, input.length);
    this.#bodyLeft = length - used;
    this.#bodyDrop = true;
    this.#input = input.subarray(used);
    this.plane.notifier.flush(this);
    this.resumeInput();
  }

  /** Ends the connection with an error message. */
  fail(refusal: Refusal): void {
    if (this.closed) return;
    // Nobody who sends a cancel request is ever answered.
    if (this.plane.cancels.requesters.has(this)) return this.close(refusal.message);
    const isMute = this.#leaving || (this.tunnel ?? this.server)?.isMidMessage;
    if (!isMute) this.stream.sendBytes(fatal(refusal));
    const logged = refusal.logged ?? refusal.message;
    this.closeAfterFlush(logged);
    this.plane.logRefusal(this, logged);
  }

  closeAfterFlush(reason: string): void {
    this.#end(reason, true);
  }

  close(reason: string): void {
    this.#end(reason, false);
  }

  #end(reason: string, flush: boolean): void {
    if (this.closed) return;
    this.closed = true;
    this.keeps = false;
    this.held = false;
    const plane = this.plane;
    plane.logClientClosing(this, reason);
    leaveQueue(this);
    this.names?.clear();
    this.#input = null;
    this.#tail = null;
    this.#gather = null;
    this.login?.abandon();
    this.console?.onClosed();
    this.tunnel?.onClientGone(reason);
    plane.onClientClosed(this);
    if (flush) this.stream.closeWhenDrained(lingerMs);
    else this.stream.close();
    // Last, since it may hand the server to the next client.
    const server = this.server;
    if (server === null) return;
    if (server.releasable) server.release();
    else server.abandon(`client disconnected: ${reason}`);
  }
}
