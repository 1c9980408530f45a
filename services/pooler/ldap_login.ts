// Checks passwords with LDAP servers, on the control thread: one connection for each login, a few at once, the others
// wait in line. Whatever does not answer costs the login that asked, and nobody else.
// A server that could not be reached is tried last for a while, so that each login does not wait for it again.

import type { LdapOptions, LdapSearch, LdapServer } from "../../shared/config/mod.ts";
import type { NameAnswer } from "../../shared/host/mod.ts";
import { hostPort } from "../../shared/sys/mod.ts";
import { LdapConnection, LdapFailure, type LdapTarget } from "./ldap_connection.ts";
import { boundName, filterFor } from "./ldap_names.ts";
import type { Verdict } from "./password_checks.ts";

const avoidMs = 30_000;
/** Servers and addresses that are remembered as out of reach: they come from the file, and are few. */
const avoidedMax = 1000;

export type ResolveName = (host: string) => Promise<NameAnswer>;

export class LdapLogin {
  readonly #resolve: ResolveName;
  readonly #open: (target: LdapTarget) => Promise<LdapConnection>;
  readonly #now: () => number;
  /** By server and address: until when it is tried last. */
  readonly #avoided = new Map<string, number>();

  constructor(
    resolve: ResolveName,
    open = (target: LdapTarget) => LdapConnection.open(target),
    now = () => performance.now(),
  ) {
    this.#resolve = resolve;
    this.#open = open;
    this.#now = now;
  }

  /** Never throws. */
  async check(options: LdapOptions, user: string, password: string): Promise<Verdict> {
    // With an empty one, or none, many servers would take the bind for that of nobody, and say yes.
    if (password === "" || password.includes("\0")) return "LDAP login with an empty password";
    const { template } = options;
    const name = template === null ? null : boundName(template, user);
    if (template !== null && name === null) {
      return "invalid character in user name for LDAP authentication";
    }
    const failures: string[] = [];
    for (const target of await this.#targets(options, failures)) {
      try {
        const verdict = await this.#ask(target, options, name, user, password);
        this.#avoided.delete(keyOf(target));
        return verdict;
      } catch (error) {
        if (!(error instanceof LdapFailure)) throw error;
        if (error.isAnswer) return error.message;
        this.#avoid(target);
        failures.push(error.message);
      }
    }
    return failures.join("; ");
  }

  /** The addresses of all servers, in the order in which they are tried. */
  async #targets({ servers, tls }: LdapOptions, failures: string[]): Promise<LdapTarget[]> {
    const targets: LdapTarget[] = [];
    for (const server of servers) {
      const { addresses, reason } = await this.#resolve(server.host);
      if (addresses.length === 0) failures.push(notReached(server, reason));
      targets.push(...addresses.map((address) => ({ server, address, tls })));
    }
    const now = this.#now();
    const isAvoided = (target: LdapTarget) => (this.#avoided.get(keyOf(target)) ?? 0) > now;
    return [...targets.filter((each) => !isAvoided(each)), ...targets.filter(isAvoided)];
  }

  /** `name`: what to bind to; null = it is looked for. Throws LdapFailure. */
  async #ask(
    target: LdapTarget,
    options: LdapOptions,
    name: string | null,
    user: string,
    password: string,
  ): Promise<Verdict> {
    const connection = await this.#open(target).catch((error: unknown) => {
      if (!(error instanceof LdapFailure)) throw error;
      throw new LdapFailure(notReached(target.server, error.message));
    });
    try {
      const server = hostPort(target.server.host, target.server.port);
      const found = name === null ? await search(connection, server, options, user) : { name };
      if ("missing" in found) return found.missing;
      const what = `LDAP login failed for user ${found.name} on server ${server}`;
      await explained(what, () => connection.bind(found.name, password));
      return null;
    } finally {
      connection.close();
    }
  }

  #avoid(target: LdapTarget): void {
    if (this.#avoided.size >= avoidedMax) this.#avoided.clear();
    this.#avoided.set(keyOf(target), this.#now() + avoidMs);
  }
}

/** The name of the one entry that is the user's. Throws LdapFailure. */
async function search(
  connection: LdapConnection,
  server: string,
  options: LdapOptions,
  user: string,
): Promise<{ readonly name: string } | { readonly missing: string }> {
  const wanted = options.search as LdapSearch;
  const filter = filterFor(wanted.filter, user);
  const { bindDn } = wanted;
  await explained(
    `could not perform initial LDAP bind for ldapbinddn "${bindDn}" on server "${server}"`,
    () => connection.bind(bindDn, options.bindPassword),
  );
  const [name = "", ...others] = await explained(
    `could not search LDAP for filter "${filter}" on server "${server}"`,
    () => connection.search(wanted, filter),
  );
  if (others.length > 0) return { missing: `LDAP user "${user}" is not unique` };
  // The empty name is that of nobody.
  return name === "" ? { missing: `LDAP user "${user}" does not exist` } : { name };
}

function notReached(server: LdapServer, reason: string): string {
  return `could not connect to LDAP server ${hostPort(server.host, server.port)}: ${reason}`;
}

async function explained<T>(what: string, question: () => Promise<T>): Promise<T> {
  try {
    return await question();
  } catch (error) {
    if (!(error instanceof LdapFailure)) throw error;
    throw new LdapFailure(`${what}: ${error.message}`, error.isAnswer);
  }
}

function keyOf({ server, address }: LdapTarget): string {
  return `${address} ${server.port}`;
}
