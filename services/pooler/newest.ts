// Of what is said again and again by whoever may be replaced: whether a message is news. Late, doubled and reordered
// ones are not, nor what a predecessor still says. Pure: given the clock.
// Bounds: `keysMax` senders; who is silent for long is forgotten, so that a clock that was set back does not shut its
// host's monitor out for ever.

/** Where a message stands: `epoch` rises with each start of a sender, `seq` with each message of it. */
export interface Stamp {
  readonly epoch: number;
  readonly seq: number;
}

const keysMax = 5000;
const rememberMs = 60_000;

export class Newest {
  readonly #last = new Map<string, Stamp & { readonly at: number }>();

  /** Whether it is newer than all that was taken about `about` lately; then it is the newest. */
  take(about: string, { epoch, seq }: Stamp, now: number): boolean {
    const last = this.#last.get(about);
    const isOld = last !== undefined && now - last.at < rememberMs &&
      (epoch < last.epoch || (epoch === last.epoch && seq <= last.seq));
    if (isOld) return false;
    if (last === undefined && this.#last.size >= keysMax) this.#forget(now);
    if (last === undefined && this.#last.size >= keysMax) return false;
    this.#last.set(about, { epoch, seq, at: now });
    return true;
  }

  #forget(now: number): void {
    for (const [about, { at }] of this.#last) {
      if (now - at >= rememberMs) this.#last.delete(about);
    }
  }
}
