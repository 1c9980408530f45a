// Passwords that somebody else knows to be right or not, an LDAP server or PAM: asked on the control thread for the data
// plane. So many at once, the others in line, first come, first served; who leaves meanwhile is not asked for.

import type { LdapOptions } from "../../shared/config/mod.ts";
import { Turns } from "../../shared/host/mod.ts";
import { LdapLogin, type ResolveName, type Verdict } from "./ldap_login.ts";

const ldapAtOnce = 16;
/** Beyond, a login fails at once: an LDAP server that answers at all is asked a hundred times in a second. */
const waitingMax = 4096;

/** Plain data: it goes from thread to thread. */
export interface PasswordProof {
  readonly user: string;
  readonly password: string;
  readonly ldap: LdapOptions;
}

export class PasswordChecks {
  readonly #ldap: LdapLogin;
  readonly #turns = new Turns(ldapAtOnce);
  /** Those that wait or are asked for. */
  readonly #wanted = new Set<number>();
  readonly #tell: (id: number, verdict: Verdict) => void;

  constructor(resolve: ResolveName, tell: (id: number, verdict: Verdict) => void) {
    this.#ldap = new LdapLogin(resolve);
    this.#tell = tell;
  }

  /** Answers each that is not abandoned. */
  async check(id: number, { user, password, ldap }: PasswordProof): Promise<void> {
    if (this.#wanted.size >= waitingMax) {
      this.#tell(id, "too many logins wait for the LDAP server");
      return;
    }
    this.#wanted.add(id);
    const verdict = await this.#turns.run(async () => {
      return this.#wanted.has(id) ? await this.#ldap.check(ldap, user, password) : null;
    });
    if (this.#wanted.delete(id)) this.#tell(id, verdict);
  }

  abandon(id: number): void {
    this.#wanted.delete(id);
  }
}
