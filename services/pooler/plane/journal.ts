// What a server and its client have noted of prepared statements ahead of the server's answers: one
// entry for each message that changes the tables, in order, kept until that message is answered. An
// error makes the server skip what follows up to the next Sync, and then the entries say what to undo.
// Pure; which messages have an entry is in requests.ts.

import type { Refusal } from "./refusals.ts";
import { hasJournal, Request, type Requests } from "./requests.ts";
import type {
  PreparedOnServer,
  Statement,
  StatementName,
  StatementNames,
  StatementTable,
} from "./statements.ts";

/** Stands for the server's error if that has this SQLSTATE. */
export interface Failure {
  readonly instead: string;
  readonly refusal: Refusal;
}

/** One change of the statement tables that is undone if the server skips the message behind it. */
export interface JournalEntry {
  /** Statement that the server gets (added) or loses (removed); null = no change there. */
  readonly added: Statement | null;
  readonly removed: Statement | null;
  /** The client's name that was added or removed. */
  readonly nameAdded: StatementName | null;
  readonly nameRemoved: StatementName | null;
  /** The error of a message that was replaced by a failing one. */
  readonly failure: Failure | null;
  /** All that was there when it was all dropped. */
  readonly dropped: Dropped | null;
  /** How many Syncs had been sent before. */
  readonly group: number;
}

interface Dropped {
  readonly statements: readonly Statement[];
  readonly names: readonly StatementName[];
}

/** Entries that are looked through for a message; with more of them it waits. */
const searchMax = 256;

export class Journal {
  readonly #prepared: PreparedOnServer;
  readonly #table: StatementTable;
  #entries: JournalEntry[] = [];
  #at = 0;
  /** Syncs sent: an error makes the server skip what follows up to the next one. */
  group = 0;

  constructor(prepared: PreparedOnServer, table: StatementTable) {
    this.#prepared = prepared;
    this.#table = table;
  }

  record(
    added: Statement | null,
    removed: Statement | null,
    nameAdded: StatementName | null,
    nameRemoved: StatementName | null,
    failure: Failure | null = null,
  ): void {
    const { group } = this;
    this.#entries.push({ added, removed, nameAdded, nameRemoved, failure, dropped: null, group });
  }

  /**
   * What is sent drops all statements. What stands behind it in its group finds none, since it is skipped if that
   * fails.
   */
  recordDrop(names: StatementNames | null): void {
    const dropped = this.#drop(names);
    this.record(null, null, null, null);
    const last = this.#entries.length - 1;
    this.#entries[last] = { ...this.#entries[last] as JournalEntry, dropped };
  }

  #drop(names: StatementNames | null): Dropped {
    const dropped = { statements: this.#prepared.all(), names: names?.all() ?? [] };
    this.#prepared.clear();
    names?.clear();
    return dropped;
  }

  /** What is sent drops the client's name; what stands behind it in its group does not find it. */
  recordDeallocate(names: StatementNames, name: StatementName): void {
    names.remove(name);
    this.record(null, null, null, name);
  }

  /** The oldest entry, whose message is answered. */
  done(): JournalEntry {
    const entry = this.#entries[this.#at++] as JournalEntry;
    if (this.#at === this.#entries.length) {
      this.#entries = [];
      this.#at = 0;
    }
    return entry;
  }

  /**
   * The request at the front failed in the extended protocol: the server skips all up to the next Sync. Returns
   * what stands for its error, if anything.
   */
  skip(requests: Requests, names: StatementNames | null): Failure | null {
    const isOurs = requests.front() === Request.failsHere;
    const undone: JournalEntry[] = [];
    while (requests.count > 0 && requests.front() !== Request.sync) {
      if (hasJournal(requests.pop())) undone.push(this.done());
    }
    if (undone.length > 0) this.#revert(undone, names);
    return isOurs ? undone[0]?.failure ?? null : null;
  }

  /** The oldest entry, whose message is answered and has changed nothing. */
  revert(names: StatementNames | null): void {
    this.#revert([this.done()], names);
  }

