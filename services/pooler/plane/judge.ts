// Who judges a password that the pooler itself does not know: an LDAP server, or PAM. As in PgBouncer users need not be in the
// auth_file then, auth_query is not asked, and servers are logged in to with the password that was found right.

import { Buffer } from "node:buffer";
import { type Config, type HbaRule, PAM_SERVICE } from "../../../shared/config/mod.ts";
import type { PasswordProof } from "../password_checks.ts";
import { Credential } from "./credentials.ts";
import { type Refusal, refusals } from "./refusals.ts";

export interface Judge {
  /** What a client gets whose password is not found right, for whatever reason: the log has it. */
  readonly refusal: Refusal;
  readonly proofOf: (client: Who, password: Uint8Array) => PasswordProof;
  /** What servers are logged in with when it was right. */
  readonly credentialOf: (client: Who, password: Uint8Array) => Credential;
}

interface Who {
  readonly user: string;
  readonly address: { readonly host: string };
}

/** null: clients prove who they are by what the pooler knows. */
export function judgeFor(config: Config, rule: HbaRule | null): Judge | null {
  const { authType, pamConfigDir: folder } = config.settings;
  const ldap = rule === null ? config.ldap : rule.ldap;
  if (ldap !== null) {
    return judge(refusals.ldapFailed, ({ user }, password) => {
      return { kind: "ldap", options: ldap, user, password };
    });
  }
  const own = authType === "pam" ? PAM_SERVICE : null;
  const service = rule === null ? own : rule.pamService;
  if (service === null) return null;
  return judge(refusals.pamFailed, ({ user, address: { host } }, password) => {
    return { kind: "pam", question: { service, folder, user, password, host } };
  });
}

function judge(refusal: Refusal, proofOf: (client: Who, password: string) => PasswordProof): Judge {
  return {
    refusal,
    proofOf: (client, password) => proofOf(client, textOf(password)),
    credentialOf: ({ user }, password) => {
      return new Credential({ user, kind: "plain", secret: textOf(password) });
    },
  };
}

/** "" for what is no text, which nobody takes for a password. */
function textOf(password: Uint8Array): string {
  const text = Buffer.from(password).toString();
  return Buffer.from(text).equals(password) ? text : "";
}
