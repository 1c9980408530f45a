// The addresses that listen_addr means: names are looked up, numeric addresses and "*" stay. A name that has none is
// an error, as with PgBouncer: nobody would notice that it is not served.

import { Resolver } from "./resolver.ts";

/** A start has time: name servers may not be up much earlier. */
const lookupMs = 30_000;

/** Throws an Error that names the one that could not be looked up. */
export async function listenHosts(hosts: readonly string[]): Promise<string[]> {
  const resolver = new Resolver(undefined, lookupMs);
  const addresses = new Set<string>();
  for (const host of hosts) {
    if (host === "*") {
      addresses.add(host);
      continue;
    }
    const answer = await resolver.resolve(host);
    if (answer.addresses.length === 0) {
      throw new ListenHostError(`listen_addr: look up "${host}": ${answer.reason}`);
    }
    for (const address of answer.addresses) addresses.add(address);
  }
  return [...addresses];
}

export class ListenHostError extends Error {}
