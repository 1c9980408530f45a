// This process's name, limits and descriptors, the host's boot, and what any process uses, from /proc and the C library.

import { closeSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { SysError } from "./errno.ts";
import { lastErrno, libc, RLIMIT_NOFILE } from "./libc.ts";
import { NativeBuffer } from "./native_buffer.ts";

const MAX_NAME_BYTES = 15;
/** Ticks of /proc/<pid>/stat in a second: fixed in the Linux ABI. */
const TICKS_PER_SECOND = 100;

export interface FileLimit {
  /** Open descriptors allowed. */
  readonly soft: number;
  /** As far as `soft` may be raised. */
  readonly hard: number;
}

export interface ProcessUsage {
  /** User and system time of all threads since the start, in steps of 10 ms. */
  readonly cpuSeconds: number;
  readonly residentBytes: number;
}

/** The name that ps and top show (/proc/self/comm), cut to 15 bytes. */
export function setProcessName(name: string): void {
  writeFileSync("/proc/self/comm", new TextEncoder().encode(name).subarray(0, MAX_NAME_BYTES));
}

/** Raises the soft limit of open descriptors to the hard one, and returns what now holds. */
export function raiseFileLimit(): FileLimit {
  // struct rlimit { u64 soft, hard }; "no limit" is all ones and reads as a huge number.
  const limits = new NativeBuffer(16);
  if (libc.getrlimit(RLIMIT_NOFILE, limits.pointer) !== 0) {
    throw new SysError("get the limit of open files", "getrlimit", lastErrno());
  }
  const hard = limits.view.getBigUint64(8, true);
  if (limits.view.getBigUint64(0, true) !== hard) {
    limits.view.setBigUint64(0, hard, true);
    if (libc.setrlimit(RLIMIT_NOFILE, limits.pointer) !== 0) {
      throw new SysError(`raise the limit of open files to ${hard}`, "setrlimit", lastErrno());
    }
  }
  return { soft: Number(hard), hard: Number(hard) };
}

/** Makes a descriptor another name of `target`; null = /dev/null. */
export function redirect(fd: number, target: number | null): void {
  const from = target ?? openSync("/dev/null", "r+");
  try {
    if (libc.dup2(from, fd) < 0) {
      throw new SysError(`redirect descriptor ${fd}`, "dup2", lastErrno());
    }
  } finally {
    if (target === null) closeSync(from);
  }
}

/** A random id that the kernel draws at each boot; the same in all containers of a host. */
export function bootId(): string {
  return readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
}

/** What a process has used and uses; null when there is no such process. */
export function processUsage(pid: number): ProcessUsage | null {
  let stat: string;
  let status: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    status = readFileSync(`/proc/${pid}/status`, "latin1");
  } catch {
    return null;
  }
  // The second field is the name, in parentheses, and may itself hold spaces and parentheses.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const userTicks = Number(fields[11]);
  const systemTicks = Number(fields[12]);
  // A process that has ended and was not waited for has no such line.
  const residentKb = /^VmRSS:\s*([0-9]+) kB$/m.exec(status)?.[1] ?? "0";
  return {
    cpuSeconds: (userTicks + systemTicks) / TICKS_PER_SECOND,
    residentBytes: Number(residentKb) * 1024,
  };
}
