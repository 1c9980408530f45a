// Datagrams to a unix socket that somebody else owns, such as /dev/log. Sends without waiting, and connects
// again by itself when its peer was restarted. Not for receiving.

import { ADDRESS_BYTES, writeUnixAddress } from "./address.ts";
import { Errno } from "./errno.ts";
import {
  AF_UNIX,
  closeFd,
  lastErrno,
  libc,
  sendAt,
  SOCK_CLOEXEC,
  SOCK_DGRAM,
  SOCK_NONBLOCK,
} from "./libc.ts";
import { NativeBuffer } from "./native_buffer.ts";

export class UnixDatagram {
  readonly #path: string;
  readonly #buffer: NativeBuffer;
  #fd = -1;

  /** A datagram is cut to `maxBytes`. */
  constructor(path: string, maxBytes: number) {
    this.#path = path;
    this.#buffer = new NativeBuffer(maxBytes);
  }

  /** 0, or -errno: -ENOENT, -ECONNREFUSED: nobody listens; -EAGAIN: the peer's queue is full. */
  send(bytes: Uint8Array): number {
    const length = Math.min(bytes.length, this.#buffer.size);
    this.#buffer.bytes.set(bytes.subarray(0, length));
    let result = this.#fd < 0 ? -Errno.ENOTCONN : sendAt(this.#fd, this.#buffer, 0, length);
    // Once more on a new connection: the old one may be to a socket that is gone.
    if (result < 0 && result !== -Errno.EAGAIN && result !== -Errno.EMSGSIZE) {
      result = this.#connect();
      if (result >= 0) result = sendAt(this.#fd, this.#buffer, 0, length);
    }
    return Math.min(result, 0);
  }

  #connect(): number {
    this.close();
    const address = new NativeBuffer(ADDRESS_BYTES);
    const addressBytes = writeUnixAddress(address.bytes, this.#path);
    if (addressBytes === null) return -Errno.ENAMETOOLONG;
    const fd = libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -lastErrno();
    if (libc.connect(fd, address.pointer, addressBytes) !== 0) {
      const errno = lastErrno();
      closeFd(fd);
      return -errno;
    }
    this.#fd = fd;
    return 0;
  }

  /** Idempotent; a later send connects again. */
  close(): void {
    if (this.#fd >= 0) closeFd(this.#fd);
    this.#fd = -1;
  }
}
