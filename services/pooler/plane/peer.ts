// The other end of a client's socket.

import { peerAddress, type SocketAddress, SysError } from "../../../shared/sys/mod.ts";

/** The address of a client that was gone before anybody asked. */
const nowhere: SocketAddress = { host: "unknown", port: 0 };

export function addressOf(fd: number): SocketAddress {
  try {
    return peerAddress(fd);
  } catch (error) {
    if (!(error instanceof SysError)) throw error;
    return nowhere;
  }
}
