// Who leads the coordinators of a mesh: a key of the store, renewed by compare-and-set. Not the guard of
// the budget itself: a leader that was frozen may believe in its term for a moment too long, and what it
// may do then is bounded by the saved charges (charge_book.ts) and by `confirm()`.
// Invariants: an epoch has one leader; epochs rise; a leader stops `stopMs` after the last renewal it
// SENT, a follower takes over `termMs` after the last one it SAW, each by its own monotonic clock. When the
// key is gone, lost with the store, its leader may not know yet: all who knew of one wait for its end, and
// the next epoch is above any they saw. Only who never saw it takes the store for a new one. (One that is
// lost twice within a term can have two leaders until the first one's next renewal; workers follow the later.)
// So do all who find a key that is older than what they knew: the store has lost its newest writes. An epoch is
// never below the time, so that who does not know of one that was lost does not give it again.

import { decode, encode } from "@msgpack/msgpack";
import type { Store } from "../../shared/bus/mod.ts";

export const leaderKey = "leader";

export interface ElectionTimes {
  /** A follower takes over when nothing was renewed for so long. */
  readonly termMs: number;
  /** A leader renews so often. */
  readonly renewMs: number;
  /** A leader that could not renew for so long stops leading; less than `termMs`. */
  readonly stopMs: number;
  /** A follower looks so often. */
  readonly pollMs: number;
}

export const electionTimes: ElectionTimes = {
  termMs: 3000,
  renewMs: 1000,
  stopMs: 2000,
  pollMs: 500,
};

export interface ElectionOptions {
  readonly store: Store;
  /** Names this process and no other in the mesh, ever. */
  readonly name: string;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  /** No new epoch is below; rises with time, above what a store that lost its content may have had. */
  readonly leastEpoch: () => number;
  readonly times?: ElectionTimes;
  /** Called within `tick()`, when this process leads. */
  readonly onElected: (epoch: number, past: Past) => void;
  /** Called within a method, when it leads no more. */
  readonly onDeposed: (reason: string) => void;
}

/** Who is known to have led last, whatever the store has kept: this process, or another, or nobody. */
export type Past = "ours" | "others";

interface LeaderRecord {
  readonly epoch: number;
  readonly name: string;
  readonly resigned: boolean;
}

interface Term {
  readonly epoch: number;
  revision: number;
  /** When the last renewal that succeeded was sent. */
  renewedAt: number;
  /** The bus was away: nothing is granted until a renewal succeeds. */
  doubted: boolean;
}

/** Workers that promised an epoch so far above ours are not believed. */
const maxEpochLead = 1_000_000_000;

export class Election {
  readonly #options: ElectionOptions;
  readonly #times: ElectionTimes;
  #term: Term | null = null;
  /** What was seen last of a leader: the revision, null if it is lost, and since when that stands. */
  #seen: { revision: number | null; since: number } | null = null;
  /** The highest epoch that was ever seen or heard of, that of a leader, and that was led here last. */
  #highest = 0;
  #latest = 0;
  #led = 0;
  /** When the key was looked for last and not there. */
  #lostAt = -Infinity;
  /** Nobody else can have been elected before, unless the store is lost. */
  #heldUntil = -Infinity;
  #pollAt = -Infinity;
  /** One operation on the key at a time. */
  #last: Promise<unknown> = Promise.resolve();
  #operations = 0;
  /** A renewal that waits for its turn: whoever asks before it begins shares it. */
  #waiting: Promise<boolean> | null = null;
  #closed = false;

  constructor(options: ElectionOptions) {
    this.#options = options;
    this.#times = options.times ?? electionTimes;
  }

  /** Whether grants may be sent now. */
  get leading(): boolean {
    return this.#term !== null && !this.#term.doubted && !this.#expired(this.#term);
  }

  /** The epoch led, or null. */
  get epoch(): number | null {
    return this.#term?.epoch ?? null;
  }

  /**
   * Does what is due: renews, looks, takes over. Call it often. Rejects with the store's error when
   * that could not be asked; a leader leads on until its time is over.
   */
  async tick(): Promise<void> {
    if (this.#closed) return;
    const now = this.#options.clock();
    const term = this.#term;
    if (term !== null && this.#expired(term)) {
      this.#depose(`the term could not be renewed for ${this.#times.stopMs} ms`);
    }
    if (this.#operations > 0) return;
    if (this.#term !== null) {
      const due = this.#term.doubted || now - this.#term.renewedAt >= this.#times.renewMs;
      if (due) await this.confirm();
    } else if (now >= this.#pollAt) {
      this.#pollAt = now + this.#times.pollMs;
      await this.#serially(() => this.#follow());
    }
  }

  /**
   * Renews the term by an operation that begins after this call, so that whoever took over before saw
   * all that we had written. False when we lead no more; rejects when that is not known.
   */
  confirm(): Promise<boolean> {
    this.#waiting ??= this.#serially(() => {
      this.#waiting = null;
      return this.#renew();
    });
    return this.#waiting;
  }

