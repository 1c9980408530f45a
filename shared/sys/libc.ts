// The C library: the functions this folder calls, the constants they take, and errno.
// Bindings only; what the calls mean together is in the other files. Tried in turn: glibc, musl.
// Invariant: errno is read in the statement after the failed call, from the thread that made it
// (each thread loads its own copy of this module).

import { foreign } from "./ffi.ts";
import type { ForeignSignature, ForeignType, Pointer } from "./foreign.ts";
import { MSG_DONTWAIT } from "./foreign.ts";
import { Errno } from "./errno.ts";
import { NativeBuffer } from "./native_buffer.ts";

export interface Libc {
  __errno_location(): Pointer;
  accept4(fd: number, address: Pointer | null, length: Pointer | null, flags: number): number;
  bind(fd: number, address: Pointer, length: number): number;
  clock_gettime(clock: number, time: Pointer): number;
  close(fd: number): number;
  connect(fd: number, address: Pointer, length: number): number;
  dup2(fd: number, target: number): number;
  epoll_create1(flags: number): number;
  epoll_ctl(epollFd: number, operation: number, fd: number, event: Pointer | null): number;
  epoll_wait(epollFd: number, events: Pointer, maxEvents: number, timeoutMs: number): number;
  eventfd(initial: number, flags: number): number;
  fchmod(fd: number, mode: number): number;
  fcntl(fd: number, command: number, argument: number): number;
  getgrnam_r(
    name: Pointer,
    group: Pointer,
    strings: Pointer,
    size: number,
    found: Pointer,
  ): number;
  getpeername(fd: number, address: Pointer, length: Pointer): number;
  getpwnam_r(name: Pointer, user: Pointer, strings: Pointer, size: number, found: Pointer): number;
  getrlimit(resource: number, limits: Pointer): number;
  getsockname(fd: number, address: Pointer, length: Pointer): number;
  getsockopt(fd: number, level: number, name: number, value: Pointer, length: Pointer): number;
  initgroups(user: Pointer, group: number): number;
  listen(fd: number, backlog: number): number;
  read(fd: number, buffer: Pointer, length: number): number;
  readv(fd: number, vector: Pointer, count: number): number;
  recv(fd: number, buffer: Pointer, length: number, flags: number): number;
  send(fd: number, buffer: Pointer, length: number, flags: number): number;
  sendmsg(fd: number, message: Pointer, flags: number): number;
  setgid(group: number): number;
  setrlimit(resource: number, limits: Pointer): number;
  setsockopt(fd: number, level: number, name: number, value: Pointer, length: number): number;
  setuid(user: number): number;
  shutdown(fd: number, how: number): number;
  socket(domain: number, type: number, protocol: number): number;
  write(fd: number, buffer: Pointer, length: number): number;
}

function returnsInt(...parameters: ForeignType[]): ForeignSignature {
  return { parameters, result: "i32" };
}

const signatures: Readonly<Record<keyof Libc, ForeignSignature>> = {
  __errno_location: { parameters: [], result: "pointer" },
  accept4: returnsInt("i32", "pointer", "pointer", "i32"),
  bind: returnsInt("i32", "pointer", "i32"),
  clock_gettime: returnsInt("i32", "pointer"),
  close: returnsInt("i32"),
  connect: returnsInt("i32", "pointer", "i32"),
  dup2: returnsInt("i32", "i32"),
  epoll_create1: returnsInt("i32"),
  epoll_ctl: returnsInt("i32", "i32", "i32", "pointer"),
  epoll_wait: returnsInt("i32", "pointer", "i32", "i32"),
  eventfd: returnsInt("i32", "i32"),
  fchmod: returnsInt("i32", "i32"),
  fcntl: returnsInt("i32", "i32", "i32"),
  getgrnam_r: returnsInt("pointer", "pointer", "pointer", "i32", "pointer"),
  getpeername: returnsInt("i32", "pointer", "pointer"),
  getpwnam_r: returnsInt("pointer", "pointer", "pointer", "i32", "pointer"),
  getrlimit: returnsInt("i32", "pointer"),
  getsockname: returnsInt("i32", "pointer", "pointer"),
  getsockopt: returnsInt("i32", "i32", "i32", "pointer", "pointer"),
  initgroups: returnsInt("pointer", "i32"),
  listen: returnsInt("i32", "i32"),
  read: returnsInt("i32", "pointer", "i32"),
  readv: returnsInt("i32", "pointer", "i32"),
  recv: returnsInt("i32", "pointer", "i32", "i32"),
  send: returnsInt("i32", "pointer", "i32", "i32"),
  sendmsg: returnsInt("i32", "pointer", "i32"),
  setgid: returnsInt("i32"),
  setrlimit: returnsInt("i32", "pointer"),
  setsockopt: returnsInt("i32", "i32", "i32", "pointer", "i32"),
  setuid: returnsInt("i32"),
  shutdown: returnsInt("i32", "i32"),
  socket: returnsInt("i32", "i32", "i32"),
  write: returnsInt("i32", "pointer", "i32"),
};

