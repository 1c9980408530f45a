// When it is worth a garbage collection that many clients have logged in: a login leaves several times as much
// behind as a client that does nothing needs, and an engine collects it only when it makes new things. Pure: it
// is told the time.

/** Logins that leave some megabytes. */
const loginsMin = 1000;
/** The more clients there are the longer it takes: as a part of what their logins took it stays as small. */
const loginsPerClient = 0.25;
/** No collection while more come: those who have come first wait for it. */
const calmMs = 300;
/** JavaScriptCore gives memory back that the collection before has found unused: it takes two. */
const againMs = 200;

export class LoginGarbage {
  #logins = 0;
  #seen = 0;
  #seenAt = 0;
  #againAt = Infinity;

  onLogin(): void {
    this.#logins++;
  }

  /** Asked now and then: whether the engine should collect now, with so many clients. */
  isDue(now: number, clients: number): boolean {
    if (this.#logins !== this.#seen) {
      this.#seen = this.#logins;
      this.#seenAt = now;
    }
    if (now >= this.#againAt) {
      this.#againAt = Infinity;
      return true;
    }
    if (this.#logins < Math.max(loginsMin, loginsPerClient * clients)) return false;
    if (now - this.#seenAt < calmMs) return false;
    this.#logins = this.#seen = 0;
    this.#againAt = now + againMs;
    return true;
  }
}