  /** After the bus was away: does not lead until a renewal succeeds. */
  doubt(): void {
    if (this.#term !== null) this.#term.doubted = true;
    this.#pollAt = -Infinity;
  }

  /** A worker has promised to listen to nobody of a lower epoch: ours must be at least this. */
  promised(epoch: number): void {
    const own = this.#term?.epoch ?? 0;
    if (epoch <= own || epoch > own + maxEpochLead || own === 0) return;
    this.#highest = Math.max(this.#highest, epoch);
    this.#depose(`a worker follows epoch ${epoch}`);
  }

  /** Another says that it leads: known, should the store lose it before we look. */
  heard({ epoch, name }: { readonly epoch: number; readonly name: string }): void {
    const likely = Math.max(this.#highest, this.#options.leastEpoch()) + maxEpochLead;
    if (name !== this.#options.name && epoch <= likely) this.#know(epoch);
  }

  /** Ends the term, to stand again at once; whoever leads by then is followed. */
  stepDown(reason: string): void {
    this.#depose(reason);
  }

  /** Gives the term up for good, so that another takes over at once. Never rejects. */
  async resign(): Promise<void> {
    this.#closed = true;
    await this.#serially(async () => {
      const term = this.#term;
      if (term === null) return;
      this.#depose("resigned");
      await this.#options.store.update(leaderKey, this.#record(term.epoch, true), term.revision);
    }).catch(() => {}); // not told: the others wait for the end of the term
  }

  #expired(term: Term): boolean {
    return this.#options.clock() - term.renewedAt >= this.#times.stopMs;
  }

  #serially<T>(operation: () => Promise<T>): Promise<T> {
    this.#operations += 1;
    const result = this.#last.then(operation).finally(() => {
      this.#operations -= 1;
    });
    this.#last = result.catch(() => {});
    return result;
  }

  async #renew(): Promise<boolean> {
    const { store, clock } = this.#options;
    const term = this.#term;
    if (term === null) return false;
    for (let attempt = 0; attempt < 2; attempt++) {
      const sentAt = clock();
      const revision = await store.update(leaderKey, this.#record(term.epoch), term.revision);
      if (this.#term !== term) return false;
      if (revision !== null) {
        term.revision = revision;
        term.renewedAt = sentAt;
        term.doubted = false;
        return this.leading;
      }
      // A renewal whose answer was lost may have been written after all.
      const found = await store.get(leaderKey);
      if (this.#term !== term) return false;
      if (found === null) {
        this.#depose("the store has lost who leads");
        return false;
      }
      const record = this.#parse(found.value);
      if (record?.name !== this.#options.name || record.epoch !== term.epoch) {
        const other = record === null ? "" : `: "${record.name}" leads epoch ${record.epoch}`;
        this.#depose(`another coordinator took over${other}`);
        return false;
      }
      if (found.revision < term.revision) {
        // So may others have been lost; to take over again is to save all again.
        this.#depose("the store has lost its newest writes");
        return false;
      }
      term.revision = found.revision;
    }
    return false;
  }

  async #follow(): Promise<void> {
    const { store, clock, name } = this.#options;
    const found = await store.get(leaderKey);
    const now = clock();
    if (found === null) {
      if (this.#highest > 0 && !this.#mayReplaceLost(now)) return;
      await this.#claim((record) => store.create(leaderKey, record));
      return;
    }
    const { revision } = found;
    if (this.#seen?.revision !== revision) this.#seen = { revision, since: now };
    const record = this.#parse(found.value);
    // A term of our own that ended, or a claim whose answer was lost: nobody else wrote since, unless
    // what a later leader wrote is lost. That one may not know yet.
    const ended = record !== null && (record.resigned || record.name === name) &&
      record.epoch === this.#latest;
    if (!ended && now - this.#seen.since < this.#times.termMs) return;
    await this.#claim((record) => store.update(leaderKey, record, revision));
  }

  get #past(): Past {
    return this.#led > 0 && this.#led === this.#highest ? "ours" : "others";
  }

  /** Whether the leader whose key is gone must have noticed; who knows all that it saved comes first. */
  #mayReplaceLost(now: number): boolean {
    if (now < this.#heldUntil) return true;
    const { termMs, renewMs, pollMs } = this.#times;
    // One who did not look for a while may have missed a leader.
    const looked = now - this.#lostAt <= 3 * pollMs;
    this.#lostAt = now;
    if (this.#seen?.revision !== null || !looked) this.#seen = { revision: null, since: now };
    return now - this.#seen.since >= (this.#past === "ours" ? termMs : termMs + renewMs);
  }

  async #claim(write: (record: Uint8Array) => Promise<number | null>): Promise<void> {
    const { clock, leastEpoch } = this.#options;
    const past = this.#past;
    const epoch = Math.max(leastEpoch(), this.#highest + 1);
    const sentAt = clock();
    const revision = await write(this.#record(epoch));
    if (revision === null || this.#closed) return;
    this.#seen = null;
    this.#term = { epoch, revision, renewedAt: sentAt, doubted: false };
    this.#know(epoch);
    this.#led = epoch;
    this.#options.onElected(epoch, past);
  }

  #depose(reason: string): void {
    if (this.#term === null) return;
    this.#heldUntil = this.#term.renewedAt + this.#times.stopMs;
    this.#term = null;
    this.#seen = null;
    this.#pollAt = -Infinity;
    this.#options.onDeposed(reason);
  }

  #parse(bytes: Uint8Array): LeaderRecord | null {
    const record = parseRecord(bytes);
    if (record !== null) this.#know(record.epoch);
    return record;
  }

  /** Somebody leads or led this epoch. */
  #know(epoch: number): void {
    this.#latest = Math.max(this.#latest, epoch);
    this.#highest = Math.max(this.#highest, epoch);
  }

  #record(epoch: number, resigned = false): Uint8Array {
    return encode({ v: 1, epoch, name: this.#options.name, resigned });
  }
}

/** null: not ours to read. */
function parseRecord(bytes: Uint8Array): LeaderRecord | null {
  try {
    const { epoch, name, resigned } = decode(bytes) as Record<string, unknown>;
    if (!Number.isSafeInteger(epoch) || typeof name !== "string") return null;
    return { epoch: epoch as number, name, resigned: resigned === true };
  } catch {
    return null;
  }
}
