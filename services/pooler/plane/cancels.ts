// Cancel requests: to the worker that owns the key, and from the owner to PostgreSQL on a connection
// of its own. Nobody is answered; the client's connection is closed when the cancel has been dealt
// with. Bounds: connections under way, requests waiting for one, and the time either may take.
// Invariant: a server is not reused before PostgreSQL has closed every cancel connection for it.

import type { CancelOutcome } from "../../../shared/bus/mod.ts";
import { CONSOLE_DATABASE } from "../../../shared/config/mod.ts";
import { Errno, type Stream, type Timer } from "../../../shared/sys/mod.ts";
import { cancelKeyWorker, cancelRequest, sameSecret } from "../../../shared/wire/mod.ts";
import { cancelledText } from "./log_lines.ts";
import { IN_AT, IN_SIZE } from "./arena.ts";
import type { ClientSession } from "./client.ts";
import { dial, type DialOwner } from "./dial.ts";
import type { Plane } from "./plane.ts";
import { Request } from "./requests.ts";
import type { ServerConnection } from "./server.ts";
import { cancelQueued } from "./unlinked.ts";

const underWayMax = 16;
const waitingMax = 1000;
/** Queries of the pooler's that go in front of a client's take about so long. */
const soonMs = 2;
/** What a cancel has reached ends in this time, unless it was not heard. */
const repeatMs = 100;
const repeatsMax = 3;

type Done = (outcome: CancelOutcome) => void;

/** How a cancel connection ended: PostgreSQL closed it, it could not be made, its time was over. */
type End = "closed" | "failed" | "timedOut";

interface Waiting {
  /** null: the client has left what its server runs. */
  readonly client: ClientSession | null;
  readonly server: ServerConnection;
  readonly done: Done;
  readonly since: number;
}

export class Cancels {
  readonly #plane: Plane;
  readonly #underWay = new Map<ServerConnection, CancelConnection>();
  #waiting: Waiting[] = [];
  /** Connections of clients whose request is being dealt with. */
  readonly requesters = new Set<ClientSession>();
  /** Requests by what became of them, for the console and the log. */
  readonly counts: Record<CancelOutcome | "unanswered", number> = {
    sent: 0,
    unknown: 0,
    idle: 0,
    busy: 0,
    unanswered: 0,
  };

  constructor(plane: Plane) {
    this.#plane = plane;
  }

