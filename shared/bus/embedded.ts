// The embedded bus: a small in-process broker that speaks the core NATS client protocol over TCP, so
// that one host needs no nats-server and every service uses the same client. Not a NATS server: no
// JetStream, no accounts, no cluster, no TLS; for the loopback interface.
// Invariants: everything a client can make it hold is bounded; only clients with a token get past
// the greeting; no client's input or slowness affects another client.

import { Buffer } from "node:buffer";
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { type Logger, onceEvery } from "../telemetry/mod.ts";
import { BusError } from "./errors.ts";
import {
  type CutReason,
  Session,
  type SessionHost,
  type Subscription,
} from "./embedded_session.ts";
import { SubjectTree } from "./subject_tree.ts";
import type { Rights } from "./subjects.ts";

export interface EmbeddedBusLimits {
  readonly maxConnections: number;
  readonly maxSubscriptionsPerConnection: number;
  readonly maxPayloadBytes: number;
  /** Output that waits for one client, in bytes; beyond it the client is cut. */
  readonly maxPendingBytes: number;
  readonly authTimeoutMs: number;
  readonly pingIntervalMs: number;
  /** Unanswered pings before a client counts as dead. */
  readonly maxPingsOut: number;
}

const defaultLimits: EmbeddedBusLimits = {
  maxConnections: 1024,
  maxSubscriptionsPerConnection: 4096,
  maxPayloadBytes: 1024 * 1024,
  maxPendingBytes: 16 * 1024 * 1024,
  authTimeoutMs: 2000,
  pingIntervalMs: 5000,
  maxPingsOut: 2,
};

export interface EmbeddedBusOptions extends Partial<EmbeddedBusLimits> {
  readonly logger?: Logger | undefined;
}

export interface EmbeddedBusAddress {
  /** Default 127.0.0.1. */
  readonly host?: string | undefined;
  /** Default 0: any free port. */
  readonly port?: number | undefined;
  /** Gives all rights. More tokens with fewer: `allow()`. */
  readonly token: string;
}

/** Numbers since the broker was made; the first two go up and down, the others only grow. */
export interface EmbeddedBusCounters {
  connections: number;
  subscriptions: number;
  accepted: number;
  messagesIn: number;
  messagesOut: number;
  bytesIn: number;
  bytesOut: number;
  authFailures: number;
  protocolErrors: number;
  slowConsumers: number;
  staleConnections: number;
  refusedConnections: number;
  permissionsDenied: number;
  noResponders: number;
}

const allRights: Rights = { publish: [">"], subscribe: [">"] };
const listenBacklog = 511;
const maxRefusals = 64;
const reportIntervalMs = 60_000;

const countedAs = {
  auth: "authFailures",
  auth_timeout: "authFailures",
  protocol: "protocolErrors",
  slow_consumer: "slowConsumers",
  stale: "staleConnections",
  too_many_connections: "refusedConnections",
} as const;

interface KnownToken {
  readonly digest: Buffer;
  readonly rights: Rights;
}

export class EmbeddedBus {
  readonly counters: EmbeddedBusCounters = {
    connections: 0,
    subscriptions: 0,
    accepted: 0,
    messagesIn: 0,
    messagesOut: 0,
    bytesIn: 0,
    bytesOut: 0,
    authFailures: 0,
    protocolErrors: 0,
    slowConsumers: 0,
    staleConnections: 0,
    refusedConnections: 0,
    permissionsDenied: 0,
    noResponders: 0,
  };
  readonly #limits: EmbeddedBusLimits;
  readonly #log: Logger | undefined;
  readonly #reportCut = onceEvery(reportIntervalMs);
  readonly #id = randomBytes(12).toString("hex");
  readonly #tree = new SubjectTree<Subscription>();
  readonly #sessions = new Set<Session>();
  readonly #dirty = new Set<Session>();
  readonly #tokens = new Map<string, KnownToken>();
  readonly #host: SessionHost;
  #server: Server | null = null;
  #ticker: ReturnType<typeof setInterval> | null = null;
  #nextSession = 1;

  constructor(options: EmbeddedBusOptions = {}) {
    const { logger, ...limits } = options;
    this.#limits = { ...defaultLimits, ...limits };
    this.#log = logger;
    this.#host = this.#sessionHost();
  }

