// LISTEN for clients whose server changes with each transaction. A LISTEN runs on the client's server, in its
// transaction; when that has ended, the client's ReadyForQuery is held back, its server is asked which channels
// have come of it and made to forget them, and they are registered with the database's listener. Then the
// client goes on, and is told what the listener hears while no transaction of its is open.
// Session pooling has nothing to do with all this: there LISTEN is the server's and the client's own affair.

import {
  latin1Bytes,
  latin1Text,
  parseDataRow,
  type ParsedError,
  SqlFlag,
} from "../../../shared/wire/mod.ts";
import type { DatabaseConfig } from "../../../shared/config/mod.ts";
import type { ClientSession } from "./client.ts";
import { Inbox } from "./inbox.ts";
import { allChannels } from "./listen_state.ts";
import { type Channel, ChannelListener, type Registration } from "./listener.ts";
import type { Plane } from "./plane.ts";
import type { Pool } from "./pool.ts";
import { error, readyIdle, type Refusal, refusals } from "./refusals.ts";
import { ofListeners } from "./residue.ts";
import type { ServerConnection } from "./server.ts";
import type { TextNames } from "./text_names.ts";

/** Every wait has an end, where query_wait_timeout is off too. */
const longestWaitMs = 120_000;
const takeChannels = "SELECT pg_catalog.pg_listening_channels();UNLISTEN *";
const utf8 = new TextDecoder();

export class Notifier {
  readonly #plane: Plane;
  /** By database and client_encoding: a notification is passed on as it comes. */
  readonly #listeners = new Map<string, ChannelListener>();
  readonly #registrations = new Map<ClientSession, Registration>();
  /** Clients whose ReadyForQuery is held back until they are told what they have notified themselves. */
  readonly #echoed = new Set<ClientSession>();
  /** Clients whose inbox something was put into. */
  readonly #posted = new Set<ClientSession>();

  constructor(plane: Plane) {
    this.#plane = plane;
  }

  get listeners(): Iterable<ChannelListener> {
    return this.#listeners.values();
  }

  /** The configuration has changed; `remaining`: what a database is now, null if it is not there any more. */
  renew(remaining: (database: string) => DatabaseConfig | null): void {
    for (const listener of [...this.#listeners.values()]) {
      const { name } = listener.database;
      const database = remaining(name);
      if (database === null) this.forget(name, refusals.databaseRemoved);
      else listener.renew(database);
    }
  }

  /** The database is not there any more: nobody is left to be told. */
  forget(database: string, refusal: Refusal): void {
    for (const [key, listener] of this.#listeners) {
      if (listener.database.name !== database) continue;
      this.#listeners.delete(key);
      listener.end(refusal);
    }
  }

  // --- the end of a transaction

  /**
   * Before the ReadyForQuery of a transaction's end: passes on what has waited for it, by the outlet. True if
   * the client is not to have that ReadyForQuery yet: then `withhold` follows when all else is sent.
   */
  onTransactionEnd(server: ServerConnection, client: ClientSession): boolean {
    const { listen } = server.residue;
    const isOver = server.synced && server.requests.count === 0 && !client.isSending &&
      client.output !== null;
    if (isOver && listen.listening) return true;
    if (!listen.listening && listen.isDue) this.#unlisten(client, listen.takeGone());
    if (isOver && client.inbox?.notifies) return true;
    this.#putWaiting(client);
    return false;
  }

  /** Does what there is to do before the ReadyForQuery of a transaction's end, and gives it to the client then. */
  withhold(server: ServerConnection, client: ClientSession): void {
    client.holdInput();
    if (server.residue.listen.listening) return this.#askChannels(server, client);
    this.#giveBack(server, client);
    if (!client.closed) this.#conclude(client, null);
  }

  /** Nobody else need wait for a server until the listener has done its part. */
  #giveBack(server: ServerConnection, client: ClientSession): void {
    if (!client.keeps && !server.residue.locksUnsure) server.release();
  }

