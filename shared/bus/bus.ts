// A connection to the mesh: typed publish, subscribe and request over NATS. Not a store: what is
// published while disconnected is dropped and counted, and its owner sends it again on reconnect.
// Invariants: subscriptions survive every reconnect; nothing a peer sends and no handler that throws
// ends the connection; memory is bounded while a broker is frozen; `close()` ends in bounded time.

import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import {
  AuthorizationError,
  headers as natsHeaders,
  type Msg,
  type MsgHdrs,
  type NatsConnection,
  PermissionViolationError,
  RequestError,
  type Subscription,
  TimeoutError,
} from "nats";
import { type Logger, onceEvery } from "../telemetry/mod.ts";
import type { Bus, BusCounters, BusOptions, Delivery, Handler } from "./api.ts";
import { decodePayload, encodePayload, type Refusal } from "./codec.ts";
import { Backoff, natsOptions } from "./connection_options.ts";
import { BusError } from "./errors.ts";
import { type MeshSubjects, meshSubjects, type Pattern, type Subject } from "./subjects.ts";
import { isTicket, ticketHeader, Tickets } from "./tickets.ts";
import { type BusTransport, connectNats } from "./transport.ts";

const defaultWaitMs = 10_000;
const closeTimeoutMs = 2000;
const roundTripTimeoutMs = 5000;
/** A connection that lasted so long was a good one. */
const settledMs = 5000;
const maxPendingBytes = 4 * 1024 * 1024;
const reportIntervalMs = 60_000;
const noBytes = new Uint8Array(0);

/**
 * connecting: the first connect is under way. connected: messages flow. disconnected: the client
 * reconnects by itself. closed: `close()` was called; the last state.
 */
type State = "connecting" | "connected" | "disconnected" | "closed";

interface Registration {
  readonly pattern: Pattern<unknown, unknown>;
  readonly handler: (message: unknown, delivery: Delivery) => unknown;
  subscription: Subscription | null;
}

/** What an error names. */
interface Named {
  readonly subject: string;
  readonly message: { readonly name: string };
}

class NatsBus implements Bus {
  readonly mesh: string;
  readonly subjects: MeshSubjects;
  readonly counters: BusCounters = {
    published: 0,
    droppedDisconnected: 0,
    droppedBacklog: 0,
    received: 0,
    tooLarge: 0,
    malformed: 0,
    newerVersion: 0,
    stale: 0,
    handlerErrors: 0,
    requests: 0,
    requestErrors: 0,
    disconnects: 0,
    reconnects: 0,
    brokerErrors: 0,
  };
  readonly #settings: ReturnType<typeof natsOptions>;
  readonly #log: Logger;
  readonly #backoff = new Backoff();
  readonly #tickets = new Tickets();
  readonly #registrations = new Set<Registration>();
  readonly #reconnectCallbacks = new Set<() => void>();
  readonly #running = new Set<Promise<void>>();
  readonly #closing = new AbortController();
  readonly #reportRefusal = onceEvery(reportIntervalMs);
  readonly #reportHandler = onceEvery(reportIntervalMs);
  readonly #reportBroker = onceEvery(reportIntervalMs);
  readonly #reportDial = onceEvery(reportIntervalMs);
  #state: State = "connecting";
  #connection: NatsConnection | null = null;
  #transport: BusTransport | null = null;
  #closed: Promise<void> | null = null;

  constructor(options: BusOptions) {
    this.mesh = options.mesh;
    this.subjects = meshSubjects(options.mesh);
    this.#log = options.logger;
    this.#settings = natsOptions(options, this.#backoff);
  }

  get connected(): boolean {
    return this.#state === "connected";
  }

  async start({ background, waitOnFirstConnectMs }: BusOptions): Promise<void> {
    if (background === true) void this.#connectForever();
    else await this.#connectWithin(waitOnFirstConnectMs ?? defaultWaitMs);
  }

