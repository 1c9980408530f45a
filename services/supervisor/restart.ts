// When a worker that died is started again, and when the host gives up on it. Pure: told the time, it
// answers. One RestartPolicy belongs to one seat (the place of a worker in the fleet), not to a process:
// a worker that crashes over and over must not hide behind siblings that run.

export interface RestartLimits {
  /** Delay after a first death; each further one in a row doubles it. */
  readonly firstDelayMs: number;
  readonly maxDelayMs: number;
  /** This many deaths within the window are a crash loop. */
  readonly loopDeaths: number;
  readonly loopWindowMs: number;
}

export const restartLimits: RestartLimits = {
  firstDelayMs: 100,
  maxDelayMs: 2000,
  loopDeaths: 5,
  loopWindowMs: 10_000,
};

export type RestartVerdict =
  | { readonly kind: "restart"; readonly delayMs: number }
  | { readonly kind: "give_up"; readonly deaths: number; readonly withinMs: number };

export class RestartPolicy {
  readonly #limits: RestartLimits;
  readonly #random: () => number;
  /** Times of the last deaths, oldest first, never more than loopDeaths. */
  #deaths: number[] = [];
  /** Deaths in a row of workers that lived shorter than the window. */
  #row = 0;

  /** `random` gives numbers in [0, 1): seats that died together must not come back in step. */
  constructor(limits: RestartLimits, random: () => number) {
    this.#limits = limits;
    this.#random = random;
  }

  /** A worker started at `startedAt` died at `now` (monotonic ms). */
  onDeath(startedAt: number, now: number): RestartVerdict {
    const { firstDelayMs, maxDelayMs, loopDeaths, loopWindowMs } = this.#limits;
    this.#deaths.push(now);
    if (this.#deaths.length > loopDeaths) this.#deaths.shift();
    const withinMs = now - this.#deaths[0]!;
    if (this.#deaths.length === loopDeaths && withinMs <= loopWindowMs) {
      return { kind: "give_up", deaths: loopDeaths, withinMs };
    }
    this.#row = now - startedAt < loopWindowMs ? this.#row + 1 : 1;
    const delayMs = Math.min(maxDelayMs, firstDelayMs * 2 ** (this.#row - 1));
    return { kind: "restart", delayMs: Math.round(delayMs * (0.5 + this.#random() / 2)) };
  }
}
