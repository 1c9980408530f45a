// What LISTEN and UNLISTEN have done in the transactions of one server's client: by the channels and savepoints
// that its texts name and by the command tags that come back. Pure.
// Which channels a session listens to PostgreSQL tells, what is gone from them it does not: so the names in
// UNLISTEN are kept from when they are sent, and count once their transaction has ended well. What stands behind
// a savepoint goes when that is rolled back; savepoints are followed from the first UNLISTEN of a transaction on,
// since whatever is not among those stands in front of it. Where texts and tags do not fit together none of it
// counts: a notification too many is better than one too few.

import { SqlFlag, type Step, type StepKind } from "../../../shared/wire/mod.ts";

/** UNLISTEN of everything. */
export const allChannels = "*";

interface Announced {
  readonly step: Step;
  /** Requests that end with ReadyForQuery and stand before the one that it belongs to. */
  cycles: number;
}

interface Savepoint {
  readonly name: string;
  /** UNLISTENs in front of it. */
  readonly at: number;
}

const nothing: readonly string[] = [];

export class ListenState {
  /** A LISTEN was done; whether it took effect is not known. */
  listening = false;
  /** Something of it is not answered, or not dealt with: what the client sends next has to wait. */
  serial = false;
  #mayListen = false;
  #failed = false;
  #announced: Announced[] = [];
  /** Of the transaction that is open. */
  #undone: string[] = [];
  /** Those behind an UNLISTEN, the innermost last. */
  #savepoints: Savepoint[] = [];
  #gone: string[] = [];

  /** A text goes to the server that has these flags and steps. */
  expect(flags: number, steps: readonly Step[], cycles: number): void {
    if ((flags & (SqlFlag.listens | SqlFlag.unlistens)) !== 0) this.serial = true;
    else if (!this.serial) return;
    if ((flags & SqlFlag.listens) !== 0) this.#mayListen = true;
    for (const step of steps) this.#announced.push({ step, cycles });
  }

  /** A command with the tag LISTEN was done. */
  onListen(): void {
    if (this.#mayListen) this.listening = true;
  }

  /** A command with the tag UNLISTEN was done. */
  onUnlisten(): void {
    const channel = this.#take("unlisten");
    if (channel !== "") this.#undone.push(channel);
  }

  /** DISCARD ALL was done, which is never a part of a transaction. */
  onDiscard(): void {
    this.serial = true;
    this.#gone.push(allChannels);
  }

  /** A command with the tag SAVEPOINT was done. */
  onSavepoint(): void {
    if (!this.serial) return;
    const name = this.#take("savepoint");
    const at = this.#undone.length;
    if (name !== "" && at > 0) this.#savepoints.push({ name, at });
  }

  /** A command with the tag RELEASE was done. */
  onRelease(): void {
    if (!this.serial) return;
    const index = this.#indexOf(this.#take("release"));
    this.#savepoints.length = Math.max(index, 0);
  }

  /** A command with the tag ROLLBACK was done: to a savepoint, if that is what was sent. */
  onRollback(): void {
    if (!this.serial) return;
    const isAnnounced = this.#announced[0]?.step.kind === "rollback";
    const index = isAnnounced ? this.#indexOf(this.#take("rollback")) : -1;
    this.#savepoints.length = index + 1;
    this.#undone.length = this.#savepoints[index]?.at ?? 0;
  }

  /** A command with the tag COMMIT was done. */
  onCommit(): void {
    if (this.#undone.length > 0) this.#commit();
  }

  /** What it rolls back is known by what follows. */
  onError(): void {
    this.#failed = true;
  }

  /** ReadyForQuery. `idle`: no transaction is open; `last`: all that was sent is answered. */
  endCycle(idle: boolean, last: boolean): void {
    const failed = this.#failed;
    this.#failed = false;
    if (!this.serial) return;
    this.#announced = last ? [] : this.#announced.filter((each) => --each.cycles >= 0);
    if (idle && failed) this.#undo();
    else if (idle) this.#commit();
    if (!last) return;
    this.#mayListen = false;
    this.serial = this.isDue || this.#undone.length > 0;
  }

  /** Whether there is something to do at the end of the transaction. */
  get isDue(): boolean {
    return this.listening || this.#gone.length > 0;
  }

  /** The channels of UNLISTENs that took effect, in order; they are dealt with. */
  takeGone(): readonly string[] {
    if (this.#gone.length === 0) return nothing;
    const gone = this.#gone;
    this.#gone = [];
    this.serial = this.listening || this.#announced.length > 0 || this.#undone.length > 0;
    return gone;
  }

  /** The client has left: what it had sent may still be done. */
  forget(): void {
    this.#announced = [];
    this.#undo();
    this.#gone = [];
    this.serial = false;
  }

  /** The server listens to nothing. */
  clear(): void {
    this.forget();
    this.listening = false;
    this.#mayListen = false;
  }

  /** The name in the step that was done: "" if that is not known. */
  #take(kind: StepKind): string {
    const first = this.#announced[0];
    if (first === undefined || first.cycles > 0) return "";
    if (first.step.kind === kind) {
      this.#announced.shift();
      return first.step.name;
    }
    this.#announced = this.#announced.filter((each) => each.cycles > 0);
    this.#undo();
    return "";
  }

  /** The savepoint that is meant by a name; -1 = one in front of all UNLISTENs, or one that is not known. */
  #indexOf(name: string): number {
    return this.#savepoints.findLastIndex((each) => each.name === name);
  }

  #undo(): void {
    this.#undone.length = 0;
    this.#savepoints.length = 0;
  }

  #commit(): void {
    this.#gone.push(...this.#undone);
    this.#undo();
  }
}
