// How a worker shares out its file descriptors. Some are never given to clients and servers: the
// runtime's own, the bus, files, cancels on their way to PostgreSQL; and the entrance, for connections
// that are not logged in: there must be room to take a cancel or an operator, and to refuse a client.
//
//   0                                        clients + servers max      + entrance       limit
//   | clients (at most clientsMax) | servers           | not logged in yet | the rest    |
//
// Connections that are not logged in may have clients' places too, never those of servers: strangers that
// connect and say nothing must not keep those who are there from being served.

import type { Stream } from "../../../shared/sys/mod.ts";

const reserved = 48;
const entrance = 16;
/** Clients leave a quarter to servers, or as many as one pool may have if that is less. */
const serversPart = 4;

export class Descriptors {
  /** Clients that may be logged in at once. */
  readonly clientsMax: number;
  readonly #peersMax: number;
  /** Connections whose last words are on their way: closed for all but the kernel. */
  #leaving: Pick<Stream, "closed">[] = [];

  constructor(limit: number, poolSize: number) {
    this.#peersMax = Math.max(2, limit - reserved - entrance);
    const servers = Math.min(Math.ceil(this.#peersMax / serversPart), Math.max(1, poolSize));
    this.clientsMax = this.#peersMax - servers;
  }

  leaves(stream: Pick<Stream, "closed">): void {
    this.#leaving.push(stream);
  }

  /** Whether one more connection can be accepted, so many clients, logged in or not, and servers being open. */
  mayAccept(clients: number, servers: number): boolean {
    const taken = this.#taken(clients, servers);
    return taken < this.clientsMax + entrance && taken + servers < this.#peersMax + entrance;
  }

  /** How many more servers may be opened. */
  serverRoom(clients: number, servers: number): number {
    return this.#peersMax - servers - Math.min(this.clientsMax, this.#taken(clients, servers));
  }

  /** How many the clients have, and those that were clients. */
  #taken(clients: number, servers: number): number {
    const taken = clients + this.#leaving.length;
    if (taken >= this.clientsMax || taken + servers >= this.#peersMax) this.sweep();
    return clients + this.#leaving.length;
  }

  /** Forgets the connections that are gone by now. */
  sweep(): void {
    if (this.#leaving.length > 0) this.#leaving = this.#leaving.filter((stream) => !stream.closed);
  }
}
