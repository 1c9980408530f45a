// The scripts: our own beside this file, and PostgreSQL's regression tests where their source package was fetched.
// Both are in psql's format. It says what each needs of a session; who runs them how is the tests' affair.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { regressFolder } from "../../support/needs.ts";
import { readScript, type Statement } from "./psql_script.ts";

export interface Script {
  readonly name: string;
  readonly statements: readonly Statement[];
  /** Whether it counts on what outlasts a transaction. */
  readonly needsSession: boolean;
}

/** Our own scripts; one that needs a session says so in its first line. */
export function ownScripts(): Script[] {
  const folder = join(import.meta.dirname!, "scripts");
  return readdirSync(folder).sort().map((file) => {
    const text = readFileSync(join(folder, file), "latin1");
    return {
      name: file,
      statements: readScript(text),
      needsSession: text.startsWith("-- needs the session\n"),
    };
  });
}

/**
 * What pg_regress makes of a database, so that texts are what the scripts were written for. A commit that is waited for
 * makes plans repeatable: they depend on what VACUUM already finds to be visible to all.
 */
export const REGRESS_SETTINGS: Readonly<Record<string, string>> = {
  synchronous_commit: "on",
  bytea_output: "hex",
  timezone_abbreviations: "Default",
  TimeZone: "PST8PDT",
  DateStyle: "Postgres, MDY",
  IntervalStyle: "postgres_verbose",
};

// They ask for times of day, statistics of the whole server, and random salts.
const NEVER_EQUAL = ["stats", "password"];

// They ask what a server or its session was used for before: how many transactions there were, some of which clean up
// behind a session; and, which no reset makes undone, whether a library is loaded, which place the session has, how
// many portals had no name.
const ASKS_FOR_PAST = new RegExp(
  [
    String.raw`\b(?:txid_current|pg_current_xact_id)\(\)|\brelfrozenxid\b`,
    String.raw`\bpg_my_temp_schema\b|\bplpgsql\.extra_foo|\bLOAD 'plpgsql'|\bselect forc01\(`,
  ].join("|"),
  "i",
);

// From PostgreSQL 18 on EXPLAIN (ANALYZE) says how many buffers it found, which depends on all that ran before.
const COUNTS_BUFFERS =
  /\bexplain\s*\([^)]*\banalyze\b|\bexplain\s+analyze\b|\bselect\s+(?:\*\s+from\s+)?explain_\w+\(/i;

function schedule(): string[][] {
  const text = readFileSync(join(regressFolder()!, "parallel_schedule"), "utf8");
  return [...text.matchAll(/^test: (.*)$/gm)].map((line) => line[1]!.trim().split(/\s+/));
}

/** The groups of the schedule whose tests may run side by side, from the one with a test to before the one with another. */
export function regressGroups(from: string, before: string): string[][] {
  const groups = schedule();
  const start = groups.findIndex((group) => group.includes(from));
  const end = groups.findIndex((group) => group.includes(before));
  if (start < 0 || end < 0) throw new Error(`schedule of tests: no "${from}" or "${before}"`);
  return groups.slice(start, end).map((group) =>
    group.filter((name) => !NEVER_EQUAL.includes(name))
  );
}

/** Names of the regression tests in the order of their schedule, from one to before another. */
export function regressNames(from: string, before: string | null): string[] {
  const names = schedule().flat();
  const start = names.indexOf(from);
  const end = before === null ? names.length : names.indexOf(before);
  if (start < 0 || end < 0) throw new Error(`schedule of tests: no "${from}" or "${before}"`);
  return names.slice(start, end).filter((name) => !NEVER_EQUAL.includes(name));
}

/** Scripts by name, without what no two servers would answer alike. */
export function regressScripts(names: readonly string[]): Script[] {
  const folder = regressFolder()!;
  const environment = { PG_ABS_SRCDIR: folder, PG_LIBDIR: "/nothing", PG_DLSUFFIX: ".so" };
  return names.map((name) => join(folder, "sql", `${name}.sql`)).filter(existsSync).map((file) => ({
    name: basename(file, ".sql"),
    statements: readScript(readFileSync(file, "latin1"), { environment }).filter(({ sql }) =>
      !ASKS_FOR_PAST.test(sql) && !COUNTS_BUFFERS.test(sql)
    ),
    needsSession: true,
  }));
}

const CHANGES_ROLE = /\bset\s+(?:local\s+|session\s+)?(?:session\s+authorization|role)\b/i;

const OUTLASTS_A_TRANSACTION = new RegExp(
  [
    String.raw`(?:^|;)\s*(?:set|reset)\s+(?!local\b|transaction\b|constraints\b)`,
    String
      .raw`\btemp(?:orary)?\b|\bpg_temp|\bwith\s+hold\b|\bset_config\b|advisory|currval|lastval`,
    String.raw`\bprepare\b|\bexecute\s+[a-z_"]|\bdeallocate\b|\blisten\b|\bload\b|\bdiscard\b`,
    String.raw`\bsetseed\b|\brandom\b|\bpg_prepared_statements\b`,
  ].join("|"),
  "i",
);

function withoutLiterals(sql: string): string {
  return sql.replace(/--.*|'(?:''|[^'])*'/g, "");
}

/** Whether a script becomes another role: without that, as a superuser, it would take the server apart. */
export function changesRole(script: Script): boolean {
  return script.statements.some(({ sql }) => CHANGES_ROLE.test(sql));
}

/** A script without the statements whose effect outlasts a transaction. */
export function withoutSessionState(script: Script): Script {
  const statements = script.statements.filter(({ sql }) =>
    !OUTLASTS_A_TRANSACTION.test(withoutLiterals(sql))
  );
  return { ...script, statements, needsSession: false };
}

/** The scripts with each statement's text made its own, so that no two are the same prepared statement. */
export function withOwnTexts(scripts: readonly Script[]): Script[] {
  let number = 0;
  return scripts.map((script) => ({
    ...script,
    statements: script.statements.map((s) => ({ ...s, sql: `${s.sql}\n/* ${++number} */` })),
  }));
}
