// What LISTEN and UNLISTEN have done in the transactions of one server's client: by the channels that its
// texts name and by the command tags that come back. Pure.
// Which channels a session listens to PostgreSQL tells, what is gone from them it does not: so the names in
// UNLISTEN are kept from when they are sent, and count once their transaction has ended well. Whoever rolls
// back behind one, be it to a savepoint, has not done it: a notification too many is better than one too few.

import { SqlFlag } from "../../../shared/wire/mod.ts";

/** UNLISTEN of everything. */
export const allChannels = "*";

interface Announced {
  readonly channel: string;
  /** Requests that end with ReadyForQuery and stand before the one that it belongs to. */
  cycles: number;
}

const nothing: readonly string[] = [];

export class ListenState {
  /** A LISTEN was done; whether it took effect is not known. */
  listening = false;
  /** Something of it is not answered, or not dealt with: what the client sends next has to wait. */
  serial = false;
  #mayListen = false;
  #announced: Announced[] = [];
  /** Of the transaction that is open. */
  #undone: string[] = [];
  #gone: string[] = [];

  /** A text goes to the server that has these flags and UNLISTENs of these channels. */
  expect(flags: number, channels: readonly string[], cycles: number): void {
    if ((flags & (SqlFlag.listens | SqlFlag.unlistens)) === 0) return;
    this.serial = true;
    if ((flags & SqlFlag.listens) !== 0) this.#mayListen = true;
    for (const channel of channels) this.#announced.push({ channel, cycles });
  }

  /** A command with the tag LISTEN was done. */
  onListen(): void {
    if (this.#mayListen) this.listening = true;
  }

  /** A command with the tag UNLISTEN was done. */
  onUnlisten(): void {
    if (this.#announced[0]?.cycles !== 0) return;
    const { channel } = this.#announced.shift() as Announced;
    this.#undone.push(channel);
  }

  /** DISCARD ALL was done, which is never a part of a transaction. */
  onDiscard(): void {
    this.serial = true;
    this.#gone.push(allChannels);
  }

  /** An error, or a command with the tag ROLLBACK. */
  onRollback(): void {
    if (this.#undone.length > 0) this.#undone = [];
  }

  /** ReadyForQuery. `idle`: no transaction is open; `last`: all that was sent is answered. */
  endCycle(idle: boolean, last: boolean): void {
    if (!this.serial) return;
    this.#announced = last ? [] : this.#announced.filter((each) => --each.cycles >= 0);
    if (idle && this.#undone.length > 0) {
      this.#gone.push(...this.#undone);
      this.#undone = [];
    }
    if (!last) return;
    this.#mayListen = false;
    this.serial = this.isDue || this.#undone.length > 0;
  }

  /** Whether there is something to do at the end of the transaction. */
  get isDue(): boolean {
    return this.listening || this.#gone.length > 0;
  }

  /** The channels of UNLISTENs that took effect, in order; they are dealt with. */
  takeGone(): readonly string[] {
    if (this.#gone.length === 0) return nothing;
    const gone = this.#gone;
    this.#gone = [];
    this.serial = this.listening;
    return gone;
  }

  /** The client has left: what it had sent may still be done. */
  forget(): void {
    this.#announced = [];
    this.#undone = [];
    this.#gone = [];
    this.serial = false;
  }

  /** The server listens to nothing. */
  clear(): void {
    this.forget();
    this.listening = false;
    this.#mayListen = false;
  }
}
