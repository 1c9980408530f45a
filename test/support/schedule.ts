// Which test file runs next, beside those that run. Pure: it starts and measures nothing; what is known of a file
// is in its head (test_file.ts).
// Invariants: no more files that compute run at once than they may; files that mostly wait run beside them; one
// that needs the machine for itself runs alone, after all others. Of the files that may run, the one with the
// longest time limit comes first: a long one that begins last would be waited for by an idle machine.

import type { Load, TestFile } from "./test_file.ts";

export class Schedule<Job extends { readonly file: TestFile }> {
  readonly #queues: Record<Load, Job[]> = { computes: [], waits: [], alone: [] };
  readonly #running: Record<Load, number> = { computes: 0, waits: 0, alone: 0 };
  readonly #computing: number;
  readonly #total: number;

  /** `atOnce`: files that compute and run at the same time; 1: of all files one after another. */
  constructor(jobs: readonly Job[], atOnce: number) {
    this.#computing = atOnce;
    // Each processor has an eye for two more that do nothing but wait.
    this.#total = atOnce + 2 * (atOnce - 1);
    for (const job of jobs) this.#queues[job.file.load].push(job);
    for (const queue of Object.values(this.#queues)) {
      queue.sort((a, b) => b.file.limitMs - a.file.limitMs);
    }
  }

  /** The job to start now; null: none before another is done, or none any more. */
  next(): Job | null {
    const load = this.#choose();
    if (load === null) return null;
    this.#running[load] += 1;
    return this.#queues[load].shift()!;
  }

  done(job: Job): void {
    this.#running[job.file.load] -= 1;
  }

  #choose(): Load | null {
    const { computes, waits, alone } = this.#running;
    if (alone > 0 || computes + waits >= this.#total) return null;
    if (this.#queues.computes.length > 0 && computes < this.#computing) return "computes";
    if (this.#queues.waits.length > 0) return "waits";
    const rest = this.#queues.computes.length + computes + waits;
    return rest === 0 && this.#queues.alone.length > 0 ? "alone" : null;
  }
}
