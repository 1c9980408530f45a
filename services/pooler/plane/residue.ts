// What a transaction may leave in the session of its server although nobody else may find it there: by
// the texts that were sent (SqlFlag) and by the command tags that came back. Pure.
// It errs towards a reset too many: a reset costs a round trip, a setting that another client finds may
// cost anything. What functions do inside the database is not seen.

import { Frontend, scanSql, SqlFlag } from "../../../shared/wire/mod.ts";
import { ListenState } from "./listen_state.ts";
import { SettingChanges } from "./setting_changes.ts";
import type { TextNames } from "./text_names.ts";

/** How much of a session is to be wiped before the server is used again. */
export const Wipe = { nothing: 0, settings: 1, everything: 2 } as const;
export type Wipe = typeof Wipe[keyof typeof Wipe];

/** Flags for a text that was not looked at. */
export const anything = Object.values(SqlFlag).reduce<number>((all, flag) => all | flag, 0);

/** What goes with the transaction because pooling by transactions can't keep it. */
export const unkept = SqlFlag.makesTemp | SqlFlag.holds | SqlFlag.prepares;
const leavesAnything = unkept | SqlFlag.runsCode;
/** Behind it the server may read a text otherwise than its client's parameters say. */
const changesMeaning = SqlFlag.changesMeaning | SqlFlag.setsUnnamed | SqlFlag.mentionsConfig |
  SqlFlag.resets | SqlFlag.runsCode;
/** Session locks may be taken or given back. */
export const touchesLocks = SqlFlag.locks | SqlFlag.unlocks;

/** Matters for clients that listen only. */
export const ofListeners = SqlFlag.savepoints | SqlFlag.notifies | SqlFlag.namesNotify;

/** pg_proc.oid of set_config and of the functions for session locks, fixed in PostgreSQL's catalog. */
const setConfigOid = 2078;
const firstLockOid = 2880;
const lastLockOid = 2892;

/**
 * What the text [from, to) may do, as SqlFlag. `plain`: a backslash in it is one character that means
 * nothing; if not, a text that has any can't be read.
 */
export function textFlags(bytes: Uint8Array, from: number, to: number, plain: boolean): number {
  if (!plain) { for (let at = from; at < to; at++) if (bytes[at] === 0x5c) return anything; }
  return scanSql(bytes, from, to);
}

/** What a FunctionCall of this function may do. */
export function functionFlags(oid: number): number {
  if (oid === setConfigOid) return SqlFlag.setsConfig | SqlFlag.setsUnnamed;
  return oid >= firstLockOid && oid <= lastLockOid ? SqlFlag.locks : 0;
}

export class Residue {
  wipe: Wipe = Wipe.nothing;
  /** Session locks may have been taken or given back: only the server knows. */
  locksUnsure = false;
  /** Session pooling: the same, of which nobody needs to know as long as nothing is refused. */
  mayLock = false;
  readonly listen = new ListenState();
  readonly settings = new SettingChanges();
  /** Session pooling: its client has listened, and may hear something at any time. */
  hears = false;
  /** A text with flags is not answered yet: without one, what may happen, below, is false. */
  isExpecting = false;
  /** What is not answered yet may reset what the client asked for at its login. */
  mayReset = false;
  /** A SET that is not answered yet may change how the server reads texts. */
  maySet = false;
  /** Statement pooling: what is not answered yet may leave a transaction open. */
  mayBlock = false;
  /** Something that may end the transaction block was sent in it, or is bound there. */
  mayEnd = false;
  /** So may a statement that has a client's own name on this server, where nobody tracks those. */
  keepsEnding = false;
  /** Texts may mean something else until the end of the transaction. */
  #changesMeaning = false;
  /** All tags SET are to be of parameters that are reported, or of the transaction only. */
  #maySetReported = false;
  #maySetUnreported = false;

  /** A text with these flags and names goes to the server, where so many requests stand before it. */
  expect(flags: number, { steps, settings }: TextNames, cycles: number): void {
    this.isExpecting = true;
    this.settings.expect(flags, settings, cycles);
    this.listen.expect(flags, steps, cycles);
    if ((flags & changesMeaning) !== 0) this.#changesMeaning = true;
    if ((flags & (SqlFlag.sets | SqlFlag.setsReported)) !== 0) this.maySet = true;
    if ((flags & (SqlFlag.setsReported | SqlFlag.setsLocal)) !== 0) this.#maySetReported = true;
    if ((flags & SqlFlag.sets) !== 0) this.#maySetUnreported = true;
    if ((flags & leavesAnything) !== 0) this.wipe = Wipe.everything;
    else if ((flags & SqlFlag.setsConfig) !== 0) this.#settings();
    if ((flags & touchesLocks) !== 0) this.locksUnsure = true;
  }

  /** Whether a message has to wait until all that was sent before is answered. */
  defers(type: number): boolean {
    if (!this.mayReset && !this.mayBlock && !this.listen.serial) return false;
    // It may belong to a copy that is about to begin.
    return type !== Frontend.copyData && type !== Frontend.copyDone && type !== Frontend.copyFail;
  }

  /**
   * Whether the server may read a text sent to it now under settings that are not known, so that what it prepares is
   * for nobody else. What was set for the transaction, or in front of it and not answered yet, is not known.
   */
  get isForeign(): boolean {
    return this.#changesMeaning || this.wipe !== Wipe.nothing || this.settings.isDue;
  }

  /** A command with the tag SET was done; one that nobody saw in a text counts. */
  onSet(): void {
    if (!this.#maySetUnreported && this.#maySetReported) return;
    this.settings.isDue = true;
    if (!this.#maySetUnreported) this.settings.isCertain = false;
    this.#settings();
  }

  /** All that was set is known, and whoever gets the server next is told what differs. */
  onSettingsKnown(): void {
    if (this.wipe === Wipe.settings) this.wipe = Wipe.nothing;
  }

  /** All is answered, and no cycle is under way; `isIdle`: no transaction is open. */
  endCycles(isIdle: boolean): void {
    if (isIdle) this.#changesMeaning = this.mayEnd = false;
    this.isExpecting = this.#changesMeaning || this.mayEnd;
    this.mayReset = this.maySet = this.mayBlock = false;
    this.#maySetReported = this.#maySetUnreported = false;
  }

  /** The server's session is as after its login. */
  clear(): void {
    this.wipe = Wipe.nothing;
    this.locksUnsure = this.mayLock = false;
    this.listen.clear();
    this.settings.forget();
  }

  /** Whether there is something to find out at the end of the transaction. */
  get isDue(): boolean {
    return this.settings.isDue || this.listen.isDue;
  }

  /** What is to be wiped, with what nobody took over. */
  get due(): Wipe {
    return this.listen.listening ? Wipe.everything : this.wipe;
  }

  #settings(): void {
    if (this.wipe === Wipe.nothing) this.wipe = Wipe.settings;
  }
}
