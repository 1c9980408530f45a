// What each signal that asks pgweir to stop means, by the ones before it. Pure: told the time. npm passes
// a Ctrl-C on to a program that the terminal has already sent it to, so the same wish arrives twice within
// a moment; only a later one is a second wish.

/** drain: let transactions end. quit: end at once. nothing: said already. */
export type StopStep = "drain" | "quit" | "nothing";

const echoMs = 300;

export class StopRequests {
  #drainedAt: number | null = null;
  #quit = false;

  on(signal: "SIGINT" | "SIGTERM" | "SIGQUIT", now: number): StopStep {
    if (this.#quit) return "nothing";
    if (signal !== "SIGQUIT") {
      if (this.#drainedAt === null) {
        this.#drainedAt = now;
        return "drain";
      }
      if (now - this.#drainedAt < echoMs) return "nothing";
    }
    this.#quit = true;
    return "quit";
  }
}
