// What a transaction may leave in the session of its server although nobody else may find it there: by
// the texts that were sent (SqlFlag) and by the command tags that came back. Pure.
// It errs towards a reset too many: a reset costs a round trip, a setting that another client finds may
// cost anything. What functions do inside the database is not seen.

import { SqlFlag } from "../../../shared/wire/mod.ts";

/** How much of a session is to be wiped before the server is used again. */
export const Wipe = { nothing: 0, settings: 1, everything: 2 } as const;
export type Wipe = typeof Wipe[keyof typeof Wipe];

/** Flags for a text that was not looked at. */
export const anything = Object.values(SqlFlag).reduce<number>((all, flag) => all | flag, 0);

/** What goes with the transaction because pooling by transactions can't keep it. */
export const unkept = SqlFlag.makesTemp | SqlFlag.holds | SqlFlag.prepares;
const changesSettings = SqlFlag.setsConfig | SqlFlag.runsCode;
const touchesLocks = SqlFlag.locks | SqlFlag.unlocks;

export class Residue {
  wipe: Wipe = Wipe.nothing;
  /** Session locks may have been taken or given back: only the server knows. */
  locksUnsure = false;
  /** LISTEN or UNLISTEN ran. */
  listening = false;
  #mayListen = false;
  /** A SET that is not answered yet may change how the server reads texts. */
  maySet = false;
  #maySetUnreported = false;
  #parsed = false;
  #sets = 0;
  #reports = 0;

  /** A text with these flags goes to the server. */
  expect(flags: number): void {
    if ((flags & (SqlFlag.sets | SqlFlag.setsReported)) !== 0) {
      this.maySet = true;
      if ((flags & SqlFlag.sets) !== 0) this.#maySetUnreported = true;
    }
    if ((flags & unkept) !== 0) this.wipe = Wipe.everything;
    else if ((flags & changesSettings) !== 0) this.#settings();
    if ((flags & touchesLocks) !== 0) this.locksUnsure = true;
    if ((flags & (SqlFlag.listens | SqlFlag.unlistens)) !== 0) this.#mayListen = true;
  }

  /** A statement that others share was prepared: under settings that are not its own, perhaps. */
  onParse(): void {
    if (this.maySet || this.wipe !== Wipe.nothing) this.#parsed = true;
  }

  /** A command with the tag SET was done. */
  onSet(): void {
    if (this.#maySetUnreported) this.#sets++;
  }

  /** A command with the tag LISTEN or UNLISTEN was done. */
  onListen(): void {
    if (this.#mayListen) this.listening = true;
  }

  /** The server has reported the new value of a parameter. */
  onReport(): void {
    this.#reports++;
  }

  /** ReadyForQuery; `last`: no other is on its way. */
  endCycle(last: boolean): void {
    if (this.#sets > 0) {
      if (this.#sets > this.#reports) this.#settings();
      this.#sets = 0;
    }
    this.#reports = 0;
    if (last) {
      this.maySet = this.#maySetUnreported = this.#mayListen = false;
      if (this.wipe === Wipe.nothing) this.#parsed = false;
    }
  }

  /** The server's session is as after its login. */
  clear(): void {
    this.wipe = Wipe.nothing;
    this.#parsed = false;
    this.locksUnsure = false;
    this.listening = false;
  }

  /** What is to be wiped: with settings, also what was prepared under them. */
  get due(): Wipe {
    return this.wipe === Wipe.settings && this.#parsed ? Wipe.everything : this.wipe;
  }

  #settings(): void {
    if (this.wipe === Wipe.nothing) this.wipe = Wipe.settings;
  }
}
