// The NATS client's TCP transport with three gaps closed. Not a protocol: bytes pass through
// untouched. Ours to keep: a socket is destroyed whenever its transport is closed, at any moment.

import { createConnection, type Socket } from "node:net";
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
  /** Bytes the kernel has not taken yet: grows while a broker is frozen. */
  get pendingBytes(): number {
    return this.socket?.writableLength ?? 0;
  }

  override connect(
    server: { hostname: string; port: number; tlsName: string },
    options: Options,
  ): Promise<void> {
    options.onTransport?.(this);
    return super.connect(server, options);
  }

  /** As the original, but the socket is known while it dials, so that `close()` reaches it. */
  override dial(server: { hostname: string; port: number }): Promise<Socket> {
    return new Promise((resolve, reject) => {
      const socket = createConnection({ host: server.hostname, port: server.port, noDelay: true });
      this.socket = socket;
      socket.once("error", reject);
      socket.once("connect", () => {
        socket.removeAllListeners();
        resolve(socket);
      });
    });
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

/** Connects by `BusTransport`. Rejects when no server took us; leaves nothing behind then. */
export function connectNats(options: Options): Promise<NatsConnection> {
  setTransportFactory({ factory: () => new BusTransport(), dnsResolveFn: nodeResolveHost });
  return NatsConnectionImpl.connect(options);
}
