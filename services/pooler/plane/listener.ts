// What listens for the clients of one database (in one client_encoding) that are pooled by transaction or
// statement: the channels they want, and at most one connection that listens to them. It connects when a
// channel is wanted, again when it is lost, and ends when nothing was wanted for a while.
// Invariants: a client is registered with a channel only after PostgreSQL has acknowledged the LISTEN for it;
// each registration is answered exactly once, or its client is closed.

import { type DatabaseConfig, sameConnection } from "../../../shared/config/mod.ts";
import { findNul, latin1Text, type ParsedError } from "../../../shared/wire/mod.ts";
import type { ClientSession } from "./client.ts";
import type { DirectSlots } from "./direct_slots.ts";
import type { NotificationCounts, Sender } from "./inbox.ts";
import { ListenerConnection, type ListenerEvents } from "./listener_connection.ts";
import { retryPauseMs, verdictOf } from "./login_retry.ts";
import type { Notifier } from "./notifier.ts";
import type { Plane } from "./plane.ts";
import type { Pool } from "./pool.ts";
import { type Refusal, refusals } from "./refusals.ts";
import type { ServerConnection } from "./server.ts";

/** A channel that nobody wants is listened to for so long, since its client may be changing connections. */
const lingerMs = 1000;
/** A connection that nobody needs is kept for so long, at most. */
const idleMs = 10_000;
/** Channels in one query. */
const batchMax = 1000;
/** A connection that says nothing for so long is asked whether it is there, and has so long to answer. */
const silenceMs = 30_000;
const answerMs = 15_000;
/** So long clients wait for what they have notified themselves; it comes in a round trip. */
const ownWaitMs = 1000;
/** A connection that is lost sooner is no better than none. */
const stableMs = 1000;
/** Pools that are looked for to log in with. */
const poolsMax = 16;

/** States of a listener. */
export const ListenerState = {
  /** Without a connection, and nobody needs one. */
  closed: "closed",
  /** It waits for a slot. */
  waiting: "waiting",
  /** It connects or logs in. */
  connecting: "connecting",
  /** Logged in; some of its channels may still be asked for. */
  listening: "listening",
  /** The last attempt failed; it leaves this when the next one is due. */
  failing: "failing",
} as const;
export type ListenerState = typeof ListenerState[keyof typeof ListenerState];

export class Channel implements Sender {
  readonly listener: ChannelListener;
  /** One character per byte. */
  readonly name: string;
  /** Those that are told. */
  readonly clients = new Set<ClientSession>();
  readonly registrations = new Set<Registration>();
  /** PostgreSQL has acknowledged it. */
  isListened = false;
  emptySince = 0;

  constructor(listener: ChannelListener, name: string) {
    this.listener = listener;
    this.name = name;
  }

  get counts(): NotificationCounts {
    return this.listener.counts;
  }

  get isWanted(): boolean {
    return this.clients.size > 0 || this.registrations.size > 0;
  }
}

/** A client that waits until its channels are listened to. */
export interface Registration {
  readonly client: ClientSession;
  readonly channels: readonly Channel[];
  /** Channels that are not listened to yet. */
  left: number;
  readonly until: number;
  readonly done: (refusal: Refusal | null) => void;
}

/** What is done when all that was committed before has come. */
interface Await {
  readonly done: () => void;
  readonly until: number;
  /** A query was sent behind it: what is answered to that comes later. */
  isAsked: boolean;
}

export class ChannelListener implements ListenerEvents {
  database: DatabaseConfig;
  readonly encoding: string;
  readonly channels = new Map<string, Channel>();
  readonly counts: NotificationCounts = { received: 0, delivered: 0, dropped: 0 };
  state: ListenerState = ListenerState.closed;
  /** Connections that were lost. */
  losses = 0;
  readonly #plane: Plane;
  readonly #notifier: Notifier;
  readonly #registrations = new Set<Registration>();
  /** Wanted and not asked for. */
  readonly #missing = new Set<Channel>();
  /** Listened to and not wanted. */
  readonly #empty = new Set<Channel>();
  readonly #awaits = new Set<Await>();
  /** What was to come has not come in time: nobody waits until it answers. */
  #isLate = false;
  /** Asked for and not answered. */
  #batch: readonly Channel[] = [];
  /** While it waits for a slot. */
  #wait: { readonly slots: DirectSlots; readonly open: () => void } | null = null;
  #connection: ListenerConnection | null = null;
  #failure: Refusal | null = null;
  /** Whose login failed last. */
  #failedPool: Pool | null = null;
  #failures = 0;
  #retryAt = 0;
  #upAt = 0;
  #unusedSince = 0;
  /** Clients do not know yet that it was lost. */
  #lossUntold = false;

