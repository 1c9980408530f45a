// What the texts of one server's client have done to parameters in its transaction, by the names in them and by the
// tags that come back. Pure. Two questions are answered: whether PostgreSQL is to be asked at the end of the
// transaction what the session has now (it does not report all of it), and which parameters a RESET has led back to
// the server's default, where the client had asked for something else at its login.

import { type SettingNames, SqlFlag } from "../../../shared/wire/mod.ts";
import { identities, isParameterName } from "./parameters.ts";

/** What changes parameters under names that are not, or may not all be, in the text. */
const setsUnseen = SqlFlag.setsUnnamed | SqlFlag.mentionsConfig | SqlFlag.runsCode;

interface Announced {
  readonly names: SettingNames;
  /** Requests that end with ReadyForQuery and stand before the one that it belongs to. */
  cycles: number;
}

/** The parameters that one request has led back to the server's defaults. */
export interface Resets {
  /** All but those in `kept`, and beside the identities. */
  readonly all: boolean;
  readonly names: ReadonlySet<string>;
  readonly kept: ReadonlySet<string>;
}

/** Whether it is not in pg_settings, so that it has to be asked for by its name. */
export function isHidden(name: string): boolean {
  return name.includes(".") || identities.includes(name);
}

/** Whether `resets` has the parameter of this name, in lower case. */
export function hasReset({ all, names, kept }: Resets, name: string): boolean {
  return names.has(name) || (all && !kept.has(name) && !identities.includes(name));
}

export class SettingChanges {
  /** Something may have been set that PostgreSQL does not report. */
  isDue = false;
  /** All that may have been set has a name that is known. */
  isCertain = true;
  /** What was set that is asked for by name. */
  readonly hidden = new Set<string>();
  #announced: Announced[] = [];
  #changed = false;
  #failed = false;

  /** A text goes to the server that has these flags and names. */
  expect(flags: number, names: SettingNames, cycles: number): void {
    if ((flags & (SqlFlag.setsConfig | SqlFlag.runsCode)) !== 0) this.isDue = true;
    if ((flags & setsUnseen) !== 0 || !names.isComplete) this.isCertain = false;
    for (const name of names.set) {
      if (!isHidden(name)) continue;
      if (isParameterName(name)) this.hidden.add(name);
      else this.isCertain = false;
    }
    const isNamed = names.set.length > 0 || names.reset.length > 0 || names.resetsAll;
    if (isNamed) this.#announced.push({ names, cycles });
  }

  /** A command with the tag SET, RESET or DISCARD ALL was done. */
  onTag(): void {
    this.#changed = true;
  }

  onError(): void {
    this.#failed = true;
  }

  /**
   * ReadyForQuery; `last`: all that was sent is answered. Returns what the request has reset: null = nothing.
   */
  endCycle(last: boolean): Resets | null {
    if (this.#announced.length === 0) {
      this.#changed = this.#failed = false;
      return null;
    }
    const resets = this.#changed && !this.#failed ? this.#resets() : null;
    this.#changed = this.#failed = false;
    if (last) this.#announced = [];
    else this.#announced = this.#announced.filter((each) => --each.cycles >= 0);
    return resets;
  }

  #resets(): Resets | null {
    let all = false;
    const names = new Set<string>();
    const kept = new Set<string>();
    for (const { names: { set, reset, resetsAll }, cycles } of this.#announced) {
      if (cycles > 0) continue;
      if (resetsAll) {
        all = true;
        kept.clear();
      }
      for (const name of set) {
        names.delete(name);
        kept.add(name);
      }
      for (const name of reset) names.add(name);
    }
    return all || names.size > 0 ? { all, names, kept } : null;
  }

  /** The server has answered what its session has, or its client has left. */
  clear(): void {
    this.isDue = false;
    this.isCertain = true;
    this.hidden.clear();
  }

  /** The client has left: what it had sent may still be done. */
  forget(): void {
    this.clear();
    this.#announced = [];
    this.#changed = this.#failed = false;
  }
}
