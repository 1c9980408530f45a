// Has commands of the console carried out: by one worker that runs alone, or by all workers of a host. One after
// the other; what they make of the pooler is remembered for workers that come later.

import {
  type Command,
  done,
  type Outcome,
  refused,
  refusedWith,
  type ShutdownMode,
} from "./commands.ts";
import { advance, isRefusal, type OperatorState, untouched } from "./operator_state.ts";

/** What the workers have done of a command. */
export interface Work {
  /** What has not come to its end yet: connections that are to be closed, or to come to rest. */
  readonly left: number;
  /** The client that was meant is one of theirs. */
  readonly found: boolean;
  /** Names of those that did not answer in time. */
  readonly silent: readonly string[];
}

export interface Workforce {
  /** Those of them that run: each takes over the state, and does its part; `again`: it only counts what is left. */
  perform(command: Command, state: OperatorState, again: boolean): Promise<Work>;
  hasDatabase(name: string): boolean;
  reload(): Promise<Outcome>;
  set(key: string, value: string): Promise<Outcome>;
  shutdown(mode: ShutdownMode): void;
}

/** `left`: see Work; -1: it won't come to its end, since it was undone. */
export interface Answer extends Outcome {
  readonly left: number;
}

export class Executor {
  readonly #workforce: Workforce;
  #state: OperatorState = untouched;
  #stopping = false;
  #last: Promise<unknown> = Promise.resolve();

  constructor(workforce: Workforce) {
    this.#workforce = workforce;
  }

  get state(): OperatorState {
    return this.#state;
  }

  execute(command: Command): Promise<Answer> {
    const before = this.#last;
    const result = before.then(() => this.#execute(command));
    this.#last = result.catch(() => {});
    return result;
  }

  async #execute(command: Command): Promise<Answer> {
    switch (command.kind) {
      case "reload":
        return { ...await this.#workforce.reload(), left: 0 };
      case "set":
        return { ...await this.#workforce.set(command.key, command.value), left: 0 };
      case "shutdown":
        this.#stopping = true;
        this.#workforce.shutdown(command.mode);
        return { ...done, left: 0 };
    }
    const next = advance(this.#state, command, {
      stopping: this.#stopping,
      hasDatabase: (name) => this.#workforce.hasDatabase(name),
    });
    if (isRefusal(next)) return { ...refused(next), left: 0 };
    this.#state = next;
    const { left, found, silent } = await this.#workforce.perform(command, next, false);
    if (command.kind === "kill_client" && !found) {
      return { ...refusedWith("client not found"), left: 0 };
    }
    return { refusal: null, notice: silentNotice(silent), left };
  }

  /** How much is left of a command that waits, without doing it again. */
  async left(command: Command): Promise<Answer> {
    if (isUndone(command, this.#state)) return { ...done, left: -1 };
    const { left, silent } = await this.#workforce.perform(command, this.#state, true);
    return { ...done, notice: silentNotice(silent), left };
  }
}

/** Workers that did not say that they have carried something out; null: there are none. */
export function silentNotice(silent: readonly string[]): string | null {
  return silent.length === 0 ? null : `no answer from: ${silent.join(", ")}`;
}

function isUndone(command: Command, state: OperatorState): boolean {
  if (command.kind === "suspend") return !state.suspended;
  if (command.kind !== "pause") return false;
  const { database } = command;
  return database === null ? !state.paused : !state.pausedDatabases.includes(database);
}