  publish<M extends object, R>(subject: Subject<M, R>, message: M): boolean {
    const bytes = encodePayload(subject.message, message);
    const connection = this.#connection;
    if (connection === null || !this.connected) {
      this.counters.droppedDisconnected += 1;
      return false;
    }
    if ((this.#transport?.pendingBytes ?? 0) > maxPendingBytes) {
      this.counters.droppedBacklog += 1;
      return false;
    }
    try {
      connection.publish(subject.subject, bytes);
    } catch {
      // Closed a moment ago, or the broker takes less than our own bound.
      this.counters.droppedDisconnected += 1;
      return false;
    }
    this.counters.published += 1;
    return true;
  }

  subscribe<M, R>(pattern: Pattern<M, R>, handler: Handler<M, R>): () => void {
    this.#assertOpen("subscribe");
    const registration: Registration = {
      pattern: pattern as unknown as Pattern<unknown, unknown>,
      handler: handler as Registration["handler"],
      subscription: null,
    };
    this.#registrations.add(registration);
    if (this.#connection !== null) this.#attach(registration, this.#connection);
    return () => {
      if (!this.#registrations.delete(registration)) return;
      registration.subscription?.unsubscribe();
    };
  }

  async request<M extends object, R extends object>(
    subject: Subject<M, R>,
    message: M,
    timeoutMs: number,
  ): Promise<R> {
    const kind = subject.reply;
    if (kind === null) {
      throw new BusError("INVALID", `request ${subject.message.name}: has no reply`);
    }
    const bytes = encodePayload(subject.message, message);
    this.counters.requests += 1;
    try {
      const start = performance.now();
      const headers = subject.freshMs === undefined
        ? undefined
        : await this.#ticketFor(subject, timeoutMs);
      const leftMs = timeoutMs - (performance.now() - start);
      const reply = await this.#ask(subject, bytes, leftMs, headers);
      const decoded = decodePayload(kind, reply.data);
      if (decoded.ok) return decoded.message;
      this.#refuse(kind.name, decoded.refusal);
      throw new BusError(
        "BAD_REPLY",
        `request ${subject.message.name}: reply is ${decoded.refusal}`,
      );
    } catch (error) {
      this.counters.requestErrors += 1;
      throw error;
    }
  }

  onReconnect(callback: () => void): () => void {
    this.#reconnectCallbacks.add(callback);
    return () => {
      this.#reconnectCallbacks.delete(callback);
    };
  }

  async roundTripMs(): Promise<number> {
    const connection = this.openConnection("measure round trip");
    const start = performance.now();
    const timer = new AbortController();
    try {
      const late = delay(roundTripTimeoutMs, "late", { signal: timer.signal });
      late.catch(() => {}); // aborted: the answer came first
      const first = await Promise.race([connection.flush(), late]);
      if (first !== "late") return performance.now() - start;
    } catch (cause) {
      throw new BusError("DISCONNECTED", "measure round trip: connection was lost", { cause });
    } finally {
      timer.abort();
    }
    throw new BusError("TIMEOUT", `measure round trip: no answer in ${roundTripTimeoutMs} ms`);
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  /** Tries until one dial succeeds, the time is over, the broker refuses us or the bus is closed. */
  async #connectWithin(waitMs: number): Promise<void> {
    const deadline = performance.now() + waitMs;
    for (;;) {
      try {
        return await this.#connectOnce();
      } catch (cause) {
        this.#assertOpen("connect bus");
        const servers = this.#settings.servers.join(", ");
        if (isRefusal(cause)) {
          throw new BusError("REFUSED", `connect bus: ${servers} refused the credentials`, {
            cause,
          });
        }
        if (performance.now() + this.#backoff.delayMs > deadline) {
          throw new BusError("UNREACHABLE", `connect bus: no answer from ${servers}`, { cause });
        }
      }
      await this.#pause();
    }
  }

  /** For a bus in the background, and for a connection that the client gave up. */
  async #connectForever(): Promise<void> {
    while (!this.#closing.signal.aborted) {
      try {
        await this.#connectOnce();
        return this.#announceReconnect();
      } catch (error) {
        if (this.#closing.signal.aborted) return;
        this.#reportDial((suppressed) =>
          this.#log.warning("bus is not reachable", {
            servers: this.#settings.servers.join(","),
            error,
            suppressed,
          })
        );
      }
      await this.#pause();
    }
  }

  async #pause(): Promise<void> {
    await delay(this.#backoff.delayMs, undefined, { signal: this.#closing.signal }).catch(() => {});
  }

  async #connectOnce(): Promise<void> {
    const attempt = connectNats({
      ...this.#settings,
      onTransport: (transport) => {
        this.#transport = transport;
      },
    });
    const connection = await this.#unlessClosed(attempt);
    this.#connection = connection;
    this.#state = "connected";
    void this.#watch(connection);
    for (const registration of this.#registrations) this.#attach(registration, connection);
    // The broker has the subscriptions when this returns: what is published from now on arrives.
    // Lost again already: the client reconnects and subscribes by itself.
    await connection.flush().catch(() => {});
    this.#log.info("bus connected", { server: connection.getServer(), mesh: this.mesh });
  }

