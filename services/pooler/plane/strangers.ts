// What stands in for users that are not known, or have no secret that could prove anything: a credential that is
// asked for like theirs, answers after the same work, and that nobody can prove to have. Whoever knows no password
// cannot tell who exists.
// Which kind of secret a stranger seems to have is drawn from those that the known users have, by name and always
// the same on all workers: a name that is asked for SCRAM is no likelier to exist than one that is not.

import { createHmac } from "node:crypto";
import type { SecretKind, UserSecret } from "../../../shared/config/mod.ts";
import { formatScramSecret, mockScramSecret } from "../../../shared/wire/mod.ts";
import { Credential } from "./credentials.ts";

export class Strangers {
  readonly #key: Uint8Array;
  /** Of the auth_file, the share of SCRAM secrets. */
  #share = 0;
  /** What auth_query has found; PostgreSQL makes SCRAM secrets unless it is told otherwise. */
  #scramFound = 1;
  #otherFound = 0;

  /** `key` is secret, and the same on all workers. */
  constructor(key: Uint8Array) {
    this.#key = key;
  }

  /** The users of the auth_file. */
  know(users: Iterable<UserSecret>): void {
    const kinds = [...users].map(({ kind }) => kind).filter((kind) => kind !== "none");
    const scram = kinds.filter((kind) => kind === "scram-sha-256");
    this.#share = kinds.length === 0 ? 0 : scram.length / kinds.length;
  }

  /** auth_query has found a user. */
  onFound(kind: SecretKind): void {
    if (kind === "scram-sha-256") this.#scramFound++;
    else this.#otherFound++;
  }

  /** `lookedUp`: auth_query was asked for it, so it is taken for one of those that it finds. */
  credential(user: string, iterations: number, method: string, lookedUp: boolean): Credential {
    const isScram = method === "scram-sha-256" ||
      (lookedUp ? this.#scramFound > this.#otherFound : this.#draw(user) < this.#share);
    const kind = isScram ? "scram-sha-256" : "md5";
    return new Credential({ user, kind, secret: this.#secret(user, iterations, isScram) }, true);
  }

  #secret(user: string, iterations: number, isScram: boolean): string {
    if (isScram) return formatScramSecret(mockScramSecret(this.#key, user, iterations));
    return `md5${this.#digest("md5", user).toString("hex", 0, 16)}`;
  }

  /** Which of the names that exist one is treated as that does not; null: there are none. */
  standIn(name: string, all: readonly string[]): string | null {
    return all[Math.floor(this.#draw(name) * all.length)] ?? null;
  }

  /** From 0 to 1, for a name always the same. */
  #draw(user: string): number {
    return this.#digest("method", user).readUInt32BE(0) / 2 ** 32;
  }

  #digest(label: string, user: string) {
    return createHmac("sha256", this.#key).update(`${label}\0${user}`).digest();
  }
}
