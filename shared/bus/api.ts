// What a bus is to those who use it. Types only; bus.ts implements them over NATS.

import type { Logger } from "../telemetry/mod.ts";
import type { BusAddress } from "./connection_options.ts";
import type { MeshSubjects, Pattern, Subject } from "./subjects.ts";

export interface BusOptions extends BusAddress {
  readonly logger: Logger;
  /** How long the first connect is tried; default 10,000, 0 tries once. */
  readonly waitOnFirstConnectMs?: number | undefined;
  /** Resolve at once and connect behind the scenes, for ever; `onReconnect` tells when it is up. */
  readonly background?: boolean | undefined;
}

/** Numbers since the bus was made; they only grow. */
export interface BusCounters {
  published: number;
  /** Not sent: there was no connection. */
  droppedDisconnected: number;
  /** Not sent: the broker takes nothing and the output bound is reached. */
  droppedBacklog: number;
  received: number;
  /** Received and dropped, by reason. */
  tooLarge: number;
  malformed: number;
  newerVersion: number;
  /** Requests that came too long after they were asked for. */
  stale: number;
  /** Handlers that threw or rejected. */
  handlerErrors: number;
  requests: number;
  /** Requests that ended in an error of any code. */
  requestErrors: number;
  disconnects: number;
  reconnects: number;
  /** Errors the broker reported, such as a refused permission. */
  brokerErrors: number;
}

/** What a handler may know besides the message. */
export interface Delivery {
  readonly subject: string;
}

export type Handler<M, R> = R extends null
  ? (message: M, delivery: Delivery) => void | Promise<void>
  /** null = no answer: who asked gets none in time, and asks again. */
  : (message: M, delivery: Delivery) => R | null | Promise<R | null>;

export interface Bus {
  readonly mesh: string;
  /** The subjects of this mesh. */
  readonly subjects: MeshSubjects;
  /** False from the moment a loss is noticed (a frozen broker: within 6 s) to the reconnect. */
  readonly connected: boolean;
  readonly counters: Readonly<BusCounters>;
  /**
   * Sends and forgets. False when it was dropped, since there is no connection or no room; never
   * throws for that. Throws `INVALID` for a payload out of its kind's bounds.
   */
  publish<M extends object, R>(subject: Subject<M, R>, message: M): boolean;
  /** Calls the handler for each message, and sends back what it returns if the kind has replies. */
  subscribe<M, R>(pattern: Pattern<M, R>, handler: Handler<M, R>): () => void;
  /** Rejects with a `BusError`: `TIMEOUT`, `NO_RESPONDERS`, `REFUSED`, `DISCONNECTED`, `CLOSED`, `BAD_REPLY`. */
  request<M extends object, R extends object>(
    subject: Subject<M, R>,
    message: M,
    timeoutMs: number,
  ): Promise<R>;
  /**
   * Called after each reconnect, when the subscriptions are in place again, and after the first
   * connect of a bus made with `background`. Returns the way to stop it.
   */
  onReconnect(callback: () => void): () => void;
  /** Milliseconds there and back; rejects with a `BusError` when disconnected. */
  roundTripMs(): Promise<number>;
  /** Takes nothing new, lets running handlers answer, sends what is queued, disconnects. */
  close(): Promise<void>;
}
