// What the texts of one server's client have done to parameters in its transaction, by the names in them and by the
// tags that come back. Pure. Two questions are answered: whether PostgreSQL is to be asked at the end of the
// transaction what the session has now (it does not report all of it), and which parameters a RESET has led back to
// the server's default, where the client had asked for something else at its login. As long as nothing of a request
// is taken back, all that its texts have counts. After an error or a ROLLBACK, which may have a COMMIT in front of it,
// the tags tell which statements were done, and which of those are left.

import { type SettingNames, type SettingStep, SqlFlag } from "../../../shared/wire/mod.ts";
import { identities, isParameterName } from "./parameters.ts";
import { statusFailed } from "./server_state.ts";

/** What changes parameters under names that are not, or may not all be, in the text. */
const setsUnseen = SqlFlag.setsUnnamed | SqlFlag.mentionsConfig | SqlFlag.runsCode;

/** What may wait for the end of a failed transaction; of more, the last ones. */
const finalMax = 1000;

interface Announced {
  readonly step: SettingStep;
  /** Requests that end with ReadyForQuery and stand before the one that it belongs to. */
  cycles: number;
  /** Its tag has come. */
  isDone: boolean;
}

/** The parameters that one request has led back to the server's defaults. */
export interface Resets {
  /** All but those in `kept`, and beside the identities. */
  readonly all: boolean;
  readonly names: ReadonlySet<string>;
  /** Those that were set last. */
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

/** The last words on each parameter. */
function lastWords(steps: readonly SettingStep[]): Resets {
  let all = false;
  const names = new Set<string>();
  const kept = new Set<string>();
  for (const { by, name, isReset } of steps) {
    if (name === null) {
      all = true;
      for (const each of kept) if (!identities.includes(each)) kept.delete(each);
      if (by !== "DISCARD ALL") continue;
      kept.clear();
      for (const each of identities) names.add(each);
    } else if (name !== "") {
      (isReset ? kept : names).delete(name);
      (isReset ? names : kept).add(name);
    }
  }
  return { all, names, kept };
}

export class SettingChanges {
  /** Something may have been set that PostgreSQL does not report. */
  isDue = false;
  /** All that may have been set has a name that is known. */
  isCertain = true;
  /** What was set that is asked for by name. */
  readonly hidden = new Set<string>();
  #announced: Announced[] = [];
  /** The first of them that may not be done. */
  #at = 0;
  /** Of this request: a tag has come, and something was taken back. */
  #changed = false;
  #isCut = false;
  /** What its tags say was done and can't be taken back; what may be, and how much there was at its savepoints. */
  #final: SettingStep[] = [];
  #done: SettingStep[] = [];
  #savepoints: number[] = [];

  /** A text goes to the server that has these flags and names. */
  expect(flags: number, { steps, isComplete }: SettingNames, cycles: number): void {
    if ((flags & (SqlFlag.setsConfig | SqlFlag.runsCode)) !== 0) this.isDue = true;
    if ((flags & setsUnseen) !== 0 || !isComplete) this.isCertain = false;
    if (steps.length === 0) return;
    for (const name of lastWords(steps).kept) {
      if (!isHidden(name)) continue;
      if (isParameterName(name)) this.hidden.add(name);
      else this.isCertain = false;
    }
    for (const step of steps) this.#announced.push({ step, cycles, isDone: false });
  }

  /** A command with this tag was done. */
  onTag(tag: SettingStep["by"]): void {
    this.#changed = true;
    const announced = this.#announced;
    while (announced[this.#at]?.isDone) this.#at++;
    const isNext = ({ step, isDone }: Announced) => !isDone && step.by === tag;
    let found = this.#at;
    while (announced[found]?.cycles === 0 && !isNext(announced[found] as Announced)) found++;
    if (announced[found]?.cycles !== 0) return;
    // With the functions that were called in front of it.
    for (let index = this.#at; index <= found; index++) {
      const each = announced[index] as Announced;
      if (each.isDone || (each.step.by ?? tag) !== tag) continue;
      each.isDone = true;
      this.#done.push(each.step);
    }
  }

  onCommit(): void {
    if (this.#done.length > 0) this.#final.push(...this.#done);
    this.#clearDone();
  }

  onSavepoint(): void {
    if (this.#announced.length > 0) this.#savepoints.push(this.#done.length);
  }

  onRelease(): void {
    if (this.#savepoints.length > 0) this.#savepoints.pop();
  }

  /** A command with the tag ROLLBACK. To which savepoint is not known: to the last one, and all behind that one goes. */
  onRollback(): void {
    if (this.#announced.length === 0) return;
    this.#isCut = true;
    this.#done.length = this.#savepoints.at(-1) ?? 0;
  }

  onError(): void {
    this.#isCut = true;
    this.#clearDone();
  }

  #clearDone(): void {
    if (this.#done.length > 0) this.#done = [];
    if (this.#savepoints.length > 0) this.#savepoints = [];
  }

  /**
   * ReadyForQuery with this status; `last`: all that was sent is answered. Returns what the request has reset: null =
   * nothing.
   */
  endCycle(status: number, last: boolean): Resets | null {
    const isIdle = this.#announced.length === 0 && this.#final.length === 0;
    const resets = isIdle || status === statusFailed ? null : this.#resets();
    this.#changed = this.#isCut = false;
    this.#clearDone();
    if (isIdle) return null;
    // A transaction that has failed takes no SET: what was committed in front of it waits for its end.
    if (status !== statusFailed) this.#final = [];
    else if (this.#final.length > finalMax) this.#final = this.#final.slice(-finalMax);
    this.#at = 0;
    if (last) this.#announced = [];
    else this.#announced = this.#announced.filter((each) => --each.cycles >= 0);
    return resets;
  }

  #resets(): Resets | null {
    const current = this.#announced.filter(({ cycles }) => cycles === 0).map(({ step }) => step);
    let steps = [...this.#final, ...this.#done];
    if (!this.#isCut && this.#changed) steps = [...this.#final, ...current];
    const resets = lastWords(steps);
    return resets.all || resets.names.size > 0 ? resets : null;
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
    this.#final = [];
    this.#at = 0;
    this.#clearDone();
    this.#changed = this.#isCut = false;
  }
}