  /** The connection, or an exception as soon as the bus is closed; one that comes later is closed. */
  async #unlessClosed(attempt: Promise<NatsConnection>): Promise<NatsConnection> {
    const { signal } = this.#closing;
    const aborted = new Promise<never>((_, reject) => {
      const stop = (): void => reject(closedError("connect bus"));
      if (signal.aborted) stop();
      else signal.addEventListener("abort", stop, { once: true });
      const forget = (): void => signal.removeEventListener("abort", stop);
      attempt.then(forget, forget);
    });
    try {
      return await Promise.race([attempt, aborted]);
    } catch (error) {
      attempt.then((late) => late.close(), () => {});
      throw error;
    }
  }

  #attach(registration: Registration, connection: NatsConnection): void {
    registration.subscription = connection.subscribe(registration.pattern.subject, {
      callback: (error, msg) => {
        // An error here is a refused permission; the broker's own report of it is counted and logged.
        if (error === null) this.#deliver(registration, msg);
      },
    });
  }

  #deliver(registration: Registration, msg: Msg): void {
    const { pattern, handler } = registration;
    if (pattern.freshMs !== undefined && msg.data.length === 0) {
      if (this.connected) msg.respond(this.#tickets.issue());
      return;
    }
    this.counters.received += 1;
    const decoded = decodePayload(pattern.message, msg.data);
    if (!decoded.ok) return this.#refuse(pattern.message.name, decoded.refusal);
    const { message } = decoded;
    if (pattern.accepts?.(msg.subject, message) === false) {
      return this.#refuse(pattern.message.name, "malformed");
    }
    if (pattern.freshMs !== undefined) {
      const ticket = msg.headers?.get(ticketHeader) ?? "";
      if (!this.#tickets.isFresh(ticket, pattern.freshMs)) {
        return this.#refuse(pattern.message.name, "stale");
      }
    }
    const running: Promise<void> = this.#handle(pattern, handler, message, msg)
      .catch((error) => {
        this.counters.handlerErrors += 1;
        this.#reportHandler((suppressed) =>
          this.#log.error("bus handler failed", { kind: pattern.message.name, error, suppressed })
        );
      })
      .finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  async #handle(
    pattern: Pattern<unknown, unknown>,
    handler: Registration["handler"],
    message: unknown,
    msg: Msg,
  ): Promise<void> {
    const reply = await handler(message, { subject: msg.subject });
    if (pattern.reply === null || reply === null || !msg.reply) return;
    if (this.#connection === null) return;
    const bytes = encodePayload(
      pattern.reply as Parameters<typeof encodePayload>[0],
      Object(reply),
    );
    if (this.connected && !this.#connection.isClosed()) msg.respond(bytes);
    else this.counters.droppedDisconnected += 1;
  }

  #refuse(kind: string, refusal: Refusal | "stale"): void {
    if (refusal === "too_large") this.counters.tooLarge += 1;
    else if (refusal === "newer_version") this.counters.newerVersion += 1;
    else if (refusal === "stale") this.counters.stale += 1;
    else this.counters.malformed += 1;
    this.#reportRefusal((suppressed) =>
      this.#log.warning("bus payload dropped", { kind, reason: refusal, suppressed })
    );
  }

  /** What shows the receiver of a request that we ask now. */
  async #ticketFor(subject: Named, timeoutMs: number): Promise<MsgHdrs> {
    const ticket = (await this.#ask(subject, noBytes, timeoutMs)).string();
    if (!isTicket(ticket)) {
      throw new BusError("BAD_REPLY", `request ${subject.message.name}: got no ticket for it`);
    }
    const headers = natsHeaders();
    headers.set(ticketHeader, ticket);
    return headers;
  }

  async #ask(
    { subject, message }: Named,
    bytes: Uint8Array,
    timeoutMs: number,
    headers?: MsgHdrs,
  ): Promise<Msg> {
    const what = `request ${message.name}`;
    const connection = this.openConnection(what);
    try {
      return await connection.request(subject, bytes, {
        timeout: Math.max(1, timeoutMs),
        ...headers === undefined ? {} : { headers },
      });
    } catch (cause) {
      if (cause instanceof TimeoutError) {
        throw new BusError("TIMEOUT", `${what}: no answer in time`, { cause });
      }
      if (cause instanceof RequestError && cause.isNoResponders()) {
        throw new BusError("NO_RESPONDERS", `${what}: nobody listens on "${subject}"`, { cause });
      }
      if (isDenied(cause)) {
        throw new BusError("REFUSED", `${what}: broker does not allow it`, { cause });
      }
      this.#assertOpen(what);
      throw new BusError("DISCONNECTED", `${what}: connection was lost`, { cause });
    }
  }

  #assertOpen(what: string): void {
    if (this.#state === "closed") throw closedError(what);
  }

  get log(): Logger {
    return this.#log;
  }

  openConnection(what: string): NatsConnection {
    this.#assertOpen(what);
    if (this.#connection !== null && this.connected) return this.#connection;
    throw new BusError("DISCONNECTED", `${what}: bus is ${this.#state}`);
  }

  /** Follows the client's reports. They may repeat: only a change of state counts. */
  async #watch(connection: NatsConnection): Promise<void> {
    let since = performance.now();
    for await (const status of connection.status()) {
      if (this.#state === "closed") return;
      if (status.type === "disconnect" && this.connected) {
        this.#state = "disconnected";
        this.counters.disconnects += 1;
        // One that fell at once counts as a failed dial: a broker in trouble is not hammered.
        if (performance.now() - since > settledMs) this.#backoff.reset();
        since = performance.now();
        this.#log.warning("bus disconnected", { server: status.server });
      } else if (status.type === "reconnect" && this.#state === "disconnected") {
        this.#state = "connected";
        const downMs = Math.round(performance.now() - since);
        since = performance.now();
        this.#log.info("bus connected again", { server: status.server, downMs });
        this.#announceReconnect();
      } else if (status.type === "error") {
        this.counters.brokerErrors += 1;
        this.#reportBroker((suppressed) =>
          this.#log.warning("bus reports an error", { error: status.error, suppressed })
        );
      }
    }
    // The client gave up, though it was told never to. Start over: the mesh is lost otherwise.
    const error = await connection.closed();
    if (this.#closing.signal.aborted) return;
    this.#log.error("bus connection was given up", { error });
    this.#state = "disconnected";
    this.#connection = null;
    await this.#connectForever();
  }

  #announceReconnect(): void {
    this.counters.reconnects += 1;
    for (const callback of this.#reconnectCallbacks) {
      try {
        callback();
      } catch (error) {
        this.counters.handlerErrors += 1;
        this.#log.error("bus reconnect callback failed", { error });
      }
    }
  }

  async #close(): Promise<void> {
    const wasConnected = this.connected;
    this.#closing.abort();
    const connection = this.#connection;
    const timer = new AbortController();
    if (connection !== null && wasConnected) {
      const late = delay(closeTimeoutMs, undefined, { signal: timer.signal }).catch(() => {});
      await Promise.race([this.#drain(connection), late]);
      timer.abort();
    }
    this.#state = "closed";
    await connection?.close();
    await this.#transport?.close();
  }

  async #drain(connection: NatsConnection): Promise<void> {
    const subscriptions = [...this.#registrations].map((registration) => registration.subscription);
    await Promise.allSettled(subscriptions.map((subscription) => subscription?.drain()));
    await Promise.allSettled(this.#running);
    await connection.flush().catch(() => {}); // lost meanwhile: nothing is left to send
  }
}

function closedError(what: string): BusError {
  return new BusError("CLOSED", `${what}: bus is closed`);
}

/** A broker that waited too long for a login that was on its way does not say that it was a wrong one. */
function isRefusal(error: unknown): boolean {
  return error instanceof AuthorizationError && !/authentication timeout/i.test(error.message);
}

/** Whether a request failed because its subject is not allowed to us. */
export function isDenied(error: unknown): boolean {
  return error instanceof RequestError && error.cause instanceof PermissionViolationError;
}

function natsBus(bus: Bus): NatsBus {
  if (bus instanceof NatsBus) return bus;
  throw new BusError("INVALID", "use bus: it was not made by connectBus()");
}

/** The connection of this moment; throws `CLOSED` or `DISCONNECTED`, naming what it was wanted for. */
export function natsConnection(bus: Bus, what: string): NatsConnection {
  return natsBus(bus).openConnection(what);
}

export function logOf(bus: Bus): Logger {
  return natsBus(bus).log;
}

/** Connects to the mesh. Rejects with a `BusError`: `REFUSED`, `UNREACHABLE`, `INVALID`. */
export async function connectBus(options: BusOptions): Promise<Bus> {
  const bus = new NatsBus(options);
  try {
    await bus.start(options);
  } catch (error) {
    await bus.close();
    throw error;
  }
  return bus;
}
