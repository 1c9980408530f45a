// The clock that the kernel and systemd go by: what runtimes offer as monotonic begins with the process.

import { SysError } from "./errno.ts";
import { lastErrno, libc } from "./libc.ts";
import { NativeBuffer } from "./native_buffer.ts";

const CLOCK_MONOTONIC = 1;
/** struct timespec: seconds and nanoseconds, 64 bits each. */
const TIMESPEC_BYTES = 16;

/** CLOCK_MONOTONIC in microseconds. Throws SysError. */
export function monotonicMicros(): bigint {
  const time = new NativeBuffer(TIMESPEC_BYTES);
  if (libc.clock_gettime(CLOCK_MONOTONIC, time.pointer) !== 0) {
    throw new SysError("read the monotonic clock", "clock_gettime", lastErrno());
  }
  return time.view.getBigInt64(0, true) * 1_000_000n + time.view.getBigInt64(8, true) / 1000n;
}
