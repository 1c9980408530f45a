// Passwords that somebody else knows to be right or not, an LDAP server or PAM: asked on the control thread for the data
// plane. So many at once, the others in line, first come, first served; who leaves meanwhile is not asked for.

import type { LdapOptions } from "../../shared/config/mod.ts";
import { Turns } from "../../shared/host/mod.ts";
import type { PamQuestion } from "../../shared/sys/mod.ts";
import type { LdapLogin } from "./ldap_login.ts";
import type { PamLogin } from "./pam_login.ts";

const ldapAtOnce = 16;
/** Beyond, a login fails at once. */
const waitingMax = 4096;

/** Plain data: it goes from thread to thread. */
export type PasswordProof =
  | {
    readonly kind: "ldap";
    readonly options: LdapOptions;
    readonly user: string;
    readonly password: string;
  }
  | { readonly kind: "pam"; readonly question: PamQuestion };

/** Why somebody is not let in, in words for the log; null = the password is right. */
export type Verdict = string | null;

export class PasswordChecks {
  readonly #ldap: Pick<LdapLogin, "check">;
  readonly #pam: Pick<PamLogin, "check" | "close">;
  readonly #turns = new Turns(ldapAtOnce);
  /** Those that wait or are asked for. */
  readonly #wanted = new Set<number>();
  readonly #tell: (id: number, verdict: Verdict) => void;

  constructor(
    ldap: Pick<LdapLogin, "check">,
    pam: Pick<PamLogin, "check" | "close">,
    tell: (id: number, verdict: Verdict) => void,
  ) {
    this.#ldap = ldap;
    this.#pam = pam;
    this.#tell = tell;
  }

  /** Answers each that is not abandoned. */
  async check(id: number, proof: PasswordProof): Promise<void> {
    if (this.#wanted.size >= waitingMax) {
      this.#tell(id, `too many logins wait for ${proof.kind === "ldap" ? "LDAP" : "PAM"}`);
      return;
    }
    this.#wanted.add(id);
    const isWanted = () => this.#wanted.has(id);
    const verdict = proof.kind === "pam"
      ? await this.#pam.check(proof.question, isWanted)
      : await this.#turns.run(async () => {
        const { options, user, password } = proof;
        return isWanted() ? await this.#ldap.check(options, user, password) : null;
      });
    if (this.#wanted.delete(id)) this.#tell(id, verdict);
  }

  abandon(id: number): void {
    this.#wanted.delete(id);
  }

  close(): void {
    this.#pam.close();
  }
}
