// Says in the log which workers fall silent and come back. A mesh that loses a network loses many at once:
// then a line names some and counts the rest.

import type { Logger } from "../../shared/telemetry/mod.ts";
import { nameOf, type WorkerName } from "./sightings.ts";

export interface Watched extends WorkerName {
  /** Of one that an earlier leader knew: when this one took over. */
  readonly lastReportAt: number;
  readonly state: "restored" | "live" | "silent";
}

const namedAtMost = 10;

export class WorkerWatch {
  readonly #log: Logger;
  readonly #silentMs: number;
  readonly #silent = new Set<string>();

  constructor(logger: Logger, silentMs: number) {
    this.#log = logger;
    this.#silentMs = silentMs;
  }

  /** `isEnding`: known to be gone, of which others speak. */
  look(workers: Iterable<Watched>, now: number, isEnding: (worker: WorkerName) => boolean): void {
    const fallen: number[] = [];
    const returned: number[] = [];
    const there = new Set<string>();
    for (const watched of workers) {
      const name = nameOf(watched.worker, watched.incarnation);
      there.add(name);
      if (watched.state === "live") {
        if (this.#silent.delete(name)) returned.push(watched.worker);
      } else if (
        now - watched.lastReportAt >= this.#silentMs && !this.#silent.has(name) &&
        !isEnding(watched)
      ) {
        this.#silent.add(name);
        fallen.push(watched.worker);
      }
    }
    for (const name of this.#silent) if (!there.has(name)) this.#silent.delete(name);
    if (fallen.length > 0) {
      this.#log.warning(
        "workers are silent: their slots stay charged to them until they are back or reported gone, " +
          "and with budget_auth no longer than PostgreSQL shows their backends",
        { count: fallen.length, workers: listOf(fallen) },
      );
    }
    if (returned.length > 0) {
      this.#log.info("workers are back", { count: returned.length, workers: listOf(returned) });
    }
  }
}

function listOf(workers: readonly number[]): string {
  const named = workers.slice(0, namedAtMost).join(",");
  return workers.length > namedAtMost ? `${named},...` : named;
}
