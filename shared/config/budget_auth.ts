// Reads `budget_auth`, the login with which the coordinator looks for backends:
// `user=pgweir password='it''s' dbname=postgres`. Pure. Messages name keys and columns, never values.

import { parseConnectionString } from "./connstr.ts";

export interface BudgetAuth {
  readonly user: string;
  /** null: none was given. */
  readonly password: string | null;
  /** null: none was given, so the database of each entry of [databases]. */
  readonly dbname: string | null;
}

const KEYS: readonly string[] = ["user", "password", "dbname"];

/** null for an empty text: no login. */
export function parseBudgetAuth(text: string): BudgetAuth | null | { readonly failure: string } {
  if (text === "") return null;
  const parsed = parseConnectionString(text);
  if ("failure" in parsed) return parsed;
  const values = new Map<string, string>();
  for (const [index, { key, value }] of parsed.pairs.entries()) {
    // What is no key may be a piece of a password with a blank in it: it is not repeated.
    if (!KEYS.includes(key)) {
      return { failure: `key ${index + 1} is unknown` };
    }
    if (values.has(key)) return { failure: `${key} stands twice` };
    values.set(key, value);
  }
  const user = values.get("user");
  if (user === undefined) return { failure: "it names no user" };
  return { user, password: values.get("password") ?? null, dbname: values.get("dbname") ?? null };
}
