// A replication client: it has a server connection of its own for as long as it lives, logged in with what
// it asked for itself, and its bytes go through unread. Nothing is pooled.
// Invariants: neither side is read while the other does not take what there is; when one side ends the
// other is ended at once; the pooler adds a message of its own only between two of the server's.

import { errnoText, type Timer } from "../../../shared/sys/mod.ts";
import {
  authenticationOk,
  backendFrameProblem,
  backendKeyData,
  concatBytes,
  parameterStatus,
  readInt32,
  readyForQuery,
} from "../../../shared/wire/mod.ts";
import type { ClientSession } from "./client.ts";
import type { DirectSlots } from "./direct_slots.ts";
import { withHint } from "./login_retry.ts";
import { loginNotice } from "./notices.ts";
import type { Pool } from "./pool.ts";
import { type Refusal, refusals } from "./refusals.ts";
import { ServerConnection } from "./server.ts";
import type { ServerConsumer, ServerOwner } from "./server_owner.ts";
import { ServerState } from "./server_state.ts";
import type { Replication } from "./startup.ts";
import { Counter } from "./stats.ts";

/** Terminate, as the last message that a client sends. */
const farewell = Uint8Array.of(0x58, 0, 0, 0, 4);

export class Tunnel implements ServerOwner, ServerConsumer {
  readonly replication: Replication;
  readonly startupParameters: ReadonlyMap<string, string>;
  readonly #client: ClientSession;
  readonly #pool: Pool;
  readonly #slots: DirectSlots;
  #server: ServerConnection | null = null;
  #timer: Timer | null = null;
  /** Bytes that are missing of the server's last message. */
  #bodyLeft = 0;
  #saidFarewell = false;

  constructor(
    client: ClientSession,
    pool: Pool,
    slots: DirectSlots,
    replication: Replication,
    parameters: ReadonlyMap<string, string>,
  ) {
    this.#client = client;
    this.#pool = pool;
    this.#slots = slots;
    this.replication = replication;
    this.startupParameters = parameters;
  }

  get lease() {
    return this.#slots.lease;
  }

  /** Whether it is in the middle of a message to the client. */
  get isMidMessage(): boolean {
    return this.#bodyLeft > 0;
  }

  /** The server connection, once the client is logged in to it. */
  get server(): ServerConnection | null {
    return this.#server?.consumer === this ? this.#server : null;
  }

  /** Waits for a slot, and logs in. */
  start(): void {
    const { plane } = this.#pool;
    const waitMs = this.#pool.waitTimeoutMs(this.#client);
    if (waitMs > 0) {
      this.#timer = plane.reactor.after(waitMs, () => {
        const { isSilent } = plane.budget;
        this.#client.fail(isSilent ? refusals.noCoordinator : refusals.queryWaitTimeout);
      });
    }
    this.#slots.request(this.#open);
  }

  readonly #open = () => {
    const { plane, database } = this.#pool;
    const server = new ServerConnection(plane, this.#pool, this, plane.nextId());
    this.#server = server;
    this.#slots.servers.add(server);
    server.connect(this.#pool.hosts.take().host, database.port);
  };

  // --- the server

  onReady(server: ServerConnection, parameters: ReadonlyMap<string, string>): void {
    this.#timer?.cancel();
    server.move(ServerState.active);
    server.consumer = this;
    const client = this.#client;
    client.plane.giveKey(client);
    client.plane.logNewServer(server);
    const reports = [...parameters].map(([name, value]) => parameterStatus(name, value));
    const notice = loginNotice(client.plane.settings.loginNotifyMessage);
    const key = backendKeyData(client.processId, client.secret);
    client.login?.enterTunnel(
      concatBytes(authenticationOk(), ...reports, notice, key, readyForQuery("I")),
    );
  }

  onIdle(): void {
    throw new Error("idle server: it is a replication client's, wanted one of a pool");
  }

  onClosed(server: ServerConnection): void {
    this.#slots.servers.delete(server);
    if (server.consumer === this) this.#client.closeAfterFlush("server closed the connection");
  }

  onLoginFailed(_server: ServerConnection, failure: Refusal): void {
    this.#client.fail(withHint(failure));
  }

  onSlotFree(): void {
    this.#slots.onSlotFree();
  }

  consume(at: number, end: number): number {
    const client = this.#client;
    const { outlet, arena: { bytes } } = client.plane;
    this.#pool.counters[Counter.bytesSent]! += end - at;
    const start = at;
    const part = Math.min(this.#bodyLeft, end - at);
    this.#bodyLeft -= part;
    at += part;
    while (end - at >= 5) {
      const length = readInt32(bytes, at + 1);
      if (backendFrameProblem(bytes[at] as number, length) !== null) {
        this.#server?.close("bad pkt header");
        return end;
      }
      const next = at + 1 + length;
      if (next > end) this.#bodyLeft = next - end;
      at = Math.min(next, end);
    }
    outlet.begin(client.stream);
    outlet.pass(start, at);
    const pending = outlet.flush();
    if (pending < 0) client.close(`client connection lost: ${errnoText(-pending)}`);
    else if (pending > 0) this.#server?.stream.pause(false);
    return at;
  }

  onServerDrained(): void {
    this.#client.stream.resume();
  }

  // --- the client

  /** The client's bytes [at, end) of the arena. */
  fromClient(at: number, end: number): void {
    const server = this.#server as ServerConnection;
    const { outlet, arena: { bytes } } = this.#pool.plane;
    this.#pool.counters[Counter.bytesReceived]! += end - at;
    this.#saidFarewell = end - at >= farewell.length &&
      farewell.every((byte, i) => bytes[end - farewell.length + i] === byte);
    outlet.begin(server.stream);
    outlet.pass(at, end);
    const pending = outlet.flush();
    if (pending < 0) server.onBroken(errnoText(-pending));
    else if (pending > 0) this.#client.stream.pause(true);
  }

  onClientDrained(): void {
    this.server?.stream.resume();
  }

  onClientGone(reason: string): void {
    this.#timer?.cancel();
    this.#slots.withdraw(this.#open);
    const server = this.#server;
    if (server === null || server.isClosed) return;
    // A backend that sends a base backup would not notice before it is done.
    if (!this.#saidFarewell && server.login === null) server.plane.cancels.abandon(server);
    server.close(`client disconnected: ${reason}`);
  }
}
