// Linux error numbers: their names, their texts, and the error that failed system calls throw.
// The numbers are those of the generic Linux ABI, equal on x86-64 and arm64. The texts are glibc's,
// kept here so that logs read the same under musl.

export const Errno = {
  EPERM: 1,
  ENOENT: 2,
  ESRCH: 3,
  EINTR: 4,
  EIO: 5,
  EBADF: 9,
  EAGAIN: 11,
  ENOMEM: 12,
  EACCES: 13,
  EBUSY: 16,
  EEXIST: 17,
  ENOTDIR: 20,
  EINVAL: 22,
  ENFILE: 23,
  EMFILE: 24,
  ENOSPC: 28,
  EROFS: 30,
  EPIPE: 32,
  ERANGE: 34,
  ENAMETOOLONG: 36,
  ELOOP: 40,
  EPROTO: 71,
  ENOTSOCK: 88,
  EDESTADDRREQ: 89,
  EMSGSIZE: 90,
  EPROTOTYPE: 91,
  ENOPROTOOPT: 92,
  EPROTONOSUPPORT: 93,
  EOPNOTSUPP: 95,
  EAFNOSUPPORT: 97,
  EADDRINUSE: 98,
  EADDRNOTAVAIL: 99,
  ENETDOWN: 100,
  ENETUNREACH: 101,
  ENETRESET: 102,
  ECONNABORTED: 103,
  ECONNRESET: 104,
  ENOBUFS: 105,
  EISCONN: 106,
  ENOTCONN: 107,
  ESHUTDOWN: 108,
  ETIMEDOUT: 110,
  ECONNREFUSED: 111,
  EHOSTDOWN: 112,
  EHOSTUNREACH: 113,
  EALREADY: 114,
  EINPROGRESS: 115,
} as const;

const texts: Readonly<Record<keyof typeof Errno, string>> = {
  EPERM: "Operation not permitted",
  ENOENT: "No such file or directory",
  ESRCH: "No such process",
  EINTR: "Interrupted system call",
  EIO: "Input/output error",
  EBADF: "Bad file descriptor",
  EAGAIN: "Resource temporarily unavailable",
  ENOMEM: "Cannot allocate memory",
  EACCES: "Permission denied",
  EBUSY: "Device or resource busy",
  EEXIST: "File exists",
  ENOTDIR: "Not a directory",
  EINVAL: "Invalid argument",
  ENFILE: "Too many open files in system",
  EMFILE: "Too many open files",
  ENOSPC: "No space left on device",
  EROFS: "Read-only file system",
  EPIPE: "Broken pipe",
  ERANGE: "Numerical result out of range",
  ENAMETOOLONG: "File name too long",
  ELOOP: "Too many levels of symbolic links",
  EPROTO: "Protocol error",
  ENOTSOCK: "Socket operation on non-socket",
  EDESTADDRREQ: "Destination address required",
  EMSGSIZE: "Message too long",
  EPROTOTYPE: "Protocol wrong type for socket",
  ENOPROTOOPT: "Protocol not available",
  EPROTONOSUPPORT: "Protocol not supported",
  EOPNOTSUPP: "Operation not supported",
  EAFNOSUPPORT: "Address family not supported by protocol",
  EADDRINUSE: "Address already in use",
  EADDRNOTAVAIL: "Cannot assign requested address",
  ENETDOWN: "Network is down",
  ENETUNREACH: "Network is unreachable",
  ENETRESET: "Network dropped connection on reset",
  ECONNABORTED: "Software caused connection abort",
  ECONNRESET: "Connection reset by peer",
  ENOBUFS: "No buffer space available",
  EISCONN: "Transport endpoint is already connected",
  ENOTCONN: "Transport endpoint is not connected",
  ESHUTDOWN: "Cannot send after transport endpoint shutdown",
  ETIMEDOUT: "Connection timed out",
  ECONNREFUSED: "Connection refused",
  EHOSTDOWN: "Host is down",
  EHOSTUNREACH: "No route to host",
  EALREADY: "Operation already in progress",
  EINPROGRESS: "Operation now in progress",
};

const names = new Map<number, keyof typeof Errno>();
for (const name of Object.keys(Errno) as (keyof typeof Errno)[]) names.set(Errno[name], name);

/** 104 -> "ECONNRESET"; a number that is not in the table -> "E<number>". */
export function errnoName(errno: number): string {
  return names.get(errno) ?? `E${errno}`;
}

/** 104 -> "Connection reset by peer"; a number that is not in the table -> "Unknown error <number>". */
export function errnoText(errno: number): string {
  const name = names.get(errno);
  return name === undefined ? `Unknown error ${errno}` : texts[name];
}

/** A system call that failed. Recognise it by `code`, never by its text. */
export class SysError extends Error {
  override readonly name = "SysError";
  /** Such as "EADDRINUSE". */
  readonly code: string;
  readonly errno: number;
  /** The system call that failed, such as "bind". */
  readonly syscall: string;

  constructor(attempt: string, syscall: string, errno: number) {
    super(`${attempt}: ${syscall} failed with ${errnoName(errno)} (${errnoText(errno)})`);
    this.code = errnoName(errno);
    this.errno = errno;
    this.syscall = syscall;
  }
}
