// Which processes are the workers of a supervisor: by what they say on the bus. Pure: given the time.

import type { Presence } from "../../shared/bus/mod.ts";

/** A worker says so each second; its process is asked for what it did until it is silent for long. */
const silentMs = 10_000;

export class WorkerWatch {
  readonly #supervisor: string;
  /** By process id, when it was heard last. */
  readonly #heardAt = new Map<number, number>();

  constructor(supervisor: string) {
    this.#supervisor = supervisor;
  }

  heard({ supervisor, pid, state }: Presence, now: number): void {
    if (supervisor !== this.#supervisor) return;
    if (state === "gone") this.#heardAt.delete(pid);
    else this.#heardAt.set(pid, now);
  }

  pids(now: number): readonly number[] {
    for (const [pid, at] of this.#heardAt) if (now - at >= silentMs) this.#heardAt.delete(pid);
    return [...this.#heardAt.keys()];
  }
}
