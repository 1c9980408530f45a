// One leaf as its worker sees it: what it may hold, what it holds, what it could use. Read on the data
// plane for every connection it opens, so the numbers are plain fields. Only the owner writes `held`, `opening`,
// `wanted`, `idleMs`, `asks` and `busyMs`, and calls touch() when the coordinator should hear of it before the next full
// report; only the lease table writes the others.

export class Lease {
  readonly leaf: string;
  /** slots in use in any state, opening and closing ones included: free only when the peer has closed */
  held = 0;
  /**
   * those of `held` that PostgreSQL does not show yet: connecting. Beyond the floor they are not kept without
   * contact, because the coordinator may go by what PostgreSQL shows: the owner then ends them at once.
   */
  opening = 0;
  /** slots there is a use for now, those in use included */
  wanted = 0;
  /** age of the oldest idle slot; 0 = none is idle */
  idleMs = 0;
  granted = 0;
  floor = 0;
  /** whether all of them are in use is of interest: some wait who may not */
  asks = false;
  /** for how long all that is granted has been in use without a break; 0: it is not */
  busyMs = 0;
  /** another worker asks, and was not answered yet */
  polled = false;
  /** all were in use after the report with this seq, or an earlier one, had asked; 0: nobody knows of that */
  usedUp = 0;
  /** more is on its way; false with granted < wanted, once answered: the cap is exhausted */
  pending = false;
  /** nothing limits it, by the worker's configuration and by what the coordinator said last */
  unlimited: boolean;
  /** was out of contact, and not granted anew since: what is held no more is not kept */
  waning = false;
  /** grants of the promised epoch with this seq or a lower one do nothing any more */
  ack = 0;
  /** seq of the last report that carried this lease; 0 = none did */
  lastReportSeq = 0;
  /** highest report seq that the coordinator of the promised epoch has seen of this worker */
  answeredSeq = 0;
  readonly #dirty: Set<Lease>;

  constructor(leaf: string, ack: number, unlimited: boolean, dirty: Set<Lease>) {
    this.leaf = leaf;
    this.ack = ack;
    this.unlimited = unlimited;
    this.#dirty = dirty;
  }

  /** May hold so many now; what is held beyond it is to be closed. */
  get limit(): number {
    return this.granted;
  }

  /** May open so many more now. */
  get room(): number {
    return this.held < this.granted ? this.granted - this.held : 0;
  }

  /** Nothing held, wanted or granted. */
  get blank(): boolean {
    return this.held === 0 && this.wanted === 0 && this.granted === 0;
  }

  /** The coordinator has seen the last report that carried this lease. */
  get answered(): boolean {
    return this.lastReportSeq > 0 && this.lastReportSeq <= this.answeredSeq;
  }

  /** There is a use for so many now. */
  want(slots: number): void {
    if (slots === this.wanted) return;
    this.wanted = slots;
    this.touch();
  }

  touch(): void {
    this.#dirty.add(this);
  }
}
