// Asks the other workers of the mesh what they have in use of resource groups, for SHOW GROUPS on this one's console.

import { type Bus, BusError } from "../../shared/bus/mod.ts";
import type { GroupUse } from "../../shared/groups/mod.ts";
import type { WorkerPeer } from "./mesh_authority.ts";

/** A plane answers in milliseconds. */
const answerMs = 2000;
/** Who was not heard lately may be heard again now, and is not waited for long. */
const silentAnswerMs = 500;

/** `silent`: the names of those who did not answer. */
export interface Gathered {
  readonly uses: readonly GroupUse[];
  readonly silent: readonly string[];
}

export class GroupGather {
  readonly #own: number;
  readonly #peers: { workers(): readonly WorkerPeer[] };
  readonly #bus: () => Pick<Bus, "request" | "subjects"> | null;

  constructor(
    own: number,
    peers: { workers(): readonly WorkerPeer[] },
    bus: () => Pick<Bus, "request" | "subjects"> | null,
  ) {
    this.#own = own;
    this.#peers = peers;
    this.#bus = bus;
  }

  async gather(): Promise<Gathered> {
    const others = this.#peers.workers().filter(({ id }) => id !== this.#own);
    const answers = await Promise.all(others.map((peer) => this.#ask(peer)));
    return {
      uses: answers.flatMap((answer) => answer ?? []),
      silent: others.filter((_, at) => answers[at] === null).map(({ label }) => label),
    };
  }

  async #ask({ id, isSilent }: WorkerPeer): Promise<readonly GroupUse[] | null> {
    const bus = this.#bus();
    if (bus === null) return null;
    const limitMs = isSilent ? silentAnswerMs : answerMs;
    try {
      return (await bus.request(bus.subjects.groupUses(id), {}, limitMs)).groups;
    } catch (error) {
      if (!(error instanceof BusError)) throw error;
      return null;
    }
  }
}
