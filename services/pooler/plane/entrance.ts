// The way in for clients when they come by the thousand: a few steps of logins in each batch of events, the others wait
// in line, so that those who are logged in are served between them. First come, first served; but who has begun to
// prove who it is goes before those who have not: so a few are done at a time, and none of them holds a place by
// being slow. Pure but for the streams that it pauses.

/** A client that logs in. */
export interface Entrant {
  readonly closed: boolean;
  /** It has not said who it is. */
  readonly isFresh: boolean;
  readonly stream: { pause(watchHangup: boolean): void; resume(): void };
  /** It was let in to do its next step. */
  isCalled: boolean;
}

/** Steps of logins between two looks at everybody else; some take a tenth of a millisecond. */
const perBatch = 32;

class Line {
  #entrants: Entrant[] = [];
  #first = 0;

  get isEmpty(): boolean {
    return this.#first === this.#entrants.length;
  }

  push(entrant: Entrant): void {
    this.#entrants.push(entrant);
  }

  shift(): Entrant {
    const entrant = this.#entrants[this.#first++] as Entrant;
    if (this.isEmpty) {
      this.#entrants = [];
      this.#first = 0;
    }
    return entrant;
  }
}

export class Entrance {
  readonly #perBatch: number;
  readonly #begun = new Line();
  readonly #fresh = new Line();
  #left: number;

  constructor(most: number = perBatch) {
    this.#perBatch = most;
    this.#left = most;
  }

  /** Whether a client that has sent something may do its step now; else it is paused until its turn. */
  admits(entrant: Entrant): boolean {
    const { isFresh } = entrant;
    if (entrant.isCalled) {
      entrant.isCalled = false;
      return true;
    }
    const isFree = this.#begun.isEmpty && (!isFresh || this.#fresh.isEmpty);
    if (isFree && this.#left > 0) {
      this.#left--;
      return true;
    }
    entrant.stream.pause(true);
    (isFresh ? this.#fresh : this.#begun).push(entrant);
    return false;
  }

  /** Called after each batch of events: the next ones are called, and come in the next batch. */
  onBatchEnd(): void {
    this.#left = this.#perBatch;
    for (const line of [this.#begun, this.#fresh]) {
      while (this.#left > 0 && !line.isEmpty) {
        const entrant = line.shift();
        if (entrant.closed) continue;
        entrant.isCalled = true;
        entrant.stream.resume();
        this.#left--;
      }
    }
  }
}