  /** Finds out what its client listens to, and registers it. */
  #askChannels(server: ServerConnection, client: ClientSession): void {
    const names: string[] = [];
    server.ask(takeChannels, {
      onTag: null,
      onRow: (body) => {
        const name = parseDataRow(body)?.[0] ?? null;
        if (name !== null) names.push(latin1Text(name));
      },
      onEnd: (failure) => {
        if (client.server === server) this.#onChannels(server, client, names, failure);
      },
    });
  }

  #onChannels(
    server: ServerConnection,
    client: ClientSession,
    names: readonly string[],
    failure: ParsedError | null,
  ): void {
    const { listen } = server.residue;
    this.#unlisten(client, listen.takeGone());
    if (failure !== null) {
      // What it listens to is wiped before anybody else gets it.
      return this.goOn(client, { code: failure.code, message: failure.message });
    }
    listen.clear();
    const encoding = server.session.valueOf("client_encoding") ?? "";
    this.#giveBack(server, client);
    if (client.closed) return;
    if (names.length === 0) return this.#conclude(client, null);
    this.#register(client, names, encoding);
  }

  #register(client: ClientSession, names: readonly string[], encoding: string): void {
    const { now } = this.#plane.reactor;
    const pool = client.pool as Pool;
    const listener = this.#listenerOf(pool, encoding);
    const impossible = listener.server === null ? this.#impossible(pool) : null;
    if (impossible !== null) return this.#conclude(client, impossible);
    const until = now + (pool.waitTimeoutMs(client) || longestWaitMs);
    let isOver = false;
    const registration = listener.register(client, names, until, (refusal, channels) => {
      isOver = true;
      this.#registrations.delete(client);
      if (client.closed) return;
      if (refusal === null) this.#enter(client, channels);
      this.#conclude(client, refusal);
    });
    if (!isOver) this.#registrations.set(client, registration);
  }

  #listenerOf({ database }: Pool, encoding: string): ChannelListener {
    const key = `${database.name}\0${encoding}`;
    let listener = this.#listeners.get(key);
    if (listener === undefined) {
      listener = new ChannelListener(this.#plane, this, database, encoding);
      this.#listeners.set(key, listener);
    }
    return listener;
  }

  /** Why there can be no listener beside the one server connection that the limits allow; or null. */
  #impossible({ database, user }: Pool): Refusal | null {
    const { settings, config } = this.#plane;
    const ofDatabase = database.maxDbConnections ?? settings.maxDbConnections;
    const ofUser = config.users.get(user)?.maxUserConnections ?? settings.maxUserConnections;
    const isTooSmall = (limit: number) => limit > 0 && this.#plane.share(limit) < 2;
    if (isTooSmall(ofDatabase)) return refusals.noDatabaseListener;
    return isTooSmall(ofUser) ? refusals.noUserListener : null;
  }

  #enter(client: ClientSession, channels: readonly Channel[]): void {
    client.inbox ??= new Inbox();
    client.heeded |= ofListeners;
    for (const channel of channels) {
      // It may have listened to a channel of that name in another encoding.
      const before = client.inbox.channels.get(channel.name);
      if (before === channel) continue;
      if (before !== undefined) this.#leave(client, before);
      client.inbox.channels.set(channel.name, channel);
      channel.clients.add(client);
    }
  }

  /** Gives the client its ReadyForQuery, behind what it has notified itself. */
  #conclude(client: ClientSession, refusal: Refusal | null): void {
    const { inbox } = client;
    if (inbox === null || !inbox.notifies) return this.goOn(client, refusal);
    inbox.notifies = false;
    this.#echoed.add(client);
    const listeners = new Set([...inbox.channels.values()].map(({ listener }) => listener));
    let left = listeners.size + 1;
    const done = () => {
      if (--left > 0) return;
      this.#echoed.delete(client);
      if (!client.closed) this.goOn(client, refusal);
    };
    for (const listener of listeners) listener.catchUp(done);
    done();
  }

  /** Gives the client its ReadyForQuery. */
  goOn(client: ClientSession, refusal: Refusal | null): void {
    const { outlet } = this.#plane;
    outlet.begin(client.stream);
    this.#putWaiting(client);
    if (refusal !== null) outlet.put(error(refusal));
    outlet.put(readyIdle);
    outlet.flush();
    client.carryOn();
  }

  // --- what clients do not listen to any more

  /** Names are as they stand in UNLISTEN. */
  #unlisten(client: ClientSession, names: readonly string[]): void {
    const { inbox } = client;
    if (inbox === null) return;
    for (const name of names) {
      for (const channel of [...inbox.channels.values()]) {
        if (name === allChannels || name === utf8Of(channel.name)) this.#leave(client, channel);
      }
    }
  }

  #leave(client: ClientSession, channel: Channel): void {
    client.inbox?.channels.delete(channel.name);
    client.inbox?.drop(channel);
    channel.listener.leave(channel, client);
  }

  onClientClosed(client: ClientSession): void {
    const registration = this.#registrations.get(client);
    if (registration !== undefined) this.#cancel(registration, refusals.shuttingDown);
    const { inbox } = client;
    if (inbox === null) return;
    inbox.close();
    for (const channel of inbox.channels.values()) channel.listener.leave(channel, client);
    inbox.channels.clear();
    this.#posted.delete(client);
    this.#echoed.delete(client);
  }

  /** The client gives up what it waits for. False if it does not wait. */
  cancel(client: ClientSession): boolean {
    const registration = this.#registrations.get(client);
    if (registration === undefined) return false;
    this.#cancel(registration, refusals.cancelledInQueue);
    return true;
  }

  #cancel(registration: Registration, refusal: Refusal): void {
    registration.channels[0]?.listener.cancel(registration, refusal);
  }

  // --- notifications

  /** A client sends a text with these flags and names, which notifies somebody: itself, perhaps. */
  onNotify({ inbox }: ClientSession, flags: number, { notified }: TextNames): void {
    if (inbox === null) return;
    const heard = [...inbox.channels.keys()].map(utf8Of);
    inbox.notifies ||= (flags & SqlFlag.namesNotify) !== 0 ||
      notified.some((name) => name === "" || heard.includes(name));
  }

  /** A notification for a client: sent by `flushPosted`, or when the client is at rest. */
  post(client: ClientSession, channel: Channel, bytes: Uint8Array): void {
    const { inbox } = client;
    if (inbox === null || inbox.full || client.output === null) return;
    if (inbox.put(channel, bytes, client.stream.pending)) this.#posted.add(client);
    else if (client.server?.isMidMessage) client.closeAfterFlush("notification queue is full");
    else client.fail(refusals.tooManyNotifications);
  }

  flushPosted(): void {
    for (const client of this.#posted) this.flush(client);
    this.#posted.clear();
  }

  /** Sends a client what has waited, if it is at rest. */
  flush(client: ClientSession): void {
    if (client.inbox === null || client.inbox.count === 0) return;
    const isOpen = this.#echoed.has(client) ? canTake(client) : isAtRest(client);
    if (!isOpen) return;
    const { outlet } = this.#plane;
    outlet.begin(client.stream);
    this.#putWaiting(client);
    outlet.flush();
  }

  #putWaiting({ inbox }: ClientSession): void {
    if (inbox === null || inbox.count === 0) return;
    for (const bytes of inbox.take()) this.#plane.outlet.put(bytes);
  }

  // --- time

  /** Called ten times a second. */
  sweep(now: number): void {
    for (const listener of this.#listeners.values()) listener.sweep(now);
  }
}

/** Whether a client has nothing under way and has taken all that it was sent. */
function isAtRest(client: ClientSession): boolean {
  const { server } = client;
  if (client.queued || client.awaitsSync || !canTake(client)) return false;
  return server === null || (server.quiet && !server.isMidMessage);
}

/** Whether something can be sent to it that is not waited for. */
function canTake(client: ClientSession): boolean {
  return !client.closed && client.output !== null && client.stream.pending === 0;
}

/** A name of one character per byte as the text it is in UTF-8. */
function utf8Of(name: string): string {
  return /^[\0-\x7f]*$/.test(name) ? name : utf8.decode(latin1Bytes(name));
}
