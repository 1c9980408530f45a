// Tables and views that have changed, as the tags of clients' commands tell: what is prepared in their database from
// then on is prepared anew, or it would be given what a server has of before. All workers of the mesh are told; what
// is changed past the pooler, or in functions, nobody sees.
// Bounded: one message for a database in 50 ms, the first one at once, since its client goes on at once as well.

export interface TableChangesOptions {
  /** Statements of the database are prepared anew from now on; null: those of all. */
  readonly renew: (database: string | null) => void;
  /** Tells the other workers. */
  readonly tell: (database: string) => void;
  readonly after: (ms: number, then: () => void) => void;
}

export const apartMs = 50;

export class TableChanges {
  readonly #options: TableChangesOptions;
  /** Databases that were told of lately; true: there was a change since. */
  readonly #told = new Map<string, boolean>();

  constructor(options: TableChangesOptions) {
    this.#options = options;
  }

  /** By a client of this worker. */
  seen(database: string): void {
    this.#options.renew(database);
    if (this.#told.has(database)) this.#told.set(database, true);
    else this.#tell(database);
  }

  /** By a client of another worker; null: there may have been changes anywhere. */
  heard(database: string | null): void {
    this.#options.renew(database);
  }

  #tell(database: string): void {
    this.#told.set(database, false);
    this.#options.tell(database);
    this.#options.after(apartMs, () => {
      const isDue = this.#told.get(database) === true;
      this.#told.delete(database);
      if (isDue) this.#tell(database);
    });
  }
}
