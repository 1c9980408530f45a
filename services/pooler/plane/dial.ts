// Where servers are: a numeric address, or the directory of a unix socket (/dir, @name).

import { connectTcp, connectUnix } from "../../../shared/sys/mod.ts";

export function isSocketDir(address: string): boolean {
  return address.startsWith("/") || address.startsWith("@");
}

/** Begins to connect; the descriptor, or -errno. */
export function dial(address: string, port: number): number {
  return isSocketDir(address)
    ? connectUnix(`${address}/.s.PGSQL.${port}`)
    : connectTcp(address, port);
}
