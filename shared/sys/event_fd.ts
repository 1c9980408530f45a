// Eventfds: how one thread gets another out of epoll_wait.
// Usable from any thread of the process: the descriptor is a plain number.

import { Errno, SysError } from "./errno.ts";
import { EFD_CLOEXEC, EFD_NONBLOCK, F_DUPFD_CLOEXEC, lastErrno, libc } from "./libc.ts";
import { NativeBuffer } from "./native_buffer.ts";

const one = new NativeBuffer(8);
one.bytes[0] = 1;
const scratch = new NativeBuffer(8);

/** A non-blocking, close-on-exec eventfd with count 0. */
export function createEventFd(): number {
  const fd = libc.eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) throw new SysError("create a wake-up descriptor", "eventfd", lastErrno());
  return fd;
}

/** Adds one to the count, which wakes whoever waits for it in epoll. Never blocks. */
export function signalEventFd(fd: number): void {
  while (libc.write(fd, one.pointer, 8) !== 8) {
    const errno = lastErrno();
    if (errno === Errno.EINTR) continue;
    // The count is full: whoever waits has been woken 2^64 - 2 times and not looked yet.
    if (errno === Errno.EAGAIN) return;
    throw new SysError(`signal the wake-up descriptor ${fd}`, "write", errno);
  }
}

/** Sets the count to 0. */
export function drainEventFd(fd: number): void {
  libc.read(fd, scratch.pointer, 8);
}

/** A second descriptor for the same eventfd, which outlives the first. */
export function duplicateFd(fd: number): number {
  const copy = libc.fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw new SysError(`duplicate the descriptor ${fd}`, "fcntl", lastErrno());
  return copy;
}
