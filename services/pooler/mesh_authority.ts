// Has commands of this worker's console carried out by all workers of the mesh: by the supervisors of its hosts,
// which are known by what their workers say of themselves. What concerns files is a matter of the own host.

import { type Bus, BusError, type Presence } from "../../shared/bus/mod.ts";
import { type Answer, type Command, refused, silentNotice } from "../../shared/console/mod.ts";
import type { Authority } from "./commands.ts";

/** A supervisor may wait for its workers' word, and each of them for its plane. */
const answerMs = 12_000;
/** A worker that has said nothing for so long is not there, or can't be reached. */
const silentMs = 10_000;
/** Who can't be reached is asked all the same, since it may be heard again now, but not waited for long. */
const silentAnswerMs = 1000;
/** One that has not said good-bye is named for so long. */
const forgottenMs = 10 * 60_000;

/** All speak each second: who is there has been heard after so long. */
const hearingMs = 1500;

/** It has missed some of its words, which come each second. */
const suspectMs = 3000;

export interface WorkerPeer {
  readonly id: number;
  readonly label: string;
  readonly isSilent: boolean;
}

interface Peer {
  readonly supervisor: string;
  readonly host: string;
  /** When its first and its latest word came. */
  readonly since: number;
  readonly heardAt: number;
}

export class MeshAuthority implements Authority {
  readonly #bus: () => Pick<Bus, "connected" | "request" | "subjects"> | null;
  readonly #own: string;
  readonly #now: () => number;
  readonly #peers = new Map<number, Peer>();
  #hearsAllAt = 0;

  constructor(
    own: string,
    bus: () => Pick<Bus, "connected" | "request" | "subjects"> | null,
    now: () => number = () => performance.now(),
  ) {
    this.#own = own;
    this.#bus = bus;
    this.#now = now;
  }

  /** What the workers of other hosts say of themselves comes from now on. */
  listens(): void {
    this.#hearsAllAt = this.#now() + hearingMs;
  }

  heard({ id, supervisor = "", host, state }: Pick<Presence, HeardOf>): void {
    if (state === "gone" || supervisor === "") {
      this.#peers.delete(id);
      return;
    }
    const now = this.#now();
    const before = this.#peers.get(id);
    const since = before?.supervisor === supervisor ? before.since : now;
    this.#peers.set(id, { supervisor, host, since, heardAt: now });
  }

  /** All workers that have not said good-bye, but those whose place another one of their host has taken. */
  workers(): WorkerPeer[] {
    const now = this.#now();
    const peers = [...this.#peers];
    return peers.flatMap(([id, { host, heardAt }]) => {
      const isSilent = now - heardAt >= suspectMs;
      const isReplaced = isSilent &&
        peers.some(([, other]) => other.host === host && other.since > heardAt);
      return isReplaced ? [] : [{ id, label: `worker ${id} of ${host}`, isSilent }];
    });
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
    const isForAll = command.kind !== "reload";
    const untilHeardMs = this.#hearsAllAt - this.#now();
    if (isForAll && untilHeardMs > 0) {
      await new Promise((resolve) => setTimeout(resolve, untilHeardMs));
    }
    const hosts = isForAll ? this.#supervisors() : [this.#own];
    const answers = await Promise.all(hosts.map(async (supervisor): Promise<Answer | null> => {
      try {
        return await bus.request(
          bus.subjects.consoleHost(supervisor),
          { command, again },
          this.#isSilent(supervisor) ? silentAnswerMs : answerMs,
        );
      } catch (error) {
        if (!(error instanceof BusError)) throw error;
        return null;
      }
    }));
    const silent = hosts.filter((_, at) => answers[at] === null);
    const said = answers.filter((answer) => answer !== null);
    const answer = combined(command, said);
    if (silent.length === 0) return answer;
    const names = silent.map((supervisor) => this.#workersOf(supervisor)).join(", ");
    const { notice } = answer;
    const missing = silentNotice([names]) as string;
    return { ...answer, notice: notice === null ? missing : `${notice}; ${missing}` };
  }

  /** The own one, and all that have not said good-bye. */
  #supervisors(): string[] {
    const now = this.#now();
    const names = new Set([this.#own]);
    for (const [id, { heardAt }] of this.#peers) {
      if (now - heardAt >= forgottenMs) this.#peers.delete(id);
    }
    const peers = [...this.#peers.values()];
    for (const { supervisor } of peers) {
      if (this.#isSilent(supervisor) && isFollowed(peers, supervisor)) continue;
      names.add(supervisor);
    }
    return [...names];
  }

  #isSilent(supervisor: string): boolean {
    const now = this.#now();
    return supervisor !== this.#own &&
      ![...this.#peers.values()].some((peer) =>
        peer.supervisor === supervisor && now - peer.heardAt < silentMs
      );
  }

  #workersOf(supervisor: string): string {
    const names = [...this.#peers].filter(([, peer]) => peer.supervisor === supervisor)
      .map(([id, { host }]) => `worker ${id} of ${host}`);
    return names.length === 0 ? "the supervisor" : names.join(", ");
  }
}

type HeardOf = "id" | "supervisor" | "host" | "state";

/** Its host runs another one, which was first heard after its last word: it was started again. */
function isFollowed(peers: readonly Peer[], supervisor: string): boolean {
  const own = peers.filter((peer) => peer.supervisor === supervisor);
  const last = Math.max(...own.map(({ heardAt }) => heardAt));
  return peers.some((peer) =>
    peer.supervisor !== supervisor && peer.since > last &&
    own.some(({ host }) => host === peer.host)
  );
}

const noBus = {
  code: "08006",
  message: "the command could not be passed on: the bus can't be reached",
  hint: "Nothing was changed; try again when the bus is back",
};

/** Where some are in the state that a command leads to already, it was carried out by the others. */
const completing: readonly Command["kind"][] = ["pause", "suspend", "resume"];

/** One answer for all: who refuses speaks for all, unless the command was one for some of them only. */
export function combined(command: Command, answers: readonly Answer[]): Answer {
  const refusals = answers.flatMap(({ refusal }) => refusal === null ? [] : [refusal]);
  const notices = answers.flatMap(({ notice }) => notice === null ? [] : [notice]);
  const completes = completing.includes(command.kind);
  const isRefused = completes || command.kind === "kill_client"
    ? refusals.length > 0 && refusals.length === answers.length
    : refusals.length > 0;
  if (completes && !isRefused) {
    for (const { message } of refusals) notices.push(`not on all hosts: ${message}`);
  }
  const isUndone = answers.some(({ left }) => left === -1);
  return {
    refusal: isRefused ? refusals[0] ?? null : null,
    notice: notices.length === 0 ? null : notices.join("; "),
    left: isUndone ? -1 : answers.reduce((sum, { left }) => sum + left, 0),
  };
}
