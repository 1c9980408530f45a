// Who the workers of this host are: an id, unique in the mesh, and an incarnation, which no two workers
// share. Together they name one process for ever: grants, reports and goodbyes carry both.
// This is the plain kind, for budget_mode = static: ids that no worker of this host holds and that nobody on
// the bus was heard with. The kind that is unique by a store is in worker_registry.ts.

import { WorkerIds } from "./worker_ids.ts";

export interface Identity {
  readonly id: number;
  readonly incarnation: number;
}

export interface Identities {
  /** One for a worker that is about to be started; null when `signal` was aborted before there was one. */
  take(signal: AbortSignal): Promise<Identity | null>;
  /** Its process was reaped, or never came to be. */
  release(identity: Identity): void;
}

/** Gives numbers that rise, from the time of day on: they rise over restarts of the supervisor, too. */
export class Incarnations {
  readonly #now: () => number;
  #last = 0;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  next(): number {
    this.#last = Math.max(this.#now(), this.#last + 1);
    return this.#last;
  }
}

export class LocalIdentities implements Identities {
  readonly #ids: WorkerIds;
  readonly #incarnations = new Incarnations();
  readonly #seenElsewhere: (id: number) => boolean;

  constructor(random: () => number, seenElsewhere: (id: number) => boolean) {
    this.#ids = new WorkerIds(random);
    this.#seenElsewhere = seenElsewhere;
  }

  take(signal: AbortSignal): Promise<Identity | null> {
    if (signal.aborted) return Promise.resolve(null);
    const id = this.#ids.take(this.#seenElsewhere);
    return Promise.resolve({ id, incarnation: this.#incarnations.next() });
  }

  release({ id }: Identity): void {
    this.#ids.release(id);
  }
}
