// The other end of a client's socket.

import { peerAddress, type SocketAddress, SysError } from "../../../shared/sys/mod.ts";

/** The address of a client that was gone before anybody asked. */
const nowhere: SocketAddress = { host: "unknown", port: 0 };

export class Peer {
  readonly #fd: number;
  #address: SocketAddress | null = null;

  constructor(fd: number) {
    this.#fd = fd;
  }

  /** Remembered, since the kernel forgets it when the peer resets the connection. */
  get address(): SocketAddress {
    if (this.#address !== null) return this.#address;
    try {
      this.#address = peerAddress(this.#fd);
    } catch (error) {
      if (!(error instanceof SysError)) throw error;
      return nowhere;
    }
    return this.#address;
  }
}
