// Asks, before anything is started, whether the workers will be able to listen. Workers share their port
// (SO_REUSEPORT), and so would a second fleet of the same user, unnoticed: therefore the question is put
// without it. The answer may be outdated a moment later; the workers' own errors are the last word.

import { accessSync, constants } from "node:fs";
import { ListenHostError, listenHosts } from "../../shared/host/mod.ts";
import {
  closeFd,
  connectUnix,
  isMissingAddress,
  listenTcp,
  SysError,
} from "../../shared/sys/mod.ts";
import { addressText, type ListenAddress } from "./banner.ts";
import { fileFailure, StartFailure } from "./failure.ts";

/**
 * Which of them the workers will listen on: all but those that are none of this host's, of which they warn.
 * Throws a StartFailure that names the first address nobody could listen on, or all if none is of this host.
 * `remedy` says what to do about a port that is taken.
 */
export async function checkListen(
  addresses: readonly ListenAddress[],
  remedy: string,
): Promise<ListenAddress[]> {
  const served: ListenAddress[] = [];
  const missing: string[] = [];
  let hasTcp = false;
  for (const address of addresses) {
    if (address.host.startsWith("/")) checkUnix(address);
    else if (!address.host.startsWith("@")) {
      if (!await checkTcp(address, remedy)) {
        missing.push(addressText(address));
        continue;
      }
      hasTcp = true;
    }
    served.push(address);
  }
  if (missing.length > 0 && !hasTcp) {
    throw new StartFailure(`listen on ${missing.join(", ")}: this host has no such address`);
  }
  return served;
}

/** False: this host has no such address. */
async function checkTcp(address: ListenAddress, remedy: string): Promise<boolean> {
  let isOurs = false;
  for (const host of await numericHosts(address)) {
    try {
      closeFd(listenTcp({ host, port: address.port, backlog: 1, reusePort: false }).fd);
      isOurs = true;
    } catch (error) {
      if (!(error instanceof SysError)) throw error;
      if (isMissingAddress(error)) continue;
      throw new StartFailure(
        `listen on ${addressText(address)}: ${explain(error, address.port, remedy)}`,
      );
    }
  }
  return isOurs;
}

async function numericHosts({ host }: ListenAddress): Promise<string[]> {
  try {
    return await listenHosts([host]);
  } catch (error) {
    throw error instanceof ListenHostError ? new StartFailure(error.message) : error;
  }
}

function explain(error: SysError, port: number, remedy: string): string {
  switch (error.code) {
    case "EADDRINUSE":
      return `the port is taken, wanted a free one (${remedy})`;
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
