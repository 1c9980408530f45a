// Reads an auth_file: one `"user" "secret"` a line, "" for a quote inside, `;` starts a comment line,
// further fields are left alone. As in PgBouncer the last line of a user wins, unless all of them are to count
// (auth_several_secrets). Stricter in two points:
// a field ends on its line, and a broken line is reported and skipped (PgBouncer drops the rest of the
// file). Messages give line numbers, never a secret.

import type { Problem } from "./problem.ts";
import { quote } from "./problem.ts";

export type SecretKind =
  /** an empty secret: this user can prove nothing, so no password ever matches */
  | "none"
  | "plain"
  /** `md5` and 32 hex digits */
  | "md5"
  /** `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>` */
  | "scram-sha-256";

export interface UserSecret {
  readonly user: string;
  readonly kind: SecretKind;
  readonly secret: string;
  /** of its further lines; with auth_several_secrets the first one is above */
  readonly others?: readonly UserSecret[];
}

/** All that a user may prove to have, the first one first. */
export function secretsOf(user: UserSecret): readonly UserSecret[] {
  return [user, ...user.others ?? []];
}

export interface Userlist {
  readonly users: ReadonlyMap<string, UserSecret>;
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
}

export const MAX_USER_BYTES = 128;
const MAX_SECRET_BYTES = 65531;
/** A login tries all of them. */
const MAX_SECRETS = 4;

const MD5 = /^md5[0-9a-f]{32}$/;
const SCRAM =
  /^SCRAM-SHA-256\$[1-9][0-9]{0,9}:[A-Za-z0-9+/]+={0,2}\$[A-Za-z0-9+/]{43}=:[A-Za-z0-9+/]{43}=$/;
const FIELD = /"([^"]*(?:""[^"]*)*)"(?!")/y;
const encoder = new TextEncoder();

export function secretKind(secret: string): SecretKind {
  if (secret === "") return "none";
  if (MD5.test(secret)) return "md5";
  return SCRAM.test(secret) ? "scram-sha-256" : "plain";
}

function byteLength(text: string): number {
  return encoder.encode(text).length;
}

type Line = UserSecret | { readonly failure: string } | null;

function parseLine(line: string): Line {
  const text = line.trim();
  if (text === "" || text.startsWith(";")) return null;
  if (text.startsWith("#")) return { failure: `comments start with ";"` };
  if (!text.startsWith('"')) {
    return { failure: `line does not start with a quote: "user" "secret" is wanted` };
  }
  FIELD.lastIndex = 0;
  const user = FIELD.exec(text)?.[1]?.replaceAll('""', '"');
  if (user === undefined) return { failure: "the quote of the user is not closed" };
  const rest = text.slice(FIELD.lastIndex).trimStart();
  if (!rest.startsWith('"')) return { failure: `no secret in quotes after the user` };
  FIELD.lastIndex = 0;
  const secret = FIELD.exec(rest)?.[1]?.replaceAll('""', '"');
  if (secret === undefined) return { failure: "the quote of the secret is not closed" };
  if (user === "") return { failure: "the user is empty" };
  if (byteLength(user) > MAX_USER_BYTES) {
    return { failure: `the user is longer than ${MAX_USER_BYTES} bytes` };
  }
  if (byteLength(secret) > MAX_SECRET_BYTES) {
    return { failure: `the secret is longer than ${MAX_SECRET_BYTES} bytes` };
  }
  if (/[\0\uFFFD]/.test(user) || /[\0\uFFFD]/.test(secret)) {
    return { failure: "line is not valid UTF-8, or holds a NUL character" };
  }
  return { user, kind: secretKind(secret), secret };
}

/** `file` names the file in messages; `several`: all lines of a user count. */
export function parseUserlist(text: string, file: string, several = false): Userlist {
  const users = new Map<string, UserSecret>();
  const lines = new Map<string, number>();
  const problems: Problem[] = [];
  const warnings: Problem[] = [];
  let number = 0;
  for (const raw of text.split("\n")) {
    number++;
    const line = parseLine(raw);
    if (line === null) continue;
    if ("failure" in line) {
      problems.push({ file, line: number, message: line.failure });
      continue;
    }
    const earlier = lines.get(line.user);
    if (earlier !== undefined && !several) {
      const message = `user ${quote(line.user)} stood in line ${earlier} already, this line wins`;
      warnings.push({ file, line: number, message });
    }
    if (line.kind === "plain" && line.secret.startsWith("SCRAM-SHA-256$")) {
      const message = `secret of ${
        quote(line.user)
      } starts like a SCRAM secret but is none: taken as plain text`;
      warnings.push({ file, line: number, message });
    }
    lines.set(line.user, number);
    const first = several ? users.get(line.user) : undefined;
    if (first === undefined) {
      users.set(line.user, Object.freeze(line));
      continue;
    }
    const others = [...first.others ?? [], Object.freeze(line)];
    if (others.length === MAX_SECRETS) {
      const message = `user ${quote(line.user)} has more than ${MAX_SECRETS} secrets`;
      problems.push({ file, line: number, message });
    } else if (others.length < MAX_SECRETS) {
      users.set(line.user, Object.freeze({ ...first, others: Object.freeze(others) }));
    }
  }
  return { users, problems, warnings };
}
