// What is known of a user of the auth_file, or of one that auth_query has found: its secrets in the forms a login
// needs, derived at most once, and whether a proof is one of them. Key derivation runs on the control thread;
// nothing here blocks the loop.
// Of several secrets any may be proved, and the first that can log in to a server does.

import { createHash, timingSafeEqual } from "node:crypto";
import { type SecretKind, secretsOf, type UserSecret } from "../../../shared/config/mod.ts";
import {
  deriveScramSecret,
  md5Secret,
  mockScramSecret,
  parseScramSecret,
  preparePassword,
  type ScramKeys,
  scramKeys,
  type ScramSecret,
  scramSecretMatches,
  verifyMd5Response,
} from "../../../shared/wire/mod.ts";
import type { ControlLink } from "./control_link.ts";

const utf8 = new TextEncoder();

type Salting = Pick<ScramSecret, "salt" | "iterations">;

/** Equal for users with the same secrets. */
function identityOf(user: UserSecret): string {
  return JSON.stringify(secretsOf(user).map(({ secret }) => secret));
}

export function sameSecrets(a: UserSecret | undefined, b: UserSecret | undefined): boolean {
  return a !== undefined && b !== undefined && identityOf(a) === identityOf(b);
}

export class Credential {
  readonly user: string;
  readonly identity: string;
  /** Stands in for a user that is not known: no proof of it is taken. */
  readonly isMock: boolean;
  readonly #passwords: readonly string[];
  readonly #md5: readonly string[];
  readonly #scram: readonly ScramSecret[];
  /** Keys that a client of this user proved to have: they log in to a server with the same secret. */
  scramKeys: ScramKeys | null = null;
  /** The stored secret that they are for. */
  #keysFor: Salting | null = null;
  /** What SCRAM can prove: all of one salt. */
  #offered: readonly ScramSecret[] | null = null;
  #waiting: ((secrets: readonly ScramSecret[]) => void)[] | null = null;

  constructor(secret: UserSecret, isMock = false) {
    const all = secretsOf(secret);
    const of = (wanted: SecretKind) =>
      all.filter(({ kind }) => kind === wanted).map(({ secret }) => secret);
    this.user = secret.user;
    this.identity = identityOf(secret);
    this.isMock = isMock;
    this.#passwords = of("plain");
    this.#md5 = of("md5");
    this.#scram = of("scram-sha-256").map(parseScramSecret).filter((each) => each !== null);
  }

  /** For servers. */
  get password(): string | null {
    return this.#passwords[0] ?? null;
  }

  /** For servers that ask for md5. */
  get md5(): string | null {
    return this.#md5[0] ?? null;
  }

  /** Whether it has a stored SCRAM secret: only SCRAM, or the password itself, proves that. */
  get hasScram(): boolean {
    return this.#scram.length > 0;
  }

  /** Whether its SCRAM keys are made for what a server asks: its secret may be another. */
  isFor(asked: Salting): boolean {
    return this.#keysFor !== null && sameSalting(this.#keysFor, asked);
  }

  /** Whether a client could prove to have one of its secrets. */
  provesBy(method: string): boolean {
    if (this.#passwords.length + this.#scram.length > 0) return true;
    return this.#md5.length > 0 && method !== "scram-sha-256";
  }

  /** Takes over the keys that a client has proved to have of the same secrets. */
  learn(other: Credential): void {
    this.scramKeys = other.scramKeys;
    this.#keysFor = other.#keysFor;
  }

  // --- proofs

  /** Whether a response to a md5 challenge is that of one of its secrets. */
  provesMd5(salt: Uint8Array, response: Uint8Array): boolean {
    const secrets = [...this.#md5, ...this.#passwords.map((each) => md5Secret(this.user, each))];
    // All of them: which one it was takes no other time.
    const right = secrets.filter((secret) => verifyMd5Response(secret, salt, response));
    return right.length > 0 && !this.isMock;
  }

  /** Whether a password is one of its own, as PostgreSQL would judge it. May call back at once. */
  provesPassword(
    given: Uint8Array,
    control: ControlLink,
    callback: (right: boolean) => void,
  ): void {
    const prepared = preparePassword(given);
    const hashed = utf8.encode(md5Secret(this.user, given));
    const right = [
      ...this.#passwords.map((each) => sameText(preparePassword(each), prepared)),
      ...this.#md5.map((each) => sameText(utf8.encode(each), hashed)),
    ];
    let left = this.#scram.length;
    const judge = () => {
      if (left === 0) callback(right.includes(true) && given.length > 0 && !this.isMock);
    };
    for (const secret of this.#scram) {
      control.saltedPassword(given, secret.salt, secret.iterations, (salted) => {
        left--;
        const isRight = salted !== null && scramSecretMatches(secret, salted);
        if (isRight && !this.isMock) this.#keep(scramKeys(salted), secret);
        right.push(isRight);
        judge();
      });
    }
    if (this.#scram.length === 0) judge();
  }

  /** A client has proved by SCRAM to have one of its secrets. */
  onScramProof({ serverKey, ...secret }: ScramSecret, clientKey: Uint8Array): void {
    // Where that was derived from a password, the password is what servers are given.
    if (this.#scram.some((each) => sameSalting(each, secret))) {
      this.#keep({ clientKey, serverKey }, secret);
    }
  }

  #keep(keys: ScramKeys, secret: Salting): void {
    this.scramKeys = keys;
    this.#keysFor = secret;
  }

  /** Gives the secrets that SCRAM can prove, of one salt; none if it has none. May call back at once. */
  scramSecrets(
    control: ControlLink,
    mockKey: Uint8Array,
    iterations: number,
    callback: (secrets: readonly ScramSecret[]) => void,
  ): void {
    if (this.#offered !== null) return callback(this.#offered);
    if (this.#waiting !== null) {
      this.#waiting.push(callback);
      return;
    }
    const stored = this.#scram[0];
    // Else the salt that an unknown user of this name has, on every worker: nobody can tell them apart.
    const salting = stored ?? mockScramSecret(mockKey, this.user, iterations);
    // A client can be told one salt: of the stored secrets those that have it.
    const found = this.#scram.filter((each) => sameSalting(each, salting));
    let left = this.#passwords.length;
    if (left === 0) return callback(this.#offered = found);
    this.#waiting = [callback];
    let failed = false;
    for (const password of this.#passwords) {
      control.saltedPassword(password, salting.salt, salting.iterations, (salted) => {
        left--;
        if (salted === null) failed = true;
        else found.push(deriveScramSecret(salted, salting.salt, salting.iterations));
        if (left > 0) return;
        if (!failed) this.#offered = found;
        const waiting = this.#waiting ?? [];
        this.#waiting = null;
        for (const each of waiting) each(found);
      });
    }
  }
}

function sameSalting(a: Salting, b: Salting): boolean {
  return a.iterations === b.iterations && a.salt.length === b.salt.length &&
    a.salt.every((byte, i) => byte === b.salt[i]);
}

/** Equal or not, in a time that does not depend on where they differ. */
function sameText(a: Uint8Array, b: Uint8Array): boolean {
  const digest = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest();
  return timingSafeEqual(digest(a), digest(b));
}