  get underWay(): number {
    return this.#underWay.size;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Servers with a cancel under way, each with the number of requests it is for. */
  *inFlight(): Generator<{ server: ServerConnection; requests: number }> {
    for (const [server, { requests }] of this.#underWay) yield { server, requests };
  }

  /** Servers whose cancel waits for its turn, once for each request. */
  *queued(): Generator<ServerConnection> {
    for (const { server } of this.#waiting) yield server;
  }

  /** A CancelRequest of a client: its connection stays open until the cancel has had its effect. */
  request(connection: ClientSession, processId: number, secret: Uint8Array): void {
    const worker = cancelKeyWorker(processId, secret);
    this.requesters.add(connection);
    const target = this.#plane.keys.get(processId);
    const end = (outcome: CancelOutcome | null) => {
      this.requesters.delete(connection);
      this.counts[outcome ?? "unanswered"]++;
      // Its secret was right: the log may name the database, of a client of this worker.
      if (outcome === "sent" && target !== undefined) connection.database = target.database;
      connection.close(cancelledText(outcome, target?.database === CONSOLE_DATABASE));
    };
    if (worker === this.#plane.seat.workerId) this.perform(processId, secret, end);
    else if (worker < 0) end("unknown");
    else this.#plane.control.routeCancel(worker, processId, secret, end);
  }

  /** Cancels what the owner of the key runs now, if anything. `done` is called exactly once. */
  perform(processId: number, secret: Uint8Array, done: Done): void {
    const client = this.#plane.keys.get(processId);
    if (client === undefined || !sameSecret(secret, client.secret)) {
      done("unknown");
      return;
    }
    if (client.console !== null) {
      done(client.console.cancel() ? "sent" : "idle");
      return;
    }
    if (client.queued) {
      cancelQueued(client);
      done("sent");
      return;
    }
    if (this.#plane.notifier.cancel(client)) {
      done("sent");
      return;
    }
    const server = client.tunnel === null ? client.server : client.tunnel.server;
    if (server !== null && isBeingPrepared(client, server)) {
      this.#later(client, server, () => this.perform(processId, secret, done), done);
      return;
    }
    if (server === null || server.secret === null || !worksFor(client, server)) {
      done("idle");
      return;
    }
    const existing = this.#underWay.get(server);
    if (existing !== undefined) {
      existing.join(client, done);
    } else if (this.#underWay.size < underWayMax) {
      this.#start(client, server, [done]);
    } else if (this.#waiting.length < waitingMax) {
      this.#waiting.push({ client, server, done, since: this.#plane.reactor.now });
    } else {
      done("busy");
    }
  }

  /** Cancels what a server runs whose client has left; nobody waits for the outcome. */
  abandon(server: ServerConnection): void {
    if (server.secret === null || this.#underWay.has(server)) return;
    if (this.#underWay.size < underWayMax) {
      this.#start(null, server, []);
    } else if (this.#waiting.length < waitingMax) {
      const since = this.#plane.reactor.now;
      this.#waiting.push({ client: null, server, done: () => {}, since });
    }
  }

  /** Gives up what has waited too long. */
  sweep(now: number): void {
    const limit = this.#plane.settings.cancelWaitTimeoutMs;
    while (limit > 0 && this.#waiting.length > 0) {
      const oldest = this.#waiting[0] as Waiting;
      if (now - oldest.since < limit) return;
      this.#waiting.shift();
      oldest.done("busy");
    }
  }

  /** What the client has asked for begins in a moment, if not already: `again`, unless it is over by then. */
  #later(client: ClientSession, server: ServerConnection, again: () => void, done: Done): void {
    const { answered } = server;
    this.#plane.reactor.after(soonMs, () => {
      if (client.server === server && server.answered === answered) again();
      else done("idle");
    });
  }

  /** A backend that had not begun when the cancel came ignores it: then it is sent once more. */
  #repeat(client: ClientSession, server: ServerConnection, answered: number, left: number): void {
    if (left === 0) return;
    this.#plane.reactor.after(repeatMs, () => {
      const isSame = worksFor(client, server) && server.answered === answered;
      if (!isSame || this.#underWay.has(server) || this.#underWay.size >= underWayMax) return;
      this.#start(client, server, [], left - 1);
    });
  }

  #start(
    client: ClientSession | null,
    server: ServerConnection,
    done: Done[],
    repeats = repeatsMax,
  ): void {
    const { answered } = server;
    const connection = new CancelConnection(this.#plane, client, server, done, (end, again) => {
      this.#underWay.delete(server);
      if (end !== "closed") {
        // Another attempt would make those that joined wait as long once more.
        for (const each of again) each("busy");
      } else if (again.length > 0 && client !== null && worksFor(client, server)) {
        this.#start(client, server, again);
      } else {
        for (const each of again) each("idle");
        if (client !== null && client.tunnel === null) {
          this.#repeat(client, server, answered, repeats);
        }
      }
      this.#next();
    });
    this.#underWay.set(server, connection);
    connection.open();
  }

  #next(): void {
    while (this.#waiting.length > 0 && this.#underWay.size < underWayMax) {
      const { client, server, done } = this.#waiting.shift() as Waiting;
      const existing = this.#underWay.get(server);
      if (client === null) {
        if (isAbandoned(server)) this.#start(null, server, [done]);
      } else if (!worksFor(client, server)) done("idle");
      else if (existing !== undefined) existing.join(client, done);
      else this.#start(client, server, [done]);
    }
  }
}

