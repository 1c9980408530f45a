// Keeps a second `pgweir up` away from the same directory or file. The lock is an abstract unix socket
// named after the inode: the kernel drops it with the process, however that ends, so there is no stale
// lock to recognise and nothing to clean up; and it tells who holds it (SO_PEERCRED).

import { statSync } from "node:fs";
import {
  closeFd,
  connectUnix,
  listenUnix,
  peerCredentials,
  SysError,
} from "../../shared/sys/mod.ts";
import { StartFailure } from "./failure.ts";

/** Takes the lock of `path`, which exists; returns the way to give it back. */
export function lockInstance(path: string): () => void {
  const { dev, ino } = statSync(path);
  const name = `@pgweir-up-${dev}-${ino}`;
  let fd: number;
  try {
    // Nobody accepts: whoever asks for the holder stays in the backlog.
    fd = listenUnix({ path: name, mode: 0o600, backlog: 4096 });
  } catch (error) {
    if (!(error instanceof SysError && error.code === "EADDRINUSE")) throw error;
    const pid = holderOf(name);
    throw new StartFailure(
      `start in "${path}": another pgweir runs there${pid === null ? "" : ` (pid ${pid})`}`,
    );
  }
  return () => closeFd(fd);
}

function holderOf(name: string): number | null {
  const fd = connectUnix(name);
  if (fd < 0) return null;
  try {
    // 0: a process outside our pid namespace.
    return peerCredentials(fd)?.pid || null;
  } finally {
    closeFd(fd);
  }
}
