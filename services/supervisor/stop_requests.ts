// What each signal that asks pgweir to stop means, by the ones before it. Pure: told the time. npm passes
// a Ctrl-C on to a program that the terminal has already sent it to, so the same wish arrives twice within
// a moment; only a later one is a second wish.

/** clients: when all have left. servers: when all are given back. quit: at once. nothing: said already. */
export type StopStep = "clients" | "servers" | "quit" | "nothing";

const echoMs = 300;

export class StopRequests {
  #last: "clients" | "servers" | null = null;
  #at = 0;
  #quit = false;

  on(signal: "SIGINT" | "SIGTERM" | "SIGQUIT", now: number): StopStep {
    if (this.#quit) return "nothing";
    if (signal !== "SIGQUIT") {
      const wish = signal === "SIGTERM" ? "clients" : "servers";
      if (this.#last === wish && now - this.#at < echoMs) return "nothing";
      if (this.#last === null || (this.#last === "clients" && wish === "servers")) {
        this.#last = wish;
        this.#at = now;
        return wish;
      }
    }
    this.#quit = true;
    return "quit";
  }
}
