// A TCP relay to put between a pooler and its server (or a client and a pooler): it can hold traffic back, cut it
// into small pieces, swallow it, or cut the line. It tells connections that begin with a CancelRequest from
// sessions, and treats the two kinds as told.
// A connection is passed on only when its first 8 bytes are there.

import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { readInt32 } from "../../shared/wire/mod.ts";
import type { Target } from "./raw_client.ts";

/** How traffic of one kind is treated; may be changed at any time and applies to what comes next. */
export interface Treatment {
  /** Every piece is passed on this long after it came. */
  delayMs: number;
  /** The largest piece passed on in one write; 0 = as it came. */
  pieceBytes: number;
  /** While there is one, nothing of a new connection is passed on before it is fulfilled. */
  gate: Promise<void> | null;
  /** Takes everything and passes nothing on; new connections are taken and not connected through. */
  blackHole: boolean;
}

const CANCEL_CODE = 80877102;
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** One connection through the relay. */
export class RelayLink {
  readonly kind: "session" | "cancel";
  /** Bytes passed on, from the client's side and from the server's side. */
  bytesFromClient = 0;
  bytesFromServer = 0;
  readonly #sockets: readonly Socket[];
  isClosed = false;

  constructor(kind: "session" | "cancel", sockets: readonly Socket[]) {
    this.kind = kind;
    this.#sockets = sockets;
  }

  /** Ends both sides, with FIN or with RST. */
  cut(how: "fin" | "reset" = "reset"): void {
    for (const socket of this.#sockets) {
      if (how === "fin") socket.end();
      else socket.resetAndDestroy();
    }
  }
}

export class Relay {
  readonly host = "127.0.0.1";
  port = 0;
  readonly sessions: Treatment = { delayMs: 0, pieceBytes: 0, gate: null, blackHole: false };
  readonly cancels: Treatment = { delayMs: 0, pieceBytes: 0, gate: null, blackHole: false };
  /** Every link so far, also closed ones. */
  readonly links: RelayLink[] = [];
  target: Target;
  readonly #sockets = new Set<Socket>();
  #server: Server | null = null;

  constructor(target: Target) {
    this.target = target;
  }

  get open(): RelayLink[] {
    return this.links.filter((link) => !link.isClosed);
  }

  /** Listens, on the same port as before if it did before. */
  async listen(): Promise<void> {
    const server = createServer({ noDelay: true, allowHalfOpen: true }, (s) => this.#accept(s));
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen({ port: this.port, host: this.host }, resolve);
    });
    this.#server = server;
    this.port = (server.address() as AddressInfo).port;
  }

  /** Refuses new connections until `listen`; existing ones go on. */
  refuse(): void {
    this.#server?.close();
    this.#server = null;
  }

  /** Cuts all links. */
  cut(how: "fin" | "reset" = "reset"): void {
    for (const link of this.open) link.cut(how);
  }

  /** Stops listening and drops everything. */
  async stop(): Promise<void> {
    const server = this.#server;
    this.#server = null;
    const closed = new Promise<void>((resolve) =>
      server ? server.close(() => resolve()) : resolve()
    );
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => this.#sockets.delete(socket));
  }

  #accept(client: Socket): void {
    this.#keep(client);
    let head = new Uint8Array(0);
    const onData = (bytes: Uint8Array) => {
      head = Uint8Array.from([...head, ...bytes]);
      if (head.length < 8) return;
      client.off("data", onData);
      client.pause();
      const kind = readInt32(head, 0) >= 16 && readInt32(head, 4) === CANCEL_CODE
        ? "cancel"
        : "session";
      void this.#connectThrough(client, head, kind);
    };
    client.on("data", onData);
    client.on("end", () => {
      if (head.length < 8) client.end();
    });
  }

  async #connectThrough(
    client: Socket,
    head: Uint8Array,
    kind: "session" | "cancel",
  ): Promise<void> {
    const treatment = kind === "cancel" ? this.cancels : this.sessions;
    if (treatment.blackHole) {
      const link = new RelayLink(kind, [client]);
      this.links.push(link);
      client.on("close", () => link.isClosed = true);
      client.on("end", () => client.end());
      client.resume();
      return;
    }
    await pause(treatment.delayMs);
    await treatment.gate;
    const target = this.target;
    const server = connect({
      ...("path" in target ? { path: target.path } : { host: target.host, port: target.port }),
      allowHalfOpen: true,
      noDelay: true,
    });
    this.#keep(server);
    const link = new RelayLink(kind, [client, server]);
    this.links.push(link);
    pump(client, server, treatment, head, (n) => link.bytesFromClient += n);
    pump(server, client, treatment, null, (n) => link.bytesFromServer += n);
    let open = 2;
    for (const [socket, other] of [[client, server], [server, client]] as const) {
      socket.on("close", (hadError) => {
        if (hadError && !other.destroyed) other.resetAndDestroy();
        open--;
        link.isClosed = open === 0;
      });
    }
  }
}

/** Passes on what `from` sends, in order, each piece after the delay that held when it came. */
function pump(
  from: Socket,
  to: Socket,
  treatment: Treatment,
  head: Uint8Array | null,
  count: (bytes: number) => void,
): void {
  let queue = Promise.resolve();
  const write = (piece: Uint8Array) =>
    new Promise<void>((resolve) => {
      // A destroyed socket calls back with an error: what was on its way is lost with the line.
      if (to.destroyed) return resolve();
      count(piece.length);
      to.write(piece, () => resolve());
    });
  const pass = (bytes: Uint8Array, delayMs = treatment.delayMs) => {
    if (treatment.blackHole) return;
    const due = performance.now() + delayMs;
    from.pause();
    queue = queue.then(async () => {
      const early = due - performance.now();
      if (early > 0) await pause(early);
      const size = treatment.pieceBytes || bytes.length;
      for (let at = 0; at < bytes.length; at += size) {
        if (at > 0) await pause(1);
        await write(bytes.subarray(at, at + size));
      }
    });
    // Reading goes on while a delayed piece waits, but not past a peer that does not take what is written.
    if (delayMs > 0) from.resume();
    else void queue.then(() => from.resume());
  };
  // The first bytes have waited before the connection was made.
  if (head !== null) pass(head, 0);
  from.on("data", (bytes: Uint8Array) => pass(bytes));
  from.on("end", () => {
    if (treatment.blackHole) return;
    const due = performance.now() + treatment.delayMs;
    queue = queue.then(async () => {
      await pause(Math.max(0, due - performance.now()));
      if (!to.destroyed) to.end();
    });
  });
}

export async function startRelay(target: Target): Promise<Relay> {
  const relay = new Relay(target);
  await relay.listen();
  return relay;
}