  #revert(undone: readonly JournalEntry[], names: StatementNames | null): void {
    // In the order in which it was done, since what was noted later built upon it: a statement that was
    // given up and prepared again may have been given up once more.
    this.#keeping(this.#entries.slice(this.#at).concat(undone), () => {
      this.#undo(this.#entries.slice(this.#at), names);
      this.#undo(undone, names);
      this.#redo(names);
    });
  }

  /** Undoes the changes of entries that are done, the last one first. */
  #undo(entries: readonly JournalEntry[], names: StatementNames | null): void {
    for (let i = entries.length - 1; i >= 0; i--) {
      const { added, removed, nameAdded, nameRemoved, dropped } = entries[i] as JournalEntry;
      for (const statement of dropped?.statements ?? []) this.#prepared.add(statement);
      for (const name of dropped?.names ?? []) names?.put(name);
      if (added !== null) this.#prepared.remove(added);
      if (removed !== null) this.#prepared.add(removed);
      if (nameAdded !== null) names?.remove(nameAdded);
      if (nameRemoved !== null) names?.put(nameRemoved);
    }
  }

  /** Whether there are changes from before the last Sync that are not certain yet. */
  get hasOpenGroups(): boolean {
    const oldest = this.#entries[this.#at];
    return oldest !== undefined && oldest.group !== this.group;
  }

  /**
   * Whether such a change is of one of the statements, or of the client's name [from, to). Within one
   * group it is certain enough: if the change fails, what follows is skipped as well.
   */
  isOpen(
    statements: readonly (Statement | null)[],
    bytes: Uint8Array,
    from: number,
    to: number,
  ): boolean {
    if (this.#entries.length - this.#at > searchMax) return true;
    for (let i = this.#at; i < this.#entries.length; i++) {
      const { added, removed, nameAdded, nameRemoved, group } = this.#entries[i] as JournalEntry;
      if (group === this.group) return false;
      const changed = added ?? removed;
      if (changed !== null && statements.includes(changed)) return true;
      if ((nameAdded ?? nameRemoved)?.is(bytes, from, to)) return true;
    }
    return false;
  }

  /**
   * The server has dropped all statements: forgets them, but for what was sent behind the command,
   * which is noted already and which the server has yet to do.
   */
  onDiscard(names: StatementNames | null): void {
    this.#keeping(this.#entries.slice(this.#at), () => {
      this.#prepared.clear();
      names?.clear();
      this.#redo(names);
    });
  }

  /** Does again what is noted; of what changes nothing now there will be nothing to undo. */
  #redo(names: StatementNames | null): void {
    for (let i = this.#at; i < this.#entries.length; i++) {
      const { added, removed, nameAdded, nameRemoved, failure, dropped, group } = this
        .#entries[i] as JournalEntry;
      const gone = removed !== null && this.#prepared.has(removed) ? removed : null;
      const come = added !== null && !this.#prepared.has(added) ? added : null;
      if (gone !== null) this.#prepared.remove(gone);
      if (come !== null) this.#prepared.add(come);
      const nameGone = nameRemoved !== null && names?.remove(nameRemoved) ? nameRemoved : null;
      if (nameAdded !== null) names?.put(nameAdded);
      const entry = {
        added: come,
        removed: gone,
        nameAdded,
        nameRemoved: nameGone,
        failure,
        dropped: dropped === null ? null : this.#drop(names),
        group,
      };
      this.#entries[i] = entry;
    }
  }

  /** While the tables are taken apart none of these statements may be forgotten. */
  #keeping(entries: readonly JournalEntry[], change: () => void): void {
    const statements = entries.flatMap(({ added, removed, nameAdded, nameRemoved, dropped }) =>
      [
        added,
        removed,
        nameAdded?.statement,
        nameRemoved?.statement,
        ...dropped?.statements ?? [],
        ...dropped?.names.map(({ statement }) => statement) ?? [],
      ].filter((each) => each != null)
    );
    for (const statement of statements) this.#table.retain(statement);
    change();
    for (const statement of statements) this.#table.release(statement);
  }
}
