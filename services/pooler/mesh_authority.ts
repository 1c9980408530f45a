// Has commands of this worker's console carried out by all workers of the mesh: by the supervisors of its hosts,
// which are known by what their workers say of themselves. What concerns files is a matter of the own host.

import { type Bus, BusError, type Presence } from "../../shared/bus/mod.ts";
import { type Answer, type Command, done, refused } from "../../shared/console/mod.ts";
import type { Authority } from "./commands.ts";

/** A supervisor may wait for its workers' word, and each of them for its plane. */
const answerMs = 12_000;
/** A worker that has said nothing for so long is not there. */
const silentMs = 10_000;

interface Peer {
  readonly supervisor: string;
  readonly host: string;
  readonly heardAt: number;
}

export class MeshAuthority implements Authority {
  readonly #bus: () => Bus | null;
  readonly #own: string;
  readonly #peers = new Map<number, Peer>();

  constructor(own: string, bus: () => Bus | null) {
    this.#own = own;
    this.#bus = bus;
  }

  heard({ id, supervisor = "", host, state }: Presence): void {
    if (state === "gone" || supervisor === "") this.#peers.delete(id);
    else this.#peers.set(id, { supervisor, host, heardAt: performance.now() });
  }

  execute(command: Command): Promise<Answer> {
    return this.#ask(command, false);
  }

  left(command: Command): Promise<Answer> {
    return this.#ask(command, true);
  }

  async #ask(command: Command, again: boolean): Promise<Answer> {
    const bus = this.#bus();
    if (bus === null || !bus.connected) return { ...refused(noBus), left: 0 };
    const hosts = command.kind === "reload" ? [this.#own] : this.#supervisors();
    const answers = await Promise.all(hosts.map(async (supervisor): Promise<Answer> => {
      try {
        return await bus.request(
          bus.subjects.consoleHost(supervisor),
          { command, again },
          answerMs,
        );
      } catch (error) {
        if (!(error instanceof BusError)) throw error;
        return { ...done, notice: `no answer from: ${this.#workersOf(supervisor)}`, left: 0 };
      }
    }));
    return combined(command, answers);
  }

  #supervisors(): string[] {
    const now = performance.now();
    const names = new Set([this.#own]);
    for (const [id, { supervisor, heardAt }] of this.#peers) {
      if (now - heardAt >= silentMs) this.#peers.delete(id);
      else names.add(supervisor);
    }
    return [...names];
  }

  #workersOf(supervisor: string): string {
    const names = [...this.#peers].filter(([, peer]) => peer.supervisor === supervisor)
      .map(([id, { host }]) => `worker ${id} of ${host}`);
    return names.length === 0 ? "the supervisor" : names.join(", ");
  }
}

const noBus = {
  code: "08006",
  message: "the command could not be passed on: the bus can't be reached",
  hint: "Nothing was changed; try again when the bus is back",
};

/** One answer for all: who refuses speaks for all, unless it is about a client that only one of them has. */
export function combined(command: Command, answers: readonly Answer[]): Answer {
  const refusals = answers.flatMap(({ refusal }) => refusal === null ? [] : [refusal]);
  const notices = answers.flatMap(({ notice }) => notice === null ? [] : [notice]);
  const isRefused = command.kind === "kill_client"
    ? refusals.length === answers.length
    : refusals.length > 0;
  const isUndone = answers.some(({ left }) => left === -1);
  return {
    refusal: isRefused ? refusals[0] ?? null : null,
    notice: notices.length === 0 ? null : notices.join("; "),
    left: isUndone ? -1 : answers.reduce((sum, { left }) => sum + left, 0),
  };
}