  /** Listens; rejects with the system's error when it cannot. After `close()` it can start again. */
  async start(address: EmbeddedBusAddress): Promise<{ url: string }> {
    if (this.#server !== null) {
      throw new BusError("INVALID", "start embedded bus: it runs, wanted it closed");
    }
    this.allow(address.token, allRights);
    const server = createServer((socket) => this.#accept(socket));
    this.#server = server;
    server.listen({
      host: address.host ?? "127.0.0.1",
      port: address.port ?? 0,
      backlog: listenBacklog,
    });
    try {
      await once(server, "listening");
    } catch (error) {
      this.#server = null;
      throw error;
    }
    // Accepting failed, for want of a file descriptor: the clients that are here go on.
    server.on("error", (error) => this.#log?.error("embedded bus cannot accept", { error }));
    this.#ticker = setInterval(() => this.#tick(), this.#limits.pingIntervalMs);
    const { address: host, family, port } = server.address() as AddressInfo;
    return { url: `nats://${family === "IPv6" ? `[${host}]` : host}:${port}` };
  }

  /** Lets clients with this token in, with these rights; for clients that log in from now on. */
  allow(token: string, rights: Rights): void {
    if (token === "") throw new BusError("INVALID", "allow token: it is empty, wanted a secret");
    const digest = digestOf(token);
    this.#tokens.set(digest.toString("hex"), { digest, rights });
  }

  /** The opposite of `allow()`; clients that are logged in stay. */
  forget(token: string): void {
    this.#tokens.delete(digestOf(token).toString("hex"));
  }

  /** Stops listening and cuts all clients; resolves when the port and all sockets are free. */
  async close(): Promise<void> {
    const server = this.#server;
    if (server === null) return;
    if (this.#ticker !== null) clearInterval(this.#ticker);
    this.#ticker = null;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    for (const session of this.#sessions) session.destroy();
    await closed;
    this.#server = null;
  }

  #accept(socket: Socket): void {
    this.counters.accepted += 1;
    // Clients over the bound are told why, unless they come faster than they can be told.
    if (this.#sessions.size >= this.#limits.maxConnections + maxRefusals) {
      this.counters.refusedConnections += 1;
      socket.destroy();
      return;
    }
    const id = this.#nextSession;
    this.#nextSession += 1;
    const session = new Session(id, socket, this.#host, this.#info(id, socket));
    this.#sessions.add(session);
    this.counters.connections = this.#sessions.size;
    if (this.#sessions.size > this.#limits.maxConnections) session.refuse();
  }

  /** The greeting. The version is that of the protocol features clients may expect of us. */
  #info(clientId: number, socket: Socket): string {
    const info = {
      server_id: this.#id,
      server_name: "pgweir-embedded",
      version: "2.9.0",
      proto: 1,
      host: socket.localAddress ?? "",
      port: socket.localPort ?? 0,
      headers: true,
      max_payload: this.#limits.maxPayloadBytes,
      auth_required: true,
      client_id: clientId,
    };
    return `INFO ${JSON.stringify(info)}\r\n`;
  }

  #tick(): void {
    for (const session of this.#sessions) session.tick();
    this.#flush();
  }

  #flush(): void {
    for (const session of this.#dirty) session.flush();
    this.#dirty.clear();
  }

  #sessionHost(): SessionHost {
    const limits = this.#limits;
    return {
      maxPayloadBytes: limits.maxPayloadBytes,
      maxPendingBytes: limits.maxPendingBytes,
      maxSubscriptions: limits.maxSubscriptionsPerConnection,
      authTimeoutMs: limits.authTimeoutMs,
      maxPingsOut: limits.maxPingsOut,
      login: (token) => this.#login(token),
      addSubscription: (subscription) => {
        this.#tree.add(subscription.pattern, subscription);
        this.counters.subscriptions += 1;
      },
      removeSubscription: (subscription) => {
        this.#tree.remove(subscription.pattern, subscription);
        this.counters.subscriptions -= 1;
      },
      route: (from, subject, reply, headers, data) =>
        this.#route(from, subject, reply, headers, data),
      markDirty: (session) => this.#dirty.add(session),
      flush: () => this.#flush(),
      onEnd: (session, reason) => this.#onEnd(session, reason),
      onDenied: (session, what) => {
        this.counters.permissionsDenied += 1;
        this.#report(session, `${what} denied`);
      },
      onNoResponders: () => {
        this.counters.noResponders += 1;
      },
    };
  }

  /** Looks at every token whatever the outcome, so that the time tells nothing. */
  #login(token: string): Rights | null {
    const digest = digestOf(token);
    let rights: Rights | null = null;
    for (const known of this.#tokens.values()) {
      if (timingSafeEqual(known.digest, digest)) rights = known.rights;
    }
    return rights;
  }

  #route(from: Session, subject: string, reply: string, headers: number, data: Uint8Array): number {
    this.counters.messagesIn += 1;
    this.counters.bytesIn += data.length;
    let reached = 0;
    let groups: Map<string, Subscription[]> | null = null;
    for (const subscription of this.#tree.match(subject)) {
      if (subscription.session === from && !from.echo) continue;
      if (subscription.queue === "") {
        reached += this.#deliver(subscription, subject, reply, headers, data);
        continue;
      }
      groups ??= new Map();
      const members = groups.get(subscription.queue);
      if (members === undefined) groups.set(subscription.queue, [subscription]);
      else members.push(subscription);
    }
    if (groups === null) return reached;
    for (const members of groups.values()) {
      const chosen = members[Math.floor(Math.random() * members.length)];
      if (chosen !== undefined) reached += this.#deliver(chosen, subject, reply, headers, data);
    }
    return reached;
  }

  #deliver(
    subscription: Subscription,
    subject: string,
    reply: string,
    headers: number,
    data: Uint8Array,
  ): number {
    // One that was cut, or had its last message, while this one was on its way.
    if (!subscription.session.open) return 0;
    subscription.session.deliver(subscription, subject, reply, headers, data);
    this.counters.messagesOut += 1;
    this.counters.bytesOut += data.length;
    return 1;
  }

  #onEnd(session: Session, reason: CutReason | null): void {
    this.#sessions.delete(session);
    this.#dirty.delete(session);
    this.counters.connections = this.#sessions.size;
    if (reason === null || reason === "shutdown") return;
    this.counters[countedAs[reason]] += 1;
    this.#report(session, reason);
  }

  #report(session: Session, reason: string): void {
    this.#reportCut((suppressed) =>
      this.#log?.warning("embedded bus refuses a client", {
        client: session.id,
        reason,
        suppressed,
      })
    );
  }
}

function digestOf(token: string): Buffer {
  return createHash("sha256").update(token).digest();
}
