// One connection to PostgreSQL that is logged in, and the relay of its messages to the linked client.
// Logging in is server_login.ts, what is done between two clients upkeep.ts; which client gets it is the
// pool's decision.
// Invariants: a server is linked to at most one client; it goes back to its owner only when nothing
// is owed (ReadyForQuery `I`, no request outstanding, no half-sent message, no cancel on its way) and
// nothing of its last client's is left in its session.

import type { Group } from "../../../shared/groups/mod.ts";
import { Errno, errnoText, type Stream } from "../../../shared/sys/mod.ts";
import {
  Backend,
  backendFrameProblem,
  type ParsedError,
  parseErrorFields,
  queryMessage,
  readInt32,
  terminateMessage,
} from "../../../shared/wire/mod.ts";
import { IN_AT, IN_SIZE, TAIL_MAX } from "./arena.ts";
import type { ClientSession } from "./client.ts";
import { type DialOwner, takeUp } from "./dial.ts";
import { Drops } from "./drops.ts";
import { type Failure, Journal } from "./journal.ts";
import { failureOf } from "./login_retry.ts";
import type { Place } from "./place.ts";
import type { Plane } from "./plane.ts";
import type { Pool } from "./pool.ts";
import type { DeallocateTags } from "./prepared.ts";
import { error, type Refusal, refusals } from "./refusals.ts";
import { Request, Requests } from "./requests.ts";
import { Residue } from "./residue.ts";
import { Route, type RouteEnd } from "./route.ts";
import { ServerLogin, takeKey } from "./server_login.ts";
import type { OwnQuery, ServerConsumer, ServerOwner } from "./server_owner.ts";
import { isStatus, moved, ServerState, statusIdle } from "./server_state.ts";
import { SessionSettings } from "./session_settings.ts";
import { PreparedOnServer } from "./statements.ts";
import { Counter } from "./stats.ts";
import { onExecuted, onTag } from "./tag_effects.ts";
import { Tag, tagOf } from "./tags.ts";
import { noNames, type TextNames } from "./text_names.ts";
import { Upkeep } from "./upkeep.ts";

/** A client that was stopped for its many outstanding requests is read again below this. */
const resumeBelow = 1024;

const terminate = terminateMessage();
const closedByServer = "server closed the connection";

export class ServerConnection implements DialOwner {
  readonly plane: Plane;
  readonly pool: Pool;
  owner: ServerOwner;
  stream!: Stream;
  /** Set where what it sends is not relayed. */
  consumer: ServerConsumer | null = null;
  state: ServerState = ServerState.login;
  /** Set while logging in. */
  login: ServerLogin | null;
  client: ClientSession | null = null;
  /** What a resource group has let in, and runs here. */
  place: Place | null = null;
  /** The group of what it was given for last. */
  group: Group | null = null;
  readonly requests = new Requests();
  readonly prepared: PreparedOnServer;
  readonly journal: Journal;
  readonly residue = new Residue();
  readonly session = new SessionSettings(this);
  readonly upkeep = new Upkeep(this);
  /** The client whose unnamed statement this server holds. */
  unnamedOwner: ClientSession | null = null;
  /** What its text may do, see scanSql. */
  unnamedFlags = 0;
  /** The names in the last text with flags that it was to parse as it is. */
  parsedNames: TextNames = noNames;
  /** Transaction status byte of the last ReadyForQuery. */
  status = statusIdle;
  /** False while an extended query cycle waits for its Sync. */
  synced = true;
  /** The server skips all messages up to a Sync that was not sent yet. */
  skipping = false;
  /** The server reads copy data. */
  copyIn = false;
  /** A cancel was sent to it meanwhile. */
  copyCancelled = false;
  /** A query that is not answered yet may drop the prepared statements. */
  mayDiscard = false;
  readonly drops = new Drops();
  /** Of a query that runs in which DEALLOCATEs are played. */
  deallocating: DeallocateTags | null = null;

