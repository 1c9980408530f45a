// What a client without a server is answered, since no transaction is open; and for how long it has asked for
// nothing.

import type { Reactor, Stream } from "../../../shared/sys/mod.ts";
import { Frontend, readInt32, readyForQuery } from "../../../shared/wire/mod.ts";
import { error, type Refusal } from "./refusals.ts";

const readyIdle = readyForQuery("I");

export class Unlinked {
  readonly #stream: Stream;
  readonly #reactor: Reactor;
  /** When it had all that it has asked for. */
  idleSince = 0;
  /** Messages are skipped up to a Sync, as the server would after an error. */
  #skipToSync = false;

  constructor(stream: Stream, reactor: Reactor) {
    this.#stream = stream;
    this.#reactor = reactor;
  }

  /** It has what it has asked for. */
  rest(): void {
    this.idleSince = this.#reactor.now;
  }

  /** Whether a message of this type needs no server. */
  answers(type: number): boolean {
    this.rest();
    switch (type) {
      case Frontend.sync:
        this.#skipToSync = false;
        this.#stream.sendBytes(readyIdle);
        return true;
      case Frontend.flush:
      // Late parts of a copy that has failed already: PostgreSQL ignores them too.
      case Frontend.copyData:
      case Frontend.copyDone:
      case Frontend.copyFail:
        return true;
    }
    return this.#skipToSync;
  }

  /**
   * Answers the request that `input` begins with by an error. Returns the length of the message that is
   * dealt with, which may be more than there is of it.
   */
  refuse(input: Uint8Array, refusal: Refusal): number {
    this.rest();
    this.#stream.sendBytes(error(refusal));
    const type = input[0] as number;
    if (type === Frontend.query || type === Frontend.functionCall) {
      this.#stream.sendBytes(readyIdle);
      return 1 + readInt32(input, 1);
    }
    this.#skipToSync = true;
    return 0;
  }
}