function openLibc(): Libc {
  const muslArch = process.arch === "arm64" ? "aarch64" : "x86_64";
  const candidates = ["libc.so.6", `libc.musl-${muslArch}.so.1`, "libc.so"];
  const reasons: string[] = [];
  for (const candidate of candidates) {
    try {
      return foreign.open(candidate, signatures) as unknown as Libc;
    } catch (error) {
      reasons.push(`"${candidate}": ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  throw new Error(`open the C library: ${reasons.join("; ")}; wanted glibc or musl`);
}

export const libc: Libc = openLibc();

const errnoCell = foreign.int32At(libc.__errno_location());

/** The errno of this thread. Meaningful only right after a call that returned -1. */
export function lastErrno(): number {
  return errnoCell[0]!;
}

const io = foreign.socketIo(libc, errnoCell);

/** Receives from a non-blocking socket: the count of bytes, 0 at end of file, or -errno. */
export const receiveAt = io.receiveAt;

/** Sends without blocking and without SIGPIPE: the count of bytes, or -errno. */
export const sendAt = io.sendAt;

const peeked = new NativeBuffer(1);

/** The next byte that a socket will give; -1 when there is none, for whatever reason. */
export function peekByte(fd: number): number {
  const count = libc.recv(fd, peeked.pointer, 1, MSG_PEEK | MSG_DONTWAIT);
  return count === 1 ? peeked.bytes[0]! : -1;
}

/** Closes a descriptor. EINTR is success: Linux has released it by then. */
export function closeFd(fd: number): void {
  if (libc.close(fd) === 0) return;
  const errno = lastErrno();
  if (errno === Errno.EBADF) {
    throw new Error(`close the descriptor ${fd}: it is not open, wanted one close per descriptor`);
  }
}

export const AF_UNIX = 1;
export const AF_INET = 2;
export const AF_INET6 = 10;
export const SOCK_STREAM = 1;
export const SOCK_DGRAM = 2;
export const SOCK_NONBLOCK = 0x800;
export const SOCK_CLOEXEC = 0x80000;
export const SOL_SOCKET = 1;
export const SO_REUSEADDR = 2;
export const SO_ERROR = 4;
export const SO_SNDBUF = 7;
export const SO_RCVBUF = 8;
export const SO_KEEPALIVE = 9;
export const SO_LINGER = 13;
export const SO_REUSEPORT = 15;
export const SO_PEERCRED = 17;
export const SO_DOMAIN = 39;
export const IPPROTO_TCP = 6;
export const TCP_NODELAY = 1;
export const TCP_KEEPIDLE = 4;
export const TCP_KEEPINTVL = 5;
export const TCP_KEEPCNT = 6;
export const TCP_DEFER_ACCEPT = 9;
export const TCP_USER_TIMEOUT = 18;
export const IPPROTO_IPV6 = 41;
export const IPV6_V6ONLY = 26;
export const SHUT_WR = 1;
const MSG_PEEK = 2;
export const EFD_NONBLOCK = 0x800;
export const EFD_CLOEXEC = 0x80000;
export const EPOLL_CLOEXEC = 0x80000;
export const EPOLL_CTL_ADD = 1;
export const EPOLL_CTL_DEL = 2;
export const EPOLL_CTL_MOD = 3;
export const F_DUPFD_CLOEXEC = 1030;
export const RLIMIT_NOFILE = 7;
