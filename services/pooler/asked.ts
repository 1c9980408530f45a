// Questions to another thread, or another process, that are answered later: who waits for which answer, by the number that
// question and answer have in common.

export class Asked<T> {
  readonly #waiting = new Map<number, (answer: T) => void>();
  #next = 1;

  /** The number to ask with. */
  add(onAnswer: (answer: T) => void): number {
    const id = this.#next++;
    this.#waiting.set(id, onAnswer);
    return id;
  }

  /** Calls who asked, unless it has given up. */
  answer(id: number, answer: T): void {
    const onAnswer = this.#waiting.get(id);
    this.#waiting.delete(id);
    onAnswer?.(answer);
  }

  /** Nobody is called then. False: it was answered already. */
  giveUp(id: number): boolean {
    return this.#waiting.delete(id);
  }
}
