// Of what is said again and again by whoever may be replaced: whether a message is news. Late, doubled and reordered
// ones are not, nor what a predecessor still says. Pure: given the clock.
// Bounds: `keysMax` senders; what somebody has said is forgotten when it holds no longer, so that a second one that
// comes and goes, or a clock that was set back, does not shut the first out.

/** Where a message stands: `epoch` rises with each start of a sender, `seq` with each message of it. */
export interface Stamp {
  readonly epoch: number;
  readonly seq: number;
}

const keysMax = 5000;

export class Newest {
  readonly #last = new Map<string, Stamp & { readonly until: number }>();

  /** Whether it is newer than what holds about `about`; then it is the newest, and holds for `holdsMs`. */
  take(about: string, { epoch, seq }: Stamp, now: number, holdsMs: number): boolean {
    const last = this.#last.get(about);
    const isOld = last !== undefined && now < last.until &&
      (epoch < last.epoch || (epoch === last.epoch && seq <= last.seq));
    if (isOld) return false;
    if (last === undefined && this.#last.size >= keysMax) this.#forget(now);
    if (last === undefined && this.#last.size >= keysMax) return false;
    this.#last.set(about, { epoch, seq, until: now + holdsMs });
    return true;
  }

  #forget(now: number): void {
    for (const [about, { until }] of this.#last) {
      if (now >= until) this.#last.delete(about);
    }
  }
}
