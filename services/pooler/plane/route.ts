// The way of one server connection to its host: the name's addresses, and the first of them that connects.

import { errnoText } from "../../../shared/sys/mod.ts";
import { connectTo, isSocketDir } from "./dial.ts";
import type { Plane } from "./plane.ts";
import { Race } from "./race.ts";

export interface RouteEnd {
  /** Connected; -1 if it failed. */
  readonly fd: number;
  readonly address: string;
  /** Why it failed, in PgBouncer's words and in the system's. */
  readonly reason: string;
  readonly detail: string;
}

export class Route {
  readonly #plane: Plane;
  readonly #host: string;
  readonly #port: number;
  readonly #onEnd: (end: RouteEnd) => void;
  #race: Race | null = null;
  #isCancelled = false;

  /** `onEnd` is called once for each `open` and `again`, at once perhaps; not after `cancel`. */
  constructor(plane: Plane, host: string, port: number, onEnd: (end: RouteEnd) => void) {
    this.#plane = plane;
    this.#host = host;
    this.#port = port;
    this.#onEnd = onEnd;
  }

  open(): void {
    if (isSocketDir(this.#host)) return this.again(this.#host);
    this.#plane.names.resolve(this.#host, (addresses, reason) => {
      if (this.#isCancelled) return;
      if (addresses.length > 0) return this.#connect(addresses);
      const end = { fd: -1, address: this.#host, detail: reason };
      this.#onEnd({ ...end, reason: "server DNS lookup failed" });
    });
  }

  /** To an address that is known to be the right one. */
  again(address: string): void {
    this.#connect([address]);
  }

  cancel(): void {
    this.#isCancelled = true;
    this.#race?.cancel();
  }

  #connect(addresses: readonly string[]): void {
    const { reactor, names } = this.#plane;
    const connect = (address: string) => connectTo(this.#plane, address, this.#port);
    const race = new Race(reactor, addresses, connect, ({ fd, address, late }) => {
      names.note(this.#host, fd < 0 ? null : address, late);
      if (fd < 0) {
        this.#onEnd({ fd: -1, address, reason: "connect failed", detail: errnoText(-fd) });
        return;
      }
      this.#onEnd({ fd, address, reason: "", detail: "" });
    });
    this.#race = race;
    race.start();
  }
}
