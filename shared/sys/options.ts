// What one sets on a socket and asks it: options, addresses, credentials, its pending error.
// Setters throw SysError; they are for new connections, not for the hot path.

import { ADDRESS_BYTES, readAddress, type SocketAddress } from "./address.ts";
import { Errno, SysError } from "./errno.ts";
import {
  AF_UNIX,
  IPPROTO_TCP,
  lastErrno,
  libc,
  SHUT_WR,
  SO_DOMAIN,
  SO_ERROR,
  SO_KEEPALIVE,
  SO_PEERCRED,
  SO_RCVBUF,
  SO_SNDBUF,
  SOL_SOCKET,
  TCP_DEFER_ACCEPT,
  TCP_KEEPCNT,
  TCP_KEEPIDLE,
  TCP_KEEPINTVL,
  TCP_NODELAY,
  TCP_USER_TIMEOUT,
} from "./libc.ts";
import { NativeBuffer } from "./native_buffer.ts";

// One thread's scratch memory for arguments; nothing in it outlives a call.
const value = new NativeBuffer(16);
const length = new NativeBuffer(4);
const address = new NativeBuffer(ADDRESS_BYTES);

export interface KeepAlive {
  /** Seconds without traffic before the first probe (TCP_KEEPIDLE). */
  readonly idleS: number;
  /** Seconds between probes (TCP_KEEPINTVL). */
  readonly intervalS: number;
  /** Unanswered probes before the connection is given up (TCP_KEEPCNT). */
  readonly count: number;
  /** Milliseconds that sent data may stay unacknowledged (TCP_USER_TIMEOUT). */
  readonly userTimeoutMs: number;
}

export interface PeerCredentials {
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
}

export function setOption(fd: number, level: number, name: number, setting: number): void {
  value.view.setInt32(0, setting, true);
  if (libc.setsockopt(fd, level, name, value.pointer, 4) === 0) return;
  throw new SysError(
    `set the option ${level}/${name} of the socket ${fd} to ${setting}`,
    "setsockopt",
    lastErrno(),
  );
}

function getOption(fd: number, level: number, name: number): number {
  length.view.setInt32(0, 4, true);
  if (libc.getsockopt(fd, level, name, value.pointer, length.pointer) === 0) {
    return value.view.getInt32(0, true);
  }
  throw new SysError(
    `get the option ${level}/${name} of the socket ${fd}`,
    "getsockopt",
    lastErrno(),
  );
}

/** Sends small writes at once (TCP_NODELAY). TCP only. */
export function setNoDelay(fd: number): void {
  setOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

/** Switches keepalive probes on; a 0 leaves that setting as the system has it. TCP only. */
export function setKeepAlive(fd: number, settings: KeepAlive): void {
  const { idleS, intervalS, count, userTimeoutMs } = settings;
  setOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  if (idleS > 0) setOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, idleS);
  if (intervalS > 0) setOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, intervalS);
  if (count > 0) setOption(fd, IPPROTO_TCP, TCP_KEEPCNT, count);
  if (userTimeoutMs > 0) setOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, userTimeoutMs);
}

/**
 * How much the kernel holds for a socket, each way, in bytes; it allows itself twice as much, and no more than
 * the system's limit. The window of a connection follows only if it is set before connect() or listen().
 */
export function setBuffers(fd: number, bytes: number): void {
  setOption(fd, SOL_SOCKET, SO_SNDBUF, bytes);
  setOption(fd, SOL_SOCKET, SO_RCVBUF, bytes);
}

/** Accepts a connection when data has come, or after about so many seconds; 0 = at once. TCP only. */
export function setDeferAccept(fd: number, seconds: number): void {
  setOption(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, seconds);
}

/** The other end's address. Throws SysError ENOTCONN when the peer is gone already. */
export function peerAddress(fd: number): SocketAddress {
  length.view.setInt32(0, ADDRESS_BYTES, true);
  if (libc.getpeername(fd, address.pointer, length.pointer) === 0) {
    return readAddress(address.bytes);
  }
  throw new SysError(`get the peer's address of the socket ${fd}`, "getpeername", lastErrno());
}

export function localAddress(fd: number): SocketAddress {
  length.view.setInt32(0, ADDRESS_BYTES, true);
  if (libc.getsockname(fd, address.pointer, length.pointer) === 0) {
    return readAddress(address.bytes);
  }
  throw new SysError(`get the local address of the socket ${fd}`, "getsockname", lastErrno());
}

/** Who connected to (or listens on) a unix socket, as of then; null for other sockets. */
export function peerCredentials(fd: number): PeerCredentials | null {
  if (getOption(fd, SOL_SOCKET, SO_DOMAIN) !== AF_UNIX) return null;
  length.view.setInt32(0, 12, true);
  if (libc.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, value.pointer, length.pointer) !== 0) {
    throw new SysError(`get the peer's user of the socket ${fd}`, "getsockopt", lastErrno());
  }
  return {
    pid: value.view.getInt32(0, true),
    uid: value.view.getUint32(4, true),
    gid: value.view.getUint32(8, true),
  };
}

/** The error that waits on a socket, and which this call takes from it: 0 or an errno. */
export function socketError(fd: number): number {
  return getOption(fd, SOL_SOCKET, SO_ERROR);
}

/** Sends FIN. A connection that is gone already needs none. */
export function shutdownOutput(fd: number): void {
  if (libc.shutdown(fd, SHUT_WR) === 0) return;
  const errno = lastErrno();
  if (errno !== Errno.ENOTCONN) {
    throw new SysError(`end the output of the socket ${fd}`, "shutdown", errno);
  }
}
