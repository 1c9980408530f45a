// The workers of this host as those who carry out commands of the console. What a command makes of the pooler, and
// a configuration that has changed, is handed to every process of the host, also to those that start; who is ready
// is asked over the bus what it has done, and named if it does not answer.

import { type Bus, BusError } from "../../shared/bus/mod.ts";
import { type Config, lookupDatabase } from "../../shared/config/mod.ts";
import {
  type Command,
  done,
  type OperatorState,
  type Outcome,
  refused,
  reloadFailed,
  setFailed,
  type ShutdownMode,
  silentNotice,
  tlsKept,
  untouched,
  waits,
  type Work,
  type Workforce,
} from "../../shared/console/mod.ts";
import { handedLine, type LiveConfig, markOf, tlsFileProblems } from "../../shared/host/mod.ts";
import type { Fleet } from "./fleet.ts";

export interface WorkforceOptions {
  readonly bus: Bus;
  readonly live: LiveConfig;
  readonly fleet: () => Fleet | null;
  /** Hands to the processes beside the workers. */
  readonly tellCompanions: (text: string) => void;
  /** Puts a configuration into effect in this process; throws to refuse it. */
  readonly takeConfig: (config: Config) => void;
  readonly shutdown: (mode: ShutdownMode) => void;
}

const answerMs = 3000;
/** For a worker to say that it goes by a new configuration. */
const confirmMs = 5000;
const lookMs = 20;

export class HostWorkforce implements Workforce {
  readonly #options: WorkforceOptions;
  /** By worker id, what it goes by. */
  readonly #marks = new Map<number, string>();
  #state: OperatorState = untouched;

  constructor(options: WorkforceOptions) {
    this.#options = options;
  }

  /** What a process that starts is handed. */
  get input(): string {
    return handedLine({ sources: this.#options.live.sources, state: this.#state });
  }

  /** A worker has said what configuration it goes by. */
  heard(workerId: number, configMark: string): void {
    this.#marks.set(workerId, configMark);
  }

  hasDatabase(name: string): boolean {
    return lookupDatabase(this.#options.live.current, name) !== null;
  }

  async perform(command: Command, state: OperatorState, again: boolean): Promise<Work> {
    const { bus } = this.#options;
    if (state !== this.#state) {
      this.#state = state;
      this.#hand();
    }
    let left = 0;
    let found = false;
    const silent: string[] = [];
    await Promise.all(this.#ready.map(async (id) => {
      try {
        const task = { command, state, again };
        const reply = await bus.request(bus.subjects.consoleWorker(id), task, answerMs);
        left += reply.left;
        found ||= reply.found;
      } catch (error) {
        if (!(error instanceof BusError)) throw error;
        // One that has ended meanwhile has nothing left to do.
        if (!this.#ready.includes(id)) return;
        // Until it answers, or is replaced for its silence, it may be in the middle of anything.
        if (waits(command)) left++;
        else silent.push(`worker ${id}`);
      }
    }));
    return { left, found, silent };
  }

  async reload(): Promise<Outcome> {
    const { live, takeConfig } = this.#options;
    if (!live.reload(takeConfig)) return refused(reloadFailed);
    const notice = await this.#confirm();
    if (tlsFileProblems(live.current.settings).length === 0) return { ...done, notice };
    return { ...done, notice: notice === null ? tlsKept : `${tlsKept}; ${notice}` };
  }

  async set(key: string, value: string): Promise<Outcome> {
    const { live, takeConfig } = this.#options;
    const problem = live.set(key, value, takeConfig);
    if (problem !== null) return refused(setFailed(problem));
    return { ...done, notice: await this.#confirm() };
  }

  /** Not at once: the answer goes out first. */
  shutdown(mode: ShutdownMode): void {
    setTimeout(() => this.#options.shutdown(mode), lookMs);
  }

  get #ready(): number[] {
    return this.#options.fleet()?.readyIds ?? [];
  }

  #hand(): void {
    const { input } = this;
    this.#options.fleet()?.hand(input);
    this.#options.tellCompanions(input);
  }

  /** Hands a new configuration out, and waits until all workers go by it; returns who does not say so. */
  async #confirm(): Promise<string | null> {
    this.#hand();
    const { current, sources } = this.#options.live;
    const mark = markOf(current, sources);
    const late = () => this.#ready.filter((id) => this.#marks.get(id) !== mark);
    const deadline = performance.now() + confirmMs;
    while (late().length > 0 && performance.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, lookMs));
    }
    return silentNotice(late().map((id) => `worker ${id}`));
  }
}
