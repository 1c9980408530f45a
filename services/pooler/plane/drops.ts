// The portals of a server's client whose Execute drops prepared statements that only the pooler knows. What was
// bound and never executed drops nothing, so that is kept from the Bind to the end of the transaction, which is the
// end of all portals. One that fails on the server, or is closed, may be among them: its Execute fails as well, or is
// answered by another tag, and what it was to drop is put back (journal.ts). Pure.

import { latin1Text } from "../../../shared/wire/mod.ts";

/** Everything is dropped; else the statement of this name is. */
export const allStatements = "all";
export type Drop = typeof allStatements | Uint8Array;

/** With more, those bound longest ago are forgotten: their DEALLOCATE fails. */
const portalsMax = 256;

export class Drops {
  readonly #byPortal = new Map<string, Drop>();
  /** The name that is dropped by the latest of them, and that of the statement it was bound to. */
  what: Uint8Array = new Uint8Array(0);
  by: Uint8Array = new Uint8Array(0);

  /** Whether there are any. */
  get any(): boolean {
    return this.#byPortal.size > 0;
  }

  /** The portal bytes[from, to) is bound to something that drops this; null: nothing. */
  bind(bytes: Uint8Array, from: number, to: number, drop: Drop | null): void {
    const portal = latin1Text(bytes.subarray(from, to));
    this.#byPortal.delete(portal);
    if (drop === null) return;
    if (this.#byPortal.size === portalsMax) {
      const [oldest] = this.#byPortal.keys();
      this.#byPortal.delete(oldest as string);
    }
    this.#byPortal.set(portal, drop);
  }

  /** What the Execute of the portal bytes[from, to) drops. */
  of(bytes: Uint8Array, from: number, to: number): Drop | null {
    return this.#byPortal.get(latin1Text(bytes.subarray(from, to))) ?? null;
  }

  /** The transaction has ended. */
  forget(): void {
    this.#byPortal.clear();
  }
}
