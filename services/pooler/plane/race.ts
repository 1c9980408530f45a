// Connecting to the first of several addresses that answers (RFC 8305): the next one is tried when one has failed
// or has not answered for a quarter of a second. The others are closed before a byte was sent on them.

import {
  closeFd,
  EPOLLOUT,
  type EventSource,
  type Reactor,
  socketError,
  type Timer,
} from "../../../shared/sys/mod.ts";

const staggerMs = 250;

export interface RaceEnd {
  /** Connected, and not in the reactor; or -errno of the last that failed. */
  readonly fd: number;
  /** Of the connection, or of that failure. */
  readonly address: string;
  /** Addresses that were tried before and have failed, or have not answered yet. */
  readonly late: readonly string[];
}

export class Race {
  readonly #reactor: Reactor;
  readonly #connect: (address: string) => number;
  readonly #onEnd: (end: RaceEnd) => void;
  #left: readonly string[];
  readonly #attempts = new Map<number, string>();
  readonly #late: string[] = [];
  #timer: Timer | null = null;
  #errno = 0;
  #failedAddress = "";
  #ended = false;

  /** `connect` begins to: the descriptor, or -errno. `onEnd` is called once, from `start` perhaps; not after `cancel`. */
  constructor(
    reactor: Reactor,
    addresses: readonly string[],
    connect: (address: string) => number,
    onEnd: (end: RaceEnd) => void,
  ) {
    this.#reactor = reactor;
    this.#left = addresses;
    this.#connect = connect;
    this.#onEnd = onEnd;
  }

  start(): void {
    this.#timer?.cancel();
    this.#timer = null;
    for (;;) {
      const [address, ...left] = this.#left;
      if (address === undefined) {
        if (this.#attempts.size === 0) this.#end(-this.#errno, this.#failedAddress);
        return;
      }
      this.#left = left;
      const fd = this.#connect(address);
      if (fd < 0) {
        this.#onFailed(address, -fd);
        continue;
      }
      this.#attempts.set(fd, address);
      this.#reactor.add(fd, EPOLLOUT, this.#source(fd, address));
      if (left.length > 0) this.#timer = this.#reactor.after(staggerMs, () => this.start());
      return;
    }
  }

  /** Closes what is under way. */
  cancel(): void {
    this.#ended = true;
    this.#timer?.cancel();
    for (const fd of this.#attempts.keys()) this.#drop(fd);
    this.#attempts.clear();
  }

  #source(fd: number, address: string): EventSource {
    return {
      onEvents: () => {
        const errno = socketError(fd);
        this.#attempts.delete(fd);
        if (errno === 0) {
          this.#reactor.remove(fd);
          this.#end(fd, address);
          return;
        }
        this.#drop(fd);
        this.#onFailed(address, errno);
        this.start();
      },
    };
  }

  #drop(fd: number): void {
    this.#reactor.remove(fd);
    closeFd(fd);
  }

  #onFailed(address: string, errno: number): void {
    this.#errno = errno;
    this.#failedAddress = address;
    this.#late.push(address);
  }

  #end(fd: number, address: string): void {
    if (this.#ended) return;
    const late = [...this.#late, ...this.#attempts.values()];
    this.cancel();
    this.#onEnd({ fd, address, late });
  }
}
