// How many server connections log in to one PostgreSQL at once: each login is a new process there, and after an
// outage all pools want all their servers in the same moment. The pools of a server take turns, first come, first
// served, one login each; a server that hangs holds up only its own pools. Pure.
// Invariant: a place is free again at once when its login has ended, one way or the other.

/** A pool: it opens what it needs as far as `mayEnter` lets it, and comes again for the rest. */
export interface GateUser {
  grow(): void;
}

export class LoginGate {
  readonly #limit: () => number;
  /** In the order they came. */
  readonly #waiting = new Set<GateUser>();
  #turn: GateUser | null = null;
  underWay = 0;

  /** `limit`: 0 is none. */
  constructor(limit: () => number) {
    this.#limit = limit;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  get #isFull(): boolean {
    const limit = this.#limit();
    return limit > 0 && this.underWay >= limit;
  }

  /** Whether one more login may begin now; if not, the user is called when it may. */
  mayEnter(user: GateUser): boolean {
    if (!this.#isFull && (this.#waiting.size === 0 || this.#turn === user)) {
      // Its turn is one login, if others wait.
      this.#turn = null;
      return true;
    }
    this.#waiting.add(user);
    return false;
  }

  /** A login begins; some do not ask, and count all the same. */
  enter(): void {
    this.underWay++;
  }

  leave(): void {
    this.underWay--;
  }

  /** Called after each batch of events: lets those in who wait, as far as there is room. */
  admit(): void {
    // Who comes again in its turn waits behind the others.
    for (let left = this.#waiting.size; left > 0 && !this.#isFull; left--) {
      const [user] = this.#waiting as Iterable<GateUser> as readonly [GateUser];
      this.#waiting.delete(user);
      this.#turn = user;
      user.grow();
      this.#turn = null;
    }
  }
}

/** One gate for each PostgreSQL: the hosts and the port of its databases. */
export class LoginGates {
  readonly #limit: () => number;
  readonly #gates = new Map<string, LoginGate>();

  constructor(limit: () => number) {
    this.#limit = limit;
  }

  of(hosts: readonly string[], port: number): LoginGate {
    const key = `${hosts.join(",")}:${port}`;
    let gate = this.#gates.get(key);
    if (gate === undefined) this.#gates.set(key, gate = new LoginGate(this.#limit));
    return gate;
  }

  onBatchEnd(): void {
    for (const gate of this.#gates.values()) if (gate.waiting > 0) gate.admit();
  }

  /** Forgets those that nobody uses. */
  sweep(): void {
    for (const [key, gate] of this.#gates) {
      if (gate.waiting === 0 && gate.underWay === 0) this.#gates.delete(key);
    }
  }
}