  processId = 0;
  secret: Uint8Array | null = null;
  /** As the file names it, and the address it has come to. */
  host = "";
  address = "";
  port = 0;
  /** Cancel connections of this server that are on their way. */
  cancels = 0;
  readonly id: number;
  readonly connectedAt: number;
  linkedAt = 0;
  idleSince = 0;
  /** When its last request, and its last transaction, began or ended. */
  requestAt = 0;
  transactionAt = 0;
  /** Requests of clients that it has answered. */
  answered = 0;
  /** Close it at the next release. */
  closeNeeded = false;

  #route: Route | null = null;
  #bodyLeft = 0;
  #bodyDrop = false;
  #tail: Uint8Array | null = null;
  /** The query of the pooler's that is outstanding. */
  #own: OwnQuery | null = null;
  #ownFailure: ParsedError | null = null;
  #lastWords: ParsedError | null = null;

  constructor(plane: Plane, pool: Pool, owner: ServerOwner, id: number) {
    this.plane = plane;
    this.pool = pool;
    this.owner = owner;
    this.id = id;
    this.connectedAt = plane.reactor.now;
    this.prepared = new PreparedOnServer(pool.statements);
    this.journal = new Journal(this.prepared, pool.statements);
    this.login = new ServerLogin(this);
  }

  move(to: ServerState): void {
    this.state = moved(this.state, to);
  }

  /** Connects and logs in. The slot of its owner's lease is taken here. */
  connect(host: string, port: number): void {
    const { plane, owner } = this;
    owner.lease.held++;
    owner.lease.touch();
    plane.openServers++;
    this.host = this.address = host;
    this.port = port;
    this.#route = new Route(plane, host, port, (end) => this.#onRoute(end));
    this.#route.open();
  }

  /** Once more and in the same slot: the other end is closed. */
  reconnect(): void {
    this.stream.close();
    this.#tail = null;
    this.#route?.again(this.address);
  }

