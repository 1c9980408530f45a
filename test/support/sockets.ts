// TCP sockets of this host as the kernel has them. IPv4 only, which is what tests use.

import { readFileSync } from "node:fs";

const CLOSE_WAIT = "08";

/** How many sockets of a local port have been closed by their peers and not by their owner. */
export function halfClosed(port: number): number {
  const hexPort = port.toString(16).toUpperCase().padStart(4, "0");
  return readFileSync("/proc/net/tcp", "utf8").split("\n").filter((line) => {
    const [, local, , state] = line.trim().split(/\s+/);
    return state === CLOSE_WAIT && local?.endsWith(`:${hexPort}`) === true;
  }).length;
}
