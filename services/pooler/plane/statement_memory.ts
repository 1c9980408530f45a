// What the prepared statements of a worker cost: how much memory one client's and all clients' may take, and
// when so much of it has come free that it is worth a garbage collection. Pure: it is told the time.
// Texts count where clients have names for them, once however many names there are; what only servers have is
// bounded for each server, see PreparedOnServer.

import { type Refusal, refusals } from "./refusals.ts";

const mib = 1024 * 1024;

export interface StatementLimits {
  /** Bytes that one client may have names for. */
  readonly client: number;
  /** And all clients of the worker together. */
  readonly worker: number;
}

const defaults: StatementLimits = { client: 64 * mib, worker: 512 * mib };

/** So much must have come free, and at least half of what there was. */
const shrunkBytes = 16 * mib;
const pauseMs = 5000;

/** What the engines need for a statement beside its Parse message, and for a name beside its bytes. */
export const statementOverhead = 1024;
export const nameOverhead = 512;

export class StatementMemory {
  readonly #limits: StatementLimits;
  /** Of statements that have names, and of the names. */
  #named = 0;
  /** Of those that only servers have, too. */
  #kept = 0;
  /** The most it was since the last collection. */
  #peak = 0;
  #keptBefore = 0;
  #notBefore = 0;

  constructor(limits: StatementLimits = defaults) {
    this.#limits = limits;
  }

  get named(): number {
    return this.#named;
  }

  get kept(): number {
    return this.#kept;
  }

  keep(bytes: number): void {
    this.#kept += bytes;
    if (this.#kept > this.#peak) this.#peak = this.#kept;
  }

  drop(bytes: number): void {
    this.#kept -= bytes;
  }

  name(bytes: number): void {
    this.#named += bytes;
  }

  unname(bytes: number): void {
    this.#named -= bytes;
  }

  /**
   * Why a client that has names for `has` bytes gets none for `more`; null = it may. When all clients
   * together have too much it is not for those to pay who have less than an equal part.
   */
  refusal(has: number, more: number, clients: number): Refusal | null {
    const { client, worker } = this.#limits;
    if (has + more > client) return refusals.clientStatements;
    const isFull = this.#named + more > worker && has + more > worker / clients;
    return isFull ? refusals.workerStatements : null;
  }

  /**
   * Asked now and then: whether the engine should collect what has come free. It does so by itself only when
   * it makes new things, which a worker that relays does not.
   */
  hasShrunk(now: number): boolean {
    // More is to come while clients leave.
    const isFalling = this.#kept < this.#keptBefore;
    this.#keptBefore = this.#kept;
    if (isFalling || now < this.#notBefore) return false;
    if (this.#peak - this.#kept < shrunkBytes || this.#kept > this.#peak / 2) return false;
    this.#peak = this.#kept;
    this.#notBefore = now + pauseMs;
    return true;
  }
}
