// PostgreSQL as the ledger's simulation sees it: it counts the connections that are really open, from the moment
// an attempt reaches it to the moment its own end is closed, which the worker learns of later.
// A connection outlives the worker that crashed. It can say what it shows of a worker, as pg_stat_activity does.

import type { World } from "./simulated_world.ts";

/** Attempts to connect that are given up, or whose process has died, are over after this time at most. */
const ATTEMPT_OUTLIVES_MS = 150;

export interface Connection {
  readonly leaf: string;
  /** Of the worker: opening and closing ones hold a slot too. "lost" is one whose owner crashed or closed it. */
  state: "opening" | "idle" | "busy" | "closing" | "lost";
  /** Of the server: not there yet, counted, or closed. */
  server: "coming" | "open" | "closed";
  idleSince: number;
}

/** The connections of one worker to one pool's database and user, dead workers' included. */
export class Backends {
  /** On the way to the server or open there: what may count against the caps without a new decision. */
  real = 0;
  /** Open at the server: what counts now. */
  open = 0;
  readonly all = new Set<Connection>();
}

export class Postgres {
  readonly #world: World;
  readonly #longLives: boolean;
  /** Connections take this long at most to reach the server, and their end to be closed there. */
  openingMs = 5;
  closingMs = 5;

  /** `longLives`: backends of a crashed worker may live on for up to a minute. */
  constructor(world: World, longLives: boolean) {
    this.#world = world;
    this.#longLives = longLives;
  }

  connect(
    backends: Backends,
    leaf: string,
    owner: { readonly diedAt: number | null },
    answered: (connection: Connection, accepted: boolean) => void,
  ): Connection {
    const { chance } = this.#world;
    const connection: Connection = { leaf, state: "opening", server: "coming", idleSince: 0 };
    backends.real++;
    backends.all.add(connection);
    this.#world.schedule(chance.between(0.2, this.openingMs), () => {
      if (connection.server !== "coming") return;
      connection.server = "open";
      backends.open++;
      if (owner.diedAt !== null) {
        this.#world.schedule(chance.between(1, 300), () => this.#closed(backends, connection));
        return;
      }
      const accepted = !chance.yes(0.01);
      if (!accepted) this.#closed(backends, connection);
      this.#world.schedule(chance.between(0.2, 5), () => answered(connection, accepted));
    });
    return connection;
  }

  /** The worker closed its end: the server's end follows, and then the worker knows. */
  close(backends: Backends, connection: Connection, closed: () => void): void {
    const { chance } = this.#world;
    const most = connection.server === "coming" ? ATTEMPT_OUTLIVES_MS : this.closingMs;
    this.#world.schedule(chance.between(0.2, most), () => {
      this.#closed(backends, connection);
      this.#world.schedule(chance.between(0.1, this.closingMs), closed);
    });
  }

  /** An administrator ends a backend; the worker reads of it later. */
  terminate(backends: Backends, connection: Connection, noticed: () => void): void {
    this.#closed(backends, connection);
    this.#world.schedule(this.#world.chance.between(0.2, 50), noticed);
  }

  /** What is left of a crashed worker goes in its own time. */
  outlive(backends: Backends): void {
    const { chance } = this.#world;
    for (const connection of backends.all) {
      connection.state = "lost";
      if (connection.server === "coming") {
        this.#world.schedule(ATTEMPT_OUTLIVES_MS, () => {
          if (connection.server === "coming") this.#closed(backends, connection);
        });
        continue;
      }
      const long = this.#longLives && chance.yes(0.25);
      this.#world.schedule(
        chance.between(1, long ? 60_000 : 600),
        () => this.#closed(backends, connection),
      );
    }
  }

  #closed(backends: Backends, connection: Connection): void {
    if (connection.server === "closed") return;
    if (connection.server === "open") backends.open--;
    connection.server = "closed";
    backends.real--;
    backends.all.delete(connection);
  }
}