/** Whether it may still run what a client has left; another client's must never be cancelled. */
function isAbandoned(server: ServerConnection): boolean {
  return server.isClosed || (server.client === null && runsSomething(server));
}

/** A query of the pooler's runs in front of what the client has asked for. */
function isBeingPrepared(client: ClientSession, server: ServerConnection): boolean {
  return client.tunnel === null && server.requests.front() === Request.ownQuery &&
    (server.requests.count > 1 || client.buffered > 0);
}

/** What goes through a tunnel nobody knows: it may be something, and is nobody else's in any case. */
function worksFor(client: ClientSession, server: ServerConnection): boolean {
  if (client.tunnel !== null) return client.tunnel.server === server;
  return client.server === server && runsSomething(server);
}

/** Whether the server works on a request of its client, not of the pooler. */
function runsSomething(server: ServerConnection): boolean {
  return server.requests.count > 0 && server.requests.front() !== Request.ownQuery;
}

class CancelConnection implements DialOwner {
  readonly #plane: Plane;
  readonly #client: ClientSession | null;
  readonly #server: ServerConnection;
  readonly #onEnd: (end: End, again: Done[]) => void;
  #done: Done[];
  /** Requests that came after this one was sent: they may mean a later query. */
  #again: Done[] = [];
  #stream: Stream | null = null;
  #timer: Timer | null = null;
  #ended = false;

  constructor(
    plane: Plane,
    client: ClientSession | null,
    server: ServerConnection,
    done: Done[],
    onEnd: (end: End, again: Done[]) => void,
  ) {
    this.#plane = plane;
    this.#client = client;
    this.#server = server;
    this.#done = done;
    this.#onEnd = onEnd;
  }

  /** Requests that are answered by this cancel, or wait for the next one. */
  get requests(): number {
    return this.#done.length + this.#again.length;
  }

  open(): void {
    const server = this.#server;
    server.cancels++;
    // As its session: whoever has no TLS need not be asked again, which would cost a round trip.
    const stream = dial(this.#plane, server, this, server.stream.tls !== null);
    const limit = this.#plane.settings.cancelWaitTimeoutMs;
    if (limit > 0) this.#timer = this.#plane.reactor.after(limit, () => this.#end("timedOut"));
    if (typeof stream === "number") {
      // Not from inside the caller: it has not finished with us.
      this.#timer?.cancel();
      this.#timer = this.#plane.reactor.after(0, () => this.#end("failed"));
      return;
    }
    this.#stream = stream;
  }

  /** One more request for the same server; nobody's if the client is another by now. */
  join(client: ClientSession, done: Done): void {
    if (client !== this.#client) done("idle");
    else this.#again.push(done);
  }

  onConnected(errno: number): void {
    if (errno !== 0) {
      this.#end("failed");
      return;
    }
    const { processId, secret } = this.#server;
    this.#stream?.sendBytes(cancelRequest(processId, secret as Uint8Array));
  }

  onRefused(): void {
    this.#end("failed");
  }

  onReadable(): void {
    const memory = this.#plane.arena.memory;
    const received = this.#stream?.recv(memory, IN_AT, IN_SIZE) ?? 0;
    // PostgreSQL closes the connection when it has signalled the backend.
    if (received === 0 || (received < 0 && received !== -Errno.EAGAIN)) this.#end("closed");
  }

  onDrained(): void {}

  onHangup(): void {
    this.#end("closed");
  }

  #end(end: End): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#timer?.cancel();
    this.#stream?.close();
    const done = this.#done;
    this.#done = [];
    for (const each of done) each(end === "closed" ? "sent" : "busy");
    // Before the server may be released: a joined request may start another cancel for it.
    this.#onEnd(end, this.#again);
    this.#server.onCancelEnded(end === "timedOut");
  }
}
