// Salted passwords of SCRAM that were derived lately: PBKDF2 takes milliseconds, and the same is asked for at each
// login. Found by a hash, so no password is kept here. Whoever asks for what is being derived waits for the same.
// Bounded: what was not asked for longest is derived again.

import { createHash } from "node:crypto";

type Done = (salted: Uint8Array | null) => void;

/** Derives one on another thread; null if that failed. */
export type Derive = (
  password: string | Uint8Array,
  salt: Uint8Array,
  iterations: number,
  done: Done,
) => void;

const keptMax = 1000;

export class DerivedKeys {
  readonly #derive: Derive;
  readonly #keptMax: number;
  /** The one asked for last is the last. */
  readonly #kept = new Map<string, Uint8Array>();
  readonly #waiting = new Map<string, Done[]>();

  constructor(derive: Derive, max = keptMax) {
    this.#derive = derive;
    this.#keptMax = max;
  }

  /** May call back at once. */
  get(password: string | Uint8Array, salt: Uint8Array, iterations: number, done: Done): void {
    const key = keyOf(password, salt, iterations);
    const known = this.#kept.get(key);
    if (known !== undefined) {
      this.#kept.delete(key);
      this.#kept.set(key, known);
      return done(known);
    }
    const others = this.#waiting.get(key);
    if (others !== undefined) {
      others.push(done);
      return;
    }
    const waiting = [done];
    this.#waiting.set(key, waiting);
    this.#derive(password, salt, iterations, (salted) => {
      this.#waiting.delete(key);
      if (salted !== null) this.#keep(key, salted);
      for (const each of waiting) each(salted);
    });
  }

  #keep(key: string, salted: Uint8Array): void {
    this.#kept.set(key, salted);
    if (this.#kept.size <= this.#keptMax) return;
    const [oldest] = this.#kept.keys();
    this.#kept.delete(oldest as string);
  }
}

function keyOf(password: string | Uint8Array, salt: Uint8Array, iterations: number): string {
  return createHash("sha256").update(`${iterations} ${salt.length} `).update(salt).update(password)
    .digest("base64");
}
