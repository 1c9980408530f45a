// Asks, before anything is started, whether the workers will be able to listen. Workers share their port
// (SO_REUSEPORT), and so would a second fleet of the same user, unnoticed: therefore the question is put
// without it. The answer may be outdated a moment later; the workers' own errors are the last word.

import { lookup } from "node:dns/promises";
import { accessSync, constants } from "node:fs";
import { isIP } from "node:net";
import { closeFd, connectUnix, listenTcp, SysError } from "../../shared/sys/mod.ts";
import { addressText, type ListenAddress } from "./banner.ts";
import { fileFailure, StartFailure } from "./failure.ts";

/**
 * Throws a StartFailure that names the first address nobody could listen on. `remedy` says what to do about
 * a port that is taken.
 */
export async function checkListen(
  addresses: readonly ListenAddress[],
  remedy: string,
): Promise<void> {
  for (const address of addresses) {
    if (address.host.startsWith("/")) checkUnix(address);
    else if (!address.host.startsWith("@")) await checkTcp(address, remedy);
  }
}

async function checkTcp(address: ListenAddress, remedy: string): Promise<void> {
  for (const host of await numericHosts(address)) {
    try {
      closeFd(listenTcp({ host, port: address.port, backlog: 1, reusePort: false }).fd);
    } catch (error) {
      if (!(error instanceof SysError)) throw error;
      throw new StartFailure(
        `listen on ${addressText(address)}: ${explain(error, address.port, remedy)}`,
      );
    }
  }
}

async function numericHosts({ host }: ListenAddress): Promise<string[]> {
  if (host === "*" || isIP(host) !== 0) return [host];
  try {
    return (await lookup(host, { all: true })).map(({ address }) => address);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new StartFailure(`listen on "${host}": look up the name: ${code ?? error}`);
  }
}

function explain(error: SysError, port: number, remedy: string): string {
  switch (error.code) {
    case "EADDRINUSE":
      return `the port is taken, wanted a free one (${remedy})`;
    case "EADDRNOTAVAIL":
      return "this host has no such address";
    case "EACCES":
      return port < 1024
        ? "permission denied, ports below 1024 are for root or need CAP_NET_BIND_SERVICE"
        : "permission denied";
    default:
      return error.code;
  }
}

function checkUnix(address: ListenAddress): void {
  const fd = connectUnix(addressText(address));
  if (fd >= 0) {
    closeFd(fd);
    throw new StartFailure(`listen on "${addressText(address)}": another process listens there`);
  }
  try {
    accessSync(address.host, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw fileFailure("listen in the directory", address.host, error);
  }
}
