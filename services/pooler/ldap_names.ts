// The names that an LDAP server is asked for: what a client calls itself is put into them so that it means nothing
// but itself there (RFC 4514, RFC 4515). Pure.

import type { LdapOptions } from "../../shared/config/mod.ts";

/** What would end or extend a name where it cannot be escaped. */
// deno-lint-ignore no-control-regex
const meaningful = /[\x00-\x1f\x7f,+"\\<>;*()/]/;

/**
 * The name to bind to that prefix and suffix make of the user's; null = with this user it could be that of
 * somebody else.
 */
export function boundName(
  { prefix, suffix }: NonNullable<LdapOptions["template"]>,
  user: string,
): string | null {
  // Behind "attribute=" stands a value of a distinguished name, in which everything can be escaped.
  if (/[A-Za-z0-9]\s*=\s*$/.test(prefix)) return `${prefix}${escapeDnValue(user)}${suffix}`;
  return meaningful.test(user) ? null : `${prefix}${user}${suffix}`;
}

/** The filter that finds the user. */
export function filterFor(filter: string, user: string): string {
  return filter.replaceAll("$username", () => escapeFilterValue(user));
}

function escapeDnValue(text: string): string {
  return text
    .replace(/[,+"\\<>;=]/g, "\\$&")
    .replace(/^[ #]|(?<!^) $/g, "\\$&")
    .replaceAll("\0", "\\00");
}

function escapeFilterValue(text: string): string {
  return text.replace(
    // deno-lint-ignore no-control-regex
    /[\x00*()\\]/g,
    (character) => `\\${character.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );
}
