// Where a worker listens for TCP: at every address of listen_addr that this host has. As with PgBouncer one that
// it has not, such as that of a standby, is a warning; a port that is taken is an error.

import {
  errnoText,
  hostPort,
  isMissingAddress,
  listenTcp,
  SysError,
} from "../../../shared/sys/mod.ts";

/** None of the addresses is one of this host. */
export class ListenFailure extends Error {}

export interface ListenPlace {
  readonly port: number;
  readonly backlog: number;
  readonly reusePort: boolean;
}

/** Throws SysError or ListenFailure; what is open by then the end of the process closes. */
export function listenEach(
  hosts: readonly string[],
  place: ListenPlace,
  warn: (message: string) => void,
): { readonly fd: number; readonly address: string }[] {
  const listening: { fd: number; address: string }[] = [];
  for (const host of hosts) {
    try {
      const { fd, port } = listenTcp({ host, ...place });
      listening.push({ fd, address: hostPort(host, port) });
    } catch (error) {
      if (!(error instanceof SysError) || !isMissingAddress(error)) throw error;
      const why = `${error.syscall}(): ${errnoText(error.errno)}`;
      warn(`cannot listen on ${hostPort(host, place.port)}: ${why}`);
    }
  }
  if (hosts.length > 0 && listening.length === 0) {
    throw new ListenFailure(
      `failed to listen on any address in listen_addr list: ${hosts.join(", ")}`,
    );
  }
  return listening;
}
