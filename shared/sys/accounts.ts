// Users and groups of the system, by whatever service knows them (files, LDAP, ...), and becoming one.
// Not here: who may do what to a file (the kernel's).
// The C library's calls may ask a network service and wait for it: for the start of a process only.

import { Errno, SysError } from "./errno.ts";
import { lastErrno, libc } from "./libc.ts";
import type { Pointer } from "./foreign.ts";
import { NativeBuffer } from "./native_buffer.ts";

export interface SystemUser {
  readonly uid: number;
  readonly gid: number;
}

/** struct passwd and struct group begin alike in glibc and musl: two pointers, then the ids. */
const IDS_OFFSET = 16;
const STRUCT_BYTES = 64;
const MAX_STRINGS_BYTES = 1 << 20;

type Lookup = (
  name: Pointer,
  entry: Pointer,
  strings: Pointer,
  size: number,
  found: Pointer,
) => number;

/** null: there is nobody of that name. */
export function findUser(name: string): SystemUser | null {
  const entry = find("getpwnam_r", libc.getpwnam_r, name);
  return entry === null
    ? null
    : { uid: entry.getUint32(IDS_OFFSET, true), gid: entry.getUint32(IDS_OFFSET + 4, true) };
}

/** The id of a group; null: there is none of that name. A number is an id already. */
export function findGroup(name: string): number | null {
  if (/^[0-9]{1,9}$/.test(name)) return Number(name);
  return find("getgrnam_r", libc.getgrnam_r, name)?.getUint32(IDS_OFFSET, true) ?? null;
}

function find(syscall: string, lookup: Lookup, name: string): DataView | null {
  const key = zeroTerminated(name);
  const entry = new NativeBuffer(STRUCT_BYTES);
  const found = new NativeBuffer(8);
  for (let size = 4096;; size *= 2) {
    const strings = new NativeBuffer(size);
    const errno = lookup(key.pointer, entry.pointer, strings.pointer, size, found.pointer);
    if (errno === Errno.ERANGE && size < MAX_STRINGS_BYTES) continue;
    if (errno === Errno.EINTR) continue;
    // What is not there is success without an entry, or one of these, by the service that was asked.
    const isMissing = [0, Errno.ENOENT, Errno.ESRCH, Errno.EBADF, Errno.EPERM].includes(errno);
    if (!isMissing) throw new SysError(`look up "${name}"`, syscall, errno);
    return found.bytes.every((byte) => byte === 0) ? null : entry.view;
  }
}

function zeroTerminated(text: string): NativeBuffer {
  const bytes = new TextEncoder().encode(text);
  if (bytes.includes(0)) throw new Error("look up a name: it holds a NUL character");
  const buffer = new NativeBuffer(bytes.length + 1);
  buffer.bytes.set(bytes);
  return buffer;
}

/**
 * Gives up all rights but those of a user, its group and its further groups, in all threads and for ever.
 * Nothing happens when the process runs as that user already. Throws SysError; a process that could not
 * give up all is to end.
 */
export function becomeUser(name: string, { uid, gid }: SystemUser): void {
  if (process.getuid?.() === uid && process.geteuid?.() === uid) return;
  const attempt = `assume the identity of the user "${name}"`;
  const calls: readonly [string, () => number][] = [
    ["initgroups", () => libc.initgroups(zeroTerminated(name).pointer, gid)],
    ["setgid", () => libc.setgid(gid)],
    ["setuid", () => libc.setuid(uid)],
  ];
  for (const [syscall, call] of calls) {
    if (call() !== 0) throw new SysError(attempt, syscall, lastErrno());
  }
}
