// What is known of a user of the auth_file, or of one that auth_query has found: its stored secret in the
// forms a login needs, derived at most once. Key derivation runs on the control thread; nothing here blocks the loop.

import type { UserSecret } from "../../../shared/config/mod.ts";
import {
  deriveScramSecret,
  mockScramSecret,
  parseScramSecret,
  type ScramKeys,
  type ScramSecret,
} from "../../../shared/wire/mod.ts";
import type { ControlLink } from "./control_link.ts";

export class Credential {
  readonly user: string;
  /** As it is stored. */
  readonly secret: string;
  readonly password: string | null;
  readonly md5: string | null;
  /** From the stored secret, or derived from the password at the first SCRAM login. */
  scram: ScramSecret | null;
  /** Keys that a client of this user proved to have: they log in to a server with the same secret. */
  scramKeys: ScramKeys | null = null;
  #waiting: ((secret: ScramSecret | null) => void)[] | null = null;

  /** Stands in for a user that is not known: no proof of it is taken. */
  readonly isMock: boolean;

  constructor(secret: UserSecret, isMock = false) {
    this.isMock = isMock;
    this.user = secret.user;
    this.secret = secret.secret;
    this.password = secret.kind === "plain" ? secret.secret : null;
    this.md5 = secret.kind === "md5" ? secret.secret : null;
    this.scram = secret.kind === "scram-sha-256" ? parseScramSecret(secret.secret) : null;
  }

  /** Whether its SCRAM keys are made for what a server asks: its secret may be another. */
  isFor({ salt, iterations }: Pick<ScramSecret, "salt" | "iterations">): boolean {
    const { scram } = this;
    return scram !== null && scram.iterations === iterations &&
      scram.salt.length === salt.length && scram.salt.every((byte, i) => byte === salt[i]);
  }

  /** Whether a client could prove to have its secret. */
  provesBy(method: string): boolean {
    if (this.password !== null || this.scram !== null) return true;
    return this.md5 !== null && method !== "scram-sha-256";
  }

  /** Gives the SCRAM secret; null if the user cannot have one. May call back at once. */
  scramSecret(
    control: ControlLink,
    mockKey: Uint8Array,
    iterations: number,
    callback: (secret: ScramSecret | null) => void,
  ): void {
    const password = this.password;
    if (this.scram !== null || password === null) {
      callback(this.scram);
      return;
    }
    if (this.#waiting !== null) {
      this.#waiting.push(callback);
      return;
    }
    this.#waiting = [callback];
    // The salt that an unknown user of this name has, on every worker: nobody can tell them apart.
    const { salt } = mockScramSecret(mockKey, this.user, iterations);
    control.saltedPassword(password, salt, iterations, (salted) => {
      if (salted !== null) this.scram = deriveScramSecret(salted, salt, iterations);
      const waiting = this.#waiting ?? [];
      this.#waiting = null;
      for (const each of waiting) each(this.scram);
    });
  }
}
