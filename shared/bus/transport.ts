// The NATS client's TCP transport with its gaps closed. Not a protocol: bytes pass through
// untouched. Ours to keep: a socket is destroyed whenever its transport is closed, at any moment, and no error
// of a socket, whenever it comes, ends the process.

import { createConnection, type Socket } from "node:net";
import {
  checkServerIdentity,
  connect as connectTls,
  type ConnectionOptions as TlsConnectOptions,
  type TLSSocket,
} from "node:tls";
import {
  type ConnectionOptions,
  type NatsConnection,
  NatsConnectionImpl,
  setTransportFactory,
} from "nats";
import { nodeResolveHost, NodeTransport } from "nats/lib/node_transport.js";

/** Told of every transport the client makes, before it dials. */
export type OnTransport = (transport: BusTransport) => void;

type Options = ConnectionOptions & { readonly onTransport?: OnTransport };

export class BusTransport extends NodeTransport {
  /** What is dialled: an address, unless the resolver was left out. */
  #hostname = "";

  /** Bytes the kernel has not taken yet: grows while a broker is frozen. */
  get pendingBytes(): number {
    return this.socket?.writableLength ?? 0;
  }

  override connect(
    server: { hostname: string; port: number; tlsName: string },
    options: Options,
  ): Promise<void> {
    options.onTransport?.(this);
    this.#hostname = server.hostname;
    return super.connect(server, options);
  }

  /** As the original, but the socket is known while it dials, so that `close()` reaches it. */
  override dial(server: { hostname: string; port: number }): Promise<Socket> {
    return new Promise((resolve, reject) => {
      const socket = guarded(
        createConnection({ host: server.hostname, port: server.port, noDelay: true }),
      );
      this.socket = socket;
      socket.once("error", reject);
      socket.once("connect", () => {
        socket.removeAllListeners();
        resolve(socket);
      });
    });
  }

  /**
   * The original takes its error handler off when the handshake is done; a server that refuses our
   * certificate says so after that, and on Deno the error that nobody handled ended the process.
   * And it leaves to the runtime which name a server must prove that is given by address.
   */
  override async startTLS(): Promise<TLSSocket> {
    const wanted = this.options.tls;
    const files = wanted === undefined || wanted === null
      ? {}
      : await this.loadClientCerts() as TlsConnectOptions;
    const name = this.tlsName || this.#hostname;
    const socket = guarded(connectTls({
      ...files,
      socket: this.socket,
      servername: this.tlsName,
      rejectUnauthorized: true,
      checkServerIdentity: (_, certificate) => checkServerIdentity(name, certificate),
    }));
    return await new Promise((resolve, reject) => {
      socket.on("error", reject);
      socket.once("close", () => reject(new Error("closed during the TLS handshake")));
      socket.once("secureConnect", () => resolve(socket));
    });
  }

  override async tlsFirst(server: { hostname: string; port: number }): Promise<TLSSocket> {
    this.socket = await this.dial(server);
    return await this.startTLS();
  }

  /**
   * The original keeps the socket of a broker that took the connection but never greeted; the file
   * descriptor stayed until the broker woke up, and the process could not end.
   */
  override async close(error?: Error): Promise<void> {
    await super.close(error);
    this.discard();
  }

  /**
   * The original first waits until the socket took everything; with a frozen broker and a full
   * socket that never happens, and the client would not reconnect.
   */
  override disconnect(): void {
    void this.close();
  }
}

/**
 * The original takes all listeners off a socket that it is done with; an error that was on its way, as when a
 * server refuses a login and resets the connection, then found nobody and ended the process.
 */
function guarded<S extends Socket>(socket: S): S {
  const removeAll = socket.removeAllListeners.bind(socket);
  socket.removeAllListeners = (name?: string | symbol) => {
    if (name === undefined) removeAll();
    else removeAll(name);
    return socket.on("error", () => {});
  };
  return socket;
}

/** Connects by `BusTransport`. Rejects when no server took us; leaves nothing behind then. */
export function connectNats(options: Options): Promise<NatsConnection> {
  setTransportFactory({ factory: () => new BusTransport(), dnsResolveFn: nodeResolveHost });
  return NatsConnectionImpl.connect(options);
}
