// Listening sockets, TCP and unix, and accepting from them. All are non-blocking and close-on-exec.
// Not here: names (the control plane resolves), fairness between listeners (the kernel's).
// Invariant: a socket file is never more permissive than its mode, not for an instant.

import { chmodSync, chownSync, lstatSync, unlinkSync } from "node:fs";
import { ADDRESS_BYTES, writeInetAddress, writeUnixAddress } from "./address.ts";
import { Errno, SysError } from "./errno.ts";
import {
  AF_INET,
  AF_INET6,
  AF_UNIX,
  closeFd,
  IPPROTO_IPV6,
  IPV6_V6ONLY,
  lastErrno,
  libc,
  SO_REUSEADDR,
  SO_REUSEPORT,
  SOCK_CLOEXEC,
  SOCK_NONBLOCK,
  SOCK_STREAM,
  SOL_SOCKET,
} from "./libc.ts";
import { NativeBuffer } from "./native_buffer.ts";
import { localAddress, setOption } from "./options.ts";

const address = new NativeBuffer(ADDRESS_BYTES);

export interface TcpListenOptions {
  /** A numeric address; "::" is IPv6 only; "*" is both, or IPv4 where the system has no IPv6. */
  readonly host: string;
  /** 0 = any free one. */
  readonly port: number;
  readonly backlog: number;
  /** Several listeners of one user on the same port: the kernel spreads connections over them. */
  readonly reusePort: boolean;
}

export interface UnixListenOptions {
  /** "@name" = the abstract socket "name", which has neither file nor mode. */
  readonly path: string;
  readonly mode: number;
  /** null: the process's own. */
  readonly group?: number | null;
  readonly backlog: number;
}

/** Throws SysError, such as EADDRINUSE, EACCES, EADDRNOTAVAIL; EINVAL for a host that is no address. */
export function listenTcp(options: TcpListenOptions): { fd: number; port: number } {
  if (options.host !== "*") return listenInet(options, options.host, true);
  try {
    return listenInet(options, "::", false);
  } catch (error) {
    if (error instanceof SysError && isMissingAddress(error)) {
      return listenInet(options, "0.0.0.0", true);
    }
    throw error;
  }
}

/** Whether this host has no such address, or none of its kind. */
export function isMissingAddress({ errno }: SysError): boolean {
  return errno === Errno.EAFNOSUPPORT || errno === Errno.EADDRNOTAVAIL;
}

function listenInet(
  options: TcpListenOptions,
  host: string,
  ipv6Only: boolean,
): { fd: number; port: number } {
  const attempt = `listen on "${options.host}" port ${options.port}`;
  const addressBytes = writeInetAddress(address.bytes, host, options.port);
  if (addressBytes === null) throw new SysError(attempt, "bind", Errno.EINVAL);
  const family = address.bytes[0] === AF_INET ? AF_INET : AF_INET6;
  const fd = openSocket(attempt, family);
  try {
    setOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (options.reusePort) setOption(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    if (family === AF_INET6) setOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, ipv6Only ? 1 : 0);
    if (libc.bind(fd, address.pointer, addressBytes) !== 0) {
      throw new SysError(attempt, "bind", lastErrno());
    }
    if (libc.listen(fd, options.backlog) !== 0) throw new SysError(attempt, "listen", lastErrno());
    return { fd, port: localAddress(fd).port };
  } catch (error) {
    closeFd(fd);
    throw error;
  }
}

/**
 * Listens on a unix socket. A socket file that nobody listens on any more is replaced; one that
 * somebody does listen on, or a file of another kind, is EADDRINUSE. Throws SysError.
 */
export function listenUnix(options: UnixListenOptions): number {
  const { path, mode } = options;
  const attempt = `listen on the unix socket "${path}"`;
  const isAbstract = path.startsWith("@");
  const addressBytes = writeUnixAddress(address.bytes, path);
  if (addressBytes === null) throw new SysError(attempt, "bind", Errno.ENAMETOOLONG);
  const fd = openSocket(attempt, AF_UNIX);
  try {
    // The kernel makes the file with the socket's own mode less the umask: set first, there is no
    // moment at which the file is open to more users, and the process-wide umask stays untouched.
    if (!isAbstract && libc.fchmod(fd, mode) !== 0) {
      throw new SysError(attempt, "fchmod", lastErrno());
    }
    let errno = libc.bind(fd, address.pointer, addressBytes) === 0 ? 0 : lastErrno();
    if (errno === Errno.EADDRINUSE && !isAbstract && isStaleSocket(path, addressBytes)) {
      unlinkUnix(path);
      errno = libc.bind(fd, address.pointer, addressBytes) === 0 ? 0 : lastErrno();
    }
    if (errno !== 0) throw new SysError(attempt, "bind", errno);
    if (!isAbstract && options.group != null) giveToGroup(attempt, path, options.group);
    if (libc.listen(fd, options.backlog) !== 0) throw new SysError(attempt, "listen", lastErrno());
    if (!isAbstract) chmodSync(path, mode);
    return fd;
  } catch (error) {
    closeFd(fd);
    throw error;
  }
}

function giveToGroup(attempt: string, path: string, group: number): void {
  try {
    chownSync(path, -1, group);
  } catch (error) {
    const { code } = error as { code?: string };
    throw new SysError(attempt, "chown", Errno[code as keyof typeof Errno] ?? Errno.EPERM);
  }
}

/** Is it a socket on which a connection is refused? `address` holds the path's sockaddr. */
function isStaleSocket(path: string, addressBytes: number): boolean {
  if (!isSocketFile(path)) return false;
  const probe = openSocket(`probe the unix socket "${path}"`, AF_UNIX);
  const result = libc.connect(probe, address.pointer, addressBytes);
  const errno = result === 0 ? 0 : lastErrno();
  closeFd(probe);
  return errno === Errno.ECONNREFUSED;
}

function isSocketFile(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isSocket() ?? false;
}

/** Removes a socket file if there is one; leaves files of other kinds and abstract names alone. */
export function unlinkUnix(path: string): void {
  if (path.startsWith("@") || !isSocketFile(path)) return;
  try {
    unlinkSync(path);
  } catch (error) {
    // Somebody else was faster.
    if ((error as { code?: string }).code !== "ENOENT") throw error;
  }
}

/** What accepting fails with as long as it lasts. */
const shortages: readonly number[] = [Errno.EMFILE, Errno.ENFILE, Errno.ENOBUFS, Errno.ENOMEM];
/** So many connections that died while they waited are passed over, before it is something else. */
const deadInARow = 64;

/**
 * Takes one connection: its descriptor, or -errno. -EAGAIN: none waits. -EMFILE, -ENFILE,
 * -ENOBUFS, -ENOMEM: no descriptor or no memory is left. With these and any other error epoll will go on reporting the
 * listener, so take it out of the reactor for a while.
 */
export function accept(listenFd: number): number {
  for (let dead = 0;;) {
    const fd = libc.accept4(listenFd, null, null, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) return fd;
    const errno = lastErrno();
    if (errno === Errno.EINTR) continue;
    // Others are errors of the one connection: the next one may be fine.
    if (errno === Errno.EAGAIN || shortages.includes(errno) || ++dead >= deadInARow) return -errno;
  }
}

function openSocket(attempt: string, family: number): number {
  const fd = libc.socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) throw new SysError(attempt, "socket", lastErrno());
  return fd;
}