  #onRoute({ fd, address, reason, detail }: RouteEnd): void {
    this.address = address;
    if (fd < 0) this.login?.fail("08001", reason, detail);
    else this.stream = takeUp(this.plane, this, this, fd);
  }

  // --- events of the stream

  onConnected(errno: number): void {
    this.login?.onConnected(errno);
  }

  onRefused(failure: Refusal): void {
    this.login?.failWith(failure);
  }

  onReadable(): void {
    const plane = this.plane;
    const arena = plane.arena;
    const received = this.stream.recv(arena.memory, IN_AT, IN_SIZE);
    if (received <= 0) {
      if (received !== -Errno.EAGAIN) {
        this.onBroken(received === 0 ? closedByServer : this.stream.reasonOf(-received));
      }
      return;
    }
    let at = IN_AT;
    const tail = this.#tail;
    if (tail !== null) {
      at -= tail.length;
      arena.bytes.set(tail, at);
      this.#tail = null;
    }
    const end = IN_AT + received;
    const { login } = this;
    if (login !== null) {
      const used = login.consume(arena.bytes, at, end);
      if (this.isClosed) return;
      if (used < end) this.#tail = arena.bytes.slice(used, end);
      if (this.login === null) this.owner.onReady(this, login.parameters);
      return;
    }
    if (this.consumer !== null) {
      const used = this.consumer.consume(at, end);
      if (used < end && !this.isClosed) this.#tail = arena.bytes.slice(used, end);
      return;
    }
    this.pool.counters[Counter.bytesSent]! += received;
    this.#relay(at, end);
  }

  onDrained(): void {
    this.client?.onServerDrained();
    this.consumer?.onServerDrained();
  }

  onHangup(): void {
    this.onBroken(closedByServer);
  }

  /** The connection is lost or unusable: its client is told, and the slot is free again. */
  onBroken(reason: string): void {
    if (this.isClosed) return;
    if (this.login !== null) return this.login.onBroken(reason);
    const client = this.client;
    const words = this.#lastWords;
    // Inside a message nothing can be added; its last words were passed on, unless a query of the pooler's got them.
    const isTold = words !== null && this.requests.front() !== Request.ownQuery;
    this.plane.logServer(this, words === null ? reason : `${reason}: ${words.message}`);
    this.close(refusals.serverGone.message);
    if (client === null) return;
    if (isTold || this.isMidMessage) client.closeAfterFlush(refusals.serverGone.message);
    else client.fail(words === null ? refusals.serverGone : failureOf(words, words.message));
  }

  /** Closes the connection; idempotent. The linked client, if any, is unlinked and not told. */
  close(reason: string): void {
    if (this.isClosed) return;
    const wasIdle = this.state === ServerState.idle;
    this.move(ServerState.closed);
    this.upkeep.end();
    this.#route?.cancel();
    // Anywhere else it could become a part of what was sent before.
    if (wasIdle && this.stream.pending === 0) this.stream.sendBytes(terminate);
    this.plane.departures.add(this, this.requests.count > 0 && !this.upkeep.isTest);
    this.login?.abandon();
    this.prepared.clear();
    this.#tail = null;
    const client = this.client;
    this.client = null;
    this.unnamedOwner = null;
    if (client !== null) client.server = null;
    this.plane.logServerClosing(this, reason);
    this.owner.onClosed(this);
    this.consumer?.onServerClosed?.();
  }

  /** Its client left in the middle of something. */
  abandon(reason: string): void {
    this.#bodyDrop = true;
    this.upkeep.recover(this.client, reason);
  }

  // --- linking

  /**
   * Ties a client to this idle server. Returns the SQL that takes the server to the client's
   * parameters; empty if there is nothing to do.
   */
  link(client: ClientSession): string {
    this.move(ServerState.active);
    this.client = client;
    client.server = this;
    this.place = client.place?.moveToServer() ?? null;
    this.group = this.place === null ? null : this.place.group;
    const now = this.plane.reactor.now;
    this.linkedAt = now;
    this.transactionAt = now;
    this.requestAt = now;
    this.skipping = false;
    this.pool.counters[Counter.assignments]!++;
    return this.session.isFor(client) ? "" : this.session.sqlFor(client);
  }

  /** The message that sets the linked client's parameters; counts as outstanding from now on. */
  parameterQuery(sql: string): Uint8Array {
    return this.#ownQuery(sql, this.session.query);
  }

  #ownQuery(sql: string, query: OwnQuery): Uint8Array {
    this.requests.push(Request.ownQuery);
    this.#own = query;
    this.#ownFailure = null;
    return queryMessage(sql);
  }

  /** Runs a query of the pooler's; none may be outstanding. */
  ask(sql: string, query: OwnQuery): void {
    const result = this.stream.sendBytes(this.#ownQuery(sql, query));
    if (result < 0) this.onSendFailed(-result);
  }

  /** It takes no more; what it has said before that is still read, up to its last words. */
  onSendFailed(errno: number): void {
    if (this.client === null || this.stream.paused) this.onBroken(errnoText(errno));
    else this.client.stream.pause(false);
  }

  /** Whether its host has not taken the connection yet. */
  get isDialing(): boolean {
    return this.stream === undefined;
  }

  /** Whether a query of the pooler's is outstanding. */
  get isAsked(): boolean {
    return this.#own !== null;
  }

  /** Bytes of input that are kept here. */
  get buffered(): number {
    return this.#tail?.length ?? 0;
  }

  get isClosed(): boolean {
    return this.state === ServerState.closed;
  }

  /** Whether nothing is under way: no transaction, no request, no half-sent message. */
  get quiet(): boolean {
    return this.synced && this.status === statusIdle && this.requests.count === 0 &&
      this.client !== null && this.client.sentWhole && !this.client.awaitsSync;
  }

  /** Whether a message to its client is half-sent. */
  get isMidMessage(): boolean {
    return this.#bodyLeft > 0 && !this.#bodyDrop;
  }

  /** Whether its client gives it back now. */
  get releasable(): boolean {
    return this.quiet && !(this.client as ClientSession).keeps && !this.residue.locksUnsure;
  }

  /** Unties the client; what that may have left is wiped before another gets the server. */
  release(): void {
    const client = this.client;
    if (client === null) return;
    this.untie(client);
    if (this.place !== null) this.plane.admission.end(this);
    client.onUnlinked();
    if (this.stream.paused) this.stream.resume();
    this.upkeep.tidy();
  }

  /**
   * Its client sends something, and all before it is answered. Whether a transaction begins in a session of the
   * client's own, and not the first one there.
   */
  begins(now: number): boolean {
    this.requestAt = now;
    if (this.status !== statusIdle || !this.synced) return false;
    const isFirst = this.transactionAt === this.linkedAt;
    this.transactionAt = now;
    return !isFirst && this.client?.mode === "session";
  }

  /** It is closed when its client gives it back: with server_fast_close, when nothing is under way. */
  outdate(): void {
    this.closeNeeded = true;
    if (this.client !== null && this.quiet && this.client.login === null) {
      this.#onQuiet(this.client);
    }
  }

  untie(client: ClientSession): void {
    this.client = null;
    client.server = null;
    this.drops.forget();
    this.session.onLeft();
    if (client.closed && this.unnamedOwner === client) this.unnamedOwner = null;
    this.upkeep.onLeft(client);
  }

  onCancelEnded(timedOut: boolean): void {
    this.cancels--;
    if (this.copyIn) this.copyCancelled = true;
    if (this.isClosed || this.consumer !== null) return;
    // A cancel request that nobody answered may still arrive: never let it meet the next client.
    if (timedOut) this.closeNeeded = true;
    if (this.client === null && this.cancels === 0 && this.state !== ServerState.idle) {
      this.upkeep.tidy();
    }
  }

  toIdle(): void {
    this.move(ServerState.idle);
    if (this.place !== null) this.plane.admission.end(this);
    this.idleSince = this.plane.reactor.now;
    this.owner.onIdle(this);
  }

  // --- the relay, server to client

  #relay(start: number, end: number): void {
    const requests = this.requests;
    if (this.client === null && requests.count === 0) {
      this.#unasked(start, end);
      return;
    }
    const outlet = this.plane.outlet;
    const bytes = this.plane.arena.bytes;
    outlet.begin(this.client === null ? null : this.client.output);
    let at = start;
    let run = start;
    let ended: OwnQuery | null = null;
    let withheld = false;
    if (this.#bodyLeft > 0) {
      const part = Math.min(this.#bodyLeft, end - at);
      this.#bodyLeft -= part;
      at += part;
      if (this.#bodyDrop) run = at;
    }
    while (end - at >= 5) {
      const type = bytes[at] as number;
      const length = readInt32(bytes, at + 1);
      if (backendFrameProblem(type, length) !== null) {
        return this.#violation("bad pkt header", run, at);
      }
      const next = at + 1 + length;
      if ((type === Backend.dataRow || type === Backend.copyData) && this.#own === null) {
        if (next > end) {
          this.#bodyLeft = next - end;
          this.#bodyDrop = false;
          at = end;
          break;
        }
        at = next;
        continue;
      }
      // All others are read whole where they may be small; a large one streams through.
      if (next > end && length < TAIL_MAX) break;
      const whole = next <= end;
      const own = requests.front() === Request.ownQuery;
      let keep = !own;
      switch (type) {
        case Backend.readyForQuery: {
          this.status = bytes[at + 5] as number;
          if (!isStatus(this.status)) return this.#violation("unknown status", run, at);
          if (own) {
            requests.pop();
            ended = this.#own;
            this.#own = null;
            if (ended !== this.session.query || this.#ownFailure !== null) break;
            // Before what follows: that may change them again.
            const told = this.session.settle();
            if (told === null) break;
            outlet.pass(run, at);
            run = at;
            outlet.put(told);
            break;
          }
          if (!this.#endOfRequest()) return this.#violation("unexpected packet", run, at);
          if (this.status !== statusIdle && this.client?.mode === "statement") {
            outlet.pass(run, at);
            outlet.flush();
            outlet.begin(null);
            run = at;
            this.client.fail(refusals.transactionBlock);
            if (this.isClosed) return;
            break;
          }
          if (this.session.hasNews) {
            outlet.pass(run, at);
            run = at;
            this.session.tellNews();
          }
          if (
            this.status === statusIdle && this.client !== null &&
            (this.client.inbox !== null || this.residue.isDue)
          ) {
            outlet.pass(run, at);
            run = at;
            withheld = this.plane.transactionEnd.isWithheld(this, this.client);
            keep = !withheld;
          }
          break;
        }
        case Backend.parseComplete: {
          const code = requests.pop();
          if (code === Request.parseNamed) this.journal.done();
          else if (code === Request.ownParse) {
            this.journal.done();
            keep = false;
          } else if (code === Request.failsHere) {
            // A name that was taken has come free: a DEALLOCATE ALL ran in front of it. What the server
            // has under it now is in no table, so it ends with this transaction.
            this.journal.done();
            this.closeNeeded = true;
          } else if (code !== Request.parse) {
            return this.#violation("unexpected packet", run, at);
          }
          break;
        }
        case Backend.bindComplete:
          if (requests.pop() !== Request.bind) {
            return this.#violation("unexpected packet", run, at);
          }
          break;
        case Backend.closeComplete: {
          const code = requests.pop();
          if (code === Request.ownClose) {
            this.journal.done();
            keep = false;
          } else if (code !== Request.close) {
            return this.#violation("unexpected packet", run, at);
          }
          break;
        }
        case Backend.rowDescription:
        case Backend.noData:
          if (requests.front() === Request.describe) requests.pop();
          break;
        case Backend.commandComplete: {
          this.copyIn = false;
          const tag = whole ? tagOf(bytes, at + 5, next) : Tag.other;
          if (whole) {
            const isQuery = requests.front() === Request.query;
            if (own) this.#onOwnTag(tag);
            else if (
              isQuery && this.deallocating?.take(tag, this.client?.names ?? null) === false
            ) {
              keep = false;
            } else if (tag !== Tag.other) onTag(this, tag);
          }
          onExecuted(this, tag);
          break;
        }
        case Backend.emptyQuery:
        case Backend.portalSuspended:
          onExecuted(this, Tag.other);
          break;
        case Backend.errorResponse: {
          // The beginning of a large one has what is needed.
          const parsed = parseErrorFields(bytes.subarray(at + 5, whole ? next : end));
          if (parsed.severity === "FATAL" || parsed.severity === "PANIC") {
            this.#lastWords = parsed;
            // Behind the end of a transaction it is no answer to the client, who will get another server.
            if (this.releasable) {
              this.closeNeeded = true;
              keep = false;
              break;
            }
          }
          if (whole && parsed.code === "0A000") {
            this.pool.statements.onUnsupported(this.prepared, bytes, at + 5, next);
          }
          if (own) this.#ownFailure = parsed;
          else {
            this.residue.listen.onError();
            this.residue.settings.onError();
            const replacement = this.#failedRequest();
            if (replacement !== null && whole && parsed.code === replacement.instead) {
              outlet.pass(run, at);
              outlet.put(error(replacement.refusal));
              run = next;
            } else if (whole && this.client !== null) {
              const renamed = this.plane.prepared.renamed(
                this.client,
                this.drops,
                bytes.subarray(at + 5, next),
              );
              if (renamed !== null) {
                outlet.pass(run, at);
                outlet.put(renamed);
                run = next;
              }
            }
          }
          break;
        }
        case Backend.parameterStatus:
          if (whole) this.session.onReport(bytes.subarray(at + 5, next));
          break;
        case Backend.copyIn:
          this.copyIn = !requests.enterCopyIn();
          this.copyCancelled = false;
          if (this.client === null) this.upkeep.endInput();
          break;
        case Backend.parameterDescription:
        case Backend.noticeResponse:
          break;
        case Backend.notification:
          // By the pooler's own listening the client is told, wherever it is.
          if (this.client?.mode !== "session") keep = false;
          break;
        case Backend.dataRow:
          if (own && whole) this.#own?.onRow?.(bytes.subarray(at + 5, next));
          break;
        case Backend.copyData:
        case Backend.copyOut:
        case Backend.copyDone:
        case Backend.functionCallResponse:
          break;
        case Backend.backendKeyData:
          // Some servers send it late, or again. It is the pooler's: the client has a key of ours.
          if (whole) takeKey(this, bytes.subarray(at + 5, next));
          keep = false;
          break;
        default:
          return this.#violation("unknown pkt", run, at);
      }
      if (!keep) {
        outlet.pass(run, at);
        run = next;
      }
      if (!whole) {
        this.#bodyLeft = next - end;
        this.#bodyDrop = !keep;
        if (!keep) run = end;
        at = end;
        break;
      }
      at = next;
      if (requests.count > 0 && requests.isHere) {
        outlet.pass(run, at);
        run = at;
        this.plane.prepared.answerHere(this);
      }
    }
    outlet.pass(run, at);
    if (at < end) this.#tail = bytes.slice(at, end);
    const pending = outlet.flush();
    const client = this.client;
    if (client === null) {
      if (ended !== null) this.#endOwn(ended);
      this.upkeep.tidy();
      return;
    }
    if (pending !== 0) {
      if (pending < 0) {
        client.close(`client connection lost: ${errnoText(-pending)}`);
        return;
      }
      // Not read again until the client has taken what there is.
      this.stream.pause(false);
    }
    if (client.output === null) {
      client.onUnwanted(end - start, this.copyIn);
      if (client.closed) return;
    }
    if (ended !== null) {
      this.#endOwn(ended);
      if (this.client !== client) return;
    }
    if (withheld) this.plane.transactionEnd.withhold(this, client);
    else this.goOn(client);
  }

  /** Its client has what was to be sent to it: it gives the server back, or goes on with it. */
  goOn(client: ClientSession): void {
    if (this.session.leadsBack(client)) return;
    if (this.releasable) this.release();
    else if (this.requests.count < resumeBelow) {
      if (client.held && this.#resyncHeld(client)) return;
      client.onRequestsAnswered(this.requests.count);
      if (this.client === client && this.quiet) this.#onQuiet(client);
    }
  }

  /** Nothing is under way, and the client keeps the server. */
  #onQuiet(client: ClientSession): void {
    this.plane.notifier.flush(client);
    if (this.session.syncedFor !== client.parameters && this.session.resync(client)) return;
    if (this.residue.locksUnsure) this.upkeep.checkLocks(client);
    else if (this.closeNeeded && this.plane.settings.serverFastClose) {
      client.fail(refusals.fastClose);
    }
  }

  /** Its client may have reset what it asked for at its login, and has sent more, which waits. */
  #resyncHeld(client: ClientSession): boolean {
    const isReady = this.requests.count === 0 && this.synced && this.status === statusIdle &&
      this.session.syncedFor !== client.parameters;
    if (!isReady || !this.session.resync(client)) return false;
    client.holdInput();
    return true;
  }

  #endOwn(query: OwnQuery): void {
    const failure = this.#ownFailure;
    this.#ownFailure = null;
    query.onEnd(failure);
  }

  /**
   * What a server says that nobody has asked anything: notices, notifications, changed settings; or
   * good-bye, and then it is given to nobody any more, whenever its connection ends.
   */
  #unasked(start: number, end: number): void {
    const bytes = this.plane.arena.bytes;
    let at = start + Math.min(this.#bodyLeft, end - start);
    this.#bodyLeft -= at - start;
    while (end - at >= 5) {
      const type = bytes[at] as number;
      const length = readInt32(bytes, at + 1);
      if (backendFrameProblem(type, length) !== null) return this.close("bad pkt header");
      const next = at + 1 + length;
      if (next > end && length < TAIL_MAX) break;
      const whole = next <= end;
      switch (type) {
        case Backend.noticeResponse:
        case Backend.notification:
          break;
        case Backend.parameterStatus:
          if (whole) this.session.onReport(bytes.subarray(at + 5, next));
          break;
        case Backend.backendKeyData:
          if (whole) takeKey(this, bytes.subarray(at + 5, next));
          break;
        case Backend.errorResponse:
          this.#lastWords = parseErrorFields(bytes.subarray(at + 5, whole ? next : end));
          return this.onBroken("server ended the session");
        default:
          return this.close("idle server got dirty");
      }
      at = whole ? next : end;
      if (!whole) {
        this.#bodyLeft = next - end;
        this.#bodyDrop = true;
      }
    }
    if (at < end) this.#tail = bytes.slice(at, end);
  }

  /** Breaks with a server that does not speak the protocol; what came before is passed on. */
  #violation(what: string, run: number, at: number): void {
    this.plane.outlet.pass(run, at);
    this.plane.outlet.flush();
    const client = this.client;
    this.close(what);
    client?.fail(refusals.serverProtocol);
  }

  /** ReadyForQuery for a client's request. False if none was owed. */
  #endOfRequest(): boolean {
    const requests = this.requests;
    const front = requests.front();
    const counters = this.pool.counters;
    const now = this.plane.reactor.now;
    if (front === Request.query || front === Request.sync || front === Request.functionCall) {
      requests.pop();
    } else if (this.skipping) {
      // A Sync that was sent during copy-in and that the server read after the copy had failed.
      this.skipping = false;
    } else {
      return false;
    }
    this.copyIn = false;
    this.deallocating = null;
    this.residue.listen.endCycle(this.status === statusIdle, requests.count === 0);
    this.session.onResets(this.residue.settings.endCycle(this.status, requests.count === 0));
    // An extended cycle that has not had its Sync yet may be under way behind this one.
    if (requests.count === 0) {
      this.synced = true;
      this.mayDiscard = false;
      if (this.status === statusIdle && this.drops.any) this.drops.forget();
      if (this.residue.isExpecting) this.residue.endCycles(this.status === statusIdle);
    }
    this.answered++;
    counters[Counter.queries]!++;
    counters[Counter.queryTime]! += now - this.requestAt;
    this.requestAt = now;
    if (this.status === statusIdle) {
      counters[Counter.transactions]!++;
      counters[Counter.transactionTime]! += now - this.transactionAt;
      this.transactionAt = now;
    }
    return true;
  }

  /** The request at the front failed. Returns the refusal that replaces the server's text, if any. */
  #failedRequest(): Failure | null {
    this.copyIn = false;
    if (this.requests.front() <= Request.functionCall) return null;
    const failure = this.journal.skip(this.requests, this.client?.names ?? null);
    this.skipping = this.requests.count === 0;
    return failure;
  }

  // --- prepared statements

  /** Whether requests that are not answered yet may change what prepared statements there are. */
  get isUnsure(): boolean {
    return this.mayDiscard || this.residue.maySet || this.journal.hasOpenGroups;
  }

  /** What a query of the pooler's did to the prepared statements; nobody has any by a name of SQL. */
  #onOwnTag(tag: Tag): void {
    if (tag === Tag.deallocateAll || tag === Tag.discardAll) this.journal.onDiscard(null);
    this.#own?.onTag?.(tag);
  }
}
