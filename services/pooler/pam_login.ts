// Checks passwords with PAM, whose modules block, on a thread of its own: one at a time, as PgBouncer does, since
// not every module could bear more. When one does not come to its end, others go on on another thread: it costs the logins
// that wait for it, and nobody else.

import {
  type PamAnswer,
  type PamQuestion,
  spawnThread,
  type Thread,
} from "../../shared/sys/mod.ts";
import type { Verdict } from "./password_checks.ts";

/** After so long a module is taken to hang. */
const hangsMs = 10_000;
/** Threads, those that hang included. */
const threadsMax = 4;

interface Asked {
  readonly question: PamQuestion;
  readonly isWanted: () => boolean;
  readonly done: (verdict: Verdict) => void;
}

interface Asker {
  readonly thread: Thread;
  /** null: it has nothing to do */
  asked: Asked | null;
  hangs: boolean;
}

export class PamLogin {
  readonly #spawn: () => Thread;
  readonly #hangsMs: number;
  readonly #waiting: Asked[] = [];
  readonly #askers = new Set<Asker>();

  constructor(
    spawn = () => spawnThread(new URL("./pam_thread.ts", import.meta.url), "pgweir pam"),
    limitMs = hangsMs,
  ) {
    this.#spawn = spawn;
    this.#hangsMs = limitMs;
  }

  /** Never throws, and takes as long as PAM does. What nobody wants any more when its turn comes is not asked. */
  check(question: PamQuestion, isWanted: () => boolean = () => true): Promise<Verdict> {
    // What PAM itself would make of an empty one is up to its modules.
    if (question.password === "" || question.password.includes("\0")) {
      return Promise.resolve("PAM login with an empty password");
    }
    if (question.user === "" || question.user.includes("\0")) {
      return Promise.resolve("invalid character in user name for PAM authentication");
    }
    return new Promise((done) => {
      this.#waiting.push({ question, isWanted, done });
      this.#goOn();
    });
  }

  /** Threads that are blocked stay so: only the end of the process ends them. */
  close(): void {
    for (const { thread } of this.#askers) thread.terminate();
  }

  #goOn(): void {
    const all = [...this.#askers];
    // One at a time, apart from those that hang.
    if (all.some(({ asked, hangs }) => asked !== null && !hangs)) return;
    const idle = all.find(({ asked }) => asked === null);
    if (idle === undefined && all.length >= threadsMax) return;
    const next = this.#nextWanted();
    if (next !== null) this.#give(idle ?? this.#hire(), next);
  }

  #nextWanted(): Asked | null {
    for (;;) {
      const next = this.#waiting.shift();
      if (next === undefined || next.isWanted()) return next ?? null;
      next.done("nobody waits for it");
    }
  }

  #give(asker: Asker, asked: Asked): void {
    asker.asked = asked;
    const limit = setTimeout(() => {
      asker.hangs = true;
      this.#goOn();
    }, this.#hangsMs);
    asker.thread.onMessage = (message) => {
      clearTimeout(limit);
      this.#answer(asked, message as PamAnswer);
      asker.asked = null;
      asker.hangs = false;
      this.#goOn();
    };
    asker.thread.onError = (error) => {
      clearTimeout(limit);
      this.#askers.delete(asker);
      asked.done(error.message);
      this.#goOn();
    };
    asker.thread.post(asked.question);
  }

  #answer({ done }: Asked, { refusal, delayMs, errors }: PamAnswer): void {
    const said = errors.map((error) => `; pam_conversation(): PAM error: ${error}`).join("");
    if (refusal === null) done(null);
    // The thread does not wait for that.
    else setTimeout(() => done(refusal + said), Math.min(delayMs, this.#hangsMs));
  }

  #hire(): Asker {
    const asker: Asker = { thread: this.#spawn(), asked: null, hangs: false };
    this.#askers.add(asker);
    return asker;
  }
}
