// One client of the embedded broker: login, its subscriptions, its bounded output. Routing between
// clients is the broker's. Nothing a client does here throws or reaches another client's state.
// Invariants: nothing but CONNECT is taken before the login; at most one write is in flight, what
// waits behind it is bounded, and a client that does not read is cut.

import { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import { CommandParser, type CommandSink } from "./command_parser.ts";
import { covers, isLiteralSubject, isPattern } from "./subject_tree.ts";
import type { Rights } from "./subjects.ts";

export interface Subscription {
  readonly session: Session;
  readonly sid: string;
  readonly pattern: string;
  /** "" for a plain subscription. */
  readonly queue: string;
  delivered: number;
  /** Ends the subscription after so many deliveries; 0: never. */
  max: number;
}

/** What a session asks of its broker. */
export interface SessionHost {
  readonly maxPayloadBytes: number;
  readonly maxPendingBytes: number;
  readonly maxSubscriptions: number;
  readonly authTimeoutMs: number;
  readonly maxPingsOut: number;
  /** The rights of this token, compared in constant time; null for an unknown one. */
  login(token: string): Rights | null;
  addSubscription(subscription: Subscription): void;
  removeSubscription(subscription: Subscription): void;
  /** Hands the message to all who subscribed; the number of them. */
  route(from: Session, subject: string, reply: string, headers: number, data: Uint8Array): number;
  /** This session has output: flush it when the current input is used up. */
  markDirty(session: Session): void;
  flush(): void;
  /** Once per session, with the reason it was cut for, or null when the client left. */
  onEnd(session: Session, reason: CutReason | null): void;
  onDenied(session: Session, what: "publish" | "subscription"): void;
  onNoResponders(): void;
}

export type CutReason =
  | "auth"
  | "auth_timeout"
  | "protocol"
  | "slow_consumer"
  | "stale"
  | "too_many_connections"
  | "shutdown";

interface ConnectOptions {
  readonly verbose: boolean;
  readonly echo: boolean;
  readonly headers: boolean;
  readonly noResponders: boolean;
}

/**
 * greeting: waits for CONNECT. open: logged in. closing: an error is on its way out, input is
 * ignored. closed: the socket is gone; the last state.
 */
type State = "greeting" | "open" | "closing" | "closed";

/** How long a client that is cut may take to read the reason. */
const lingerMs = 1000;

export class Session implements CommandSink {
  readonly id: number;
  readonly #host: SessionHost;
  readonly #socket: Socket;
  readonly #parser: CommandParser;
  readonly #subscriptions = new Map<string, Subscription>();
  #state: State = "greeting";
  #reason: CutReason | null = null;
  #options: ConnectOptions = { verbose: false, echo: true, headers: false, noResponders: false };
  #rights: Rights = { publish: [], subscribe: [] };
  /** The login timer, later the linger timer. */
  #timer: ReturnType<typeof setTimeout>;
  #queue: Buffer[] = [];
  #queuedBytes = 0;
  #flyingBytes = 0;
  #pingsOut = 0;
  #heard = false;

  constructor(id: number, socket: Socket, host: SessionHost, info: string) {
    this.id = id;
    this.#host = host;
    this.#socket = socket;
    this.#parser = new CommandParser(this, host.maxPayloadBytes);
    this.#timer = setTimeout(
      () => this.#cut("auth_timeout", "Authentication Timeout"),
      host.authTimeoutMs,
    );
    socket.setNoDelay(true);
    socket.on("data", (chunk: Buffer) => this.#onData(chunk));
    socket.on("error", () => {}); // "close" follows
    socket.on("close", () => this.#onClose());
    this.#send(Buffer.from(info));
    this.flush();
  }

  get open(): boolean {
    return this.#state === "greeting" || this.#state === "open";
  }

  get echo(): boolean {
    return this.#options.echo;
  }

  // Commands.

  allows(operation: string): boolean {
    const connecting = operation === "CONNECT";
    if (connecting === (this.#state === "greeting")) return true;
    if (connecting) this.#cut("protocol", "Unknown Protocol Operation");
    else this.#cut("auth", "Authorization Violation");
    return false;
  }

  onConnect(json: string): void {
    const options = readConnect(json);
    if (options === null) return this.#cut("protocol", "Parser Error");
    const rights = this.#host.login(options.token);
    if (rights === null) return this.#cut("auth", "Authorization Violation");
    if (options.noResponders && !options.headers) {
      return this.#cut("protocol", "No Responders Requires Headers Support");
    }
    clearTimeout(this.#timer);
    this.#rights = rights;
    this.#options = options;
    this.#state = "open";
    this.#acknowledge();
  }

  onPing(): void {
    this.#send(pong);
  }

  onPong(): void {
    this.#pingsOut = 0;
  }

  onPublish(subject: string, reply: string, headerBytes: number, data: Uint8Array): void {
    if (!isLiteralSubject(subject) || (reply !== "" && !isLiteralSubject(reply))) {
      return this.#complain("Invalid Publish Subject");
    }
    if (!this.#rights.publish.some((allowed) => covers(allowed, subject))) {
      this.#host.onDenied(this, "publish");
      return this.#complain(`Permissions Violation for Publish to "${subject}"`);
    }
    this.#acknowledge();
    const reached = this.#host.route(this, subject, reply, headerBytes, data);
    if (reached === 0 && reply !== "" && this.#options.noResponders) this.#noResponders(reply);
  }

  onSubscribe(pattern: string, queue: string, sid: string): void {
    if (!isPattern(pattern) || (queue !== "" && !isPattern(queue))) {
      return this.#complain("Invalid Subject");
    }
    if (!this.#rights.subscribe.some((allowed) => covers(allowed, pattern))) {
      this.#host.onDenied(this, "subscription");
      const using = queue === "" ? "" : ` using queue "${queue}"`;
      return this.#complain(`Permissions Violation for Subscription to "${pattern}"${using}`);
    }
    // A sid that is in use stays what it is, as in NATS servers.
    if (!this.#subscriptions.has(sid)) {
      if (this.#subscriptions.size >= this.#host.maxSubscriptions) {
        return this.#complain("maximum subscriptions exceeded");
      }
      const subscription = { session: this, sid, pattern, queue, delivered: 0, max: 0 };
      this.#subscriptions.set(sid, subscription);
      this.#host.addSubscription(subscription);
    }
    this.#acknowledge();
  }

  onUnsubscribe(sid: string, max: number): void {
    const subscription = this.#subscriptions.get(sid);
    if (subscription !== undefined) {
      subscription.max = max;
      if (subscription.delivered >= max) this.#drop(subscription);
    }
    this.#acknowledge();
  }

  // Output.

  /** Queues one message; the caller matched the subscription. */
  deliver(
    subscription: Subscription,
    subject: string,
    reply: string,
    headerBytes: number,
    data: Uint8Array,
  ): void {
    const to = reply === "" ? "" : `${reply} `;
    const headers = this.#options.headers ? headerBytes : 0;
    const body = headers === headerBytes ? data : data.subarray(headerBytes);
    const head = headers > 0
      ? `HMSG ${subject} ${subscription.sid} ${to}${headers} ${body.length}\r\n`
      : `MSG ${subject} ${subscription.sid} ${to}${body.length}\r\n`;
    const frame = Buffer.allocUnsafe(head.length + body.length + 2);
    frame.write(head, "latin1");
    frame.set(body, head.length);
    frame.write("\r\n", head.length + body.length, "latin1");
    this.#send(frame);
    subscription.delivered += 1;
    if (subscription.max > 0 && subscription.delivered >= subscription.max) {
      this.#drop(subscription);
    }
  }

  /** Hands what is queued to the socket, unless a write is in flight: then its end does. */
  flush(): void {
    if (this.#queuedBytes === 0 || this.#flyingBytes > 0 || this.#state === "closed") return;
    const bytes = this.#takeQueue();
    this.#flyingBytes = bytes.length;
    this.#socket.write(bytes, () => {
      this.#flyingBytes = 0;
      this.flush();
    });
  }

  /** On each tick of the broker: asks a silent client whether it lives, gives up on a mute one. */
  tick(): void {
    if (this.#state !== "open") return;
    if (this.#heard) {
      this.#heard = false;
      this.#pingsOut = 0;
      return;
    }
    if (this.#pingsOut >= this.#host.maxPingsOut) return this.#cut("stale", "Stale Connection");
    this.#pingsOut += 1;
    this.#send(ping);
  }

  refuse(): void {
    this.#cut("too_many_connections", "maximum connections exceeded");
  }

  destroy(): void {
    this.#reason ??= "shutdown";
    this.#socket.destroy();
  }

  #send(bytes: Buffer): void {
    if (!this.open) return;
    this.#queue.push(bytes);
    this.#queuedBytes += bytes.length;
    if (this.#queuedBytes + this.#flyingBytes > this.#host.maxPendingBytes) {
      // It does not read: it would not read the reason either.
      this.#leave("slow_consumer");
      this.#socket.destroy();
      return;
    }
    this.#host.markDirty(this);
  }

  #takeQueue(): Buffer {
    const bytes = this.#queue.length === 1 && this.#queue[0] !== undefined
      ? this.#queue[0]
      : Buffer.concat(this.#queue);
    this.#queue = [];
    this.#queuedBytes = 0;
    return bytes;
  }

  #acknowledge(): void {
    if (this.#options.verbose) this.#send(ok);
  }

  /** An error the connection survives. */
  #complain(text: string): void {
    this.#send(errorLine(text));
  }

  /** Says why, then closes; the client may take a moment to read it. */
  #cut(reason: CutReason, text: string): void {
    if (!this.open) return;
    this.#send(errorLine(text));
    if (!this.open) return;
    this.#leave(reason);
    this.#timer = setTimeout(() => this.#socket.destroy(), lingerMs);
    this.#socket.end(this.#takeQueue());
  }

  #leave(reason: CutReason | null): void {
    this.#state = "closing";
    this.#reason = reason;
    clearTimeout(this.#timer);
    for (const subscription of this.#subscriptions.values()) {
      this.#host.removeSubscription(subscription);
    }
    this.#subscriptions.clear();
  }

  // Events.

  #onData(chunk: Buffer): void {
    if (!this.open) return;
    this.#heard = true;
    const error = this.#parser.feed(chunk);
    if (error !== null) this.#cut("protocol", error);
    this.#host.flush();
  }

  #onClose(): void {
    if (this.open) this.#leave(this.#reason);
    clearTimeout(this.#timer);
    this.#state = "closed";
    this.#queue = [];
    this.#host.onEnd(this, this.#reason);
  }

  #drop(subscription: Subscription): void {
    this.#subscriptions.delete(subscription.sid);
    this.#host.removeSubscription(subscription);
  }

  /** Nobody listens: the client is told at once, on its own subscription for the reply. */
  #noResponders(reply: string): void {
    for (const subscription of this.#subscriptions.values()) {
      // A member of a queue group may be another client's: NATS servers leave those out too.
      if (subscription.queue !== "" || !covers(subscription.pattern, reply)) continue;
      this.#host.onNoResponders();
      this.deliver(subscription, reply, "", noRespondersHeader.length, noRespondersHeader);
      return;
    }
  }
}

const ping = Buffer.from("PING\r\n");
const pong = Buffer.from("PONG\r\n");
const ok = Buffer.from("+OK\r\n");
const noRespondersHeader = Buffer.from("NATS/1.0 503\r\n\r\n");

function errorLine(text: string): Buffer {
  return Buffer.from(`-ERR '${text}'\r\n`, "latin1");
}

function readConnect(json: string): ConnectOptions & { token: string } | null {
  let raw: unknown;
  try {
    raw = JSON.parse(json);
  } catch {
    return null;
  }
  if (typeof raw !== "object" || raw === null) return null;
  const { auth_token: token, verbose, echo, headers, no_responders: noResponders } = raw as Record<
    string,
    unknown
  >;
  return {
    token: typeof token === "string" ? token : "",
    verbose: verbose === true,
    echo: echo !== false,
    headers: headers === true,
    noResponders: noResponders === true,
  };
}
