// Which worker ids the bus has heard of lately, whoever's they are. Pure: told what was announced and when.
// An id counts as in use until its worker said goodbye or has been silent for `silentMs`.

import type { Presence } from "../../shared/bus/mod.ts";

const silentMs = 10_000;

export class PresenceTable {
  readonly #heardAt = new Map<number, number>();

  saw(presence: Pick<Presence, "id" | "state">, now: number): void {
    if (presence.state === "gone") this.#heardAt.delete(presence.id);
    else this.#heardAt.set(presence.id, now);
  }

  inUse(id: number, now: number): boolean {
    const heardAt = this.#heardAt.get(id);
    return heardAt !== undefined && now - heardAt < silentMs;
  }
}
