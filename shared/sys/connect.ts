// Starting connections, TCP and unix, without waiting for them.
// How a connection went is told by Stream (its `connecting` argument): onConnected(errno).
// Failures that are known at once are returned as -errno, since a connection that cannot be made is
// an expected outcome.

import { ADDRESS_BYTES, writeInetAddress, writeUnixAddress } from "./address.ts";
import { Errno } from "./errno.ts";
import {
  AF_INET,
  AF_INET6,
  AF_UNIX,
  closeFd,
  lastErrno,
  libc,
  SOCK_CLOEXEC,
  SOCK_NONBLOCK,
  SOCK_STREAM,
} from "./libc.ts";
import { NativeBuffer } from "./native_buffer.ts";
import { setBuffers } from "./options.ts";

const address = new NativeBuffer(ADDRESS_BYTES);

/**
 * `host` is numeric; `bufferBytes`: see setBuffers(), 0 = as the system has it. A descriptor that is connecting, or
 * -errno (-EINVAL: no address).
 */
export function connectTcp(host: string, port: number, bufferBytes = 0): number {
  const addressBytes = writeInetAddress(address.bytes, host, port);
  if (addressBytes === null) return -Errno.EINVAL;
  const family = address.bytes[0] === AF_INET ? AF_INET : AF_INET6;
  return connect(family, addressBytes, bufferBytes);
}

/**
 * "@name" = abstract. A descriptor that is connecting, or -errno: -ENOENT no such file,
 * -ECONNREFUSED nobody listens, -EAGAIN the listener's backlog is full (there is nothing to wait
 * for: try again later), -EACCES.
 */
export function connectUnix(path: string): number {
  const addressBytes = writeUnixAddress(address.bytes, path);
  if (addressBytes === null) return -Errno.ENAMETOOLONG;
  return connect(AF_UNIX, addressBytes, 0);
}

function connect(family: number, addressBytes: number, bufferBytes: number): number {
  const fd = libc.socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -lastErrno();
  if (bufferBytes > 0) setBuffers(fd, bufferBytes);
  if (libc.connect(fd, address.pointer, addressBytes) === 0) return fd;
  const errno = lastErrno();
  // EINTR: the connection goes on being made, as with EINPROGRESS.
  if (errno === Errno.EINPROGRESS || errno === Errno.EINTR) return fd;
  closeFd(fd);
  return -errno;
}