  constructor(plane: Plane, notifier: Notifier, database: DatabaseConfig, encoding: string) {
    this.#plane = plane;
    this.#notifier = notifier;
    this.database = database;
    this.encoding = encoding;
  }

  /** Null while it has none. */
  get server(): ServerConnection | null {
    return this.#connection?.server ?? null;
  }

  /** The user it is logged in as. */
  get user(): string | null {
    return this.#connection?.pool.user ?? null;
  }

  /** The configuration has changed. */
  renew(database: DatabaseConfig): void {
    const isOutdated = !sameConnection(this.database, database);
    this.database = database;
    if (isOutdated) this.reconnect("connect string changed");
  }

  /** Its connection is closed, and made again if anybody needs it. */
  reconnect(reason: string): void {
    if (this.state === ListenerState.listening) this.#connection?.close(reason);
    else if (this.state === ListenerState.connecting) this.server?.login?.fail("08001", reason);
    this.#retryAt = 0;
  }

  /** For good: who waits is refused, and the connection is closed. */
  end(refusal: Refusal): void {
    for (const registration of [...this.#registrations]) this.#end(registration, refusal);
    for (const channel of [...this.channels.values()]) this.#forget(channel);
    this.#wait?.slots.withdraw(this.#wait.open);
    this.#wait = null;
    this.reconnect(refusal.message);
  }

  get waiting(): number {
    return this.#registrations.size;
  }

  // --- channels

  /** Calls `done` when all these channels are listened to, at once perhaps, or with the reason why not. */
  register(
    client: ClientSession,
    names: readonly string[],
    until: number,
    done: (refusal: Refusal | null, channels: readonly Channel[]) => void,
  ): Registration {
    const channels = names.map((name) => this.#channel(name));
    const registration: Registration = {
      client,
      channels,
      left: 0,
      until,
      done: (refusal) => done(refusal, channels),
    };
    for (const channel of channels) {
      channel.registrations.add(registration);
      if (!channel.isListened) registration.left++;
    }
    this.#registrations.add(registration);
    // With another login it may succeed.
    if (client.pool !== this.#failedPool) this.#retryAt = 0;
    if (registration.left === 0) this.#end(registration, null);
    else this.#advance();
    return registration;
  }

  #channel(name: string): Channel {
    let channel = this.channels.get(name);
    if (channel === undefined) {
      channel = new Channel(this, name);
      this.channels.set(name, channel);
      this.#missing.add(channel);
    }
    this.#empty.delete(channel);
    return channel;
  }

  /** The registration is over: its client is in, or is refused. */
  #end(registration: Registration, refusal: Refusal | null): void {
    if (!this.#registrations.delete(registration)) return;
    registration.done(refusal);
    for (const channel of registration.channels) {
      channel.registrations.delete(registration);
      this.#review(channel);
    }
  }

  /** Its client has left, or wants it no more. */
  cancel(registration: Registration, refusal: Refusal): void {
    this.#end(registration, refusal);
  }

  leave(channel: Channel, client: ClientSession): void {
    if (channel.clients.delete(client)) this.#review(channel);
  }

  /** Forgets a channel that nobody wants, at once or after a while. */
  #review(channel: Channel): void {
    if (channel.isWanted || this.#batch.includes(channel)) return;
    if (channel.isListened) {
      channel.emptySince = this.#plane.reactor.now;
      this.#empty.add(channel);
    } else {
      this.#forget(channel);
    }
  }

  #forget(channel: Channel): void {
    this.#missing.delete(channel);
    this.#empty.delete(channel);
    if (this.channels.get(channel.name) === channel) this.channels.delete(channel.name);
    this.#unusedSince = this.#plane.reactor.now;
    if (this.state === ListenerState.waiting) this.#advance();
  }

  /**
   * Calls `done` when clients are told all that was committed before; at once if the connection is not there or
   * does not answer, and soon in any case.
   */
  catchUp(done: () => void): void {
    if (this.state !== ListenerState.listening || this.#isLate) return done();
    this.#awaits.add({ done, until: this.#plane.reactor.now + ownWaitMs, isAsked: false });
    this.#ask();
  }

  #endAwaits(isOver: (each: Await) => boolean): void {
    const over = [...this.#awaits].filter(isOver);
    for (const each of over) this.#awaits.delete(each);
    for (const { done } of over) done();
  }

  // --- the connection

  /** The next step to where all channels that are wanted are listened to, and no others. */
  #advance(): void {
    switch (this.state) {
      case ListenerState.closed:
        if (this.channels.size > 0) this.#begin();
        return;
      case ListenerState.failing:
        if (this.#plane.reactor.now >= this.#retryAt) this.#begin();
        return;
      case ListenerState.waiting:
        if (this.channels.size === 0) this.#begin();
        return;
      case ListenerState.connecting:
        return;
      case ListenerState.listening:
        return this.#ask();
    }
  }

  #begin(): void {
    this.#wait?.slots.withdraw(this.#wait.open);
    this.#wait = null;
    const pool = this.#nextPool();
    if (pool === null) {
      this.state = ListenerState.closed;
      return;
    }
    this.state = ListenerState.waiting;
    const slots = this.#plane.directSlots(pool.database.name, pool.user);
    const open = () => this.#connect(pool, slots);
    this.#wait = { slots, open };
    slots.request(open);
  }

  /** Whose login is used: that of any client that wants to be told; another one after a failure. */
  #nextPool(): Pool | null {
    const pools = new Set<Pool>();
    for (const { client } of this.#registrations) pools.add(client.pool as Pool);
    for (const { clients } of this.channels.values()) {
      for (const client of clients) if (pools.size < poolsMax) pools.add(client.pool as Pool);
      if (pools.size >= poolsMax) break;
    }
    if (pools.size > 1 && this.#failedPool !== null) pools.delete(this.#failedPool);
    return [...pools][this.#failures % Math.max(1, pools.size)] ?? null;
  }

  #connect(pool: Pool, slots: DirectSlots): void {
    this.#wait = null;
    this.state = ListenerState.connecting;
    this.#connection = new ListenerConnection(this.#plane, pool, slots, this.encoding, this);
    this.#connection.open(pool.hosts.take().host);
  }

  onUp(): void {
    this.state = ListenerState.listening;
    this.#upAt = this.#plane.reactor.now;
    this.#failure = null;
    this.#failedPool = null;
    this.#isLate = false;
    this.#ask();
  }

  onFailed(failure: Refusal): void {
    const pool = (this.#connection as ListenerConnection).pool;
    this.#connection = null;
    this.#failure = { hint: refusals.noListener.hint, ...failure };
    this.#failedPool = pool;
    this.#plane.logPool(pool, `the connection that listens failed: ${failure.message}`);
    this.#pause();
    if (verdictOf(failure.code) !== "refused") return;
    for (const registration of [...this.#registrations]) {
      if (registration.client.pool === pool) this.#end(registration, this.#failure);
    }
  }

  onLost(reason: string): void {
    this.#lose(reason);
    this.#endAwaits(() => true);
  }

  #lose(reason: string): void {
    const pool = (this.#connection as ListenerConnection).pool;
    this.#connection = null;
    for (const channel of [...this.channels.values()]) {
      channel.isListened = false;
      if (!channel.isWanted) this.#forget(channel);
      else this.#missing.add(channel);
      for (const { inbox } of channel.clients) if (inbox !== null) inbox.missed = true;
      if (channel.clients.size > 0) this.#lossUntold = true;
    }
    for (const registration of this.#registrations) {
      registration.left = registration.channels.length;
    }
    this.#batch = [];
    this.#empty.clear();
    if (this.channels.size > 0) {
      this.losses++;
      this.#plane.logPool(pool, `the connection that listens was lost: ${reason}`);
    }
    this.state = ListenerState.closed;
    // While it stops, the plane closes everything.
    if (this.#plane.stopping) return;
    if (this.#plane.reactor.now - this.#upAt < stableMs) return this.#pause();
    this.#failures = 0;
    this.#advance();
  }

  #pause(): void {
    this.state = ListenerState.failing;
    this.#failures++;
    const { reactor, settings } = this.#plane;
    const pauseMs = retryPauseMs(settings.serverLoginRetryMs, this.#failures, Math.random());
    this.#retryAt = reactor.now + pauseMs;
  }

  // --- its queries

  #ask(): void {
    const connection = this.#connection as ListenerConnection;
    if (connection.busy) return;
    const { now } = this.#plane.reactor;
    if (this.#missing.size > 0) {
      this.#batch = [...this.#missing].slice(0, batchMax);
      for (const channel of this.#batch) this.#missing.delete(channel);
      this.#send(this.#batch.map(({ name }) => `LISTEN ${quoted(name)}`).join(";"));
      return;
    }
    if (this.#lossUntold) this.#tellLoss();
    const unwanted: Channel[] = [];
    for (const channel of this.#empty) {
      if (now - channel.emptySince < lingerMs || unwanted.length === batchMax) break;
      unwanted.push(channel);
    }
    for (const channel of unwanted) this.#forget(channel);
    if (unwanted.length > 0) {
      this.#send(unwanted.map(({ name }) => `UNLISTEN ${quoted(name)}`).join(";"));
    } else if (this.#awaits.size > 0 || now - connection.heardAt >= silenceMs) {
      this.#send("");
    }
  }

  #send(sql: string): void {
    for (const each of this.#awaits) each.isAsked = true;
    (this.#connection as ListenerConnection).ask(sql);
  }

  onAnswer(failure: ParsedError | null): void {
    const batch = this.#batch;
    this.#batch = [];
    this.#isLate = false;
    this.#endAwaits(({ isAsked }) => isAsked);
    if (failure !== null) return this.#onRefused(batch, failure);
    this.#failure = null;
    const complete: Registration[] = [];
    for (const channel of batch) {
      channel.isListened = true;
      for (const registration of channel.registrations) {
        if (--registration.left === 0) complete.push(registration);
      }
      this.#review(channel);
    }
    for (const registration of complete) this.#end(registration, null);
    this.#advance();
  }

  #onRefused(batch: readonly Channel[], { code, message }: ParsedError): void {
    const refusal: Refusal = { code, message, hint: refusals.noListener.hint };
    this.#failure = refusal;
    let wanted = false;
    for (const channel of batch) {
      for (const registration of [...channel.registrations]) this.#end(registration, refusal);
      if (channel.isWanted) wanted = true;
      else this.#forget(channel);
    }
    // Clients that were told they listen: on another connection, perhaps.
    if (wanted) this.#connection?.close(`LISTEN failed: ${message}`);
    else this.#advance();
  }

  /** All is listened to again. */
  #tellLoss(): void {
    this.#lossUntold = false;
    for (const { clients } of this.channels.values()) {
      for (const client of clients) {
        const { inbox } = client;
        if (inbox === null || !inbox.missed) continue;
        inbox.missed = false;
        inbox.putLoss();
        this.#notifier.flush(client);
      }
    }
  }

  // --- notifications

  onNotification(bytes: Uint8Array): void {
    this.counts.received++;
    // Behind the header and a process id.
    const end = findNul(bytes, 9, bytes.length);
    const channel = this.channels.get(latin1Text(bytes.subarray(9, end)));
    if (channel === undefined) return;
    for (const client of channel.clients) this.#notifier.post(client, channel, bytes);
  }

  onRead(): void {
    this.#notifier.flushPosted();
  }

  // --- time

  /** Called ten times a second. */
  sweep(now: number): void {
    for (const registration of [...this.#registrations]) {
      if (now >= registration.until) this.#end(registration, this.#timeoutRefusal());
    }
    this.#endAwaits(({ until }) => {
      if (now < until) return false;
      this.#isLate = true;
      return true;
    });
    const connection = this.#connection;
    if (connection !== null && this.state === ListenerState.listening) {
      if (connection.busy && now - connection.heardAt >= answerMs) {
        connection.close("no answer from the server");
      } else if (this.channels.size === 0 && this.#isIdle(now)) {
        connection.close("server idle timeout");
      }
    }
    this.#advance();
  }

  /** Whether the connection, which nobody needs, has not been needed for a while, or another is needed more. */
  #isIdle(now: number): boolean {
    const { settings, pools } = this.#plane;
    const limit = Math.min(idleMs, settings.serverIdleTimeoutMs || idleMs);
    if (now - Math.max(this.#unusedSince, this.#upAt) >= limit) return true;
    for (const { database, waiting } of pools.values()) {
      if (database.name === this.database.name && waiting > 0) return true;
    }
    return false;
  }

  #timeoutRefusal(): Refusal {
    if (this.#failure !== null) return this.#failure;
    return this.#plane.budget.isSilent ? refusals.noCoordinator : refusals.noListener;
  }
}

/** A channel's name as it stands in SQL. */
function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
