// The workers that a lone worker's console speaks for: itself.

import type { Config } from "../../shared/config/mod.ts";
import { lookupDatabase } from "../../shared/config/mod.ts";
import {
  type Command,
  done,
  type OperatorState,
  type Outcome,
  refused,
  reloadFailed,
  setFailed,
  type ShutdownMode,
  tlsKept,
  type Work,
  type Workforce,
} from "../../shared/console/mod.ts";
import { type LiveConfig, tlsFileProblems } from "../../shared/host/mod.ts";
import type { Performed } from "./messages.ts";

/** The plane goes on with the TLS it has where that can't be changed, and logs why. */
export function reloadedWith({ settings }: Config): Outcome {
  return tlsFileProblems(settings).length === 0 ? done : { ...done, notice: tlsKept };
}

export interface LoneWorker {
  perform(command: Command, state: OperatorState, again: boolean): Promise<Performed>;
  /** Throws when the configuration can't be put into effect. */
  takeConfig(config: Config): void;
  shutdown(mode: ShutdownMode): void;
}

export class LoneWorkforce implements Workforce {
  readonly #worker: LoneWorker;
  readonly #live: LiveConfig;

  constructor(worker: LoneWorker, live: LiveConfig) {
    this.#worker = worker;
    this.#live = live;
  }

  async perform(command: Command, state: OperatorState, again: boolean): Promise<Work> {
    return { ...await this.#worker.perform(command, state, again), silent: [] };
  }

  hasDatabase(name: string): boolean {
    return lookupDatabase(this.#live.current, name) !== null;
  }

  reload(): Promise<Outcome> {
    const isDone = this.#live.reload((config) => this.#worker.takeConfig(config));
    return Promise.resolve(isDone ? reloadedWith(this.#live.current) : refused(reloadFailed));
  }

  set(key: string, value: string): Promise<Outcome> {
    const problem = this.#live.set(key, value, (config) => this.#worker.takeConfig(config));
    return Promise.resolve(problem === null ? done : refused(setFailed(problem)));
  }

  /** Not at once: the answer goes out first. */
  shutdown(mode: ShutdownMode): void {
    setTimeout(() => this.#worker.shutdown(mode));
  }
}
