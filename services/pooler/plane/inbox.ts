// What a client that listens is to be told and was not yet: notifications wait here while it has a transaction
// open, or does not take what it is sent. Bounded. Pure; when they are sent is notifier.ts's matter.

import { noticeResponse } from "../../../shared/wire/mod.ts";

/** A client that has more notifications coming than this is not reading them. */
export const inboxMaxCount = 10_000;
export const inboxMaxBytes = 1024 * 1024;

/** Said once for each time that the connection which listens was lost. */
const lossNotice = noticeResponse({
  severity: "WARNING",
  code: "01000",
  message: "notifications may have been lost",
  detail: "The pooler's connection that listens to this session's channels was lost; " +
    "it listens to them again now",
});

/** What became of notifications. */
export interface NotificationCounts {
  received: number;
  /** Passed on, once for each client. */
  delivered: number;
  /** Not passed on: their client had too many of them, or left. */
  dropped: number;
}

/** What a client listens to. */
export interface Sender {
  readonly counts: NotificationCounts;
}

interface Letter<S extends Sender> {
  /** Null: a notice of the pooler's. */
  readonly from: S | null;
  readonly bytes: Uint8Array;
}

export class Inbox<S extends Sender> {
  /** By name, one character per byte. */
  readonly channels = new Map<string, S>();
  /** Its client may have notified itself in its transaction, and is to be told before that is answered. */
  notifies = false;
  /** It was listening when the connection for it was lost, and does not know it yet. */
  missed = false;
  #letters: Letter<S>[] = [];
  #bytes = 0;
  #hasNotice = false;
  /** Too much was sent to it: its client is about to be disconnected. */
  full = false;

  get count(): number {
    return this.#letters.length;
  }

  /** Puts a message in; `pending`: bytes that its client's socket has not taken. False: it is full now. */
  put(from: S, bytes: Uint8Array, pending: number): boolean {
    if (
      this.full || this.#letters.length >= inboxMaxCount ||
      this.#bytes + pending + bytes.length > inboxMaxBytes
    ) {
      from.counts.dropped++;
      this.close();
      return false;
    }
    this.#letters.push({ from, bytes });
    this.#bytes += bytes.length;
    return true;
  }

  /** Notifications may have been lost; once is enough where it was not told yet. */
  putLoss(): void {
    if (this.#hasNotice || this.full) return;
    this.#hasNotice = true;
    this.#letters.push({ from: null, bytes: lossNotice });
  }

  /** All there is, oldest first; counts as delivered. */
  *take(): Generator<Uint8Array> {
    const letters = this.#letters;
    this.#empty();
    for (const { from, bytes } of letters) {
      if (from !== null) from.counts.delivered++;
      yield bytes;
    }
  }

  /** What came from here is not wanted any more. */
  drop(from: S): void {
    if (!this.#letters.some((letter) => letter.from === from)) return;
    this.#letters = this.#letters.filter((letter) => letter.from !== from);
    this.#bytes = 0;
    for (const letter of this.#letters) {
      if (letter.from !== null) this.#bytes += letter.bytes.length;
    }
  }

  /** Takes nothing more; what is there is lost. */
  close(): void {
    if (this.full) return;
    this.full = true;
    for (const { from } of this.#letters) if (from !== null) from.counts.dropped++;
    this.#empty();
  }

  #empty(): void {
    this.#letters = [];
    this.#bytes = 0;
    this.#hasNotice = false;
  }
}
