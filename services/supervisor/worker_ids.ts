// Hands out worker ids: 15 bits, unique on the host, from a random start and then upwards, so that the
// replacement of a worker has an id that no recent worker had: a cancel key or a lease of the dead one
// then finds nobody, instead of a stranger. 0 is never given: it reads as "none" in a cancel key.

const highestId = 0x7fff;

export class WorkerIds {
  #next: number;
  readonly #held = new Set<number>();

  /** `random` gives a number in [0, 1); it is asked once. */
  constructor(random: () => number) {
    this.#next = 1 + Math.floor(random() * highestId);
  }

  /** An id nobody holds; `seenElsewhere` names ids that others on the bus use. */
  take(seenElsewhere: (id: number) => boolean = () => false): number {
    for (let tries = 0; tries < highestId; tries++) {
      const id = this.#next;
      this.#next = id === highestId ? 1 : id + 1;
      if (this.#held.has(id) || seenElsewhere(id)) continue;
      this.#held.add(id);
      return id;
    }
    throw new Error(`take a worker id: all ${highestId} are held`);
  }

  release(id: number): void {
    if (!this.#held.delete(id)) throw new Error(`release worker id ${id}: it is not held`);
  }
}
