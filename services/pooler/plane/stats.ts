// The counters of a pool: an array of doubles, so that counting is an addition. Times are in ms here;
// the console shows microseconds.

/** Indexes into a pool's counters, in the order of SHOW STATS. */
export const Counter = {
  assignments: 0,
  transactions: 1,
  queries: 2,
  /** Bytes received from clients. */
  bytesReceived: 3,
  /** Bytes that servers sent to clients. */
  bytesSent: 4,
  transactionTime: 5,
  queryTime: 6,
  waitTime: 7,
  clientParses: 8,
  serverParses: 9,
  binds: 10,
  logins: 11,
} as const;

export const counterCount = 12;

/** Totals of one pool, and what they were at the last two period ends, for averages. */
export class PoolStats {
  readonly totals = new Float64Array(counterCount);
  readonly #previous = new Float64Array(counterCount);
  readonly averages = new Float64Array(counterCount);

  /** Takes over what another has counted, as if it had counted it itself. */
  absorb(other: PoolStats): void {
    for (let i = 0; i < counterCount; i++) {
      this.totals[i]! += other.totals[i]!;
      this.#previous[i]! += other.#previous[i]!;
    }
  }

  /** Closes a period of `periodMs`. Averages: counts per second, times per item. */
  endPeriod(periodMs: number): void {
    const delta = (index: number) => this.totals[index]! - this.#previous[index]!;
    const seconds = periodMs / 1000;
    for (let i = 0; i < counterCount; i++) this.averages[i] = delta(i) / seconds;
    const perItem = (time: number, count: number) => {
      this.averages[time] = delta(count) > 0 ? delta(time) / delta(count) : 0;
    };
    perItem(Counter.transactionTime, Counter.transactions);
    perItem(Counter.queryTime, Counter.queries);
    perItem(Counter.waitTime, Counter.assignments);
    this.#previous.set(this.totals);
  }
}
